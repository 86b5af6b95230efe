"""The order of READY tasks, or of buried ones: ascending (pri, number).

Tasks mostly arrive in that order and lie in a list; those that come back, or go before
others, lie in a heap. A task that leaves out of turn only changes its status: the stale
entry is passed over when it reaches the head. Knows nothing of tubes.
"""

from heapq import heappop, heappush
from typing import Final, final

from mypy_extensions import i64, u8

from tuque.core.task import Task

READY_BIT: Final = 1
BURIED_BIT: Final = 2

SLACK: Final = 64  # stale entries that do not matter
_GONE: Final = Task(b"", b"", b"", 0, -1, 0, 0)  # fills slots already taken

Key = tuple[int, int]


def key_of(task: Task) -> Key:
    """Sort key of the order."""
    return task.pri, task.number


@final
class Order:
    """Tasks with the status `wanted`, each listed once.

    `bit` marks those that stand here; a task may stand in orders of different bits.
    """

    def __init__(self, wanted: i64, bit: i64) -> None:
        self.wanted = wanted
        self.bit = u8(bit)
        self.count: i64 = 0
        self.items: list[Task] = []
        self.head: i64 = 0
        self.back: list[tuple[int, int, Task]] = []

    def push(self, task: Task) -> None:
        """Put a task in its place; its status is `wanted` already."""
        self.count += 1
        if task.listed & self.bit:
            return  # its old entry is right again
        task.listed |= self.bit
        items = self.items
        size: i64 = len(items)
        if size == self.head or is_before(items[size - 1], task):
            items.append(task)
        else:
            heappush(self.back, (task.pri, task.number, task))

    def first(self) -> Task | None:
        """The first task, nothing changed; None when there is none."""
        items = self.items
        while self.head < len(items) and items[self.head].status != self.wanted:
            self.advance()
        back = self.back
        while len(back) > 0 and back[0][2].status != self.wanted:
            back[0][2].listed &= ~self.bit
            heappop(back)
        if self.head < len(items):
            task = items[self.head]
            if len(back) == 0 or not is_before(back[0][2], task):
                return task
        if len(back) > 0:
            return back[0][2]
        return None

    def pop(self) -> Task | None:
        """Take the first task out; the caller changes its status."""
        task = self.first()
        if task is None:
            return None
        self.count -= 1
        if len(self.back) > 0 and self.back[0][2] is task:
            task.listed &= ~self.bit
            heappop(self.back)
        else:
            self.advance()
        return task

    def advance(self) -> None:
        """Give up the slot at the head, and the slots before it when they are many."""
        items = self.items
        items[self.head].listed &= ~self.bit
        items[self.head] = _GONE
        self.head += 1
        if self.head == len(items):
            items.clear()
            self.head = 0
        elif self.head >= 1024 and self.head * 2 >= len(items):
            del items[: self.head]
            self.head = 0

    def left(self) -> None:
        """A task left out of turn: its status is another one already."""
        self.count -= 1
        size: i64 = len(self.items) - self.head + len(self.back)
        if size > 2 * self.count + SLACK:
            self.compact()

    def compact(self) -> None:
        """Drop stale entries: they keep tasks in memory that are gone."""
        found = self.listing()
        for i in range(self.head, len(self.items)):
            self.items[i].listed &= ~self.bit
        for entry in self.back:
            entry[2].listed &= ~self.bit
        for task in found:
            task.listed |= self.bit
        self.items = found
        self.head = 0
        self.back = []

    def listing(self) -> list[Task]:
        """All tasks in order, nothing changed."""
        found: list[Task] = []
        i = self.head
        while i < len(self.items):
            task = self.items[i]
            if task.status == self.wanted:
                found.append(task)
            i += 1
        if len(self.back) > 0:
            for entry in self.back:
                if entry[2].status == self.wanted:
                    found.append(entry[2])
            found.sort(key=key_of)
        return found


def is_before(a: Task, b: Task) -> bool:
    """Whether `a` goes first."""
    if a.pri != b.pri:
        return a.pri < b.pri
    return a.number < b.number
