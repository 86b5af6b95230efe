"""Time and work: timers of jobs in four rings, alarms, and units of work in one turn (SPEC G5, L2).

Each ring of slots is coarser than the one before. A job is in one slot and knows its position
there: cancelling is O(1) and leaves nothing behind, so a million jobs acked within seconds do not
stay in memory for their TTL. When a coarse slot begins, its jobs move to finer ones. A timer never
fires early, and at most two fine slots (16 ms) late.
"""

from collections import deque
from heapq import heappop, heappush
from typing import Final, final

from mypy_extensions import i32, i64

from tuque.core.model.job import Job, awake_ms
from tuque.core.model.stats import Book

FINE_MS: Final = 8  # width of a slot of the finest ring
NEVER_MS: Final = (1 << 62) - 1  # largest int that mypyc stores unboxed

# A slot's key is the low bits of its number, so that a job stores it in 32 bits. Keys of the
# finest ring repeat after 49 days; overdue timers count as half of that at most.
KEY_MASK: Final = 0x7FFFFFFF
OVERDUE_MS: Final = 1 << 31

Slots = dict[int, list[Job]]

# The work of one turn, counted in units; longer commands continue in the next turn (L2). A unit is
# one job, queue, client or word that is read or changed; what costs more counts as several. Only
# long paths are counted: a command about one job is free.
TURN_WORK: Final = 5_000  # units of all long commands together in one turn
TURN_NS: Final = 5_000_000  # of work after which a turn counts as done, whatever it has counted
PIECE: Final = 1_000  # units of one of them before the next one gets its share
REPLY_BYTES: Final = 4 << 20  # a reply with many elements ends after the one that exceeds it


def level_of(wait_ms: i64) -> i64:
    """The ring for a timer that far ahead: slots of 8 ms, 512 ms, 33 s and 35 min."""
    if wait_ms < 2_048:
        return 0
    if wait_ms < 131_072:
        return 1
    if wait_ms < 8_388_608:
        return 2
    return 3


def shift_of(level: i64) -> i64:
    """log2 of the slot width in ms."""
    return 3 + level * 6


@final
class Wheel:
    """All job timers of one node. A slot's key is its number * 4 + its level, cut to 31 bits."""

    def __init__(self, book: Book | None = None) -> None:
        self.book = Book() if book is None else book
        self.slots: Slots = {}
        self.starts: list[tuple[int, int]] = []  # heap of (first instant, key), one per slot
        self.count: i64 = 0
        self.has_first = False  # the next two are known
        self.first_ms: i64 = NEVER_MS  # when the first slot that is not empty has work
        self.first_jobs: list[Job] = []  # the jobs in it
        self.key0: i64 = -1  # the two latest slots: bursts of jobs share theirs
        self.jobs0: list[Job] = []
        self.key1: i64 = -1
        self.jobs1: list[Job] = []

    def slot(self, full: i64) -> list[Job]:
        """The list of the slot with that number and level, created if absent."""
        key: i64 = full & KEY_MASK
        if key == self.key0:
            return self.jobs0
        if key == self.key1:
            return self.jobs1
        jobs = self.slots.get(key)
        if jobs is None:
            jobs = []
            self.slots[key] = jobs
            level: i64 = full & 3
            heappush(self.starts, ((full >> 2) << shift_of(level), full))
            self.has_first = False
        self.key1 = self.key0
        self.jobs1 = self.jobs0
        self.key0 = key
        self.jobs0 = jobs
        return jobs

    def arm(self, job: Job, now_ms: i64) -> None:
        """Set or reset the job's timer according to its fields, and count what it is now."""
        self.book.arm(job)
        self.set(job, awake_ms(job), now_ms)

    def set(self, job: Job, at_ms: i64, now_ms: i64) -> None:
        """Set or reset the job's timer to that instant, which its fields say."""
        if at_ms + OVERDUE_MS < now_ms:
            at_ms = now_ms - OVERDUE_MS
        level = level_of(at_ms - now_ms)
        full: i64 = ((at_ms >> shift_of(level)) << 2) | level
        key = i32(full & KEY_MASK)
        if job.slot == key:
            return
        if job.slot >= 0:
            self.cancel(job)
        jobs = self.slot(full)
        job.slot = key
        job.slot_pos = i32(len(jobs))
        jobs.append(job)
        self.count += 1

    def cancel(self, job: Job) -> None:
        """Take the job out of its slot; no-op if it has no timer."""
        if job.slot < 0:
            return
        jobs = self.slot(i64(job.slot))
        last = jobs.pop()
        if last is not job:
            jobs[job.slot_pos] = last
            last.slot_pos = job.slot_pos
        job.slot = -1
        self.count -= 1

    def next_ms(self) -> i64:
        """The instant at which `due` next has work; NEVER_MS: no timer is set."""
        if self.has_first and len(self.first_jobs) > 0:
            return self.first_ms
        while len(self.starts) > 0:
            start, key = self.starts[0]
            jobs = self.slots[key & KEY_MASK]
            if len(jobs) == 0:
                self.drop_first()
                continue
            self.has_first = True
            self.first_jobs = jobs
            self.first_ms = start if key & 3 else start + FINE_MS
            return self.first_ms
        return NEVER_MS

    def drop_first(self) -> None:
        """Drop the first slot, which is empty."""
        self.has_first = False
        _, full = heappop(self.starts)
        key: i64 = full & KEY_MASK
        del self.slots[key]
        if key == self.key0:
            self.key0 = -1
        if key == self.key1:
            self.key1 = -1

    def due(self, now_ms: i64, most: i64) -> list[Job]:
        """Up to `most` jobs that are due, their timers cancelled; as many move to finer slots."""
        fired: list[Job] = []
        room = most
        while len(self.starts) > 0 and len(fired) < most and room > 0:
            start, key = self.starts[0]
            jobs = self.slots[key & KEY_MASK]
            if len(jobs) == 0:
                self.drop_first()
                continue
            if key & 3:
                if start > now_ms:
                    break
                room = self.deal_out(jobs, now_ms, room)
            else:
                if start + FINE_MS > now_ms:
                    break
                self.fire(jobs, fired, most)
        return fired

    def deal_out(self, jobs: list[Job], now_ms: i64, room: i64) -> i64:
        """Move up to `room` jobs of a starting coarse slot into finer ones; the room left."""
        while len(jobs) > 0 and room > 0:
            job = jobs[len(jobs) - 1]
            self.cancel(job)
            self.arm(job, now_ms)
            room -= 1
        return room

    def fire(self, jobs: list[Job], fired: list[Job], most: i64) -> None:
        """Take jobs out of a fine slot that has passed: all are due."""
        while len(jobs) > 0 and len(fired) < most:
            job = jobs[len(jobs) - 1]
            self.cancel(job)
            fired.append(job)


