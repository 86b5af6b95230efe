"""The node by hand, for every test of this folder."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from journal_by_hand import kept  # noqa: F401  pytest looks for fixtures here
from node_by_hand import box  # noqa: F401  as above

from world import World


@pytest.fixture
def world(make_world: Callable[..., World]) -> World:
    """One node that keeps its events."""
    return make_world(events=True)
