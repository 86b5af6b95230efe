"""What the tests of this folder share."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from iproto_raw import IprotoBox


@pytest.fixture
def box(tmp_path: Path) -> Iterator[IprotoBox]:
    """A pump with default options whose guest may do everything."""
    made = IprotoBox(tmp_path)
    yield made
    made.close()
