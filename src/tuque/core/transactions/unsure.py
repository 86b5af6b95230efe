"""Jobs with a key that waited for copies when the node stopped (SPEC Z4.9).

The journal has them with their key, and nobody knows how many copies they have. When their ADDJOB
is said again, the holders are asked. core/repair makes what is missing.
"""

from typing import Final

from mypy_extensions import i64

from tuque.core.jobs.idempotent_add import make_sure
from tuque.core.jobs.transitions import FAR
from tuque.core.model.job import ACKED, Job
from tuque.core.node.node import Node
from tuque.core.node.slots import say, slots_of
from tuque.core.replication.replicate import copy_of

ASK_MS: Final = 1_000


def ask_copies(n: Node, id: bytes) -> None:
    """[Z4] A producer waits for the job: ask its holders for their copies."""
    keys = n.keys
    if id not in keys.unsure or id in keys.asking:
        return
    keys.unsure[id] = 1
    keys.asking[id] = None
    ask_holders(n, n.jobs[id])
    if keys.ask_ms == FAR:
        keys.ask_ms = n.now_ms + ASK_MS


def ask_again(n: Node) -> None:
    """[Z4] Once a second while producers wait: jobs may have ended, and nodes come back."""
    keys = n.keys
    for id in list(keys.asking):
        job = n.jobs.get(id)
        if id not in keys.unsure or id not in keys.followers:
            del keys.asking[id]
        elif job is None or job.state == ACKED:
            del keys.asking[id]
            make_sure(n, id)
        else:
            ask_holders(n, job)
    keys.ask_ms = n.now_ms + ASK_MS if len(keys.asking) > 0 else FAR


def ask_holders(n: Node, job: Job) -> None:
    """Send the job to its holders again; each that has it, or stores it now, says so (R2.3)."""
    confirmed: i64 = n.keys.unsure[job.id]
    for slot in slots_of(job.holders & ~confirmed & n.reachable & ~1):
        if n.peers[slot].has_room:
            say(n, slot, copy_of(n, slot, job, 0))
