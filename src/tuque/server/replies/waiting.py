"""Replies that wait for copies: of ADDJOB, and of tubes with SYNC (SPEC B2.4, R1.10, T18.5).

The ADDJOBs of one connection are replicated side by side. Each waiting one leaves a hole in
its client's replies; later replies queue behind the hole until it is filled, so that replies
go out in the order of the commands. Any other command waits until all holes are filled. When
the links to other nodes are full, ADDJOBs that need copies wait until there is room or their
timeout is over (SPEC B2.4).
"""

from __future__ import annotations

from collections import deque
from typing import Final

from mypy_extensions import i64

from tuque.core.copies.add import fill_in, must_be_external
from tuque.core.model.errors import LATE, NOREPL_TIMEOUT, Refusal
from tuque.core.model.job import AddSpec
from tuque.core.model.timers import NEVER_MS
from tuque.core.node.node import NODE_DOUBLE, NODE_LEAVING, Node
from tuque.core.node.peers import slots_of
from tuque.core.queues.deliver import wake_all
from tuque.core.queues.procedures import FAR
from tuque.logtext import facts
from tuque.server.bus.peers import Bus
from tuque.server.replies.errors import IDLE, core_words, iproto_words, resp_words
from tuque.server.state.client import (
    HELD_MANY,
    HELD_ORDER,
    HELD_ROOM,
    HOLE,
    LIGHT,
    NOT_HELD,
    PUT,
    REPLY_OFF,
    REPLY_SKIPPING,
    WIRED,
    Client,
    Connection,
    Pending,
    Wired,
    weigh,
)
from tuque.server.state.server import SYNCED, Server, log
from tuque.tubes.log.leader import copies_needed, synced
from tuque.tubes.model.errors import TubeError
from tuque.tubes.model.tubes import Tubes
from tuque.wire.commands.add_options import addjob_options
from tuque.wire.commands.arguments import ArgError, timeout_ms
from tuque.wire.proto.iproto import error_reply as iproto_error
from tuque.wire.proto.resp import int_reply

HOLES_MAX: Final = 10_000  # waiting replies per client; it may add more when half are out
KEEP_MS: Final = 200  # between two writes of nodes.conf
BESIDE: Final = [b"ACK", b"RELEASE", b"TOUCH", b"BURY", b"KICK", b"DELETE"]
STALL_MS: Final = 1_000  # a producer that lacks room checks again after it


def await_copies(s: Server, c: Client) -> None:
    """[R1.10] Reply to the ADDJOB just begun once its copies are made."""
    if len(c.holes) == 0:
        s.blocked += 1
    if c.reply_mode == REPLY_OFF or c.reply_mode == REPLY_SKIPPING:
        c.muted[c.first_serial + len(c.holes)] = None
    c.holes.append(None)


def keep_order(n: Node, c: Client, written: i64) -> None:
    """Queue immediate replies behind those still pending."""
    if len(c.out) > written:
        reply = b"".join(c.out[written:])
        c.holes.append(reply)
        del c.out[written:]
        owe(n, c, len(reply))


def owe(n: Node, c: Connection, size: i64) -> None:
    """[M5] Count a reply that waits for others (M5.1)."""
    c.owed_bytes += size
    if size > LIGHT:
        weigh(n, c)


def tell_added(s: Server) -> None:
    """Reply to producers whose wait is over, as far as the order of their replies allows."""
    added = s.n.added
    s.n.added = []
    for one in added:
        c = s.by_number.get(one.client)
        if c is None:
            continue
        at: i64 = one.serial - c.first_serial
        if at < c.holes_head or at >= len(c.holes):
            continue  # it was undone
        if len(c.muted) > 0 and one.serial in c.muted:
            del c.muted[one.serial]
            c.holes[at] = b""
        elif one.error is not None:
            c.holes[at] = c.error_bytes(core_words(one.error))
        elif len(one.ids) > 0:
            c.holes[at] = reply = ids_reply(one.ids)  # for a TOPIC ADD (T62.5)
            owe(s.n, c, len(reply))
        elif len(one.id) == 0:
            c.holes[at] = int_reply(one.count)  # for a PUBLISH (Z3.1)
        elif one.serial in c.told_new:
            c.holes[at] = new_reply(one.id, c.told_new[one.serial])
        else:
            c.holes[at] = b"+%s\r\n" % one.id
        if len(c.told_new) > 0:
            c.told_new.pop(one.serial, None)
        if at == c.holes_head:
            flush_replies(s, c)


