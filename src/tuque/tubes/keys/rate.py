"""The bucket of tokens of one RATE key, as one instant (SPEC T42).

The generic cell rate algorithm: instead of counting tokens it keeps the instant at which the bucket
is full again. Instants are ns on the node's clock, and never go back.
"""

from typing import Final

from mypy_extensions import i64, mypyc_attr

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
