"""Real nodes and a console for each file of tests."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from web_console import Console

    from tuque.testing import TestCluster

NEEDED = ("starlette", "uvicorn", "jinja2", "httpx", "playwright")
if not all(find_spec(name) for name in NEEDED):  # installed with the other needs of the tests
    collect_ignore_glob = ["test_*.py"]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestCluster]:
    """Three real nodes."""
    from patient_nodes import patient_cluster

    with patient_cluster(tmp_path_factory.mktemp("nodes"), 3) as nodes:
        yield nodes


@pytest.fixture(scope="module")
def console(
    cluster: TestCluster, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Console]:
    """A console of these nodes; a file whose tests stop nodes says in CALL_S how long it waits."""
    from web_console import SLOW_S, console_of

    deeds = tmp_path_factory.mktemp("console") / "deeds.jsonl"
    with console_of(cluster.url, deeds, getattr(request.module, "CALL_S", SLOW_S)) as one:
        yield one
