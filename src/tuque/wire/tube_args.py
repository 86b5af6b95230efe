"""Arguments of TUBE: words in, typed values or an error out (SPEC T15).

Times are seconds in words, whole or not, and ms inside, rounded up.
"""

from typing import Final

from mypy_extensions import i64

from tuque.core.model.task import BURIED, BYTES, DELAYED, MAX_MS, MSGPACK, READY, TAKEN, TEXT
from tuque.tubes.model.options import PutSpec, TubeOptions
from tuque.wire.args import (
    BAD_PRI,
    BAD_UTUBE,
    PRI_MAX,
    SYNTAX,
    UTUBE_MAX,
    ArgError,
    plain_int,
    ranged,
)
from tuque.wire.msgpack import MsgpackError, skip

NUMBER_MAX: Final = 1 << 52
DIGITS_MAX: Final = 40
BAD_NUMBER: Final = b"ERR id must be a number from 0 to 4503599627370496"
BAD_TOKEN: Final = b"ERR TOKEN must be a number from 1 to 4503599627370496"
BAD_CAPACITY: Final = b"ERR CAPACITY must be a number from 0 to 4503599627370496"
SYNC_MAX: Final = 1000  # the tubes know how many nodes there are
BAD_SYNC: Final = b"ERR SYNC must be a number from 1 to the number of nodes"
BAD_FORM: Final = b"ERR FORM must be bytes, text or msgpack"
BAD_BODY: Final = b"ERR the body is not one MessagePack value"
BAD_STATE: Final = b"ERR state must be READY, TAKEN, DELAYED or BURIED"
BAD_UUID: Final = b"Invalid UUID format."

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
FORMS: Final[dict[bytes, int]] = {b"BYTES": BYTES, b"TEXT": TEXT, b"MSGPACK": MSGPACK}
FORM_NAMES: Final[list[bytes]] = [b"bytes", b"text", b"msgpack"]


def span_ms(word: bytes, name: bytes) -> i64:
    """Seconds as ms, a part of one rounded up; more than 100 years are 100 years (T15.2)."""
    seconds = plain_int(word)
    if 0 <= seconds < MAX_MS // 1000:
        return seconds * 1000
    whole, _, part = word.partition(b".")
    digits = whole + part
    if not digits.isdigit() or len(word) > DIGITS_MAX:
        raise ArgError(b"ERR %s must be a number of seconds, 0 or more" % name)
    if len(whole.lstrip(b"0")) > 12:
        return MAX_MS
    ms = int(whole or b"0") * 1000 + int((part + b"000")[:3])
    if len(part[3:].strip(b"0")) > 0:
        ms += 1
    return i64(ms) if ms < MAX_MS else MAX_MS


def task_number(word: bytes) -> i64:
    """The number of a task."""
    return ranged(word, 0, NUMBER_MAX, BAD_NUMBER)


def pairs(args: list[bytes], first: i64, names: list[bytes]) -> dict[bytes, bytes]:
    """Words out of `names`, each with its value, to the end; the last of a repeated one wins."""
    found: dict[bytes, bytes] = {}
    i = first
    count: i64 = len(args)
    while i < count:
        word = args[i].upper()
        if i + 1 == count or word not in names:
            raise ArgError(SYNTAX)
        found[word] = args[i + 1]
        i += 2
    return found


def take_token(args: list[bytes], first: i64) -> i64:
    """The value of TOKEN, 0 when it is not given."""
    if len(args) == first:
        return 0
    return token_of(pairs(args, first, TOKEN_ONLY))


def token_of(found: dict[bytes, bytes]) -> i64:
    """The value of TOKEN among the options, 0 when it is not there."""
    word = found.get(b"TOKEN")
    return 0 if word is None else ranged(word, 1, NUMBER_MAX, BAD_TOKEN)


