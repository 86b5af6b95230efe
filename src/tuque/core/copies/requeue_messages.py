"""Messages from other holders about a job that is also here (SPEC Q3, Q4, Q9).

Each sender has a copy, so it becomes a holder. A due time only moves later: no message cuts a
delay short.
"""

from mypy_extensions import i64, u8

from tuque.core.copies.holders import learn_holder, spare
from tuque.core.copies.replicate import copy_due_ms
from tuque.core.model.job import (
    ACKED,
    ACTIVE,
    DELIVERED,
    LEASED,
    LET_GO,
    OUT_HERE,
    OUT_THERE,
    QUEUED,
    QUEUED_THERE,
    STALE,
    WAIT_REPL,
    Job,
)
from tuque.core.model.work import LIVE
from tuque.core.msgs.bus import (
    COUNT_DELIVERY,
    COUNT_NACK,
    HAS_QUEUED,
    WAS_ASKED,
    Delivered,
    Moved,
    Queued,
    SetAck,
    WillQueue,
    Working,
)
from tuque.core.node.node import Node
from tuque.core.node.peers import (
    FIRST_MS,
    TOMB_MS,
    introduce,
    jitter_behind_ms,
    rank,
    say,
    set_due,
    tell_queued,
)
from tuque.core.queues.ends import has_ended
from tuque.core.queues.procedures import dequeue, retry_due_ms, told_job
from tuque.core.queues.work_copies import ack_of, packed_outcome
from tuque.core.tables.leases import is_leased


def known_job(n: Node, slot: i64, id: bytes) -> Job | None:
    """The job if it is open here; adds the sender to its holders (Q3.2).

    If it is done, the sender is informed (Q3.1, Q4.1, Q9.1); for an unknown one nothing is sent.
    """
    job = told_job(n, id)
    if job is None:
        if has_ended(n, id):
            say(n, slot, SetAck(id, 0, TOMB_MS, packed_outcome(n, id)))
        return None
    if job.state == WAIT_REPL:
        return None
    bit: i64 = 1 << slot
    if job.holders & bit == 0:
        learn_holder(n, job, slot)
    else:
        spare(n, id, bit)
    if job.state == ACKED:
        introduce(n, slot, job.holders | 1)
        say(
            n,
            slot,
            ack_of(n, job),
        )
        return None
    return job


def put_off(n: Node, job: Job, due_ms: i64) -> None:
    """Postpone the due time of an active job that can be queued again; never move it earlier."""
    if job.flags & LEASED:
        return  # it has no due time (Y6.2)
    if job.state == ACTIVE and job.retry_s > 0 and due_ms > job.qtime_ms:
        set_due(n, job, due_ms)


def is_awaited(n: Node, job: Job) -> bool:
    """[Q11.5] Whether a holder of the loaded job may still connect: it was not asked yet."""
    if n.held.until_ms <= n.now_ms:
        return False  # after a standstill, before the next tick
    return job.holders & n.held.starting & ~n.linked & ~1 & ~n.forgotten != 0


def on_willqueue(n: Node, slot: i64, m: WillQueue) -> None:
    """[Q3] ON RECV WILLQUEUE: reply if the job is queued here, or at a worker (Q3.3)."""
    for id in m.ids:
        job = known_job(n, slot, id)
        if job is None:
            put_off_copy(n, slot, id)
        elif job.state == QUEUED:
            tell_queued(n, job, HAS_QUEUED)  # Q3.3
        elif is_leased(job):
            say(n, slot, Delivered(id, i64(job.retry_s) * 1000))  # Y8.2
        elif left_here_ms(n, job) > 0:
            say(n, slot, Delivered(id, left_here_ms(n, job)))
        elif job.marks & STALE and is_awaited(n, job):
            introduce(n, slot, job.holders | 1)
            say(n, slot, Moved(id, job.holders | 1, n.held.until_ms - n.now_ms))  # Q11.6


def put_off_copy(n: Node, slot: i64, id: bytes) -> None:
    """[Q3.1] A job that waits for copies here must not be served from one of them."""
    adding = n.adding.get(id)
    if adding is None or adding.server_slot > 0 or adding.job.qtime_ms != 0:
        return  # another node serves it
    job = adding.job
    introduce(n, slot, job.holders)
    say(n, slot, Moved(id, job.holders, copy_due_ms(n, job)))


def learn_of_copy(n: Node, id: bytes, left_ms: i64, mark: i64) -> None:
    """[R3.5] Another node serves a job that still waits for copies here.

    `left_ms`: how long a worker has it, 0: none does; `mark`: what is known of it (Q9.3).
    """
    adding = n.adding.get(id)
    if adding is None or adding.job.retry_s == 0:
        return
    job = adding.job
    if left_ms > 0:
        job.flags |= DELIVERED
    else:
        left_ms = i64(job.retry_s) * 1000
    job.marks = u8(mark)
    due_ms = n.now_ms + left_ms + jitter_behind_ms(n)
    if due_ms > job.qtime_ms:
        job.qtime_ms = due_ms


