"""Counts the connections of a client: who may have one, and who is next.

A slot is the right to one connection. A freed slot goes straight to the longest waiter, so that
newcomers cannot overtake it. Knows neither threads nor loops: callers bring lock and wait.
"""

from __future__ import annotations

from collections import deque
from typing import Generic, TypeVar

C = TypeVar("C")
W = TypeVar("W")


class Slots(Generic[C, W]):
    """At most `limit` slots (None: no limit), and their idle connections."""

    def __init__(self, limit: int | None) -> None:
        self.in_use = 0
        self.idle: list[C] = []
        self._limit = limit
        self._waiters: deque[W] = deque()

    def take(self) -> tuple[bool, C | None]:
        """A slot with the latest idle connection, if any; (False, None) if all are taken."""
        if self._limit is not None and self.in_use >= self._limit:
            return False, None
        self.in_use += 1
        return True, self.idle.pop() if self.idle else None

    def wait(self, waiter: W) -> None:
        """Queues up for the next free slot."""
        self._waiters.append(waiter)

    def leave(self, waiter: W) -> bool:
        """Stops waiting; False if it is no longer in the queue."""
        try:
            self._waiters.remove(waiter)
        except ValueError:
            return False
        return True

    def give(self, conn: C | None) -> W | None:
        """Returns a slot, with its connection if that is still good.

        The returned waiter, if any, must be handed both.
        """
        if self._waiters:
            return self._waiters.popleft()
        self.in_use -= 1
        if conn is not None:
            self.idle.append(conn)
        return None

    def drain(self) -> list[C]:
        """Removes and returns the idle connections; the caller closes them."""
        drained, self.idle = self.idle, []
        return drained
