"""Methods of a tube as IPROTO clients call them (SPEC I4, I6, I7).

Each gets its call with the arguments and returns the values of the answer; one that has to wait
returns None, and its answer comes later.
"""

from typing import Final

from tuque.server.replies.chores import begin_call
from tuque.server.replies.iproto_replies import NULL, list_value, task_value
from tuque.server.state.iproto_connection import Call, Put, Take
from tuque.server.state.state import Server
from tuque.server.tubes.chores import DROP as DROP_TUBE
from tuque.server.tubes.chores import KICK as KICK_TASKS
from tuque.server.tubes.chores import RELEASE_ALL as RELEASE_TASKS
from tuque.server.tubes.chores import TRUNCATE as TRUNCATE_TUBE
from tuque.server.tubes.chores import Tasks, TubeChore
from tuque.tubes.model.grants import CALL, PREFIX, role_key, user_key
from tuque.tubes.model.grants import TRUNCATE as TRUNCATE_TOO
from tuque.tubes.model.registry import Tubes
from tuque.tubes.model.tube import Tube
from tuque.tubes.policy import tubes_of
from tuque.tubes.replication.catalog import announce
from tuque.tubes.replication.leadership import needs_home
from tuque.tubes.tasks import admin, ops
from tuque.tubes.tasks.sessions import session_for
from tuque.tubes.tasks.transitions import record_tube
from tuque.wire.iproto import (
    E_FIELD_MISSING,
    E_NO_ROLE,
    E_NO_USER,
    E_PROC,
    E_READ_ONLY,
    E_TOO_LARGE,
    IprotoError,
    string,
)
from tuque.wire.iproto_args import (
    argument,
    is_set,
    kick_count,
    ms_of,
    options_of,
    put_spec,
    shown,
    task_number,
    text_of,
    whole,
)
from tuque.wire.msgpack import BIN, FLOAT, INT, STR

TAKES_MAX: Final = 100_000  # that wait on one connection, and puts with them
LISTED_MAX: Final = 10_000
LISTED: Final = 1000  # tasks that tasks_by_state shows unless more are asked for
TRUE: Final = b"\xc3"
LEAVING: Final = b"This node is leaving the cluster, please connect to a different one"
LARGE: Final = (
    b"Failed to allocate %d bytes for tuple: tuple is too large. "
    b"Check 'memtx_max_tuple_size' configuration option."
)

# numbers of the methods
PUT: Final = 0
TAKE: Final = 1
ACK: Final = 2
RELEASE: Final = 3
TOUCH: Final = 4
PEEK: Final = 5
BURY: Final = 6
KICK: Final = 7
DELETE: Final = 8
TRUNCATE: Final = 9
RELEASE_ALL: Final = 10
DROP: Final = 11
TASKS_BY_STATE: Final = 12
ON_TASK_CHANGE: Final = 13
GRANT: Final = 14
GRANT_ROLE: Final = 15

METHODS: Final = {
    b"put": PUT,
    b"take": TAKE,
    b"ack": ACK,
    b"release": RELEASE,
    b"touch": TOUCH,
    b"peek": PEEK,
    b"bury": BURY,
    b"kick": KICK,
    b"delete": DELETE,
    b"truncate": TRUNCATE,
    b"release_all": RELEASE_ALL,
    b"drop": DROP,
    b"tasks_by_state": TASKS_BY_STATE,
    b"on_task_change": ON_TASK_CHANGE,
    b"grant": GRANT,
    b"grant_role": GRANT_ROLE,
}
READ_ONLY: Final = [PEEK, TASKS_BY_STATE]

# where the data stand in a tuple of Tarantool's, for error 39
DATA_FIELDS: Final = {b"fifo": 3, b"utube": 4, b"utubettl": 9}


