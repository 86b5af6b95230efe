"""The machine's steady clock; SPEC G8 says how the node uses it."""

import time
from typing import Final

from mypy_extensions import i64


def counts_suspend() -> bool:
    """Whether the system has a clock that counts during suspend."""
    try:
        time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    except (AttributeError, OSError):
        return False
    return True


# Linux' CLOCK_MONOTONIC stops while a laptop sleeps: a delay of an hour would take longer.
CLOCK: Final = time.CLOCK_BOOTTIME if counts_suspend() else time.CLOCK_MONOTONIC


def steady_ms() -> i64:
    """Milliseconds since a fixed instant of this boot, on a clock that is never set (G8.1)."""
    return time.clock_gettime_ns(CLOCK) // 1_000_000
