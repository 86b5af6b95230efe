"""ACKJOB, FASTACK, DELJOB, DEADLETTER: how jobs end (SPEC A).

core/copies/ack_gc.py informs the other holders.
"""

from typing import Final

from mypy_extensions import i64

from tuque.core.copies.ack_gc import (
    collect,
    count_all,
    finish,
    report_ack,
    retire,
)
from tuque.core.copies.add import make_job, settle
from tuque.core.copies.replicate import begin, send_async
from tuque.core.model import stats
from tuque.core.model.job import ACKED, BODYLESS, DEAD, PLAIN, WAIT_REPL, Job
from tuque.core.model.stats import set_why
from tuque.core.model.task import Task
from tuque.core.model.work import LETTERED, Life
from tuque.core.node.node import Node
from tuque.core.node.tables import record_job
from tuque.core.queues.ends import conclude, running
from tuque.core.queues.procedures import policy_of, remove
from tuque.core.queues.work_copies import drop_letters, report_death
from tuque.core.work import rules

LETTER: Final = b"deadletter"  # by the command, not by the node


def on_ackjob(n: Node, id: bytes, client: i64 = -1) -> bool:
    """[A3] ON COMMAND ACKJOB: the job is done (A3.1).

    False when unknown (A3.3) or acked before (A3.2, A1.1).
    """
    job = n.jobs.get(id)
    return job is not None and ack_job(n, job, client)


def ack_job(n: Node, job: Job, client: i64) -> bool:
    """[A3] As `on_ackjob`, of a known job."""
    if isinstance(job, Task):
        return policy_of(n).ack(n, job, client)
    if job.state == ACKED:
        collect(n, job)
        return False
    report_ack(n, job)
    retire(n, job)
    return True


def on_fastack(n: Node, id: bytes, client: i64 = -1) -> bool:
    """[A7] ON COMMAND FASTACK: the job is done and ends here at once (A7.1).

    False if it is unknown here (A7.2).
    """
    job = n.jobs.get(id)
    if job is None:
        return False
    if isinstance(job, Task):
        return policy_of(n).ack(n, job, client)
    if job.flags & BODYLESS:
        return False  # A7.1: an ack being collected stays one
    was_acked = job.state == ACKED
    if not was_acked:
        report_ack(n, job)
    count_all(n, job)
    if job.holders == 1 and not was_acked:
        retire(n, job)
    else:
        finish(n, job, job.holders)
    return True


def on_deljob(n: Node, id: bytes) -> bool:
    """[A9] ON COMMAND DELJOB: remove the job from this node in any state."""
    job = n.jobs.get(id)
    if job is None:
        return False
    if isinstance(job, Task):
        policy_of(n).delete(n, job)
        return True
    remove(n, job, stats.ADMIN_DELETED)  # A9.1
    return True


def on_deadletter(n: Node, job: Job, queue: bytes, reason: bytes, body: bytes | None = None) -> Job:
    """[Q10] ON COMMAND DEADLETTER: continue its body, or another, in another queue; it is done.

    The new job starts here, even if this node takes no other jobs: its body is here already. Other
    nodes get its copies in the same turn as the ack.
    """
    assert job.state != ACKED and job.state != WAIT_REPL
    spec = settle(n, PLAIN)
    dead = make_job(n, queue, job.body if body is None else body, spec)  # Q10.4
    begin(n, dead)
    if n.records is not None:
        n.records.add(dead)
    if spec.replicate > 1 and len(n.peers) > 1:
        send_async(n, dead)
    n.book.die(job, LETTER)
    if n.events is not None:
        n.events.dead(n.now_ms, job, reason, n.returned(job.id))  # Q10.3
    if n.has_lives:
        conclude(n, job, LETTERED, running(n, job), None, reason)  # W7.2
    if isinstance(job, Task):
        policy_of(n).finish(n, job)  # T1.5
    else:
        set_why(job, DEAD)  # Y3.8
        retire(n, job)  # Q10.2
    n.dead_letters += 1
    return dead


def bury_task(n: Node, task: Task, life: Life, cause: bytes) -> None:
    """[T48] The task is given up, and its dead letter is a new job in another queue (T48.12).

    The caller ends the task in the same turn; its life, which goes on, has left the tables.
    """
    rules.die(life, cause, task.queue, n.now_ms)
    returned = life.returned
    hand_on(n, task, life, life.terms.dead, n.limits.dead_keep_ms, True)
    report_death(n, task, life, cause, returned)
    drop_letters(n)


def hand_on(n: Node, task: Task, life: Life, queue: bytes, ttl_ms: i64, is_dead: bool) -> Job:
    """A new job of the queue has the body and the life of the task, which the caller ends."""
    spec = settle(n, PLAIN)
    job = make_job(n, queue, task.body, spec)
    job.expire_ms = n.now_ms + ttl_ms
    life.client = -1
    life.returned = 0
    n.has_lives = True
    n.life.enter(job.id, life, job.queue)
    if is_dead:
        n.life.bury(job.queue, job.id, life, len(job.body), n.limits.dead_bytes)
    begin(n, job)
    record_job(n, job)
    if spec.replicate > 1 and len(n.peers) > 1:
        send_async(n, job)
    return job
