"""FLUSHALL: drops all data of a node (SPEC S7.1, K3)."""

from mypy_extensions import i64

from tuque.core.jobs.endings import flush_outcomes
from tuque.core.jobs.transitions import remove
from tuque.core.leases.commands import forget_group
from tuque.core.leases.expiry import return_some
from tuque.core.model import ledger
from tuque.core.model.tombstones import Tombs
from tuque.core.node.node import Node
from tuque.core.node.table import leave_queue
from tuque.core.transactions.stage import flush_staged
from tuque.core.transactions.topics import flush_topics


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
            n.records.pause(name, 0, 0)  # P1.9: nothing remains of its pause
    n.pauses = {}
    while len(n.leases.returning) > 0:
        return_some(n)  # drops them: their jobs are gone
    for g in list(n.leases.groups.values()):
        forget_group(n, g)
    flush_staged(n)
    flush_topics(n)
    flush_outcomes(n)
    n.idle_checks = []
    n.ready = []
    n.tombs = Tombs()
    n.retelling = {}
    return count
