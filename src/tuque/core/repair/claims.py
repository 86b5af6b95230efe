"""Decides which of several holders serves a job after a restart or a partition (SPEC Q11, Q12).

A restarted node does not know what happened meanwhile: its due times are from its journal. It
holds a job that it would queue until the other holders have replied. Nodes that were
partitioned may both have queued a job: they ask each other once they are linked again.
core/copies/holders.py sends the questions, held jobs first; replies are messages of SPEC Q.
"""

from typing import Final

from mypy_extensions import i64

from tuque.core.copies.holders import claim, repeat_soon, since_of
from tuque.core.copies.requeue_messages import learn_of_copy, put_off
from tuque.core.model.job import (
    ACTIVE,
    ANNOUNCE_WILL,
    ASKED_ALL,
    DELIVERED,
    HELD,
    LEASED,
    ONCE_QUEUED,
    OUT_HERE,
    OUT_THERE,
    QUEUED,
    QUEUED_THERE,
    STALE,
    STAND_DUE,
    WAIT_REPL,
    WAS_QUEUED,
    Job,
    stand_of,
)
from tuque.core.model.task import Task
from tuque.core.msgs.bus import (
    HAS_QUEUED,
    Lack,
    Moved,
    Queued,
    Working,
)
from tuque.core.node.node import Node
from tuque.core.node.peers import (
    introduce,
    rank,
    say,
    slots_of,
)
from tuque.core.queues.procedures import dequeue, enqueue_open, retry_due_ms
from tuque.core.tables.leases import is_leased

FAR: Final = (1 << 62) - 1  # largest int that mypyc stores unboxed
STEP_JOBS: Final = 500  # asked about per turn and node
SWEEP_JOBS: Final = 2_000  # checked per turn
SWEEP_MS: Final = 1_000
CLAIMS_MAX: Final = 2_000  # waiting to be asked of one node


def missing(n: Node, job: Job) -> i64:
    """[Q11] The other holders whose reply the held job waits for (Q11.2)."""
    nodes = can_reply(n) & ~job.confirmed
    if job.marks & ASKED_ALL:
        return nodes  # Q11.9
    return nodes & job.holders


def can_reply(n: Node) -> i64:
    """[Q11.2] The other nodes that can reply now, or may still connect after the start."""
    return (n.reachable | n.leavers | n.held.starting) & ~1 & ~n.forgotten  # Q11.2


def widen(n: Node, job: Job) -> i64:
    """[Q11] No reply of a holder is missing: the nodes to ask before the hold ends; 0: none.

    If no other holder has the job, all are asked: the journal may be an old one, from a backup.
    """
    if job.holders & job.confirmed & ~1:
        return 0
    nodes = can_reply(n) & ~job.confirmed
    if nodes != 0:
        job.marks |= ASKED_ALL  # Q11.9
    return nodes


# ---- Jobs that are held until the others have replied (SPEC Q11)


def doubt_due(n: Node, job: Job, was_queued: bool) -> bool:
    """[J5.3, Q11.1] A loaded job's due time is from before the restart. True if it is held now.

    A job that was queued or is due is held at once, others when they are due.
    """
    if job.retry_s == 0 or job.holders & n.others & ~1 == 0 or job.flags & LEASED:
        return False
    job.marks = STALE
    if not was_queued and (job.qtime_ms == 0 or job.qtime_ms > n.now_ms):
        if job.flags & DELIVERED:
            job.marks |= OUT_HERE  # Q11.7
        return False
    if was_queued:
        job.marks |= WAS_QUEUED
        job.flags |= ONCE_QUEUED
        job.qtime_ms = n.now_ms
    keep(n, job)  # Q11.1
    return True


def is_held(job: Job) -> bool:
    """Whether the job waits for replies."""
    return job.state == ACTIVE and job.marks & HELD != 0


def keep(n: Node, job: Job) -> None:
    """Hold the job: its timer is only for its expiry."""
    job.marks |= HELD
    job.confirmed = 0
    n.held.jobs.append(job)
    n.wheel.arm(job, n.now_ms)


