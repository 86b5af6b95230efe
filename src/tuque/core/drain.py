"""A leaving node gives away what it has (SPEC K7)."""

from typing import Final

from mypy_extensions import i64

from tuque.core.collect import collect
from tuque.core.job import ACKED
from tuque.core.msgs import Left
from tuque.core.node import Node
from tuque.core.transfer import settle

FAR: Final = 1 << 62


def set_leaving(n: Node, is_leaving: bool) -> None:
    """[K7] CLUSTER LEAVING yes|no: start or stop to give away."""
    n.is_leaving = is_leaving


def drain_left(n: Node) -> i64:
    """[K7.3] Records that must go before the node is safe to stop."""
    return len(n.jobs)


def on_left(n: Node, slot: i64, m: Left) -> None:
    """[K7.2] ON RECV LEFT."""
    bit: i64 = 1 << slot
    for id in m.ids:
        job = n.jobs.get(id)
        if job is not None and job.holders & bit:
            job.holders &= ~bit
            if n.records is not None:
                n.records.holders(job)
            if job.state == ACKED:
                collect(n, job)
        elif job is None:
            n.tombs.let_go(id)
        settle(n, slot, id)


def drain_tick(n: Node) -> None:
    """[K7.2] Move some of what is left."""


def drain_next_ms(n: Node) -> i64:
    """The next instant at which `drain_tick` has something to do."""
    return FAR
