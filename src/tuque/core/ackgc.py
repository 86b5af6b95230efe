"""Acknowledgement and the end of jobs (SPEC A): ACKJOB, FASTACK, DELJOB, DEADLETTER."""

from mypy_extensions import i64

from tuque.core import ledger
from tuque.core.job import ACKED, WAIT_REPL, Job
from tuque.core.node import Node
from tuque.core.procedures import remove, unregister
from tuque.core.replicate import PLAIN, on_addjob, settle


def on_ackjob(n: Node, id: bytes) -> bool:
    """[A3, A7] ON COMMAND ACKJOB, FASTACK: the job is done (A3.1, A7.1).

    False when unknown (A3.3, A7.2) or acked before (A3.2, A1.1). Alone they are the same.
    """
    job = n.jobs.get(id)
    if job is None or job.state == ACKED:
        return False
    retire(n, job)
    if n.events is not None:
        n.events.acked(n.now_ms, job)  # A1.5
    return True


def retire(n: Node, job: Job) -> None:
    """[A1, A2] The ack is recorded; with no other holder its collection is complete at once."""
    unregister(n, job, ledger.GC_ACKED)  # A1.2, A1.4, A2.1
    if n.records is not None:
        n.records.ack(job.id, job.expire_ms)  # A1.3


def on_deljob(n: Node, id: bytes) -> bool:
    """[A9] ON COMMAND DELJOB: the job goes from this node, whatever its state."""
    job = n.jobs.get(id)
    if job is None:
        return False
    remove(n, job, ledger.ADMIN_DELETED)  # A9.1
    return True


def on_deadletter(n: Node, job: Job, queue: bytes, reason: bytes) -> Job:
    """[Q10] ON COMMAND DEADLETTER: its body goes on in another queue, the job is done."""
    assert job.state != ACKED and job.state != WAIT_REPL
    spec = settle(n, PLAIN)
    spec.replicate = 1
    dead = on_addjob(n, queue, job.body, spec)
    retire(n, job)  # Q10.2
    n.dead_letters += 1
    if n.events is not None:
        n.events.dead(n.now_ms, job, reason)  # Q10.3
    return dead


def flush_all(n: Node) -> i64:
    """Drop every job and queue (S7.1: DEBUG FLUSHALL, CLUSTER RESET). Returns jobs dropped."""
    count: i64 = 0
    for job in list(n.jobs.values()):
        remove(n, job, ledger.ADMIN_DELETED)
        count += 1
    for name, q in list(n.queues.items()):
        if q.pause != 0 and n.records is not None:
            n.records.pause(name, 0)
        del n.queues[name]
    n.idle_checks = []
    n.ready = []
    return count
