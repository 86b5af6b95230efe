"""Replies of tubes, at once and later, for RESP and for IPROTO (SPEC T15, T16, I3, I7)."""

from collections.abc import Callable
from typing import Final

from librt.strings import BytesWriter
from mypy_extensions import i64, mypyc_attr, u8

from tuque.core.model.job import Job
from tuque.core.model.task import BYTES, DELAYED, STATUS_NAMES, TAKEN, TEXT, Task
from tuque.core.node.node import GOT_JOBS, HOME_MOVED, NODE_DOUBLE, NODE_LEAVING, Wake
from tuque.core.queues.procedures import stop_waiting
from tuque.server.replies.errors import CONFLICT, CONFLICT_TEXT, LEAVING, LEAVING_TEXT
from tuque.server.replies.redirects import moved_error, moved_text
from tuque.server.replies.waiting import enter, hold_back_wired
from tuque.server.state.client import (
    PUT,
    REPLY_OFF,
    REPLY_SKIPPING,
    Client,
    Connection,
    LongCommand,
    Wired,
)
from tuque.server.state.server import Server
from tuque.tubes.leadership.catalog_in import is_nowhere
from tuque.tubes.log.leader import needs_home, synced
from tuque.tubes.model.options import PutDone
from tuque.tubes.model.tube import Tube
from tuque.tubes.model.tubes import Tubes
from tuque.tubes.policy import tubes_of
from tuque.tubes.tasks.sessions import session_for
from tuque.wire.commands.tube_arguments import FORMS as FORM_NAMES
from tuque.wire.commands.tube_arguments import TubeArgs
from tuque.wire.commands.tube_table import Procedure
from tuque.wire.proto.iproto import (
    E_ACCESS,
    E_READ_ONLY,
    array_head,
    binary,
    data_reply,
    error_reply,
    string,
    tuples_of,
    unsigned,
)
from tuque.wire.proto.resp import Status, digits

SHORT: Final = 1024  # shorter bodies are copied rather than passed on
# the bytes between the values of a task, by status and by form
STATES: Final[list[bytes]] = [
    b"\r\n+%s\r\n$" % STATUS_NAMES.get(status, b"") for status in range(DELAYED + 1)
]
FORMS: Final[list[bytes]] = [b"\r\n+%s\r\n" % name for name in FORM_NAMES]

NULL: Final = b"\xc0"

OK: Final = Status("OK")


def put_task(out: list[bytes], task: Task) -> None:
    """[T15.3] A task as `[id, state, body, token, job id, form]`."""
    body = task.body
    w = BytesWriter()
    w.write(b"*6\r\n:")
    write_int(w, task.number)
    w.write(STATES[i64(task.status)])
    write_int(w, len(body))
    w.write(b"\r\n")
    if len(body) <= SHORT:
        w.write(body)
    else:
        out.append(w.getvalue())
        out.append(body)
        w = BytesWriter()
    w.write(b"\r\n:")
    write_int(w, task.token if task.status == TAKEN else i64(0))
    w.write(b"\r\n$40\r\n")
    w.write(task.id)
    w.write(FORMS[i64(task.form)])
    out.append(w.getvalue())


def write_int(w: BytesWriter, value: i64) -> None:
    """The digits of a number >= 0."""
    size = digits(value)
    at: i64 = len(w) + size
    i: i64 = 0
    while i < size:
        w.append(48)
        i += 1
    while value > 0:
        at -= 1
        w[at] = u8(48 + value % 10)
        value //= 10


def put_none(c: Client) -> None:
    """No task: a null array."""
    c.out.append(b"_\r\n" if c.resp3 else b"*-1\r\n")


def reply_take(s: Server, c: Client, wake: Wake) -> None:
    """[T15] Reply to a TAKE that waited; its client has been unblocked."""
    c.is_taking = False
    if wake.why == GOT_JOBS:
        put_first(c, wake.jobs)
    elif wake.why == NODE_LEAVING:
        c.error(LEAVING)
    elif wake.why == NODE_DOUBLE:
        c.error(CONFLICT)
    elif wake.why == HOME_MOVED:
        c.error(moved_text(s, wake.queue))
    else:
        put_none(c)


def put_first(c: Client, jobs: list[Job]) -> None:
    """Reply with the one task; a plain job entered the queue before it became a tube."""
    for job in jobs:
        if isinstance(job, Task):
            put_task(c.out, job)
            return
    put_none(c)


