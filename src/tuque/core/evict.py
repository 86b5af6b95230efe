"""What may be dropped when memory is short, and in which order (SPEC M3).

Nothing that is owed to anybody is ever dropped: only at-most-once jobs that were
delivered, oldest delivery first. At-least-once jobs stay until acked or expired.
"""

from mypy_extensions import i64

from tuque.core import ledger
from tuque.core.node import Node
from tuque.core.procedures import memory_level, remove


def make_room(n: Node, most: i64) -> bool:
    """[M3] PROCEDURE evict: up to `most` records (M3.3) while above 95 %.

    True when memory is at or below 100 % after it.
    """
    if n.limits.may_evict:
        left = most
        while left > 0 and memory_level(n) >= 2 and len(n.delivered_amo) > 0:
            oldest = b""
            for id in n.delivered_amo:
                oldest = id
                break
            remove(n, n.jobs[oldest], ledger.EVICTED)
            left -= 1
    return memory_level(n) < 3
