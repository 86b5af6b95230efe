"""What may be dropped if memory is short, and in which order (SPEC M3).

Nothing that a client is owed is ever dropped. First go delivered at-most-once jobs, oldest
delivery first. Then what keeps acked jobs from coming back: first where that costs nothing,
last acked jobs that other holders have not confirmed. These leave a tombstone, which is smaller
and goes once all reachable nodes have confirmed it. At last results, whose outcomes stay, and the
details of dead letters; these go from 75 % on, if that lets the node take jobs. At-least-once jobs
stay until acked or expired.
"""

from mypy_extensions import i64

from tuque.core.jobs.transitions import memory_level, remove, thin
from tuque.core.model import ledger
from tuque.core.model.job import BODYLESS, Job
from tuque.core.node.node import Node
from tuque.core.replication.ack_gc import finish


def make_room(n: Node, most: i64) -> bool:
    """[M3] PROCEDURE evict: drop up to `most` records (M3.3) while above 95 %, or 75 % (M3.5).

    True if memory is then at or below 100 %.
    """
    if n.limits.may_evict:
        left = most
        level = memory_level(n)
        while left > 0 and level > 0 and (evict_one(n, left) if level >= 2 else thin(n)):
            left -= 1
            level = memory_level(n)
    return memory_level(n) < 3


def evict_one(n: Node, most: i64) -> bool:
    """Drop the least useful record (M3.1), or some tombstones; False: there is none."""
    if len(n.delivered_amo) > 0:
        remove(n, oldest(n, n.delivered_amo), ledger.EVICTED)
        return True
    if len(n.peers) > 1 and n.tombs.evict(n.reachable, most) > 0:
        return True
    if len(n.strays) > 0:
        for id in n.strays:
            remove(n, n.jobs[id], ledger.EVICTED)
            n.acks_evicted += 1
            return True
    if len(n.acked) > 0:
        job = oldest(n, n.acked)
        assert job.flags & BODYLESS == 0
        finish(n, job, job.holders, ledger.EVICTED)
        n.acks_evicted += 1
        return True
    return thin(n)


def oldest(n: Node, ids: dict[bytes, None]) -> Job:
    """The job that has been in the table longest."""
    for id in ids:
        return n.jobs[id]
    raise AssertionError("nothing is left")