@final
class Alarms:
    """An instant for each slot, NEVER_MS: none. The least is known without a look at the others."""

    def __init__(self, slots: i64) -> None:
        self.at_ms: list[int] = [NEVER_MS] * int(slots)
        self.least_ms: i64 = NEVER_MS  # none of them is before it
        self.is_old = False  # the slot that had the least has a later instant now

    def at(self, slot: i64) -> i64:
        """The instant of the slot."""
        return self.at_ms[slot]

    def set(self, slot: i64, at_ms: i64) -> None:
        """Set the slot's instant, or move it."""
        before: i64 = self.at_ms[slot]
        if at_ms == before:
            return
        self.at_ms[slot] = int(at_ms)
        if at_ms <= self.least_ms:
            self.least_ms = at_ms
            self.is_old = False
        elif before == self.least_ms:
            self.is_old = True

    def unset(self, slot: i64) -> None:
        """The slot has no instant any more."""
        self.set(slot, NEVER_MS)

    def next_ms(self) -> i64:
        """The least of them; NEVER_MS: none is set."""
        if self.is_old:
            self.is_old = False
            least: i64 = NEVER_MS
            for at_ms in self.at_ms:
                if at_ms < least:
                    least = at_ms
            self.least_ms = least
        return self.least_ms


# ---- When producers that wait for copies are due for a check (SPEC R4)
#
# Knows ids and instants only.


@final
class Batch:
    """The jobs of one instant."""

    def __init__(self, at_ms: i64) -> None:
        self.at_ms = at_ms
        self.ids: list[bytes] = []


@final
class Steps:
    """Ids of jobs by the instant of their next step; instants only grow.

    The jobs of a turn share theirs, so that one costs an append.
    """

    def __init__(self) -> None:
        self.batches: deque[Batch] = deque()
        self.last: Batch | None = None  # of them
        self.first_ms: i64 = NEVER_MS  # of the first; each turn asks several times

    def put(self, at_ms: i64, id: bytes) -> None:
        """Look at the job at that instant, which is no earlier than those before."""
        last = self.last
        if last is None or last.at_ms != at_ms:
            last = Batch(at_ms)
            self.batches.append(last)
            self.last = last
            if at_ms < self.first_ms:
                self.first_ms = at_ms
        last.ids.append(id)

    def next_ms(self) -> i64:
        """The first instant; NEVER_MS: there is none."""
        return self.first_ms

    def take(self, now_ms: i64) -> list[bytes]:
        """The jobs of the first instant that has come, which leave; none: it has not."""
        if self.first_ms > now_ms:
            return []
        first = self.batches.popleft()
        if first is self.last:
            self.last = None
            self.first_ms = NEVER_MS
        else:
            self.first_ms = self.batches[0].at_ms
        return first.ids
