"""What turns of a node of the world cost, in counts: no clock is looked at."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

import tuque

if TYPE_CHECKING:
    from world import World

SOURCES: Final = tuple(tuque.__path__)
# of the clients here: loops over the pieces of a reply, a few nanoseconds each once compiled
SKIPPED: Final = {"measure_out", "take_out"}


@contextmanager
def costs(world: World) -> Iterator[list[tuple[int, int]]]:
    """Of each turn of node 0 meanwhile: the units of work it counted, and its lines of Python.

    Nothing of other tests is collected meanwhile: what ends then has lines, too.
    """
    spent: list[tuple[int, int]] = []
    n, lines = world.n, 0

    def on_line(frame: FrameType, event: str, arg: object) -> Any:
        nonlocal lines
        lines += event == "line"
        return on_line

    def on_call(frame: FrameType, event: str, arg: object) -> Any:
        code = frame.f_code
        is_ours = code.co_filename.startswith(SOURCES) and code.co_name not in SKIPPED
        return on_line if is_ours else None

    def on_turn(number: int) -> None:
        nonlocal lines
        if number == 0:
            spent.append((int(n.work), lines))
            lines = 0

    before = sys.gettrace()
    world.lab.after_turn = on_turn
    was_enabled = gc.isenabled()
    gc.disable()
    sys.settrace(on_call)
    try:
        yield spent
    finally:
        sys.settrace(before)
        if was_enabled:
            gc.enable()
        world.lab.after_turn = None
