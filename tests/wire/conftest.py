"""What the tests of this folder share: streams, and a pump driven by hand."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from world import World


@pytest.fixture
def pump(make_world: Callable[..., World]) -> World:
    """A pump with default options."""
    return make_world()
