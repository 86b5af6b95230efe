"""Lanes that stand in line, one line for each group; the groups take turns (SPEC T43).

Deficit round robin: a group that comes to the head may send `weight` lanes, then goes to the tail.
One that has no lane left loses the rest of its turn. Most lanes come in the order in which they go,
and stand in a list; the others are in a heap, by number, where an entry whose lane has moved is
stale. No object refers to another one in a circle.
"""

from heapq import heapify, heappop, heappush
from typing import Final

from mypy_extensions import i64, mypyc_attr

from tuque.core.model.task import READY
from tuque.tubes.types.ordering import READY_BIT, Order

# where a lane stands; each is its own ring
IN_LIMIT: Final = 1
IN_RATE: Final = 2
IN_READY: Final = 3

SLACK: Final = 16  # stale entries that are tolerated
SPENT: Final = 64  # entries before the head of a ring that are kept until it is cut

Entry = tuple[int, int, int]  # pri and number of the lane's first task; the lane


@mypyc_attr(acyclic=True)
class Lane(Order):
    """READY tasks with the same group, limit and rate."""

    def __init__(self, serial: i64, name: bytes, group: bytes, limit: bytes, rate: bytes) -> None:
        super().__init__(READY, READY_BIT)
        self.serial = serial
        self.name = name
        self.group = group
        self.limit = limit
        self.rate = rate
        self.has_place = False  # of its LIMIT, for its next task
        self.stands: i64 = 0  # 0: nowhere
        self.place: i64 = -1  # in the list of its line; -1: it has an entry in the heap
        self.pri: i64 = 0  # of its first task, as its entry has it
        self.number: i64 = -1

    def entry(self) -> Entry:
        """Its entry in the heap where it stands."""
        return int(self.pri), int(self.number), int(self.serial)

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


@mypyc_attr(acyclic=True)
class Group:
    """One GROUP key."""

    def __init__(self) -> None:
        self.weight: i64 = 1
        self.set_by: i64 = -1  # the task that said so: the highest number counts
        self.lanes: i64 = 0
        self.tasks: i64 = 0  # READY ones; not counted of the group without a name


_GONE: Final = Lane(0, b"", b"", b"", b"")  # fills places that lanes have left


@mypyc_attr(acyclic=True)
class Line:
    """The lanes of one group in a ring."""

    def __init__(self, group: bytes) -> None:
        self.group = group
        self.items: list[Lane] = []  # from `head` on, in order; some may be _GONE
        self.head: i64 = 0
        self.start: i64 = 0  # the place of the first item
        self.last_pri: i64 = 0  # of the last item, gone or not
        self.last_number: i64 = 0
        self.heap: list[Entry] = []  # of lanes that go before the last item
        self.count: i64 = 0
        self.deficit: i64 = 0

    def append(self, lane: Lane) -> bool:
        """Add the lane to the list; False: it goes before the last one there."""
        items = self.items
        size: i64 = len(items)
        if size == self.head:
            items.clear()
            self.head = 0
            size = 0
        elif lane.goes_before(self.last_pri, self.last_number):
            return False
        self.last_pri = lane.pri
        self.last_number = lane.number
        lane.place = self.start + size
        items.append(lane)
        return True

    def remove(self, lane: Lane) -> None:
        """Remove the lane from the list, if it is there."""
        if lane.place < 0:
            return
        at = lane.place - self.start
        lane.place = -1
        self.items[at] = _GONE
        if at == self.head:
            self.skip()

    def skip(self) -> None:
        """Go on to the first lane of the list."""
        items = self.items
        size: i64 = len(items)
        head = self.head
        while head < size and items[head] is _GONE:
            head += 1
        if head >= SPENT and head * 2 >= size:
            del items[:head]
            self.start += head
            head = 0
        self.head = head

    def close_up(self) -> None:
        """Drop what lanes have left behind in the list."""
        items: list[Lane] = []
        for lane in self.items:
            if lane is not _GONE:
                lane.place = self.start + len(items)
                items.append(lane)
        self.items = items
        self.head = 0


@mypyc_attr(acyclic=True)
class Ring:
    """Lines of groups. `lanes` is the table of all lanes, shared by all rings of a tube."""

    def __init__(self, where: i64, lanes: dict[int, Lane], groups: dict[bytes, Group]) -> None:
        self.where = where
        self.lanes = lanes
        self.groups = groups
        self.lines: dict[bytes, Line] = {}
        self.order: list[Line] = []  # from `at` on; some may be empty
        self.at: i64 = 0
        self.count: i64 = 0  # lanes that stand here
        self.pushes: i64 = 0  # entries pushed so far: the cost

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
        self.push(line, lane)

    def push(self, line: Line, lane: Lane) -> None:
        """Put the lane, which is not in the list, where it belongs; what it had before is stale."""
        self.pushes += 1
        if line.append(lane):
            if len(line.items) - line.head > 2 * line.count + SLACK:
                line.close_up()
            return
        heappush(line.heap, lane.entry())
        if len(line.heap) > 2 * line.count + SLACK:
            kept = {entry for entry in line.heap if self.is_good(entry)}
            line.heap = list(kept)
            heapify(line.heap)

    def is_good(self, entry: Entry) -> bool:
        """Whether the lane of the entry stands here still, with this task first."""
        lane = self.lanes.get(entry[2])
        if lane is None or lane.stands != self.where:
            return False
        return lane.number == entry[1] and lane.pri == entry[0]

    def moved(self, lane: Lane) -> None:
        """The first task of a lane that stands here is another one."""
        line = self.lines[lane.group]
        line.remove(lane)
        self.push(line, lane)

    def leave(self, lane: Lane) -> Line:
        """The lane goes; `settle` follows."""
        line = self.lines[lane.group]
        line.remove(lane)
        line.count -= 1
        self.count -= 1
        lane.stands = 0
        return line

    def settle(self, line: Line) -> None:
        """Drop the line if it is empty: its group loses the rest of its turn."""
        if line.count > 0 or self.lines.get(line.group) is not line:
            return
        del self.lines[line.group]
        line.items.clear()  # its places are never asked for again
        line.heap.clear()
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

    def top(self, line: Line) -> Lane:
        """The first lane of a line that is not empty."""
        heap = line.heap
        while len(heap) > 0 and not self.is_good(heap[0]):
            heappop(heap)
        if line.head < len(line.items):
            lane = line.items[line.head]
            if len(heap) == 0:
                return lane
            if lane.goes_before(heap[0][0], heap[0][1]):
                return lane
        return self.lanes[heap[0][2]]

    def first(self) -> Lane | None:
        """The lane whose turn it is; changes nothing that is visible."""
        line = self.head()
        return None if line is None else self.top(line)

    def first_of(self, group: bytes) -> Lane | None:
        """The first lane of one group, whoever's turn it is."""
        line = self.lines.get(group)
        return None if line is None else self.top(line)

    def spent(self, line: Line) -> None:
        """A lane of the head went its way: its group has used one of its turn."""
        line.deficit -= 1
        if line.count == 0:
            self.settle(line)
        elif line.deficit <= 0 and self.order[self.at] is line:
            self.order.append(line)
            self.advance()
