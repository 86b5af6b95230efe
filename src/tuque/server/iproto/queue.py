"""Functions of the whole queue as IPROTO clients call them, and EVAL (SPEC I4, I6)."""

from typing import Final

import msgspec

from tuque.server.iproto.tubes import TRUE, check_callback
from tuque.server.replies.chores import begin_call
from tuque.server.replies.iproto_replies import list_value
from tuque.server.state.iproto_connection import Call, Put
from tuque.server.state.state import Server
from tuque.server.tubes.chores import LOOKS
from tuque.server.tubes.plugins import register_installed
from tuque.server.tubes.statistics import Statistics
from tuque.tubes.failover.claims import claim_tube
from tuque.tubes.model.errors import BAD_UUID
from tuque.tubes.model.registry import Tubes
from tuque.tubes.replication.leadership import state_of_node
from tuque.tubes.tasks import admin
from tuque.tubes.tasks.sessions import identify
from tuque.wire.iproto import (
    E_ACCESS,
    E_KEY_COUNT,
    E_KEY_TYPE,
    E_PROC,
    IprotoError,
    string,
)
from tuque.wire.iproto_args import argument, ms_of, options_of, shown, tube_options
from tuque.wire.msgpack import BIN, BOOL, FLOAT, INT, STR, Value

# numbers of the functions
CREATE_TUBE: Final = 0
CFG: Final = 1
IDENTIFY: Final = 2
STATISTICS: Final = 3
STATE: Final = 4
TUBE: Final = 5
REGISTER_DRIVER: Final = 6
TABLE: Final = 7  # what is no function

FUNCTIONS: Final = {
    b"queue.create_tube": CREATE_TUBE,
    b"queue.cfg": CFG,
    b"queue.identify": IDENTIFY,
    b"queue.statistics": STATISTICS,
    b"queue.stats": STATISTICS,
    b"queue.state": STATE,
    b"queue.tube": TUBE,
    b"queue.register_driver": REGISTER_DRIVER,
    b"queue.driver": TABLE,
    b"queue": TABLE,
}
FALSE: Final = b"\xc2"
NO_DRIVER: Final = (
    b'tube control methods must contain functions "create_space" and "new": '
    b"here a driver is a class of an installed package, and is named alone"
)
NO_LUA: Final = b"EVAL: there is no Lua here; create_tube and the test for a tube are understood"


def run_function(s: Server, t: Tubes, call: Call, function: int) -> list[bytes] | None:
    """[I6] ON CALL of a function of the queue. Raises IprotoError and TubeError."""
    args = call.args
    if function == STATISTICS:
        return statistics(s, t, call)
    if function == IDENTIFY:
        return [string(identify(s.n, t, call.w.number, call.w.user.name, uuid_in(args)))]
    if function == STATE:
        return [string(state_of_node(s.n, t))]
    if function == TUBE:
        return tubes(s, t, args)
    if function == CREATE_TUBE:
        return create_tube(s, t, call)
    if function == CFG:
        return cfg(s, t, args)
    if function == REGISTER_DRIVER:
        return register_driver(s, args)
    raise IprotoError(E_PROC, b"attempt to call a table value")


def register_driver(s: Server, args: list[Value]) -> list[bytes]:
    """[I6] ON register_driver(name): a type that is installed (T3.6); no functions come here."""
    name = argument(args, 0)
    if name is None or name.kind not in (STR, BIN) or argument(args, 1) is not None:
        raise IprotoError(E_PROC, NO_DRIVER)
    register_installed(s, name.payload())
    return []


