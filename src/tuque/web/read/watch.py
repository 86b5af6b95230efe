"""Asks all nodes at intervals, and keeps what they said last.

Decides how often: each 2 s while somebody looks, else each 5 s for the charts.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from typing import Final, TypeAlias

from tuque.aio import Client
from tuque.client.api import ClusterNode
from tuque.client.url import Settings
from tuque.errors import Error
from tuque.web.read.figures import NodeFacts, QueueHere, View, merged, queue_here
from tuque.web.read.history import STEP_S, Points, by_node
from tuque.web.read.history import merged as summed
from tuque.web.read.nodes import Nodes

log: Final = logging.getLogger("tuque.web")

LOOKED_AT_S: Final = 2.0
QUEUES_MAX: Final = 2_000  # whose figures are asked for, of each node
CHARTED: Final = 20  # queues whose last hour is kept for tables


Facts: TypeAlias = tuple[float, dict[str, str | int], list[ClusterNode], dict[str, QueueHere], int]


class Watch:
    """The latest figures of all nodes."""

    def __init__(self, settings: Settings) -> None:
        self.nodes = Nodes(settings)
        self.points: dict[str, Points] = {}  # of each node
        self.queue_points: dict[str, Points] = {}  # of the cluster, of the busiest queues
        self.facts: dict[str, NodeFacts] = {}
        self.lookers = 0
        self.took_s = 0.0
        self._looked_back_s = 0.0
        self._wake = asyncio.Event()
        self.turned = asyncio.Condition()

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            begun_s = time.monotonic()
            try:
                await self.turn()
            except Error:
                log.exception("a look at the nodes failed")
            self.took_s = time.monotonic() - begun_s
            wait_s = (LOOKED_AT_S if self.lookers else STEP_S) - self.took_s
            self._wake.clear()
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
        """One look at all nodes."""
        await self.nodes.look()
        found = await self.nodes.ask(facts_of, is_beat=True)
        now_s = time.time()
        for id, facts in found.items():
            node = self.nodes.known[id]
            self.facts[id] = NodeFacts(id, node.place, now_s, *facts)
            self.nodes.learn(facts[2])
        await self._forget({one.id for facts in found.values() for one in facts[2]})
        await self._look_back()
        async with self.turned:
            self.turned.notify_all()

    async def _look_back(self) -> None:
        """Asks for the last hour, when a new point is due."""
        now_s = time.time()
        if now_s - self._looked_back_s < STEP_S - 0.5:
            return
        self._looked_back_s = now_s
        self.points = await by_node(self.nodes)
        busy = sorted(self.view().work, key=lambda one: (-one.oldest_s, -one.ready))
        self.queue_points = {
            one.name: summed((await by_node(self.nodes, one.name)).values())
            for one in busy[:CHARTED]
        }

    @property
    def history(self) -> Points:
        """The last hour of the cluster."""
        return summed(self.points.values())

    async def history_of(self, queue: str) -> Points:
        """The last hour of a queue."""
        found = self.queue_points.get(queue)
        return found if found else summed((await by_node(self.nodes, queue)).values())

    async def _forget(self, listed: set[str]) -> None:
        """Members that no node lists any more."""
        if not listed:
            return
        gone = [id for id in self.nodes.known if id not in listed]
        await self.nodes.forget(gone)
        for id in gone:
            self.facts.pop(id, None)

    def view(self) -> View:
        """What the nodes said last."""
        now_s = time.time()
        up = {node.id for node in self.nodes.up()}
        facts = sorted(self.facts.values(), key=lambda one: one.place)
        old = frozenset(self.nodes.known) - up
        return merged(now_s, facts, old)

    async def close(self) -> None:
        await self.nodes.close()


async def facts_of(client: Client) -> Facts:
    """Everything that the pages need of one node."""
    pipe = client.pipeline()
    pipe.time()
    pipe.info("all")
    pipe.cluster_nodes()
    clock_s, info, members = await pipe.execute()
    names: list[str] = []
    left_out = 0
    async for name in client.qscan(count=1000):
        if len(names) < QUEUES_MAX:
            names.append(name)
        else:
            left_out += 1
    queues: dict[str, QueueHere] = {}
    for at in range(0, len(names), 200):
        pipe = client.pipeline()
        for name in names[at : at + 200]:
            pipe.qstat(name)
        for stat in await pipe.execute(raise_on_error=False):
            if stat is not None and not isinstance(stat, Error):  # a tube at home elsewhere
                queues[stat["name"]] = queue_here(stat)
    return clock_s, info, members, queues, left_out