def new_reply(id: bytes, is_new: bool) -> bytes:
    """[Z4] The reply to ADDJOB WITHNEW (Z4.7)."""
    return b"*2\r\n+%s\r\n:%d\r\n" % (id, is_new)


def ids_reply(ids: list[bytes]) -> bytes:
    """[T62] The reply to TOPIC ADD (T62.1)."""
    parts = [b"*%d\r\n" % len(ids)]
    for id in ids:
        parts.append(b"+%s\r\n" % id)
    return b"".join(parts)


def flush_replies(s: Server, c: Client) -> None:
    """The first hole is filled: send it, and all replies up to the next hole."""
    holes = c.holes
    count: i64 = len(holes)
    i = c.holes_head
    while i < count:
        reply = holes[i]
        if reply is None:
            break
        c.out.append(reply)
        i += 1
    c.holes_head = i
    c.last_ms = s.n.now_ms
    s.touch(c)
    if i == count:
        c.first_serial += count
        c.holes_head = c.owed_bytes = 0
        holes.clear()
        s.blocked -= 1
        if c.held == HELD_ORDER or c.held == HELD_MANY or c.reader.error:
            go_on(s, c)
        return
    if i >= HOLES_MAX:  # a pipeline without an end: drop what was sent
        del holes[:i]
        c.first_serial += i
        c.holes_head = 0
        c.owed_bytes = sum([len(reply) for reply in holes if reply is not None])
    if c.held == HELD_MANY and (count - i) * 2 < HOLES_MAX:
        go_on(s, c)


def go_on(s: Server, c: Client) -> None:
    """The next command may run (again)."""
    c.held = NOT_HELD
    s.resumed.append(c)


def must_wait(s: Server, c: Client, args: list[bytes]) -> bool:
    """Whether the next command must wait for earlier ADDJOBs, or for room; notes which."""
    if args[0] != b"ADDJOB" and args[0].upper() != b"ADDJOB":
        if len(c.holes) == 0:
            return False
        if not runs_beside(args):
            c.held = HELD_ORDER
            return True
    if len(c.holes) - c.holes_head >= HOLES_MAX:
        c.held = HELD_MANY
        return True
    if s.is_crowded and not runs_beside(args) and must_stall(s, c, args):
        c.held = HELD_ROOM
        return True
    return False


def runs_beside(args: list[bytes]) -> bool:
    """[T15] Whether it may run while others wait for copies: a change in a tube (T15.11)."""
    if len(args) >= 4 and args[0].upper() == b"VALUE":
        return args[1].upper() != b"WAIT"
    if len(args) < 4 or args[0].upper() != b"TUBE":
        return False
    word = args[1].upper()
    if word == b"PUT":
        return all(args[i].upper() != b"TIMEOUT" for i in range(4, len(args), 2))
    return word in BESIDE and (word != b"KICK" or len(args[3]) <= 3)


def must_stall(s: Server, c: Client, args: list[bytes]) -> bool:
    """[B2.4] Whether the ADDJOB needs copies, the links lack room, and it may still wait."""
    n = s.n
    try:
        spec = s.plain_spec if len(args) == 4 else fill_in(n, addjob_options(args))
        wait_ms = timeout_ms(args[3]) if len(args) > 3 else 0
    except ArgError:
        return False  # it gets its error
    if not lacks_room(n, spec):
        c.stalled_ms = 0
        return False
    if c.stalled_ms == 0:
        c.stalled_ms = n.now_ms
    look_ms = n.now_ms + STALL_MS
    if wait_ms > 0:
        end_ms = max(c.stalled_ms, c.came_ms) + wait_ms
        if end_ms <= n.now_ms:
            return False  # too late: run it, and it is refused
        look_ms = min(look_ms, end_ms)
    s.stalled[c.number] = look_ms
    return True


def lacks_room(n: Node, spec: AddSpec) -> bool:
    """Whether enough nodes are reachable for all copies, but too few links have room."""
    needed = spec.replicate if must_be_external(n) else spec.replicate - 1
    if needed < 1 or needed > n.reachable_count:
        return False
    count: i64 = 0
    for slot in slots_of(n.reachable):
        if n.peers[slot].has_room:
            count += 1
    return count < needed


def late_refusal(s: Server, spec: AddSpec) -> Refusal | None:
    """[R5.1] An ADDJOB is refused if its timeout passed without room; None if there was room."""
    return Refusal(NOREPL_TIMEOUT) if lacks_room(s.n, spec) else None


def next_stall_ms(s: Server) -> i64:
    """When the next stalled producer is checked; NEVER_MS if there is none."""
    at_ms: i64 = NEVER_MS
    for look_ms in s.stalled.values():
        if look_ms < at_ms:
            at_ms = look_ms
    return at_ms


