"""Real server processes for the tests of this folder."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lab import RealCluster, RealServer
from raw_resp import Wire

MakeServer = Callable[..., RealServer]
MakeVoters = Callable[..., RealCluster]


@pytest.fixture
def make_server(tmp_path: Path) -> Iterator[MakeServer]:
    """Start servers with the given flags, each in a directory of its own."""
    made: list[RealServer] = []

    def make(*flags: str | int) -> RealServer:
        directory = tmp_path / f"node{len(made)}"
        directory.mkdir()
        server = RealServer(directory, *flags)
        made.append(server)
        return server.start()

    yield make
    for server in made:
        server.end()


@pytest.fixture
def make_voters(tmp_path: Path) -> Iterator[MakeVoters]:
    """Start three nodes that vote, with a tube `t` of type tasks, for a test that hurts them."""
    made: list[RealCluster] = []

    def make(timeout_ms: int, *flags: str | int) -> RealCluster:
        journal = ("--appendonly", "yes", "--cluster-node-timeout", timeout_ms)
        nodes = RealCluster(tmp_path / f"voters{len(made)}", 3, *journal, *flags, voters=3)
        made.append(nodes)
        nodes.start().create("t")
        return nodes

    yield make
    for one in made:
        one.end()


@pytest.fixture
def wire(node: RealServer) -> Iterator[Wire]:
    """A connection to the node that all share."""
    with Wire(node.port) as made:
        yield made


@pytest.fixture
def other(node: RealServer) -> Iterator[Wire]:
    """A second one."""
    with Wire(node.port) as made:
        yield made