def await_room(s: Server, c: Client) -> None:
    """[T7] Block the client until its PUT has room (T7.2)."""
    c.put_serial += 1
    c.is_putting = True
    c.is_put_muted = c.reply_mode == REPLY_OFF or c.reply_mode == REPLY_SKIPPING
    c.is_blocked = True
    s.blocked += 1


def tell_puts_resp(s: Server, t: Tubes) -> None:
    """[T7] Reply to finished PUTs of RESP clients; leave the others in the list."""
    if len(t.put_done) == 0:
        return
    left: list[PutDone] = []
    for one in t.put_done:
        c = s.by_number.get(one.client)
        if c is None:
            left.append(one)
        elif c.is_putting and c.put_serial == one.serial:
            if not waits_for_copies(s, t, one):
                tell_put(s, c, one)
    t.put_done = left


def waits_for_copies(s: Server, t: Tubes, one: PutDone) -> bool:
    """[T18] Whether the put that found room must first reach more nodes (T18.5)."""
    task = one.task
    tube = None if task is None else t.by_name.get(task.queue)
    if task is None or tube is None or synced(s.n, t, tube) >= tube.seq:
        return False
    pending = enter(s, [(tube.name, tube.epoch, tube.seq)], PUT, one.client, one.serial)
    out: list[bytes] = []
    put_task(out, task)
    pending.reply = b"".join(out)
    return True


def tell_put(s: Server, c: Client, one: PutDone) -> None:
    """The client's PUT found room, or timed out (T7.3), or the leader changed (T20.2)."""
    task = one.task
    c.is_putting = False
    c.is_blocked = False
    s.blocked -= 1
    c.last_ms = s.n.now_ms
    if not c.is_put_muted:
        if len(one.moved) > 0:
            c.error(moved_text(s, one.moved))
        elif task is None:
            put_none(c)
        else:
            put_task(c.out, task)
    s.touch(c)
    if len(c.todo) > 0 or c.reader.error:
        s.resumed.append(c)


# ---- IPROTO: values, and replies that come later (SPEC I3, I7)


def task_value(task: Task) -> bytes:
    """[I3] A task as `[id, status, data]`, its data as sent (I3.5)."""
    body = task.body
    if task.form == BYTES:
        body = binary(body)
    elif task.form == TEXT:
        body = string(body)
    number = unsigned(int(task.number))
    return b"".join([b"\x93", number, b"\xa1", bytes([task.status]), body])


def put_values(w: Wired, sync: int, is_16: bool, found: list[bytes]) -> None:
    """Reply to a call with values, in the form of its type."""
    w.out.append(data_reply(sync, tuples_of(found) if is_16 else found))


def list_value(found: list[bytes]) -> bytes:
    """An array of values."""
    return array_head(len(found)) + b"".join(found)


def reply_take_iproto(s: Server, wake: Wake) -> None:
    """[I7] End a take's wait: with a task, without one, or with an error."""
    take = s.takes.pop(wake.client, None)
    if take is None:
        return
    w = take.conn
    del w.takes[wake.client]
    if wake.why == NODE_LEAVING:
        w.out.append(error_reply(take.sync, E_READ_ONLY, LEAVING_TEXT))
    elif wake.why == NODE_DOUBLE:
        w.out.append(error_reply(take.sync, E_READ_ONLY, CONFLICT_TEXT))
    elif wake.why == HOME_MOVED:
        told = moved_error(s, wake.queue)  # T20.2
        w.out.append(error_reply(take.sync, told.code, w.worded(told.text)))
    else:
        found: list[bytes] = []
        if wake.why == GOT_JOBS:
            for job in wake.jobs:
                assert isinstance(job, Task)
                found.append(task_value(job))
        put_values(w, take.sync, take.is_16, found)
    w.last_ms = s.n.now_ms
    s.touch(w)


def end_waiting(s: Server, w: Wired, code: int, text: bytes) -> None:
    """Every waiting call of the connection ends with that error."""
    for number in w.takes:
        take = s.takes.pop(number)
        stop_waiting(s.n, number)
        w.out.append(error_reply(take.sync, code, w.worded(text)))
    for put in w.puts.values():
        w.out.append(error_reply(put.sync, code, w.worded(text)))
    for claim in w.claims.values():
        w.out.append(error_reply(claim.sync, code, w.worded(text)))
    w.takes = {}
    w.claims = {}
    w.puts = {}  # the tube drops them when the connection leaves its session
    s.touch(w)


