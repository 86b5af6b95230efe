"""All timers of a node: runs what is due and finds the next instant (SPEC G7)."""

from heapq import heappop
from typing import Final

from mypy_extensions import i64

from tuque.core.copies.ack_gc import collect_next_ms, collect_tick, on_gc_timer
from tuque.core.copies.federation import federate_next_ms, federate_tick
from tuque.core.copies.replicate import copies_next_ms, copies_tick
from tuque.core.leases.expiry import lease_next_ms, lease_tick
from tuque.core.life.cancel_update import changes_tick
from tuque.core.life.lookup import asking_next_ms, asking_tick, retell_tick
from tuque.core.life.outcomes import lives_next_ms, lives_tick
from tuque.core.life.runs import has_more_time, on_late
from tuque.core.model import stats
from tuque.core.model.job import (
    ACKED,
    ACTIVE,
    ANNOUNCE_QUEUED,
    ANNOUNCE_WILL,
    HELD,
    ONCE_QUEUED,
    STALE,
    Job,
)
from tuque.core.model.task import Task
from tuque.core.node.node import Node
from tuque.core.node.peers import (
    announce_next_ms,
    announce_tick,
    on_will_timer,
    set_due,
)
from tuque.core.node.queue import PAUSE_IN
from tuque.core.queue_settings import settings_tick
from tuque.core.queues.deliver import look_again
from tuque.core.queues.procedures import (
    REQUEUE_DELAY,
    REQUEUE_RETRY,
    idle_tick,
    may_enqueue,
    on_wait_timeout,
    policy_of,
    remove,
    requeue,
    retry_due_ms,
)
from tuque.core.queues.work_copies import expire
from tuque.core.repair.claims import hold_due, settle_next_ms, settle_tick
from tuque.core.repair.drain import drain_next_ms, drain_tick
from tuque.core.repair.node_loss import repair_next_ms, repair_tick
from tuque.core.staged.publish import publishing_next_ms, publishing_tick
from tuque.core.staged.stage import staging_next_ms, staging_tick

RETELL_MS: Final = 10


def on_job_timer(n: Node, job: Job) -> None:
    """[G7, Q2] TIMER of a job: it expires or is due."""
    if isinstance(job, Task):
        policy_of(n).on_timer(n, job)
        return
    if job.expire_ms <= n.now_ms:
        if job.state != ACKED:
            expire(n, job)  # G7.2
        else:
            remove(n, job, stats.GC_ACKED)
        return
    if job.state == ACKED:
        on_gc_timer(n, job)
        return
    if job.state == ACTIVE and job.qtime_ms != 0 and job.marks & HELD == 0:  # G7.3
        if job.marks & STALE and hold_due(n, job):
            return  # Q11.1
        if job.flags & ANNOUNCE_WILL:
            on_will_timer(n, job)
        if job.qtime_ms > n.now_ms:
            pass  # it woke up to ask, or its due time has moved
        elif n.has_lives and (has_more_time(n, job) or on_late(n, job)):
            return  # W6
        elif not_now(n, job):
            job.flags |= ANNOUNCE_QUEUED
            set_due(n, job, retry_due_ms(n, job))  # Q2.2
        elif may_enqueue(job):
            why = REQUEUE_RETRY if job.flags & ONCE_QUEUED else REQUEUE_DELAY
            requeue(n, job, why)  # Q2.3
            return
        else:
            job.qtime_ms = 0  # Q2.1
    n.wheel.arm(job, n.now_ms)  # G7.4


def not_now(n: Node, job: Job) -> bool:
    """Whether a paused queue defers the job (Q2.2). At-most-once jobs would be lost."""
    q = n.queues.get(job.queue)
    return q is not None and q.pause & PAUSE_IN != 0 and job.retry_s > 0


def tick(n: Node) -> None:
    """Run all timers that are due: jobs, waiting clients, idle queues, the cluster's."""
    if n.passed > 0:
        look_again(n)
    for job in n.wheel.due(n.now_ms, n.limits.timers_per_step):
        if n.jobs.get(job.id) is job:
            on_job_timer(n, job)
    while len(n.deadlines) > 0 and n.deadlines[0][0] <= n.now_ms:
        until_ms, client = heappop(n.deadlines)
        on_wait_timeout(n, client, until_ms)
    idle_tick(n)
    lease_tick(n)
    staging_tick(n)
    if n.settings.is_busy():
        settings_tick(n)
    if n.has_lives:
        lives_tick(n)
        if len(n.life.asking) > 0 or len(n.life.cancelling) > 0:
            asking_tick(n)
        if len(n.life.updates) > 0 or len(n.life.cancels) > 0:
            changes_tick(n)
        if len(n.life.retelling) > 0:
            retell_tick(n)
    if n.policy is not None:
        n.policy.tick(n)
    if len(n.peers) > 1:
        copies_tick(n)
        if len(n.staging.publishing) > 0:
            publishing_tick(n)
        announce_tick(n)
        federate_tick(n)
        settle_tick(n)
        repair_tick(n)
        drain_tick(n)
        collect_tick(n)


def next_timer_ms(n: Node) -> i64:
    """The instant at which `tick` next has work (G7.5); FAR: never."""
    if n.passed > 0:
        return n.now_ms
    at_ms = n.wheel.next_ms()
    if len(n.deadlines) > 0 and n.deadlines[0][0] < at_ms:
        at_ms = n.deadlines[0][0]
    if n.idle_left > 0:
        return n.now_ms
    if len(n.idle_checks) > 0:
        at_ms = min(at_ms, n.idle_checks[0][0])
    at_ms = min(at_ms, lease_next_ms(n))  # mypyc compiles a min of two well, and of more not
    at_ms = min(at_ms, staging_next_ms(n))
    if n.settings.is_busy():
        at_ms = min(at_ms, n.settings.next_ms)
    if n.has_lives:
        at_ms = asking_next_ms(n, min(at_ms, lives_next_ms(n)))
        if len(n.life.retelling) > 0:
            at_ms = min(at_ms, n.now_ms + RETELL_MS)
    if n.policy is not None:
        at_ms = min(at_ms, n.policy.next_ms(n))
    if len(n.peers) > 1:
        at_ms = min(at_ms, cluster_next_ms(n))
    return at_ms


def cluster_next_ms(n: Node) -> i64:
    """The same of the timers that only a node with peers has."""
    at_ms = min(copies_next_ms(n), publishing_next_ms(n))
    at_ms = min(at_ms, announce_next_ms(n))
    at_ms = min(at_ms, federate_next_ms(n))
    at_ms = min(at_ms, settle_next_ms(n))
    at_ms = min(at_ms, repair_next_ms(n))
    at_ms = min(at_ms, drain_next_ms(n))
    return min(at_ms, collect_next_ms(n))
