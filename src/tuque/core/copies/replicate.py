"""Copies of a new job are made on other nodes, and kept for other nodes (SPEC R2-R8).

The producer of a job in state wait-repl is in `n.adding`; its reply goes to `n.added`. The
50 ms steps are kept in due order: a job replicated within a millisecond costs one append and
one pop.
"""

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Final

import msgspec
from mypy_extensions import i32, i64, u8

from tuque.core.copies.ack_gc import collect
from tuque.core.copies.holders import (
    gone_from,
    hear_holders,
    learn_holder,
    spare,
)
from tuque.core.model import stats
from tuque.core.model.errors import (
    NOREPL_LOST,
    NOREPL_REMOVED,
    NOREPL_TIMEOUT,
    Refusal,
)
from tuque.core.model.job import (
    ACKED,
    ACTIVE,
    ANNOUNCE_WILL,
    DELIVERED,
    EXTERNAL,
    IN_TRANSIT,
    ONCE_QUEUED,
    OUT_THERE,
    QUEUED_THERE,
    WAIT_REPL,
    Job,
    level_of_step,
    set_state,
    step_of,
)
from tuque.core.model.task import Task
from tuque.core.msgs.bus import (
    LARGE_BODY,
    LEVEL_UNIT,
    NO_REPLY,
    REPAIR,
    DelJob,
    Enqueue,
    Enqueued,
    GotJob,
    Holders,
    Left,
    Release,
    ReplFields,
    ReplJob,
    ReplJobs,
    SetAck,
)
from tuque.core.node.node import Adding, Node
from tuque.core.node.peers import (
    count_of,
    deny,
    introduce,
    is_plain,
    joins,
    lead,
    may_reach,
    say,
    say_got,
    set_due,
    slots_of,
    translate,
)
from tuque.core.node.queue import PAUSE_IN
from tuque.core.queues.dedupe import (
    adopt,
    hear_copy,
    is_recorded,
    on_add_over,
    record_added,
)
from tuque.core.queues.ends import has_ended, reach_changed
from tuque.core.queues.procedures import (
    enqueue_open,
    is_short,
    register,
    tell_producer,
    told_job,
    unregister,
)
from tuque.core.queues.work_copies import (
    ack_of,
    adopt_life,
    packed_life,
    packed_outcome,
)

FIELDS: Final[Callable[[ReplJob], ReplFields]] = msgspec.structs.astuple
STEP_MS: Final = 50
STEP_MAX_MS: Final = 2_000
REPEATS_MAX: Final = 100  # messages per turn and peer; above it nothing is repeated
FAILED_KEEP_MS: Final = 600_000  # how long nodes that were down can learn that an add failed
FAILED_MAX: Final = 100_000


# ---- Jobs of a node that takes no copies itself: another node serves them (SPEC R6, R8)


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
            send_asked(n, job, job.holders & ~(1 << adding.server_slot))
    due_ms = job.ctime_ns // 1_000_000 + i64(job.delay_s) * 1000 - n.now_ms
    if job.delay_s == 0 or due_ms < 0:
        due_ms = 0
    introduce(n, adding.server_slot, job.holders)
    say(n, adding.server_slot, Holders(job.id, job.holders))
    say(n, adding.server_slot, Enqueue(job.id, due_ms))
    adding.sent_ms = n.now_ms


def send_asked(n: Node, job: Job, nodes: i64) -> None:
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
            unregister(n, adding.job, stats.MOVED)
            if adding.job.retry_s == 0:
                say(n, slot, Left([id]))  # it may now move on (F2.3)


def on_offer_left(n: Node, slot: i64, job: Job) -> None:
    """[R8.4] The node that got an external at-most-once job no longer has it.

    An earlier incarnation may have delivered it: no other node is asked.
    """
    adding = n.adding.get(job.id)
    if adding is not None and adding.server_slot == slot:
        del n.adding[job.id]
        unregister(n, job, stats.MOVED)


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
            enqueue_open(n, job)
        if n.records is not None:
            n.records.state(job)
    say_enqueued(n, slot, m.id)


