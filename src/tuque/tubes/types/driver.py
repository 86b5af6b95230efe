"""What a type of tube decides: which READY task goes next, and what the type can do (SPEC T3).

The five built-in types are subclasses, and so may be your own: a Python class named in the
entry point group `tuque.tube_drivers` under the name of the type. One object serves one tube.
The tube reports every change to it:

    enter(task)   the task is READY
    took(task)    it was READY and is TAKEN: it is the one `first` gave
    left(task)    it was READY and is buried or gone
    held(task)    it is TAKEN, after a restart
    freed(task)   it was TAKEN and no longer is; if it is READY again, `enter` came before

and calls `first()`, any number of times, for the next task to take. None: nobody gets one now. A
driver keeps READY tasks only, never changes one, and uses no clock.
"""

from typing import Final, final

from mypy_extensions import i64, mypyc_attr

from tuque.core.model.task import FAR, READY, Task
from tuque.tubes.types.ordering import READY_BIT, Order

NO_TYPE: Final = "tube %s has the type %s, which is not installed: its tasks wait"


@mypyc_attr(allow_interpreted_subclasses=True)
class Driver:
    """The base: READY tasks in the order of (pri, number), for any taker."""

    def __init__(self) -> None:
        self.is_timed = False  # supports pri, ttl, ttr, delay and touch
        self.ends_taken = False  # ttl also ends a TAKEN task
        self.has_room_limit = False  # supports capacity, and put may wait
        self.is_keyed = False  # supports utube
        self.bytes_used: i64 = 0  # without the tasks (M1)
        # of the type `tasks` alone
        self.has_keys = False  # supports UNIQUE, LIMIT, RATE and GROUP
        self.now_ms: i64 = 0  # set before each call
        self.alarm_ms: i64 = FAR  # when it wants to be called without a change
        self.ready = Order(READY, READY_BIT)

    def enter(self, task: Task) -> None:
        """The task is READY now."""
        self.ready.push(task)

    def first(self) -> Task | None:
        """The task to take next; changes nothing."""
        return self.ready.first()

    def peek(self) -> Task | None:
        """The task that is next in the order, for figures; decides nothing."""
        return self.ready.first()

    def longest_held(self) -> list[Task]:
        """READY tasks that have waited longest for what others have, for figures: a few."""
        return []

    def took(self, task: Task) -> None:
        """`first` was taken; called before its status changes."""
        self.ready.took(task)

    def left(self, task: Task) -> None:
        """A READY task left out of turn; its status has changed already."""
        self.ready.left()

    def freed(self, task: Task) -> None:
        """A TAKEN task is TAKEN no longer; called after `enter` if it is READY again."""

    def held(self, task: Task) -> None:
        """The task came TAKEN from the journal."""

    def listing(self) -> list[Task]:
        """All READY tasks in the order of (pri, number)."""
        return self.ready.listing()

    def orders(self, most: i64) -> list[Order] | None:
        """The orders that have the READY tasks; None: they are more than `most`.

        Of a type in another package the server keeps the order itself.
        """
        return [self.ready]

    def check(self, taken: list[Task]) -> None:
        """Assert that its tables agree; `taken` are the tasks that are TAKEN."""
        assert len(self.ready.listing()) == self.ready.count, "order of a tube"


@final
class Absent(Driver):
    """Stands in for a type that is not installed: delivers no task (T14.5)."""

    def __init__(self) -> None:
        super().__init__()
        self.is_timed = True
        self.is_keyed = True
        self.has_room_limit = True  # the type may have one, which must be kept

    def first(self) -> Task | None:
        """None, until the type is back."""
        return None

    def peek(self) -> Task | None:
        """As `first`."""
        return None
