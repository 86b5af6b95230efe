"""A node drops jobs: all when it leaves, some when its memory is short (SPEC K7, M3).

A leaving node drops a job only when enough other nodes, being asked, have confirmed that they have
it: the holder set is not trusted here. A queued job first goes to one of them as in F2, so that
consumers do not wait for its retry time. Custody of an at-most-once job moves as in F2.3.
"""

from heapq import heappop, heappush
from typing import Final

from mypy_extensions import i64

from tuque.core.copies.ack_gc import finish, send_outcome
from tuque.core.copies.federation import may_move, send_jobs, settle
from tuque.core.copies.holders import ask, note_gone, part, send_holders
from tuque.core.copies.replicate import on_offer_left
from tuque.core.copies.rereplicate import WINDOW_MS, choose_room, refill, send_repairs
from tuque.core.model import stats
from tuque.core.model.job import (
    ACKED,
    ACTIVE,
    BODYLESS,
    DELIVERED,
    IN_TRANSIT,
    ONCE_QUEUED,
    QUEUED,
    WAIT_REPL,
    Job,
)
from tuque.core.model.task import Task
from tuque.core.model.work import LIVE, Outcome
from tuque.core.msgs.bus import Enqueue, GotAck, Holders, Left
from tuque.core.node.node import Node
from tuque.core.node.peers import (
    count_of,
    deny,
    introduce,
    say,
    slots_of,
)
from tuque.core.queues.procedures import dequeue, memory_level, remove, thin, told_job, unregister
from tuque.core.queues.work_copies import send_work
from tuque.core.repair.node_loss import ask_others, begin_walk, lose_copy
from tuque.core.tables.leases import is_leased
from tuque.core.tables.repair import COUNT, FAR, Leave, Passing

STEP_JOBS: Final = 500  # started in one turn
OPEN_MAX: Final = 2_000  # started and not finished
ROUND_MS: Final = 1_000  # between two passes over all jobs
AGAIN_MS: Final = 1_000  # delay before a stuck job is tried again
IDS_MAX: Final = 500  # in one LEFT
ANSWER_MS: Final = 5_000  # until an outcome that nobody confirmed is sent again
TRIES: Final = 3  # all nodes refuse so often what no node takes: at first they may not know


def set_leaving(n: Node, is_leaving: bool) -> None:
    """[K7] CLUSTER LEAVING yes|no: start or stop handing jobs over (K7.4)."""
    if is_leaving == n.is_leaving:
        return
    n.is_leaving = is_leaving
    if n.policy is not None:
        n.policy.on_reach(n)  # leaderships of tubes move, too
    state = n.losses
    state.leaves = {}
    state.leave_ids = []
    state.leave_pos = 0
    state.leave_rests = []
    state.round_ms = n.now_ms
    state.passing = {}
    state.pass_ids = []
    state.pass_pos = 0
    state.pass_ms = n.now_ms
    n.life.pass_none()
    if is_leaving:
        state.short = {}
        state.buckets = {}
        state.rests = []
    else:
        begin_walk(n, COUNT, 0)


def drain_left(n: Node) -> i64:
    """[K7] Jobs and tubes that must go before the node is safe to stop (K7.3)."""
    left: i64 = len(n.jobs) + (1 if n.is_loading else 0) + results_left(n)
    return left if n.policy is None else left + n.policy.drain_left(n)


def set_stopping(n: Node, is_stopping: bool) -> None:
    """[K9] CLUSTER STOPPING yes|no: others lead its tubes; its jobs stay (K9.1)."""
    n.is_stopping = is_stopping
    if n.policy is not None:
        n.policy.set_stopping(n, is_stopping)


def tubes_to_move(n: Node) -> i64:
    """[K9] Tubes led here that others are to lead before the stop (K9.2)."""
    return 0 if n.policy is None else n.policy.tubes_to_move(n)


def on_left(n: Node, slot: i64, m: Left) -> None:
    """[K7, R3.4] ON RECV LEFT: the sender is no longer a holder; repair follows (K7.5).

    Of an acked job it stays one (K7.6).
    """
    for id in m.ids:
        job = told_job(n, id)
        if job is None:
            n.tombs.let_go(id)
            continue
        if job.state == ACKED:
            continue  # K7.6: it knows of the ack and will reply
        lose_copy(n, job, slot)
        note_gone(n, slot, job)
        if job.retry_s == 0:
            settle(n, slot, id)
            on_offer_left(n, slot, job)
        elif job.state != WAIT_REPL:
            part(n, job, job.holders, 0)  # K7.5
            if n.peers[slot].is_leaving:
                ask_others(n, job)  # K5.2: it counted as holders those it knew to stay


# ---- A leaving node hands its jobs over (SPEC K7.2)


