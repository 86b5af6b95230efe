"""Moves jobs to another node, which then serves them (SPEC F2.2-F4).

An at-least-once job stays here too, as active. Of an at-most-once job exactly one node may
deliver: while it is in transit (IN_TRANSIT) only the receiver may. The sender keeps the job
until the receiver confirms it (GOTJOBS), and resends it to the same node when a link comes
up. The receiver does not pass it on before the sender has dropped its copy (LEFT): so a
repeated message always reaches a node that knows the job and replies without taking it
again. `n.custody` has the at-most-once jobs between these two messages, on both sides.
"""

from typing import Final

from mypy_extensions import i64

from tuque.core.jobs.deliver import demand_of
from tuque.core.jobs.endings import has_ended
from tuque.core.jobs.life_copies import adopt_life, packed_outcome
from tuque.core.jobs.transitions import (
    enqueue,
    is_task,
    may_enqueue,
    memory_level,
    register,
    retry_due_ms,
    told_job,
    unregister,
)
from tuque.core.model import ledger
from tuque.core.model.job import (
    ACKED,
    ACTIVE,
    IN_TRANSIT,
    LET_GO,
    ONCE_QUEUED,
    QUEUED_THERE,
    STALE,
    Job,
)
from tuque.core.msgs.bus import (
    CUSTODY,
    HAS_QUEUED,
    GotJobs,
    Left,
    Moved,
    Queued,
    ReplJob,
    SetAck,
    YourJobs,
)
from tuque.core.node.announce import deny, jitter_behind_ms, set_due, tell_queued
from tuque.core.node.node import Node
from tuque.core.node.queue import PAUSE_IN
from tuque.core.node.slots import introduce, rank, say, slots_of, translate
from tuque.core.replication.holders import hear_holders, spare
from tuque.core.replication.replicate import FIELDS, as_message, end_earlier, job_of
from tuque.core.replication.requeue_messages import is_awaited, keeps_worker, known_job, put_off

AGAIN_MAX: Final = 100  # jobs in one repeated YOURJOBS
LATE_MAX: Final = 10_000  # messages kept while loading


def may_move(n: Node, job: Job) -> bool:
    """Whether the job may go to another node: not while its last sender may still have it."""
    return job.retry_s > 0 or (job.holders == 1 and job.id not in n.custody)


def send_jobs(n: Node, slot: i64, name: bytes, jobs: list[Job]) -> None:
    """[F2] Give active jobs of one queue to a linked node (F2.2). It may refuse them.

    At-most-once jobs among them must satisfy `may_move`.
    """
    bit: i64 = 1 << slot
    messages: list[ReplJob] = []
    for job in jobs:
        others = job.holders & ~bit & ~1
        is_new = job.holders & bit == 0
        job.holders |= bit
        spare(n, job.id, bit)
        introduce(n, slot, job.holders | 1)
        if job.retry_s == 0:
            assert others == 0, "custody of a job is at a third node"
            messages.append(as_message(n, job, CUSTODY, job.qtime_ms - n.now_ms))
            job.flags |= IN_TRANSIT | ONCE_QUEUED  # F2.3
            n.custody[job.id] = slot
            n.wheel.arm(job, n.now_ms)
        else:
            set_due(n, job, retry_due_ms(n, job), QUEUED_THERE)  # E1.6
            messages.append(as_message(n, job, 0, 0))
            for other in slots_of(others):
                introduce(n, other, job.holders | 1)
                say(n, other, Moved(job.id, job.holders, i64(job.retry_s) * 1000))  # F2.4
        if n.records is not None:
            n.records.state(job)
            if is_new:
                n.records.holders(job)
    n.peers[slot].sent += len(messages)
    say(n, slot, YourJobs(name, messages))


def on_yourjobs(n: Node, slot: i64, m: YourJobs) -> None:
    """[F3] ON RECV YOURJOBS. Repeated, it changes nothing; the reply is the same."""
    if n.is_loading:
        m = put_off_once(n, slot, m)
        if len(m.jobs) == 0:
            return
    d = demand_of(n, m.queue)
    d.asked.pop(slot, None)  # one reply per wish
    n.asks[m.queue] = None
    q = n.queues.get(m.queue)
    is_shut = q is not None and q.pause & PAUSE_IN != 0
    is_shut = is_shut or n.is_leaving or n.is_double or n.is_loading or memory_level(n) >= 2
    answer = GotJobs([], [])
    left = Left([])
    taken: i64 = 0
    for copy in m.jobs:
        if is_task(n, copy.id):
            continue  # T1.4
        if copy.id in n.jobs or has_ended(n, copy.id):
            taken += take_known(n, slot, copy, is_shut, answer)
        elif is_shut:  # F3.3
            answer.refused.append(copy.id)
            left.ids.append(copy.id)
            deny(n, copy.id)
        else:
            take_new(n, slot, copy, q.name if q is not None else m.queue)
            taken += 1
            if copy.retry_s == 0:
                answer.ids.append(copy.id)
    if taken > 0:
        n.peers[slot].taken += taken
        d.sources[slot] = n.now_ms  # F3.4
        d.count_imports(n.now_ms, taken)
        d.step_ms = 0
    if len(left.ids) > 0:
        say(n, slot, left)
    if len(answer.ids) > 0 or len(answer.refused) > 0:
        say(n, slot, answer)


