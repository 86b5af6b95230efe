"""Several real nodes on free ports of this machine that have met each other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from raw_resp import Wire, wait_for
from real_server import RealServer


class RealCluster:
    """`count` nodes, each in a directory of its own; `start` makes them one cluster."""

    def __init__(self, directory: Path, count: int, *flags: str | int) -> None:
        self.nodes: list[RealServer] = []
        for number in range(count):
            place = directory / f"node{number}"
            place.mkdir(parents=True)
            self.nodes.append(RealServer(place, *flags))

    def start(self) -> RealCluster:
        """Start all nodes and make them meet; at the end every node reaches all others."""
        for node in self.nodes:
            node.start()
        self.meet()
        self.wait_formed()
        return self

    def meet(self) -> None:
        """Tell the first node about the others."""
        for node in self.nodes[1:]:
            reply = self.wire(0)("CLUSTER", "MEET", "127.0.0.1", node.port, node.bus_port)
            assert reply == b"OK", reply

    def wait_formed(self) -> None:
        """Wait until each running node reaches all other running ones."""
        alive = [node for node in self.nodes if is_running(node)]
        for node in alive:
            wire = node.wire()
            wait_for(
                lambda wire=wire: reachable(wire) == len(alive) - 1,
                lambda node=node, wire=wire: told(node, wire),
            )
            wire.close()

    def wire(self, number: int) -> Wire:
        """A new connection to a node."""
        return self.nodes[number].wire()

    def end(self) -> None:
        """Stop every node that runs."""
        for node in self.nodes:
            node.end()


def is_running(node: RealServer) -> bool:
    """Whether the node's process is alive."""
    return node.process is not None and node.process.poll() is None


def cluster_info(wire: Wire) -> dict[str, str]:
    """CLUSTER INFO as a dict."""
    return dict(line.split(":", 1) for line in wire("CLUSTER", "INFO").decode().splitlines())


def reachable(wire: Wire) -> int:
    """The number of other nodes that may be given copies."""
    return int(cluster_info(wire)["cluster_reachable_nodes"])


def info(wire: Wire, section: str) -> dict[str, str]:
    """A section of INFO as a dict."""
    lines = wire("INFO", section).decode().split("\r\n")
    return dict(line.split(":", 1) for line in lines if ":" in line)


def told(node: RealServer, wire: Wire) -> str:
    """The node's view of the cluster, for the message of a failed test."""
    nodes: Any = wire("CLUSTER", "NODES")
    return f"the cluster did not form:\n{nodes.decode()}\n{node.log()}"
