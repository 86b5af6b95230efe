"""UPDATEJOB: change a job that waits (SPEC W10)."""

from typing import final

from mypy_extensions import i32, i64

from tuque.core.jobs.endings import life_of, record_job
from tuque.core.life.base import make_life, open_job
from tuque.core.model.job import ACTIVE, DELIVERED, LEASED, ONCE_QUEUED, QUEUED, Job, job_bytes
from tuque.core.model.life import LIVE, Life, Terms
from tuque.core.model.refusal import (
    ATTEMPTS_OF_ONCE,
    ATWORK,
    DEAD_LETTER,
    DELAY_BEYOND_TTL,
    DELIVERED_OUT,
    FEW_ATTEMPTS,
    HAS_COPIES,
    LEASED_WORK,
    Refusal,
)
from tuque.core.node.announce import set_due
from tuque.core.node.node import Node
from tuque.core.replication.replicate import begin


@final
class Update:
    """What an UPDATEJOB asks for; -1 and None leave a field as it is."""

    def __init__(self) -> None:
        self.body: bytes | None = None
        self.delay_ms: i64 = -1
        self.ttl_s: i64 = -1
        self.attempts: i64 = -1
        self.headers: bytes | None = None


def on_update(n: Node, id: bytes, update: Update) -> Refusal | None:
    """[W10] ON COMMAND UPDATEJOB: change a job that nobody works on (W10.1)."""
    job, refused = open_job(n, id)
    if job is None:
        return refused
    life = life_of(n, id)
    refused = why_not(n, job, life, update)
    if refused is not None:
        return refused
    if update.ttl_s >= 0:
        job.expire_ms = n.now_ms + update.ttl_s * 1000
        if life is not None:
            life.ttl_ms = update.ttl_s * 1000
        n.wheel.arm(job, n.now_ms)
    body = update.body
    if body is not None:
        n.job_bytes -= job_bytes(job)
        job.body = body
        n.job_bytes += job_bytes(job)
    if update.delay_ms >= 0:
        put_off(n, job, update.delay_ms)
    if update.attempts >= 0 or update.headers is not None:
        life = make_life(n, id)
        headers = update.headers
        if headers is not None:
            life.headers = headers
        if update.attempts >= 0:
            life.terms = n.life.share(with_attempts(life.terms, update.attempts))
        n.life.weigh(life)
    record_job(n, job)
    return None


def why_not(n: Node, job: Job, life: Life | None, update: Update) -> Refusal | None:
    """Why the job cannot be changed (W10.2); None: it can."""
    if job.flags & LEASED:
        return Refusal(LEASED_WORK)
    if life is not None and life.is_dead:
        return Refusal(DEAD_LETTER, (job.queue,))
    if life is not None and life.run_state == LIVE:
        return Refusal(ATWORK, (life.worker, int((n.now_ms - life.since_ms) // 1000)))
    is_resting = life is not None and life.is_resting
    is_out = job.state == ACTIVE and job.flags & DELIVERED and job.flags & ONCE_QUEUED
    if is_out and not is_resting:
        return Refusal(DELIVERED_OUT, (int((n.now_ms - job.last_ms) // 1000),))
    if job.holders != 1:
        return Refusal(HAS_COPIES)  # W10.3
    if update.attempts > 0 and job.retry_s == 0:
        return Refusal(ATTEMPTS_OF_ONCE)
    if life is not None and 0 <= update.attempts <= life.failed:
        return Refusal(FEW_ATTEMPTS, (int(life.failed),))  # W10.2
    if update.delay_ms > 0:
        left_ms = job.expire_ms - n.now_ms if update.ttl_s < 0 else update.ttl_s * 1000
        if update.delay_ms >= left_ms:
            return Refusal(DELAY_BEYOND_TTL)
    return None


def put_off(n: Node, job: Job, delay_ms: i64) -> None:
    """The job waits from now on for the delay; 0: it is queued now."""
    if job.state == QUEUED:
        if delay_ms == 0:
            return
        job.state = ACTIVE
        n.queues[job.queue].left()
    job.flags &= 0xFF ^ ONCE_QUEUED
    job.delay_s = i32((delay_ms + 999) // 1000)
    if delay_ms > 0:
        set_due(n, job, n.now_ms + delay_ms)
    else:
        job.qtime_ms = 0
        job.delay_s = 0
        begin(n, job)


def with_attempts(terms: Terms, attempts: i64) -> Terms:
    """The same terms with another limit."""
    return Terms(
        attempts,
        terms.first_ms,
        terms.max_ms,
        terms.jitter,
        terms.dead,
        terms.keep_ms,
        terms.limit_ms,
    )