def put_off_once(n: Node, slot: i64, m: YourJobs) -> YourJobs:
    """While loading, set the at-most-once jobs aside (F3.5); returns the others."""
    once = [copy for copy in m.jobs if copy.retry_s == 0]
    if len(once) == 0:
        return m
    if len(n.late_moves) < LATE_MAX:
        n.late_moves.append((slot, YourJobs(m.queue, once)))
    return YourJobs(m.queue, [copy for copy in m.jobs if copy.retry_s > 0])


def take_new(n: Node, slot: i64, m: ReplJob, queue: bytes) -> None:
    """Register and queue a job that is unknown here (F3.2, F3.3)."""
    job = job_of(n, FIELDS(m), queue)
    job.qtime_ms = 0
    job.flags = 0
    if job.retry_s == 0:
        job.holders = 1 | (1 << slot)
        n.custody[job.id] = slot
    else:
        job.holders = translate(n, slot, m.holders) | (1 << slot) | 1
    register(n, job, ledger.IMPORTED)
    start(n, job, m.due_ms if job.retry_s == 0 else 0)
    if n.records is not None:
        n.records.add(job)
    adopt_life(n, slot, job, m.life)
    hear_holders(n, slot, job, job.holders, m.holders)  # K5.7
    tell_served(n, slot, job)


def tell_served(n: Node, slot: i64, job: Job) -> None:
    """[F3.7] Send QUEUED to the other holders of the job that came from that node.

    The sender's own message is lost if its link to them is down or about to end.
    """
    if job.retry_s > 0:
        for other in slots_of(job.holders & ~(1 << slot)):
            say(n, other, Queued(job.id, HAS_QUEUED))


def take_known(n: Node, slot: i64, m: ReplJob, is_shut: bool, answer: GotJobs) -> i64:
    """Take over a job that has a copy or tombstone here; 1 if it was queued."""
    job = n.jobs.get(m.id)
    if m.retry_s == 0:
        return take_once(n, slot, m, is_shut, answer)
    if job is None:
        say(n, slot, SetAck(m.id, 0, max(1, m.left_ms), packed_outcome(n, m.id)))  # F3.1
        return 0
    if known_job(n, slot, m.id) is None:
        return 0
    hear_holders(n, slot, job, translate(n, slot, m.holders), m.holders)
    end_earlier(n, job, m)
    adopt_life(n, slot, job, m.life, m.body, m.left_ms)
    if is_shut:
        answer.refused.append(m.id)
    elif m.nacks <= job.nacks and keeps_worker(n, slot, job):
        return 0  # F3.6
    elif may_enqueue(job):
        enqueue(n, job)
        if n.records is not None:
            n.records.state(job)
        tell_served(n, slot, job)
        return 1
    return 0


def take_once(n: Node, slot: i64, m: ReplJob, is_shut: bool, answer: GotJobs) -> i64:
    """Take over an at-most-once job that is known here; 1 if it was queued."""
    job = n.jobs.get(m.id)
    if job is None or job.state != ACTIVE or job.flags & IN_TRANSIT == 0:
        answer.ids.append(m.id)  # its custody arrived before
        return 0
    if job.flags & ONCE_QUEUED or job.id in n.custody:
        return 0  # it was here and moved on: no node may send it back until this one lets go
    if is_shut:
        answer.refused.append(m.id)
        return 0
    # a copy from R6 that was not the one to serve: now it is
    job.flags &= 0xFF ^ IN_TRANSIT
    job.holders = 1 | (1 << slot)
    n.custody[job.id] = slot
    start(n, job, m.due_ms)
    if n.records is not None:
        n.records.holders(job)
        n.records.state(job)
    answer.ids.append(m.id)
    return 1


def start(n: Node, job: Job, due_ms: i64) -> None:
    """Queue the received job; an at-most-once job first waits for the rest of its delay."""
    if due_ms > 0:
        set_due(n, job, n.now_ms + due_ms)
    else:
        enqueue(n, job)


