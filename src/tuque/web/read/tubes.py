"""Tubes, their schedules and keys, and leases as their nodes show them, a page at a time.

Decides how much a page may ask: the names of all tubes in one command a node, now and then if they
are many, and the figures only of those that are shown.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Set
from fnmatch import fnmatchcase
from typing import Final, Generic, TypeVar

import msgspec

from tuque.aio import Client
from tuque.client.commands.calls import Call
from tuque.client.commands.leases import LeaseInfo
from tuque.client.commands.operate import KeyRow, limits_page
from tuque.client.commands.schedules import Schedule, schedule_page
from tuque.client.commands.tubes import HomeInfo, TubeCopy, TubeInfo
from tuque.errors import Error
from tuque.web.read.lists import FEW, Lists, Thrift, Wish
from tuque.web.read.nodes import Node, Nodes
from tuque.web.read.rows import PAGE

T = TypeVar("T")
STAYED_S: Final = 10.0  # between two looks at which tubes fail over
OF_TUBE: Final = 1_000  # schedules, or groups of jobs, of a tube that are read
KEYS: Final = 1_000  # keys of a tube that are read: one reply of LIMITS
KEPT: Final = 50  # tubes whose keys are kept
KEYED: Final = "tasks"  # the type of tubes that have schedules and keys
PLANS: Final = Wish("name", False, type=KEYED, most=FEW)


class TubeRow(msgspec.Struct, frozen=True):
    """A tube at its home: tasks by status, and the copies elsewhere."""

    info: TubeInfo
    copies: tuple[TubeCopy, ...]


class LeaseRow(msgspec.Struct, frozen=True):
    """A group, and the node that has it."""

    node: str
    info: LeaseInfo


class Part(msgspec.Struct, Generic[T], frozen=True):
    """The rows from the place `start` of `total` that fit, out of `known`."""

    rows: list[T]
    start: int
    total: int
    known: int


class ScheduleRow(msgspec.Struct, frozen=True):
    """A schedule, and the leader of its tube."""

    node: str
    plan: Schedule

    @property
    def name(self) -> str:
        """Its queue and its name, as filters see it."""
        return f"{self.plan.queue} {self.plan.name}"


class Schedules:
    """The schedules of all tubes, as they were read last; each at the leader of its tube."""

    def __init__(self, nodes: Nodes, lists: Lists) -> None:
        self._nodes = nodes
        self._lists = lists
        self._rows: list[ScheduleRow] = []
        self._thrift = Thrift()
        self._read_at: frozenset[str] = frozenset()
        self.is_all = True  # no tube has more than OF_TUBE, and no more than FEW tubes have some

    def expire(self) -> None:
        """They have changed: the next page reads them anew."""
        self._thrift = Thrift()

    async def of(self, queue: str) -> list[ScheduleRow]:
        """Those of one queue, the next one first."""
        return [row for row in await self.every() if row.plan.queue == queue]

    async def every(self) -> list[ScheduleRow]:
        """[O14] All that are known, the next one first (O14.23)."""
        up = frozenset(node.id for node in self._nodes.up())
        if self._thrift.may() or up != self._read_at:
            begun_s = time.monotonic()
            listing = await self._lists.of(PLANS)
            names, is_all = list(listing.queues), len(listing.queues) >= listing.total

            async def question(client: Client) -> tuple[list[Schedule], bool]:
                return await first_of(client, names, schedule_page)

            found = await self._nodes.ask(question) if names else {}
            rows = [ScheduleRow(id, one) for id, (some, _) in found.items() for one in some]
            self._rows = sorted(rows, key=soon)
            self.is_all = is_all and all(whole for _, whole in found.values())
            self._read_at = up
            self._thrift.spent(time.monotonic() - begun_s)
        return self._rows


def soon(row: ScheduleRow) -> tuple[bool, int, str]:
    """The order of schedules: those with a next instant first."""
    return not row.plan.next_ms, row.plan.next_ms, row.name


async def first_of(
    client: Client, names: list[str], page: Callable[[str, str], Call[tuple[str, list[T]]]]
) -> tuple[list[T], bool]:
    """What a node leads of these tubes, OF_TUBE of each; and whether that is all of it.

    `page` is one step of the list of a tube, from a cursor on.
    """
    found: list[T] = []
    left = [(name, "0") for name in names]
    for _ in range(OF_TUBE // 100):
        pages = await client.run_all([page(name, cursor) for name, cursor in left])
        replies = zip(left, pages, strict=True)
        told = [(name, page) for (name, _), page in replies if isinstance(page, tuple)]
        found += [one for _, (_, rows) in told for one in rows]
        left = [(name, cursor) for name, (cursor, _) in told if cursor != "0"]
        if not left:
            return found, True
    return found, False


class KeyRows(msgspec.Struct, frozen=True):
    """Keys that tasks of a tube wait for, and its groups; `is_all`: not only the first KEYS."""

    rows: list[KeyRow] = []
    is_all: bool = True


class Keys:
    """The keys of tubes that pages look at, as they were read last."""

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes
        self._kept: dict[str, KeyRows] = {}
        self._thrift: dict[str, Thrift] = {}

    async def of(self, tube: str) -> KeyRows:
        """[O14] Those of one tube, from its leader (O14.26)."""
        thrift = self._thrift.setdefault(tube, Thrift())
        if tube not in self._kept or thrift.may():
            begun_s = time.monotonic()

            async def question(client: Client) -> tuple[str, list[KeyRow]]:
                return await client.run(limits_page(tube, "0", count=KEYS))

            found = await self._nodes.ask(question)  # other nodes name the leader: an error
            pages = [KeyRows(rows, cursor == "0") for cursor, rows in found.values()]
            self._kept[tube] = pages[0] if pages else KeyRows()
            thrift.spent(time.monotonic() - begun_s)
            while len(self._kept) > KEPT:
                oldest = next(iter(self._kept))
                del self._kept[oldest], self._thrift[oldest]
        return self._kept[tube]


class Tubes:
    """The names of all tubes, as they were read last."""

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes
        self._names: list[str] = []
        self._thrift = Thrift()
        self._looking = Thrift()
        self._staying = 0
        self._stayed_s = -STAYED_S

    async def page(self, wanted: str, start: int) -> Part[TubeRow]:
        """The tubes from a place on, by their names, whose names have all words of a filter."""
        names = await self._every()
        meant = [name for name in names if fits(name, wanted)]
        start = max(0, min(start, len(meant) - 1))
        rows = await tubes_named(self._nodes, meant[start : start + PAGE])
        return Part(rows, start, len(meant), len(names))

    async def staying(self) -> int:
        """[O14] How many tubes do not fail over, of the first FEW (O14.19); read now and then."""
        now_s = time.monotonic()
        if now_s - self._stayed_s > STAYED_S and self._looking.may():
            self._stayed_s = now_s
            names, up = (await self._every())[:FEW], self._nodes.up()
            infos = await infos_at(up[0], names) if up else []
            self._staying = sum(not one.failover for one in infos)
            self._looking.spent(time.monotonic() - now_s)
        return self._staying

    async def _every(self) -> list[str]:
        if len(self._names) > FEW and not self._thrift.may():
            return self._names

        async def names(client: Client) -> list[str]:
            return await client.tube_list()

        begun_s = time.monotonic()
        listed = await self._nodes.ask(names)
        if listed:
            self._names = sorted({name for found in listed.values() for name in found})
        self._thrift.spent(time.monotonic() - begun_s)
        return self._names


def fits(name: str, wanted: str) -> bool:
    """Whether a name has all words of a filter: parts of it, or globs."""
    return all(
        fnmatchcase(name, word) if "*" in word else word.lower() in name.lower()
        for word in wanted.split()
    )


async def tubes_named(nodes: Nodes, names: list[str]) -> list[TubeRow]:
    """These tubes as their homes say, or other nodes if a home is silent; in the same order.

    A name costs at most two commands at each node that does not know it, and two at its home.
    """
    found: dict[str, TubeRow] = {}
    homes: dict[str, list[str]] = {}
    for node in nodes.up():  # the first one knows all of them, but for what is new
        missing = [name for name in names if name not in found]
        here = await rows_at(node, missing) if missing else {}
        found |= here
        for name, row in here.items():
            if row.info.home != node.id:
                homes.setdefault(row.info.home, []).append(name)
    asked = [node for node in nodes.up() if node.id in homes]
    for at_home in await asyncio.gather(*(rows_at(node, homes[node.id]) for node in asked)):
        found |= at_home
    return [found[name] for name in names if name in found]


async def rows_at(node: Node, names: Iterable[str]) -> dict[str, TubeRow]:
    """What a node says of these tubes; without those that it does not know."""
    asked = list(names)
    pipe = node.client.pipeline()
    for name in asked:
        pipe.tube(name).info()
        pipe.tube(name).home()
    try:
        replies = await pipe.execute(raise_on_error=False)
    except Error:
        return {}
    pairs = zip(asked, replies[::2], replies[1::2], strict=True)
    return {
        name: TubeRow(info, home.copies)
        for name, info, home in pairs
        if isinstance(info, TubeInfo) and isinstance(home, HomeInfo)
    }


async def infos_at(node: Node, names: Iterable[str]) -> list[TubeInfo]:
    """What a node says of these tubes; without those that it does not know."""
    pipe = node.client.pipeline()
    for name in names:
        pipe.tube(name).info()
    try:
        replies = await pipe.execute(raise_on_error=False)
    except Error:
        return []
    return [one for one in replies if isinstance(one, TubeInfo)]


async def homes_away(nodes: Nodes, names: Iterable[str], old: Set[str]) -> dict[str, TubeInfo]:
    """Those of these tubes whose home is one of the silent nodes; as other nodes know them."""
    wanted = list(names)
    rows = await tubes_named(nodes, wanted) if old and wanted else []
    return {row.info.name: row.info for row in rows if row.info.home in old}


async def tube_of(nodes: Nodes, name: str) -> TubeRow | None:
    """One tube; None if no node in reach knows it."""
    rows = await tubes_named(nodes, [name])
    return rows[0] if rows else None


async def leases_of(nodes: Nodes, wanted: str, start: int) -> Part[LeaseRow]:
    """The groups of all nodes from a place on, by their names; a node has at most 1,000."""

    async def names(client: Client) -> list[str]:
        return await client.lease_list()

    listed = await nodes.ask(names)
    every = sorted((group, id) for id, groups in listed.items() for group in groups)
    meant = [place for place in every if fits(place[0], wanted)]
    start = max(0, min(start, len(meant) - 1))
    shown = meant[start : start + PAGE]
    found: dict[tuple[str, str], LeaseRow] = {}
    for id in sorted({id for _, id in shown}):
        node = nodes.known.get(id)
        if node is not None:
            groups = [group for group, at in shown if at == id]
            found |= {(row.info.group, id): row for row in await leases_at(node, groups)}
    rows = [found[place] for place in shown if place in found]
    return Part(rows, start, len(meant), len(every))


async def leases_at(node: Node, groups: list[str]) -> list[LeaseRow]:
    """These groups of a node; without those that it does not have."""
    pipe = node.client.pipeline()
    for group in groups:
        pipe.lease_info(group)
    try:
        replies = await pipe.execute(raise_on_error=False)
    except Error:
        return []
    return [LeaseRow(node.id, one) for one in replies if isinstance(one, LeaseInfo)]
