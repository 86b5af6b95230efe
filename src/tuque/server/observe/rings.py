"""Points of the past, in rings of fixed length (SPEC O3).

A ring grows with its points up to its length, and then writes over the oldest. A value takes four
bytes; those that may pass that have their upper half in a column of its own.
"""

from array import array
from typing import Final, final

from mypy_extensions import i64

SHORT_MS: Final = 5_000
SHORT_POINTS: Final = 720
LONG_MS: Final = 60_000
LONG_POINTS: Final = 1_440

COUNTS: Final = 11  # the first fields count within the interval
OF_QUEUE: Final = 15  # fields of a queue; the node has two more
OF_NODE: Final = 17
WIDE: Final = [3, 6, 16]  # wait-ms, work-ms, memory
LOW: Final = 0xFFFFFFFF
TIMES: Final = 18  # buckets of a histogram
NONE_WIDE: Final[list[int]] = []
RING_BYTES: Final = 400  # two empty rings with what is around them


@final
class Ring:
    """The last `most` points, `step_ms` apart, of `fields` values each."""

    def __init__(self, step_ms: i64, most: i64, fields: i64, wide: list[int]) -> None:
        self.step_ms = step_ms
        self.most = most
        self.fields = fields
        self.wide = [field for field in wide if field < fields]
        self.times = array("q")
        self.values = array("I")
        self.next: i64 = 0  # where the next point goes, once the ring is full

    def add(self, at_ms: i64, row: list[int]) -> None:
        """Keep a point; a value beyond its column is kept as the greatest that fits."""
        slots = [min(max(value, 0), LOW) for value in row]
        for field in self.wide:
            value = max(row[field], 0)
            slots[field] = value & LOW
            slots.append(min(value >> 32, LOW))
        count: i64 = len(self.times)
        if count < self.most:
            self.times.append(at_ms)
            self.values.extend(slots)
            return
        width: i64 = len(slots)
        self.times[self.next] = at_ms
        self.values[self.next * width : (self.next + 1) * width] = array("I", slots)
        self.next = (self.next + 1) % self.most

    def points(self, from_ms: i64, count: i64, fields: list[int]) -> list[list[int]]:
        """[O3] Points later than `from_ms`, oldest first, the last `count` (-1: all) (O3.2)."""
        size: i64 = len(self.times)
        width = self.fields + len(self.wide)
        found: list[list[int]] = []
        back: i64 = 1
        while back <= size and (count < 0 or len(found) < count):
            at = (self.next - back + size) % size
            at_ms: int = self.times[at]
            if at_ms <= from_ms:
                break
            row = [at_ms]
            for field in fields:
                value: int = self.values[at * width + field]
                if field in self.wide:
                    high: int = self.values[at * width + self.fields + self.wide.index(field)]
                    value |= high << 32
                row.append(value)
            found.append(row)
            back += 1
        found.reverse()
        return found

    def last_ms(self) -> i64:
        """The time of the newest point, 0 if there is none."""
        size: i64 = len(self.times)
        return 0 if size == 0 else i64(self.times[(self.next - 1 + size) % size])

    def bytes_used(self) -> i64:
        """Memory of the points."""
        return len(self.times) * 8 + len(self.values) * 4


@final
class Points:
    """Both rings of one queue, of the node, or of its times."""

    def __init__(self, fields: i64, counts: list[int], wide: list[int] = WIDE) -> None:
        self.short = Ring(SHORT_MS, SHORT_POINTS, fields, wide)
        self.long = Ring(LONG_MS, LONG_POINTS, fields, wide)
        self.short_counts = counts  # at the end of the latest interval
        self.long_counts = counts

    def ring(self, step_ms: i64) -> Ring:
        """The ring of that step."""
        return self.short if step_ms == SHORT_MS else self.long

    def add(self, at_ms: i64, counts: list[int], now: list[int]) -> None:
        """[O3] An interval of 5 s ends: what has changed, and what is (O3.1)."""
        self.short.add(at_ms, differences(counts, self.short_counts) + now)
        self.short_counts = counts

    def add_long(self, at_ms: i64, counts: list[int], now: list[int]) -> None:
        """A minute ends."""
        self.long.add(at_ms, differences(counts, self.long_counts) + now)
        self.long_counts = counts

    def bytes_used(self) -> i64:
        """Memory of both."""
        return RING_BYTES + self.short.bytes_used() + self.long.bytes_used()


def differences(now: list[int], before: list[int]) -> list[int]:
    """What each count grew by."""
    return [count - before[i] for i, count in enumerate(now)]
