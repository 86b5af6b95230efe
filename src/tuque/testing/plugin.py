"""The plugin of pytest: fixtures, and nothing that costs time before a test asks for one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tuque.testing.app import TestApp
    from tuque.testing.nodes import TestCluster, TestNode


@pytest.fixture
def tuque_seed() -> int:
    """The seed of `tuque_app`: override it to choose other ids and waits."""
    return 0


@pytest.fixture
def tuque_app(tuque_seed: int) -> Iterator[TestApp]:
    """A broker in this process and a worker by hand, for every tuque.worker.App of the test."""
    from tuque.testing import TestApp

    with TestApp(tuque_seed) as app:
        yield app


@pytest.fixture
def tuque_server(tmp_path: Path) -> Iterator[TestNode]:
    """A node in a process of its own, on a free port of this machine, empty."""
    from tuque.testing import TestNode

    directory = tmp_path / "tuque"
    directory.mkdir()
    with TestNode(directory) as node:
        yield node


@pytest.fixture
def tuque_cluster(tmp_path: Path) -> Iterator[TestCluster]:
    """Three nodes that know each other, empty."""
    from tuque.testing import TestCluster

    with TestCluster(tmp_path / "tuque-cluster") as cluster:
        yield cluster
