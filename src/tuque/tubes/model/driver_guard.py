"""A guard around drivers of other packages: an error stops its tube only (SPEC T3.8).

The guard keeps the READY tasks in the order of (pri, number) beside the custom driver, so that the
tube's own tables stay valid whatever that driver does.
"""

from collections.abc import Callable
from traceback import format_exception
from typing import Final, final

from tuque.core.model.errors import NO_DRIVER_CLASS
from tuque.core.model.task import READY, Task
from tuque.tubes.model.errors import TubeError, shown
from tuque.tubes.model.tubes import Tubes
from tuque.tubes.types.driver import Absent, Driver, key_of

FAILED: Final = "tube %s: its driver failed: it delivers no task until it starts again\n%s"
NOT_HERE: Final = b"the type '%s' is not loaded"
SAID_MAX: Final = 500  # characters shown of an error


class DriverFailed(Exception):
    """A custom driver raised `error`."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(error)
        self.error = error


def summary_of(error: BaseException) -> str:
    """An error in one short line, even if its own text fails."""
    try:
        said = " ".join(str(error).split())
    except BaseException:
        said = ""
    text = f"{type(error).__name__}: {said}" if said else type(error).__name__
    return shown(text.encode("utf-8", "backslashreplace"))[:SAID_MAX]


def why_stopped(type: bytes, driver: Driver) -> str:
    """Why a tube delivers no task here (T3.8, T14.5); empty: the driver chooses."""
    if isinstance(driver, Guarded):
        error = driver.error
        return "" if error is None else summary_of(error)
    return shown(NOT_HERE % type) if isinstance(driver, Absent) else ""


@final
class GuardedType:
    """Makes the drivers of a custom type."""

    def __init__(self, t: Tubes, name: bytes, factory: Callable[[], Driver]) -> None:
        self.t = t
        self.name = name
        self.factory = factory

    def __call__(self) -> Driver:
        """A driver that never raises."""
        return Guarded(self.t, self.name, self.factory)


@final
class Guarded(Driver):
    """A custom driver; after its first error the tube delivers no task."""

    def __init__(self, t: Tubes, name: bytes, factory: Callable[[], Driver]) -> None:
        super().__init__()
        self.t = t
        self.tube = b"of type " + name  # until it has a task
        self.error: BaseException | None = None
        self.inner = Driver()
        try:
            make: Callable[[], object] = factory  # may return anything
            made = make()
            if not isinstance(made, Driver):
                raise TubeError(NO_DRIVER_CLASS, (name,))
            self.inner = made
            self.is_timed = made.is_timed
            self.ends_taken = made.ends_taken
            self.has_room_limit = made.has_room_limit
            self.is_keyed = made.is_keyed
        except BaseException as error:
            self.fail(error)

    def fail(self, error: BaseException) -> None:
        """Stop calling the driver, whatever it raised: even sys.exit() does not escape."""
        if isinstance(error, KeyboardInterrupt):
            raise error  # from whoever runs this process
        self.error = error
        said = "".join(format_exception(error)).rstrip()
        self.t.notes.append(FAILED % (shown(self.tube), said))

    def enter(self, task: Task) -> None:
        """The task is READY."""
        self.tube = task.queue
        self.ready.add(task)
        if self.error is None:
            try:
                self.inner.enter(task)
                self.bytes_used = self.inner.bytes_used
            except BaseException as error:
                self.fail(error)

    def first(self) -> Task | None:
        """The custom driver's choice, if valid."""
        if self.error is not None:
            return None
        try:
            task: object = self.inner.first()
            if task is None:
                return None
            if isinstance(task, Task) and task.status == READY and task.queue == self.tube:
                return task
            raise ValueError(f"first() gave what is no READY task of the tube: {task!r}")
        except BaseException as error:
            self.fail(error)
        return None

    def took(self, task: Task) -> None:
        """`first` was taken."""
        self.ready.remove(task)
        if self.error is None:
            try:
                self.inner.took(task)
                self.bytes_used = self.inner.bytes_used
            except BaseException as error:
                self.fail(error)

    def left(self, task: Task) -> None:
        """A READY task is no longer READY, out of turn."""
        self.ready.remove(task)
        if self.error is None:
            try:
                self.inner.left(task)
                self.bytes_used = self.inner.bytes_used
            except BaseException as error:
                self.fail(error)

    def freed(self, task: Task) -> None:
        """A TAKEN task is no longer TAKEN."""
        if self.error is None:
            try:
                self.inner.freed(task)
                self.bytes_used = self.inner.bytes_used
            except BaseException as error:
                self.fail(error)

    def held(self, task: Task) -> None:
        """The task is TAKEN already."""
        self.tube = task.queue
        if self.error is None:
            try:
                self.inner.held(task)
                self.bytes_used = self.inner.bytes_used
            except BaseException as error:
                self.fail(error)

    def listing(self) -> list[Task]:
        """All READY tasks in the order of (pri, number), from the guard's own tables."""
        return self.ready.listing()

    def check(self, taken: list[Task]) -> None:
        """Check the guard's tables, and the custom driver's, which is stopped if they are wrong."""
        assert len(self.ready.listing()) == self.ready.count, "order of a guarded tube"
        if self.error is None:
            try:
                self.inner.check(taken)
                listed = sorted(self.inner.listing(), key=key_of)
                assert listed == self.ready.listing(), "listing() has not the READY tasks"
            except BaseException as error:
                self.fail(error)
