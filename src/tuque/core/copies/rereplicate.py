"""Repairs jobs with too few copies (SPEC K5.3, K5.4).

Each is in `losses.short`: in a bucket by its number of copies when it is to be checked, else it
rests. Of the reachable nodes that have the job, the one of the highest rank sends it to
others. The rest check after a while whether that happened, so that neither a dead node nor one
that knows of more copies blocks the repair. core/repair/node_loss.py finds such jobs.
"""

from collections import deque
from heapq import heappop, heappush
from typing import Final

from mypy_extensions import i64

from tuque.core.copies.holders import ask, gone_from, part, spare
from tuque.core.copies.replicate import as_message, copy_due_ms
from tuque.core.model.job import ACTIVE, ASKED_ALL, DELIVERED, HELD, ONCE_QUEUED, QUEUED, STALE, Job
from tuque.core.msgs.bus import REPAIR, ReplJob
from tuque.core.node.node import Node
from tuque.core.node.peers import (
    count_of,
    introduce,
    rank,
    say,
    slots_of,
)
from tuque.core.tables.repair import Short

STEP_JOBS: Final = 500  # checked per turn
WINDOW_MS: Final = 100
WINDOW_BYTES: Final = 16 << 20  # bodies sent per window; the last job may exceed it
SILENT_MS: Final = 1_000  # then a silent node that was sent a copy is asked for it
ASKED_MS: Final = 4_000
OTHERS_MS: Final = 2_000  # head start of the node of the highest rank
HELPLESS_MS: Final = 10_000  # if it has not helped by then, others repair the job
FULL_MS: Final = 200
DOUBT_MS: Final = 500
REFUSED_MS: Final = 5_000
PARKED_MS: Final = 60_000  # no node can take it; a change of reach ends the wait


def gain_copy(n: Node, job: Job, short: Short, slot: i64) -> None:
    """The node has a copy: it may complete the job, or be the last one awaited."""
    bit: i64 = 1 << slot
    was_waited_for = short.targets & bit != 0
    short.targets &= ~bit
    short.asked &= ~bit
    if has_enough(n, job, short.targets):
        del n.losses.short[job.id]
    elif was_waited_for and short.targets == 0 and short.at_ms != 0:
        to_bucket(n, job, short)


def live_holders(n: Node, job: Job) -> i64:
    """The holders that are believed to have a copy."""
    live = job.holders & ~n.losses.unsure & ~n.forgotten
    if n.losses.gone.count() > 0:
        live &= ~gone_from(n, job.id)  # K5.7
    return live


def is_repairable(job: Job) -> bool:
    """Whether it is an open job that may have several copies (K5.3)."""
    return job.retry_s > 0 and (job.state == ACTIVE or job.state == QUEUED)


def has_enough(n: Node, job: Job, targets: i64) -> bool:
    """Whether the job has enough copies without those of `targets`."""
    return not is_repairable(job) or count_of(live_holders(n, job) & ~targets) >= i64(job.repl)


def examine(n: Node, job: Job) -> None:
    """[K5] Start the repair of a job if it has too few copies (K5.3)."""
    if n.is_leaving or job.id in n.losses.short or has_enough(n, job, 0):
        return
    short = Short(n.now_ms)
    n.losses.short[job.id] = short
    to_bucket(n, job, short)


def recheck(n: Node, job: Job) -> None:
    """Nodes came or went: check a job that rests."""
    short = n.losses.short.get(job.id)
    if short is None or short.at_ms == 0:
        return
    drop_gone(n, short)
    if short.targets == 0:
        to_bucket(n, job, short)


def drop_gone(n: Node, short: Short) -> None:
    """Stop waiting for nodes without a link; their copies are in doubt."""
    n.losses.unsure |= short.targets & ~n.linked
    short.targets &= n.linked


def to_bucket(n: Node, job: Job, short: Short) -> None:
    """Check the job soon; jobs with fewer copies go first."""
    short.at_ms = 0
    copies = count_of(live_holders(n, job))
    bucket = n.losses.buckets.get(copies)
    if bucket is None:
        bucket = deque()
        n.losses.buckets[copies] = bucket
    bucket.append(job.id)


def rest(n: Node, job: Job, short: Short, span_ms: i64) -> None:
    """Check the job again later."""
    short.at_ms = n.now_ms + span_ms
    heappush(n.losses.rests, (short.at_ms, job.id))


