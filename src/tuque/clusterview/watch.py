"""Asks all nodes at intervals, and keeps what they said last.

Decides how often: each 2 s while somebody looks, else each 5 s for the charts.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from typing import Final, TypeAlias

import msgspec

from tuque.aio import Client
from tuque.client.api import ClusterNode
from tuque.client.commands.operate import QueuePage
from tuque.client.url import Settings
from tuque.clusterview.figures import NodeFacts, Queue, View, merged
from tuque.clusterview.history import STEP_S, Points, Rings
from tuque.clusterview.history import merged as summed
from tuque.clusterview.nodes import Node, Nodes
from tuque.clusterview.queues import (
    FEW,
    FIRST,
    GRAVES,
    Behind,
    Lists,
    Rows,
    Schedules,
    TubeKeys,
    Tubes,
    Wish,
    filled,
    page_of,
)
from tuque.clusterview.work import Deploys, Groups, Mark, Topics

log: Final = logging.getLogger("tuque.web")

LOOKED_AT_S: Final = 2.0
CHARTED: Final = 20  # queues whose last hour is kept for tables
BEHIND: Final = Wish("oldest", True)

Words: TypeAlias = tuple[float, dict[str, str | int], list[ClusterNode]]


class Watch:
    """The latest figures of all nodes."""

    def __init__(self, settings: Settings) -> None:
        self.nodes = Nodes(settings)
        self.lists = Lists(self.nodes)
        self.tubes = Tubes(self.nodes)
        self.keys = TubeKeys(self.nodes)
        self.schedules = Schedules(self.nodes, self.lists)
        self.groups = Groups(self.nodes, self.lists)
        self.topics = Topics(self.nodes)
        self.rings = Rings(self.nodes)
        self.points: dict[str, Points] = {}  # of each node
        self.queue_points: dict[str, Points] = {}  # of the cluster, of the busiest queues
        self.waits = Points()  # buckets of how long jobs of the cluster waited, and ran
        self.works = Points()
        self.deploys = Deploys()
        self.marks: list[Mark] = []  # of these
        self.facts: dict[str, NodeFacts] = {}
        self.behind = Behind()
        self.lookers = 0
        self.took_s = 0.0
        self._queues: dict[str, tuple[int, Rows]] = {}  # of each node
        self._looked_back_s = 0.0
        self._wake = asyncio.Event()
        self.nodes.when_back = self.hurry
        self.turned = asyncio.Condition()

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            begun_s = time.monotonic()
            self._wake.clear()
            try:
                await self.turn()
            except Exception:  # whatever it was: without looks all pages would stand still
                log.exception("a look at the nodes failed")
            self.took_s = time.monotonic() - begun_s
            wait_s = (LOOKED_AT_S if self.lookers else STEP_S) - self.took_s
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), max(0.1, wait_s))

    def hurry(self) -> None:
        """Asks again at once."""
        self._wake.set()

    async def fresh(self) -> View:
        """The view after one more look that began now."""
        await self.turn()
        return self.view()

    async def turn(self) -> None:
        """One look at all nodes; pages are made again after it, also if it failed."""
        try:
            await self._ask_all()
        finally:
            async with self.turned:
                self.turned.notify_all()

    async def _ask_all(self) -> None:
        await self.nodes.look()
        found = await self.nodes.ask(words_of, is_beat=True)
        now_s = time.time()
        for words in found.values():
            self.nodes.learn(words[2])
        if self.lists.thrift.may() or not found.keys() <= self._queues.keys():
            await self._list()
        for id, words in found.items():
            count, queues = self._queues.get(id, (0, {}))
            node = self.nodes.known.get(id)  # None: forgotten meanwhile
            if node is not None:
                self.facts[id] = NodeFacts(id, node.place, now_s, *words, queues, count)
        await self._forget({one.id for words in found.values() for one in words[2]})
        if found:
            self.behind.look(self.view(), self.queue_points)
        await self._look_back()

    async def _list(self) -> None:
        """Asks for the queues: all of a few, else those most behind, and those of dead letters."""
        begun_s = time.monotonic()
        is_few = all(count <= FEW for count, _ in self._queues.values())
        wish = msgspec.structs.replace(BEHIND, most=FEW if is_few else FIRST)

        async def question(client: Client) -> tuple[QueuePage, QueuePage | None]:
            page = await page_of(client, wish)
            is_all = page.total <= len(page.rows)
            return page, None if is_all else await page_of(client, GRAVES)

        found = await self.nodes.ask(question)
        pages = {id: page for id, (page, _) in found.items()}
        rows: dict[str, Rows] = {}
        for id, (page, graves) in found.items():
            every = [*page.rows, *(graves.rows if graves is not None else ())]
            rows[id] = {row.name: row for row in every}
        for id, some in (await filled(self.nodes, rows, pages)).items():
            self._queues[id] = (pages[id].total, some)
        await self.lists.renew()
        if any(count > FEW for count, _ in self._queues.values()):
            self.lists.thrift.spent(time.monotonic() - begun_s)

    async def _look_back(self) -> None:
        """Asks for the points since the last time, when a new one is due."""
        now_s = time.time()
        if now_s - self._looked_back_s < STEP_S - 0.5:
            return
        self._looked_back_s = now_s
        names = [one.name for one in sorted(self.view().work, key=by_need)[:CHARTED]]
        marks = await self.deploys.marks(self.nodes)
        points = await self.rings.of(None)
        waits = summed((await self.rings.of(None, "wait")).values())
        works = summed((await self.rings.of(None, "work")).values())
        of_queues = {name: await self.rings.of_queue(name) for name in names}
        # all at once: a page that is made meanwhile must not mix two looks
        self.marks, self.points, self.queue_points = marks, points, of_queues
        self.waits, self.works = waits, works
        self.rings.forget()

    @property
    def history(self) -> Points:
        """The last hour of the cluster."""
        return summed(self.points.values())

    async def history_of(self, queue: str) -> Points:
        """The last hour of a queue, as of now; all pages show that from then on."""
        found = await self.rings.of_queue(queue)
        if queue in self.queue_points:
            self.queue_points[queue] = found
        return found

    async def _forget(self, listed: set[str]) -> None:
        """Members that no node lists any more."""
        if not listed:
            return
        gone = [id for id in self.nodes.known if id not in listed]
        await self.nodes.forget(gone)
        for id in gone:
            self.facts.pop(id, None)
            self._queues.pop(id, None)

    def view(self) -> View:
        """[O14] What the nodes said last; what one said before it was silent is old (O14.11)."""
        now_s = time.time()
        up = {node.id for node in self.nodes.up() if self._is_fresh(node)}
        facts = sorted(self.facts.values(), key=lambda one: one.place)
        old = frozenset(self.nodes.known) - up
        return merged(now_s, facts, old)

    def _is_fresh(self, node: Node) -> bool:
        """Whether nothing is known of a node, or that which it said since it came back."""
        facts = self.facts.get(node.id)
        return facts is None or facts.at_s >= node.back_s

    async def close(self) -> None:
        await self.nodes.close()


def by_need(queue: Queue) -> tuple[bool, float, int]:
    """Which queues are charted first: old ones, after these those that nothing happens with."""
    is_still = not (queue.came_rate or queue.done_rate or queue.work)
    return is_still, -queue.oldest_s, -queue.ready


async def words_of(client: Client) -> Words:
    """What a node says of itself: its clock, INFO, and the members that it knows."""
    pipe = client.pipeline()
    pipe.time()
    pipe.info("all")
    pipe.cluster_nodes()
    clock_s, info, members = await pipe.execute()
    return clock_s, info, members
