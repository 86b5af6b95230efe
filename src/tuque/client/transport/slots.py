"""Counts the connections of a client: who may have one now, and who is next.

A slot is the right to one connection. A freed slot goes straight to the caller that has waited
longest, so that newcomers cannot overtake it. This module knows neither threads nor loops: its
users bring lock and wait.
"""

from __future__ import annotations

from collections import deque
from typing import Generic, TypeVar

C = TypeVar("C")
W = TypeVar("W")


class Slots(Generic[C, W]):
    """At most `limit` slots (None: any number) and the idle connections that go with them."""

    def __init__(self, limit: int | None) -> None:
        self.in_use = 0
        self.idle: list[C] = []
        self._limit = limit
        self._waiters: deque[W] = deque()

    def take(self) -> tuple[bool, C | None]:
        """A slot with the idle connection used last, if any; (False, None) when all are taken."""
        if self._limit is not None and self.in_use >= self._limit:
            return False, None
        self.in_use += 1
        return True, self.idle.pop() if self.idle else None

    def wait(self, waiter: W) -> None:
        """Queues up for the next free slot."""
        self._waiters.append(waiter)

    def leave(self, waiter: W) -> bool:
        """Gives up waiting; False when it stands in the queue no longer."""
        try:
            self._waiters.remove(waiter)
        except ValueError:
            return False
        return True

    def give(self, conn: C | None) -> W | None:
        """Returns a slot, and its connection if that is still good.

        The waiter returned, if any, must be handed both: they are its own now.
        """
        if self._waiters:
            return self._waiters.popleft()
        self.in_use -= 1
        if conn is not None:
            self.idle.append(conn)
        return None

    def drain(self) -> list[C]:
        """Forgets the idle connections, which are the caller's to close."""
        drained, self.idle = self.idle, []
        return drained
