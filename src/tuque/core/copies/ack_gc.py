"""An acked job ends on all its holders; acks of jobs that are unknown here (SPEC A1-A7, A10).

A node that knows of an ack sends SETACK to the other holders, which confirm with GOTACK. When
all have confirmed, the job is over: DELJOB announces that, and a tombstone stays. Node sets
are compared and merged, never counted: a holder that turns up late is asked too.
"""

from typing import Final

from mypy_extensions import i64

from tuque.core.model import stats
from tuque.core.model.job import (
    ACKED,
    ANNOUNCE_WILL,
    BODYLESS,
    ENDED,
    EXTERNAL,
    IN_TRANSIT,
    LEASED,
    QUEUED,
    RUN_UNTOLD,
    TRIES,
    UNTOLD,
    WAIT_REPL,
    Job,
    set_state,
)
from tuque.core.model.job_id import ttl_s_of
from tuque.core.model.stats import set_why, why_of
from tuque.core.model.task import Task
from tuque.core.model.tombstones import ROUNDED_MS
from tuque.core.model.work import DONE
from tuque.core.msgs.bus import DelJob, GotAck, SetAck
from tuque.core.node.node import Node, Peer, Retelling
from tuque.core.node.peers import (
    TOMB_MS,
    in_doubt,
    introduce,
    say,
    slots_of,
    translate_all,
)
from tuque.core.node.tables import put_body
from tuque.core.queues.ends import end_life, keep_orphan, look_again, outlive_holder
from tuque.core.queues.procedures import (
    FAR,
    leave_node,
    memory_level,
    policy_of,
    producer_done,
    register,
    unregister,
)
from tuque.core.queues.work_copies import (
    FELL,
    STANDS,
    ack_of,
    adopt_late,
    adopt_outcome,
    keep_passed,
    packed_outcome,
    unpack_outcome,
)

NOBODY: Final = -1  # the client of a restored record
STRAYS_MAX: Final = 1_000  # records per client
BURST_MAX: Final = 10_000  # messages per turn and node; above it no more questions
TRY_MS: Final = 1_000
FULL_MS: Final = 200  # delay before asking again after a full link
FAST_KEEP_MS: Final = 60_000  # how long a FASTACKed job that no node had is refused

TRY_MAX_MS: Final = 180_000
OUTBOX_MAX: Final = 100_000  # messages per turn and node; above it, acks wait for A6
RETELL_MAX: Final = 2_000  # ids resent at once
RETELL_PAUSE_MS: Final = 50
OWED_MAX: Final = 100_000  # acks waiting for room on one link; above it they wait for A6
SWEEP_MAX: Final = 10_000
LATE_MAX: Final = 1_000_000  # DELJOBs remembered while loading
NO_NODE_ID: Final = b"g"  # above that of each node
BEHIND_MAX: Final = 1_000  # outcomes that nodes out of reach may lack


# ---- Acks of jobs that are unknown here (SPEC A3.4, A5.3, A7.2)
#
# Other nodes may have the job: a record without a body keeps the ack and asks all of them, until
# a holder has taken it over or no node knows the job. Only ids that a node of this cluster has
# made get a record, and a limited number per client.


def on_unknown_ack(n: Node, client: i64, id: bytes) -> None:
    """[A3.4] ACKJOB of an id unknown here. It does not count (A3.3)."""
    if len(n.peers) == 1 or n.tombs.has(id) or not n.ids.knows(id):
        return
    ttl_s = ttl_s_of(id)
    if memory_level(n) >= 2:
        ask_each(n, SetAck(id, 0, ttl_s * 1000, packed_outcome(n, id), True))  # A3.4
        return
    if n.stray_counts.get(client, 0) >= STRAYS_MAX:
        return
    count_stray(n, client, id)
    job = Job(id, b"", b"", n.next_ctime_ns(), n.now_ms + ttl_s * 1000, 1, 0, 0)
    job.state = ACKED
    job.flags = BODYLESS
    register(n, job, stats.REPLICATED)
    n.acked[id] = None
    job.marks = 1  # attempts
    job.qtime_ms = n.now_ms + TRY_MS + n.chance.below(500)
    n.wheel.arm(job, n.now_ms)
    if n.records is not None:
        n.records.ack_unknown(job)
    ask_all(n, job)


