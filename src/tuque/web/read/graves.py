"""All dead letters of the cluster as they were read last, sorted into groups for the page.

Decides when they are read again, and whether a page waits for that: many take seconds, and are
read while pages show those of the last time.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from typing import Final

import msgspec

from tuque.web.read.letters import Group, Letter, Wanted, grouped, letters_of
from tuque.web.read.nodes import Nodes

REST: Final = 10  # times as long as a reading took: until the next one
WAIT_S: Final = 0.15  # a page waits so long for a reading
SORTED_MAX: Final = 8  # filters whose groups are kept


class Sorted(msgspec.Struct, frozen=True):
    """The letters that a filter means: their groups, and how many there are."""

    groups: list[Group]
    count: int


class Reading:
    """The letters of one reading; how many there are of each task and queue."""

    def __init__(self, letters: list[Letter]) -> None:
        self.letters = letters
        self.tasks = tally(one.row.task for one in letters)
        self.queues = tally(one.queue for one in letters)
        self._sorted: dict[Wanted, Sorted] = {}

    def meant(self, wanted: Wanted) -> Sorted:
        """Those that a filter means."""
        found = self._sorted.get(wanted)
        if found is None:
            letters = self.letters
            if wanted != Wanted():
                letters = [one for one in letters if is_meant(one, wanted)]
            while len(self._sorted) >= SORTED_MAX:
                del self._sorted[next(iter(self._sorted))]
            found = self._sorted[wanted] = Sorted(grouped(letters), len(letters))
        return found


class Graves:
    """Reads the letters when a page wants them."""

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes
        self._latest: Reading | None = None
        self._task: asyncio.Task[None] | None = None
        self._free_s = 0.0
        self._is_over = False  # the letters of the latest reading have changed since
        self.seen = 0  # letters of the reading that goes on

    async def of(self, queues: Iterable[str]) -> Reading | None:
        """The latest reading; None while the first one goes on."""
        if self._task is None and (self._is_over or time.monotonic() >= self._free_s):
            self._is_over = False
            self._task = asyncio.create_task(self._read(list(queues)))
        if self._task is not None:
            await asyncio.wait({self._task}, timeout=WAIT_S)
        return self._latest

    def expire(self) -> None:
        """They have changed: the next page reads them again."""
        self._is_over = True

    async def _read(self, queues: list[str]) -> None:
        begun_s = time.monotonic()
        known = {one.row.id: one for one in self._latest.letters} if self._latest else {}
        self.seen = 0
        try:
            found = await letters_of(self._nodes, queues, Wanted(), known, self._count)
            self._latest = Reading(found)
            self._latest.meant(Wanted())
        finally:
            now_s = time.monotonic()
            self._free_s = now_s + REST * (now_s - begun_s)
            self._task = None

    def _count(self, letters: int) -> None:
        self.seen += letters

    async def close(self) -> None:
        """Ends a reading that goes on."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)


def is_meant(one: Letter, wanted: Wanted) -> bool:
    """Whether a letter is in the queue of a filter, and fits it."""
    return (not wanted.queue or one.queue == wanted.queue) and wanted.takes(one)


def tally(words: Iterable[str]) -> list[tuple[str, int]]:
    """How often each word is there, the most frequent first."""
    counts: dict[str, int] = {}
    for word in words:
        counts[word] = counts.get(word, 0) + 1
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))
