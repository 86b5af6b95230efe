"""Waits for what real processes do: the one loop of the tests that looks at a real clock."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

MOST_S = 60.0  # a loaded machine is no fault of the code
LOOK_S = 0.005

T = TypeVar("T")


def until(
    fact: Callable[[], T], what: str | Callable[[], str] = "", *, most_s: float = MOST_S
) -> T:
    """Returns the fact once it holds; AssertionError says what did not come true, and what was."""
    deadline_s = time.monotonic() + most_s
    while not (found := fact()):
        if time.monotonic() >= deadline_s:
            said = what if isinstance(what, str) else what()
            raise AssertionError(f"it did not {said or 'come true'} in {most_s:g} s: {found!r}")
        time.sleep(LOOK_S)
    return found
