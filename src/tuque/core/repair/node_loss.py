"""Restores lost copies and drops lost nodes from holder sets (SPEC K5, K6).

A scan over all jobs drops a node from the holders, or asks it for the copies that it should
have. core/copies/rereplicate.py repairs jobs that then have too few copies.
"""

from typing import Final

from mypy_extensions import i64

from tuque.core.copies.ack_gc import collect, forget_asked, forget_tombs, unconfirm
from tuque.core.copies.federation import lose_transits
from tuque.core.copies.holders import (
    answered,
    ask,
    ask_some,
    gone_from,
    is_back,
    join_holders,
    learn_holder,
    note_gone,
    on_all_answered,
    spare,
    stop_asking,
)
from tuque.core.copies.rereplicate import (
    WINDOW_MS,
    examine,
    gain_copy,
    recheck,
    repair_some,
    to_bucket,
    wake_rested,
)
from tuque.core.model.job import ACKED, EXTERNAL, WAIT_REPL, Job
from tuque.core.msgs.bus import (
    Ask,
    Holders,
    Lack,
    SetAck,
)
from tuque.core.node.node import Node
from tuque.core.node.peers import (
    TOMB_MS,
    answered_ms_of,
    deny,
    introduce,
    renew,
    say,
    slots_of,
)
from tuque.core.queues.ends import has_ended
from tuque.core.queues.procedures import told_job
from tuque.core.queues.work_copies import ack_of, packed_outcome
from tuque.core.repair.claims import (
    answer_claim,
    ask_queued,
    on_claims_heard,
    settle_link_up,
)
from tuque.core.tables.repair import (
    CHECK,
    COUNT,
    DOUBT,
    FAR,
    FORGET,
    RECHECK,
    SETTLE,
    STRIP,
    Walk,
)

STEP_JOBS: Final = 500  # per turn


# ---- Nodes that come back or are forgotten: all jobs are scanned (SPEC K5, K6)


def on_incarnation(n: Node, slot: i64, is_empty: bool, life: i64 = 0) -> None:
    """[K5] A link to the peer is about to come up; no-op if its incarnation is known.

    `life` differs between incarnations (K2.2); `is_empty`: this one started without jobs. Call it
    before handling any of its messages.
    """
    known = n.lives.get(slot, 0)
    if life == known and life != 0:
        return
    renew(n, slot, life)
    unconfirm(n, slot)  # A5.2, K5.1
    stop_asking(n, slot)
    n.losses.anew &= ~(1 << slot)
    if is_empty:
        n.losses.anew |= 1 << slot
        lose_transits(n, slot)
    named = n.losses.named.pop(slot, None)
    if is_empty and known != 0:
        n.losses.unsure &= ~(1 << slot)
        begin_walk(n, STRIP, slot)  # K5.1
        if named is None:
            n.peers[slot].sure_ms = n.now_ms + 1  # it asks about what it has queued (Q12.1)
        else:
            n.losses.walks[len(n.losses.walks) - 1].named = named
        return
    n.losses.doubted |= 1 << slot
    begin_walk(n, CHECK if known != 0 else DOUBT, slot)  # K5.2


def on_forget(n: Node, slot: i64) -> None:
    """[K6] The peer was forgotten: it leaves all holder sets (K6.2)."""
    bit: i64 = 1 << slot
    n.forgotten |= bit
    stop_asking(n, slot)
    n.losses.unsure &= ~bit
    lose_transits(n, slot)
    forget_tombs(n, slot)
    forget_asked(n, slot)
    n.losses.parted.pop(slot, None)
    n.losses.named.pop(slot, None)
    begin_walk(n, FORGET, slot)


def begin_walk(n: Node, kind: i64, slot: i64) -> None:
    """Start a scan of all current jobs at the next tick."""
    if kind == RECHECK:
        n.losses.walks.append(Walk(kind, slot, list(n.losses.short), n.is_loading))
        return
    entered = n.ledger.entered()
    walk = Walk(kind, slot, ids_of(n, entered), n.is_loading)
    walk.entered = entered
    n.losses.walks.append(walk)


def ids_of(n: Node, entered: i64) -> list[bytes]:
    """The ids of all current jobs, maybe of some that have left.

    A scan that began since a job last entered has them: links often come up together.
    """
    for walk in n.losses.walks:
        if walk.entered == entered:
            return walk.ids
    return list(n.jobs)


def begin_settling(n: Node, slot: i64) -> None:
    """[Q11, Q12] A link came up: the peer may have jobs queued that are held or queued here."""
    settle_link_up(n, slot)
    since_ms = n.peers[slot].sure_ms
    if since_ms <= n.now_ms and (len(n.jobs) > 0 or n.is_loading):
        begin_walk(n, SETTLE, slot)
        n.losses.walks[len(n.losses.walks) - 1].since_ms = since_ms


