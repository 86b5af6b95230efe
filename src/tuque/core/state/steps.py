"""When producers that wait for copies are looked at next (SPEC R4).

Knows ids and instants only.
"""

from collections import deque
from typing import Final, final

from mypy_extensions import i64

FAR: Final = (1 << 62) - 1  # largest int that mypyc stores unboxed


@final
class Batch:
    """The jobs of one instant."""

    def __init__(self, at_ms: i64) -> None:
        self.at_ms = at_ms
        self.ids: list[bytes] = []


@final
class Steps:
    """Ids of jobs by the instant of their next step; instants only grow.

    The jobs of a turn share theirs, so that one costs an append.
    """

    def __init__(self) -> None:
        self.batches: deque[Batch] = deque()
        self.last: Batch | None = None  # of them
        self.first_ms: i64 = FAR  # of the first; each turn asks several times

    def put(self, at_ms: i64, id: bytes) -> None:
        """Look at the job at that instant, which is no earlier than those before."""
        last = self.last
        if last is None or last.at_ms != at_ms:
            last = Batch(at_ms)
            self.batches.append(last)
            self.last = last
            if at_ms < self.first_ms:
                self.first_ms = at_ms
        last.ids.append(id)

    def next_ms(self) -> i64:
        """The first instant; FAR: there is none."""
        return self.first_ms

    def take(self, now_ms: i64) -> list[bytes]:
        """The jobs of the first instant that has come, which leave; none: it has not."""
        if self.first_ms > now_ms:
            return []
        first = self.batches.popleft()
        if first is self.last:
            self.last = None
            self.first_ms = FAR
        else:
            self.first_ms = self.batches[0].at_ms
        return first.ids