def count_stray(n: Node, client: i64, id: bytes) -> None:
    """Count the client's orphan acks: their number is limited."""
    n.stray_counts[client] = n.stray_counts.get(client, 0) + 1
    n.strays[id] = client


def on_unknown_fastack(n: Node, id: bytes) -> None:
    """[A7.2] FASTACK of an id unknown here: DELJOB to all nodes, once."""
    if len(n.peers) == 1 or n.tombs.has(id) or not n.ids.knows(id):
        return
    ask_each(n, DelJob(id, 0, FAST_KEEP_MS, True))  # A7.2


def ask_each(n: Node, message: SetAck | DelJob) -> bool:
    """Send it to every linked node with room; True if none was left out."""
    are_told = True
    for peer in n.peers:
        if peer.is_linked and peer.has_room and len(peer.outbox) < BURST_MAX:
            say(n, peer.slot, message)
        elif peer.is_linked:
            are_told = False
    return are_told


def ask_all(n: Node, job: Job) -> None:
    """Ask all nodes (again): only replies to the same question count together (A5.3)."""
    job.confirmed = 1
    left_ms = max(1, job.expire_ms - n.now_ms)
    if not ask_each(n, SetAck(job.id, 0, left_ms, packed_outcome(n, job.id), True)):
        if job.marks > 0:
            job.marks -= 1
        job.qtime_ms = n.now_ms + FULL_MS + n.chance.below(FULL_MS)  # A6.3
        n.wheel.arm(job, n.now_ms)


def on_stray_answer(n: Node, job: Job, slot: i64, is_known: bool, holders: i64) -> None:
    """[A5.3] A node replies: it now collects the job, or does not know it."""
    if is_known:
        end_stray(n, job, holders)
        return
    job.confirmed |= 1 << slot
    end_if_denied(n, job)


def end_if_denied(n: Node, job: Job) -> None:
    """End the record if no node is left that may know the job."""
    done = job.confirmed & ~in_doubt(n) | n.forgotten  # K2.3
    for peer in n.peers:
        bit: i64 = 1 << peer.slot
        if done & bit == 0:
            return
    end_stray(n, job, 0)


def forget_asked(n: Node, slot: i64) -> None:
    """[K6] The node was forgotten: it may have had the jobs of which it has denied nothing."""
    for id in list(n.strays):
        job = n.jobs[id]
        if job.confirmed >> slot & 1 == 0:
            outlive_holder(n, id)
        end_if_denied(n, job)


def end_stray(n: Node, job: Job, holders: i64) -> None:
    """`holders` have taken over the ack, or no node has the job: remove the record."""
    if holders == 0:
        keep_orphan(n, job)
    unregister(n, job, stats.GC_ACKED)  # A5.3
    if n.records is not None:
        n.records.ack(job.id, job.expire_ms)
    if holders & 1:
        n.tombs.keep(job.id, job.expire_ms)  # they rely on this node and will send DELJOB
        return
    others = holders
    if others == 0:
        for peer in n.peers:
            if peer.is_linked:
                others |= 1 << peer.slot
    n.tombs.add(job.id, job.expire_ms, others & ~n.forgotten, n.round)


# ---- Who writes the event of an ack that a node without a copy got (SPEC E1.13)


def reporter_of(n: Node, job: Job) -> i64:
    """[E1] The slot of the holder that writes it, as far as this node sees (E1.13)."""
    origin = job.id[2:10]
    has_copy = job.holders & 1 != 0  # not where a record waits for copies elsewhere (R6)
    if has_copy and origin == n.node_id[:8]:
        return 0
    reporter: i64 = 0
    least = n.node_id if has_copy else NO_NODE_ID
    for slot in slots_of(job.holders & n.linked & ~n.forgotten):
        node_id = n.peers[slot].node_id
        if node_id[:8] == origin:
            return slot
        if node_id < least:
            reporter = slot
            least = node_id
    return reporter


