"""LIMIT and RATE keys that partitions wait for (SPEC T41, T42).

The tokens of a rate are one instant, as in the generic cell rate algorithm: the one at which its
bucket is full again. Such instants are ns on the node's clock, and never go back.
"""

from typing import Final, final

from librt.strings import read_i32_le, read_i64_le
from mypy_extensions import i64, mypyc_attr

from tuque.tubes.entries.keys import (
    BURST_AT,
    GAP_AT,
    PLACES_AT,
    Keys,
    numbers_at,
)
from tuque.tubes.policies.partitions import Lane, Ring

NS: Final = 1_000_000  # in a ms


@mypyc_attr(acyclic=True)
class Bucket:
    """`burst` tokens at most; one more each `gap_ns`."""

    def __init__(self, gap_ns: i64, burst: i64, full_ns: i64) -> None:
        self.gap_ns = gap_ns
        self.burst = burst
        self.full_ns = full_ns

    def tokens(self, now_ms: i64) -> i64:
        """How many takes are allowed at this instant."""
        missing_ns = self.full_ns - now_ms * NS
        if missing_ns <= 0:
            return self.burst
        missing = (missing_ns + self.gap_ns - 1) // self.gap_ns
        return self.burst - missing if missing < self.burst else 0

    def spend(self, now_ms: i64) -> None:
        """One token is gone."""
        now_ns = now_ms * NS
        if self.full_ns < now_ns:
            self.full_ns = now_ns
        self.full_ns += self.gap_ns

    def token_ms(self, count: i64) -> i64:
        """The first ms at which that many tokens are there; at most `burst`."""
        at_ns = self.full_ns - (self.burst - count) * self.gap_ns
        return (at_ns + NS - 1) // NS

    def full_ms(self) -> i64:
        """The first ms at which nothing is missing."""
        return (self.full_ns + NS - 1) // NS

    def change(self, gap_ns: i64, burst: i64, now_ms: i64) -> None:
        """Another rate from now on; no more is missing than an empty bucket lacks."""
        self.gap_ns = gap_ns
        self.burst = burst
        most_ns = now_ms * NS + burst * gap_ns
        if self.full_ns > most_ns:
            self.full_ns = most_ns


@final
@mypyc_attr(acyclic=True)
class Limit:
    """The places of one LIMIT key."""

    def __init__(self) -> None:
        self.places: i64 = 0
        self.used: i64 = 0  # by TAKEN tasks, and kept by lanes
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

    def follow(self, packed: bytes) -> bool:
        """Go by the places in the bytes of the task that counts; True: they are others (T40.3)."""
        before = self.places
        self.places = i64(read_i32_le(packed, numbers_at(packed) + PLACES_AT))
        return self.places != before


@final
@mypyc_attr(acyclic=True)
class Rate(Bucket):
    """The tokens of one RATE key."""

    def __init__(self, keys: Keys, full_ns: i64) -> None:
        super().__init__(keys.gap_ns, keys.burst, full_ns)
        self.lanes: i64 = 0
        self.tasks: i64 = 0  # READY ones
        self.since_ms: i64 = 0  # when tasks began to wait for a token; 0: none waits
        self.ready: i64 = 0  # lanes that may go: at most as many as there are tokens
        self.alarm_ms: i64 = 0  # the next instant that matters; 0: none
        self.is_behind = False  # more lanes may go, in the next turn (T41.6)
        self.ring: Ring | None = None

    def follow(self, packed: bytes, now_ms: i64) -> bool:
        """As `Limit.follow`, of gap and burst."""
        at = numbers_at(packed)
        gap_ns = read_i64_le(packed, at + GAP_AT)
        burst = i64(read_i32_le(packed, at + BURST_AT))
        if self.gap_ns == gap_ns and self.burst == burst:
            return False
        self.change(gap_ns, burst, now_ms)
        return True
