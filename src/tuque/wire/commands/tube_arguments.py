"""The arguments of a call of a tube procedure, over RESP and over IPROTO (SPEC T15, I6)."""

from collections.abc import Callable
from math import ceil, floor, isnan
from typing import Final, final

from mypy_extensions import i64, mypyc_attr

from tuque.core.model.errors import NOT_FOUND
from tuque.core.model.task import BURIED, BYTES, DELAYED, MAX_MS, MSGPACK, READY, TAKEN, TEXT
from tuque.tubes.model.errors import TubeError
from tuque.tubes.model.options import MAJORITY, NO, NOT_SAID, PRI_DEFAULT, YES, PutSpec, TubeOptions
from tuque.tubes.types.driver import Driver
from tuque.wire.commands.arguments import (
    UTUBE_MAX,
    ArgError,
    not_this,
    plain_int,
    ranged,
)
from tuque.wire.proto.iproto import (
    E_FIELD_TYPE,
    E_KEY_COUNT,
    E_KEY_TYPE,
    E_PROC,
    IprotoError,
)
from tuque.wire.proto.msgpack import (
    ARRAY,
    BIN,
    BOOL,
    EXT,
    FLOAT,
    INT,
    MAP,
    NIL,
    STR,
    MsgpackError,
    Value,
    skip,
)

NO_NAMES: Final[list[bytes]] = []

NUMBER_MAX: Final = 1 << 52
LISTED_MAX: Final = 10_000  # tasks, or changes, in one reply
SYNC_MAX: Final = 1_000  # the exact limit is the number of nodes
DIGITS_MAX: Final = 40
BAD_BODY: Final = b"ERR the body is not one MessagePack value"
BAD_UUID: Final = b"ERR Invalid UUID format."
NODES: Final = "SYNC must be majority, or a number from 1 to the number of nodes"

# kinds of words, frequent ones first
A_TUBE: Final = 0
A_BODY: Final = 1
AN_ID: Final = 2
A_TOKEN: Final = 3
A_TIMEOUT: Final = 4
A_FORM: Final = 5
NUMBER: Final = 6
SECONDS: Final = 7
CHOICE: Final = 8
FLAG: Final = 9
A_UUID: Final = 10
BYTES_OF: Final = 11
COPIES: Final = 12

STATES: Final[dict[bytes, int]] = {
    b"READY": READY,
    b"TAKEN": TAKEN,
    b"DELAYED": DELAYED,
    b"BURIED": BURIED,
    b"R": READY,
    b"T": TAKEN,
    b"~": DELAYED,
    b"!": BURIED,
}
FORMS: Final[dict[bytes, int]] = {b"bytes": BYTES, b"text": TEXT, b"msgpack": MSGPACK}

LISTED: Final = 1_000  # tasks, by default
LONG_MS: Final = 1 << 50  # practically for ever; tubes clamp it
LUA_NUMBER_MAX: Final = (1 << 62) - 1  # limit of ids, priorities and counts
NO_NUMBER: Final = LUA_NUMBER_MAX  # an id that no task has
OPTIONS_MAX: Final = 64  # known or not
BAD_STATE: Final = b"the state must be one of r, t, ~ and !"
NO_DRIVER: Final = (
    b'tube control methods must contain functions "create_space" and "new": '
    b"here a driver is a class of an installed package, and is named alone"
)
ROUNDING_MS: Final = 1e-6  # 1.1 s is 1100 ms, though 1.1 * 1000 is slightly more

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

# the types of tubes that have an option; others ignore it (I6.4)
ALL_TYPES: Final = 0
TIMED: Final = 1
KEYED: Final = 2
LIMITED: Final = 3

NO_NAME: Final = b"Invalid key part count in an exact match (expected 1, got 0)"


