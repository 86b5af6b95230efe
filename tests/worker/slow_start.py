"""The app of e2e_tasks, whose import waits as long as a file says so: "hold" in a worker, "hold
child" in its child processes.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from e2e_tasks import app

__all__ = ["app"]

OF = "" if "tuque.worker.main" in sys.modules else " child"

while Path(os.environ["OUT"], f"hold{OF}").exists():
    Path(os.environ["OUT"], f"loading{OF}").touch()
    time.sleep(0.01)
