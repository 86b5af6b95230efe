"""Types of tubes: in task order (fifo, fifottl, limfifottl), or with sub-queues (SPEC T3).

A sub-queue has at most one TAKEN task, and an order of its own. The first tasks of idle sub-queues
form one order, so that the cost of a take is independent of what waits behind busy ones.
"""

from typing import Final, final

from mypy_extensions import i64, mypyc_attr

from tuque.core.model.task import READY, Task
from tuque.tubes.types.driver import Driver
from tuque.tubes.types.ordering import HEAD_BIT, READY_BIT, SLACK, Line, Order, listing_of

LANE_BYTES: Final = 290  # measured: the lane, its list, its key object and its entries


@final
@mypyc_attr(acyclic=True)
class Lane(Order):
    """One sub-queue: the order of its READY tasks."""

    def __init__(self, key: bytes) -> None:
        super().__init__(READY, READY_BIT)
        self.key = key
        self.taken: i64 = 0

    def cost(self) -> i64:
        """Memory of a lane without its tasks (M1)."""
        size: i64 = len(self.key)
        return LANE_BYTES + size


@final
@mypyc_attr(acyclic=True)
class Heads(Line):
    """The first task of each idle lane, and stale entries."""

    def __init__(self, lanes: dict[bytes, Lane]) -> None:
        super().__init__(HEAD_BIT)
        self.lanes = lanes

    def is_stale(self, task: Task) -> bool:
        """Whether the task is not the first one of an idle lane."""
        if task.status != READY:
            return True
        own = self.lanes.get(task.subqueue)
        return own is None or own.taken > 0 or own.first() is not task


class UTube(Driver):
    """Ascending numbers of idle sub-queues; no times."""

    def __init__(self) -> None:
        super().__init__()
        self.is_keyed = True
        self.lanes: dict[bytes, Lane] = {}
        self.heads = Heads(self.lanes)
        self.last: Lane | None = None  # the last lookup: a take needs it twice

    def lane(self, key: bytes) -> Lane:
        """The sub-queue, created if missing."""
        lane = self.lanes.get(key)
        if lane is None:
            lane = Lane(key)
            self.lanes[key] = lane
            self.bytes_used += lane.cost()
        return lane

    def enter(self, task: Task) -> None:
        """Add a READY task to its lane."""
        lane = self.lane(task.subqueue)
        self.last = lane
        task.subqueue = lane.key  # one key object for all tasks of a lane
        lane.push(task)
        if lane.taken == 0:
            self.show(lane)

    def known(self, task: Task) -> Lane:
        """The existing sub-queue of a task."""
        key = task.subqueue
        last = self.last
        if last is not None and last.key is key:
            return last
        lane = self.lanes[key]
        self.last = lane
        return lane

    def show(self, lane: Lane) -> None:
        """Add an idle lane's first task to the heads, unless it is there."""
        task = lane.first()
        if task is not None and task.listed & HEAD_BIT == 0:
            self.heads.add(task)
            self.drop_stale()

    def drop_stale(self) -> None:
        """Drop stale heads when they are the majority: they keep tasks in memory."""
        if self.heads.size() > 2 * i64(len(self.lanes)) + SLACK:
            self.heads.compact()

    def first(self) -> Task | None:
        """The first task of an idle lane; what precedes it there would precede it in the heads."""
        heads = self.heads
        task = heads.top()
        while task is not None:
            if task.status == READY and self.known(task).taken == 0:
                return task
            heads.drop(task)
            task = heads.top()
        return None

    def peek(self) -> Task | None:
        """As `first`, which decides nothing."""
        return self.first()

    def took(self, task: Task) -> None:
        """`first` was taken: its lane is busy."""
        if self.heads.top() is task:
            self.heads.drop(task)
        lane = self.known(task)
        lane.first()  # drops stale entries before it
        lane.took(task)
        lane.taken += 1

    def left(self, task: Task) -> None:
        """A READY task left its lane out of turn."""
        lane = self.known(task)
        lane.left()
        self.settle(lane)

    def freed(self, task: Task) -> None:
        """The lane's task is TAKEN no longer."""
        lane = self.known(task)
        lane.taken -= 1
        self.settle(lane)

    def held(self, task: Task) -> None:
        """A task of the lane is TAKEN."""
        lane = self.lane(task.subqueue)
        task.subqueue = lane.key
        lane.taken += 1

    def settle(self, lane: Lane) -> None:
        """An idle lane shows its first task; an empty one is removed."""
        if lane.taken > 0:
            return
        if lane.count > 0:
            self.show(lane)
            return
        if lane.size() > 0:
            lane.compact()  # its buried tasks may come back, to another lane
        del self.lanes[lane.key]
        self.last = None
        self.bytes_used -= lane.cost()
        self.drop_stale()

    def listing(self) -> list[Task]:
        """All READY tasks, also those of busy lanes."""
        return listing_of(self.lanes.values())

    def orders(self, most: i64) -> list[Order] | None:
        """The lanes, unless they are many."""
        if len(self.lanes) > most:
            return None
        found: list[Order] = []
        found.extend(self.lanes.values())
        return found

    def check(self, taken: list[Task]) -> None:
        """Assert that lanes and heads agree, and that no lane has two TAKEN tasks (T3.4)."""
        busy: dict[bytes, int] = {}
        for task in taken:
            assert task.subqueue not in busy, "two TAKEN tasks of one sub-queue"
            busy[task.subqueue] = 1
        heads: dict[int, Task] = {}
        for task in [*self.heads.items[self.heads.head :], *[e[3] for e in self.heads.back]]:
            if task.status == READY:
                heads[task.number] = task
        used: i64 = 0
        for key, lane in self.lanes.items():
            used += lane.cost()
            assert lane.taken == busy.get(key, 0), "busy sub-queue"
            listing = lane.listing()
            assert len(listing) == lane.count, "order of a sub-queue"
            assert lane.taken + lane.count > 0, "sub-queue without tasks"
            if lane.taken == 0:
                head = listing[0]
                assert head.listed & HEAD_BIT, "head of a sub-queue"
                assert heads.get(head.number) is head, "head without its place"
        for key in busy:
            assert key in self.lanes, "busy sub-queue is unknown"
        assert used == self.bytes_used, "bytes of sub-queues"


@final
class UTubeTtl(UTube):
    """Ascending (pri, number) of idle sub-queues, with ttl, ttr and delay."""

    def __init__(self) -> None:
        super().__init__()
        self.is_timed = True


# ---- The types that deliver in task order: fifo, fifottl, limfifottl (SPEC T3)


@final
class Fifo(Driver):
    """Ascending numbers; no times."""


@final
class FifoTtl(Driver):
    """Ascending (pri, number) with ttl, ttr and delay."""

    def __init__(self) -> None:
        super().__init__()
        self.is_timed = True
        self.ends_taken = True


@final
class LimFifoTtl(Driver):
    """fifottl with a capacity."""

    def __init__(self) -> None:
        super().__init__()
        self.is_timed = True
        self.ends_taken = True
        self.has_room_limit = True
