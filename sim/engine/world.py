"""The event loop: one heap of events in true time, and named random streams.

Events of the same instant run in random order, so that every order occurs. Each use of chance
has a stream of its own, so that one more draw in one place changes nothing elsewhere: so a
shrunk plan behaves like the original.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b
from heapq import heappop, heappush
from random import Random
from typing import Final

START_MS: Final = 1_800_000_000_000  # correct wall clocks show this at the start
EVENTS_MAX: Final = 2_000_000  # a seed that needs more does not end


class Spinning(Exception):
    """The seed does not end."""


class World:
    """True time in microseconds, future events, and a digest of past ones."""

    def __init__(self, seed: str) -> None:
        self.seed = seed
        self.now_us = 0
        self.events = 0
        self.heap: list[tuple[int, float, int, Callable[[], None]]] = []
        self.pushed = 0
        self.lots = self.stream("order").random
        self.hash = blake2b(digest_size=16)
        self.trace: list[str] | None = None  # lines for people, if requested
        self.seen: dict[str, int] = {}  # rare states met, and how often

    def stream(self, name: str) -> Random:
        """The random stream for one purpose."""
        return Random(f"{self.seed}/{name}")

    def instant(self, at_us: int) -> int:
        """When what is meant for that time happens: then. A coarser clock rounds."""
        return at_us

    def at(self, at_us: int, event: Callable[[], None]) -> None:
        """Schedule a call at an instant; not before now."""
        self.pushed += 1
        if at_us < self.now_us:
            at_us = self.now_us
        heappush(self.heap, (at_us, self.lots(), self.pushed, event))

    def after(self, wait_us: int, event: Callable[[], None]) -> None:
        """Schedule a call after a delay."""
        self.at(self.now_us + wait_us, event)

    def run(self, until_us: int) -> None:
        """Run all events due up to an instant. Raises Spinning."""
        heap = self.heap
        while heap and heap[0][0] <= until_us:
            at_us, _, _, event = heappop(heap)
            self.now_us = at_us
            self.events += 1
            event()
        if self.events > EVENTS_MAX:
            raise Spinning(f"{self.events} events")
        self.now_us = max(self.now_us, until_us)

    def note(self, what: str, data: bytes = b"") -> None:
        """Add an event to the digest, and to the trace if there is one."""
        self.hash.update(b"%d %s\0" % (self.now_us, what.encode()))
        if data:
            self.hash.update(data)
        if self.trace is not None:
            tail = f" {len(data)} bytes" if data else ""
            self.trace.append(f"{self.now_us / 1e6:12.6f} {what}{tail}")

    def sometimes(self, state: str) -> None:
        """Record that a rare state was met: a test that never meets it proves less."""
        self.seen[state] = self.seen.get(state, 0) + 1

    def digest(self) -> str:
        """A fingerprint of all events."""
        self.hash.update(b"%d events" % self.events)
        return self.hash.hexdigest()