def say_enqueued(n: Node, slot: i64, id: bytes) -> None:
    """Reply to ENQUEUE."""
    say(n, slot, Enqueued([id]))


# ---- At the node that accepted the job (SPEC R1, R3, R5, R7)


def begin(n: Node, job: Job, delay_ms: i64 = -1) -> None:
    """[R1] The job is accepted: queue it, or arm its delay (R1.9).

    If it waited for copies, another node may serve it already (R3.5).
    """
    is_served = job.qtime_ms > n.now_ms
    if job.delay_s > 0 or is_served:
        if delay_ms < 0:
            delay_ms = i64(job.delay_s) * 1000
        due_ms = job.ctime_ns // 1_000_000 + delay_ms
        if is_served:
            job.flags |= ONCE_QUEUED
        if due_ms > job.qtime_ms:
            job.qtime_ms = due_ms
        if job.holders != 1:
            job.flags |= ANNOUNCE_WILL
        n.wheel.arm(job, n.now_ms)
    else:
        enqueue_open(n, job)


def start_copies(
    n: Node,
    job: Job,
    client: i64,
    serial: i64,
    timeout_ms: i64,
    is_external: bool,
    is_async: bool,
) -> None:
    """[R1.10, R6] Send the new job to other nodes; the producer waits in n.adding.

    An external job without a waiting producer (ASYNC) has its id at once; one copy is enough to
    pass it on.
    """
    job.state = WAIT_REPL  # R1.10
    wanted: i64 = i64(job.repl) - 1
    if is_external:
        job.flags |= EXTERNAL  # R6.1
        job.holders = 0
        job.confirmed = 0
        wanted += 1
    adding = Adding(job, -1 if is_async else client, serial, 0)
    adding.needed = 1 if is_async else i64(job.repl)
    n.adding[job.id] = adding
    n.wheel.arm(job, n.now_ms)
    send_copies(n, job, choose(n, job.holders, wanted), 0)
    adding.sent_ms = n.now_ms
    until_ms = n.now_ms + timeout_ms
    if timeout_ms > 0 and not is_async:
        adding.until_ms = until_ms
        if timeout_ms <= STEP_MS:
            heappush(n.add_ends, (until_ms, job.id))
    n.add_steps.put(n.now_ms + STEP_MS, job.id)


def send_async(n: Node, job: Job) -> None:
    """[R1.10] Send the new job to other nodes without waiting for them (ASYNC)."""
    send_copies(n, job, choose(n, job.holders, i64(job.repl) - 1), NO_REPLY)
    if n.records is not None:
        n.records.holders(job)


def choose(n: Node, taken: i64, count: i64) -> list[int]:
    """Up to `count` random reachable nodes that are not taken; late ones last (K4.3)."""
    free = n.reachable & ~taken & ~1
    slots = slots_of(free)
    if len(slots) > count:
        roomy = [slot for slot in slots if n.peers[slot].has_room]
        if len(roomy) >= count:
            slots = roomy  # B2.4: spare slow links while others suffice
        n.chance.shuffle(slots)
        if n.late != 0:
            prompt = [slot for slot in slots if n.late >> slot & 1 == 0]
            slots = prompt + [slot for slot in slots if n.late >> slot & 1]
        del slots[count:]
    return slots


def send_copies(n: Node, job: Job, slots: list[int], mode: i64) -> None:
    """Add the nodes to the holders and send them the job with all its holders."""
    if len(slots) == 0:
        return
    for slot in slots:
        job.holders |= 1 << i64(slot)
        spare(n, job.id, 1 << i64(slot))
    due_ms = copy_due_ms(n, job)
    may_share = is_plain(n, job)
    if may_share and joins(n, job, slots, mode, due_ms):
        return  # R1.12
    message = as_message(n, job, mode, due_ms)
    for slot in slots:
        introduce(n, slot, job.holders | 1)
        say(n, slot, message)
    if may_share:
        lead(n, job, slots, mode, due_ms, message)


