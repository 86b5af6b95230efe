"""Jobs of a node that takes no copies itself: another node serves them (SPEC R6, R8)."""

from mypy_extensions import i64

from tuque.core.jobs.transitions import enqueue, unregister
from tuque.core.model import ledger
from tuque.core.model.job import (
    ACTIVE,
    DELIVERED,
    IN_TRANSIT,
    ONCE_QUEUED,
    OUT_THERE,
    QUEUED_THERE,
    Job,
)
from tuque.core.model.task import Task
from tuque.core.msgs.bus import Enqueue, Enqueued, Holders, Left
from tuque.core.node.announce import set_due
from tuque.core.node.node import Adding, Node
from tuque.core.node.queue import PAUSE_IN
from tuque.core.node.slots import introduce, say, slots_of


def pass_on(n: Node, adding: Adding) -> None:
    """[R6.2] Ask one of the nodes that have the job to serve it, until it replies.

    Custody of an at-most-once job is offered to one node only.
    """
    job = adding.job
    peer_is_gone = adding.server_slot > 0 and not n.peers[adding.server_slot].is_linked
    if adding.server_slot == 0 or (peer_is_gone and job.retry_s > 0):
        linked: list[int] = []
        for slot in slots_of(job.confirmed & ~n.forgotten):
            if n.peers[slot].is_linked:
                linked.append(slot)
        if len(linked) == 0:
            return
        is_first = adding.server_slot == 0
        adding.server_slot = linked[n.chance.below(len(linked))]
        if is_first and job.retry_s > 0:
            tell_asked(n, job, job.holders & ~(1 << adding.server_slot))
    due_ms = job.ctime_ns // 1_000_000 + i64(job.delay_s) * 1000 - n.now_ms
    if job.delay_s == 0 or due_ms < 0:
        due_ms = 0
    introduce(n, adding.server_slot, job.holders)
    say(n, adding.server_slot, Holders(job.id, job.holders))
    say(n, adding.server_slot, Enqueue(job.id, due_ms))
    adding.sent_ms = n.now_ms


def tell_asked(n: Node, job: Job, nodes: i64) -> None:
    """[R6.2] Send HOLDERS to nodes asked for a copy before the others, even if theirs is late.

    This node, the only one that knows all of them, forgets the job.
    """
    for slot in slots_of(nodes):
        introduce(n, slot, job.holders)
        say(n, slot, Holders(job.id, job.holders))


def on_enqueued(n: Node, slot: i64, m: Enqueued) -> None:
    """[R6.2] ON RECV ENQUEUED: another node serves the external job."""
    for id in m.ids:
        adding = n.adding.get(id)
        if adding is not None and adding.server_slot == slot:
            del n.adding[id]
            unregister(n, adding.job, ledger.MOVED)
            if adding.job.retry_s == 0:
                say(n, slot, Left([id]))  # it may now move on (F2.3)


def on_offer_left(n: Node, slot: i64, job: Job) -> None:
    """[R8.4] The node that got an external at-most-once job no longer has it.

    An earlier incarnation may have delivered it: no other node is asked.
    """
    adding = n.adding.get(job.id)
    if adding is not None and adding.server_slot == slot:
        del n.adding[job.id]
        unregister(n, job, ledger.MOVED)


def on_enqueue_message(n: Node, slot: i64, m: Enqueue) -> None:
    """[R8] ON RECV ENQUEUE. A repeated one changes nothing and gets the same reply."""
    job = n.jobs.get(m.id)
    if isinstance(job, Task):
        return  # T1.4
    if job is None:
        if n.tombs.has(m.id):
            say_enqueued(n, slot, m.id)
        elif not n.is_loading:
            say(n, slot, Left([m.id]))  # R8.4
        return
    is_served = job.retry_s > 0 and job.marks & (QUEUED_THERE | OUT_THERE) != 0
    if job.state == ACTIVE and not job.flags & DELIVERED and not is_served:
        had_custody = job.retry_s > 0 or not job.flags & IN_TRANSIT
        if had_custody and job.retry_s == 0:
            say_enqueued(n, slot, m.id)  # it has custody already and waits for the delay
            return
        job.flags &= 0xFF ^ (IN_TRANSIT | ONCE_QUEUED)  # R8.2
        if job.retry_s == 0:
            job.holders = 1 | (1 << slot)  # no other copy can be delivered
            n.custody[job.id] = slot
            if n.records is not None:
                n.records.holders(job)
        q = n.queues.get(job.queue)
        if m.delay_ms > 0:
            set_due(n, job, n.now_ms + m.delay_ms)  # R8.1
        elif q is not None and q.pause & PAUSE_IN:
            set_due(
                n, job, n.now_ms + (i64(job.retry_s) * 1000 if job.retry_s > 0 else 1000)
            )  # R8.3
        else:
            enqueue(n, job)
        if n.records is not None:
            n.records.state(job)
    say_enqueued(n, slot, m.id)


def say_enqueued(n: Node, slot: i64, id: bytes) -> None:
    """Reply to ENQUEUE."""
    say(n, slot, Enqueued([id]))
