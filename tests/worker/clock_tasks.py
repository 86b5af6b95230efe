"""An app on a machine whose clock is an hour behind."""

from __future__ import annotations

import time

from e2e_tasks import app

RIGHT = time.time
time.time = lambda: RIGHT() - 3600

__all__ = ["app"]
