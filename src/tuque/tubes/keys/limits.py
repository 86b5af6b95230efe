"""LIMIT and RATE keys that lanes wait for (SPEC T41, T42)."""

from typing import final

from librt.strings import read_i32_le, read_i64_le
from mypy_extensions import i64, mypyc_attr

from tuque.tubes.keys.lane import Lane
from tuque.tubes.keys.rate import Bucket
from tuque.tubes.keys.ring import Ring
from tuque.tubes.keys.words import BURST_AT, GAP_AT, PLACES_AT, Keys, numbers_at


@final
@mypyc_attr(acyclic=True)
class Limit:
    """The places of one LIMIT key."""

    def __init__(self) -> None:
        self.places: i64 = 0
        self.used: i64 = 0  # by TAKEN tasks, and kept by lanes
        self.set_by: i64 = -1  # the task that said so: the highest number counts
        self.lanes: i64 = 0
        self.tasks: i64 = 0  # READY ones
        self.since_ms: i64 = 0  # when tasks began to wait for a place; 0: none waits
        self.alone: Lane | None = None  # the one lane that waits; of several there is a ring
        self.ring: Ring | None = None

    def waits(self) -> bool:
        """Whether a lane waits for a place."""
        return self.alone is not None or self.ring is not None

    def first(self) -> Lane | None:
        """The lane that gets the next place."""
        ring = self.ring
        return self.alone if ring is None else ring.first()

    def says(self, packed: bytes, number: i64) -> bool:
        """Go by the places in the task's bytes, if it counts; True: they are others (T40.3)."""
        if number <= self.set_by:
            return False
        self.set_by = number
        before = self.places
        self.places = i64(read_i32_le(packed, numbers_at(packed) + PLACES_AT))
        return self.places != before


@final
@mypyc_attr(acyclic=True)
class Rate(Bucket):
    """The tokens of one RATE key."""

    def __init__(self, keys: Keys, full_ns: i64) -> None:
        super().__init__(keys.gap_ns, keys.burst, full_ns)
        self.set_by: i64 = -1
        self.lanes: i64 = 0
        self.tasks: i64 = 0  # READY ones
        self.since_ms: i64 = 0  # when tasks began to wait for a token; 0: none waits
        self.ready: i64 = 0  # lanes that may go: at most as many as there are tokens
        self.alarm_ms: i64 = 0  # the next instant that matters; 0: none
        self.is_behind = False  # more lanes may go, in the next turn (T41.6)
        self.ring: Ring | None = None

    def says(self, packed: bytes, number: i64, now_ms: i64) -> bool:
        """Go by gap and burst in the task's bytes, if it counts; True: they are others (T40.3)."""
        if number <= self.set_by:
            return False
        self.set_by = number
        at = numbers_at(packed)
        gap_ns = read_i64_le(packed, at + GAP_AT)
        burst = i64(read_i32_le(packed, at + BURST_AT))
        if self.gap_ns == gap_ns and self.burst == burst:
            return False
        self.change(gap_ns, burst, now_ms)
        return True
