"""What the tests of this folder share."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from tuque.server.start.doors import read_users
from world import World


@pytest.fixture
def guarded(make_world: Callable[..., World], tmp_path: Path) -> World:
    """A node with three users: admin, bob and eve."""
    made = make_world()
    path = tmp_path / "users"
    path.write_text("admin a all\nbob b role:readers\neve e role:writers role:readers\n")
    made.server.users = read_users(str(path))
    return made
