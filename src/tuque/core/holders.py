"""Which nodes may have a copy of a job (SPEC R4.2, K5.6): all of them are to know all.

A holder that another does not know of would keep its copy when the job is over.
"""

from mypy_extensions import i64

from tuque.core.announce import TOMB_MS
from tuque.core.collect import collect
from tuque.core.job import ACKED, WAIT_REPL, Job
from tuque.core.msgs import Holders, SetAck
from tuque.core.node import Node
from tuque.core.peers import introduce, say, slots_of, translate


def join_holders(n: Node, job: Job, holders: i64) -> bool:
    """Add to the holders of a job; True when some were new."""
    joined = (job.holders | holders) & ~n.forgotten
    if joined == job.holders:
        return False
    job.holders = joined
    if job.state != WAIT_REPL and n.records is not None:
        n.records.holders(job)
    return True


def learn_holder(n: Node, job: Job, slot: i64) -> None:
    """[K5.6] A node turns out to have a copy: those that may not know of each other are told."""
    others = job.holders & ~1
    if join_holders(n, job, 1 << slot) and others and job.retry_s > 0 and job.state != ACKED:
        tell_holders(n, job, others | 1 << slot)


def tell_holders(n: Node, job: Job, nodes: i64) -> None:
    """HOLDERS with all that may have the job."""
    for slot in slots_of(nodes):
        introduce(n, slot, job.holders | 1)
        say(n, slot, Holders(job.id, job.holders | 1))


def on_holders(n: Node, slot: i64, m: Holders) -> None:
    """[R4.2] ON RECV HOLDERS: more nodes may have a copy."""
    job = n.jobs.get(m.id)
    if job is not None:
        told = translate(n, slot, m.holders)
        is_new = join_holders(n, job, told)
        if job.state == ACKED:
            if is_new:
                collect(n, job)
        elif job.state != WAIT_REPL and job.retry_s > 0 and job.holders & ~(told | 1 << slot | 1):
            tell_holders(n, job, 1 << slot)  # K5.6
    elif n.tombs.has(m.id):
        say(n, slot, SetAck(m.id, 0, TOMB_MS))