@final
@mypyc_attr(acyclic=True)
class Options:
    """Rare arguments; times are ms. Defaults stand for those not given."""

    def __init__(self) -> None:
        self.delay_ms: i64 = -1
        self.ttl_ms: i64 = -1
        self.ttr_ms: i64 = -1
        self.pri: i64 = PRI_DEFAULT
        self.utube: bytes | None = None
        self.count: i64 = 100  # tasks or changes
        self.status: i64 = 0
        self.after: i64 = -1
        self.capacity: i64 = 0
        self.sync_nodes: i64 = NOT_SAID
        self.failover: i64 = YES
        self.in_replicaset: bool | None = None
        self.storage_mode = b""
        self.engine = b""
        self.on_change = b""
        self.name: bytes | None = None  # of a type, user, role, node or session
        self.prefix: bytes | None = None
        self.names = NO_NAMES  # of tubes
        self.if_not_exists = False
        self.implicit = False
        self.temporary = False
        self.is_alone = False
        self.is_role = False
        self.may_call = False
        self.may_truncate = False
        self.is_forced = False

    def tube_options(self) -> TubeOptions:
        """The options of a new tube."""
        o = TubeOptions()
        o.temporary = self.temporary
        o.if_not_exists = self.if_not_exists
        o.implicit = self.implicit
        o.ttl_ms = self.ttl_ms
        o.ttr_ms = self.ttr_ms
        o.pri = self.pri
        o.capacity = self.capacity
        o.storage_mode = self.storage_mode
        o.engine = self.engine
        o.on_task_change = self.on_change
        o.sync = self.sync_nodes
        o.failover = self.failover
        o.is_alone = self.is_alone or self.implicit  # T2.9
        return o


NOTHING: Final = Options()  # shared by all calls without such options


@mypyc_attr(acyclic=True)
class TubeArgs:
    """The arguments of one call. Both doors' tables name the fields of its options."""

    def __init__(self) -> None:
        self.tube: bytes | None = None
        self.body = b""
        self.form: i64 = 0
        self.number: i64 = 0  # of a task
        self.token: i64 = 0
        self.timeout_ms: i64 = -1  # or the additional life of a task
        self.given: i64 = 0  # number of options given
        self.options = NOTHING

    def set_option(self, field: str, value: object) -> None:
        """Set one of the options."""
        if self.options is NOTHING:
            self.options = Options()
        setattr(self.options, field, value)

    def put_spec(self) -> PutSpec:
        """The options of a put."""
        o = self.options
        spec = PutSpec()
        spec.ttl_ms = o.ttl_ms
        spec.ttr_ms = o.ttr_ms
        spec.delay_ms = o.delay_ms
        spec.pri = o.pri
        spec.utube = o.utube
        spec.timeout_ms = self.timeout_ms if self.timeout_ms > 0 else i64(0)
        return spec


# ---- RESP: words of TUBE in, typed values or an error out (SPEC T15)
#
# Options are read from left to right: the first bad one decides the error, the last of repeated
# ones wins. Times come as seconds, whole or not, and become ms, rounded up.


@final
class Word:
    """How one argument is read, into which field, and the error if invalid."""

    def __init__(
        self,
        field: str,
        kind: i64 = BYTES_OF,
        name: str = "",
        least: i64 = 0,
        most: i64 = NUMBER_MAX,
        choices: dict[bytes, int] | None = None,
        error: str = "",
    ) -> None:
        self.field = field
        self.kind = kind
        self.least = least
        self.most = most
        self.choices: dict[bytes, int] = choices or {}
        if error == "" and kind in (SECONDS, A_TIMEOUT):
            error = f"{name} must be a number of seconds, 0 or more"
        elif error == "" and kind in (CHOICE, A_FORM):
            shown = [one.decode() for one in self.choices if len(one) > 1]
            error = f"{name} must be {', '.join(shown[:-1])} or {shown[-1]}"
        elif error == "" and kind == BYTES_OF:
            error = f"{name} must be at most {most} bytes"
        elif error == "":
            error = f"{name} must be a number from {least} to {most}"
        self.error = b"ERR " + error.encode()


