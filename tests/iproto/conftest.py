"""What the tests of this folder share."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from iproto_raw import IprotoBox
from tuque.server.start.doors import read_users


@pytest.fixture
def box(tmp_path: Path) -> Iterator[IprotoBox]:
    """A pump with default options whose guest may do everything."""
    made = IprotoBox(tmp_path)
    yield made
    made.close()


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[IprotoBox]:
    """A pump with three users: admin, bob and eve."""
    made = IprotoBox(tmp_path)
    path = tmp_path / "users"
    path.write_text("admin a all\nbob b role:readers\neve e role:writers role:readers\n")
    made.server.users = read_users(str(path))
    yield made
    made.close()
