"""Arguments of ADDJOB, GETJOB and the scans: words in, typed values or an error out.

SPEC R1, V1, S4, S5, C4.
"""

from typing import Final, final

from mypy_extensions import i64

from tuque.core.model.add_spec import AddSpec
from tuque.core.state.dedupe_keys import KEY_MAX
from tuque.wire.resp import strict_int

SYNTAX: Final = b"ERR syntax error"
NOT_INT: Final = b"ERR value is not an integer or out of range"
BAD_TIMEOUT: Final = b"ERR timeout is not an integer or out of range"
NEGATIVE_TIMEOUT: Final = b"ERR timeout is negative"
PLAIN_TYPE: Final = b"queue"
BAD_SCAN: Final = b"ERR invalid cursor or option name"

BAD_PRI: Final = b"ERR PRI must be a number from 0 to 4503599627370496"
BAD_UTUBE: Final = b"ERR UTUBE must be at most 512 bytes"
BAD_KEY: Final = b"ERR DEDUPE key must be 1 to 255 bytes"
BAD_KEY_TTL: Final = b"ERR DEDUPETTL must be a number of ms from 1 to 31536000000"
NO_KEY: Final = b"ERR DEDUPETTL needs a DEDUPE key"

PRI_MAX: Final = 1 << 52
UTUBE_MAX: Final = 512  # bytes
KEY_TTL_MAX: Final = 365 * 86_400_000
SECONDS_MAX: Final = 2_147_483_647  # G8.2: as ms far below 64 bits
REPLICATE_MAX: Final = 65_535
TIMEOUT_MAX: Final = 1 << 52  # ms


class ArgError(Exception):
    """Invalid words of a command; carries the error text after the `-`."""

    def __init__(self, text: bytes) -> None:
        super().__init__(text)
        self.text = text


def timeout_ms(word: bytes) -> i64:
    """A timeout in ms; errors as for ADDJOB and GETJOB (R1.2, V1.2)."""
    value = strict_int(word)
    if value is None or value > TIMEOUT_MAX:
        raise ArgError(BAD_TIMEOUT)
    if value < 0:
        raise ArgError(NEGATIVE_TIMEOUT)
    return value


def plain_int(word: bytes) -> i64:
    """A number of 1 to 18 digits and nothing else; -1 for any other word."""
    size: i64 = len(word)
    if size == 0 or size > 18:
        return -1
    value: i64 = 0
    i: i64 = 0
    while i < size:
        digit: i64 = word[i]
        digit -= 48
        if digit < 0 or digit > 9:
            return -1
        value = value * 10 + digit
        i += 1
    return value


def ranged(word: bytes, least: i64, most: i64, error: bytes) -> i64:
    """An integer within the range, or raise."""
    plain = plain_int(word)
    if plain >= 0 and least <= plain <= most:
        return plain
    value = strict_int(word)
    if value is None or value < least or value > most:
        raise ArgError(error)
    return value


def at_least(word: bytes, least: i64, error: bytes) -> i64:
    """A 64-bit count from `least` up, or raise; SECONDS_MAX exceeds any real count."""
    value = strict_int(word)
    if value is None or value < least:
        raise ArgError(error)
    return min(value, SECONDS_MAX)


def addjob_options(args: list[bytes], first: i64 = 4) -> AddSpec:
    """[R1, Z1.2] The options of ADDJOB (R1.1) or, from word 6 on, of STAGE.

    STAGE has no ASYNC, PRI and UTUBE. Of repeated options the last wins.
    """
    spec = AddSpec()
    i = first
    count: i64 = len(args)
    has_key_ttl = False
    while i < count:
        word = args[i].upper()
        if word == b"ASYNC" and first == 4:
            spec.is_async = True
            i += 1
            continue
        if i + 1 == count:
            raise ArgError(SYNTAX)
        value = args[i + 1]
        if word == b"REPLICATE":
            spec.replicate = ranged(
                value, 1, REPLICATE_MAX, b"ERR REPLICATE must be between 1 and 65535"
            )
        elif word == b"TTL":
            spec.ttl_s = ranged(value, 1, SECONDS_MAX, b"ERR TTL must be a number > 0")
        elif word == b"RETRY":
            spec.retry_s = ranged(
                value, 0, SECONDS_MAX, b"ERR RETRY time must be a non negative number"
            )
        elif word == b"DELAY":
            spec.delay_s = ranged(
                value, 0, SECONDS_MAX, b"ERR DELAY time must be a non negative number"
            )
        elif word == b"MAXLEN":
            spec.maxlen = at_least(value, 1, b"ERR MAXLEN must be a positive number")
        elif word == b"DEDUPE":
            if not 1 <= len(value) <= KEY_MAX:
                raise ArgError(BAD_KEY)
            spec.key = value
        elif word == b"DEDUPETTL":
            spec.key_ttl_ms = ranged(value, 1, KEY_TTL_MAX, BAD_KEY_TTL)
            has_key_ttl = True
        elif first == 4:
            tube_option(spec, word, value)
        else:
            raise ArgError(SYNTAX)
        i += 2
    if has_key_ttl and len(spec.key) == 0:
        raise ArgError(NO_KEY)
    return spec