def end_untold(n: Node, job: Job, run: i64) -> bool:
    """[E1] Write the events, and count the ack; False if another holder does (E1.13).

    `run` is the one that DONE named. The body and the life of the job must still be there.
    """
    if reporter_of(n, job) != 0:
        return False
    n.record_done(job, run)
    report_ack(n, job)
    return True


def untold_run(n: Node, m: SetAck) -> i64:
    """[E1] The run that DONE named, whose event no node has written; 0: none (E1.13)."""
    if not m.is_untold or len(m.outcome) == 0:
        return 0
    outcome = unpack_outcome(n, m.id, m.outcome)
    if outcome is None or outcome.kind != DONE:
        return 0
    return outcome.run if outcome.is_claim or m.is_run_untold else 0


def report_ack(n: Node, job: Job) -> None:
    """[A1] Count the ack and write its event, while the body is still there (A1.5)."""
    n.book.ack(job, n.now_ms)
    if n.events is not None:
        n.events.acked(n.now_ms, job, n.returned(job.id))


# ---- Jobs that are known here: the ack is collected from all holders (SPEC A1, A2, A6)


def retire(n: Node, job: Job) -> None:
    """[A1, A2] Record the ack; without other holders its collection is complete at once."""
    count_all(n, job)
    if job.holders == 1:
        if job.state == WAIT_REPL:
            producer_done(n, job)
        unregister(n, job, stats.GC_ACKED)  # A2.1
        if n.records is not None:
            n.records.ack(job.id, job.expire_ms)  # A1.3
        return
    become_acked(n, job)
    if n.records is not None:
        n.records.ack_job(job)
    collect(n, job)


def retire_concluded(n: Node, job: Job) -> None:
    """As `retire`, of a job whose life has ended with an outcome for good (W7.3)."""
    if job.holders != 1 or job.state == WAIT_REPL or job.retry_s == 0:
        retire(n, job)
        return
    leave_node(n, job, stats.GC_ACKED)  # A2.1
    if n.records is not None:
        n.records.ack(job.id, job.expire_ms)  # A1.3


def count_all(n: Node, job: Job) -> None:
    """[A1.7] The custody of this copy is unknown here: all nodes count as holders.

    A node that replies that it does not know the job keeps a tombstone: the job cannot arrive
    there later.
    """
    if job.retry_s == 0 and job.flags & IN_TRANSIT:
        job.holders |= ((1 << i64(len(n.peers))) - 1) & ~n.forgotten


def become_acked(n: Node, job: Job) -> None:
    """[A1] The job is done; keep its record until the other holders know (A1.2)."""
    if job.state == QUEUED:
        set_state(job, ACKED)
        n.queues[job.queue].left(job)
    else:
        if job.state == WAIT_REPL:
            producer_done(n, job)  # A1.6
        set_state(job, ACKED)
    if n.has_lives:
        end_life(n, job, stats.GC_ACKED)
    put_body(n, job, b"")  # A1.4
    if job.flags & LEASED and why_of(job) == 0:
        set_why(job, ENDED)  # Y3.8
    job.flags &= 0xFF ^ (EXTERNAL | ANNOUNCE_WILL | LEASED)
    job.holders |= 1
    job.confirmed = 1
    if job.retry_s == 0:
        n.delivered_amo.pop(job.id, None)
        n.custody.pop(job.id, None)
    n.acked[job.id] = None
    job.marks = 0  # tries
    try_later(n, job)


def restore_acked(n: Node, job: Job) -> None:
    """[J5.5] Restore an acked job, already registered, that other holders must confirm."""
    if job.state != ACKED:
        set_state(job, ACKED)
    n.acked[job.id] = None
    if job.flags & BODYLESS:
        count_stray(n, NOBODY, job.id)  # A3.4
    job.confirmed = 1
    job.qtime_ms = n.now_ms
    n.wheel.arm(job, n.now_ms)


def try_later(n: Node, job: Job) -> None:
    """Set when the collection of the acked job is tried again (A6.1)."""
    step_ms: i64 = TRY_MS << i64(job.marks & TRIES)
    if step_ms >= TRY_MAX_MS:
        step_ms = TRY_MAX_MS
    else:
        job.marks += 1  # tries
    job.qtime_ms = n.now_ms + step_ms + n.chance.below(500)
    n.wheel.arm(job, n.now_ms)