def others_of(n: Node) -> i64:
    """The cluster's other nodes that are not leaving."""
    others: i64 = 0
    for peer in n.peers:
        if peer.slot != 0 and not peer.is_leaving:
            others |= 1 << peer.slot
    return others & ~n.forgotten


def leave(n: Node, job: Job) -> None:
    """[K7] Take the next step to hand the job over (K7.2)."""
    state = n.losses
    if is_leased(job) or isinstance(job, Task):
        state.leaves.pop(job.id, None)  # Y8.3: the next pass tries it again
        return
    if job.state == ACKED or job.state == WAIT_REPL or job.retry_s == 0:
        state.leaves.pop(job.id, None)
        if job.retry_s == 0:
            leave_once(n, job)
        return
    entry = state.leaves[job.id]
    others = others_of(n)
    if job.state == QUEUED and not give(n, job, entry, others):
        rest(n, job)  # no node can take it
        return
    kept = entry.kept & others & job.holders
    needed: i64 = min(i64(job.repl), count_of(others))
    if needed > 0 and count_of(kept) >= needed:
        go(n, job, kept)
        return
    unasked = job.holders & others & n.linked & ~entry.kept & ~entry.asked
    for slot in slots_of(unasked):
        ask(n, slot, job.id, False)
    entry.asked |= unasked
    if entry.asked & n.linked == 0:
        make_copies(n, job, entry, needed - count_of(kept))
    rest(n, job)


def leave_once(n: Node, job: Job) -> None:
    """Hand over an at-most-once job: first its custody, then the job (F2.3).

    So does one that a worker has begun. Another delivered one is dropped: it is only a memory.
    """
    if job.state == ACKED or job.state == WAIT_REPL or job.flags & IN_TRANSIT:
        return
    work = n.life.by_id.get(job.id)
    if job.flags & DELIVERED and (work is None or work.run_state != LIVE):
        drop(n, job)
    elif may_move(n, job):
        targets = choose_room(n, 0, 1)
        if len(targets) > 0:
            if job.state == QUEUED:
                dequeue(n, job)
            send_jobs(n, targets[0], job.queue, [job])


def give(n: Node, job: Job, entry: Leave, others: i64) -> bool:
    """Hand the queued job to another node, a holder if possible; False if none can take it."""
    targets = choose_room(n, ~(job.holders & others), 1)
    if len(targets) == 0:
        targets = choose_room(n, ~others | entry.refused, 1)
    if len(targets) == 0:
        entry.refused = 0
        return False
    dequeue(n, job)
    send_jobs(n, targets[0], job.queue, [job])
    return True


def make_copies(n: Node, job: Job, entry: Leave, count: i64) -> None:
    """Send the job to more nodes, and ask whether they keep it."""
    refill(n)
    if count <= 0 or n.losses.budget <= 0 or n.losses.budget_bytes <= 0:
        return
    targets = choose_room(n, job.holders | entry.refused, count)
    if len(targets) == 0:
        entry.refused = 0
        return
    send_repairs(n, job, targets)
    for slot in targets:
        entry.asked |= 1 << i64(slot)
        ask(n, slot, job.id, False)


def go(n: Node, job: Job, kept: i64) -> None:
    """Enough others have the job: remove it here and inform them (K7.2)."""
    if job.state == ACTIVE and job.flags & (ONCE_QUEUED | DELIVERED) == 0:
        slots = slots_of(kept & n.linked)
        if len(slots) > 0:
            slot = slots[n.chance.below(len(slots))]
            say(n, slot, Enqueue(job.id, max(1, job.qtime_ms - n.now_ms)))  # the rest of its delay
    if job.id in n.life.untold:
        send_work(n, job)  # a run that began just now goes on there
    deny(n, job.id)
    holders = job.holders & ~1
    for slot in slots_of(holders):
        if holders & ~(1 << slot):  # they may not know of the copies just made
            introduce(n, slot, holders)
            say(n, slot, Holders(job.id, holders))
        say_left(n, slot, job.id)
    part(n, job, job.holders, holders)  # K7.2
    drop(n, job)


def drain_link_up(n: Node, slot: i64) -> None:
    """[K7] A link came up: resend what the last link may have lost about jobs handed over."""
    untold = n.losses.parted.get(slot)
    if untold is None:
        return
    for id, (end_ms, holders, _) in list(untold.items()):
        if end_ms <= n.now_ms:
            del untold[id]
            continue
        untold[id] = (end_ms, holders, n.round)
        job = n.jobs.get(id)
        if job is not None:
            if job.state != ACKED:
                send_holders(n, job, 1 << slot)  # K7.5
        elif holders != 0 and not n.tombs.has(id):
            introduce(n, slot, holders)
            say(n, slot, Holders(id, holders))  # K7.2
            say_left(n, slot, id)