def create_tube(s: Server, t: Tubes, call: Call) -> list[bytes] | None:
    """[I6] ON create_tube(name, type, options): nothing is returned (I3.2).

    None: other nodes are asked, the answer comes later (T17.5).
    """
    args = call.args
    name = argument(args, 0)
    if name is None:
        text = b"Invalid key part count in an exact match (expected 1, got 0)"
        raise IprotoError(E_KEY_COUNT, text)
    if name.kind not in (STR, BIN):
        text = b"Supplied key type of part 0 does not match index part type: expected string"
        raise IprotoError(E_KEY_TYPE, text)
    type = argument(args, 1)
    word = shown(type) if type is not None else b"nil"
    options = tube_options(args)
    check_callback(s, options.on_task_change)
    w = call.w
    serial = w.next_serial
    made = claim_tube(s.n, t, name.payload(), word, options, w.user.name, w.number, serial)
    if made is not None:
        return []
    w.next_serial += 1
    w.claims[serial] = Put(call.sync, call.is_16)
    return None


def uuid_in(args: list[Value]) -> bytes | None:
    """The 16 bytes given to identify."""
    value = argument(args, 0)
    if value is None:
        return None
    if value.kind not in (STR, BIN):
        raise IprotoError(E_PROC, BAD_UUID)
    return value.payload()


def statistics(s: Server, t: Tubes, call: Call) -> list[bytes] | None:
    """[I6] ON statistics(name): one map, or one for each tube."""
    value = argument(call.args, 0)
    if value is not None:
        name = shown(value)
        tube = t.by_name.get(name)
        if tube is None:
            raise IprotoError(E_PROC, b"attempt to index a nil value")
        check_read(t, call, name)
        return [msgspec.msgpack.encode(admin.statistics(t, tube))]
    for name in t.by_name:
        check_read(t, call, name)
    s.n.work += len(t.by_name) // LOOKS
    return begin_call(s, call, Statistics(s, t, call.w))


def check_read(t: Tubes, call: Call, tube: bytes) -> None:
    """[I5] Whoever may not call the tube may not read its figures (I5.7)."""
    user = call.w.user
    if user.is_admin or t.rights.may_read(user.holders, tube):
        return
    text = b"Read access to space '%s' is denied for user '%s'"
    raise IprotoError(E_ACCESS, text % (tube, user.name))


def tubes(s: Server, t: Tubes, args: list[Value]) -> list[bytes]:
    """[I6] ON tube(name): all names, or whether there is such a tube."""
    if len(args) == 0:
        s.n.work += len(t.by_name) // LOOKS
        return [list_value([string(name) for name in t.by_name])]
    if args[0].kind not in (STR, BIN):
        raise IprotoError(E_PROC, b"argument #1 should be string or nil")
    return [TRUE if args[0].payload() in t.by_name else FALSE]


def cfg(s: Server, t: Tubes, args: list[Value]) -> list[bytes]:
    """[I6] ON cfg(options): all are looked at before any counts."""
    ttr_ms: int | None = None
    in_replicaset: bool | None = None
    for key, value in options_of(args, 0).items():
        if key == b"ttr":
            is_number = value.kind in (INT, FLOAT)
            if not is_number or shown(value).startswith(b"-"):
                raise IprotoError(E_PROC, b"Invalid value of ttr: " + shown(value))
            ttr_ms = int(ms_of(value))
        elif key == b"in_replicaset":
            if value.kind != BOOL:
                raise IprotoError(E_PROC, b"Invalid value of in_replicaset: " + shown(value))
            in_replicaset = value.is_true()
        else:
            raise IprotoError(E_PROC, b"Unknown option " + key)
    admin.cfg(s.n, t, ttr_ms, in_replicaset)
    return []


def run_eval(s: Server, t: Tubes, call: Call, text: bytes, count: int) -> list[bytes] | None:
    """[I4] ON EVAL: the two texts that clients send are understood without Lua (I4.5)."""
    if count in (2, 3) and b"create_tube" in text:
        return create_tube(s, t, call)
    if count == 1 and b"queue.tube[" in text and b"~= nil" in text.partition(b"queue.tube[")[2]:
        return tubes(s, t, call.args)
    raise IprotoError(E_PROC, NO_LUA)
