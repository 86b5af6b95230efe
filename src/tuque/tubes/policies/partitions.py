"""Partitions, their ready order in a group, and the turns of groups (SPEC T41.1, T43).

Most partitions come in the order in which they go, and wait in a list; the others wait in a heap,
of which each partition knows its place. So a partition leaves from anywhere, and nothing stale is
kept.

Must not know: what keys mean, places, tokens.
"""

from typing import Final

from mypy_extensions import i64, mypyc_attr

from tuque.tubes.entries.keys import JobEntry
from tuque.tubes.types.driver import Order

SLACK: Final = 16  # places that lanes have left and that are tolerated
SPENT: Final = 64  # such places before the head of a list
NO_ENTRY: Final = JobEntry(b"", None)

# where a lane stands; each is its own ring
IN_LIMIT: Final = 1
IN_RATE: Final = 2
IN_READY: Final = 3


@mypyc_attr(acyclic=True)
class Group:
    """One GROUP key."""

    def __init__(self) -> None:
        self.weight: i64 = 1
        self.lanes: i64 = 0
        self.tasks: i64 = 0  # READY ones; not counted of the group without a name


@mypyc_attr(acyclic=True)
class Lane(Order):
    """READY tasks with the same group, limit and rate."""

    def __init__(self, name: bytes, group: bytes, tenant: Group, limit: bytes, rate: bytes) -> None:
        super().__init__()
        self.name = name
        self.entry = NO_ENTRY  # with the keys of most of its tasks; NO_ENTRY: not known yet
        self.group = group
        self.tenant = tenant  # that group
        self.limit = limit
        self.rate = rate
        self.is_free = len(limit) == 0 and len(rate) == 0  # only its group's turn counts
        self.has_place = False  # of its LIMIT, for its next task
        self.stands: i64 = 0  # 0: nowhere
        self.place: i64 = -1  # in the list of its line; -1: it is not there
        self.spot: i64 = -1  # as `place`, in the heap
        self.pri: i64 = 0  # of its first task, as its line has it
        self.number: i64 = -1

    def goes_before(self, pri: i64, number: i64) -> bool:
        """Whether its first task goes before that one."""
        return self.pri < pri or (self.pri == pri and self.number < number)

    def look(self) -> bool:
        """Look at the first task again: whether it is another one. The lane has tasks."""
        task = self.first()
        assert task is not None
        if task.number == self.number and task.pri == self.pri:
            return False
        self.pri = task.pri
        self.number = task.number
        return True


NO_LANE: Final = Lane(b"", b"", Group(), b"", b"")  # fills places that lanes have left


@mypyc_attr(acyclic=True)
class Line:
    """The lanes of one group in a ring."""

    def __init__(self, group: bytes) -> None:
        self.group = group
        self.items: list[Lane] = []  # from `head` on, in order; some may be NO_LANE
        self.head: i64 = 0
        self.start: i64 = 0  # the place of the first item
        self.last_pri: i64 = 0  # of the last item, gone or not
        self.last_number: i64 = 0
        self.heap: list[Lane] = []  # of lanes that go before the last item
        self.count: i64 = 0
        self.deficit: i64 = 0

    def top(self) -> Lane:
        """The first lane of a line that is not empty."""
        heap = self.heap
        if self.head == len(self.items):
            return heap[0]
        lane = self.items[self.head]
        if len(heap) > 0 and heap[0].goes_before(lane.pri, lane.number):
            return heap[0]
        return lane

    def add(self, lane: Lane) -> None:
        """Add a lane that is not in the line."""
        items = self.items
        size: i64 = len(items)
        if size == self.head:
            items.clear()
            self.head = 0
            size = 0
        elif lane.goes_before(self.last_pri, self.last_number):
            self.heap.append(lane)
            rise(self.heap, len(self.heap) - 1, lane)
            return
        self.last_pri = lane.pri
        self.last_number = lane.number
        lane.place = self.start + size
        items.append(lane)
        if size - self.head > 2 * self.count + SLACK:
            self.close_up()

    def remove(self, lane: Lane) -> None:
        """Remove a lane, whose first task may be another one already."""
        if lane.place < 0:
            remove_from(self.heap, lane)
            return
        at = lane.place - self.start
        lane.place = -1
        self.items[at] = NO_LANE
        if at == self.head:
            self.skip()

    def skip(self) -> None:
        """Go on to the first lane of the list."""
        items = self.items
        size: i64 = len(items)
        head = self.head
        while head < size and items[head] is NO_LANE:
            head += 1
        if head >= SPENT and head * 2 >= size:
            del items[:head]
            self.start += head
            head = 0
        self.head = head

    def close_up(self) -> None:
        """Drop the places in the list that lanes have left."""
        items: list[Lane] = []
        for lane in self.items:
            if lane is not NO_LANE:
                lane.place = self.start + len(items)
                items.append(lane)
        self.items = items
        self.head = 0


