"""One queue: the order of its jobs, waiting clients, its pause and its counters (SPEC G, V, P).

Ready jobs are in `items` in the order of (ctime, id), which is the order of arrival; the few
that come back (a retry, a NACK) are older than the tail and go to a heap. Taking the smaller
head of the two keeps the order. A job that leaves out of order only changes its state: its
stale entry is skipped when it reaches the head.
"""

from heapq import heapify, heappop, heappush
from typing import Final

from mypy_extensions import i64

from tuque.core.model.job import QUEUED, Job
from tuque.core.model.stats import NO_TALLY
from tuque.core.node.queue_policy import Policy
from tuque.core.tables.repair import Demand

PAUSE_IN: Final = 1
PAUSE_OUT: Final = 2
PAUSE_BCAST: Final = 4  # in the journal: it was broadcast to all nodes
QUEUE_BYTES: Final = 750  # an empty queue: its object, lists, table entries
PAUSE_NAMES: Final = [b"none", b"in", b"out", b"all"]

_GONE: Final = Job(b"", b"", b"", 0, 0, 0, 0, 0)  # fills slots already taken


class Queue:
    """Jobs of one name on this node. Tube types specialise it."""

    def __init__(self, name: bytes, serial: i64, now_ms: i64) -> None:
        self.name = name
        self.serial = serial  # order of creation on this node
        self.place: i64 = -1  # in the node's table, see core/node/tables.py
        self.ctime_ms: i64 = now_ms
        self.atime_ms: i64 = now_ms  # last enqueue or fetch
        self.check_ms: i64 = 0  # when it is looked whether it is idle (M4.1)
        self.items: list[Job] = []
        self.head: i64 = 0
        self.back: list[tuple[int, bytes, int, Job]] = []
        self.put_back: i64 = 0  # entries of `back` ever made; numbers them
        self.length: i64 = 0
        self.pause: i64 = 0
        self.jobs_in: i64 = 0
        self.jobs_out: i64 = 0
        self.waiters: dict[int, None] = {}  # client numbers, first come first
        self.is_ready = False  # in n.ready
        self.policy: Policy | None = None  # set for a tube
        self.demand: Demand | None = None  # its entry in n.demands, if any
        self.tally = NO_TALLY  # its own, once it is in the table
        self.reply_head = b"*3\r\n$%d\r\n%s\r\n$40\r\n" % (len(name), name)
        self.reply_name = b"$%d\r\n%s\r\n$40\r\n" % (len(name), name)  # of longer replies

    def push(self, job: Job) -> None:
        """Insert a job whose state is QUEUED already."""
        items = self.items
        size: i64 = len(items)
        if size == self.head or _before(items[size - 1], job):
            items.append(job)
        else:
            # A job can return while its old entry is still here: the number tells the two apart, as
            # jobs cannot be compared.
            self.put_back += 1
            heappush(self.back, (job.ctime_ns, job.id, int(self.put_back), job))
        self.length += 1
        self.drop_stale()

    def pop(self) -> Job | None:
        """Take the first job, None if there is none. The caller changes its state."""
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

    def next_ones(self) -> list[Job]:
        """What goes next, for figures: the first job. Of a tube there may be several (S2.4)."""
        job = self.first()
        return [] if job is None else [job]

    def advance(self) -> None:
        """Free the slot at the head; drop all free slots once there are many."""
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
        """A queued job left out of order; its state has changed already."""
        self.length -= 1
        if self.length == 0:
            self.items = []
            self.head = 0
            self.back = []
        else:
            self.drop_stale()

    def drop_stale(self) -> None:
        """Compact if most entries are stale: they keep removed jobs in memory."""
        size: i64 = len(self.items) - self.head + len(self.back)
        if size > 2 * self.length + 1024:
            self.compact()

    def compact(self) -> None:
        """Drop stale and duplicate entries."""
        items: list[Job] = []
        i = self.head
        while i < len(self.items):
            if self.items[i].state == QUEUED:
                items.append(self.items[i])
            i += 1
        back: list[tuple[int, bytes, int, Job]] = []
        seen: dict[bytes, None] = {}
        for entry in self.back:
            if entry[3].state == QUEUED and entry[1] not in seen:
                seen[entry[1]] = None
                back.append(entry)
        heapify(back)
        self.items = items
        self.head = 0
        self.back = back

    def peek(self, most: i64) -> list[Job]:
        """The first `most` jobs in order, without changes; reads no others."""
        found: list[Job] = []
        i = self.head
        while i < len(self.items) and len(found) < most:
            job = self.items[i]
            if job.state == QUEUED:
                found.append(job)
            i += 1
        if len(self.back) == 0:
            return found
        return _merge(found, _first(self.back, most), most)

    def peek_last(self, most: i64) -> list[Job]:
        """The last `most` jobs, newest first, without changes."""
        if len(self.back) > 0:
            return _merge(self.items[self.head :], self.back, self.length)[: -most - 1 : -1]
        found: list[Job] = []
        i: i64 = len(self.items) - 1
        while i >= self.head and len(found) < most:
            job = self.items[i]
            if job.state == QUEUED:
                found.append(job)
            i -= 1
        return found


def queue_bytes(q: Queue) -> i64:
    """Bytes the queue costs, without jobs and clients; its name is stored four times."""
    return QUEUE_BYTES + 4 * len(q.name)


def _before(a: Job, b: Job) -> bool:
    """Whether `a` comes first in queue order."""
    if a.ctime_ns != b.ctime_ns:
        return a.ctime_ns < b.ctime_ns
    return a.id < b.id


def _merge(found: list[Job], back: list[tuple[int, bytes, int, Job]], most: i64) -> list[Job]:
    """Merge `found` and the returned jobs, without duplicates, at most `most`."""
    keyed = [entry for entry in back if entry[3].state == QUEUED]
    for job in found:
        if job.state == QUEUED:
            keyed.append((job.ctime_ns, job.id, 0, job))
    keyed.sort(key=_order)
    merged: list[Job] = []
    for entry in keyed:
        if len(merged) == most:
            break
        if len(merged) == 0 or merged[len(merged) - 1] is not entry[3]:
            merged.append(entry[3])
    return merged


def _first(back: list[tuple[int, bytes, int, Job]], most: i64) -> list[tuple[int, bytes, int, Job]]:
    """The first `most` jobs of the heap, in order, without duplicates; reads only these entries."""
    found: list[tuple[int, bytes, int, Job]] = []
    edge: list[tuple[int, bytes, int, int]] = []
    at: i64 = 0
    size: i64 = len(back)
    last = b""
    while True:
        child: i64 = at
        while child < size and child <= at + 1:
            entry = back[child]
            heappush(edge, (entry[0], entry[1], entry[2], int(child)))
            child += 1
            if at == 0:
                break
        if len(edge) == 0 or len(found) == most:
            return found
        _, id, _, place = heappop(edge)
        if back[place][3].state == QUEUED and id != last:
            found.append(back[place])
            last = id
        at = 2 * i64(place) + 1


def _order(entry: tuple[int, bytes, int, Job]) -> tuple[int, bytes]:
    return entry[0], entry[1]