# positional arguments
PLACES: Final[dict[str, Word]] = {
    "tube": Word("", A_TUBE),
    "body": Word("", A_BODY),
    "id": Word("", AN_ID, "id"),
    "type": Word("name"),
    "user": Word("name"),
    "node": Word("name"),
    "uuid": Word("name", A_UUID),
    "sec": Word("", A_TIMEOUT, "the increment"),
    "count": Word("count", NUMBER, "count"),
    "state": Word("status", CHOICE, "state", choices=STATES),
}
OPTIONS: Final[dict[str, Word]] = {
    "TOKEN": Word("", A_TOKEN, "TOKEN", 1),
    "TIMEOUT": Word("", A_TIMEOUT, "TIMEOUT"),
    "DELAY": Word("delay_ms", SECONDS, "DELAY"),
    "TTL": Word("ttl_ms", SECONDS, "TTL"),
    "TTR": Word("ttr_ms", SECONDS, "TTR"),
    "PRI": Word("pri", NUMBER, "PRI"),
    "UTUBE": Word("utube", BYTES_OF, "UTUBE", 0, UTUBE_MAX),
    "FORM": Word("", A_FORM, "FORM", choices=FORMS),
    "COUNT": Word("count", NUMBER, "COUNT", 1, LISTED_MAX),
    "AFTER": Word("after", NUMBER, "AFTER", -1),
    "CAPACITY": Word("capacity", NUMBER, "CAPACITY"),
    "SYNC": Word("sync_nodes", COPIES, "", 1, SYNC_MAX, None, NODES),
    "FAILOVER": Word("failover", CHOICE, "FAILOVER", choices={b"yes": YES, b"no": NO}),
    "STORAGEMODE": Word("storage_mode"),
    "ENGINE": Word("engine"),
    "ONCHANGE": Word("on_change"),
    "INREPLICASET": Word("in_replicaset", CHOICE, "INREPLICASET", choices={b"yes": 1, b"no": 0}),
    "PREFIX": Word("prefix"),
    "IFNOTEXISTS": Word("if_not_exists", FLAG),
    "IMPLICIT": Word("implicit", FLAG),
    "TEMPORARY": Word("temporary", FLAG),
    "ALONE": Word("is_alone", FLAG),
    "ROLE": Word("is_role", FLAG),
    "CALL": Word("may_call", FLAG),
    "TRUNCATE": Word("may_truncate", FLAG),
    "FORCE": Word("is_forced", FLAG),
}


def read_word(a: Word, word: bytes, into: TubeArgs) -> None:
    """One argument. Raises ArgError."""
    kind = a.kind
    if kind == A_TUBE:
        into.tube = word
    elif kind == A_BODY:
        into.body = word
    elif kind == AN_ID:
        into.number = ranged(word, 0, NUMBER_MAX, a.error)
    elif kind == A_TOKEN:
        into.token = ranged(word, 1, NUMBER_MAX, a.error)
    elif kind == A_TIMEOUT:
        into.timeout_ms = span_ms(word, a.error)
    elif kind == A_FORM:
        into.form = choice_of(a, word)
    elif kind == NUMBER:
        into.set_option(a.field, ranged(word, a.least, a.most, a.error))
    elif kind == SECONDS:
        into.set_option(a.field, span_ms(word, a.error))
    elif kind == COPIES:
        is_majority = word.lower() == b"majority"
        count: i64 = MAJORITY if is_majority else ranged(word, a.least, a.most, a.error)
        into.set_option(a.field, count)
    elif kind == CHOICE:
        choice = choice_of(a, word)
        value: object = choice
        if a.field == "in_replicaset":
            value = choice != 0  # in an `if`: mypyc makes one type of both values of a ternary
        into.set_option(a.field, value)
    elif len(word) > a.most:
        raise ArgError(a.error)
    else:
        into.set_option(a.field, uuid_of(word) if kind == A_UUID else word)


def choice_of(a: Word, word: bytes) -> int:
    """One of several words."""
    choice = a.choices.get(word.upper(), a.choices.get(word.lower()))
    if choice is None:
        raise not_this(a.error, word)
    return choice