def is_run_over(n: Node, job: Job) -> bool:
    """[W14] Whether the worker that got the job here has given it up, maybe at another node."""
    life = n.life.by_id.get(job.id)
    if life is None or life.run_state <= LIVE:
        return False
    return job.last_ms <= life.ended_ms


def left_here_ms(n: Node, job: Job) -> i64:
    """[Q3.3] How long, in ms, a worker with the job or WORKING from here still has it."""
    left_ms: i64 = 0
    if n.has_lives and is_run_over(n, job):
        return 0  # W14.9
    if job.delivered_count > 0:
        left_ms = job.last_ms + i64(job.retry_s) * 1000 - n.now_ms
    if job.marks & OUT_HERE and job.qtime_ms - n.now_ms >= left_ms + FIRST_MS:
        left_ms = job.qtime_ms - n.now_ms  # its worker sent WORKING
    return left_ms


def keeps_worker(n: Node, slot: i64, job: Job) -> bool:
    """[Q4.5, F3.6] Inform a node that serves the job on its own clock that a worker here has it.

    True if so: the job is not queued here, and the other node dequeues it.
    """
    if job.state != ACTIVE or job.retry_s == 0 or job.marks & OUT_HERE == 0:
        return False
    left_ms = left_here_ms(n, job)
    if left_ms <= 0:
        return False
    say(n, slot, Working(job.id, left_ms))
    return True


def is_given_back(n: Node, job: Job, how: i64) -> bool:
    """[Q4.5] Whether a client has given it back: ENQUEUE and RELEASE skip a job at work (W4.4)."""
    if how & COUNT_NACK:
        return True
    work = n.life.by_id.get(job.id)
    return how & WAS_ASKED != 0 and (work is None or work.run_state != LIVE)


def on_queued(n: Node, slot: i64, m: Queued) -> None:
    """[Q4] ON RECV QUEUED."""
    job = known_job(n, slot, m.id)
    if job is None:
        learn_of_copy(n, m.id, 0, QUEUED_THERE if m.how & HAS_QUEUED else 0)
        return
    if m.how & COUNT_NACK:
        job.nacks += 1  # Q4.2
    elif m.how & COUNT_DELIVERY:
        job.deliveries += 1
    if m.how & HAS_QUEUED and not is_given_back(n, job, m.how) and keeps_worker(n, slot, job):
        return  # Q4.5
    n.untold.pop(m.id, None)
    kept: i64 = i64(job.marks & LET_GO)
    if job.state == QUEUED:
        if m.how & HAS_QUEUED == 0:
            return
        if rank(m.id, n.node_id) > rank(m.id, n.peers[slot].node_id):
            say(n, slot, Queued(m.id, HAS_QUEUED))
            return
        dequeue(n, job)  # Q4.3
        kept = LET_GO  # F4.2
        if n.records is not None:
            n.records.state(job)
    put_off(n, job, retry_due_ms(n, job))  # Q4.4
    job.marks &= 0xFF ^ (OUT_HERE | OUT_THERE | QUEUED_THERE)
    job.marks |= u8(kept)
    if m.how & HAS_QUEUED:
        job.marks |= QUEUED_THERE  # E1.6
        life = n.life.by_id.get(m.id) if n.has_lives else None
        if life is not None:
            life.is_resting = False  # W2.3
    n.book.arm(job)


def on_delivered(n: Node, slot: i64, m: Delivered) -> None:
    """[Q9] ON RECV DELIVERED."""
    job = known_job(n, slot, m.id)
    if job is not None:
        learn_of_worker(n, job, m.left_ms)
    else:
        learn_of_copy(n, m.id, m.left_ms, OUT_THERE)


def on_working_message(n: Node, slot: i64, m: Working) -> None:
    """[Q9] ON RECV WORKING."""
    job = known_job(n, slot, m.id)
    if job is None:
        learn_of_copy(n, m.id, m.left_ms, OUT_THERE)
        return
    if job.state == QUEUED and job.retry_s > 0:
        dequeue(n, job)
        if n.records is not None:
            n.records.state(job)
    learn_of_worker(n, job, m.left_ms)


def learn_of_worker(n: Node, job: Job, left_ms: i64) -> None:
    """A worker of another node has the job for `left_ms` (Q9.2).

    That is known also where the due time is later already (Q9.3).
    """
    if job.retry_s > 0:
        job.flags |= DELIVERED
        if job.state == ACTIVE:
            due_ms = n.now_ms + left_ms + jitter_behind_ms(n)
            if due_ms > job.qtime_ms:
                is_doubted = job.marks & STALE != 0 and is_awaited(n, job)
                put_off(n, job, due_ms)
                job.marks = OUT_THERE
                if is_doubted:
                    job.marks |= STALE  # Q11.5
            else:
                job.marks = job.marks & (0xFF ^ (QUEUED_THERE | LET_GO)) | OUT_THERE  # Q9.3
            n.book.arm(job)
