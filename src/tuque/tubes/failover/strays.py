"""Plain jobs in a tube that another node leads: no client gets them here (SPEC T1.9)."""

from typing import Final

from mypy_extensions import i64

from tuque.core.copies.federation import may_move, send_jobs
from tuque.core.node.node import Node
from tuque.core.node.queue import PAUSE_IN
from tuque.core.queues.procedures import dequeue
from tuque.tubes.model.registry import Tubes
from tuque.tubes.model.tube import Tube

STEP_JOBS: Final = 100  # of one tube in one round


def give_strays(n: Node, t: Tubes) -> None:
    """[T1] Give the plain jobs of tubes led elsewhere to their leaders (T1.9)."""
    for tube in t.by_name.values():
        if tube.plain > 0 and not tube.is_mine and tube.pause & PAUSE_IN == 0:
            give(n, tube)


def give(n: Node, tube: Tube) -> None:
    """Give some plain jobs of the tube to its leader, if that can take them."""
    slot: i64 = n.slot_of.get(tube.home, 0)
    peer = n.peers[slot]
    if slot == 0 or not peer.is_linked or peer.is_leaving or not peer.has_room:
        return
    jobs = [job for job in tube.first_plain(STEP_JOBS) if may_move(n, job)]
    for job in jobs:
        dequeue(n, job)
    if len(jobs) > 0:
        send_jobs(n, slot, tube.name, jobs)