def end_settling(n: Node, slot: i64) -> None:
    """[Q12] A link went down; what was sent since the last answered heartbeat may be lost (Q12.1).

    Call it before questions are dropped: the next link asks what was not asked.
    """
    walks = n.losses.walks
    is_done = True
    for _ in range(len(walks)):
        walk = walks.popleft()
        if walk.kind == SETTLE and walk.slot == slot:
            is_done = False
        else:
            walks.append(walk)
    asking = n.losses.asking.get(slot)
    answered_ms = answered_ms_of(n, slot)
    if answered_ms > 0 and is_done and (asking is None or not asking.has_claims()):
        n.peers[slot].sure_ms = answered_ms


def walk_some(n: Node, walk: Walk) -> None:
    """Continue a scan by some jobs."""
    if walk.is_late:
        walk.is_late = False
        walk.entered = -1  # its ids are those of the begin
        entered = n.ledger.entered()
        walk.ids = ids_of(n, entered)
        walk.entered = entered
    end = walk.pos + STEP_JOBS
    if end > len(walk.ids):
        end = len(walk.ids)
    bit: i64 = 1 << walk.slot
    while walk.pos < end:
        job = n.jobs.get(walk.ids[walk.pos])
        walk.pos += 1
        if job is None:
            continue
        if walk.kind == RECHECK:
            recheck(n, job)
        elif walk.kind == COUNT:
            examine(n, job)
        elif walk.kind == SETTLE:
            if job.holders & bit:
                ask_queued(n, walk.slot, job, walk.since_ms)
        elif job.holders & bit:
            visit(n, walk, job)
    if walk.pos == len(walk.ids):
        n.losses.walks.popleft()
        if walk.slot not in n.losses.asking:
            on_all_answered(n, walk.slot)


def visit(n: Node, walk: Walk, job: Job) -> None:
    """Handle a job that the scanned node is believed to have."""
    if job.state == ACKED:
        if walk.kind == FORGET and n.forgotten & 1 << walk.slot:
            leave_acked(n, job, 1 << walk.slot)  # K6.2
        return
    if walk.kind == STRIP or walk.kind == FORGET:
        doubt_away(n, walk.slot, job)
        if job.id in walk.named and job.retry_s > 0 and job.state != WAIT_REPL:
            ask(n, walk.slot, job.id, False)  # K5.1: it may have restarted once more since
            return
        if job.id in walk.spared:
            return
        lose_copy(n, job, walk.slot)
    if job.retry_s == 0:
        if walk.kind != FORGET and n.records is not None:
            n.records.holders(job)  # F2.3: custody stays with the new incarnation
        return
    if walk.kind == DOUBT:
        ask(n, walk.slot, job.id, False)
        examine(n, job)
    else:
        ask_others(n, job)


def doubt_away(n: Node, slot: i64, job: Job) -> None:
    """[K5.1, K6.2] The node may have handed its copy to nodes without a link to this one (K7.2).

    It may have been the only one to know them; without them the job would seem to have ended.
    """
    away = n.others & ~n.linked & ~n.forgotten & ~job.holders & ~(1 << slot)
    if away == 0 or job.retry_s == 0 or job.state == WAIT_REPL:
        return
    join_holders(n, job, away)
    for other in slots_of(away):
        note_gone(n, other, job)
        ask(n, other, job.id, False)


def ask_others(n: Node, job: Job) -> None:
    """[K5, K6, K7] A copy is gone: ask the other presumed holders for theirs (K5.2).

    The set may include a node that took none (R2.4), or added the job for others (R6.1).
    """
    for other in slots_of(job.holders & ~n.forgotten):
        ask(n, other, job.id, False)  # K5.2


def leave_acked(n: Node, job: Job, bits: i64) -> None:
    """Take nodes out of the sets of an acked job; this may complete its collection."""
    job.holders &= ~bits
    job.confirmed &= ~bits
    if n.records is not None:
        n.records.holders(job)
    collect(n, job)


def lose_copy(n: Node, job: Job, slot: i64) -> None:
    """The node has no copy of the open job."""
    bit: i64 = 1 << slot
    if job.holders & bit == 0:
        return
    is_news = gone_from(n, job.id) & bit == 0  # it counted as a copy (K5.7)
    job.holders &= ~bit
    if job.state == WAIT_REPL:
        job.confirmed &= ~bit
        adding = n.adding.get(job.id)
        if adding is not None and adding.server_slot == slot and job.retry_s > 0:
            adding.server_slot = 0  # R6.2: choose another
        return
    if n.records is not None:
        n.records.holders(job)
    if job.retry_s == 0:
        n.offers[job.queue] = None  # F2.3: no other node can still have it
        return
    examine(n, job)
    short = n.losses.short.get(job.id)
    if short is not None and (is_news or short.targets & bit):
        short.targets &= ~bit
        short.asked &= ~bit
        if short.targets == 0 and short.at_ms != 0:
            to_bucket(n, job, short)


