"""Arguments of commands: words in, typed values or an error out (SPEC R1, V1, S4, S5, O3, C4).

Numbers, times, headers and names are read here for all commands; GETJOB, the scans and HISTORY
have a typed request each.
"""

from typing import Final, final

from mypy_extensions import i64

from tuque.core.node.node import WITH_COUNTERS, WITH_META, WITH_RUN
from tuque.wire.proto.resp import one_line, strict_int

SYNTAX: Final = b"ERR syntax error"
NOT_INT: Final = b"ERR value is not an integer or out of range"
BAD_TIMEOUT: Final = b"ERR timeout is not an integer or out of range"
NEGATIVE_TIMEOUT: Final = b"ERR timeout is negative"
PLAIN_TYPE: Final = b"queue"
BAD_WORKER: Final = b"ERR WORKER takes a name of 1 to 255 bytes"
BAD_SCAN: Final = b"ERR invalid cursor or option name"


BAD_HEADERS: Final = b"ERR HEADERS takes a number of pairs from 0 to 32, and the pairs"
FEW_HEADERS: Final = b"ERR HEADERS: %d pairs announced, %d given"
BAD_HEADER: Final = (
    b"ERR HEADERS: '%s' is no name: 1 to 64 of a-z, 0-9, '.', '_' and '-', each name once"
)
LONG_HEADER: Final = b"ERR HEADERS: the value of '%s' is over 1024 bytes"
MUCH_HEADERS: Final = b"ERR HEADERS: at most 4096 bytes in all"

NUMBER: Final = b"a number"
OF_SECONDS: Final = b"a number of seconds"
SECONDS: Final = b"a number of seconds from 0 to 2147483647"

GET_WORDS: Final = (b"TIMEOUT", b"COUNT", b"WORKER")

HEADER_LETTERS: Final = b"abcdefghijklmnopqrstuvwxyz0123456789._-"
HEADERS_MAX: Final = 32
HEADER_MAX: Final = 64
HEADER_VALUE_MAX: Final = 1_024
HEADERS_BYTES: Final = 4_096
PRI_MAX: Final = 1 << 52
UTUBE_MAX: Final = 512  # bytes
SECONDS_MAX: Final = 2_147_483_647  # G8.2: as ms far below 64 bits
TIMEOUT_MAX: Final = 1 << 52  # ms
WORKER_MAX: Final = 255  # bytes
STARTS_AT_ONCE: Final = 1_000

STEPS_MS: Final[dict[bytes, int]] = {b"5s": 5_000, b"1m": 60_000}
BAD_NUMBER: Final = b"ERR FROM and COUNT must be numbers from 0 up"
NO_FIELD: Final = b"ERR no field '%s': see HISTORY in docs/commands.md"

# in the order of a point's values (O3.3); those that the node alone has come last
FIELDS: Final = [
    b"added",
    b"delivered",
    b"first-delivered",
    b"wait-ms",
    b"acked",
    b"worked",
    b"work-ms",
    b"failed",
    b"requeued",
    b"dead",
    b"expired",
    b"ready",
    b"delayed",
    b"at-work",
    b"oldest-ms",
    b"loop-p99-us",
    b"memory",
]
COUNTS: Final = 11  # the first ones count within the interval
BUCKETS: Final = 18  # of times
OF_QUEUE: Final = 15  # a queue has the first ones


class ArgError(Exception):
    """Invalid words of a command; carries the error text after the `-`."""

    def __init__(self, text: bytes) -> None:
        super().__init__(text)
        self.text = text


class Misuse(ArgError):
    """[C4] A word that the command does not take there (C4.6): the dispatcher adds how it is used.

    Of an option without its value it is that option; empty: words are missing.
    """

    def __init__(self, word: bytes = b"") -> None:
        at = b"" if len(word) == 0 else b" at '%s'" % one_line(word[:HEADER_MAX])
        super().__init__(SYNTAX + at)


class WrongWords(Misuse):
    """[C4] No such subcommand, or not with so many arguments (C4.8)."""

    def __init__(self, command: bytes) -> None:
        super().__init__()
        self.text = b"ERR Wrong %s subcommand or number of arguments" % command


def wrong(text: bytes) -> ArgError:
    """[W1] A syntax error that says what is wrong (W1.7)."""
    return ArgError(b"%s: %s" % (SYNTAX, text))


def twice(word: bytes) -> ArgError:
    """[W1] An option that may be there once (W1.7)."""
    return wrong(b"%s is there twice" % word)