def drop(n: Node, job: Job) -> None:
    """Remove a job that others have."""
    n.losses.leaves.pop(job.id, None)
    unregister(n, job, stats.MOVED)
    if n.records is not None:
        n.records.remove(job.id, stats.MOVED)


def say_left(n: Node, slot: i64, id: bytes) -> None:
    """Send LEFT, many ids of a turn in one message."""
    outbox = n.peers[slot].outbox
    if len(outbox) > 0:
        last = outbox[len(outbox) - 1]
        if isinstance(last, Left) and len(last.ids) < IDS_MAX:
            last.ids.append(id)
            return
    say(n, slot, Left([id]))


def on_answer(n: Node, slot: i64, there: list[bytes], lacking: list[bytes]) -> None:
    """A node replied which of the jobs it has."""
    leaves = n.losses.leaves
    bit: i64 = 1 << slot
    for id in lacking:
        entry = leaves.get(id)
        job = n.jobs.get(id)
        if entry is not None and job is not None:
            entry.asked &= ~bit
            entry.refused |= bit
            leave(n, job)
    for id in there:
        entry = leaves.get(id)
        job = n.jobs.get(id)
        if entry is not None and job is not None:
            entry.asked &= ~bit
            entry.kept |= bit
            leave(n, job)


def rest(n: Node, job: Job) -> None:
    """Try the job again later."""
    heappush(n.losses.leave_rests, (n.now_ms + AGAIN_MS, job.id))


# ---- Timers (SPEC K7.2)


def drain_tick(n: Node) -> None:
    """[K7] Start some more jobs; continue those that waited (K7.2)."""
    if not n.is_leaving or n.is_loading or drain_next_ms(n) > n.now_ms:
        return
    pass_results(n)
    state = n.losses
    looks: i64 = 0
    while len(state.leave_rests) > 0 and state.leave_rests[0][0] <= n.now_ms and looks < STEP_JOBS:
        _, id = heappop(state.leave_rests)
        looks += 1
        job = n.jobs.get(id)
        entry = state.leaves.get(id)
        if job is None:
            state.leaves.pop(id, None)
        elif entry is not None:
            entry.asked &= n.linked
            leave(n, job)
    if state.leave_pos == len(state.leave_ids) and state.round_ms <= n.now_ms:
        state.leave_ids = list(n.jobs)
        state.leave_pos = 0
        state.round_ms = n.now_ms + ROUND_MS
    while state.leave_pos < len(state.leave_ids) and looks < STEP_JOBS:
        if len(state.leaves) >= OPEN_MAX:
            return
        job = n.jobs.get(state.leave_ids[state.leave_pos])
        state.leave_pos += 1
        looks += 1
        if job is not None and job.id not in state.leaves:
            state.leaves[job.id] = Leave()
            leave(n, job)


def drain_next_ms(n: Node) -> i64:
    """The instant at which `drain_tick` next has work."""
    state = n.losses
    never: i64 = FAR
    if not n.is_leaving or n.is_loading:
        return never
    pass_ms = pass_next_ms(n, never)
    if len(n.jobs) == 0:
        return pass_ms
    at_ms: i64 = state.round_ms
    if state.leave_pos < len(state.leave_ids):
        at_ms = n.now_ms if len(state.leaves) < OPEN_MAX else never
    if len(state.leave_rests) > 0 and state.leave_rests[0][0] < at_ms:
        at_ms = state.leave_rests[0][0]
    return min(at_ms, pass_ms)


# ---- A leaving node passes on how jobs ended, while that is kept (SPEC K7.10)


def results_left(n: Node) -> i64:
    """[K7] Kept outcomes that another node should have, and none has yet (K7.10)."""
    if not n.is_leaving or others_of(n) == 0:
        return 0
    work = n.life
    return len(work.kept) - work.passed


def results_here(n: Node) -> i64:
    """[K7] Kept outcomes of a leaving node that are lost with it: no node takes them (K7.10)."""
    if not n.is_leaving:
        return 0
    work = n.life
    return i64(len(work.kept)) if others_of(n) == 0 else work.alone


def is_to_pass(outcome: Outcome) -> bool:
    """Whether it goes to another node: not what others know better, nor that of a task, which the
    replicas of its tube have (T48.6).
    """
    return not (outcome.is_claim or outcome.is_brief or outcome.is_of_task())