def span_ms(word: bytes, error: bytes) -> i64:
    """Seconds as ms, rounded up; more than 100 years become 100 years (T15.2)."""
    seconds = plain_int(word)
    if 0 <= seconds < MAX_MS // 1000:
        return seconds * 1000
    whole, _, part = word.partition(b".")
    digits = whole + part
    if not digits.isdigit() or len(word) > DIGITS_MAX:
        raise not_this(error, word)
    if len(whole.lstrip(b"0")) > 12:
        return MAX_MS
    ms = int(whole or b"0") * 1000 + int((part + b"000")[:3])
    if len(part[3:].strip(b"0")) > 0:
        ms += 1
    return i64(ms) if ms < MAX_MS else MAX_MS


def check_msgpack(body: bytes) -> None:
    """Check that Tarantool's clients can read the body, which they get unchanged."""
    try:
        end = skip(body, 0, len(body))
    except MsgpackError:
        end = -1
    if end != len(body):
        raise ArgError(BAD_BODY)


def uuid_of(word: bytes) -> bytes:
    """The uuid as 16 bytes, from bytes or text; its first groups are little-endian."""
    if len(word) == 16:
        return word
    digits = word.replace(b"-", b"")
    if len(word) != 36 or len(digits) != 32 or not is_hex(digits):
        raise ArgError(BAD_UUID)
    raw = bytes.fromhex(digits.decode())
    return raw[3::-1] + raw[5:3:-1] + raw[7:5:-1] + raw[8:]


def is_hex(digits: bytes) -> bool:
    """Whether the word is all hexadecimal digits."""
    return len(digits.lower().strip(b"0123456789abcdef")) == 0


# ---- IPROTO: Lua's values in, typed values or an error out (SPEC I6)
#
# Accepts and refuses what Tarantool's queue does, with the same codes and texts; except that NULL
# always means absent, and an impossible time becomes the nearest possible one. Seconds come in,
# whole ms go out, rounded up.


def argument(args: list[Value], at: i64) -> Value | None:
    """The argument at that place; None if missing or NULL (I6.1)."""
    if at >= len(args) or args[at].kind == NIL:
        return None
    return args[at]


def task_number(args: list[Value], is_pair: bool) -> i64:
    """[I6] The task id in the first argument; `is_pair`: with the error of ack, else of peek."""
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
        raise TubeError(NOT_FOUND, (number,))
    return NO_NUMBER


def ms_of(value: Value, is_left: bool = True) -> i64:
    """[I6] A time in seconds (I6.2), as ms; other types fail as Lua's comparison does (I6.3)."""
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
    """[I6] The options at that place (I6.4), without NULLs (I6.1)."""
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


def text(value: Value, text: bytes) -> bytes:
    """A string; else error 32 with that text."""
    if value.kind not in (STR, BIN):
        raise IprotoError(E_PROC, text)
    return value.payload()


def space_name(value: Value) -> object:
    """The name for a new tube."""
    if value.kind not in (STR, BIN):
        text = b"Supplied key type of part 0 does not match index part type: expected string"
        raise IprotoError(E_KEY_TYPE, text)
    return value.payload()


def tube_asked(value: Value) -> object:
    """The tube asked about; only a string names one."""
    return text(value, b"argument #1 should be string or nil")


def driver_name(value: Value) -> object:
    """The name of a type that is installed."""
    return text(value, NO_DRIVER)


def driver_table(value: Value) -> object:
    """The functions of a driver, which no caller can supply (I6.9)."""
    raise IprotoError(E_PROC, NO_DRIVER)


def uuid_value(value: Value) -> object:
    """The bytes of a uuid."""
    return text(value, b"Invalid UUID format.")


def string_of(value: Value) -> object:
    """A string; other types count as absent."""
    return value.payload() if value.kind in (STR, BIN) else None


def is_set(value: Value) -> object:
    """Whether the option is not false."""
    return True if value.kind != BOOL or value.is_true() else None