def copy_of(n: Node, slot: i64, job: Job, mode: i64) -> ReplJob:
    """The job as a message to that peer, its holders introduced."""
    introduce(n, slot, job.holders | 1)
    return as_message(n, job, mode, copy_due_ms(n, job))


def copy_due_ms(n: Node, job: Job) -> i64:
    """How long a new copy waits for this node to queue the job, in ms: delay, then RETRY (R2.5)."""
    left_ms: i64 = 0
    if job.state == WAIT_REPL:
        left_ms = job.ctime_ns // 1_000_000 + i64(job.delay_s) * 1000 - n.now_ms
    elif job.flags & (ONCE_QUEUED | DELIVERED) == 0:  # in its first delay
        left_ms = job.qtime_ms - n.now_ms
    return (left_ms if left_ms > 0 else 0) + i64(job.retry_s) * 1000


def as_message(n: Node, job: Job, mode: i64, due_ms: i64) -> ReplJob:
    """The job as a message, with times as remaining ms (B2.3).

    `due_ms`: until the receiver queues its copy, or in YOURJOBS may deliver it.
    """
    left_ms = job.expire_ms - n.now_ms
    if len(job.body) >= LARGE_BODY:
        n.has_large = True
    return ReplJob(
        job.id,
        job.queue,
        job.body,
        job.ctime_ns,
        left_ms if left_ms > 1 else 1,
        due_ms if due_ms > 0 else 0,  # B2.6
        job.retry_s,
        job.delay_s,
        job.repl,
        job.nacks,
        job.deliveries,
        job.holders,
        mode + step_of(i64(job.level)) * LEVEL_UNIT,
        packed_life(n, job.id) if n.has_lives else b"",  # W14.1
    )


def on_gotjob(n: Node, slot: i64, m: GotJob) -> None:
    """[R3] ON RECV GOTJOB."""
    bit: i64 = 1 << slot
    for id in m.ids:
        adding = n.adding.get(id)
        job = told_job(n, id) if adding is None else adding.job
        if job is None:
            if id in n.failed:
                tell_failed(n, id, slot)  # R3.2
            continue
        if job.holders & bit == 0:
            if job.state == WAIT_REPL:
                job.holders |= bit
            else:
                learn_holder(n, job, slot)  # R3.1
            if job.state == ACKED:
                collect(n, job)  # R3.1
                continue
        if len(n.keys.unsure) > 0 and id in n.keys.unsure:
            hear_copy(n, slot, job)
        if job.state != WAIT_REPL:  # R3.3
            continue
        job.confirmed |= bit  # R3.4
        if adding is not None and adding.server_slot == 0:
            if count_of(job.confirmed & ~n.forgotten) >= adding.needed:
                on_enough(n, adding)


def on_enough(n: Node, adding: Adding) -> None:
    """[R3.4, R6.2] The job has the requested copies: the producer gets its id."""
    job = adding.job
    if job.flags & EXTERNAL:
        tell_producer(n, adding, None)
        pass_on(n, adding)
        return
    del n.adding[job.id]
    was_recorded = is_recorded(n, job)
    tell_producer(n, adding, None)
    surplus = job.holders & ~job.confirmed & ~1
    set_state(job, ACTIVE)
    job.confirmed = 0
    begin(n, job, adding.delay_ms)
    record_added(n, job, was_recorded)
    if surplus != 0:
        for slot in slots_of(surplus):
            introduce(n, slot, job.holders)
            say(n, slot, Release([job.id], job.holders))


