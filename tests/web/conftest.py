"""Real nodes and a console for each file of tests."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from web_console import Console
    from web_nodes import WebCluster

NEEDED = ("starlette", "uvicorn", "jinja2", "httpx", "playwright")
if not all(find_spec(name) for name in NEEDED):  # installed with the other needs of the tests
    collect_ignore_glob = ["test_*.py"]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WebCluster]:
    """Three real nodes."""
    from web_nodes import WebCluster

    with WebCluster(tmp_path_factory.mktemp("nodes"), 3) as nodes:
        yield nodes


@pytest.fixture(scope="module")
def console(
    cluster: WebCluster, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Console]:
    """A console that has heard these nodes; a file that stops some says in CALL_S how it waits."""
    from web_console import SLOW_S, console_of

    deeds = tmp_path_factory.mktemp("console") / "deeds.jsonl"
    with console_of(cluster.url, deeds, getattr(request.module, "CALL_S", SLOW_S)) as one:
        one.until(lambda: len(one.site.watch.facts) == 3, "hear all nodes")
        yield one
