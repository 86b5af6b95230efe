"""The order of READY or buried tasks: ascending (pri, number).

Tasks mostly arrive in that order and go into a list; those that come back, or overtake others, go
into a heap. A task that leaves out of turn only changes its status: its stale entry is skipped when
it reaches the head. Knows nothing of tubes.
"""

from collections.abc import Iterable
from heapq import heapify, heappop, heappush
from typing import Any, Final, cast, final

from mypy_extensions import i64, mypyc_attr, u8

from tuque.core.model.task import Task

# bits: a task may be in several orders, of different bits
READY_BIT: Final = 1
BURIED_BIT: Final = 2
HEAD_BIT: Final = 4
GUARD_BIT: Final = 8
DRIVER_BITS: Final = READY_BIT | HEAD_BIT | GUARD_BIT  # orders owned by the driver

FRESH: Final = 1_000  # keys that are sorted at once
SLACK: Final = 64  # stale entries that are tolerated
_GONE: Final = Task(b"", b"", b"", 0, -1, 0, 0)  # fills slots already taken

Key = tuple[int, int]
Entry = tuple[int, int, int, Task]  # pri, number, edition: no two of a heap are equal

_NONE: Final[list[Entry]] = []  # shared by lines without a heap; never changed


def key_of(task: Task) -> Key:
    """Sort key of the order."""
    return task.pri, task.number


@mypyc_attr(acyclic=True)
class Line:
    """Tasks, lowest key first; each is in it once, marked with `bit`."""

    def __init__(self, bit: i64) -> None:
        self.bit = u8(bit)
        self.items: list[Task] = []
        self.head: i64 = 0
        self.back: list[Entry] = _NONE

    def add(self, task: Task) -> None:
        """Add a task, unless it is in the line already."""
        if task.listed & self.bit:
            return
        task.listed |= self.bit
        items = self.items
        size: i64 = len(items)
        if size == self.head or is_before(items[size - 1], task):
            items.append(task)
            return
        if self.back is _NONE:
            self.back = []
        heappush(self.back, (task.pri, task.number, task.edition, task))

    def top(self) -> Task | None:
        """The first task."""
        back = self.back
        items = self.items
        if self.head < len(items):
            task = items[self.head]
            if len(back) == 0 or not is_before(back[0][3], task):
                return task
        if len(back) > 0:
            return back[0][3]
        return None

    def drop(self, task: Task) -> None:
        """Remove the task that `top` returned."""
        task.listed &= ~self.bit
        items = self.items
        head = self.head
        if head < len(items) and items[head] is task:
            items[head] = _GONE
            head += 1
            if head == len(items):
                items.clear()
                head = 0
            elif head >= 1024 and head * 2 >= len(items):
                del items[:head]
                head = 0
            self.head = head
        else:
            heappop(self.back)

    def size(self) -> i64:
        """The number of entries."""
        size: i64 = len(self.items) - self.head + len(self.back)
        return size

    def is_stale(self, task: Task) -> bool:
        """Whether the entry of the task is to be skipped."""
        return False

    def compact(self) -> None:
        """Drop stale entries, which keep tasks in memory. The others are not sorted anew."""
        items: list[Task] = []
        i = self.head
        while i < len(self.items):
            task = self.items[i]
            if self.is_stale(task):
                task.listed &= ~self.bit
            else:
                items.append(task)
            i += 1
        self.items = items
        self.head = 0
        if len(self.back) == 0:
            self.back = _NONE
            return
        back: list[Any] = []  # as objects: compiled code would make each entry anew
        for entry in cast("list[Any]", self.back):
            task = entry[3]
            if self.is_stale(task):
                task.listed &= ~self.bit
            else:
                back.append(entry)
        heapify(back)
        self.back = back


@mypyc_attr(acyclic=True)
class Order(Line):
    """Tasks with the status `wanted`."""

    def __init__(self, wanted: i64, bit: i64) -> None:
        super().__init__(bit)
        self.wanted = wanted
        self.count: i64 = 0

    def push(self, task: Task) -> None:
        """Add a task whose status is `wanted` already."""
        self.count += 1
        self.add(task)

    def first(self) -> Task | None:
        """The first task, or None; changes nothing."""
        task = self.top()
        while task is not None and task.status != self.wanted:
            self.drop(task)
            task = self.top()
        return task

    def took(self, task: Task) -> None:
        """Remove the task that `first` returned; the caller changes its status."""
        self.count -= 1
        self.drop(task)

    def left(self) -> None:
        """A task left out of turn: its status has changed already."""
        self.count -= 1
        if self.size() > 2 * self.count + SLACK:
            self.compact()

    def is_stale(self, task: Task) -> bool:
        """Whether the task left out of turn."""
        return task.status != self.wanted

    def listing(self) -> list[Task]:
        """All tasks in order; changes nothing."""
        found: list[Task] = []
        i = self.head
        while i < len(self.items):
            task = self.items[i]
            if task.status == self.wanted:
                found.append(task)
            i += 1
        if len(self.back) > 0:
            for entry in self.back:
                if entry[3].status == self.wanted:
                    found.append(entry[3])
            found.sort(key=key_of)
        return found


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
    edge: list[tuple[int, int, int, int]] = []  # pri, number, the order, its entry
    looked: i64 = 0
    for at, one in enumerate(orders):
        looked += show_item(one, int(at), one.head, edge)
        looked += show_back(one, int(at), 0, edge)
    while len(edge) > 0 and len(found) < most and looked <= looks:
        _, _, at, place = heappop(edge)
        one = orders[at]
        spot = i64(place)
        if spot >= 0:
            found.append(one.items[spot])
            looked += show_item(one, at, spot + 1, edge)
            continue
        spot = -1 - spot
        task = one.back[spot][3]
        if task.status == one.wanted:
            found.append(task)
        looked += show_back(one, at, 2 * spot + 1, edge)
        looked += show_back(one, at, 2 * spot + 2, edge)
    return found, looked


def show_item(one: Order, at: int, spot: i64, edge: list[tuple[int, int, int, int]]) -> i64:
    """Put the next task of the list, from `spot` on, on the edge; how many were looked at."""
    items = one.items
    size: i64 = len(items)
    begun = spot
    while spot < size:
        task = items[spot]
        if task.status == one.wanted:
            heappush(edge, (task.pri, task.number, at, int(spot)))
            return spot + 1 - begun
        spot += 1
    return spot - begun


def show_back(one: Order, at: int, spot: i64, edge: list[tuple[int, int, int, int]]) -> i64:
    """Put an entry of the heap on the edge, if there is one; how many were looked at."""
    if spot >= len(one.back):
        return 0
    entry = one.back[spot]
    heappush(edge, (entry[0], entry[1], at, int(-1 - spot)))
    return 1


def is_before(a: Task, b: Task) -> bool:
    """Whether `a` goes first."""
    if a.pri != b.pri:
        return a.pri < b.pri
    return a.number < b.number
