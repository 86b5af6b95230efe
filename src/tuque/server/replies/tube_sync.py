"""Replies that wait until enough nodes have the change (SPEC T18.5).

The core notes which tubes with SYNC a command has changed. The reply is held here until the copies
are confirmed, for `cluster-node-timeout` at most: RESP clients have a hole in their replies
meanwhile, as producers do; calls of IPROTO are answered in any order.
"""

from __future__ import annotations

from collections import deque

from mypy_extensions import i64

from tuque.core.queues.procedures import FAR
from tuque.server.replies.producers import await_copies, let_follow
from tuque.server.replies.words import iproto_words, resp_words
from tuque.server.state.client import HOLE, PUT, WIRED, Client, Pending
from tuque.server.state.iproto_connection import Wired
from tuque.server.state.state import Server
from tuque.tubes.log.leader import copies_needed, synced
from tuque.tubes.model.errors import LATE, TubeError
from tuque.tubes.model.tubes import Tubes
from tuque.wire.proto.iproto import error_reply as iproto_error


def hold_back(s: Server, t: Tubes, c: Client, written: i64) -> None:
    """A command changed tubes with SYNC: its output from `written` on waits for copies."""
    lacking = take_lacking(s, t)
    if len(lacking) == 0 or len(c.out) == written:
        return  # all copies are there, or nobody reads the reply
    one = enter(s, lacking, HOLE, c.number, c.first_serial + len(c.holes))
    one.reply = b"".join(c.out[written:])
    del c.out[written:]
    await_copies(s, c)


def hold_back_wired(s: Server, t: Tubes, w: Wired, sync: int, written: i64) -> None:
    """The same for an IPROTO call."""
    lacking = take_lacking(s, t)
    if len(lacking) == 0 or len(w.out) == written:
        return
    one = enter(s, lacking, WIRED, w.number, sync)
    one.reply = b"".join(w.out[written:])
    del w.out[written:]
    w.uncopied += 1


def take_lacking(s: Server, t: Tubes) -> list[tuple[bytes, int, int]]:
    """The tubes that the call changed and too few nodes have, with epoch and number of the
    change.
    """
    changed = t.to_sync
    t.to_sync = {}
    found: list[tuple[bytes, int, int]] = []
    for name, tube in changed.items():
        if synced(s.n, t, tube) < tube.seq:
            found.append((name, tube.epoch, tube.seq))
    return found


def enter(
    s: Server, lacking: list[tuple[bytes, int, int]], kind: i64, client: i64, serial: i64
) -> Pending:
    """Wait until these changes are on enough nodes."""
    one = Pending(kind, client, serial, s.n.now_ms + s.members.timeout_ms)
    one.rest = lacking
    queue_up(s, one)
    return one


def queue_up(s: Server, one: Pending) -> None:
    """Wait for the first of the remaining tubes."""
    name, one.epoch, one.seq = one.rest.pop(0)
    line = s.syncing.get(name)
    if line is None:
        line = deque()
        s.syncing[name] = line
    line.append(one)


def tell_synced(s: Server, t: Tubes) -> None:
    """Reply where the copies are made, or the time is over."""
    for name in list(s.syncing):
        line = s.syncing[name]
        tube = t.by_name.get(name)
        done: i64 = FAR if tube is None else synced(s.n, t, tube)
        needed = 1 if tube is None else int(copies_needed(s.n, t, tube))
        while len(line) > 0:
            one = line[0]
            is_done = one.seq <= done
            if tube is not None and one.epoch != tube.epoch:
                is_done = False  # T18.5: the number may be another change's now
            elif not is_done and one.until_ms > s.n.now_ms:
                break
            line.popleft()
            if not is_done:
                tell(s, one, TubeError(LATE, (needed,)))
            elif len(one.rest) > 0:
                queue_up(s, one)
            else:
                tell(s, one, None)
        if len(line) == 0:
            del s.syncing[name]


def next_sync_ms(s: Server) -> i64:
    """When the next waiting reply times out."""
    at_ms: i64 = FAR
    for line in s.syncing.values():
        if line[0].until_ms < at_ms:
            at_ms = line[0].until_ms
    return at_ms


def tell(s: Server, one: Pending, error: TubeError | None) -> None:
    """Send the held reply, or the error."""
    if one.kind == WIRED:
        w = s.wired_by_number.get(one.client)
        if w is not None:
            w.uncopied -= 1
            told = None if error is None else iproto_words(error)
            w.out.append(
                one.reply
                if told is None
                else iproto_error(one.serial, told.code, w.worded(told.text))
            )
            w.last_ms = s.n.now_ms
            s.touch(w)
        return
    c = s.by_number.get(one.client)
    if c is None:
        return
    reply = one.reply if error is None else c.error_bytes(resp_words(error))
    if one.kind == PUT:
        tell_late_put(s, c, one.serial, reply)
        return
    at: i64 = one.serial - c.first_serial
    if at < c.holes_head or at >= len(c.holes) or c.holes[at] is not None:
        return  # it was undone
    c.muted.pop(one.serial, None)
    c.holes[at] = reply
    if at == c.holes_head:
        let_follow(s, c)


def tell_late_put(s: Server, c: Client, serial: i64, reply: bytes) -> None:
    """Reply to a put that waited for room, then for copies."""
    if not c.is_putting or c.put_serial != serial:
        return
    c.is_putting = False
    c.is_blocked = False
    s.blocked -= 1
    c.last_ms = s.n.now_ms
    if not c.is_put_muted:
        c.out.append(reply)
    s.touch(c)
    if len(c.todo) > 0 or c.reader.error:
        s.resumed.append(c)
