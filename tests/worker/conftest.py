"""A node, a client and workers for a test: all that these did ends with it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import group_tasks
import pytest
from worker_lab import HERE, Did, StartWorker

from lab import RealServer
from program import Program, StartProgram
from raw_resp import Wire
from tuque import Client
from until import until


@pytest.fixture
def own_node(tmp_path: Path) -> Iterator[RealServer]:
    """The node of a test that ends it, or sets its options or users."""
    directory = tmp_path / "node"
    directory.mkdir()
    with RealServer(directory, "--appendonly", "yes", "--appendfsync", "always") as made:
        yield made


@pytest.fixture
def node(request: pytest.FixtureRequest, node: RealServer) -> Iterator[RealServer]:
    """The node of the run, empty again after the test; or `own_node`, if the test uses it."""
    if "own_node" in request.fixturenames:
        yield request.getfixturevalue("own_node")
        return
    yield node
    with node.wire() as wire:
        until(lambda: has_no_worker(wire), lambda: f"lose its workers: {wire('CLIENT', 'LIST')!r}")
        empty(wire)


def has_no_worker(wire: Wire) -> bool:
    """Whether no client waits for jobs; the child of a killed worker ends a moment later."""
    rows = wire("CLIENT", "LIST").decode().splitlines()
    flags = [word for row in rows for word in row.split() if word.startswith("flags=")]
    return not any("b" in word.removeprefix("flags=") for word in flags)


def empty(wire: Wire) -> None:
    """No job, tube and topic is left, and no worker is listed."""
    assert wire("DEBUG", "CHECK") == b"OK"
    assert wire("DEBUG", "FLUSHALL") == b"OK"
    for row in wire("WORKER", "LIST")[1]:
        wire("WORKER", "BYE", row[1])


@pytest.fixture
def place(node: RealServer, tmp_path: Path) -> Iterator[Path]:
    """Where tasks of group_tasks.py note what they did; their app uses the node."""
    group_tasks.app.use(node.url)
    yield tmp_path
    group_tasks.app.close()


@pytest.fixture
def client(node: RealServer) -> Iterator[Client]:
    with Client(node.url, timeout=60) as client:  # a slow machine is no dead node
        yield client


@pytest.fixture
def start_worker(worker_process: StartProgram, tmp_path: Path) -> StartWorker:
    """Starts `tuque worker APP ...`; what its tasks did stands in OUT/did."""

    def start(*arguments: str, app: str = "e2e_tasks:app", **env: str) -> Program:
        return worker_process(app, "--app-dir", str(HERE), *arguments, OUT=str(tmp_path), **env)

    return start


@pytest.fixture
def did(tmp_path: Path) -> Did:
    """The lines that tasks have written so far."""

    def lines() -> list[str]:
        path = tmp_path / "did"
        return path.read_text().splitlines() if path.exists() else []

    return lines
