"""The dead letters of a cluster, each once, in groups of the same task and reason.

Decides what of a reason differs from job to job, and is left out to group it.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Callable, Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Final

import msgspec

from tuque.aio import Client
from tuque.client.commands.dead import DeadLetter
from tuque.errors import TubeHome
from tuque.web.read.nodes import Node, Nodes

MOST: Final = 100_000  # letters of a queue that are read
PAGE: Final = 1_000
SLICE: Final = 500  # letters that are read in one go
EMPTY: Final[Mapping[str, Letter]] = {}
SAID: Final = 200  # characters of a reason that name its group

DIFFERS: Final = (
    (re.compile(r"\bD-[0-9a-f]{8}-[A-Za-z0-9+/]{24}-[0-9a-f]{4}"), "…"),
    (re.compile(r"(\b[a-z][a-z0-9+.-]*://[^\s/'\"]+)[^\s'\"]*"), r"\1/…"),
    (re.compile(r"\b[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F-]{22}\b"), "…"),
    (re.compile(r"\b(?=[0-9a-f]*\d)[0-9a-f]{12,}\b"), "…"),
    (re.compile(r"(?<![A-Za-z0-9.])(?!\d{3}\s[A-Z])\d+(?:\.\d+)?(?![A-Za-z0-9])"), "…"),
    (re.compile(r"\S*\d\S*@\S*"), "…"),
)


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
    return text


async def letters_of(
    nodes: Nodes,
    queues: Iterable[str],
    wanted: Wanted,
    known: Mapping[str, Letter] = EMPTY,
    count: Callable[[int], object] = bool,
    heard: set[str] | None = None,
) -> list[Letter]:
    """The letters that are meant, each once, from the nodes that answer.

    `known` are those of an earlier time, by id, and `count` hears of each part that was read.
    `heard` gets the ids of the nodes that answered.
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
            if heard is not None:
                heard.add(node)
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
