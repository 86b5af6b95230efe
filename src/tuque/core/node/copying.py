"""New jobs that are alike share the message that takes their copies to other nodes (SPEC R1.12).

A turn of many producers adds jobs with one queue and the same options. Their common fields are
made, encoded, decoded and checked once.
"""

from typing import Final

from mypy_extensions import i64

from tuque.core.model.job import Job
from tuque.core.msgs.bus import ReplJob, ReplJobs
from tuque.core.node.node import Copying, Node

BODY_MAX: Final = 4_096  # bytes of a body in a shared message
SIZE_MAX: Final = 65_536  # bytes of all its bodies


def is_plain(n: Node, job: Job) -> bool:
    """Whether a shared message has all that a copy of the job needs."""
    if len(job.body) > BODY_MAX or job.nacks != 0 or job.deliveries != 0:
        return False
    return not n.has_lives or job.id not in n.life.by_id


def lead(n: Node, job: Job, slots: list[int], mode: i64, due_ms: i64, message: ReplJob) -> None:
    """The message with the copies of this job was put into these outboxes: others may join it."""
    last = n.copying
    last.message = message
    last.first = job
    last.size = len(job.body)
    last.slots = 0
    for slot in slots:
        last.slots |= 1 << i64(slot)
    last.holders = job.holders
    last.left_ms = job.expire_ms - n.now_ms
    last.due_ms = due_ms
    last.mode = mode


def joins(n: Node, job: Job, slots: list[int], mode: i64, due_ms: i64) -> bool:
    """Put copies of a plain job into the message of the last one, if it may; False: it may not."""
    last = n.copying
    message = last.message
    size: i64 = len(job.body)
    if message is None or last.size + size > SIZE_MAX:
        return False
    if mode != last.mode or due_ms != last.due_ms or not is_alike(n, job, last):
        return False
    mask: i64 = 0
    for slot in slots:
        outbox = n.peers[slot].outbox
        if len(outbox) == 0 or outbox[len(outbox) - 1] is not message:
            return False  # it has left, or something was said after it
        mask |= 1 << i64(slot)
    if mask != last.slots:
        return False
    if type(message) is ReplJob:
        last.others = []
        last.message = ReplJobs(message, last.others)
        for slot in slots:
            outbox = n.peers[slot].outbox
            outbox[len(outbox) - 1] = last.message
    last.others.append((job.id, job.body, job.ctime_ns))
    last.size += size
    return True


def is_alike(n: Node, job: Job, last: Copying) -> bool:
    """Whether the job has the queue, the options and the holders of the last new job."""
    first = last.first
    return (
        first is not None
        and job.queue == first.queue
        and job.holders == last.holders
        and job.expire_ms - n.now_ms == last.left_ms
        and job.retry_s == first.retry_s
        and job.delay_s == first.delay_s
        and job.repl == first.repl
    )
