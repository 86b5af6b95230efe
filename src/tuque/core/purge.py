"""PURGE: jobs of a queue that no worker has go, here and at the other nodes (SPEC T74.7, T74.10).

A node removes its own ones first, some in a turn; then it asks all that are linked, and adds up
their answers.
"""

from typing import Final

from mypy_extensions import i64

from tuque.core.copies.ack import ack_job
from tuque.core.life.shown import phase_of
from tuque.core.model.job import ACTIVE, Job
from tuque.core.model.task import Task
from tuque.core.msgs.bus import QueuePurge, QueuePurged
from tuque.core.node.node import Node
from tuque.core.node.peers import slots_of
from tuque.core.queues.ends import wake_waiters
from tuque.core.tables.topics import OF_BACK_OFF, OF_DELAYED, OF_QUEUED, Purge
from tuque.core.topics import send_to

STEPS: Final = 500  # jobs that go in a turn
SEEN: Final = 4  # jobs of the node that are looked at, for one that goes


def begin_purge(n: Node, queue: bytes, what: i64, is_here: bool = False) -> Purge:
    """[T74] A client here asks for it; who waits for `wait_key` of it hears of its end."""
    one = start(n, queue, what)
    n.settings.purges += 1
    one.serial = n.settings.purges
    one.is_here = is_here
    return one


def start(n: Node, queue: bytes, what: i64) -> Purge:
    """What is there now goes in this turn and the next ones (L2.2)."""
    one = Purge(queue, what)
    q = n.queues.get(queue)
    if q is not None and what & OF_QUEUED:
        one.left = q.length
    if what & ~OF_QUEUED != 0:
        one.place = len(n.job_list)
    n.settings.purging.append(one)
    n.settings.next_ms = n.now_ms
    return one


def wait_key(one: Purge) -> bytes:
    """Under what its client waits, among ids of jobs (core/tables/work.py)."""
    return b"purge:%d" % one.serial


def on_purge_ask(n: Node, slot: i64, m: QueuePurge) -> None:
    """[T74] ON RECV QUEUE-PURGE: the same here; the answer follows at its end (T74.10)."""
    one = start(n, m.queue, m.what)
    one.asker = slot
    one.serial = m.serial


def on_purged(n: Node, slot: i64, m: QueuePurged) -> None:
    """[T74] ON RECV QUEUE-PURGED: so many have gone there (T74.10)."""
    for one in n.settings.purging:
        if one.asker == 0 and one.serial == m.serial and one.waiting >> slot & 1:
            one.waiting &= ~(1 << slot)
            one.done += m.count
    n.settings.next_ms = n.now_ms


def purge_link_down(n: Node, slot: i64) -> None:
    """[T74] Who waits for an answer of that node waits no more (T74.10)."""
    for one in list(n.settings.purging):
        if one.asker == slot:
            n.settings.purging.remove(one)
        elif one.waiting >> slot & 1:
            one.waiting &= ~(1 << slot)
            one.is_short = True
    n.settings.next_ms = n.now_ms


# ---- TIMER


def purge_tick(n: Node) -> bool:
    """[T74] TIMER: the next jobs go; whether there are more for the next turn."""
    room: i64 = STEPS
    for one in list(n.settings.purging):
        room -= remove_some(n, one, room)
        if one.left + one.place > 0:
            return True
        if one.asker == 0 and one.serial > 0 and not one.is_here and not one.has_asked:
            ask_others(n, one)
        if one.waiting == 0:
            n.settings.purging.remove(one)
            end(n, one)
    return False


def remove_some(n: Node, one: Purge, room: i64) -> i64:
    """Acknowledge the next jobs, at most so many; returns how much work that was."""
    used: i64 = 0
    while one.left > 0 and used < room:
        q = n.queues.get(one.queue)
        job = None if q is None or q.policy is not None or q.length == 0 else q.first()
        if job is None:
            one.left = 0
            break
        ack_job(n, job, -1)
        one.left -= 1
        one.done += 1
        used += 1
    seen: i64 = 0
    while one.left == 0 and one.place > 0 and used + seen // SEEN < room:
        seen += 1
        one.place = min(one.place, len(n.job_list)) - 1
        if one.place < 0:
            one.place = 0
            break
        job = n.job_list[one.place]
        if job.queue == one.queue and waits(n, job, one.what):
            ack_job(n, job, -1)
            one.done += 1
            used += 1
    used += seen // SEEN
    n.work += used
    return used


def waits(n: Node, job: Job, what: i64) -> bool:
    """Whether the job is in its first delay or in a back-off, and this node is the one of its
    reachable holders that removes it (T74.10).
    """
    if job.state != ACTIVE or isinstance(job, Task):
        return False
    phase = phase_of(n, job, n.life.by_id.get(job.id))
    is_meant = phase == b"scheduled" and what & OF_DELAYED != 0
    if not is_meant and (phase != b"back-off" or what & OF_BACK_OFF == 0):
        return False
    for slot in slots_of(job.holders & n.reachable & ~1):
        if n.peers[slot].node_id < n.node_id:
            return False
    return True


def ask_others(n: Node, one: Purge) -> None:
    """Send it to all linked nodes."""
    one.has_asked = True
    one.is_short = one.is_short or n.others & ~n.linked & ~1 != 0
    for slot in slots_of(n.linked & ~1):
        one.waiting |= 1 << slot
        send_to(n, slot, QueuePurge(int(one.serial), one.queue, int(one.what)))


def end(n: Node, one: Purge) -> None:
    """All is done: answer the node, or wake the client."""
    if one.asker != 0:
        send_to(n, one.asker, QueuePurged(int(one.serial), int(one.done)))
    elif one.serial > 0:
        wake_waiters(n, wait_key(one))
    one.is_over = True


def end_all(n: Node) -> None:
    """Forget all, and let nobody wait."""
    for one in list(n.settings.purging):
        end(n, one)
    n.settings.purging = []
