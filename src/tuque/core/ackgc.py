"""Acknowledgement and the end of jobs (SPEC A): ACKJOB, FASTACK, DELJOB, DEADLETTER.

What the commands do here; how the other holders of a job hear of it is core/collect.py's.
"""

from mypy_extensions import i64

from tuque.core import ledger
from tuque.core.collect import collect, count_all, finish, retire
from tuque.core.copies import begin, send_async
from tuque.core.job import ACKED, BODYLESS, DEAD, WAIT_REPL, Job
from tuque.core.lease import forget_group
from tuque.core.lease_time import return_some
from tuque.core.node import Node
from tuque.core.procedures import policy_of, remove
from tuque.core.replicate import PLAIN, make_job, settle
from tuque.core.staging import flush_staged
from tuque.core.table import leave_queue
from tuque.core.task import Task
from tuque.core.tombs import Tombs


def on_ackjob(n: Node, id: bytes, client: i64 = -1) -> bool:
    """[A3] ON COMMAND ACKJOB: the job is done (A3.1).

    False when unknown (A3.3) or acked before (A3.2, A1.1).
    """
    job = n.jobs.get(id)
    if job is None:
        return False
    if isinstance(job, Task):
        return policy_of(n).ack(n, job, client)
    if job.state == ACKED:
        collect(n, job)
        return False
    if n.events is not None:
        n.events.acked(n.now_ms, job)  # A1.5, while the body is there
    retire(n, job)
    return True


def on_fastack(n: Node, id: bytes, client: i64 = -1) -> bool:
    """[A7] ON COMMAND FASTACK: the job is done, and is over here and now (A7.1).

    False when it is not known here (A7.2).
    """
    job = n.jobs.get(id)
    if job is None:
        return False
    if isinstance(job, Task):
        return policy_of(n).ack(n, job, client)
    if job.flags & BODYLESS:
        return False  # A7.1: an ack that was to be made sure stays one
    was_acked = job.state == ACKED
    if n.events is not None and not was_acked:
        n.events.acked(n.now_ms, job)
    count_all(n, job)
    if job.holders == 1 and not was_acked:
        retire(n, job)
    else:
        finish(n, job, job.holders)
    return True


def on_deljob(n: Node, id: bytes) -> bool:
    """[A9] ON COMMAND DELJOB: the job goes from this node, whatever its state."""
    job = n.jobs.get(id)
    if job is None:
        return False
    if isinstance(job, Task):
        policy_of(n).delete(n, job)
        return True
    remove(n, job, ledger.ADMIN_DELETED)  # A9.1
    return True


def on_deadletter(n: Node, job: Job, queue: bytes, reason: bytes, body: bytes | None = None) -> Job:
    """[Q10] ON COMMAND DEADLETTER: its body, or another, goes on in another queue; it is done.

    The new job begins here, whatever else this node may not take: its body is here
    already. Other nodes get copies of it in the same turn as they hear of the ack.
    """
    assert job.state != ACKED and job.state != WAIT_REPL
    spec = settle(n, PLAIN)
    dead = make_job(n, queue, job.body if body is None else body, spec)  # Q10.4
    begin(n, dead)
    if n.records is not None:
        n.records.add(dead)
    if spec.replicate > 1 and len(n.peers) > 1:
        send_async(n, dead)
    if n.events is not None:
        n.events.dead(n.now_ms, job, reason)  # Q10.3
    if isinstance(job, Task):
        policy_of(n).finish(n, job)
    else:
        job.why = DEAD  # Y3.8
        retire(n, job)  # Q10.2
    n.dead_letters += 1
    return dead


def flush_all(n: Node) -> i64:
    """Drop every job and queue (S7.1: DEBUG FLUSHALL, CLUSTER RESET). Returns jobs dropped."""
    count: i64 = len(n.jobs)
    if n.policy is not None:
        n.policy.flush(n)
    for job in list(n.jobs.values()):
        remove(n, job, ledger.ADMIN_DELETED)
    for name, q in list(n.queues.items()):
        if q.pause != 0 and n.records is not None:
            n.records.pause(name, 0, 0)
        leave_queue(n, q)
    for name in n.pauses:
        if n.records is not None:
            n.records.pause(name, 0, 0)  # P1.9: nothing is known of it any more
    n.pauses = {}
    while len(n.leases.returning) > 0:
        return_some(n)  # they are gone
    for g in list(n.leases.groups.values()):
        forget_group(n, g)
    flush_staged(n)
    n.idle_checks = []
    n.ready = []
    n.tombs = Tombs()
    n.retelling = {}
    return count