def run_method(s: Server, t: Tubes, call: Call, tube: Tube, method: int) -> list[bytes] | None:
    """[I6] ON CALL of a method. Raises IprotoError and TubeError."""
    if method != GRANT and method != GRANT_ROLE:
        needs_home(s.n, t, tube)  # T17.4
        if tube.sync > 1 and call.w.uncopied >= TAKES_MAX:
            raise IprotoError(E_PROC, b"more than %d calls of one connection wait" % TAKES_MAX)
    if method == PUT:
        return put(s, t, call, tube)
    if method == TAKE:
        return take(s, t, call, tube)
    n = s.n
    args = call.args
    client = call.w.number
    session_for(n, t, client, call.w.user.name)  # its own user's (I5.8)
    if method == ACK:
        return [task_value(ops.ack(n, t, tube, client, task_number(args, True)))]
    if method == RELEASE:
        return release(s, t, call, tube)
    if method == TOUCH:
        return touch(s, t, call, tube)
    if method == PEEK:
        return [task_value(ops.peek(n, t, tube, task_number(args, False)))]
    if method == BURY:
        return [task_value(ops.bury(n, t, tube, task_number(args, False)))]
    if method == DELETE:
        return [task_value(ops.delete(n, t, tube, task_number(args, False)))]
    if method == KICK:
        count = kick_count(args)
        if count < 0:
            return [signed(int(count))]
        return begin_call(s, call, TubeChore(s, t, call.w, tube, KICK_TASKS, count))
    return run_rare(s, t, call, tube, method)


def run_rare(s: Server, t: Tubes, call: Call, tube: Tube, method: int) -> list[bytes] | None:
    """The methods of operators."""
    if method == TRUNCATE:
        return begin_call(s, call, TubeChore(s, t, call.w, tube, TRUNCATE_TUBE))
    if method == RELEASE_ALL:
        return begin_call(s, call, TubeChore(s, t, call.w, tube, RELEASE_TASKS))
    if method == DROP:
        return begin_call(s, call, TubeChore(s, t, call.w, tube, DROP_TUBE))
    if method == TASKS_BY_STATE:
        return tasks_by_state(s, t, call, tube)
    if method == ON_TASK_CHANGE:
        return on_task_change(s, call, tube)
    return grant(s, t, call, tube, method)


def signed(number: int) -> bytes:
    """A negative number."""
    return b"\xd3" + number.to_bytes(8, "big", signed=True)


def put(s: Server, t: Tubes, call: Call, tube: Tube) -> list[bytes] | None:
    """[I6] ON put(data, options): the data keep their bytes (I6.7)."""
    args = call.args
    if len(args) == 0:
        field = DATA_FIELDS.get(tube.type, 8)
        text = b"Tuple field %d required by space format is missing"
        raise IprotoError(E_FIELD_MISSING, text % field)
    driver = tube.driver
    spec = put_spec(args, driver.is_timed, driver.is_keyed, driver.has_room_limit)
    data = args[0]
    form = 2
    if data.kind == BIN:
        form = 0
        body = data.payload()
    elif data.kind == STR:
        form = 1
        body = data.payload()
    else:
        body = data.raw()
    if len(body) > s.max_bulk:
        raise IprotoError(E_TOO_LARGE, LARGE % len(body))
    w = call.w
    may_wait = spec.timeout_ms > 0
    if may_wait and len(w.takes) + len(w.puts) >= TAKES_MAX:
        raise IprotoError(E_PROC, b"more than %d calls of one connection wait" % TAKES_MAX)
    serial = w.next_serial
    task = ops.put(s.n, t, tube, body, form, spec, w.number, serial)
    if task is not None:
        return [task_value(task)]
    if not may_wait:
        return [NULL]
    w.next_serial += 1
    w.puts[serial] = Put(call.sync, call.is_16)
    return None


