"""For all tests: the helpers of tests/support, how hypothesis searches, and who runs what."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

ROOT = Path(__file__).parent
sys.path.insert(0, str(ROOT / "support"))

# A loaded machine is no fault of the code: no deadlines. The same examples in every run.
settings.register_profile(
    "tuque", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("tuque")

# These take longest: they begin, so that none of them is waited for alone at the end.
FIRST = ("spark", "e2e", "sim", "worker", "client", "console")


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """One process runs a file, since a module shares its nodes; and all that share a Spark."""
    for item in items:
        name = item.path.relative_to(ROOT).as_posix()
        if "spark" in getattr(item, "fixturenames", ()):
            name = "spark"
        item.add_marker(pytest.mark.xdist_group(name))
    order = {f"tests/{name}": place for place, name in enumerate(FIRST)}
    items.sort(key=lambda item: order.get(item.nodeid.rsplit("/", 1)[0], len(FIRST)))
