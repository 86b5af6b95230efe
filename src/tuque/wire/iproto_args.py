"""Arguments of calls over IPROTO: Lua's values as what tubes take (SPEC I6).

What Tarantool's queue accepts is accepted, what it refuses is refused with its codes and
texts; only NULL means the same as nothing everywhere, and a time that cannot be is the nearest
one that can. Seconds come in, whole ms go out, rounded up.
"""

from math import ceil, floor, isnan
from typing import Final

from mypy_extensions import i64

from tuque.tubes.model.errors import NOT_FOUND
from tuque.tubes.model.options import PRI_DEFAULT, PutSpec, TubeOptions
from tuque.wire.args import UTUBE_MAX
from tuque.wire.iproto import E_FIELD_TYPE, E_KEY_COUNT, E_KEY_TYPE, E_PROC, IprotoError
from tuque.wire.msgpack import ARRAY, BIN, BOOL, EXT, FLOAT, INT, MAP, NIL, STR, Value

LONG_MS: Final = 1 << 50  # as good as for ever; tubes have their own idea of it
NUMBER_MAX: Final = (1 << 62) - 1  # of ids, priorities and counts here
NO_NUMBER: Final = NUMBER_MAX  # an id that no task has
OPTIONS_MAX: Final = 64  # known or not
ROUNDING_MS: Final = 1e-6  # 1.1 s are 1100 ms, though 1.1 * 1000 is a bit more

LUA_TYPES: Final = {
    NIL: b"nil",
    BOOL: b"boolean",
    INT: b"number",
    FLOAT: b"number",
    STR: b"string",
    BIN: b"string",
    ARRAY: b"table",
    MAP: b"table",
    EXT: b"cdata",
}


def argument(args: list[Value], at: i64) -> Value | None:
    """That argument; None when it is missing or NULL (I6.1)."""
    if at >= len(args) or args[at].kind == NIL:
        return None
    return args[at]


def task_number(args: list[Value], is_pair: bool) -> i64:
    """[I6] The id of a task, the first argument; `is_pair`: in the words of ack, not of peek."""
    if len(args) == 0:
        wanted = 2 if is_pair else 1
        text = b"Invalid key part count in an exact match (expected %d, got %d)"
        raise IprotoError(E_KEY_COUNT, text % (wanted, wanted - 1))
    number = args[0].integer() if args[0].kind == INT else -1
    if number < 0:
        text = b"Supplied key type of part %d does not match index part type: expected unsigned"
        raise IprotoError(E_KEY_TYPE, text % (1 if is_pair else 0))
    if number < NO_NUMBER:
        return number
    if not is_pair:
        raise IprotoError(E_PROC, NOT_FOUND % number)
    return NO_NUMBER


def ms_of(value: Value, is_left: bool = True) -> i64:
    """[I6] A time in seconds (I6.2); what is no number fails as Lua's comparison does (I6.3)."""
    if value.kind == INT:
        seconds = value.integer()
        if seconds <= 0:
            return 0
        return seconds * 1000 if seconds < LONG_MS // 1000 else LONG_MS
    if value.kind == FLOAT:
        real = value.real()
        if isnan(real) or real <= 0:
            return 0
        if real >= LONG_MS / 1000:
            return LONG_MS
        return max(1, ceil(real * 1000 - ROUNDING_MS))
    other = LUA_TYPES[value.kind]
    if is_left:
        raise IprotoError(E_PROC, b"attempt to compare %s with number" % other)
    raise IprotoError(E_PROC, b"attempt to compare number with %s" % other)


def options_of(args: list[Value], at: i64) -> dict[bytes, Value]:
    """[I6] The options at that place (I6.4); those that are NULL are left out (I6.1)."""
    value = argument(args, at)
    if value is None or value.kind == ARRAY or value.kind == STR or value.kind == BIN:
        return {}
    if value.kind != MAP:
        text = b"attempt to index local 'opts' (a %s value)" % LUA_TYPES[value.kind]
        raise IprotoError(E_PROC, text)
    if value.size() > OPTIONS_MAX:
        raise IprotoError(E_PROC, b"more than %d options" % OPTIONS_MAX)
    found: dict[bytes, Value] = {}
    for key, one in value.pairs().items():
        if one.kind != NIL:
            found[key] = one
    return found


