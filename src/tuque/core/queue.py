"""One queue: the order of its jobs, who waits for them, its pause and its counters (SPEC G, V, P).

Ready jobs lie in `items` in the order of (ctime, id), which is the order they arrive
in; the few that come back (a retry, a NACK) are older than the tail and go to a heap.
Taking the smaller head of the two keeps the order. Leaving the queue out of turn only
changes the job's state: the stale entry is passed over when it reaches the head.
"""

from heapq import heappop, heappush
from typing import Final

from mypy_extensions import i64

from tuque.core.demand import Demand
from tuque.core.job import QUEUED, Job
from tuque.core.policy import Policy

PAUSE_IN: Final = 1
PAUSE_OUT: Final = 2
PAUSE_BCAST: Final = 4  # in the journal: it was told to all nodes
PAUSE_NAMES: Final = [b"none", b"in", b"out", b"all"]

_GONE: Final = Job(b"", b"", b"", 0, 0, 0, 0, 0)  # fills slots already taken


class Queue:
    """Jobs of one name on this node. Tube types specialise it."""

    def __init__(self, name: bytes, serial: i64, now_ms: i64) -> None:
        self.name = name
        self.serial = serial  # order of creation on this node, the cursor of QSCAN
        self.ctime_ms: i64 = now_ms
        self.atime_ms: i64 = now_ms  # last enqueue or fetch
        self.items: list[Job] = []
        self.head: i64 = 0
        self.back: list[tuple[int, bytes, int, Job]] = []
        self.put_back: i64 = 0  # entries of `back` ever made, each has another number
        self.length: i64 = 0
        self.pause: i64 = 0
        self.jobs_in: i64 = 0
        self.jobs_out: i64 = 0
        self.waiters: dict[int, None] = {}  # client numbers, first come first
        self.is_ready = False  # stands in n.ready
        self.policy: Policy | None = None  # a tube has one
        self.demand: Demand | None = None  # n.demands' record, when there is one
        self.reply_head = b"*3\r\n$%d\r\n%s\r\n$40\r\n" % (len(name), name)
        self.reply_head7 = b"*7\r\n$%d\r\n%s\r\n$40\r\n" % (len(name), name)

    def push(self, job: Job) -> None:
        """Put a job in its place; its state is QUEUED already."""
        items = self.items
        size: i64 = len(items)
        if size == self.head or _before(items[size - 1], job):
            items.append(job)
        else:
            # A job that left may come again while its old entry is still there: the number
            # tells the two apart, for jobs have no order of their own.
            self.put_back += 1
            heappush(self.back, (job.ctime_ns, job.id, int(self.put_back), job))
        self.length += 1
        self.drop_stale()

    def pop(self) -> Job | None:
        """Take the first job, None when there is none. The caller changes its state."""
        job = self.first()
        if job is None:
            return None
        if len(self.back) > 0 and self.back[0][3] is job:
            heappop(self.back)
        else:
            self.advance()
        self.length -= 1
        return job

    def first(self) -> Job | None:
        """The job that `pop` would take."""
        items = self.items
        while self.head < len(items) and items[self.head].state != QUEUED:
            self.advance()
        back = self.back
        while len(back) > 0 and back[0][3].state != QUEUED:
            heappop(back)
        if self.head < len(items):
            job = items[self.head]
            if len(back) == 0 or not _before(back[0][3], job):
                return job
        if len(back) > 0:
            return back[0][3]
        return None

    def advance(self) -> None:
        """Give up the slot at the head, and the slots before it when they are many."""
        items = self.items
        items[self.head] = _GONE
        self.head += 1
        if self.head == len(items):
            items.clear()
            self.head = 0
        elif self.head >= 1024 and self.head * 2 >= len(items):
            del items[: self.head]
            self.head = 0

    def left(self) -> None:
        """A queued job left out of turn (its state has changed already)."""
        self.length -= 1
        if self.length == 0:
            self.items = []
            self.head = 0
            self.back = []
        else:
            self.drop_stale()

    def drop_stale(self) -> None:
        """Compact when most entries are stale: they keep jobs in memory that are gone."""
        size: i64 = len(self.items) - self.head + len(self.back)
        if size > 2 * self.length + 1024:
            self.compact()

    def compact(self) -> None:
        """Drop stale and doubled entries."""
        self.items = self.peek(self.length)
        self.head = 0
        self.back = []

    def peek(self, most: i64) -> list[Job]:
        """The first `most` jobs in order, nothing changed."""
        found: list[Job] = []
        i = self.head
        while i < len(self.items) and len(found) < most:
            job = self.items[i]
            if job.state == QUEUED:
                found.append(job)
            i += 1
        if len(self.back) == 0:
            return found
        return _merge(found, self.back, most)

    def peek_last(self, most: i64) -> list[Job]:
        """The last `most` jobs, newest first, nothing changed."""
        if len(self.back) > 0:
            return self.peek(self.length)[: -most - 1 : -1]
        found: list[Job] = []
        i: i64 = len(self.items) - 1
        while i >= self.head and len(found) < most:
            job = self.items[i]
            if job.state == QUEUED:
                found.append(job)
            i -= 1
        return found


def _before(a: Job, b: Job) -> bool:
    """Whether `a` comes first in queue order."""
    if a.ctime_ns != b.ctime_ns:
        return a.ctime_ns < b.ctime_ns
    return a.id < b.id


def _merge(found: list[Job], back: list[tuple[int, bytes, int, Job]], most: i64) -> list[Job]:
    """`found` and the returned jobs in one order, each once, at most `most`."""
    keyed = [entry for entry in back if entry[3].state == QUEUED]
    for job in found:
        keyed.append((job.ctime_ns, job.id, 0, job))
    keyed.sort(key=_order)
    merged: list[Job] = []
    for entry in keyed:
        if len(merged) == most:
            break
        if len(merged) == 0 or merged[len(merged) - 1] is not entry[3]:
            merged.append(entry[3])
    return merged


def _order(entry: tuple[int, bytes, int, Job]) -> tuple[int, bytes]:
    return entry[0], entry[1]