def on_gotjobs(n: Node, slot: i64, m: GotJobs) -> None:
    """[F2.3] ON RECV GOTJOBS."""
    if n.is_loading:
        if len(n.late_answers) < LATE_MAX:
            n.late_answers.append((slot, m))  # F3.5
        return
    left = Left([])
    for id in m.ids:
        job = told_job(n, id)
        if job is None:
            left.ids.append(id)
        elif is_in_transit(n, job, slot):
            unregister(n, job, ledger.MOVED)
            if n.records is not None:
                n.records.remove(id, ledger.MOVED)
                n.records.has_custody = True  # LEFT waits for it (F2.3)
            left.ids.append(id)
    if len(left.ids) > 0:
        say(n, slot, left)
    for id in m.refused:
        job = told_job(n, id)
        if job is not None:
            on_refused(n, slot, job)


def on_refused(n: Node, slot: i64, job: Job) -> None:
    """The peer refused the job: queue it here again, without announcing it."""
    d = n.demands.get(job.queue)
    if d is not None:
        d.wishes.pop(slot, None)
    if job.retry_s == 0:
        if not is_in_transit(n, job, slot):
            return
        job.flags &= 0xFF ^ IN_TRANSIT
        job.holders = 1
        n.custody.pop(job.id, None)
        if n.records is not None:
            n.records.holders(job)
    if not may_enqueue(job):
        return
    if job.retry_s == 0 and job.qtime_ms > n.now_ms:
        set_due(n, job, job.qtime_ms)
    else:
        enqueue(n, job)
    if n.records is not None:
        n.records.state(job)


def is_in_transit(n: Node, job: Job, slot: i64) -> bool:
    """Whether the at-most-once job was sent to that node, which has not replied."""
    return job.state == ACTIVE and job.flags & IN_TRANSIT != 0 and n.custody.get(job.id, -1) == slot


def settle(n: Node, slot: i64, id: bytes) -> None:
    """[F2.3] The node it came from has no copy of the at-most-once job: it may move on.

    For ON RECV LEFT, after the node has left the holders.
    """
    job = n.jobs.get(id)
    if job is None or n.custody.get(id, -1) != slot or job.flags & IN_TRANSIT:
        return
    del n.custody[id]
    n.offers[job.queue] = None


def lose_transits(n: Node, slot: i64) -> None:
    """[F2.3] The node restarted without memory: what it delivered is unknown.

    Jobs in transit to it are not resent: they wait here for an ack or expire.
    """
    for id, to in list(n.custody.items()):
        if to == slot:
            del n.custody[id]


def repeat_custody(n: Node, slot: i64) -> None:
    """[F2.3] A link came up: resend what the previous link may have lost."""
    names: dict[bytes, YourJobs] = {}
    got = GotJobs([], [])
    for id, other in n.custody.items():
        job = n.jobs.get(id)
        if other != slot or job is None or job.state == ACKED:
            continue
        if job.flags & IN_TRANSIT == 0:
            got.ids.append(id)
            continue
        introduce(n, slot, job.holders | 1)
        batch = names.get(job.queue)
        if batch is None or len(batch.jobs) >= AGAIN_MAX:
            batch = YourJobs(job.queue, [])
            names[job.queue] = batch
            say(n, slot, batch)
        batch.jobs.append(as_message(n, job, CUSTODY, job.qtime_ms - n.now_ms))
    if len(got.ids) > 0:
        say(n, slot, got)


def on_loaded_custody(n: Node) -> None:
    """[F3.5] The journal is loaded: process delayed messages about at-most-once jobs."""
    moves, answers = n.late_moves, n.late_answers
    n.late_moves, n.late_answers = [], []
    for slot, yours in moves:
        on_yourjobs(n, slot, yours)
    for slot, got in answers:
        on_gotjobs(n, slot, got)
    for peer in n.peers:
        if peer.is_linked:
            repeat_custody(n, peer.slot)


def take_back(n: Node, job: Job) -> None:
    """[F4] This node let the job go for one that had it no more: queue it again (F4.2)."""
    job.marks &= 0xFF ^ LET_GO
    if may_enqueue(job):
        enqueue(n, job)
        if n.records is not None:
            n.records.state(job)
        tell_queued(n, job, HAS_QUEUED)


def on_moved(n: Node, slot: i64, m: Moved) -> None:
    """[F4] ON RECV MOVED: another node serves the job; add its holders (F4.1)."""
    job = known_job(n, slot, m.id)
    if job is not None:
        hear_holders(n, slot, job, translate(n, slot, m.holders), m.holders)
        if job.marks & LET_GO and rank(m.id, n.peers[slot].node_id) > rank(m.id, n.node_id):
            take_back(n, job)
            return
        is_doubted = job.marks & STALE != 0 and is_awaited(n, job)
        let_go = job.marks & LET_GO
        put_off(n, job, n.now_ms + m.left_ms + jitter_behind_ms(n))
        job.marks |= let_go
        if is_doubted:
            job.marks |= STALE  # Q11.5
