"""The tables of jobs and queues: found by name, and walked in slices (SPEC S4, S5).

Each dict has a list of the same elements without gaps. An element knows its position; when it
leaves, the last one takes its place. A walk goes from the end to the start: elements not met
yet are before it and only move towards the start. So it meets everything that stays throughout
at least once, needs no copy, and its cursor is a number.
"""

from mypy_extensions import i32, i64

from tuque.core.model.job import ACKED, Job
from tuque.core.node.node import Node
from tuque.core.node.queue import Queue, queue_bytes


def enter_job(n: Node, job: Job) -> None:
    """Put a job into the table; its id must be new there."""
    job.place = i32(len(n.job_list))
    n.job_list.append(job)
    n.jobs[job.id] = job
    n.jobs_of[job.queue] = n.jobs_of.get(job.queue, 0) + 1


def leave_job(n: Node, job: Job) -> None:
    """Take a job out of the table."""
    del n.jobs[job.id]
    left = n.jobs_of[job.queue] - 1
    if left > 0:
        n.jobs_of[job.queue] = left
    else:
        del n.jobs_of[job.queue]
    last = n.job_list.pop()
    if last is not job:
        n.job_list[job.place] = last
        last.place = job.place
    job.place = -1


def rehouse(n: Node, job: Job, queue: bytes) -> Job:
    """The job, queued nowhere now, belongs to another queue; returns its new record.

    The old record may still stand in the order list of the old queue: it stays behind as acked, so
    that nobody takes it from there.
    """
    fresh = Job(
        job.id,
        queue,
        job.body,
        job.ctime_ns,
        job.expire_ms,
        job.retry_s,
        job.delay_s,
        job.repl,
    )
    fresh.state = job.state
    fresh.flags = job.flags
    fresh.marks = job.marks
    fresh.why = job.why
    fresh.nacks = job.nacks
    fresh.deliveries = job.deliveries
    fresh.delivered_count = job.delivered_count
    fresh.qtime_ms = job.qtime_ms
    fresh.first_ms = job.first_ms
    fresh.last_ms = job.last_ms
    fresh.holders = job.holders
    fresh.confirmed = job.confirmed
    n.wheel.cancel(job)
    leave_job(n, job)
    job.state = ACKED
    enter_job(n, fresh)
    n.wheel.arm(fresh, n.now_ms)
    return fresh


def swap_job(n: Node, job: Job, fresh: Job) -> None:
    """The new record of a job takes the place of the old one, in its queue."""
    fresh.place = job.place
    n.job_list[job.place] = fresh
    n.jobs[job.id] = fresh
    job.place = -1


def enter_queue(n: Node, q: Queue) -> None:
    """Put a queue into the table; its name must be new there."""
    q.place = len(n.queue_list)
    n.queue_list.append(q)
    n.queues[q.name] = q
    n.queue_bytes += queue_bytes(q)


def leave_queue(n: Node, q: Queue) -> None:
    """Take a queue out of the table."""
    del n.queues[q.name]
    last = n.queue_list.pop()
    if last is not q:
        n.queue_list[q.place] = last
        last.place = q.place
    q.place = -1
    n.queue_bytes -= queue_bytes(q)


def check_table(n: Node) -> None:
    """Assert that dicts and lists have the same elements."""
    assert len(n.job_list) == len(n.jobs), "places of jobs"
    for i, job in enumerate(n.job_list):
        assert i64(job.place) == i, "place of a job"
        assert n.jobs[job.id] is job, "job without its name"
    counts: dict[bytes, int] = {}
    for job in n.job_list:
        counts[job.queue] = counts.get(job.queue, 0) + 1
    assert counts == n.jobs_of, "jobs of a queue"
    assert len(n.queue_list) == len(n.queues), "places of queues"
    total: i64 = 0
    for i, q in enumerate(n.queue_list):
        assert q.place == i, "place of a queue"
        assert n.queues[q.name] is q, "queue without its name"
        total += queue_bytes(q)
    assert total == n.queue_bytes, "bytes of queues"
