"""What the tests of this folder share: streams, and a pump driven by hand."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from pump_box import PumpBox


@pytest.fixture
def pump(tmp_path: Path) -> Iterator[PumpBox]:
    """A pump with default options."""
    made = PumpBox(tmp_path)
    yield made
    made.close()