def state_of(value: Value) -> object:
    """A state by its character."""
    word = text(value, BAD_STATE)
    if word not in (b"r", b"t", b"~", b"!"):
        raise IprotoError(E_PROC, BAD_STATE)
    return word[0]


def delay(value: Value) -> object:
    """A time that Lua compares the other way round (I6.3)."""
    return ms_of(value, False)


def new_ttr(value: Value) -> object:
    """The ttr of sessions, checked."""
    if value.kind not in (INT, FLOAT) or shown(value).startswith(b"-"):
        raise IprotoError(E_PROC, b"Invalid value of ttr: " + shown(value))
    return ms_of(value)


def true_or_false(value: Value) -> object:
    """A boolean, checked."""
    if value.kind != BOOL:
        raise IprotoError(E_PROC, b"Invalid value of in_replicaset: " + shown(value))
    return value.is_true()


def limit(value: Value) -> object:
    """[I6] The number of tasks to kick."""
    if value.kind not in (INT, FLOAT):
        raise IprotoError(E_PROC, b"'for' limit must be a number")
    return whole(value)


def most(value: Value) -> object:
    """The number of tasks to list."""
    if value.kind not in (INT, FLOAT):
        return LISTED
    return max(0, min(int(whole(value)), LISTED_MAX))


def capacity(value: Value) -> object:
    """A count of 0 or more."""
    return max(0, int(whole(value)))


def priority(value: Value) -> object:
    """[I6] A priority: a non-negative integer (I6.5)."""
    number = -1
    if value.kind == INT:
        number = value.integer()
    elif value.kind == FLOAT and value.real().is_integer():
        number = int(value.real())
    if number < 0:
        text = b"Tuple field 6 type does not match one required by operation: expected unsigned"
        raise IprotoError(E_FIELD_TYPE, text)
    return number if number < LUA_NUMBER_MAX else LUA_NUMBER_MAX


def whole(value: Value) -> i64:
    """A count, rounded down (I6.11); other types fail as in Lua."""
    if value.kind == INT:
        number = value.integer()
    elif value.kind == FLOAT:
        real = value.real()
        if isnan(real):
            return 0  # as for times (I6.2)
        number = floor(max(-LUA_NUMBER_MAX, min(real, LUA_NUMBER_MAX)))  # inf // 1 would be NaN
    else:
        raise IprotoError(E_PROC, b"attempt to compare %s with number" % LUA_TYPES[value.kind])
    return max(-LUA_NUMBER_MAX, min(number, LUA_NUMBER_MAX))


def copies(value: Value) -> i64:
    """A number of nodes, or `majority` (T18.5)."""
    if value.kind == STR and value.payload() == b"majority":
        return MAJORITY
    return whole(value)


def yes_or_no(value: Value) -> i64:
    """Whether votes may choose the leader (T23.6)."""
    if value.kind != BOOL:
        raise IprotoError(E_PROC, b"Invalid value of failover: " + shown(value))
    return YES if value.is_true() else NO


def subqueue(value: Value) -> object:
    """[I6] The name of a sub-queue; numbers and booleans become text (I6.6)."""
    if value.kind in (STR, BIN, INT, FLOAT, BOOL):
        name = shown(value)
        if len(name) > UTUBE_MAX:
            raise IprotoError(E_PROC, b"utube must be at most %d bytes" % UTUBE_MAX)
        return name
    text = b"utube must be a string, a number or a boolean, not a %s" % LUA_TYPES[value.kind]
    raise IprotoError(E_PROC, text)


def shown(value: Value) -> bytes:
    """A value as Lua's tostring shows it."""
    if value.kind in (STR, BIN):
        return value.payload()
    if value.kind == INT:
        return b"%d" % value.integer()
    if value.kind == FLOAT:
        return f"{value.real():.14g}".encode()
    if value.kind == BOOL:
        return b"true" if value.is_true() else b"false"
    return LUA_TYPES[value.kind]


