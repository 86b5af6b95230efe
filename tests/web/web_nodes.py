"""Real nodes for the tests of the console; their clients wait for long, as on slow machines."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lab import RealCluster, RealServer
from tuque import Client

PATIENCE_S = 60.0


class WebNode(RealServer):
    """One node."""

    def client(self) -> Client:
        """A client of it."""
        return Client(self.url, timeout=PATIENCE_S)

    @contextmanager
    def standing_still(self) -> Iterator[None]:
        """Its process does nothing meanwhile."""
        self.signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.signal(signal.SIGCONT)


class WebCluster(RealCluster):
    """Nodes that know each other."""

    nodes: list[WebNode]  # type: ignore[assignment]  # what it makes is of that kind

    def __init__(self, directory: Path, count: int, *flags: str | int) -> None:
        super().__init__(directory, 0)
        for number in range(count):
            place = directory / f"node{number}"
            place.mkdir(parents=True)
            self.nodes.append(WebNode(place, *flags))

    def __getitem__(self, at: int) -> WebNode:
        return self.nodes[at]

    def __enter__(self) -> WebCluster:
        self.start()
        return self

    @property
    def url(self) -> str:
        """For clients: all nodes."""
        return "tuque://" + ",".join(f"127.0.0.1:{node.port}" for node in self.nodes)

    def length(self, queue: str) -> int:
        """QLEN of all nodes."""
        total = 0
        for node in self.nodes:
            with node.client() as client:
                total += client.qlen(queue)
        return total

    def summed(self, section: str, name: str) -> int:
        """A figure of INFO over all nodes."""
        total = 0
        for node in self.nodes:
            with node.client() as client:
                total += int(client.info(section)[name])
        return total
