"""The types of tubes known to this node, and new ones at run time (SPEC T3.5, T3.6).

What a driver decides is driver.py's; where it comes from, the shell's.
"""

from collections.abc import Callable
from typing import Final

from tuque.core.model.task import FAR, READY, TAKEN
from tuque.core.node.node import Node
from tuque.core.queues.procedures import mark_ready
from tuque.tubes.model.driver_guard import DriverFailed, Guarded, GuardedType
from tuque.tubes.model.errors import LONG_OPTION, OVERRIDING, TubeError
from tuque.tubes.model.registry import Tubes
from tuque.tubes.model.tube import Tube
from tuque.tubes.replication.receive import tell_served
from tuque.tubes.tasks.transitions import arm
from tuque.tubes.types.driver import Absent, Driver
from tuque.tubes.types.ordering import DRIVER_BITS

TYPE_MAX: Final = 255


def register_driver(n: Node, t: Tubes, name: bytes, factory: Callable[[], Driver]) -> None:
    """[T3] Register a type of tube; `factory()` makes its drivers (T3.6).

    Tubes waiting for the type are served. Raises TubeError, or DriverFailed with the driver's
    error; then nothing has changed.
    """
    if name in t.drivers:
        raise TubeError(OVERRIDING, (name,))
    if len(name) == 0 or len(name) > TYPE_MAX:
        raise TubeError(LONG_OPTION)
    waiting: list[Tube] = []
    for tube in t.by_name.values():
        if tube.type == name and isinstance(tube.driver, Absent):
            waiting.append(tube)
    noted = len(t.notes)
    error = Guarded(t, name, factory).error  # a trial: can it be made at all?
    if error is None:
        error = serve_waiting(t, name, factory, waiting)
    if error is not None:
        del t.notes[noted:]  # the caller gets the error
        raise error if isinstance(error, TubeError) else DriverFailed(error)
    t.drivers[name] = GuardedType(t, name, factory)  # T3.8
    for tube in waiting:
        begin(n, t, tube)


def serve_waiting(
    t: Tubes, name: bytes, factory: Callable[[], Driver], waiting: list[Tube]
) -> BaseException | None:
    """Give each of the tubes its driver, or after an error none of them."""
    for tube in waiting:
        driver = Guarded(t, name, factory)
        replace_driver(t, tube, driver)
        if driver.error is not None:
            for late in waiting:
                replace_driver(t, late, Absent())
            return driver.error
    return None


def replace_driver(t: Tubes, tube: Tube, driver: Driver) -> None:
    """Install the driver and enter the tube's tasks, as after a start."""
    is_out = tube.shift is not None and not tube.shift.is_in  # T19.6
    for task in tube.tasks.values():
        task.listed &= 0xFF ^ DRIVER_BITS  # it was in the old driver's order
        if is_out:
            continue
        if task.status == READY:
            driver.enter(task)
        elif task.status == TAKEN:
            driver.held(task)
    t.bytes_used += driver.bytes_used - tube.driver.bytes_used
    tube.driver = driver


def begin(n: Node, t: Tubes, tube: Tube) -> None:
    """Deliver tasks from now on, first to waiting clients."""
    if not tube.driver.is_timed:
        for task in tube.tasks.values():
            task.dead_ms = FAR
            arm(n, t, task, task.qtime_ms)
    if tube.length > 0 and len(tube.waiters) > 0:
        mark_ready(n, tube)
    tell_served(n, tube)