def hold_due(n: Node, job: Job) -> bool:
    """[Q11.1] A due time of the journal has come: ask first. False if there is nobody to ask."""
    job.confirmed = 0
    nodes = missing(n, job)
    if nodes == 0:
        nodes = widen(n, job)
    if nodes == 0:
        job.marks = 0
        return False
    keep(n, job)
    if n.held.sweep_ms == 0:
        n.held.sweep_ms = n.now_ms + SWEEP_MS
    for slot in slots_of(nodes):
        claim(n, slot, job.id)  # Q11.3
    return True


def release(n: Node, job: Job) -> None:
    """[Q11.4] All reachable holders have replied: queue the job, or wait for its due time."""
    was_queued = job.marks & WAS_QUEUED != 0
    job.marks = 0
    job.confirmed = 0
    job.flags &= 0xFF ^ ANNOUNCE_WILL  # the others have been asked
    if not was_queued:
        n.wheel.arm(job, n.now_ms)  # Q2, in this turn or one of the next
        return
    enqueue_open(n, job)  # Q11.4
    if n.records is not None:
        n.records.state(job)


def on_loaded_jobs(n: Node) -> None:
    """[Q11.2] The journal is loaded: give other nodes time to connect."""
    h = n.held
    begin_sweep(n)
    h.starting = n.others
    h.until_ms = n.now_ms + n.limits.node_timeout_ms


def on_away(n: Node, slot: i64) -> None:
    """[Q11.2] Another node reports that this one does not answer: do not wait for it."""
    bit: i64 = 1 << slot
    if n.held.starting & bit:
        n.held.starting &= ~bit
        begin_sweep(n)


# ---- Questions and replies (SPEC Q11, Q12)


def on_claims_heard(n: Node, slot: i64, m: Lack) -> None:
    """[Q11] ON RECV LACK in reply to a question about held jobs: count the reply (Q11.2)."""
    asking = n.losses.asking.get(slot)
    if asking is None:
        return
    question = asking.questions.get(m.number)
    if question is None or not question.is_claim:
        return
    bit: i64 = 1 << slot
    for id in question.ids:
        job = n.jobs.get(id)
        if job is not None and is_held(job):
            job.confirmed |= bit
            if missing(n, job) == 0 and widen(n, job) == 0:
                release(n, job)


def answer_claim(n: Node, slot: i64, job: Job, stand: i64) -> None:
    """[Q12] ON RECV ASK about a job that the sender has queued or held: who serves it? (Q12.2)"""
    if job.retry_s == 0 or stand == 0 or isinstance(job, Task):
        return
    if job.state == WAIT_REPL:
        learn_of_copy(n, job.id, 0, QUEUED_THERE)
        return
    if is_leased(job):
        say(n, slot, Working(job.id, i64(job.retry_s) * 1000))
        return
    mine = stand_of(job)
    left_ms = job.qtime_ms - n.now_ms
    if mine > stand or (mine == stand and outranks(n, slot, job)):
        say(n, slot, Queued(job.id, HAS_QUEUED))  # Q12.2
    elif mine == 0 and left_ms > 0 and job.marks & (OUT_HERE | OUT_THERE):
        say(n, slot, Working(job.id, left_ms))
    elif mine == 0 and left_ms > 0 and stand == STAND_DUE:
        introduce(n, slot, job.holders | 1)
        say(n, slot, Moved(job.id, job.holders | 1, left_ms))
    else:
        give_way(n, job)


def outranks(n: Node, slot: i64, job: Job) -> bool:
    """Whether this node serves the job if both could (Q4.3)."""
    return rank(job.id, n.node_id) > rank(job.id, n.peers[slot].node_id)


def give_way(n: Node, job: Job) -> None:
    """[Q12.3] The other node serves the job: wait here for a retry time."""
    if job.state == QUEUED:
        dequeue(n, job)
        if n.records is not None:
            n.records.state(job)
    put_off(n, job, retry_due_ms(n, job))  # Q12.3
    job.marks |= QUEUED_THERE  # E1.6
    n.book.arm(job)


def ask_queued(n: Node, slot: i64, job: Job, since_ms: i64) -> None:
    """[Q12] A scan's step after a link came up: the peer may have the job queued, too (Q12.1)."""
    if job.state == QUEUED and job.retry_s > 0 and since_of(job) >= since_ms:
        if not isinstance(job, Task):
            claim(n, slot, job.id)  # Q12.1