def hurry(n: Node, job: Job, within_ms: i64) -> None:
    """Try the collection of the acked job again within that time: a client waits (W14.13)."""
    if job.qtime_ms > n.now_ms + within_ms and not job.flags & BODYLESS:
        job.qtime_ms = n.now_ms + within_ms
        n.wheel.arm(job, n.now_ms)


def unheard(n: Node, job: Job) -> i64:
    """The holders whose current incarnation has not confirmed the ack (A5.2, K2.3)."""
    return job.holders & ~(job.confirmed & ~in_doubt(n)) & ~n.forgotten


def collect(n: Node, job: Job) -> None:
    """[A2] PROCEDURE collect an acked job: end it, or send SETACK to holders not confirmed."""
    job.confirmed |= 1
    if job.flags & BODYLESS:
        ask_all(n, job)
        return
    missing = unheard(n, job)
    if missing == 0:
        finish(n, job, job.holders)  # A2.1
    else:
        tell_acked(n, job, missing)  # A2.3


def collect_if_complete(n: Node, job: Job) -> bool:
    """End the collection if every holder has confirmed (A2.1); True if it ended."""
    if unheard(n, job) != 0:
        return False
    finish(n, job, job.holders)
    return True


def may_hear(peer: Peer) -> bool:
    """Whether the link takes more messages in this turn; if not, the timer of A6 retries."""
    return peer.is_linked and peer.has_room and len(peer.outbox) < OUTBOX_MAX


def tell_acked(n: Node, job: Job, slots: i64) -> None:
    """Send SETACK to those nodes."""
    message = ack_of(n, job)
    reporter: i64 = reporter_of(n, job) if job.marks & UNTOLD else 0
    for slot in slots_of(slots):
        peer = n.peers[slot]
        if may_hear(peer):
            introduce(n, slot, job.holders)
            say(n, slot, left_of(n, job) if slot == reporter else message)  # E1.13
        elif peer.is_linked:
            owe(n, slot, job.id)


def left_of(n: Node, job: Job) -> SetAck:
    """[E1] SETACK for the holder that has to write the events (E1.13)."""
    return ack_of(n, job, True, job.marks & RUN_UNTOLD != 0)


def owe(n: Node, slot: i64, id: bytes) -> None:
    """[A6.3] The link has no room: send the ack once it has."""
    telling = n.retelling.get(slot)
    if telling is None:
        n.retelling[slot] = Retelling(slot, [id])
        n.retell_ms = n.now_ms + RETELL_PAUSE_MS
    elif len(telling.ids) - telling.next < OWED_MAX:
        telling.ids.append(id)


def send_deljob(n: Node, job: Job, slots: i64) -> None:
    """[A5.4, A7.1] Send DELJOB to those nodes."""
    message = DelJob(job.id, job.holders, max(1, job.expire_ms - n.now_ms))
    for slot in slots_of(slots & ~n.forgotten):
        introduce(n, slot, job.holders)
        say(n, slot, message)


def tell_over(n: Node, slot: i64, id: bytes) -> None:
    """Resend DELJOB for a job with a tombstone here; its expiry does not grow (B2.3)."""
    bucket = n.tombs.ids[id]
    left_ms = bucket.end_ms - ROUNDED_MS - n.now_ms
    introduce(n, slot, bucket.nodes | 1)
    say(n, slot, DelJob(id, bucket.nodes | 1, max(1, left_ms)))


def finish(n: Node, job: Job, told: i64, cause: i64 = stats.GC_ACKED) -> None:
    """The job has ended everywhere: DELJOB to the nodes of `told`, and a tombstone."""
    if job.state == WAIT_REPL:
        producer_done(n, job)
    was_acked = job.state == ACKED
    send_deljob(n, job, told)  # A5.4
    unregister(n, job, cause)
    n.tombs.bury(job.id, job.expire_ms, job.holders & ~1 & ~n.forgotten, n.round)  # A2.2
    if n.records is not None:
        if was_acked:
            n.records.remove(job.id, cause)
        else:
            n.records.ack(job.id, job.expire_ms)