def repair_some(n: Node) -> None:
    """[K5] Check jobs in the buckets, fewest copies first, within the rate (K5.3)."""
    state = n.losses
    refill(n)
    looks: i64 = 0
    copies: i64 = 0
    while copies < 64 and looks < STEP_JOBS and state.budget > 0 and state.budget_bytes > 0:
        bucket = state.buckets.get(copies)
        if bucket is None or len(bucket) == 0:
            copies += 1
            continue
        id = bucket.popleft()
        looks += 1
        short = state.short.get(id)
        if short is None or short.at_ms != 0:
            continue
        job = n.jobs.get(id)
        if job is None or has_enough(n, job, 0):
            del state.short[id]
        else:
            repair(n, job, short)


def refill(n: Node) -> None:
    """Start a new window if due: more copies may be sent."""
    state = n.losses
    if n.now_ms - state.window_ms >= WINDOW_MS:
        state.window_ms = n.now_ms
        state.budget = max(n.limits.repair_per_second * WINDOW_MS // 1000, 1)
        state.budget_bytes = WINDOW_BYTES


def repair(n: Node, job: Job, short: Short) -> None:
    """[K5] Send copies of the job, or ask the responsible node to (K5.3, K5.4)."""
    if job.holders & n.losses.unsure & n.linked:
        rest(n, job, short, DOUBT_MS)  # those nodes are being asked for it
        return
    live = live_holders(n, job)
    first = first_of(n, job.id, live)
    if first != 0 and n.now_ms - short.since_ms < HELPLESS_MS:
        wait_ms = short.since_ms + OTHERS_MS - n.now_ms
        if wait_ms > 0:
            rest(n, job, short, wait_ms)
        else:
            ask(n, first, job.id, True)  # K5.4
            rest(n, job, short, ASKED_MS)
        return
    targets = choose_room(n, job.holders | short.refused, i64(job.repl) - count_of(live))
    if len(targets) > 0:
        send_repairs(n, job, targets)
        for slot in targets:
            short.targets |= 1 << i64(slot)
        rest(n, job, short, SILENT_MS)
        return
    free = n.reachable & ~job.holders & ~1
    if free & ~short.refused:
        rest(n, job, short, FULL_MS)
    else:
        short.refused = 0
        rest(n, job, short, REFUSED_MS if free else PARKED_MS)


def first_of(n: Node, id: bytes, live: i64) -> i64:
    """The slot of the node that should repair the job: the highest rank of those that can."""
    first: i64 = 0
    best = rank(id, n.node_id)
    for slot in slots_of(live & n.reachable):
        other = rank(id, n.peers[slot].node_id)
        if other > best:
            best = other
            first = slot
    return first


def choose_room(n: Node, taken: i64, count: i64) -> list[int]:
    """Up to `count` random reachable nodes that are not taken and whose links have room."""
    slots = [slot for slot in slots_of(n.reachable & ~taken & ~1) if n.peers[slot].has_room]
    if len(slots) > count:
        n.chance.shuffle(slots)
        del slots[count:]
    return slots


def send_repairs(n: Node, job: Job, slots: list[int]) -> None:
    """Send the job to new holders; they confirm to all holders (K5.3)."""
    state = n.losses
    for slot in slots:
        job.holders |= 1 << i64(slot)
        spare(n, job.id, 1 << i64(slot))
    if job.state == ACTIVE and job.marks & (HELD | STALE):
        job.marks |= ASKED_ALL  # Q11.9: what has just got the job knows nothing of it
    if n.records is not None:
        n.records.holders(job)
    part(n, job, job.holders & ~n.linked, 0)  # K5.6: they miss the GOTJOB
    message = repair_message(n, job)
    for slot in slots:
        introduce(n, slot, job.holders | 1)
        say(n, slot, message)
        state.budget -= 1
        state.budget_bytes -= len(job.body)
        state.repaired += 1


def repair_message(n: Node, job: Job) -> ReplJob:
    """The job with its due time; in its first delay, that of a copy, which is later."""
    due_ms = job.qtime_ms - n.now_ms
    if due_ms <= 0 or job.flags & (ONCE_QUEUED | DELIVERED) == 0:
        due_ms = copy_due_ms(n, job)
    return as_message(n, job, REPAIR, due_ms)


def wake_rested(n: Node) -> None:
    """Jobs have rested: ask silent nodes, check the others again."""
    state = n.losses
    looks: i64 = 0
    while len(state.rests) > 0 and state.rests[0][0] <= n.now_ms and looks < STEP_JOBS:
        at_ms, id = heappop(state.rests)
        looks += 1
        short = state.short.get(id)
        if short is None or short.at_ms != at_ms:
            continue
        job = n.jobs.get(id)
        if job is None:
            del state.short[id]
            continue
        drop_gone(n, short)
        if short.targets == 0:
            to_bucket(n, job, short)
            continue
        for slot in slots_of(short.targets & ~short.asked):
            ask(n, slot, id, False)
        short.asked = short.targets
        rest(n, job, short, ASKED_MS)