def wake_stalled(s: Server) -> None:
    """Retry producers that lack room: all once the links have it, else those due."""
    for number, look_ms in list(s.stalled.items()):
        if s.is_crowded and look_ms > s.n.now_ms:
            continue
        del s.stalled[number]
        c = s.by_number.get(number)
        if c is not None and c.held == HELD_ROOM:
            go_on(s, c)


def run_link_timers(s: Server, bus: Bus) -> None:
    """Run the timers of the links, and copy what producers need to know."""
    n = s.n
    if bus.next_ms() <= n.now_ms:
        bus.tick()
    s.is_crowded = bus.crowded > 0
    if s.conflict != s.members.duplicate_id.where:
        on_conflict(s)
    if s.idle != s.members.why_idle():
        on_idle(s)
    if s.members.is_changed and s.keep_ms <= n.now_ms:
        s.keep_ms = n.now_ms + KEEP_MS
        if bus.card is not None:
            s.identity.is_leaving = bool(n.is_leaving)  # K7.8
        if s.identity.save_soon(s.members):
            s.members.is_changed = False


def on_idle(s: Server) -> None:
    """[K6] This node does no work from now on, or again: say so, refuse who waits (K6.4, K1.4)."""
    was, s.idle = s.idle, s.members.why_idle()
    if s.idle in IDLE:
        wake_all(s.n, NODE_LEAVING)
    if s.idle == "forgotten":
        log.warning(
            "this node was removed from its cluster by CLUSTER FORGET, and does no work. To take "
            "it back, CLUSTER RESET it or start it without its journal, and CLUSTER MEET it",
            facts("forgotten"),
        )
    elif s.idle == "unmet":
        log.warning(
            "this node does no work: it is not in its cluster, which knows another one at this "
            "address. CLUSTER MEET it; or CLUSTER FORGET the other one there, and CLUSTER RESET "
            "this one",
            facts("unmet"),
        )
    elif was in IDLE:
        log.info("this node does its work again", facts("works_again"))


def on_conflict(s: Server) -> None:
    """[K1] A conflict has begun or is over: say so, and refuse who waits (K1.3)."""
    was, s.conflict = s.conflict, s.members.duplicate_id.where
    if s.conflict and not was:
        wake_all(s.n, NODE_DOUBLE)  # V7.1
        log.warning(
            "another node, at %(address)s, has the id of this one: this node does no work until "
            "that is over. Stop the one that is the copy, move its nodes.conf and its journal "
            "away, and start it again",
            facts("conflict", address=s.conflict),
        )
    elif not s.conflict:
        log.info("no other node with the id of this one is seen any more", facts("conflict_over"))


# ---- Changes of tubes with SYNC: the reply waits until enough nodes have them (SPEC T18.5)
#
# The core notes which tubes with SYNC a command has changed. The reply is held here until the
# copies are confirmed, for `cluster-node-timeout` at most: RESP clients have a hole in their
# replies meanwhile, as producers do; calls of IPROTO are answered in any order.


def hold_back(s: Server, t: Tubes, c: Client, written: i64) -> None:
    """A command changed tubes with SYNC: its output from `written` on waits for copies."""
    lacking = take_lacking(s, t)
    if len(lacking) == 0 or len(c.out) == written:
        return  # all copies are there, or nobody reads the reply
    one = enter(s, lacking, HOLE, c.number, c.first_serial + len(c.holes))
    one.reply = b"".join(c.out[written:])
    del c.out[written:]
    owe(s.n, c, len(one.reply))
    await_copies(s, c)


def hold_back_wired(s: Server, t: Tubes, w: Wired, sync: int, written: i64) -> None:
    """The same for an IPROTO call."""
    lacking = take_lacking(s, t)
    if len(lacking) == 0 or len(w.out) == written:
        return
    one = enter(s, lacking, WIRED, w.number, sync)
    one.reply = b"".join(w.out[written:])
    del w.out[written:]
    owe(s.n, w, len(one.reply))
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
    if len(line) == 1:
        s.alarms.set(SYNCED, min(s.alarms.at(SYNCED), one.until_ms))


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
    s.alarms.set(SYNCED, next_sync_ms(s))


def next_sync_ms(s: Server) -> i64:
    """When the next waiting reply times out; NEVER_MS: none waits."""
    at_ms: i64 = NEVER_MS
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
            w.owed_bytes -= len(one.reply)
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
        flush_replies(s, c)


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
