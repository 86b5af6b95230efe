"""The machine's steady clock: which one it is; what the node makes of it is SPEC G8."""

import time
from typing import Final

from mypy_extensions import i64


def counts_suspend() -> bool:
    """Whether there is a clock that counts while the machine is suspended."""
    try:
        time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    except (AttributeError, OSError):
        return False
    return True


# Linux' CLOCK_MONOTONIC stands still while a laptop sleeps: a delay of an hour would take longer.
CLOCK: Final = time.CLOCK_BOOTTIME if counts_suspend() else time.CLOCK_MONOTONIC


def steady_ms() -> i64:
    """Milliseconds since some instant of this boot, on a clock that is never set (G8.1)."""
    return time.clock_gettime_ns(CLOCK) // 1_000_000
