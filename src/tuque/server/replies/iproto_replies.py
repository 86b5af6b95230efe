"""Values of tubes in IPROTO, and replies that come later (SPEC I3, I7)."""

from typing import Final

from tuque.core.model.task import BYTES, TEXT, Task
from tuque.core.node.node import GOT_JOBS, HOME_MOVED, NODE_DOUBLE, NODE_LEAVING, Wake
from tuque.core.queues.procedures import stop_waiting
from tuque.server.replies.redirects import moved_error
from tuque.server.replies.tube_sync import hold_back_wired
from tuque.server.replies.words import CONFLICT_TEXT, LEAVING_TEXT
from tuque.server.state.iproto_connection import Wired
from tuque.server.state.state import Server
from tuque.tubes.model.tubes import Tubes
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

NULL: Final = b"\xc0"


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


def tell_take(s: Server, wake: Wake) -> None:
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