def rise(heap: list[Lane], at: i64, lane: Lane) -> None:
    """Put the lane there in the heap, or above, where it belongs."""
    while at > 0:
        above = (at - 1) >> 1
        other = heap[above]
        if not lane.goes_before(other.pri, other.number):
            break
        heap[at] = other
        other.spot = at
        at = above
    heap[at] = lane
    lane.spot = at


def sink(heap: list[Lane], at: i64, lane: Lane) -> None:
    """As `rise`, or below."""
    size: i64 = len(heap)
    below = 2 * at + 1
    while below < size:
        other = heap[below]
        if below + 1 < size and heap[below + 1].goes_before(other.pri, other.number):
            below += 1
            other = heap[below]
        if not other.goes_before(lane.pri, lane.number):
            break
        heap[at] = other
        other.spot = at
        at = below
        below = 2 * at + 1
    heap[at] = lane
    lane.spot = at


def remove_from(heap: list[Lane], lane: Lane) -> None:
    """Remove the lane from the heap: the last one takes its spot."""
    at = lane.spot
    lane.spot = -1
    last = heap.pop()
    if last is not lane:
        rise(heap, at, last)
        if last.spot == at:
            sink(heap, at, last)


# ---- Partitions wait in one order for each group; the groups take turns (SPEC T43)
#
# Deficit round robin: a group that comes to the head may send `weight` lanes, then goes to the
# tail. One that has no lane left loses the rest of its turn.


@mypyc_attr(acyclic=True)
class Ring:
    """Lines of groups. `groups` is the table of all groups, shared by all rings of a tube."""

    def __init__(self, where: i64, groups: dict[bytes, Group]) -> None:
        self.where = where
        self.groups = groups
        self.lines: dict[bytes, Line] = {}
        self.order: list[Line] = []  # from `at` on; some may be empty
        self.at: i64 = 0
        self.count: i64 = 0  # lanes that stand here
        self.pushes: i64 = 0  # how often a lane was put into a line: the cost

    def add(self, lane: Lane) -> None:
        """The lane stands here from now on."""
        line = self.lines.get(lane.group)
        if line is None:
            line = Line(lane.group)
            self.lines[lane.group] = line
            self.order.append(line)
        lane.stands = self.where
        line.count += 1
        self.count += 1
        self.pushes += 1
        line.add(lane)

    def moved(self, lane: Lane) -> None:
        """The first task of a lane that stands here is another one."""
        line = self.lines[lane.group]
        self.pushes += 1
        line.remove(lane)
        line.add(lane)

    def leave(self, lane: Lane) -> Line:
        """The lane goes; `settle` follows."""
        line = self.lines[lane.group]
        line.remove(lane)
        line.count -= 1
        self.count -= 1
        lane.stands = 0
        return line

    def again(self, lane: Lane) -> None:
        """The lane whose turn it was has lost its first task, and stays here with the next one."""
        line = self.lines[lane.group]
        lane.look()
        self.pushes += 1
        if line.count == 1 and lane.place >= 0:
            line.last_pri = lane.pri
            line.last_number = lane.number
        else:
            line.remove(lane)
            line.add(lane)
        self.spent(line)

    def settle(self, line: Line) -> None:
        """Drop the line if it is empty: its group loses the rest of its turn."""
        if line.count > 0 or self.lines.get(line.group) is not line:
            return
        del self.lines[line.group]
        line.items.clear()
        if len(self.order) - self.at > 2 * len(self.lines) + SLACK:
            self.order = [one for one in self.order[self.at :] if one.count > 0]
            self.at = 0

    def head(self) -> Line | None:
        """The line whose turn it is."""
        while self.at < len(self.order):
            line = self.order[self.at]
            if line.count > 0:
                if line.deficit <= 0:
                    line.deficit = self.groups[line.group].weight
                return line
            self.advance()
        return None

    def advance(self) -> None:
        """The head of the ring is no longer the head."""
        self.at += 1
        if self.at >= SPENT and self.at * 2 >= len(self.order):
            del self.order[: self.at]
            self.at = 0

    def first(self) -> Lane | None:
        """The lane whose turn it is; changes nothing that is visible."""
        line = self.head()
        return None if line is None else line.top()

    def first_of(self, group: bytes) -> Lane | None:
        """The first lane of one group, whoever's turn it is."""
        line = self.lines.get(group)
        return None if line is None else line.top()

    def spent(self, line: Line) -> None:
        """A lane of the head went its way: its group has used one of its turn."""
        line.deficit -= 1
        if line.count == 0:
            self.settle(line)
        elif line.deficit <= 0 and self.order[self.at] is line:
            self.order.append(line)
            self.advance()
