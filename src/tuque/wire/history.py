"""HISTORY: its fields, and words in, a typed request or an error out (SPEC O3)."""

from typing import Final, final

from mypy_extensions import i64

from tuque.wire.args import ArgError, Misuse, not_this
from tuque.wire.resp import strict_int

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