def take(s: Server, t: Tubes, call: Call, tube: Tube) -> list[bytes] | None:
    """[I7] ON take(timeout): a task, nothing, or the call waits (I7.1)."""
    n = s.n
    w = call.w
    value = argument(call.args, 0)
    wait_ms = ms_of(value) if value is not None else -1
    session_for(n, t, w.number, w.user.name)
    task = ops.take(n, t, tube, w.number)
    if task is not None:
        return [task_value(task)]
    if wait_ms == 0:
        return []
    if n.is_leaving:
        raise IprotoError(E_READ_ONLY, LEAVING)
    if len(w.takes) + len(w.puts) >= TAKES_MAX:
        raise IprotoError(E_PROC, b"more than %d calls of one connection wait" % TAKES_MAX)
    number = s.next_number
    s.next_number += 1
    until_ms = n.now_ms + wait_ms if wait_ms > 0 else 0
    ops.wait(n, t, tube, w.number, until_ms, number)
    s.takes[number] = Take(w, call.sync, call.is_16, tube.name)
    w.takes[number] = None
    return None


def release(s: Server, t: Tubes, call: Call, tube: Tube) -> list[bytes]:
    """[I6] ON release(id, options): the options are read only where a delay means something."""
    number = task_number(call.args, True)
    delay_ms = 0
    if tube.driver.is_timed:
        delay = options_of(call.args, 1).get(b"delay")
        if delay is not None:
            delay_ms = int(ms_of(delay, False))
    return [task_value(ops.release(s.n, t, tube, call.w.number, number, delay_ms))]


def touch(s: Server, t: Tubes, call: Call, tube: Tube) -> list[bytes]:
    """[I6] ON touch(id, increment): nothing at all without a positive increment."""
    value = argument(call.args, 1)
    if value is None:
        return []
    increment_ms = ms_of(value)
    if increment_ms == 0:
        return []
    number = task_number(call.args, True)
    task = ops.touch(s.n, t, tube, call.w.number, number, increment_ms)
    return [] if task is None else [task_value(task)]


def tasks_by_state(s: Server, t: Tubes, call: Call, tube: Tube) -> list[bytes] | None:
    """Tasks of one state, as many as asked for."""
    state = argument(call.args, 0)
    word = state.payload() if state is not None and state.kind in (STR, BIN) else b""
    if word not in (b"r", b"t", b"~", b"!"):
        raise IprotoError(E_PROC, b"the state must be one of r, t, ~ and !")
    count = argument(call.args, 1)
    most = LISTED
    if count is not None and count.kind in (INT, FLOAT):
        most = max(0, int(whole(count)))
    if most == 0:
        return [list_value([])]
    return begin_call(s, call, Tasks(s, t, call.w, tube, word[0], min(most, LISTED_MAX)))


def on_task_change(s: Server, call: Call, tube: Tube) -> list[bytes]:
    """[T16] Name the callback that hears of changes (T16.4); the answer is the name before."""
    value = argument(call.args, 0)
    name = b"" if value is None else shown(value)
    check_callback(s, name)
    before = tube.on_task_change
    tube.on_task_change = name
    if s.n.records is not None:
        record_tube(s.n.records, tube)
    if s.n.others != 0:
        announce(s.n, tubes_of(s.n), [tube], -1)  # T17.2
    return [NULL if len(before) == 0 else string(before)]


def check_callback(s: Server, name: bytes) -> None:
    """Whether the server has a callback of that name, or none is wanted."""
    if len(name) > 0 and name not in s.notices.callbacks:
        raise IprotoError(E_PROC, b"no callback of this server is named '%s'" % name)


def grant(s: Server, t: Tubes, call: Call, tube: Tube, method: int) -> list[bytes]:
    """[I5] ON grant(user, options), grant_role(role, options) (I5.7)."""
    name = argument(call.args, 0)
    who = shown(name) if name is not None else b"nil"
    if method == GRANT_ROLE:
        if who not in s.users.roles:
            raise IprotoError(E_NO_ROLE, b"Role '%s' is not found" % who)
        holder = role_key(who)
    else:
        if who not in s.users.by_name:
            raise IprotoError(E_NO_USER, b"User '%s' is not found" % who)
        holder = user_key(who)
    options = options_of(call.args, 1)
    bits = CALL if is_set(options, b"call") else 0
    if is_set(options, b"truncate"):
        bits |= TRUNCATE_TOO
    prefix = text_of(options, b"prefix")
    admin.grant(s.n, t, holder, tube, bits, prefix if len(prefix) > 0 else PREFIX)
    return []