def on_gc_timer(n: Node, job: Job) -> None:
    """[A6] TIMER of an acked job: try again with back-off (A6.1)."""
    if job.qtime_ms <= n.now_ms:
        try_later(n, job)
        collect(n, job)
    else:
        n.wheel.arm(job, n.now_ms)


def unconfirm(n: Node, slot: i64) -> None:
    """[A5.2] The node restarted: its earlier confirmations are void.

    All at once, before any of its messages is handled. SETACK is resent on link-up (A6.2).
    """
    for id in n.acked:
        n.jobs[id].confirmed &= ~(1 << slot)


def join(n: Node, job: Job, holders: i64) -> i64:
    """Add to the holders of an acked job; returns those that are new and not confirmed."""
    new = holders & ~n.forgotten & ~job.holders
    if new == 0:
        return 0
    job.holders |= new
    if n.records is not None:
        n.records.holders(job)
    return new & ~job.confirmed


# ---- Messages about acks and ends (SPEC A4, A5, A10)


def on_setack(n: Node, slot: i64, m: SetAck) -> None:
    """[A4] ON RECV SETACK. An empty set: the sender has no copy."""
    if n.is_loading:
        return  # A4.1
    job = n.jobs.get(m.id)
    named = translate_all(n, slot, m.holders)
    bit: i64 = 1 << slot
    if job is None:
        expire_ms = n.now_ms + m.left_ms
        if m.holders != 0:
            n.tombs.keep(m.id, expire_ms)  # A4.1
        elif not n.tombs.has(m.id):
            n.tombs.add(m.id, expire_ms, linked(n), n.round)
        meet_late(n, slot, m)
        return
    if isinstance(job, Task):
        if m.holders == 0 and not ends_by_claim(n, job, m.outcome):
            return  # T1.12: it is sent again, until the leader may act
        deny(n, slot, m.id)  # T1.4
        return
    if job.flags & BODYLESS:
        deny(n, slot, m.id)  # A5.3
        if m.holders != 0:
            end_stray(n, job, named)
        return
    if job.state != ACKED:
        met = learn_ack(n, job, m, named)
    else:
        met = adopt_outcome(n, job, m.outcome)
        join(n, job, named)
    unnamed = job.holders & ~named & ~1 & ~bit
    if met == STANDS:
        send_better(n, job, slot, m.holders != 0, unnamed)
        return
    if met == FELL:
        job.confirmed = 1  # W14.4: the others have confirmed the one that falls
    if m.holders != 0:
        job.confirmed |= bit
        if collect_if_complete(n, job):
            return
        look_again(n, job.id)
    introduce(n, slot, job.holders)
    say(n, slot, GotAck(m.id, True, job.holders))  # A4.3
    if unnamed != 0 or m.holders == 0 or met == FELL:
        collect(n, job)  # A4.4


def deny(n: Node, slot: i64, id: bytes) -> None:
    """Reply that the job is not known here."""
    say(n, slot, GotAck(id, False, 0))


def learn_ack(n: Node, job: Job, m: SetAck, named: i64) -> i64:
    """[A4] The job is acked elsewhere (A4.2); what became of its outcomes, as adopt_outcome."""
    run = untold_run(n, m)
    is_left = m.is_untold and not end_untold(n, job, run)  # E1.13
    met = adopt_outcome(n, job, m.outcome)
    count_all(n, job)
    job.holders |= named
    become_acked(n, job)
    if is_left:
        job.marks |= UNTOLD
        if run != 0:
            job.marks |= RUN_UNTOLD
    if n.records is not None:
        n.records.ack_job(job)
    return met


def send_better(n: Node, job: Job, slot: i64, has_copy: bool, unnamed: i64) -> None:
    """[W14] The sender's outcome falls: it confirms nothing before it has the one here (W14.4).

    It gets SETACK in place of GOTACK, with which it could end its collection (W14.16).
    """
    job.confirmed &= ~(1 << slot)
    if has_copy:
        unnamed |= 1 << slot
    else:
        send_outcome(n, slot, job.id)
    tell_acked(n, job, unnamed & unheard(n, job))  # A4.4


