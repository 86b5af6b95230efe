"""A node, a client and workers for a test; all of them end with it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import group_tasks
import pytest
from worker_lab import HERE, Did, StartWorker

from lab import RealServer
from program import Program, StartProgram
from tuque import Client


@pytest.fixture
def node(tmp_path: Path) -> Iterator[RealServer]:
    directory = tmp_path / "node"
    directory.mkdir()
    with RealServer(directory, "--appendonly", "yes", "--appendfsync", "always") as node:
        yield node


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

    def start(*arguments: str, app: str = "e2e_tasks:app") -> Program:
        return worker_process(app, "--app-dir", str(HERE), *arguments, OUT=str(tmp_path))

    return start


@pytest.fixture
def did(tmp_path: Path) -> Did:
    """The lines that tasks have written so far."""

    def lines() -> list[str]:
        path = tmp_path / "did"
        return path.read_text().splitlines() if path.exists() else []

    return lines