def put_spec(args: list[Value], is_timed: bool, is_keyed: bool, is_limited: bool) -> PutSpec:
    """[I6] The options of a put that mean something to its tube; the others are not looked at."""
    spec = PutSpec()
    options = options_of(args, 1)
    if len(options) == 0:
        return spec
    if is_timed:
        delay = options.get(b"delay")
        if delay is not None:
            spec.delay_ms = ms_of(delay, False)
        ttl = options.get(b"ttl")
        if ttl is not None:
            spec.ttl_ms = ms_of(ttl)
        ttr = options.get(b"ttr")
        if ttr is not None:
            spec.ttr_ms = ms_of(ttr)
        pri = options.get(b"pri")
        if pri is not None:
            spec.pri = priority(pri)
    if is_keyed:
        utube = options.get(b"utube")
        if utube is not None:
            spec.utube = subqueue(utube)
    if is_limited:
        timeout = options.get(b"timeout")
        if timeout is not None:
            spec.timeout_ms = ms_of(timeout)
    return spec


def tube_options(args: list[Value]) -> TubeOptions:
    """[I6] The options of create_tube."""
    made = TubeOptions()
    options = options_of(args, 2)
    made.temporary = is_set(options, b"temporary")
    made.if_not_exists = is_set(options, b"if_not_exists")
    ttl = options.get(b"ttl")
    if ttl is not None:
        made.ttl_ms = ms_of(ttl)
    ttr = options.get(b"ttr")
    if ttr is not None:
        made.ttr_ms = ms_of(ttr)
    pri = options.get(b"pri")
    if pri is not None:
        made.pri = priority(pri)
    capacity = options.get(b"capacity")
    if capacity is not None:
        made.capacity = max(0, whole(capacity))
    sync = options.get(b"sync")
    if sync is not None:
        made.sync = whole(sync)  # T18.5
    made.storage_mode = text_of(options, b"storage_mode")
    made.engine = text_of(options, b"engine")
    made.on_task_change = text_of(options, b"on_task_change")
    return made


def is_set(options: dict[bytes, Value], name: bytes) -> bool:
    """Whether an option is there and not false."""
    value = options.get(name)
    return value is not None and (value.kind != BOOL or value.is_true())


def text_of(options: dict[bytes, Value], name: bytes) -> bytes:
    """An option that is a string; empty when it is not there."""
    value = options.get(name)
    if value is None or value.kind not in (STR, BIN):
        return b""
    return value.payload()


def priority(value: Value) -> i64:
    """[I6] A priority: a whole number that is not negative (I6.5)."""
    number = -1
    if value.kind == INT:
        number = value.integer()
    elif value.kind == FLOAT and value.real().is_integer():
        number = int(value.real())
    if number < 0:
        text = b"Tuple field 6 type does not match one required by operation: expected unsigned"
        raise IprotoError(E_FIELD_TYPE, text)
    assert PRI_DEFAULT < 0
    return number if number < NUMBER_MAX else NUMBER_MAX


def whole(value: Value) -> i64:
    """A count, rounded down (I6.11); compared like Lua does when it is no number."""
    if value.kind == INT:
        number = value.integer()
    elif value.kind == FLOAT:
        real = value.real()
        if isnan(real):
            return 0  # as of times (I6.2)
        number = floor(max(-NUMBER_MAX, min(real, NUMBER_MAX)))  # inf // 1 would be NaN
    else:
        raise IprotoError(E_PROC, b"attempt to compare %s with number" % LUA_TYPES[value.kind])
    return max(-NUMBER_MAX, min(number, NUMBER_MAX))


def kick_count(args: list[Value]) -> i64:
    """[I6] How many tasks kick is about; 1 when nothing is said."""
    if len(args) == 0:
        return 1
    if args[0].kind not in (INT, FLOAT):
        raise IprotoError(E_PROC, b"'for' limit must be a number")
    return whole(args[0])


def subqueue(value: Value) -> bytes:
    """[I6] The name of a sub-queue: numbers and booleans by their text (I6.6)."""
    if value.kind in (STR, BIN, INT, FLOAT, BOOL):
        name = shown(value)
        if len(name) > UTUBE_MAX:
            raise IprotoError(E_PROC, b"utube must be at most %d bytes" % UTUBE_MAX)
        return name
    text = b"utube must be a string, a number or a boolean, not a %s" % LUA_TYPES[value.kind]
    raise IprotoError(E_PROC, text)


def shown(value: Value) -> bytes:
    """A value as Lua's tostring has it."""
    if value.kind in (STR, BIN):
        return value.payload()
    if value.kind == INT:
        return b"%d" % value.integer()
    if value.kind == FLOAT:
        return f"{value.real():.14g}".encode()
    if value.kind == BOOL:
        return b"true" if value.is_true() else b"false"
    return LUA_TYPES[value.kind]