def meet_late(n: Node, slot: i64, m: SetAck) -> None:
    """[A4, W14] Not the job is here, but maybe its outcome: if it differs, who has the one that
    falls gets the other (W14.4, W14.17).
    """
    met = adopt_late(n, m.id, m.outcome)
    if met == STANDS:
        send_outcome(n, slot, m.id)
    elif met == FELL:
        spread_outcome(n, m.id)
    is_kept = n.peers[slot].is_leaving and keep_passed(n, m.id, m.outcome)
    say(n, slot, GotAck(m.id, is_kept, 0))  # K7.10


def spread_outcome(n: Node, id: bytes) -> None:
    """[W14] Send the outcome that stands to all nodes; to those out of reach once they are linked
    (W14.17).
    """
    ask_each(n, SetAck(id, 0, TOMB_MS, packed_outcome(n, id)))
    away = n.others & ~n.linked & ~n.forgotten & ~1
    n.tombs.behind.pop(id, None)
    if away != 0:
        n.tombs.behind[id] = int(away)
    if len(n.tombs.behind) > BEHIND_MAX:
        del n.tombs.behind[next(iter(n.tombs.behind))]


def catch_up(n: Node, slot: i64, id: bytes) -> None:
    """[W14] The node is linked again, and may have an outcome that fell meanwhile (W14.17)."""
    nodes: i64 = n.tombs.behind.get(id, 0)
    if nodes >> slot & 1 == 0:
        return
    is_kept = len(packed_outcome(n, id)) > 0
    left = nodes & ~(1 << slot) & ~n.forgotten
    if left != 0 and is_kept:
        n.tombs.behind[id] = int(left)
    else:
        del n.tombs.behind[id]
    if is_kept:
        send_outcome(n, slot, id)


def send_outcome(n: Node, slot: i64, id: bytes) -> None:
    """Send the outcome to a node without a copy."""
    say(n, slot, SetAck(id, 0, TOMB_MS, packed_outcome(n, id)))


def ends_by_claim(n: Node, task: Task, data: bytes) -> bool:
    """[T1] A client sent ACKJOB or DONE of the task to a node that did not know it (T1.12).

    False: this node may not act on it now.
    """
    claim = unpack_outcome(n, task.id, data) if len(data) > 0 else None
    work = n.life
    if claim is not None:
        work.result, work.done_run = claim.result, claim.run
    try:
        return policy_of(n).ack_claimed(n, task)
    finally:
        work.result, work.done_run = None, 0


def on_gotack(n: Node, slot: i64, m: GotAck) -> None:
    """[A5] ON RECV GOTACK."""
    job = n.jobs.get(m.id)
    if job is None:
        if not m.known and n.tombs.is_over(m.id):
            tell_over(n, slot, m.id)  # its tombstone waits for this
        return  # A5.1
    if job.state != ACKED:
        return
    named = translate_all(n, slot, m.holders)
    if job.flags & BODYLESS:
        on_stray_answer(n, job, slot, m.known and named != 0, named)
        return
    bit: i64 = 1 << slot
    new = join(n, job, named)
    if job.marks & UNTOLD and slot == reporter_of(n, job):
        job.marks &= TRIES
    if m.known or job.holders & bit:
        job.confirmed |= bit  # A5.2
    if not collect_if_complete(n, job):
        tell_acked(n, job, new & ~bit)
        look_again(n, job.id)


def on_deljob_message(n: Node, slot: i64, m: DelJob) -> None:
    """[A10] ON RECV DELJOB."""
    if n.is_loading:
        if len(n.late_deletes) < LATE_MAX:
            n.late_deletes[m.id] = (n.now_ms + m.left_ms, slot)  # A10.1
        return
    job = n.jobs.get(m.id)
    if m.is_untold and job is not None and job.state != ACKED and not isinstance(job, Task):
        if not end_untold(n, job, 0):
            say(n, reporter_of(n, job), DelJob(m.id, 0, m.left_ms, True))  # E1.13
    end_here(n, m.id, n.now_ms + m.left_ms, slot, translate_all(n, slot, m.holders), m.holders == 0)


