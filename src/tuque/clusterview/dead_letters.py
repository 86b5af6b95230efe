"""The dead letters of a cluster, each once, in groups, as they were read last.

Decides what of a reason differs from job to job, and is left out to group it, and for how long what
was read is shown again.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from collections.abc import Callable, Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Final

import msgspec

from tuque.aio import Client
from tuque.client.commands.dead import DeadLetter
from tuque.clusterview.nodes import Node, Nodes
from tuque.clusterview.queues import (
    GRAVES,
    MOST_DEAD,
    has_letters,
    page_of,
)
from tuque.errors import TubeHome

MOST: Final = 100_000  # letters of a queue that are read
PAGE: Final = 1_000
SLICE: Final = 500  # letters that are read in one go
EMPTY: Final[Mapping[str, Letter]] = {}
SAID: Final = 200  # characters of a reason that name its group

DIFFERS: Final = (
    (re.compile(r"\bD-[0-9a-f]{8}-[A-Za-z0-9+/.~]{24}-[0-9a-f]{4}"), "…"),
    (re.compile(r"(\b[a-z][a-z0-9+.-]{0,31}://[^\s/'\"]+)[^\s'\"]*"), r"\1/…"),
    (re.compile(r"\b[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F-]{22}\b"), "…"),
    (re.compile(r"\b(?=[0-9a-f]*\d)[0-9a-f]{12,}\b"), "…"),
    (re.compile(r"(?<![A-Za-z0-9.])(?!\d{3}\s[A-Z])\d+(?:\.\d+)?(?![A-Za-z0-9])"), "…"),
)
WORD: Final = re.compile(r"\S+")
DIGIT: Final = re.compile(r"\d")


class Letter(msgspec.Struct, frozen=True):
    """A dead letter, the queue that keeps it, and a node that has it."""

    row: DeadLetter
    queue: str
    node: str
    reason: str  # what is left of it in its group

    @property
    def group(self) -> str:
        """The key of its group."""
        return "\x1f".join((self.queue, self.row.task, self.row.cause, self.reason))


class Group(msgspec.Struct):
    """Letters of one task and reason; instants in unix s."""

    key: str
    queue: str
    task: str
    cause: str
    reason: str
    letters: list[Letter] = []
    origins: list[str] = []  # the queues that they came from
    first_s: float = 0.0
    latest_s: float = 0.0

    @property
    def count(self) -> int:
        return len(self.letters)

    def end(self) -> None:
        """All its letters are there."""
        died = [one.row.last_failure_ms for one in self.letters]
        self.first_s, self.latest_s = min(died) / 1000, max(died) / 1000
        self.origins = sorted({one.row.origin for one in self.letters})

    def newest(self, count: int) -> list[Letter]:
        """Those that died last."""
        return sorted(self.letters, key=lambda one: -one.row.last_failure_ms)[:count]


class Wanted(msgspec.Struct, frozen=True):
    """Which letters: in these queues, of these groups or ids, with a text; all empty: all."""

    queue: str = ""
    task: str = ""
    text: str = ""
    groups: tuple[str, ...] = ()
    ids: tuple[str, ...] = ()

    def takes(self, one: Letter) -> bool:
        """Whether a letter is meant."""
        row = one.row
        if self.task and row.task != self.task:
            return False
        if self.groups and one.group not in self.groups:
            return False
        if self.ids and row.id not in self.ids:
            return False
        return all(has(one, word) for word in self.text.split())


def has(one: Letter, word: str) -> bool:
    """Whether a word of a filter is in a letter: part of its task, reason, cause or queue."""
    about = f"{one.row.task} {one.row.reason} {one.row.cause} {one.queue} {one.row.id}"
    return fnmatchcase(about, f"*{word}*") if "*" in word else word.lower() in about.lower()


def general(reason: str) -> str:
    """A reason without numbers, ids and paths."""
    text = reason.splitlines()[0][:SAID] if reason else ""
    for pattern, instead in DIFFERS:
        text = pattern.sub(instead, text)
    return WORD.sub(without_address, text) if "@" in text else text


def without_address(word: re.Match[str]) -> str:
    """A word as it is; one with a digit before an @ is left out."""
    found = word[0]
    return "…" if DIGIT.search(found, 0, found.rfind("@") + 1) else found


async def letters_of(
    nodes: Nodes,
    queues: Iterable[str],
    wanted: Wanted,
    known: Mapping[str, Letter] = EMPTY,
    count: Callable[[int], object] = bool,
    received: set[str] | None = None,
) -> list[Letter]:
    """The letters that are meant, each once, from the nodes that answer.

    `known` are those of an earlier time, by id, and `count` hears of each part that was read.
    `received` gets the ids of the nodes that answered.
    """
    found: dict[str, Letter] = {}
    kept: dict[str, str] = {}
    for queue in queues:
        if wanted.queue and queue != wanted.queue:
            continue

        async def question(client: Client, queue: str = queue) -> list[DeadLetter]:
            rows: list[DeadLetter] = []
            with contextlib.suppress(TubeHome):  # those of a tube are at its leader
                async for row in client.dead_letters(queue, count=PAGE):
                    rows.append(row)
                    if len(rows) % PAGE == 0:
                        count(PAGE)
                    if len(rows) >= MOST:
                        break
            return rows

        for node, rows in (await nodes.ask(question)).items():
            if received is not None:
                received.add(node)
            for at, row in enumerate(rows):
                if at % SLICE == 0:
                    await asyncio.sleep(0)  # others have their turn
                if row.id in found:
                    continue
                old = known.get(row.id)
                reason = old.reason if old and old.row == row else kept.get(row.reason)
                if reason is None:
                    reason = kept[row.reason] = general(row.reason)
                one = Letter(row, queue, node, reason)
                if wanted.takes(one):
                    found[row.id] = one
    return list(found.values())


def grouped(letters: Iterable[Letter]) -> list[Group]:
    """The groups of letters, the greatest first."""
    groups: dict[tuple[str, str, str, str], Group] = {}
    for one in letters:
        row = one.row
        words = one.queue, row.task, row.cause, one.reason
        group = groups.get(words)
        if group is None:
            group = groups[words] = Group(one.group, *words)
        group.letters.append(one)
    for group in groups.values():
        group.end()
    return sorted(groups.values(), key=lambda one: (-one.count, one.key))


def by_node(letters: Iterable[Letter], up: Iterable[Node]) -> dict[tuple[str, str], list[str]]:
    """Ids by node and queue, for the nodes that answer."""
    there = {node.id for node in up}
    found: dict[tuple[str, str], list[str]] = {}
    for one in letters:
        if one.node in there:
            found.setdefault((one.node, one.queue), []).append(one.row.id)
    return found


# ---- All dead letters of the cluster as they were read last, sorted into groups for the page.
#
# Decides when they are read again, and whether a page or a dialog waits for that: many take
# seconds, and are read while pages show those of the last time.


REST: Final = 10  # times as long as a reading took: until the next one
WAIT_S: Final = 0.15  # a page waits so long for a reading
FEW: Final = 2_000  # letters that a dialog reads anew
FEW_WAIT_S: Final = 2.0
SORTED_MAX: Final = 8  # filters whose groups are kept


class Sorted(msgspec.Struct, frozen=True):
    """The letters that a filter means: their groups, and how many there are."""

    groups: list[Group]
    count: int


class Reading:
    """The letters of one reading, begun at `at_s`; how many there are of each task and queue."""

    def __init__(
        self, letters: list[Letter], at_s: float, of: frozenset[str] = frozenset()
    ) -> None:
        self.letters = letters
        self.at_s = at_s
        self.of = of  # the queues that were asked for
        self.tasks = tally(one.row.task for one in letters)
        self.queues = tally(one.queue for one in letters)
        self._sorted: dict[Wanted, Sorted] = {}
        self._part: tuple[frozenset[str], Reading | None] | None = None  # None: all of it

    def at(self, nodes: frozenset[str]) -> Reading:
        """[O14] It, without the letters of other nodes: those are not counted (O14.1)."""
        if self._part is None or self._part[0] != nodes:
            letters = [one for one in self.letters if one.node in nodes]
            is_all = len(letters) == len(self.letters)
            self._part = (nodes, None if is_all else Reading(letters, self.at_s, self.of))
        return self._part[1] or self

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

    def chosen(self, wanted: Wanted) -> list[Letter]:
        """The letters that a filter means, of its groups and ids if it names some."""
        groups = self.meant(msgspec.structs.replace(wanted, groups=(), ids=())).groups
        if wanted.groups:
            groups = [one for one in groups if one.key in wanted.groups]
        letters = [one for group in groups for one in group.letters]
        ids = set(wanted.ids)
        return [one for one in letters if one.row.id in ids] if ids else letters


class DeadLetterCache:
    """Reads the letters when a page wants them."""

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes
        self.latest: Reading | None = None
        self._task: asyncio.Task[None] | None = None
        self._free_s = 0.0
        self._is_over = False  # the letters of the latest reading have changed since
        self.seen = 0  # letters of the reading that goes on
        self._received: frozenset[str] = frozenset()  # the nodes that answered when a page asked

    async def now(self, queues: Iterable[str], about: int) -> Reading | None:
        """A reading that begins now, if there are `about` so few; else as for a page."""
        known = len(self.latest.letters) if self.latest else 0
        if max(about, known) > FEW:
            return await self.of(queues)
        if self._task is not None:  # it began earlier
            await asyncio.wait({self._task}, timeout=FEW_WAIT_S)
        self._is_over = True
        return await self.of(queues, FEW_WAIT_S)

    async def of(self, queues: Iterable[str], wait_s: float = WAIT_S) -> Reading | None:
        """The latest reading, of the nodes that answer; None while the first one goes on."""
        received = frozenset(node.id for node in self._nodes.up())
        if received != self._received:  # what is away may be elsewhere now
            self._received, self._is_over = received, True
        names = frozenset(queues)
        if self.latest is not None and not names <= self.latest.of:  # O14.8
            self._is_over = True
            wait_s = max(wait_s, FEW_WAIT_S)
        if self._task is None and (self._is_over or time.monotonic() >= self._free_s):
            self._is_over = False
            self._task = asyncio.create_task(self._read(names))
        if self._task is not None:
            await asyncio.wait({self._task}, timeout=wait_s)
        return self.latest.at(received) if self.latest and received else self.latest

    def expire(self) -> None:
        """They have changed: the next page reads them again."""
        self._is_over = True

    async def _read(self, queues: frozenset[str]) -> None:
        """[O14] Reads them; what no node answered is no reading (O14.8)."""
        begun_s, at_s = time.monotonic(), time.time()
        known = {one.row.id: one for one in self.latest.letters} if self.latest else {}
        self.seen = 0
        try:
            received: set[str] = set()
            lists = await self._nodes.ask(lambda client: page_of(client, GRAVES))
            # [O14] also those that the page does not know: its node may be just back (O14.8)
            queues |= {row.name for one in lists.values() for row in one.rows}
            tubes = await self._nodes.ask(lambda client: page_of(client, MOST_DEAD))
            queues |= {row.name for one in tubes.values() for row in one.rows if has_letters(row)}
            asked = sorted(queues)
            found = await letters_of(self._nodes, asked, Wanted(), known, self._count, received)
            up = {node.id for node in self._nodes.up()}
            if received or (lists and not queues):
                self.latest = Reading(found, at_s, queues)
                self.latest.meant(Wanted())
            if queues and received != up:
                self._is_over = True
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