TOKEN_ONLY: Final = [b"TOKEN"]
CREATE_WORDS: Final = [
    *(b"TTL", b"TTR", b"PRI", b"CAPACITY", b"STORAGEMODE", b"ENGINE", b"ONCHANGE", b"SYNC"),
]


def create_options(args: list[bytes]) -> TubeOptions:
    """[T15] The options of TUBE CREATE."""
    o = TubeOptions()
    rest: list[bytes] = []
    i: i64 = 4
    while i < len(args):
        word = args[i].upper()
        if word == b"IFNOTEXISTS":
            o.if_not_exists = True
        elif word == b"TEMPORARY":
            o.temporary = True
        else:
            rest.extend(args[i : i + 2])
            i += 1
        i += 1
    for word, value in pairs(rest, 0, CREATE_WORDS).items():
        if word == b"TTL":
            o.ttl_ms = span_ms(value, word)
        elif word == b"TTR":
            o.ttr_ms = span_ms(value, word)
        elif word == b"PRI":
            o.pri = ranged(value, 0, PRI_MAX, BAD_PRI)
        elif word == b"CAPACITY":
            o.capacity = ranged(value, 0, NUMBER_MAX, BAD_CAPACITY)
        elif word == b"STORAGEMODE":
            o.storage_mode = value
        elif word == b"ENGINE":
            o.engine = value
        elif word == b"SYNC":
            o.sync = ranged(value, 1, SYNC_MAX, BAD_SYNC)
        else:
            o.on_task_change = value
    return o


def put_options(args: list[bytes], spec: PutSpec) -> i64:
    """[T15] The options of TUBE PUT, into `spec`; the form of the body is returned."""
    form: i64 = BYTES
    i: i64 = 4
    count: i64 = len(args)
    while i < count:
        word = args[i].upper()
        if i + 1 == count:
            raise ArgError(SYNTAX)
        value = args[i + 1]
        if word == b"PRI":
            spec.pri = ranged(value, 0, PRI_MAX, BAD_PRI)
        elif word == b"UTUBE":
            if len(value) > UTUBE_MAX:
                raise ArgError(BAD_UTUBE)
            spec.utube = value
        elif word == b"TTL":
            spec.ttl_ms = span_ms(value, word)
        elif word == b"TTR":
            spec.ttr_ms = span_ms(value, word)
        elif word == b"DELAY":
            spec.delay_ms = span_ms(value, word)
        elif word == b"TIMEOUT":
            spec.timeout_ms = span_ms(value, word)
        elif word == b"FORM":
            form = form_of(value)
        else:
            raise ArgError(SYNTAX)
        i += 2
    if form == MSGPACK:
        check_msgpack(args[3])
    return form


def form_of(word: bytes) -> i64:
    """What the body is."""
    form = FORMS.get(word.upper())
    if form is None:
        raise ArgError(BAD_FORM)
    return form


def check_msgpack(body: bytes) -> None:
    """Whether clients of Tarantool could read the body, which they get as it is."""
    try:
        end = skip(body, 0, len(body))
    except MsgpackError:
        end = -1
    if end != len(body):
        raise ArgError(BAD_BODY)


def uuid_of(word: bytes) -> bytes:
    """The 16 bytes of a uuid, given as they are or as text; its first groups are little-endian."""
    if len(word) == 16:
        return word
    digits = word.replace(b"-", b"")
    if len(word) != 36 or len(digits) != 32 or not is_hex(digits):
        raise ArgError(b"ERR " + BAD_UUID)
    raw = bytes.fromhex(digits.decode())
    return raw[3::-1] + raw[5:3:-1] + raw[7:5:-1] + raw[8:]


def is_hex(digits: bytes) -> bool:
    """Whether there is nothing but hexadecimal digits."""
    return len(digits.lower().strip(b"0123456789abcdef")) == 0


def state_of(word: bytes) -> i64:
    """A status by its name, or the character that Tarantool has for it."""
    status = STATES.get(word.upper())
    if status is None:
        raise ArgError(BAD_STATE)
    return status
