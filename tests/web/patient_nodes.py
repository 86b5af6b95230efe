"""Nodes whose clients wait for long: a slow machine is no dead node."""

from __future__ import annotations

from pathlib import Path

from ports import BUS_OFFSET, free_port
from tuque import Client
from tuque.testing import TestCluster, TestNode

PATIENCE_S = 60.0


class PatientNode(TestNode):
    """At ports of its own, which are free when it starts again."""

    def __init__(self, directory: Path, *options: str) -> None:
        super().__init__(directory, *options)
        self.port = free_port()
        self.bus_port = self.port + BUS_OFFSET

    def client(self) -> Client:
        client = Client(self.url, timeout=PATIENCE_S)
        self._clients.append(client)
        return client


def patient_cluster(directory: Path, count: int, *options: str) -> TestCluster:
    """Not started yet."""
    made = TestCluster(directory, count)
    made.nodes = [PatientNode(node.directory, *options) for node in made.nodes]
    return made