def end_takes(s: Server, w: Wired, tube: bytes, text: bytes) -> None:
    """[T10] End the connection's waiting takes of a tube that it may no longer call (T10.4)."""
    for number in list(w.takes):
        take = s.takes[number]
        if take.tube != tube:
            continue
        del s.takes[number]
        del w.takes[number]
        stop_waiting(s.n, number)
        w.out.append(error_reply(take.sync, E_ACCESS, w.worded(text)))
        s.touch(w)


def tell_puts(s: Server, t: Tubes) -> None:
    """[I7] Reply to puts that waited for room; leave those of RESP clients in the list."""
    done = t.put_done
    t.put_done = []
    for one in done:
        w = s.wired_by_number.get(one.client)
        if w is None:
            continue
        put = w.puts.pop(one.serial, None)
        if put is None:
            continue
        written = len(w.out)
        if len(one.moved) > 0:
            told = moved_error(s, one.moved)  # T20.2
            w.out.append(error_reply(put.sync, told.code, w.worded(told.text)))
        else:
            value = NULL if one.task is None else task_value(one.task)
            put_values(w, put.sync, put.is_16, [value])
        if one.task is not None and one.task.queue in t.by_name:
            t.to_sync[one.task.queue] = t.by_name[one.task.queue]
            hold_back_wired(s, t, w, put.sync, written)  # T18.5
        w.last_ms = s.n.now_ms
        s.touch(w)


# ---- A call as the procedure sees it: arguments, caller, reply
#
# Each door has its own class of calls: it reads the arguments and writes the replies. What is done
# with a tube is the same for both (`tasks`, `admin`, `grants`, `homes`).


@mypyc_attr(acyclic=True)
class TubeCall(TubeArgs):
    """A call; it gets exactly one reply."""

    at: Tube  # the call's tube, if it has one

    def __init__(self, s: Server, p: Procedure, caller: Connection, user: bytes) -> None:
        super().__init__()
        self.s = s
        self.n = s.n
        self.t: Tubes = tubes_of(s.n)
        self.p = p
        self.caller = caller
        self.client: i64 = caller.number
        self.user = user  # whose sessions the caller may join (T8.3)

    def go_to(self, tube: Tube) -> None:
        """[T17] Set the call's tube. Raises TubeError if it must be led here and is not (T17.3)."""
        if self.p.is_home and not (self.p.is_drop and is_nowhere(self.n, self.t, tube)):
            needs_home(self.n, self.t, tube)
        self.at = tube

    def join_session(self) -> None:
        """[T8] Give the caller a session, if the procedure needs one (T8.1)."""
        if self.p.has_session:
            session_for(self.n, self.t, self.client, self.user)

    def serial(self) -> i64:
        """The serial of the connection's next delayed reply."""
        return 0

    def may_wait(self) -> None:
        """Raise the door's error if too many calls of the connection wait."""

    def sees(self, tube: bytes) -> bool:
        """Whether the caller may see the tube (N2.5)."""
        return True

    def named(self, tube: bytes) -> bytes:
        """The tube's name as the caller knows it (N10.2)."""
        return tube

    def full(self, tube: bytes) -> bytes:
        """The full name of the tube that the caller calls so."""
        return tube

    def may_read(self, tube: Tube) -> None:
        """Raise the door's error if the caller may not see the figures of the tube."""

    def is_unread(self) -> bool:
        """Whether nobody will read the reply (C7.3)."""
        return False

    def task(self, task: Task) -> None:
        """Reply with a task."""

    def write(self, parts: list[bytes], task: Task) -> None:
        """Write one task of a reply that `written` sends."""

    def written(self, count: i64, parts: list[bytes]) -> None:
        """Reply with so many tasks, as `write` wrote them."""

    def no_task(self, is_full: bool = False) -> None:
        """Reply that there is no task, or no room for it."""

    def value(self, value: object) -> None:
        """Reply with any value; OK: done."""

    def uuid(self, uuid: bytes) -> None:
        """Reply with the uuid of a session, 16 bytes."""

    def pair(self, name: bytes, value: object) -> bytes:
        """One pair of a large map, encoded."""
        return b""

    def pairs(self, count: i64, parts: list[bytes]) -> None:
        """Reply with a large map of so many pairs, given in pieces."""

    def begin(self, long_command: LongCommand) -> None:
        """[L2] Start the command, which replies now or in a later turn."""

    def await_task(self, until_ms: i64) -> None:
        """Let a take wait until then; 0: for ever."""

    def await_room(self) -> None:
        """Let a put wait (T7.2)."""

    def await_home(self) -> None:
        """Wait for other nodes (T17.5, T20)."""


Run = Callable[[TubeCall], None]
