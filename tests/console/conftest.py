"""A real node for the console's tests, and the program."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from console_node import DEADLINE_S, Run

import forked
from lab import RealServer


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The port of a node that lives as long as the module's tests."""
    with RealServer(tmp_path_factory.mktemp("node")) as node:
        yield node.port


@pytest.fixture
def tuque(tmp_path: Path) -> Run:
    """Run the program: `tuque("cli", "PING", stdin=b"")`."""

    def run(*args: str | int, stdin: bytes = b"", **env: str) -> subprocess.CompletedProcess[bytes]:
        variables = {**os.environ, "HOME": str(tmp_path), **env}
        return forked.run([str(word) for word in args], stdin, variables, DEADLINE_S)

    return run