def wrong_option(command: bytes, word: bytes, options: tuple[bytes, ...]) -> ArgError:
    """[W1] A word that is no option of the command, or an option without its value (W1.7)."""
    if word.upper() in options:
        return wrong(b"%s needs a value" % word.upper())
    return wrong(b"%s has no option '%s'" % (command, one_line(word[:HEADER_MAX])))


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
    """[C4] An integer within the range, or raise; the error says what was there (C4.7)."""
    plain = plain_int(word)
    if plain >= 0 and least <= plain <= most:
        return plain
    value = strict_int(word)
    if value is None or value < least or value > most:
        raise not_this(error, word)
    return value


def not_this(error: bytes, word: bytes) -> ArgError:
    """[C4] What a word must be, and what it was (C4.7)."""
    return ArgError(b"%s, not '%s'" % (error, one_line(word[:HEADER_MAX])))


def refused(option: bytes, range: bytes, word: bytes) -> ArgError:
    """[R1] An option whose value is out of its range (R1.11)."""
    return ArgError(b"ERR %s must be %s, not '%s'" % (option, range, one_line(word[:HEADER_MAX])))


def in_range(option: bytes, word: bytes, least: i64, most: i64, kind: bytes = NUMBER) -> i64:
    """[R1] The integer of an option, within its range, or raise (R1.11)."""
    value: i64 = plain_int(word)
    if value >= 0 and least <= value <= most:
        return value
    parsed = strict_int(word)
    if parsed is None or parsed < least or parsed > most:
        raise refused(option, b"%s from %d to %d" % (kind, int(least), int(most)), word)
    return parsed


def ms_in_range(option: bytes, word: bytes, least_s: i64) -> i64:
    """[R1] The seconds of an option, decimals allowed, in ms, or raise (R1.11)."""
    if word.find(b".") < 0:
        return in_range(option, word, least_s, SECONDS_MAX, OF_SECONDS) * 1000
    found = some_ms(word)
    if not least_s * 1000 <= found <= SECONDS_MAX * 1000:
        raise refused(option, b"%s from %d to %d" % (OF_SECONDS, int(least_s), SECONDS_MAX), word)
    return found


def at_least(word: bytes, least: i64, error: bytes) -> i64:
    """A 64-bit count from `least` up, or raise; SECONDS_MAX exceeds any real count."""
    value = strict_int(word)
    if value is None or value < least:
        raise ArgError(error)
    return min(value, SECONDS_MAX)


def some_ms(word: bytes) -> i64:
    """Seconds, decimals allowed, rounded up to 1 ms; -1 if it is no such time."""
    text = word.decode("ascii", "replace")
    whole, _, part = text.partition(".")
    if not (whole + part).isdigit() or not text.isascii() or len(whole) > 10 or len(part) > 9:
        return -1
    if int(whole or "0") > SECONDS_MAX:
        return -1
    us = int((part + "000000000")[:9])
    return int(whole or "0") * 1000 + (us + 999_999) // 1_000_000


