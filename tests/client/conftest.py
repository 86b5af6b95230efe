"""Fixtures of the client's tests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from client_nodes import Connect, Face, Loop, ScriptedNode, Threads, hello_of

from lab import RealServer


@pytest.fixture(params=[Threads, Loop], ids=["sync", "aio"])
def connect(request: pytest.FixtureRequest) -> Iterator[Connect]:
    """Makes clients of one face; they are closed at the end."""
    made: list[Face] = []

    def make(url: str | None = None, **options: Any) -> Face:
        face: Face = request.param(url, **options)
        made.append(face)
        return face

    yield make
    for face in made:
        face.close()


@pytest.fixture
def node() -> Iterator[ScriptedNode]:
    scripted = ScriptedNode()
    yield scripted
    scripted.stop()


@pytest.fixture
def other_node() -> Iterator[ScriptedNode]:
    scripted = ScriptedNode()
    scripted.answers["HELLO"] = hello_of(("", scripted.port, 1), own="b" * 40)
    yield scripted
    scripted.stop()


@pytest.fixture(scope="session")
def real_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    """One server for all tests that only add queues of their own."""
    with RealServer(tmp_path_factory.mktemp("node")) as server:
        yield server
