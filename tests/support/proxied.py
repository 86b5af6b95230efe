"""Real nodes behind proxies of their buses, whose links can be cut and frozen one by one."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable
from pathlib import Path

from lab import RealServer
from tcp_proxy import BusProxy

TIMEOUT_MS = 1_000


class ProxiedNodes:
    """`count` nodes, each in a directory of its own, not started yet."""

    def __init__(self, directory: Path, count: int, *flags: str | int) -> None:
        self.proxy = BusProxy()
        self.nodes: list[RealServer] = []
        self.openers: list[tuple[int, Callable[[str, int], None]]] = []
        self.ids: list[str] = []
        for number in range(count):
            place = directory / f"node{number}"
            place.mkdir(parents=True)
            port, opener = self.proxy.listen()
            announce = ("--cluster-announce-bus-port", port)
            timing = ("--cluster-node-timeout", TIMEOUT_MS)
            self.nodes.append(RealServer(place, *announce, *timing, *flags))
            self.openers.append((port, opener))

    def meet(self) -> None:
        """Start all nodes and tell the first one about the others; does not wait for links."""
        for node, (_, opener) in zip(self.nodes, self.openers, strict=True):
            node.start()
            wire = node.wire()
            self.ids.append(wire("CLUSTER", "MYID").decode())
            opener(self.ids[-1], node.bus_port)
        first = self.nodes[0].wire()
        for node, (port, _) in list(zip(self.nodes, self.openers, strict=True))[1:]:
            assert first("CLUSTER", "MEET", "127.0.0.1", node.port, port) == b"OK"

    def end_nodes(self) -> None:
        """End every node, also one that stands still, and the proxy."""
        for node in self.nodes:
            with contextlib.suppress(OSError, AssertionError):
                node.signal(signal.SIGCONT)
        for node in self.nodes:
            node.end()
        self.proxy.end()