def end_here(n: Node, id: bytes, expire_ms: i64, slot: i64, named: i64, is_blind: bool) -> None:
    """The job has ended: leave a tombstone (A10.1) and inform holders the sender did not name.

    A sender that named none knows only of itself; then links that are down do not count.
    """
    job = n.jobs.get(id)
    bit: i64 = 1 << slot
    if job is None:
        if n.tombs.is_over(id):
            return
        others = (linked(n) if is_blind else named & ~1) | bit
        n.tombs.bury(id, expire_ms, others & ~n.forgotten, n.round)
        return
    if isinstance(job, Task):
        if is_blind:
            policy_of(n).ack_claimed(n, job)  # T1.12
        return  # T1.4
    untold = job.holders & ~named
    if job.state == ACKED:
        untold |= job.confirmed  # they replied to this node, and may wait for the end
    untold &= ~1 & ~bit
    job.holders |= named | bit | 1
    finish(n, job, untold)


def linked(n: Node) -> i64:
    """The set of nodes with a link."""
    mask: i64 = 0
    for peer in n.peers:
        if peer.is_linked:
            mask |= 1 << peer.slot
    return mask


def on_loaded(n: Node) -> None:
    """[A10.1] The journal is loaded: apply the DELJOBs received meanwhile."""
    late = n.late_deletes
    n.late_deletes = {}
    for id, (expire_ms, slot) in late.items():
        end_here(n, id, expire_ms, slot, 0, True)


# ---- Links that come up, and timers (SPEC A6, A8)


def collect_link_up(n: Node, slot: i64) -> None:
    """[A6] A link came up: resend acks and ends that the node may have missed (A6.2)."""
    ids = n.tombs.owed_to(slot)
    ids.extend(n.acked)
    ids.extend(n.tombs.behind)
    if len(ids) > 0:
        n.retelling[slot] = Retelling(slot, ids)
    else:
        n.retelling.pop(slot, None)


def retell(n: Node, telling: Retelling) -> bool:
    """Resend some of what a node may have missed; True if that was all."""
    slot = telling.slot
    peer = n.peers[slot]
    if not peer.is_linked:
        return True
    bit: i64 = 1 << slot
    end: i64 = min(len(telling.ids), telling.next + RETELL_MAX)
    while telling.next < end:
        if not may_hear(peer):
            n.retell_ms = n.now_ms + RETELL_PAUSE_MS
            return False
        id = telling.ids[telling.next]
        telling.next += 1
        job = n.jobs.get(id)
        if job is None:
            bucket = n.tombs.ids.get(id)
            if bucket is not None and bucket.waits & bit:
                bucket.round = n.round  # only a later reply counts
                tell_over(n, slot, id)
            if len(n.tombs.behind) > 0:
                catch_up(n, slot, id)
        elif job.state == ACKED:
            if job.flags & BODYLESS:
                ask_all(n, job)
            elif unheard(n, job) & bit:
                tell_acked(n, job, bit)  # A6.2
    return telling.next == len(telling.ids)


def collect_tick(n: Node) -> None:
    """[A6, A8] Continue resending; drop tombstones that every holder has confirmed (A8.1)."""
    if len(n.retelling) > 0 and n.retell_ms <= n.now_ms:
        for slot, telling in list(n.retelling.items()):
            if retell(n, telling):
                del n.retelling[slot]
    if n.tombs.is_empty():
        return
    for peer in n.peers:
        if peer.echoed_round > 0 and peer.slot not in n.retelling:
            n.tombs.on_echo(peer.slot, peer.echoed_round)
    n.tombs.tick(n.now_ms, SWEEP_MAX)


def collect_next_ms(n: Node) -> i64:
    """The instant at which `collect_tick` next has work."""
    at_ms: i64 = FAR
    if len(n.retelling) > 0:
        at_ms = n.retell_ms
    if n.tombs.is_empty():
        return at_ms
    for peer in n.peers:
        if peer.echoed_round > 0 and peer.slot not in n.retelling:
            if n.tombs.is_heard(peer.slot, peer.echoed_round):
                return n.now_ms
    return min(at_ms, n.tombs.next_ms())


def forget_tombs(n: Node, slot: i64) -> None:
    """[K6.2] The node was forgotten: no tombstone waits for it."""
    n.tombs.on_echo(slot, FAR)
    n.retelling.pop(slot, None)