def pass_results(n: Node) -> None:
    """[K7] Pass some more on; again what nobody has confirmed (K7.10)."""
    state = n.losses
    work = n.life
    if results_left(n) == 0 and len(state.passing) == 0:
        return
    refill(n)
    if len(state.passing) > 0 and state.sweep_ms <= n.now_ms:
        state.sweep_ms = n.now_ms + AGAIN_MS
        for id in list(state.passing):
            if state.passing[id].again_ms <= n.now_ms:
                pass_one(n, id)
    if state.pass_pos == len(state.pass_ids) and state.pass_ms <= n.now_ms:
        state.pass_ids = list(work.kept)
        state.pass_pos = 0
        state.pass_ms = n.now_ms + ROUND_MS
    looks: i64 = 0
    while state.pass_pos < len(state.pass_ids) and looks < STEP_JOBS and may_pass(n):
        id = state.pass_ids[state.pass_pos]
        state.pass_pos += 1
        looks += 1
        outcome = work.kept.get(id)
        if outcome is None or outcome.is_passed or id in state.passing:
            continue
        if not is_to_pass(outcome):
            work.let_pass(outcome, False)
        elif id not in n.jobs:  # its holders come first
            state.passing[id] = Passing()
            pass_one(n, id)


def may_pass(n: Node) -> bool:
    """Whether this moment has room for one more."""
    state = n.losses
    return len(state.passing) < OPEN_MAX and state.budget > 0 and state.budget_bytes > 0


def pass_one(n: Node, id: bytes) -> None:
    """Send it to a node that did not refuse it; at the end no node takes it."""
    state = n.losses
    work = n.life
    entry = state.passing[id]
    outcome = work.known(id)
    if outcome is None:
        del state.passing[id]
        return
    others = others_of(n)
    entry.again_ms = n.now_ms + AGAIN_MS
    if entry.refused & others & n.linked == others & n.linked != 0:
        entry.refused = 0
        entry.tries += 1
        if entry.tries == TRIES:
            work.let_pass(outcome, True)
            del state.passing[id]
        return
    targets = choose_room(n, ~others | entry.refused, 1)
    if len(targets) > 0 and state.budget_bytes > 0:
        state.budget -= 1
        state.budget_bytes -= outcome.size()
        entry.again_ms = n.now_ms + ANSWER_MS
        send_outcome(n, targets[0], id)


def on_passed(n: Node, slot: i64, m: GotAck) -> None:
    """A node replied whether it keeps what was passed on."""
    state = n.losses
    work = n.life
    entry = state.passing.get(m.id)
    outcome = work.known(m.id)
    if entry is None or outcome is None:
        return
    if m.known:
        work.let_pass(outcome, False)
        del state.passing[m.id]
    else:
        entry.refused |= 1 << slot
        pass_one(n, m.id)


def pass_next_ms(n: Node, never: i64) -> i64:
    """The instant at which `pass_results` next has work; `never`: it has none."""
    state = n.losses
    at_ms = never
    if len(state.passing) > 0:
        at_ms = state.sweep_ms
    if results_left(n) == 0:
        return at_ms
    if state.pass_pos == len(state.pass_ids):
        return min(at_ms, state.pass_ms)
    if may_pass(n):
        return n.now_ms
    return min(at_ms, state.window_ms + WINDOW_MS) if len(state.passing) < OPEN_MAX else at_ms


# ---- What may be dropped if memory is short, and in which order (SPEC M3)
#
# Nothing that a client is owed is ever dropped. First go delivered at-most-once jobs, oldest
# delivery first. Then what keeps acked jobs from coming back: first where that costs nothing,
# last acked jobs that other holders have not confirmed. These leave a tombstone, which is smaller
# and goes once all reachable nodes have confirmed it. At last results, whose outcomes stay, and the
# details of dead letters; these go from 75 % on, if that lets the node take jobs. At-least-once
# jobs stay until acked or expired.


def make_room(n: Node, most: i64) -> bool:
    """[M3] PROCEDURE evict: drop up to `most` records (M3.3) while above 95 %, or 75 % (M3.5).

    True if memory is then at or below 100 %.
    """
    if n.limits.may_evict:
        left = most
        level = memory_level(n)
        while left > 0 and level > 0 and (evict_one(n, left) if level >= 2 else thin(n)):
            left -= 1
            level = memory_level(n)
    return memory_level(n) < 3


def evict_one(n: Node, most: i64) -> bool:
    """Drop the least useful record (M3.1), or some tombstones; False: there is none."""
    if len(n.delivered_amo) > 0:
        remove(n, oldest(n, n.delivered_amo), stats.EVICTED)
        return True
    if len(n.peers) > 1 and n.tombs.evict(n.reachable, most) > 0:
        return True
    if len(n.strays) > 0:
        for id in n.strays:
            remove(n, n.jobs[id], stats.EVICTED)
            n.acks_evicted += 1
            return True
    if len(n.acked) > 0:
        job = oldest(n, n.acked)
        assert job.flags & BODYLESS == 0
        finish(n, job, job.holders, stats.EVICTED)
        n.acks_evicted += 1
        return True
    return thin(n)


def oldest(n: Node, ids: dict[bytes, None]) -> Job:
    """The job that has been in the table longest."""
    for id in ids:
        return n.jobs[id]
    raise AssertionError("nothing is left")
