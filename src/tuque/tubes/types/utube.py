"""The types with sub-queues: of each at most one task is TAKEN (SPEC T3.4).

Every sub-queue has an order of its own, a lane. The first tasks of idle lanes stand in one
line, so that a take costs the same whatever waits behind busy ones.
"""

from typing import Final, final

from mypy_extensions import i64, mypyc_attr

from tuque.core.model.task import READY, Task
from tuque.tubes.types.driver import Driver
from tuque.tubes.types.ordering import HEAD_BIT, READY_BIT, SLACK, Line, Order, key_of

LANE_BYTES: Final = 290  # measured: the lane, its list, its key's object and its places


@final
@mypyc_attr(acyclic=True)
class Lane(Order):
    """One sub-queue: the order of its READY tasks."""

    def __init__(self, key: bytes) -> None:
        super().__init__(READY, READY_BIT)
        self.key = key
        self.taken: i64 = 0

    def cost(self) -> i64:
        """What it costs beside its tasks (M1)."""
        size: i64 = len(self.key)
        return LANE_BYTES + size


class UTube(Driver):
    """Ascending numbers of idle sub-queues; no times."""

    def __init__(self) -> None:
        super().__init__()
        self.is_keyed = True
        self.lanes: dict[bytes, Lane] = {}
        self.heads = Line(HEAD_BIT)  # the first task of each idle lane, and stale entries
        self.last: Lane | None = None  # the one looked up last: a take needs it twice

    def lane(self, key: bytes) -> Lane:
        """The sub-queue, made when absent."""
        lane = self.lanes.get(key)
        if lane is None:
            lane = Lane(key)
            self.lanes[key] = lane
            self.bytes_used += lane.cost()
        return lane

    def enter(self, task: Task) -> None:
        """The task is READY now."""
        lane = self.lane(task.subqueue)
        self.last = lane
        task.subqueue = lane.key  # all tasks of a lane share one key object
        lane.push(task)
        if lane.taken == 0:
            self.show(lane)

    def known(self, key: bytes) -> Lane:
        """The sub-queue of a task that it has."""
        last = self.last
        if last is not None and last.key is key:
            return last
        lane = self.lanes[key]
        self.last = lane
        return lane

    def show(self, lane: Lane) -> None:
        """Put the first task of an idle lane among the heads, unless it stands there."""
        task = lane.first()
        if task is not None and task.listed & HEAD_BIT == 0:
            self.heads.add(task)
            self.drop_stale()

    def drop_stale(self) -> None:
        """When most heads are none any more, let them go: they keep tasks in memory."""
        lanes: i64 = len(self.lanes)
        if self.heads.size() <= 2 * lanes + SLACK:
            return
        found: list[Task] = []
        for lane in self.lanes.values():
            task = lane.first()
            if lane.taken == 0 and task is not None:
                found.append(task)
        found.sort(key=key_of)
        self.heads.replace(found)

    def first(self) -> Task | None:
        """The first task of an idle lane; one before it would stand before it among the heads."""
        heads = self.heads
        task = heads.top()
        while task is not None:
            if task.status == READY and self.known(task.subqueue).taken == 0:
                return task
            heads.drop(task)
            task = heads.top()
        return None

    def took(self, task: Task) -> None:
        """`first` was taken: its lane is busy."""
        if self.heads.top() is task:
            self.heads.drop(task)
        lane = self.known(task.subqueue)
        lane.first()  # what stands before it is stale
        lane.took(task)
        lane.taken += 1

    def left(self, task: Task) -> None:
        """A READY task of the lane is none any more."""
        lane = self.known(task.subqueue)
        lane.left()
        self.settle(lane)

    def freed(self, task: Task) -> None:
        """The task of the lane is TAKEN no longer."""
        lane = self.known(task.subqueue)
        lane.taken -= 1
        self.settle(lane)

    def held(self, task: Task) -> None:
        """A task of the lane is TAKEN."""
        lane = self.lane(task.subqueue)
        task.subqueue = lane.key
        lane.taken += 1

    def settle(self, lane: Lane) -> None:
        """An idle lane shows its first task; one with nothing goes."""
        if lane.taken > 0:
            return
        if lane.count > 0:
            self.show(lane)
            return
        if lane.size() > 0:
            lane.compact()  # buried tasks of it may come back, to another lane
        del self.lanes[lane.key]
        self.last = None
        self.bytes_used -= lane.cost()
        self.drop_stale()

    def listing(self) -> list[Task]:
        """All READY tasks, those of busy lanes among them."""
        found: list[Task] = []
        for lane in self.lanes.values():
            found.extend(lane.listing())
        found.sort(key=key_of)
        return found

    def check(self, taken: list[Task]) -> None:
        """Assert that lanes and heads agree, and that no lane has two TAKEN tasks (T3.4)."""
        busy: dict[bytes, int] = {}
        for task in taken:
            assert task.subqueue not in busy, "two TAKEN tasks of one sub-queue"
            busy[task.subqueue] = 1
        heads: dict[int, Task] = {}
        for task in self.heads.items[self.heads.head :]:
            heads[task.number] = task
        for entry in self.heads.back:
            heads[entry[1]] = entry[2]
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