def fail(n: Node, adding: Adding, error: Refusal | None) -> None:
    """[R5.2] Undo the job on all nodes that may have it; None: its producer has gone."""
    job = adding.job
    n.adding.pop(job.id, None)
    on_add_over(n, adding, Refusal(NOREPL_REMOVED) if error is None else error)  # Z4.5
    tell_producer(n, adding, error)
    untold: i64 = 0
    left_ms = max(1, job.expire_ms - n.now_ms)
    for slot in slots_of(job.holders):
        introduce(n, slot, job.holders | 1)
        if not say(n, slot, DelJob(job.id, job.holders, left_ms)):
            untold |= 1 << i64(slot)
    unregister(n, job, stats.ADD_FAILED)
    if n.events is not None:
        n.events.deleted(n.now_ms, job, stats.ADD_FAILED)
    if len(n.failed) < FAILED_MAX:
        end_ms = n.now_ms + FAILED_KEEP_MS
        n.failed[job.id] = (end_ms if end_ms < job.expire_ms else job.expire_ms, untold)


def tell_failed(n: Node, id: bytes, slot: i64) -> None:
    """[R3.2] A node stored a job whose ADDJOB failed: send it DELJOB again."""
    until_ms, untold = n.failed[id]
    say(n, slot, DelJob(id, 0, max(1, until_ms - n.now_ms)))
    n.failed[id] = (until_ms, untold & ~(1 << slot))


def copies_link_up(n: Node, slot: i64) -> None:
    """[R5.2] A link came up: send DELJOB for adds that failed while it was down."""
    bit: i64 = 1 << slot
    for id, (_, untold) in list(n.failed.items()):
        if untold & bit:
            tell_failed(n, id, slot)


def forget_failed(n: Node) -> None:
    """Drop expired entries of `n.failed`."""
    for id, (until_ms, _) in list(n.failed.items()):
        if until_ms > n.now_ms:
            break  # nearly in order of time
        del n.failed[id]


def on_producer_gone(n: Node, client: i64) -> None:
    """[R7] The client disconnected: undo its waiting ADDJOBs (R7.1)."""
    for adding in list(n.adding.values()):
        if adding.client == client and not adopt(n, adding):  # Z4.5
            adding.client = -1
            fail(n, adding, None)


def on_reach_changed(n: Node) -> None:
    """[R5.3] Nodes came or went: producers without a timeout whose copies are impossible now end.

    Those that left the number of copies to the node get their ids with as many as are possible.
    """
    if n.policy is not None:
        n.policy.on_reach(n)
    reach_changed(n)
    for adding in list(n.adding.values()):
        possible = (adding.job.confirmed | may_reach(n)) & ~n.forgotten
        if adding.may_lower:
            possible &= ~n.late | adding.job.confirmed  # R5.3
        is_short = count_of(possible) < adding.needed
        if adding.client >= 0:
            if is_short and adding.may_lower and possible != 0:
                adding.needed = count_of(possible)
                if count_of(adding.job.confirmed & ~n.forgotten) >= adding.needed:
                    on_enough(n, adding)
            elif is_short and adding.until_ms == 0:
                fail(n, adding, Refusal(NOREPL_LOST))  # R5.3
        elif adding.server_slot > 0:
            pass_on(n, adding)
        elif is_short and adding.publishing is not None:
            adding.publishing.short += 1  # Z3.3
            on_enough(n, adding)


# ---- At the other nodes (SPEC R2, R3.4)


def on_repljob(n: Node, slot: i64, m: ReplJob) -> None:
    """[R2] ON RECV REPLJOB."""
    f = FIELDS(m)  # in the order of ReplJob; as names that are not used they would be boxed
    id, queue, named, mode, life = f[0], f[1], f[11], f[12], f[13]
    holders = translate(n, slot, named) | (1 << slot) | 1
    job = n.jobs.get(id)
    if isinstance(job, Task):
        return  # T1.4
    if job is not None:
        if job.state == ACKED:
            introduce(n, slot, job.holders)
            say(n, slot, ack_of(n, job))  # R2.2
            return
        hear_holders(n, slot, job, holders, named)  # R2.3
        end_earlier(n, job, m)
        adopt_life(n, slot, job, life, m.body, m.left_ms)
        confirm(n, slot, job, mode)
        return
    if has_ended(n, id):
        say(n, slot, SetAck(id, 0, max(1, m.left_ms), packed_outcome(n, id)))
        return
    q = n.queues.get(queue)
    is_paused = q is not None and q.pause & PAUSE_IN != 0
    if n.is_leaving or n.is_loading or is_paused or is_short(n):
        return  # R2.4
    job = job_of(n, f, q.name if q is not None else queue)
    job.holders = holders
    keep_copy(n, slot, job, life)
    hear_holders(n, slot, job, holders, named)  # K5.7
    confirm(n, slot, job, mode)


