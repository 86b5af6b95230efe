"""Lists of queues as QLIST gives them, page by page (SPEC O10), merged over the nodes.

Decides how many rows are read, and how often: a node with many queues walks over all their names
for each list. Lists are read again only when that takes less than SHARE of its time.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Final, TypeAlias

import msgspec

from tuque.aio import Client
from tuque.client.commands.operate import QueueOrder, QueuePage, QueueRow
from tuque.web.read.figures import Queue, queue_here
from tuque.web.read.nodes import Nodes

FEW: Final = 1_000  # queues that are all read each time: the most rows of a QLIST
FIRST: Final = 200  # read of more
SHARE: Final = 0.004  # of a node's time that lists of many queues may take
LOOKED_S: Final = 6.0  # a list is read again while a page asked for it in that time
LISTS_MAX: Final = 50  # kept
Rows: TypeAlias = dict[str, QueueRow]


class Wish(msgspec.Struct, frozen=True):
    """Which queues, in which order, and how many of them: at most FEW."""

    sort: QueueOrder = "oldest"
    is_down: bool = True
    match: str | None = None
    type: str | None = None
    most: int = FIRST


GRAVES: Final = Wish("ready", True, type="dead", most=FEW)
MOST_DEAD: Final = Wish("dead", True, most=FEW)


class Listing(msgspec.Struct):
    """The first queues of the cluster in an order; `total`: how many are meant, at least."""

    queues: dict[str, Queue]
    total: int
    wanted_s: float = 0.0


class Thrift:
    """When lists may be read again, so that they take no more than SHARE of a node's time."""

    def __init__(self) -> None:
        self._free_s = 0.0

    def may(self) -> bool:
        return time.monotonic() >= self._free_s

    def spent(self, took_s: float) -> None:
        """A node was asked for so long."""
        self._free_s = max(self._free_s, time.monotonic()) + took_s / SHARE


class Lists:
    """The lists that pages look at, kept until they may be read again."""

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes
        self._kept: dict[Wish, Listing] = {}
        self.thrift = Thrift()

    async def of(self, wish: Wish) -> Listing:
        """A list: as it was read last, or read now."""
        found = self._kept.get(wish)
        if found is None:
            begun_s = time.monotonic()
            found = await listed(self._nodes, wish)
            self.thrift.spent(time.monotonic() - begun_s)
            while len(self._kept) >= LISTS_MAX:
                del self._kept[next(iter(self._kept))]
            self._kept[wish] = found
        found.wanted_s = time.monotonic()
        return found

    async def renew(self) -> None:
        """Reads the lists again that a page looked at lately, and forgets the others."""
        now_s = time.monotonic()
        for wish, old in list(self._kept.items()):
            if now_s - old.wanted_s > LOOKED_S:
                del self._kept[wish]
                continue
            found = await listed(self._nodes, wish)
            found.wanted_s = old.wanted_s
            self._kept[wish] = found

    async def named(self, names: Iterable[str]) -> dict[str, Queue]:
        """These queues, as they are now; without those that no node knows."""
        wanted = list(names)

        async def question(client: Client) -> Rows:
            return await rows_named(client, wanted)

        return merged(await self._nodes.ask(question))


async def listed(nodes: Nodes, wish: Wish) -> Listing:
    """One list, from all nodes that answer."""

    async def question(client: Client) -> QueuePage:
        return await page_of(client, wish)

    pages = await nodes.ask(question)
    total = max((page.total for page in pages.values()), default=0)
    rows = await filled(nodes, {id: by_name(page.rows) for id, page in pages.items()}, pages)
    return Listing(merged(rows), total)


def has_letters(row: QueueRow) -> bool:
    """Whether it is a tube that keeps dead letters of its own."""
    return row.type not in ("queue", "dead") and row.dead > 0


async def page_of(client: Client, wish: Wish) -> QueuePage:
    """What one node has of a list."""
    return await client.qlist(
        match=wish.match, type=wish.type, sort=wish.sort, desc=wish.is_down, count=wish.most
    )


async def filled(
    nodes: Nodes, rows: dict[str, Rows], pages: dict[str, QueuePage]
) -> dict[str, Rows]:
    """The rows of each node, with those of queues that stand further down with it."""
    names = {name for some in rows.values() for name in some}

    async def rest(client: Client, id: str) -> Rows:
        had = rows[id]
        if len(rows) < 2 or pages[id].total <= len(had):
            return had
        return had | await rows_named(client, [name for name in names if name not in had])

    found: dict[str, Rows] = {}
    for id in rows:
        node = nodes.known.get(id)
        if node is None:
            continue

        async def question(client: Client, id: str = id) -> Rows:
            return await rest(client, id)

        found |= await nodes.ask(question, [node])
    return found


async def rows_named(client: Client, names: list[str]) -> Rows:
    """The rows of these queues at one node."""
    found: Rows = {}
    for at in range(0, len(names), FEW):
        page = await client.qlist(names=names[at : at + FEW], count=FEW)
        found |= by_name(page.rows)
    return found


def by_name(rows: Iterable[QueueRow]) -> Rows:
    return {row.name: row for row in rows}


def merged(rows: dict[str, Rows]) -> dict[str, Queue]:
    """The queues of the cluster out of those of its nodes, by their ids."""
    queues: dict[str, Queue] = {}
    for id, some in rows.items():
        for name, row in some.items():
            queues.setdefault(name, Queue(name, {})).here[id] = queue_here(row)
    return queues