def headers(args: list[bytes], at: i64) -> tuple[bytes, i64]:
    """[W1] The pairs of HEADERS n name value ... as one blob (W1.3), and where the next word is."""
    count = ranged(args[at], 0, HEADERS_MAX, BAD_HEADERS)
    at += 1
    if at + 2 * count > len(args):
        raise ArgError(FEW_HEADERS % (int(count), int((len(args) - at) // 2)))
    blob = b""
    seen: dict[bytes, None] = {}
    end = at + 2 * count
    while at < end:
        name, value = args[at], args[at + 1]
        at += 2
        if not is_header(name) or name in seen:
            raise ArgError(BAD_HEADER % name[:HEADER_MAX])
        if len(value) > HEADER_VALUE_MAX:
            raise ArgError(LONG_HEADER % name)
        seen[name] = None
        blob += bytes([len(name)]) + name + len(value).to_bytes(2, "little") + value
    if len(blob) - 3 * count > HEADERS_BYTES:  # each pair has its two lengths
        raise ArgError(MUCH_HEADERS)
    return blob, at


def is_header(name: bytes) -> bool:
    """Whether the word may name a header."""
    if not 1 <= len(name) <= HEADER_MAX:
        return False
    return len(name.translate(None, HEADER_LETTERS)) == 0


def header_pairs(blob: bytes) -> list[bytes]:
    """Names and values in turn."""
    words: list[bytes] = []
    at: i64 = 0
    while at < len(blob):
        size: i64 = blob[at]
        words.append(blob[at + 1 : at + 1 + size])
        at += 1 + size
        low: i64 = blob[at]
        high: i64 = blob[at + 1]
        size = low | high << 8
        words.append(blob[at + 2 : at + 2 + size])
        at += 2 + size
    return words


@final
class GetSpec:
    """The arguments of a GETJOB."""

    def __init__(self) -> None:
        self.no_hang = False
        self.timeout_ms: i64 = 0
        self.count: i64 = 1
        self.extras: i64 = 0  # WITH_COUNTERS, WITH_META, WITH_RUN
        self.worker = b""  # of START; empty: the connection
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
    """[V1, W17] Parse GETJOB (V1.1, V1.2)."""
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
            spec.extras |= WITH_COUNTERS
        elif is_word(word, b"WITHMETA"):
            spec.extras |= WITH_META
        elif is_word(word, b"START"):
            spec.extras |= WITH_RUN
        elif i + 1 < count and is_word(word, b"WORKER"):
            i += 1
            spec.worker = worker_name(args[i])
        elif i + 1 < count and is_word(word, b"TIMEOUT"):
            i += 1
            spec.timeout_ms = timeout_ms(args[i])
        elif i + 1 < count and is_word(word, b"COUNT"):
            i += 1
            spec.count = at_least(args[i], 1, b"ERR COUNT must be a number greater than zero")
        else:
            raise wrong_option(b"GETJOB", word, GET_WORDS)
        i += 1
    if len(spec.queues) == 0:
        raise wrong(b"GETJOB needs FROM, and a queue")
    if spec.extras & WITH_RUN:
        spec.count = min(spec.count, STARTS_AT_ONCE)  # W17.1
    elif len(spec.worker) > 0:
        raise wrong(b"WORKER needs START")  # W17.1
    return spec


def worker_name(word: bytes) -> bytes:
    """The name of a worker (W2.1)."""
    if not 1 <= len(word) <= WORKER_MAX:
        raise ArgError(BAD_WORKER)
    return word


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
                raise Misuse(args[i])
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
    """The seconds of a DELAY, decimals allowed, as ms (Q6.2)."""
    text = word.decode("ascii", "replace").removeprefix("+")
    whole, _, part = text.partition(".")
    is_number = (whole + part).isdigit() and text.isascii()
    if not is_number or len(whole) > 10 or int(whole or "0") > SECONDS_MAX:
        raise refused(b"DELAY", SECONDS, word)
    return int(whole or "0") * 1000 + int((part + "000")[:3])


# ---- HISTORY (SPEC O3)


@final
class HistoryArgs:
    """What a HISTORY asks for; `step_ms` 0: the names of the queues with points."""

    def __init__(self) -> None:
        self.step_ms: i64 = 0
        self.queue: bytes | None = None  # None: the node's points
        self.from_ms: i64 = -1  # only later points
        self.count: i64 = -1  # the last ones at most; -1: all
        self.fields: list[int] = []  # indices into FIELDS
        self.times = b""  # `wait` or `work`: how long these took (O3.7)


def history_args(args: list[bytes]) -> HistoryArgs:
    """[O3] The words of HISTORY, or raise ArgError (O3.2, O3.6)."""
    wanted = HistoryArgs()
    first = args[1].lower()
    if first == b"queues" and len(args) == 2:
        return wanted  # O3.5
    if first not in STEPS_MS:
        raise Misuse(args[2] if first == b"queues" else args[1])
    wanted.step_ms = STEPS_MS[first]
    at: i64 = 2
    size: i64 = len(args)
    while at < size:
        option = args[at].upper()
        if option not in (b"QUEUE", b"FROM", b"COUNT", b"TIMES"):
            break
        if at + 1 == size:
            raise Misuse(args[at])
        word = args[at + 1]
        if option == b"QUEUE":
            wanted.queue = word
        elif option == b"TIMES":
            if word.lower() not in (b"wait", b"work"):
                raise Misuse(word)
            wanted.times = word.lower()
        elif option == b"FROM":
            wanted.from_ms = not_below_0(word)
        else:
            wanted.count = not_below_0(word)
        at += 2
    if wanted.times != b"":
        if at < size or wanted.queue is not None:
            raise Misuse(args[at] if at < size else b"QUEUE")
        wanted.fields = list(range(BUCKETS))
        return wanted
    known = FIELDS if wanted.queue is None else FIELDS[:OF_QUEUE]  # O3.4
    for word in args[at:]:
        if word.lower() not in known:
            raise ArgError(NO_FIELD % word[:64])
        field = known.index(word.lower())
        if field in wanted.fields:
            raise Misuse(word)
        wanted.fields.append(field)
    if len(wanted.fields) == 0:
        wanted.fields = list(range(len(known)))
    return wanted


def not_below_0(word: bytes) -> i64:
    """A number from 0 up, or raise."""
    value = strict_int(word)
    if value is None or value < 0:
        raise not_this(BAD_NUMBER, word)
    return value
