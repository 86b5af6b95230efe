"""The world of most tests of this folder, which import from each other."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from world import World

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture
def world(make_world: Callable[..., World]) -> World:
    """One node that keeps its events."""
    return make_world(events=True)
