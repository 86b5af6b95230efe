"""The nodes before which the console is tested: those of a world, and for browsers real ones."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar, cast

from in_world import WorldLoop, within
from lab import RealCluster, RealServer
from tuque import Client
from tuque.testing.links import HereClient
from world import World
from world_clients import BrokerAt, ClientAt, DeskAt, url_of

PATIENCE_S = 60.0
AGES_MS = 100_000_000
T = TypeVar("T")


class NodeClient(ClientAt):
    """The shipped client, which knows one node at first: to others it goes if that says so."""

    def __init__(self, world: World, i: int) -> None:
        self.desks = [DeskAt(BrokerAt(world, k)) for k in world.numbers()]
        HereClient.__init__(self, self.desks[i], url_of(i), discover=True)


class WebNode:
    """A node of a world."""

    def __init__(self, world: World, i: int) -> None:
        self.world = world
        self.i = i

    @property
    def id(self) -> str:
        """Its id."""
        return str(self.world.machines[self.i].node_id, "ascii")

    def client(self) -> Client:
        """The shipped client of it."""
        return NodeClient(self.world, self.i)

    def kill(self) -> None:
        """As a crash does; without a journal nothing of it stays."""
        self.world.kill(self.i)

    def start(self) -> None:
        """Again."""
        self.world.start(self.i)

    @contextmanager
    def standing_still(self) -> Iterator[None]:
        """Its process does nothing meanwhile."""
        machine = self.world.machines[self.i]
        shell = self.world.node(self.i).shell
        self.world.stall(self.i, AGES_MS)
        try:
            yield
        finally:
            machine.go_on(shell)
            self.world.settle()


class WebCluster:
    """Nodes that know each other; their time is that of the test."""

    def __init__(self, count: int, *, events: bool = False) -> None:
        self.world = World(count, journal="off", events=events)
        self.nodes = [WebNode(self.world, i) for i in range(count)]

    def __getitem__(self, at: int) -> WebNode:
        return self.nodes[at]

    @property
    def url(self) -> str:
        """For clients: all nodes."""
        return url_of(*range(len(self.nodes)))

    def until(self, fact: Callable[[], T], what: str = "") -> T:
        """Lets time pass until that is so."""
        found: Any = self.world.until(fact)
        return cast("T", found)

    def run(self, what: Coroutine[Any, Any, T]) -> T:
        """Runs something that asks the nodes."""
        with within(self.world), asyncio.Runner(loop_factory=lambda: WorldLoop(self.world)) as one:
            return one.run(what)

    def length(self, queue: str) -> int:
        """QLEN of all nodes."""
        return length(self.nodes, queue)

    def summed(self, section: str, name: str) -> int:
        """A figure of INFO over all nodes."""
        return summed(self.nodes, section, name)


class RealNode(RealServer):
    """A process, whose clients wait for long: a slow machine is no dead node."""

    def client(self) -> Client:
        """A client of it."""
        return Client(self.url, timeout=PATIENCE_S)


class RealNodes(RealCluster):
    """Processes that know each other, for browsers."""

    nodes: list[RealNode]  # type: ignore[assignment]  # all are of that kind

    def __init__(self, directory: Path, count: int, *flags: str | int) -> None:
        super().__init__(directory, 0)
        for number in range(count):
            place = directory / f"node{number}"
            place.mkdir(parents=True)
            self.nodes.append(RealNode(place, *flags))

    def __getitem__(self, at: int) -> RealNode:
        return self.nodes[at]

    def __enter__(self) -> RealNodes:
        self.start()
        return self

    @property
    def url(self) -> str:
        """For clients: all nodes."""
        return "tuque://" + ",".join(f"127.0.0.1:{node.port}" for node in self.nodes)

    def length(self, queue: str) -> int:
        """QLEN of all nodes."""
        return length(self.nodes, queue)

    def summed(self, section: str, name: str) -> int:
        """A figure of INFO over all nodes."""
        return summed(self.nodes, section, name)


def length(nodes: list[Any], queue: str) -> int:
    """QLEN of all nodes."""
    total = 0
    for node in nodes:
        with node.client() as client:
            total += client.qlen(queue)
    return total


def summed(nodes: list[Any], section: str, name: str) -> int:
    """A figure of INFO over all nodes."""
    total = 0
    for node in nodes:
        with node.client() as client:
            total += int(client.info(section)[name])
    return total
