"""The types with sub-queues: of each at most one task is TAKEN (SPEC T3.4).

Every sub-queue has an order of its own, a lane. The first tasks of idle lanes lie in one heap,
so that a take costs the same whatever waits behind busy ones.
"""

from heapq import heapify, heappop, heappush
from typing import Final, final

from mypy_extensions import i64

from tuque.core.task import READY, Task
from tuque.tubes.driver import Driver
from tuque.tubes.order import READY_BIT, Order

LANE_BYTES: Final = 500
HEADS_SLACK: Final = 1024
UNLISTED: Final = -1


@final
class Lane:
    """One sub-queue."""

    def __init__(self, key: bytes) -> None:
        self.key = key
        self.order = Order(READY, READY_BIT)
        self.taken: i64 = 0
        self.listed: i64 = UNLISTED  # number of its task in the heap of heads


class UTube(Driver):
    """Ascending numbers of idle sub-queues; no times."""

    def __init__(self) -> None:
        super().__init__()
        self.is_keyed = True
        self.lanes: dict[bytes, Lane] = {}
        self.heads: list[tuple[int, int, bytes]] = []  # heap of (pri, number, key)
        self.last: Lane | None = None  # the one looked up last: a take needs it twice

    def lane(self, key: bytes) -> Lane:
        """The sub-queue, made when absent."""
        lane = self.lanes.get(key)
        if lane is None:
            lane = Lane(key)
            self.lanes[key] = lane
            self.bytes_used += LANE_BYTES + len(key)
        return lane

    def enter(self, task: Task) -> None:
        """The task is READY now."""
        lane = self.lane(task.subqueue)
        self.last = lane
        task.subqueue = lane.key  # all tasks of a lane share one key object
        lane.order.push(task)
        if lane.taken == 0:
            self.list_head(lane)

    def known(self, key: bytes) -> Lane:
        """The sub-queue of a task that it has."""
        last = self.last
        if last is not None and last.key is key:
            return last
        lane = self.lanes[key]
        self.last = lane
        return lane

    def list_head(self, lane: Lane) -> None:
        """Put the first task of an idle lane among the heads, unless it stands there."""
        task = lane.order.first()
        if task is None or lane.listed == task.number:
            return
        lane.listed = task.number
        heappush(self.heads, (task.pri, task.number, lane.key))
        if len(self.heads) > 2 * len(self.lanes) + HEADS_SLACK:
            self.drop_stale()

    def drop_stale(self) -> None:
        """Make the heap of heads anew, without entries that no lane stands by."""
        heads: list[tuple[int, int, bytes]] = []
        for lane in self.lanes.values():
            task = lane.order.first()
            if lane.taken == 0 and task is not None:
                lane.listed = task.number
                heads.append((task.pri, task.number, lane.key))
        heapify(heads)
        self.heads = heads

    def first(self) -> Task | None:
        """The first task of an idle lane."""
        heads = self.heads
        while len(heads) > 0:
            number: i64 = heads[0][1]
            lane = self.lanes.get(heads[0][2])
            if lane is not None and lane.taken == 0 and lane.listed == number:
                self.last = lane
                return lane.order.first()
            heappop(heads)
        return None

    def took(self, task: Task) -> None:
        """`first` was taken: its lane is busy."""
        lane = self.known(task.subqueue)
        lane.order.pop()
        lane.taken += 1
        lane.listed = UNLISTED

    def left(self, task: Task) -> None:
        """A READY task of the lane is none any more."""
        lane = self.known(task.subqueue)
        lane.order.left()
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
        if lane.order.count > 0:
            self.list_head(lane)
        else:
            lane.order.compact()  # buried tasks of it may come back, to another lane
            del self.lanes[lane.key]
            self.last = None
            self.bytes_used -= LANE_BYTES + len(lane.key)

    def listing(self) -> list[Task]:
        """All READY tasks, those of busy lanes among them."""
        found: list[Task] = []
        for lane in self.lanes.values():
            found.extend(lane.order.listing())
        found.sort(key=place)
        return found

    def check(self, taken: list[Task]) -> None:
        """Assert that lanes and heads agree, and that no lane has two TAKEN tasks (T3.4)."""
        busy: dict[bytes, int] = {}
        for task in taken:
            assert task.subqueue not in busy, "two TAKEN tasks of one sub-queue"
            busy[task.subqueue] = 1
        used: i64 = 0
        for key, lane in self.lanes.items():
            used += LANE_BYTES + len(key)
            assert lane.taken == busy.get(key, 0), "busy sub-queue"
            listing = lane.order.listing()
            assert len(listing) == lane.order.count, "order of a sub-queue"
            assert lane.taken + lane.order.count > 0, "sub-queue without tasks"
            if lane.taken == 0:
                head = listing[0]
                assert lane.listed == head.number, "head of a sub-queue"
                assert (head.pri, head.number, key) in self.heads, "head without its place"
        for key in busy:
            assert key in self.lanes, "busy sub-queue is unknown"
        assert used == self.bytes_used, "bytes of sub-queues"


@final
class UTubeTtl(UTube):
    """Ascending (pri, number) of idle sub-queues, with ttl, ttr and delay."""

    def __init__(self) -> None:
        super().__init__()
        self.is_timed = True


def place(task: Task) -> tuple[int, int]:
    """Sort key of the order."""
    return task.pri, task.number
