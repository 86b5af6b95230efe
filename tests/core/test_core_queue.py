"""A queue's order against a sorted list (SPEC G)."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from both_ways import thorough
from tuque.core.model.job import ACTIVE, LEVEL, LEVEL_MAX, QUEUED, Job
from tuque.core.model.rows import ROW
from tuque.core.node.queue import Queue

LEVELS = st.sampled_from([LEVEL, LEVEL, LEVEL, 0, 2, LEVEL_MAX])


class QueueAgainstList(RuleBasedStateMachine):
    """Push, pop, leave and come back, compared with a plain sorted list."""

    def __init__(self) -> None:
        super().__init__()
        self.queue = Queue(b"q", 1, 0)
        self.inside: list[Job] = []
        self.outside: list[Job] = []
        self.made = 0

    def expected(self) -> list[Job]:
        """What the queue should hold, in order."""
        return sorted(self.inside, key=lambda job: (job.level, job.ctime_ns, job.id))

    @rule(stamp=st.integers(0, 50), level=LEVELS)
    def push_new(self, stamp: int, level: int) -> None:
        job = Job(b"%040d" % self.made, b"q", b"", self.made * 2 - stamp, 1 << 50, 1, 0, 1)
        job.level = level
        self.made += 1
        job.state = QUEUED
        self.queue.push(job)
        self.inside.append(job)

    @precondition(lambda self: self.outside)
    @rule(which=st.integers(0, 10**6))
    def push_back(self, which: int) -> None:
        job = self.outside.pop(which % len(self.outside))
        job.state = QUEUED
        self.queue.push(job)
        self.inside.append(job)

    @precondition(lambda self: self.outside)
    @rule(which=st.integers(0, 10**6))
    def come_again(self, which: int) -> None:
        """The node forgot the job and was sent it again: the same id, another object."""
        old = self.outside.pop(which % len(self.outside))
        job = Job(old.id, b"q", b"", old.ctime_ns, 1 << 50, 1, 0, 1)
        job.level = old.level
        job.state = QUEUED
        self.queue.push(job)
        self.inside.append(job)

    @precondition(lambda self: self.inside)
    @rule(which=st.integers(0, 10**6))
    def leave(self, which: int) -> None:
        job = self.inside.pop(which % len(self.inside))
        job.state = ACTIVE
        self.queue.left(job)
        self.outside.append(job)

    @rule()
    def pop(self) -> None:
        job = self.queue.pop()
        if not self.inside:
            assert job is None
            return
        assert job is self.expected()[0]
        job.state = ACTIVE
        self.inside.remove(job)
        self.outside.append(job)

    @rule(count=st.integers(1, 5))
    def peek(self, count: int) -> None:
        ordered = self.expected()
        assert self.queue.peek(count) == ordered[:count]
        assert self.queue.peek_last(count) == ordered[::-1][:count]

    @rule()
    def next_ones(self) -> None:
        firsts = {job.level: job for job in reversed(self.expected())}
        assert self.queue.next_ones() == [firsts[level] for level in sorted(firsts)]

    @invariant()
    def length_is_right(self) -> None:
        assert self.queue.jobs.is_ordered()
        assert self.queue.length == len(self.inside)


QueueAgainstList.TestCase.settings = settings(
    max_examples=thorough(60), stateful_step_count=60, deadline=None
)
TestQueue = QueueAgainstList.TestCase


def test_nothing_is_kept_of_jobs_that_left() -> None:
    """Jobs that left out of turn are not kept alive by the queue."""
    queue = Queue(b"q", 1, 0)
    jobs = [Job(b"%040d" % n, b"q", b"", n, 1 << 50, 1, 0, 1) for n in range(20_000)]
    for job in jobs:
        job.state = QUEUED
        queue.push(job)
    for job in jobs[1:]:
        job.state = ACTIVE
        queue.left(job)
    assert queue.length == queue.jobs.count == 1
    assert len(queue.jobs.items) <= ROW and len(queue.jobs.rows) == 0
    assert queue.pop() is jobs[0]


def test_a_job_that_is_sent_again_has_its_old_place() -> None:
    """The same id, another object: what was left is not there any more."""
    queue = Queue(b"q", 1, 0)

    def push(number: int) -> Job:
        job = Job(b"%040d" % number, b"q", b"", number, 1 << 50, 0, 0, 1)
        job.state = QUEUED
        queue.push(job)
        return job

    last, old = push(9), push(1)
    old.state = ACTIVE
    queue.left(old)
    new = push(1)
    assert queue.length == 2
    assert [queue.pop(), queue.pop(), queue.pop()] == [new, last, None]


def test_a_long_queue_of_many_levels_is_in_order() -> None:
    """G3.2: rows of jobs are cut and joined, and each level is found among them."""
    queue = Queue(b"q", 1, 0)
    jobs = []
    for number in range(9 * ROW):
        job = Job(b"%040d" % number, b"q", b"", number, 1 << 50, 0, 0, 1)
        job.level = number * 7 % 5 * 2
        job.state = QUEUED
        queue.push(job)
        jobs.append(job)
    ordered = sorted(jobs, key=lambda job: (job.level, job.ctime_ns))
    assert queue.peek(9 * ROW) == ordered
    assert queue.next_ones() == [
        next(one for one in jobs if one.level == at) for at in range(0, 9, 2)
    ]
    assert queue.jobs.is_ordered()
    ordered[3].level = 9
    assert not queue.jobs.is_ordered()
    ordered[3].level = ordered[2].level
    assert [queue.pop() for _ in jobs] == ordered
