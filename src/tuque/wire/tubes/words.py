"""Arguments of TUBE: words in, typed values or an error out (SPEC T15).

Options are read from left to right: the first bad one decides the error, the last of repeated ones
wins. Times come as seconds, whole or not, and become ms, rounded up.
"""

from typing import Final, final

from mypy_extensions import i64

from tuque.core.model.task import BURIED, BYTES, DELAYED, MAX_MS, MSGPACK, READY, TAKEN, TEXT
from tuque.tubes.model.options import MAJORITY, NO, YES
from tuque.wire.args import UTUBE_MAX, ArgError, not_this, plain_int, ranged
from tuque.wire.msgpack import MsgpackError, skip
from tuque.wire.tubes.arguments import TubeArgs

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
    "TEMPORARY": Word("temporary", FLAG),
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
