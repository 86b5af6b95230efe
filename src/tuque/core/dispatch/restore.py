"""Jobs come back from the journal (SPEC J5); FLUSHALL drops them all (SPEC S7.1)."""

from mypy_extensions import i64

from tuque.core.copies.ack_gc import on_loaded, restore_acked
from tuque.core.copies.federation import on_loaded_custody, remember_pause
from tuque.core.leases.expiry import return_some
from tuque.core.leases.leases import forget_group
from tuque.core.model import stats
from tuque.core.model.job import (
    ACKED,
    ACTIVE,
    DELIVERED,
    IN_TRANSIT,
    LEASED,
    ONCE_QUEUED,
    QUEUED,
    Job,
    moved_ns,
)
from tuque.core.model.task import Task, shift_task
from tuque.core.model.tombstones import Tombs
from tuque.core.node.node import Node, Pausing
from tuque.core.node.peers import slots_of
from tuque.core.node.queue import PAUSE_BCAST, PAUSE_IN, PAUSE_OUT
from tuque.core.node.tables import leave_queue
from tuque.core.queue_settings import flush_settings
from tuque.core.queues.ends import flush_outcomes
from tuque.core.queues.procedures import get_queue, register, remove
from tuque.core.repair.claims import doubt_due, on_loaded_jobs
from tuque.core.staged.stage import flush_staged
from tuque.core.topics import flush_topics


def restore_job(n: Node, job: Job) -> bool:
    """[J5] Register a loaded job in its recorded state. False if it has expired or is already here.

    A queued job is queued; an active one waits for its recorded due time. A delivered
    at-most-once job stays delivered and is never queued again. The collection of an acked
    job continues.
    """
    if isinstance(job, Task):
        return n.policy is not None and n.policy.restore(n, job)
    if job.expire_ms <= n.now_ms or job.id in n.jobs:
        return False
    if job.ctime_ns > n.last_ctime_ns and job.ctime_ns // 1_000_000 <= n.now_ms:
        n.last_ctime_ns = job.ctime_ns
    q = n.queues.get(job.queue)
    if q is not None:
        job.queue = q.name  # all jobs of a queue share one name object
    job.confirmed = 0
    was_leased = job.flags & LEASED != 0
    job.flags &= 0xFF ^ LEASED
    if job.state == ACKED:
        job.body = b""
        register(n, job, stats.LOADED)
        restore_acked(n, job)
        return True
    if was_leased:
        n.leases.loaded[job.id] = job  # until its batch claims it again (Y9.3)
    was_queued = job.state == QUEUED
    job.state = ACTIVE
    register(n, job, stats.LOADED)
    if job.holders != 1 or job.repl > 1:
        doubt_copies(n, job)
    if job.retry_s == 0 and job.flags & DELIVERED:
        job.qtime_ms = 0
        n.delivered_amo[job.id] = None
    elif job.flags & IN_TRANSIT:
        pass  # another node may have it (F2.3)
    elif not was_leased and doubt_due(n, job, was_queued):
        return True  # J5.3
    elif was_queued or (job.retry_s == 0 and job.qtime_ms == 0):
        job.state = QUEUED
        job.flags |= ONCE_QUEUED
        if q is None:
            q = get_queue(n, job.queue)
        q.push(job)
        q.jobs_in += 1
    elif job.qtime_ms == 0:
        job.qtime_ms = n.now_ms + i64(job.retry_s) * 1000
    n.wheel.arm(job, n.now_ms)
    return True


def shift_jobs(jobs: dict[bytes, Job], jump_ms: i64) -> None:
    """The clock jumped between two starts: move all instants of jobs (J5.8)."""
    for job in jobs.values():
        if isinstance(job, Task):
            shift_task(job, jump_ms)
            continue
        job.expire_ms += jump_ms
        job.ctime_ns = moved_ns(job.ctime_ns, jump_ms)
        if job.qtime_ms != 0:
            job.qtime_ms += jump_ms
        if job.first_ms != 0:
            job.first_ms += jump_ms
            job.last_ms += jump_ms


def doubt_copies(n: Node, job: Job) -> None:
    """[J5] Other holders may have lost the job: ask them once they are linked (J5.11).

    Restores the custody of at-most-once jobs that were moving between two nodes.
    """
    if job.retry_s > 0:
        n.losses.unsure |= job.holders & ~1
        n.losses.must_count = True
    elif job.flags & (IN_TRANSIT | ONCE_QUEUED) != IN_TRANSIT:
        for slot in slots_of(job.holders):
            n.custody[job.id] = slot  # F2.3: the job was in transit to or from that node


def after_load(n: Node) -> None:
    """The journal is loaded: do what had to wait for it."""
    order_evictable(n)
    on_loaded(n)
    on_loaded_custody(n)
    on_loaded_jobs(n)
    if n.policy is not None:
        n.policy.after_load(n)


def order_evictable(n: Node) -> None:
    """Sort the delivered at-most-once jobs by delivery, oldest first (M3.1)."""
    found: list[tuple[int, bytes]] = []
    for id in n.delivered_amo:
        found.append((n.jobs[id].last_ms, id))
    found.sort()
    n.delivered_amo = {}
    for _, id in found:
        n.delivered_amo[id] = None


def restore_pause(n: Node, name: bytes, bits: i64, stamp_ns: i64) -> None:
    """Pause a queue as it was before the restart."""
    told = n.pauses.get(name)
    if told is not None and told.stamp_ns >= stamp_ns:
        return  # P3.2: a later one arrived over a link
    pause = bits & (PAUSE_IN | PAUSE_OUT)
    if pause != 0 or name in n.queues:
        get_queue(n, name).pause = pause
    if bits & PAUSE_BCAST or stamp_ns != 0:
        remember_pause(n, name, Pausing(pause, stamp_ns, bits & PAUSE_BCAST != 0))  # P1.8, P1.9


def creation(job: Job) -> int:
    """Sort key: the job's creation time."""
    return job.ctime_ns


def is_sorted(jobs: list[Job]) -> bool:
    """Whether the jobs are sorted by creation time."""
    last: i64 = -1
    for job in jobs:
        if job.ctime_ns < last:
            return False
        last = job.ctime_ns
    return True


# ---- FLUSHALL: drops all data of a node (SPEC S7.1, K3)


def flush_all(n: Node) -> i64:
    """Drop every job and queue (S7.1: DEBUG FLUSHALL, CLUSTER RESET). Returns jobs dropped."""
    count: i64 = len(n.jobs)
    if n.policy is not None:
        n.policy.flush(n)
    for job in list(n.jobs.values()):
        remove(n, job, stats.ADMIN_DELETED)
    for name, q in list(n.queues.items()):
        if q.pause != 0 and n.records is not None:
            n.records.pause(name, 0, 0)
        leave_queue(n, q)
    for name in n.pauses:
        if n.records is not None:
            n.records.pause(name, 0, 0)  # P1.9: nothing remains of its pause
    n.pauses = {}
    n.ended_pauses = {}
    n.pause_bytes = 0
    while len(n.leases.returning) > 0:
        return_some(n)  # drops them: their jobs are gone
    for g in list(n.leases.groups.values()):
        forget_group(n, g)
    flush_staged(n)
    flush_topics(n)
    flush_settings(n)
    flush_outcomes(n)
    n.idle_checks = []
    n.idle_left = 0
    n.ready = []
    n.tombs = Tombs()
    n.retelling = {}
    return count
