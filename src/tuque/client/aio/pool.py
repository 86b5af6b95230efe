"""The connections of a client to one node: a limited number, and the callers waiting for one."""

from __future__ import annotations

import threading

from tuque.client.transport.slots import Slots
from tuque.client.transport.streams import Link, Waiter
from tuque.errors import Timeout


class Pool:
    """Slots for connections; waits for a free one in order, up to a deadline."""

    def __init__(self, limit: int | None) -> None:
        self._slots: Slots[Link, Waiter] = Slots(limit)
        self._lock = threading.RLock()  # never held over a wait; the collector may call back here

    async def take(self, deadline_s: float) -> Link | None:
        """A slot, with an idle connection if there is one; Timeout if none becomes free in time."""
        with self._lock:
            taken, link = self._slots.take()
            if taken:
                return link
            waiter = Waiter()
            self._slots.wait(waiter)
        try:
            return await waiter.wait(deadline_s)
        except BaseException as e:
            self._leave(waiter)
            if isinstance(e, TimeoutError):
                raise Timeout("all connections of this client stayed busy", retryable=True) from e
            raise

    def give(self, link: Link | None) -> None:
        """Returns a slot, and the connection if it may be used again."""
        with self._lock:
            while (waiter := self._slots.give(link)) is not None:
                if waiter.grant(link):
                    return

    def close_idle(self) -> int:
        """Closes the idle connections; returns how many."""
        with self._lock:
            idle = self._slots.drain()
        for link in idle:
            link.close()
        return len(idle)

    @property
    def open_count(self) -> int:
        return self._slots.in_use + len(self._slots.idle)

    def _leave(self, waiter: Waiter) -> None:
        """Stops waiting; a slot that came at the last moment goes to the next caller."""
        with self._lock:
            self._slots.leave(waiter)
        if waiter.is_granted:
            self.give(waiter.link)
