"""The server without a loop, for every test of this folder."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from door import door, make_door  # noqa: F401  the path is set above; pytest finds them here
from live import make_live  # noqa: F401  a fixture too
