"""UPDATEJOB: what it changes, and of which jobs (SPEC W10). core/life/change.py begins it."""

from typing import Final

from mypy_extensions import i32, i64

from tuque.core.jobs.endings import life_of, record_job
from tuque.core.jobs.life_copies import set_body
from tuque.core.life.base import make_life, open_job
from tuque.core.life.holds import is_out_at
from tuque.core.model.add_spec import Update
from tuque.core.model.job import ACTIVE, DELIVERED, LEASED, ONCE_QUEUED, QUEUED, Job
from tuque.core.model.life import LIVE, NEVER_S, Life, Terms, hash_of
from tuque.core.model.refusal import (
    ATTEMPTS_OF_ONCE,
    ATWORK,
    CANCELLED_JOB,
    DEAD_LETTER,
    DELAY_BEYOND_TTL,
    DELAY_FOR_EVER,
    DELIVERED_OUT,
    FEW_ATTEMPTS,
    HAS_COPIES,
    LEASED_WORK,
    Refusal,
)
from tuque.core.node.announce import set_due
from tuque.core.node.node import Node
from tuque.core.replication.replicate import begin

EDIT_BITS: Final = 31
DELAY_MAX_S: Final = 0x7FFFFFFF


def why_not_updated(n: Node, id: bytes, update: Update) -> Refusal | None:
    """Why the job cannot be changed (W10.2); None: it can."""
    job, refused = open_job(n, id)
    return refused if job is None else why_not(n, job, life_of(n, id), update)


def update_job(n: Node, job: Job, update: Update) -> None:
    """[W10] Change a job that nobody works on (W10.1)."""
    life = life_of(n, job.id)
    if update.ttl_s >= 0:
        job.expire_ms = n.now_ms + update.ttl_s * 1000
        if life is not None:
            life.ttl_ms = update.ttl_s * 1000
        n.wheel.arm(job, n.now_ms)
    body = update.body
    if body is not None:
        set_body(n, job, body)
    if update.delay_ms >= 0:
        put_off(n, job, update.delay_ms)
        life = life_of(n, job.id)
    if update.attempts >= 0 or update.headers is not None or job.holders != 1:
        life = make_life(n, job.id)
        headers = update.headers
        if headers is not None:
            life.headers = headers
        if update.attempts >= 0:
            life.terms = n.life.share(with_attempts(life.terms, update.attempts))
        if job.holders != 1:
            life.edit = next_edit(n, life.edit)  # W10.3
        n.life.weigh(life)
    record_job(n, job)


def next_edit(n: Node, edit: i64) -> i64:
    """The number of a change: a count, then a hash of the node, so that no two are the same."""
    return (edit >> EDIT_BITS) + 1 << EDIT_BITS | hash_of(n.node_id) & (1 << EDIT_BITS) - 1


def why_not(n: Node, job: Job, life: Life | None, update: Update) -> Refusal | None:
    """Why the job cannot be changed (W10.2); None: it can."""
    if job.flags & LEASED:
        return Refusal(LEASED_WORK)
    if life is not None and life.is_dead:
        return Refusal(DEAD_LETTER, (job.queue,))
    if life is not None and life.run_state == LIVE:
        return Refusal(ATWORK, (life.worker, int((n.now_ms - life.since_ms) // 1000)))
    if life is not None and life.is_cancelled:
        return Refusal(CANCELLED_JOB, (life.cancel_reason,))
    if is_out_at(n, job):
        return Refusal(DELIVERED_OUT, (int((n.now_ms - job.last_ms) // 1000),))
    if job.holders != 1 and job.retry_s == 0:
        return Refusal(HAS_COPIES)  # W10.3
    if update.attempts > 0 and job.retry_s == 0:
        return Refusal(ATTEMPTS_OF_ONCE)
    if life is not None and 0 <= update.attempts <= life.failed:
        return Refusal(FEW_ATTEMPTS, (int(life.failed),))  # W10.2
    if update.delay_ms > 0:
        left_ms = job.expire_ms - n.now_ms if update.ttl_s < 0 else update.ttl_s * 1000
        if update.delay_ms >= left_ms:
            is_longest = update.ttl_s == NEVER_S
            return Refusal(DELAY_FOR_EVER if is_longest else DELAY_BEYOND_TTL)  # R1.4
    return None


def put_off(n: Node, job: Job, delay_ms: i64) -> None:
    """The job waits from now on for the delay; 0: it is queued now."""
    if job.state == QUEUED:
        if delay_ms == 0:
            return
        job.state = ACTIVE
        n.queues[job.queue].left()
    job.flags &= 0xFF ^ ONCE_QUEUED
    delay_s = job.delay_s if job.flags & DELIVERED else delay_from_creation(n, job, delay_ms)
    if job.flags & DELIVERED or life_of(n, job.id) is not None:
        make_life(n, job.id).is_resting = delay_ms > 0  # W2.3
    if delay_ms > 0:
        job.delay_s = delay_s
        set_due(n, job, n.now_ms + delay_ms)
    else:
        job.qtime_ms = 0
        job.delay_s = 0
        begin(n, job)
        job.delay_s = delay_s


def delay_from_creation(n: Node, job: Job, delay_ms: i64) -> i32:
    """The job's first delay in seconds, if it ends `delay_ms` from now (W10.4).

    Rounded up as ADDJOB does it; rounded down if it is over.
    """
    passed_ms = max(n.now_ms - job.ctime_ns // 1_000_000, 0)
    rounding: i64 = 999 if delay_ms > 0 else 0
    return i32(min((passed_ms + delay_ms + rounding) // 1000, DELAY_MAX_S))


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
