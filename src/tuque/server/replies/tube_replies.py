"""Tubes in RESP: tasks, errors, delayed replies (SPEC T15, T16)."""

from typing import Final

from librt.strings import BytesWriter
from mypy_extensions import i64, u8

from tuque.core.model.job import Job
from tuque.core.model.task import DELAYED, STATUS_NAMES, TAKEN, Task
from tuque.core.node.node import GOT_JOBS, HOME_MOVED, NODE_DOUBLE, NODE_LEAVING, Wake
from tuque.server.replies.redirects import moved_text
from tuque.server.replies.tube_sync import enter
from tuque.server.replies.words import CONFLICT, LEAVING
from tuque.server.state.client import PUT, REPLY_OFF, REPLY_SKIPPING, Client
from tuque.server.state.state import Server
from tuque.tubes.log.leader import synced
from tuque.tubes.model.options import PutDone
from tuque.tubes.model.tubes import Tubes
from tuque.wire.commands.tube_arguments import FORMS as FORM_NAMES
from tuque.wire.proto.resp import digits

SHORT: Final = 1024  # shorter bodies are copied rather than passed on
# the bytes between the values of a task, by status and by form
STATES: Final[list[bytes]] = [
    b"\r\n+%s\r\n$" % STATUS_NAMES.get(status, b"") for status in range(DELAYED + 1)
]
FORMS: Final[list[bytes]] = [b"\r\n+%s\r\n" % name for name in FORM_NAMES]


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


def put_tasks(out: list[bytes], tasks: list[Task]) -> None:
    """An array of tasks."""
    out.append(b"*%d\r\n" % len(tasks))
    for task in tasks:
        put_task(out, task)


def put_none(c: Client) -> None:
    """No task: a null array."""
    c.out.append(b"_\r\n" if c.resp3 else b"*-1\r\n")


def tell_take(s: Server, c: Client, wake: Wake) -> None:
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
