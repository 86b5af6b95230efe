"""Jobs return to their queue, or later: NACK, ENQUEUE, DEQUEUE, WORKING (SPEC Q)."""

from mypy_extensions import i64

from tuque.core.model.errors import (
    ACKED_ALREADY,
    LEASED_OUT,
    NOJOB,
    NOTDELIVERED,
    TOOLATE,
    Refusal,
)
from tuque.core.model.job import (
    ACTIVE,
    DELIVERED,
    IN_TRANSIT,
    ONCE_QUEUED,
    OUT_HERE,
    QUEUED,
    WAIT_REPL,
    Job,
)
from tuque.core.model.stats import BY_NACK
from tuque.core.model.task import Task
from tuque.core.msgs.bus import COUNT_NACK
from tuque.core.node.node import Node
from tuque.core.node.peers import send_resting, set_due, tell_queued, tell_working
from tuque.core.queues.procedures import (
    REQUEUE_ENQUEUE,
    REQUEUE_NACK,
    dequeue,
    may_enqueue,
    policy_of,
    requeue,
    retry_due_ms,
)
from tuque.core.tables.leases import is_leased


def is_delayed(n: Node, job: Job) -> bool:
    """Whether the job is in its first delay.

    A copy is due up to RETRY + 500 ms after the delay: in that span the creation time decides
    (Q6.1), by the clock of the node that made the job.
    """
    if job.flags & DELIVERED:
        return False
    if job.flags & ONCE_QUEUED == 0:
        return True
    if job.delay_s == 0:
        return False
    last_ms = job.qtime_ms - i64(job.retry_s) * 1000
    if last_ms - 500 > n.now_ms:
        return True
    return last_ms > n.now_ms and job.ctime_ns // 1_000_000 + i64(job.delay_s) * 1000 > n.now_ms


def on_nack(n: Node, id: bytes, delay_ms: i64, client: i64 = -1) -> bool:
    """[Q6] ON COMMAND NACK: return a job to its queue, now or after the delay."""
    job = n.jobs.get(id)
    if isinstance(job, Task):
        return policy_of(n).nack(n, job, delay_ms, client)
    if job is None or not may_enqueue(job):
        return False
    if is_delayed(n, job):  # Q6.1
        return False
    if delay_ms <= 0:
        requeue(n, job, REQUEUE_NACK)
        return True
    job.nacks += 1
    n.nacks += 1
    n.book.requeue(job, BY_NACK)
    job.flags &= 0xFF ^ ONCE_QUEUED  # Q6.2: this counts as a nack: do not count the enqueue
    set_due(n, job, n.now_ms + delay_ms)  # Q6.3: past its expiry the job ends first
    if job.holders != 1:
        send_resting(n, job, delay_ms, COUNT_NACK)  # Q6.2
    if n.records is not None:
        n.records.state(job)
    if n.events is not None:
        n.events.nacked(n.now_ms, job)  # Q6.4
    return True


def on_enqueue(n: Node, id: bytes) -> bool:
    """[Q5] ON COMMAND ENQUEUE: queue an active job now, whatever its delay."""
    job = n.jobs.get(id)
    if isinstance(job, Task):
        return policy_of(n).enqueue(n, job)
    if job is None or not may_enqueue(job):
        return False
    requeue(n, job, REQUEUE_ENQUEUE)  # Q5.1
    return True


def on_dequeue(n: Node, id: bytes) -> bool:
    """[Q7] ON COMMAND DEQUEUE: a queued job becomes active; it is due again after RETRY."""
    job = n.jobs.get(id)
    if job is None or job.state != QUEUED or isinstance(job, Task):
        return False
    dequeue(n, job)  # Q7.1
    if job.holders != 1:
        tell_queued(n, job, 0)
    if n.records is not None:
        n.records.state(job)
    return True


def on_working(n: Node, id: bytes, client: i64 = -1) -> Refusal | None:
    """[Q8] ON COMMAND WORKING: the next delivery is RETRY from now. None: accepted."""
    job = n.jobs.get(id)
    if isinstance(job, Task):
        return policy_of(n).working(n, job, client)
    if job is None:
        return Refusal(NOJOB)  # Q8.1
    if job.state != ACTIVE and job.state != QUEUED:
        return Refusal(NOTDELIVERED if job.state == WAIT_REPL else ACKED_ALREADY)  # Q8.2
    if not may_be_at_work(n, job):
        return Refusal(NOTDELIVERED)  # Q8.3
    if is_leased(job):
        return Refusal(LEASED_OUT)  # Y6.2
    created_ms = job.ctime_ns // 1_000_000
    if n.now_ms - created_ms > (job.expire_ms - created_ms) // 2:
        return Refusal(TOOLATE)  # Q8.4
    postpone(n, job)
    return None


def may_be_at_work(n: Node, job: Job) -> bool:
    """[Q8] Whether a worker may have the open job: a delivery elsewhere may be unannounced (Q8.3).

    A worker got the id from that delivery or from the producer.
    """
    if job.flags & DELIVERED:
        return True
    if len(n.peers) == 1:
        return False
    if job.retry_s == 0:
        return job.flags & IN_TRANSIT != 0
    return job.state == QUEUED or not is_delayed(n, job)


def postpone(n: Node, job: Job) -> None:
    """Restart the retry time of a delivered job; never shortens it (Q8.5)."""
    if job.state == QUEUED:
        dequeue(n, job)
    if job.retry_s > 0:
        job.flags |= DELIVERED
        due_ms = retry_due_ms(n, job)
        if due_ms > job.qtime_ms:
            set_due(n, job, due_ms, OUT_HERE)
        else:
            job.marks = OUT_HERE
            n.book.arm(job)
        if job.holders != 1:
            tell_working(n, job, job.qtime_ms - n.now_ms)  # Q8.6
    if n.records is not None:
        n.records.state(job)
