"""Dead letters: a job that is given up stays, under its id, in another queue (SPEC W6)."""

from typing import Final

from mypy_extensions import i64

from tuque.core.jobs.endings import life_of, record_job, tell_watchers
from tuque.core.jobs.life_copies import tell_life
from tuque.core.jobs.transitions import REQUEUE_DELAY, get_queue, policy_of, remove, requeue
from tuque.core.model import ledger
from tuque.core.model.job import ACTIVE, DELIVERED, ONCE_QUEUED, QUEUED, Job
from tuque.core.model.life import EXPIRED, LIVE, RELEASED, Life
from tuque.core.model.task import Task
from tuque.core.node.node import Node
from tuque.core.node.table import rehouse

DEAD_SUFFIX: Final = b".dead"
AGAIN_MS: Final = 200


def dead_queue(job: Job, life: Life) -> bytes:
    """The queue of the job's dead letter; of a task its tube (T48.8)."""
    dead = life.terms.dead
    return dead if len(dead) > 0 else own_letters(job)


def own_letters(job: Job) -> bytes:
    """Where the dead letters of a job go that does not name a queue for them."""
    return job.queue if isinstance(job, Task) else job.queue + DEAD_SUFFIX


def letters_of(n: Node, id: bytes) -> bytes:
    """The queue of the dead letter of an open job; of an unknown one none."""
    job = n.jobs.get(id)
    if job is None:
        return b""
    life = life_of(n, id)
    return own_letters(job) if life is None else dead_queue(job, life)


def go_dead(n: Node, job: Job, life: Life, cause: bytes) -> None:
    """[W6] PROCEDURE the job is given up: it moves to the queue of dead letters (W6.5)."""
    leave_line(n, job)
    reason = life.last.reason if life.last is not None else b""
    n.book.die(job, cause)
    if n.events is not None:
        n.events.dead(n.now_ms, job, reason if len(reason) > 0 else cause)
    life.origin = job.queue
    life.dead_cause = cause
    life.dead_ms = n.now_ms
    life.is_resting = False
    life.expire_ms = 0
    life.unstarted = 0
    job.expire_ms = n.now_ms + n.limits.dead_keep_ms
    if job.retry_s == 0:
        job.flags &= 0xFF ^ DELIVERED  # it is handed out once more, as a dead letter
        n.delivered_amo.pop(job.id, None)
    job = to_queue(n, job, dead_queue(job, life))
    n.life.weigh(life)
    n.life.bury(job.queue, job.id, life, len(job.body), n.limits.dead_bytes)
    n.life.dead += 1
    line_up(n, job)
    if job.id in n.life.watchers:
        tell_watchers(n, job.id)  # W9.1
    drop_letters(n)


def drop_letters(n: Node) -> None:
    """[W6] Delete the oldest dead letters above the bound; the newest one stays (W6.6)."""
    while has_surplus(n):
        oldest = n.life.shares.letters_first(n.limits.dead_bytes)  # N11.7
        if len(oldest) == 0:
            oldest = n.life.oldest_letter()
        if len(n.life.giants) > 1:
            oldest = next(iter(n.life.giants))
        job = n.jobs[oldest]
        if isinstance(job, Task):
            if not policy_of(n).drop_letter(n, job):
                n.life.drop_ms = n.now_ms + AGAIN_MS  # its tube does not run here now
                return
        else:
            remove(n, job, ledger.EXPIRED)
        n.life.dead_dropped += 1


def has_surplus(n: Node) -> bool:
    """[W6] Whether a dead letter must go (W6.6): one beside the giant, or a second giant."""
    lives = n.life
    counted = lives.dead_bytes
    if len(lives.giants) > 0:
        for id in list(lives.giants):
            size = letter_bytes(n, id)
            if size > n.limits.dead_bytes:
                counted -= size
            else:
                del lives.giants[id]
        if len(lives.giants) > 1:
            return True
    return counted > n.limits.dead_bytes and lives.letter_count() > 1


def letter_bytes(n: Node, id: bytes) -> i64:
    """Bytes of that dead letter, 0 if it is none any more."""
    job = n.jobs.get(id)
    life = n.life.by_id.get(id)
    return (
        life.bytes + len(job.body) if job is not None and life is not None and life.is_dead else 0
    )


def leave_line(n: Node, job: Job) -> None:
    """Take the job out of its queue, if it is there; its state becomes active."""
    if job.state == QUEUED:
        job.state = ACTIVE
        n.queues[job.queue].left()


def to_queue(n: Node, job: Job, name: bytes) -> Job:
    """Give an active job to another queue; `line_up` follows. Returns its new record."""
    moved = rehouse(n, job, get_queue(n, name).name)
    moved.flags &= 0xFF ^ ONCE_QUEUED
    return moved


def line_up(n: Node, job: Job) -> None:
    """Queue the job in its new queue; no counter grows.

    The other holders hear first that its run is over: they do not keep its worker (W14.9).
    """
    tell_life(n, job)
    requeue(n, job, REQUEUE_DELAY)
    record_job(n, job)


def expire(n: Node, job: Job) -> None:
    """[G7.2] The open job's time to live is over: it ends, or goes to the dead letters (W6.2)."""
    life = life_of(n, job.id)
    is_open = job.state == ACTIVE or job.state == QUEUED
    if life is None or life.is_dead or life.terms.attempts == 0 or not is_open:
        remove(n, job, ledger.EXPIRED)
        return
    if life.run_state == LIVE:
        life.run_state = RELEASED
    go_dead(n, job, life, EXPIRED)


def due_by(life: Life, due_ms: i64) -> i64:
    """The instant at which a run is over: `due_ms`, or its TIMELIMIT before that (W3.3)."""
    limit_ms = life.terms.limit_ms
    if limit_ms > 0 and life.since_ms + limit_ms < due_ms:
        return life.since_ms + limit_ms
    return due_ms
