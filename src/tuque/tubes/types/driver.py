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

First the order of READY or buried tasks: ascending (pri, number).
"""

from collections.abc import Iterable
from heapq import heappop, heappush
from typing import Any, Final, cast, final

from mypy_extensions import i64, mypyc_attr

from tuque.core.model.rows import Rows
from tuque.core.model.task import FAR, Task

Table = dict[bytes, Any]  # of a driver

NO_TYPE: Final = "tube %s has the type %s, which is not installed: its tasks wait"
FRESH: Final = 1_000  # keys that are sorted at once

Key = tuple[int, int]


def key_of(task: Task) -> Key:
    """Sort key of the order."""
    return task.pri, task.number


@mypyc_attr(acyclic=True)
class Order(Rows):
    """Tasks, lowest key first; each is in it once."""

    def before(self, a: object, b: object) -> bool:
        """Whether the task `a` goes first."""
        return is_before(cast("Task", a), cast("Task", b))

    def first(self) -> Task | None:
        """The first task, or None."""
        return cast("Task", self.items[self.head]) if self.count > 0 else None

    def listing(self) -> list[Task]:
        """All tasks in order; changes nothing."""
        return self.listed()


def listing_of(orders: Iterable[Order]) -> list[Task]:
    """All tasks of several orders, in one; changes nothing."""
    found: list[Task] = []
    for one in orders:
        found.extend(one.listing())
    found.sort(key=key_of)
    return found


@final
class Firsts:
    """The first tasks of many, by their keys, that come in any order; or the last ones.

    Few are kept beside those: what comes is sorted a little at a time, and what comes behind all
    that is wanted is left out at once.
    """

    def __init__(self, most: i64, is_last: bool = False) -> None:
        self.most = most
        self.is_last = is_last
        self.keys: list[Key] = []  # the best so far, in order
        self.fresh: list[Key] = []
        self.worst: i64 = 0  # pri of the last key, once there are enough
        self.is_full = False

    def add(self, task: Task) -> bool:
        """Look at one more; True: it is time to merge."""
        if self.is_full and (task.pri < self.worst if self.is_last else task.pri > self.worst):
            return False
        self.fresh.append(key_of(task))
        return len(self.fresh) >= FRESH

    def merge(self) -> i64:
        """Sort what came; how many keys that moved."""
        moved = len(self.keys) + len(self.fresh)
        self.fresh.sort(reverse=self.is_last)
        self.keys.extend(self.fresh)
        self.fresh = []
        self.keys.sort(reverse=self.is_last)  # two runs
        if len(self.keys) >= self.most:
            del self.keys[self.most :]
            self.is_full = True
            self.worst = i64(self.keys[self.most - 1][0])
        return moved


def first_of(orders: list[Order], most: i64, looks: i64) -> tuple[list[Task], i64]:
    """The first `most` tasks of several orders, in one, and how many entries that looked at.

    It reads no others. If it would look at more than `looks`, it gives up: the tasks are not all.
    """
    found: list[Task] = []
    edge: list[tuple[int, int, int, int, int]] = []  # pri, number, the order, its row, the place
    looked: i64 = 0
    for at, one in enumerate(orders):
        looked += show(one, int(at), -1, one.head, edge)
    while len(edge) > 0 and len(found) < most and looked <= looks:
        _, _, at, row, place = heappop(edge)
        one = orders[at]
        found.append(cast("Task", one.items[place] if row < 0 else one.rows[row][place]))
        looked += show(one, at, i64(row), i64(place) + 1, edge)
    return found, looked


def show(
    one: Order, at: int, row: i64, place: i64, edge: list[tuple[int, int, int, int, int]]
) -> i64:
    """Put the task there, or the first one of the next row, on the edge; how many that were."""
    tasks = one.items if row < 0 else one.rows[row]
    if place == len(tasks):
        row += 1
        if row == len(one.rows):
            return 0
        tasks = one.rows[row]
        place = 0
    task = cast("Task", tasks[place])
    heappush(edge, (task.pri, task.number, at, int(row), int(place)))
    return 1


def is_before(a: Task, b: Task) -> bool:
    """Whether `a` goes first."""
    if a.pri != b.pri:
        return a.pri < b.pri
    return a.number < b.number


# ---- The driver of a tube


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
        self.apart: i64 = 0  # tasks that are values: DELAYED, and in no length (T70.1)
        self.now_ms: i64 = 0  # set before each call
        self.alarm_ms: i64 = FAR  # when it wants to be called without a change
        self.ready = Order()

    def enter(self, task: Task) -> None:
        """The task is READY now."""
        self.ready.add(task)

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
        self.ready.remove(task)

    def left(self, task: Task) -> None:
        """A READY task left out of turn; its status has changed already."""
        self.ready.remove(task)

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

    def free(self, most: i64) -> None:
        """Free up to `most` entries of its tables: nobody needs the driver any more."""

    def check(self, taken: list[Task]) -> None:
        """Assert that its tables agree; `taken` are the tasks that are TAKEN."""
        assert len(self.ready.listing()) == self.ready.count, "order of a tube"


def free_some(tables: list[Table], most: i64) -> None:
    """Free up to `most` entries, of the first tables first."""
    for table in tables:
        while most > 0 and len(table) > 0:
            table.popitem()
            most -= 1


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
