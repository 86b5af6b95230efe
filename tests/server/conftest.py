"""The node without a journal that most tests of this folder talk to."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from live import make_live  # noqa: F401  the path is set above; pytest finds it here

from world import World


@pytest.fixture
def world(make_world: Callable[..., World]) -> World:
    """A node without a journal."""
    made = make_world(journal="off")
    assert made.run.c.number == 1  # the first connection is that of the test
    return made
