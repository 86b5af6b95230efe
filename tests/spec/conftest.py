"""The node by hand, for every test of this folder."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from journal_by_hand import kept  # noqa: F401  pytest looks for fixtures here
from node_by_hand import box, wired  # noqa: F401  pytest looks for fixtures here