# ---- Links that come up, and timers (SPEC Q11)


def settle_link_up(n: Node, slot: i64) -> None:
    """A link came up: ask again about held jobs."""
    n.held.able &= ~(1 << slot)
    n.held.feeds.pop(slot, None)


def settle_tick(n: Node) -> None:
    """[Q11] Ask about more held jobs and release those that wait for nobody; bounded per turn."""
    h = n.held
    if n.is_loading or settle_next_ms(n) > n.now_ms:
        return
    if h.starting != 0 and h.until_ms <= n.now_ms:
        h.starting = 0
        begin_sweep(n)
    able = n.reachable | n.leavers
    if able != h.able:
        gained = able & ~h.able
        h.able = able
        for slot in slots_of(gained):
            repeat_soon(n, slot)
            if len(h.jobs) > 0:
                h.feeds[slot] = 0
        begin_sweep(n)
    if h.sweep_ms != 0 and h.sweep_ms <= n.now_ms:
        begin_sweep(n)
    for slot in list(h.feeds):
        feed(n, slot)
    if h.sweep_pos >= 0 and len(h.feeds) == 0:
        sweep(n)


def begin_sweep(n: Node) -> None:
    """Check all held jobs soon: some may have nobody left to wait for."""
    h = n.held
    h.sweep_ms = 0
    if h.sweep_pos > 0:
        del h.jobs[h.kept : h.sweep_pos]  # already checked
    h.kept = 0
    h.sweep_pos = 0 if len(h.jobs) > 0 else -1


def feed(n: Node, slot: i64) -> None:
    """Ask the node about some more of the held jobs."""
    h = n.held
    bit: i64 = 1 << slot
    asking = n.losses.asking.get(slot)
    if asking is not None and len(asking.claims) >= CLAIMS_MAX:
        return
    pos: i64 = h.feeds[slot]
    end: i64 = min(len(h.jobs), pos + STEP_JOBS)
    while pos < end:
        job = h.jobs[pos]
        pos += 1
        if is_held(job) and missing(n, job) & bit:
            claim(n, slot, job.id)
    if pos >= len(h.jobs):
        del h.feeds[slot]
    else:
        h.feeds[slot] = pos


def sweep(n: Node) -> None:
    """Check some of the held jobs; release those that wait for nobody."""
    h = n.held
    jobs = h.jobs
    pos = h.sweep_pos
    end: i64 = min(len(jobs), pos + SWEEP_JOBS)
    while pos < end:
        job = jobs[pos]
        pos += 1
        if not is_held(job):
            continue
        nodes = missing(n, job)
        if nodes == 0:
            nodes = widen(n, job)
        if nodes == 0:
            release(n, job)
            continue
        h.unasked |= nodes
        jobs[h.kept] = job
        h.kept += 1
    h.sweep_pos = pos
    if pos == len(jobs):
        del jobs[h.kept :]
        h.sweep_pos = -1
        ask_unasked(n)
        h.sweep_ms = n.now_ms + SWEEP_MS if len(jobs) > 0 else 0


def ask_unasked(n: Node) -> None:
    """Nodes that have no question open but are waited for were not asked: ask them (Q11.8)."""
    h = n.held
    for slot in slots_of(h.unasked & n.linked):
        asking = n.losses.asking.get(slot)
        if slot not in h.feeds and (asking is None or not asking.has_claims()):
            h.feeds[slot] = 0  # Q11.8
    h.unasked = 0


def settle_next_ms(n: Node) -> i64:
    """The instant at which `settle_tick` next has work."""
    h = n.held
    if n.is_loading:
        return FAR
    if n.reachable | n.leavers != h.able or (h.sweep_pos >= 0 and len(h.feeds) == 0):
        return n.now_ms
    at_ms: i64 = FAR
    for slot in h.feeds:
        asking = n.losses.asking.get(slot)
        if asking is None or len(asking.claims) < CLAIMS_MAX:
            return n.now_ms
    if h.starting != 0:
        at_ms = h.until_ms
    if h.sweep_ms != 0 and h.sweep_ms < at_ms:
        at_ms = h.sweep_ms
    return at_ms
