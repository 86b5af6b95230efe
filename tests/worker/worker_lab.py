"""Workers as real processes, and how tests wait for them."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from program import SOURCE, Program, StartProgram

__all__ = ["SOURCE", "Program", "StartProgram"]
HERE = Path(__file__).parent
LIMIT_S = 60.0


def wait_until(condition: Callable[[], object], what: str, limit_s: float = LIMIT_S) -> None:
    """Returns when the condition holds; fails with `what` after the limit."""
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, f"not within {limit_s} s: {what}"
        time.sleep(0.01)


StartWorker = StartProgram
Did = Callable[[], list[str]]
