"""Types of tubes: in task order (fifo, fifottl, limfifottl), or with sub-queues (SPEC T3).

A sub-queue has at most one TAKEN task, and an order of its own. The first tasks of idle sub-queues
form one order, so that the cost of a take is independent of what waits behind busy ones.
"""

from typing import Final, final

from mypy_extensions import i64, mypyc_attr

from tuque.core.model.task import Task
from tuque.tubes.types.driver import Driver, Order, free_some, key_of, listing_of

LANE_BYTES: Final = 290  # measured: the lane, its list, its key object and its entries


@final
@mypyc_attr(acyclic=True)
class Lane(Order):
    """One sub-queue: the order of its READY tasks."""

    def __init__(self, key: bytes) -> None:
        super().__init__()
        self.key = key
        self.taken: i64 = 0
        self.shown: Task | None = None  # its first task, while that is one of the heads

    def cost(self) -> i64:
        """Memory of a lane without its tasks (M1)."""
        size: i64 = len(self.key)
        return LANE_BYTES + size


class UTube(Driver):
    """Ascending numbers of idle sub-queues; no times."""

    def __init__(self) -> None:
        super().__init__()
        self.is_keyed = True
        self.lanes: dict[bytes, Lane] = {}
        self.heads = Order()  # the first task of each idle lane
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
        lane.add(task)
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

    def show(self, sub: Lane) -> None:
        """The head of an idle sub-queue is its first task, if it has one."""
        task = sub.first()
        if task is not sub.shown:
            self.hide(sub)
            sub.shown = task
            if task is not None:
                self.heads.add(task)

    def hide(self, sub: Lane) -> None:
        """The sub-queue has no head."""
        if sub.shown is not None:
            self.heads.remove(sub.shown)
            sub.shown = None

    def first(self) -> Task | None:
        """The first head; what precedes it in its lane would precede it here."""
        return self.heads.first()

    def peek(self) -> Task | None:
        """As `first`, which decides nothing."""
        return self.first()

    def took(self, task: Task) -> None:
        """`first` was taken: its sub-queue is busy."""
        sub = self.known(task)
        self.hide(sub)
        sub.remove(task)
        sub.taken += 1

    def left(self, task: Task) -> None:
        """A READY task left its sub-queue out of turn."""
        sub = self.known(task)
        sub.remove(task)
        self.settle(sub)

    def freed(self, task: Task) -> None:
        """The sub-queue's task is TAKEN no longer."""
        sub = self.known(task)
        sub.taken -= 1
        self.settle(sub)

    def held(self, task: Task) -> None:
        """A task of the sub-queue is TAKEN."""
        sub = self.lane(task.subqueue)
        task.subqueue = sub.key
        self.hide(sub)
        sub.taken += 1

    def settle(self, sub: Lane) -> None:
        """An idle sub-queue shows its first task; an empty one is removed."""
        if sub.taken > 0:
            return
        self.show(sub)
        if sub.count == 0:
            del self.lanes[sub.key]
            self.last = None
            self.bytes_used -= sub.cost()

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

    def free(self, most: i64) -> None:
        """Free some sub-queues."""
        free_some([self.lanes], most)

    def check(self, taken: list[Task]) -> None:
        """Assert that lanes and heads agree, and that no lane has two TAKEN tasks (T3.4)."""
        busy: dict[bytes, int] = {}
        for task in taken:
            assert task.subqueue not in busy, "two TAKEN tasks of one sub-queue"
            busy[task.subqueue] = 1
        heads: list[Task] = []
        used: i64 = 0
        for key, lane in self.lanes.items():
            used += lane.cost()
            assert lane.taken == busy.get(key, 0), "busy sub-queue"
            listing = lane.listing()
            assert len(listing) == lane.count, "order of a sub-queue"
            assert lane.taken + lane.count > 0, "sub-queue without tasks"
            assert lane.shown is (listing[0] if lane.taken == 0 else None), "head of a sub-queue"
            if lane.taken == 0:
                heads.append(listing[0])
        assert self.heads.listing() == sorted(heads, key=key_of), "heads of the sub-queues"
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
