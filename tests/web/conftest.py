"""Nodes and a console for each file of tests."""

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
def cluster() -> Iterator[WebCluster]:
    """Three nodes in this process."""
    from web_nodes import WebCluster

    made = WebCluster(3)
    yield made
    made.world.check()
    made.world.close()


@pytest.fixture(scope="module")
def console(cluster: WebCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Console]:
    """A console that has heard these nodes."""
    from web_console import console_of

    actions = tmp_path_factory.mktemp("console") / "actions.jsonl"
    with console_of(cluster, actions) as one:
        one.until(lambda: len(one.site.watch.facts) == 3, "hear all nodes")
        yield one