@final
class Argument:
    """How one value is read, and into which field, if any."""

    def __init__(
        self,
        field: str,
        read: Callable[[Value], object],
        types: i64 = ALL_TYPES,
        missing: object = None,
        sees_nil: bool = False,
    ) -> None:
        self.field = field
        self.read = read
        self.types = types
        self.missing = missing  # the value if absent, or the error
        self.sees_nil = sees_nil  # NULL differs from absent (I6.1)

    def is_for(self, driver: Driver) -> bool:
        """Whether tubes of that type have the option."""
        if self.types == TIMED:
            return driver.is_timed
        if self.types == KEYED:
            return driver.is_keyed
        return self.types != LIMITED or driver.has_room_limit

    def read_into(self, value: Value | None, into: TubeArgs) -> None:
        """One argument. Raises IprotoError."""
        if value is None or (value.kind == NIL and not self.sees_nil):
            found = self.missing
            if isinstance(found, IprotoError):
                raise IprotoError(found.code, found.text)
        else:
            found = self.read(value)
        if found is None:
            return
        if self.field == "timeout_ms" or self.field == "tube":
            setattr(into, self.field, found)
        else:
            into.set_option(self.field, found)


# by name; or by call and name where it differs
ARGUMENTS: Final[dict[str, Argument]] = {
    "create_tube.name": Argument("tube", space_name, missing=IprotoError(E_KEY_COUNT, NO_NAME)),
    "type": Argument("name", shown, missing=b"nil"),
    "user": Argument("name", shown, missing=b"nil"),
    "role": Argument("name", shown, missing=b"nil"),
    "uuid": Argument("name", uuid_value),
    "statistics.name": Argument("tube", shown),
    "tube.name": Argument("name", tube_asked, sees_nil=True),
    "register_driver.name": Argument("name", driver_name, missing=IprotoError(E_PROC, NO_DRIVER)),
    "driver": Argument("name", driver_table),
    "callback": Argument("on_change", shown),
    "timeout": Argument("timeout_ms", ms_of, LIMITED),
    "increment": Argument("timeout_ms", ms_of, missing=0),
    "state": Argument("status", state_of, missing=IprotoError(E_PROC, BAD_STATE)),
    "tasks_by_state.count": Argument("count", most, missing=LISTED),
    "kick.count": Argument("count", limit, missing=1, sees_nil=True),
    "delay": Argument("delay_ms", delay, TIMED),
    "put.ttl": Argument("ttl_ms", ms_of, TIMED),
    "put.ttr": Argument("ttr_ms", ms_of, TIMED),
    "put.pri": Argument("pri", priority, TIMED),
    "utube": Argument("utube", subqueue, KEYED),
    "ttl": Argument("ttl_ms", ms_of),
    "ttr": Argument("ttr_ms", ms_of),
    "pri": Argument("pri", priority),
    "cfg.ttr": Argument("ttr_ms", new_ttr),
    "in_replicaset": Argument("in_replicaset", true_or_false),
    "capacity": Argument("capacity", capacity),
    "sync": Argument("sync_nodes", copies),
    "failover": Argument("failover", yes_or_no),
    "storage_mode": Argument("storage_mode", string_of),
    "engine": Argument("engine", string_of),
    "on_task_change": Argument("on_change", string_of),
    "prefix": Argument("prefix", string_of),
    "if_not_exists": Argument("if_not_exists", is_set),
    "temporary": Argument("temporary", is_set),
    "alone": Argument("is_alone", is_set),
    "call": Argument("may_call", is_set),
    "truncate": Argument("may_truncate", is_set),
}


def read_data(args: list[Value], into: TubeArgs) -> None:
    """[I6] The data of a put, bytes unchanged (I6.7)."""
    data = args[0]
    if data.kind == BIN:
        into.body = data.payload()
    elif data.kind == STR:
        into.form = TEXT
        into.body = data.payload()
    else:
        into.form = MSGPACK
        into.body = data.raw()
