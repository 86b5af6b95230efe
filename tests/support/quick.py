"""Upper limits of a time that hold on a busy machine, too."""

from __future__ import annotations

import time
from collections.abc import Callable

TRIES = 5


def is_quick(act: Callable[..., object], within_s: float, *before: Callable[[], object]) -> bool:
    """Whether it takes less than that in one of five tries.

    Other work of the machine delays some of them, a wait that is too long delays all. What
    `before` returns, outside the time, is given to `act`.
    """
    for _ in range(TRIES):
        given = [make() for make in before]
        began = time.monotonic()
        act(*given)
        if time.monotonic() - began < within_s:
            return True
    return False