def keep_copy(n: Node, slot: i64, job: Job, life: bytes) -> None:
    """[R2] Store a copy with the life that came with it (R2.5)."""
    register(n, job, stats.REPLICATED)
    n.wheel.arm(job, n.now_ms)
    if n.records is not None:
        n.records.add(job)
    adopt_life(n, slot, job, life)


def end_earlier(n: Node, job: Job, m: ReplJob) -> None:
    """Take the earlier expiry: a copy's TTL grows by its time in flight (B2.3)."""
    expire_ms = n.now_ms + m.left_ms
    if expire_ms < job.expire_ms:
        job.expire_ms = expire_ms
        n.wheel.arm(job, n.now_ms)


def confirm(n: Node, slot: i64, job: Job, mode: i64) -> None:
    """Send GOTJOB to the copy's sender if it waits for that; for a repair, to all holders."""
    if mode & REPAIR:
        for other in slots_of(job.holders):
            say_got(n, other, job.id)  # R2.6
    elif mode & NO_REPLY == 0:
        say_got(n, slot, job.id)


def job_of(n: Node, f: ReplFields, queue: bytes) -> Job:
    """A copy kept for others: active, and queued only if they do not (R2.5)."""
    job = Job(f[0], queue, f[2], f[3], n.now_ms + f[4], i32(f[6]), i32(f[7]), i32(f[8]))
    job.level = u8(level_of_step(f[12] // LEVEL_UNIT))
    job.nacks = i32(f[9])
    job.deliveries = i32(f[10])
    await_due(n, job, f[5])
    return job


def await_due(n: Node, job: Job, due: i64) -> None:
    """Set when the copy is queued here if no other node does (R2.5); `due`: B2.6."""
    job.confirmed = 0
    if job.retry_s == 0:
        job.flags = IN_TRANSIT  # another node has its custody
    else:
        job.flags = ONCE_QUEUED | ANNOUNCE_WILL
        if due == 0:
            due = i64(job.retry_s) * 1000
        job.qtime_ms = n.now_ms + due + n.chance.below(500)


def on_release(n: Node, slot: i64, m: Release) -> None:
    """[R3.4] ON RECV RELEASE: enough others have the job; drop a surplus copy."""
    for id in m.ids:
        job = told_job(n, id)
        if job is None or job.state != ACTIVE or job.retry_s == 0:
            continue
        hear_holders(n, slot, job, translate(n, slot, m.holders), m.holders)
        others = job.holders & ~1
        if job.flags & DELIVERED or count_of(others & ~gone_from(n, id)) < i64(job.repl):
            continue
        deny(n, id)
        for other in slots_of(others):
            say(n, other, Left([id]))
        unregister(n, job, stats.MOVED)
        if n.records is not None:
            n.records.remove(id, stats.MOVED)


# ---- Timers (SPEC R4, R5)


def copies_tick(n: Node) -> None:
    """[R4, R5] Run the 50 ms steps and timeouts that are due."""
    now_ms = n.now_ms
    while len(n.add_ends) > 0 and n.add_ends[0][0] <= now_ms:
        _, id = heappop(n.add_ends)
        adding = n.adding.get(id)
        if adding is not None and adding.client >= 0:
            fail(n, adding, Refusal(NOREPL_TIMEOUT))  # R5.1
    while True:
        ids = n.add_steps.take(now_ms)
        if len(ids) == 0:
            break
        for id in ids:
            adding = n.adding.get(id)
            if adding is not None:
                on_add_step(n, adding)
    if len(n.failed) > 0:
        forget_failed(n)


def copies_next_ms(n: Node) -> i64:
    """The instant at which `copies_tick` next has work."""
    at_ms = n.add_steps.next_ms()
    if len(n.add_ends) > 0 and n.add_ends[0][0] < at_ms:
        at_ms = n.add_ends[0][0]
    return at_ms


def on_add_step(n: Node, adding: Adding) -> None:
    """[R4] TIMER every 50 ms while a job waits for copies."""
    job = adding.job
    now_ms = n.now_ms
    if adding.client >= 0 and adding.until_ms > 0:
        if adding.until_ms <= now_ms:
            fail(n, adding, Refusal(NOREPL_TIMEOUT))
            return
        if adding.until_ms < now_ms + STEP_MS:
            heappush(n.add_ends, (adding.until_ms, job.id))
    n.add_steps.put(now_ms + STEP_MS, job.id)
    is_due = now_ms - adding.sent_ms >= adding.step_ms
    if is_due:
        adding.step_ms = min(adding.step_ms * 2, STEP_MAX_MS)
    if adding.server_slot > 0:
        if is_due:
            pass_on(n, adding)
        return
    if count_of(job.confirmed & ~n.forgotten) >= adding.needed:
        on_enough(n, adding)  # forgotten nodes no longer count; others may suffice
        return
    asked = job.holders & ~job.confirmed & ~1
    if count_of(job.holders) < 2 * i64(job.repl):
        more = choose(n, job.holders, 1)  # R4.1
        if len(more) > 0:
            send_copies(n, job, more, 0)
            for slot in slots_of(job.confirmed):
                introduce(n, slot, job.holders | 1)
                say(n, slot, Holders(job.id, job.holders))  # R4.2
    if is_due and asked != 0:
        adding.sent_ms = now_ms
        message = as_message(n, job, 0, copy_due_ms(n, job))
        for slot in slots_of(asked):
            peer = n.peers[slot]
            if peer.has_room and len(peer.outbox) < REPEATS_MAX:
                introduce(n, slot, job.holders | 1)
                say(n, slot, message)  # R4.3


# ---- Stores copies of several new jobs that came in one message (SPEC R1.12, R2)


def on_repljobs(n: Node, slot: i64, m: ReplJobs) -> None:
    """[R2] ON RECV REPLJOBS: each job as by REPLJOB."""
    on_repljob(n, slot, m.first)
    f = FIELDS(m.first)  # as in on_repljob
    queue, named, mode = f[1], f[11], f[12]
    expire_ms: i64 = n.now_ms + f[4]
    due_ms: i64 = f[5]
    retry_s = i32(f[6])
    delay_s = i32(f[7])
    repl = i32(f[8])
    level = u8(level_of_step(mode // LEVEL_UNIT))
    holders = translate(n, slot, named) | (1 << slot) | 1
    q = n.queues.get(queue)
    name = queue if q is None else q.name
    is_paused = q is not None and q.pause & PAUSE_IN != 0
    is_shut = n.is_leaving or n.is_loading or is_paused
    for id, body, ctime_ns in m.others:
        if is_shut or id in n.jobs or has_ended(n, id) or is_short(n):
            on_repljob(n, slot, alone(f, id, body, ctime_ns))
            continue
        job = Job(id, name, body, ctime_ns, expire_ms, retry_s, delay_s, repl)
        job.level = level
        await_due(n, job, due_ms)
        job.holders = holders
        keep_copy(n, slot, job, b"")
        hear_holders(n, slot, job, holders, named)  # K5.7
        confirm(n, slot, job, mode)


def alone(f: ReplFields, id: bytes, body: bytes, ctime_ns: i64) -> ReplJob:
    """The message that one of the others would have had; `f`: the fields of the first."""
    return ReplJob(id, f[1], body, ctime_ns, f[4], f[5], f[6], f[7], f[8], 0, 0, f[11], f[12])