# ---- Questions about copies, and replies (SPEC K5.2)


def on_ask(n: Node, slot: i64, m: Ask) -> None:
    """[K5] ON RECV ASK (K5.2, K5.4); ignored while the journal is loaded."""
    if n.is_loading:
        return
    lacking: list[bytes] = []
    for i, id in enumerate(m.ids):
        job = told_job(n, id)
        if job is None or job.flags & EXTERNAL:
            if has_ended(n, id):
                say(n, slot, SetAck(id, 0, TOMB_MS, packed_outcome(n, id)))
            else:
                lacking.append(id)
                deny(n, id)
            continue
        if job.state == ACKED:
            introduce(n, slot, job.holders | 1)
            say(
                n,
                slot,
                ack_of(n, job),
            )
            continue
        learn_holder(n, job, slot)
        if i < len(m.stands):
            answer_claim(n, slot, job, m.stands[i])
        if m.is_short:
            introduce(n, slot, job.holders | 1)
            say(n, slot, Holders(id, job.holders))  # K5.4
            examine(n, job)
    say(n, slot, Lack(m.number, lacking))


def on_lack(n: Node, slot: i64, m: Lack) -> list[bytes]:
    """[K5] ON RECV LACK: the sender leaves the holders (K5.2). Returns the ids that it has."""
    for id in m.ids:
        job = told_job(n, id)
        if job is None or job.state == ACKED:
            continue
        short = n.losses.short.get(id)
        if short is not None:
            short.refused |= 1 << slot
        lose_copy(n, job, slot)
        note_gone(n, slot, job)
    on_claims_heard(n, slot, m)
    there = answered(n, slot, m)
    on_there(n, slot, there)
    return there


def on_there(n: Node, slot: i64, ids: list[bytes]) -> None:
    """The peer confirmed copies: of a repair, or when asked."""
    state = n.losses
    if len(state.walks) > 0:
        for id in ids:
            spare(n, id, 1 << slot)
    if state.gone.count() > 0:
        for id in ids:
            is_back(n, slot, id)
    if len(state.short) > 0:
        for id in ids:
            short = state.short.get(id)
            job = n.jobs.get(id)
            if short is not None and job is not None:
                gain_copy(n, job, short, slot)


# ---- Timers (SPEC K5)


def repair_left(n: Node) -> i64:
    """[K5] Jobs with too few copies, and copies still to be asked for (K5.5)."""
    state = n.losses
    left: i64 = len(state.short)
    for walk in state.walks:
        if walk.kind != RECHECK:
            left += len(walk.ids) - walk.pos + (1 if walk.is_late else 0)
    for asking in state.asking.values():
        left += asking.left()
    if state.unsure & n.linked & ~state.doubted:
        left += 1
    return left


def repair_tick(n: Node) -> None:
    """[K5, K6] Continue scans, questions and repairs, bounded per turn."""
    if n.is_loading:
        return
    state = n.losses
    fresh = state.unsure & n.linked & ~state.doubted
    if fresh != 0:
        state.doubted |= fresh
        for slot in slots_of(fresh):
            begin_walk(n, DOUBT, slot)
    if state.must_count and n.linked != 0:
        state.must_count = False
        begin_walk(n, COUNT, 0)
    if state.reach != n.reachable:
        state.reach = n.reachable
        if len(state.short) > 0:
            begin_walk(n, RECHECK, 0)
    if len(state.walks) > 0:
        walk_some(n, state.walks[0])
    ask_some(n)
    if len(state.short) > 0:
        wake_rested(n)
        repair_some(n)


def repair_next_ms(n: Node) -> i64:
    """The instant at which `repair_tick` next has work."""
    state = n.losses
    if n.is_loading:
        return FAR
    if len(state.walks) > 0 or state.unsure & n.linked & ~state.doubted:
        return n.now_ms
    if state.must_count and n.linked != 0:
        return n.now_ms
    at_ms = state.ask_ms
    if len(state.short) == 0:
        return at_ms
    if state.reach != n.reachable:
        return n.now_ms
    if len(state.rests) > 0 and state.rests[0][0] < at_ms:
        at_ms = state.rests[0][0]
    for bucket in state.buckets.values():
        if len(bucket) > 0:
            if state.budget > 0 and state.budget_bytes > 0:
                return n.now_ms
            return min(at_ms, state.window_ms + WINDOW_MS)
    return at_ms
