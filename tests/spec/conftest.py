"""The node by hand, for every test of this folder."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from node_by_hand import box  # noqa: E402, F401  the path is set above; pytest finds the fixture here
