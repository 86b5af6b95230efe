"""The app of e2e_tasks, whose import waits as long as a file says so."""

from __future__ import annotations

import os
import time
from pathlib import Path

from e2e_tasks import app

__all__ = ["app"]

while Path(os.environ["OUT"], "hold").exists():
    Path(os.environ["OUT"], "loading").touch()
    time.sleep(0.01)
