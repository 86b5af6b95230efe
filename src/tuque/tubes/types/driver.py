"""What a type of tube decides: which READY task goes next, and what the type can do (SPEC T3).

The five built-in types are subclasses, and so may be a type of your own: a Python class named
in the entry point group `tuque.tube_drivers` under the name of the type. One object serves one
tube. The tube tells it of every change:

    enter(task)   the task is READY now
    took(task)    it was READY and is TAKEN now: it is the one `first` gave
    left(task)    it was READY and is buried or gone
    held(task)    it is TAKEN, after a restart
    freed(task)   it was TAKEN and no longer is; when it is READY again, `enter` came before

and asks `first()`, any number of times, for the task to be taken next. None says that nobody
gets one now. A driver keeps no other task than READY ones, never changes one, and asks no clock.
"""

from typing import Final, final

from mypy_extensions import i64, mypyc_attr

from tuque.core.model.task import READY, Task
from tuque.tubes.types.ordering import READY_BIT, Order

NO_TYPE: Final = "tube %s has the type %s, which is not installed: its tasks wait"


@mypyc_attr(allow_interpreted_subclasses=True)
class Driver:
    """The base: READY tasks in the order of (pri, number), whoever takes them."""

    def __init__(self) -> None:
        self.is_timed = False  # pri, ttl, ttr, delay and touch mean something
        self.ends_taken = False  # ttl ends a task that is TAKEN, too
        self.has_room_limit = False  # capacity means something, and put may wait
        self.is_keyed = False  # utube means something
        self.bytes_used: i64 = 0  # beside the tasks (M1)
        self.ready = Order(READY, READY_BIT)

    def enter(self, task: Task) -> None:
        """The task is READY now."""
        self.ready.push(task)

    def first(self) -> Task | None:
        """The task that would be taken now, nothing changed."""
        return self.ready.first()

    def took(self, task: Task) -> None:
        """`first` was taken; called before its status changes."""
        self.ready.took(task)

    def left(self, task: Task) -> None:
        """A READY task left out of turn; its status has already changed."""
        self.ready.left()

    def freed(self, task: Task) -> None:
        """A TAKEN task is no longer TAKEN; called after `enter` if it is READY again."""

    def held(self, task: Task) -> None:
        """The task is TAKEN already: it came back so from the journal."""

    def listing(self) -> list[Task]:
        """All READY tasks in the order of (pri, number)."""
        return self.ready.listing()

    def check(self, taken: list[Task]) -> None:
        """Assert that its tables agree; `taken` are the tasks that are TAKEN."""
        assert len(self.ready.listing()) == self.ready.count, "order of a tube"


@final
class Absent(Driver):
    """Placeholder for a type that is no longer installed: no task is delivered (T14.5)."""

    def __init__(self) -> None:
        super().__init__()
        self.is_timed = True
        self.is_keyed = True
        self.has_room_limit = True  # the type may have one, and must find it kept

    def first(self) -> Task | None:
        """None, until the type is back."""
        return None
