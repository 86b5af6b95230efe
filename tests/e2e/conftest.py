"""Real server processes for the tests of this folder."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lab import RealServer
from raw_resp import Wire

MakeServer = Callable[..., RealServer]


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


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    """One server with default options for a whole file; tests use queues of their own."""
    server = RealServer(tmp_path_factory.mktemp("shared")).start()
    yield server
    with Wire(server.port) as wire:
        assert wire("DEBUG", "CHECK") == b"OK"
    server.end()


@pytest.fixture
def wire(shared: RealServer) -> Iterator[Wire]:
    """A connection to the shared server."""
    with Wire(shared.port) as made:
        yield made


@pytest.fixture
def other(shared: RealServer) -> Iterator[Wire]:
    """A second one."""
    with Wire(shared.port) as made:
        yield made