def tube_option(spec: AddSpec, word: bytes, value: bytes) -> None:
    """[T1] An option of ADDJOB that applies to tubes only (T1.1)."""
    if word == b"PRI":
        spec.pri = ranged(value, 0, PRI_MAX, BAD_PRI)
        spec.has_pri = True
    elif word == b"UTUBE":
        if len(value) > UTUBE_MAX:
            raise ArgError(BAD_UTUBE)
        spec.utube = value
        spec.has_utube = True
    else:
        raise ArgError(SYNTAX)


@final
class GetSpec:
    """The arguments of a GETJOB."""

    def __init__(self) -> None:
        self.no_hang = False
        self.timeout_ms: i64 = 0
        self.count: i64 = 1
        self.with_counters = False
        self.queues: list[bytes] = []


def is_word(word: bytes, name: bytes) -> bool:
    """Compare the word with an upper-case name, ignoring case."""
    size: i64 = len(name)
    if len(word) != size:
        return False
    i: i64 = 0
    while i < size:
        letter: i64 = word[i]
        if 97 <= letter <= 122:
            letter -= 32
        wanted: i64 = name[i]
        if letter != wanted:
            return False
        i += 1
    return True


def getjob_options(args: list[bytes]) -> GetSpec:
    """[V1] Parse GETJOB (V1.1, V1.2)."""
    spec = GetSpec()
    i: i64 = 1
    count: i64 = len(args)
    while i < count:
        word = args[i]
        if is_word(word, b"FROM"):
            spec.queues = args[i + 1 :]
            break
        if is_word(word, b"NOHANG"):
            spec.no_hang = True
        elif is_word(word, b"WITHCOUNTERS"):
            spec.with_counters = True
        elif i + 1 < count and is_word(word, b"TIMEOUT"):
            i += 1
            spec.timeout_ms = timeout_ms(args[i])
        elif i + 1 < count and is_word(word, b"COUNT"):
            i += 1
            spec.count = at_least(args[i], 1, b"ERR COUNT must be a number greater than zero")
        else:
            raise ArgError(SYNTAX)
        i += 1
    if len(spec.queues) == 0:
        raise ArgError(SYNTAX)
    return spec


@final
class ScanSpec:
    """The arguments of a QSCAN or JSCAN."""

    def __init__(self) -> None:
        self.cursor: i64 = 0
        self.count: i64 = 100
        self.busy_loop = False
        self.min_len: i64 = -1
        self.max_len: i64 = -1
        self.import_rate: i64 = -1
        self.type: bytes | None = None  # of tubes; empty: only queues that are no tubes
        self.queue: bytes | None = None
        self.states: list[bytes] = []
        self.reply_all = False


def scan_options(args: list[bytes], jobs: bool) -> ScanSpec:
    """[S4, S5] Parse QSCAN (`jobs` false) or JSCAN."""
    spec = ScanSpec()
    has_cursor = False
    i: i64 = 1
    count: i64 = len(args)
    while i < count:
        word = args[i].upper()
        has_value = i + 1 < count
        if word == b"BUSYLOOP":
            spec.busy_loop = True
        elif word == b"COUNT" and has_value:
            i += 1
            spec.count = at_least(args[i], 1, b"ERR COUNT must be a number greater than zero")
        elif not jobs and word in (b"MINLEN", b"MAXLEN", b"IMPORTRATE") and has_value:
            i += 1
            value = at_least(args[i], 0, NOT_INT)
            if word == b"MINLEN":
                spec.min_len = value
            elif word == b"MAXLEN":
                spec.max_len = value
            else:
                spec.import_rate = value
        elif not jobs and word == b"TYPE" and has_value:
            i += 1
            spec.type = b"" if args[i] == PLAIN_TYPE else args[i]
        elif jobs and word in (b"QUEUE", b"STATE", b"REPLY") and has_value:
            i += 1
            job_filter(spec, word, args[i])
        else:
            cursor = strict_int(args[i])
            if cursor is None or cursor < 0:
                raise ArgError(BAD_SCAN)
            if has_cursor:
                raise ArgError(SYNTAX)
            has_cursor = True
            spec.cursor = cursor
        i += 1
    return spec


def job_filter(spec: ScanSpec, word: bytes, value: bytes) -> None:
    """One filter of JSCAN."""
    if word == b"QUEUE":
        spec.queue = value
    elif word == b"STATE":
        state = value.lower()
        if state not in (b"wait-repl", b"active", b"queued", b"acked"):
            raise ArgError(b"ERR Invalid job state name")
        spec.states.append(state)
    elif value.lower() == b"all":
        spec.reply_all = True
    elif value.lower() == b"id":
        spec.reply_all = False
    else:
        raise ArgError(b"ERR Invalid REPLY type, try ID or ALL")


def seconds_ms(word: bytes) -> i64:
    """A time in seconds, decimals allowed, as ms (Q6.2)."""
    text = word.decode("ascii", "replace")
    whole, _, part = text.partition(".")
    is_number = (whole + part).isdigit() and len(whole) <= 10 and text.isascii()
    if not is_number or int(whole or "0") > SECONDS_MAX:
        raise ArgError(b"ERR DELAY time must be a non negative number")
    return int(whole or "0") * 1000 + int((part + "000")[:3])
