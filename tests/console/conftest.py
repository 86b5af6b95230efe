"""A real node for the console's tests, and the program in the process of the test."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from console_node import Run, run_here
from newcomer import Tour

from lab import RealServer

if TYPE_CHECKING:
    from world import World


@pytest.fixture(scope="session")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The port of a node that all tests share: each has queues of its own."""
    with RealServer(tmp_path_factory.mktemp("node")) as node:
        yield node.port


@pytest.fixture
def tuque(tmp_path: Path) -> Run:
    """Run the program here: `tuque("cli", "PING", stdin=b"")`. Its output is no terminal."""

    def run(*args: str | int, stdin: bytes = b"", **env: str) -> subprocess.CompletedProcess[bytes]:
        return run_here([str(word) for word in args], stdin, {"HOME": str(tmp_path), **env})

    return run


@pytest.fixture
def tuque_in(tuque: Run) -> Callable[[World, int], Run]:
    """The program at a node of a world: `tuque_in(world, 0)("cli", "PING")`."""
    from in_world import within
    from world_clients import url_of

    def at(world: World, i: int) -> Run:
        def run(*args: str | int, **words: object) -> subprocess.CompletedProcess[bytes]:
            with within(world):
                return tuque(*args, TUQUE_URL=url_of(i), **words)

        return run

    return at


@pytest.fixture
def tour(tmp_path: Path) -> Iterator[Tour]:
    """A newcomer; what they started ends with the test."""
    one = Tour(tmp_path)
    yield one
    for process in one.running:
        if process.poll() is None:
            process.kill()
            process.wait()
