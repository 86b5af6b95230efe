"""Jobs move to the nodes whose clients wait for them; PAUSE on all nodes (SPEC F, P1.7, P3).

A request stays registered at the node that was asked until that node sends jobs or the request is
withdrawn. So waiting clients cost nothing while no jobs arrive, and a newly queued job goes to a
waiting client of another node at once. `Demand.asked` has the requests that this node has sent. It
may miss one that is still registered, which costs a second request, but never the reverse: links
are FIFO, and both sides forget requests when a new link opens. Core procedures mark queues to check
in `n.asks` and `n.offers`.
"""

from heapq import heappop, heappush
from itertools import islice
from typing import Final

from mypy_extensions import i64

from tuque.core.copies.holders import hear_holders, spare
from tuque.core.copies.replicate import (
    FIELDS,
    as_message,
    end_earlier,
    job_of,
)
from tuque.core.copies.requeue_messages import (
    is_awaited,
    keeps_worker,
    known_job,
    put_off,
)
from tuque.core.model import stats
from tuque.core.model.job import (
    ACKED,
    ACTIVE,
    DELIVERED,
    IN_TRANSIT,
    LET_GO,
    ONCE_QUEUED,
    QUEUED_THERE,
    STALE,
    Job,
    set_state,
)
from tuque.core.msgs.bus import (
    CUSTODY,
    HAS_QUEUED,
    GotJobs,
    Left,
    Moved,
    NeedJobs,
    Pause,
    Queued,
    ReplJob,
    SetAck,
    YourJobs,
)
from tuque.core.node.node import Node, Pausing, Peer
from tuque.core.node.peers import (
    deny,
    introduce,
    jitter_behind_ms,
    rank,
    say,
    set_due,
    slots_of,
    tell_queued,
    translate,
)
from tuque.core.node.queue import PAUSE_IN, PAUSE_OUT, Queue
from tuque.core.queues.deliver import demand_of, serve_ready, set_pause
from tuque.core.queues.ends import has_ended
from tuque.core.queues.procedures import (
    FAR,
    enqueue,
    enqueue_open,
    is_task,
    may_enqueue,
    memory_level,
    register,
    retry_due_ms,
    told_job,
    unregister,
)
from tuque.core.queues.work_copies import adopt_life, expire, is_running, packed_outcome
from tuque.core.tables.repair import (
    COUNT_HIGH,
    DEMAND_BYTES,
    LINGER_MS,
    Demand,
    Wish,
)

AGAIN_MAX: Final = 100  # jobs in one repeated YOURJOBS
LATE_MAX: Final = 10_000  # messages kept while loading

WISH_MS: Final = 600_000  # lifetime of a wish
RENEW_MS: Final = 240_000  # age at which it is renewed
STEP_LOW_MS: Final = 25  # first pause between two requests without an import; doubles each time
STEP_HIGH_MS: Final = 200
SHUT_MS: Final = 1_600  # between two looks at a queue whose clients wait while nothing is asked
FULL_MS: Final = 50  # delay before retrying a full link
SWEEP_SOON_MS: Final = 1_000
SWEEP_MS: Final = 30_000
DEMANDS_MAX: Final = 100_000  # queues that other nodes may wish for
GIVE_BYTES: Final = 1 << 20  # in one YOURJOBS, not counting its last job
SKIP_MAX: Final = 100  # at-most-once jobs skipped because they may not move yet

PAUSES_MAX: Final = 10_000  # PAUSE commands kept; above it, drop the oldest that ended a pause
PAUSES_BYTES: Final = 4 << 20  # of their names
PAUSES_TRIM: Final = 1_000


# ---- Moves jobs to another node, which then serves them (SPEC F2.2-F4)
#
# An at-least-once job stays here too, as active. Of an at-most-once job exactly one node may
# deliver: while it is in transit (IN_TRANSIT) only the receiver may. The sender keeps the job
# until the receiver confirms it (GOTJOBS), and resends it to the same node when a link comes
# up. The receiver does not pass it on before the sender has dropped its copy (LEFT): so a
# repeated message always reaches a node that knows the job and replies without taking it
# again. `n.custody` has the at-most-once jobs between these two messages, on both sides.


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
    register(n, job, stats.IMPORTED)
    is_begun = job.retry_s == 0 and is_running(n, m.life)
    if not is_begun:
        start(n, job, m.due_ms if job.retry_s == 0 else 0)
    if n.records is not None:
        n.records.add(job)
    adopt_life(n, slot, job, m.life)
    if is_begun:
        continue_run(n, job)
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
        is_queued = enqueue_open(n, job)
        if n.records is not None:
            n.records.state(job)
        if is_queued:
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
    if n.records is not None:
        n.records.holders(job)
    if is_running(n, m.life):
        adopt_life(n, slot, job, m.life)
        continue_run(n, job)
    else:
        start(n, job, m.due_ms)
        if n.records is not None:
            n.records.state(job)
    answer.ids.append(m.id)
    return 1


def continue_run(n: Node, job: Job) -> None:
    """[F3] The received at-most-once job is at a worker: nobody else gets it (F3.8)."""
    job.flags |= DELIVERED | ONCE_QUEUED
    job.qtime_ms = 0
    n.delivered_amo[job.id] = None
    work = n.life.by_id[job.id]
    limit_ms = work.terms.limit_ms
    if limit_ms > 0:
        job.qtime_ms = max(work.since_ms + limit_ms, n.now_ms)
    n.wheel.arm(job, n.now_ms)
    if n.records is not None:
        n.records.state(job)


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
            unregister(n, job, stats.MOVED)
            if n.records is not None:
                n.records.remove(id, stats.MOVED)
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
        enqueue_open(n, job)
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


def take_job_back(n: Node, job: Job) -> None:
    """[F4] This node let the job go for one that had it no more: queue it again (F4.2)."""
    job.marks &= 0xFF ^ LET_GO
    if may_enqueue(job):
        is_queued = enqueue_open(n, job)
        if n.records is not None:
            n.records.state(job)
        if is_queued:
            tell_queued(n, job, HAS_QUEUED)


def on_moved(n: Node, slot: i64, m: Moved) -> None:
    """[F4] ON RECV MOVED: another node serves the job; add its holders (F4.1)."""
    job = known_job(n, slot, m.id)
    if job is not None:
        hear_holders(n, slot, job, translate(n, slot, m.holders), m.holders)
        if job.marks & LET_GO and rank(m.id, n.peers[slot].node_id) > rank(m.id, n.node_id):
            take_job_back(n, job)
            return
        is_doubted = job.marks & STALE != 0 and is_awaited(n, job)
        let_go = job.marks & LET_GO
        put_off(n, job, n.now_ms + m.left_ms + jitter_behind_ms(n))
        job.marks |= let_go
        if is_doubted:
            job.marks |= STALE  # Q11.5


# ---- Requests that this node sends (SPEC F1)


def look(n: Node, d: Demand) -> None:
    """[F1] PROCEDURE ask: send what this node now wants of the queue, if that changed."""
    q = n.queues.get(d.name)
    is_empty = q is None or q.length == 0
    has_waiters = q is not None and len(q.waiters) > 0
    is_shut = n.is_leaving or n.is_stopping or n.is_double or n.is_loading
    is_shut = is_shut or (q is not None and q.pause != 0)
    if is_shut or memory_level(n) >= 2:
        take_back(n, d)  # F1.2
        if has_waiters and not n.is_leaving:
            look_at(n, d, n.now_ms + SHUT_MS)
        return
    wanted: i64 = len(q.waiters) if q is not None and is_empty else 0
    if d.poll_ms + LINGER_MS > n.now_ms:
        wanted = max(wanted, d.lack - (q.length if q is not None else 0))
    if wanted > 0:
        d.idle_ms = 0
        ask(n, d, wanted, True, q is not None and has_patient(n, q))  # F1.1
        if not has_waiters:
            look_at(n, d, d.poll_ms + LINGER_MS)
        return
    if is_empty and d.rate(n.now_ms) > 0 and d.seen_ms + LINGER_MS > n.now_ms:
        ask(n, d, 0, False, False)
    if len(d.asked) > 0:
        if d.idle_ms == 0:
            d.idle_ms = n.now_ms
        if d.idle_ms + LINGER_MS <= n.now_ms:
            take_back(n, d)
        else:
            look_at(n, d, d.idle_ms + LINGER_MS)


def has_patient(n: Node, q: Queue) -> bool:
    """Whether a client waits that does not only poll (F1.4)."""
    for client in q.waiters:  # noqa: SIM110  mypyc compiles a loop well, and a generator not
        if not n.waiters[client].is_short:
            return True
    return False


def ask(n: Node, d: Demand, wanted: i64, is_for_all: bool, is_waiting: bool) -> None:
    """Send NEEDJOBS to all nodes, or to the sources, that have no such request yet (F1.3, F1.4)."""
    now_ms = n.now_ms
    d.drop_sources(now_ms)
    peers = whom_to_ask(n, d, is_for_all, is_waiting)
    if len(peers) == 0:
        return
    if d.asked_ms + d.step_ms > now_ms:
        look_at(n, d, d.asked_ms + d.step_ms)
        return
    d.asked_ms = now_ms
    d.step_ms = min(max(d.step_ms * 2, STEP_LOW_MS), STEP_HIGH_MS)
    share = d.share(now_ms, wanted)
    for peer in peers:
        if not peer.has_room:
            look_at(n, d, now_ms + FULL_MS)
            continue
        count = share if peer.slot in d.sources else 1  # F1.3, F1.4
        d.asked[peer.slot] = Wish(count, now_ms + RENEW_MS, is_waiting)
        peer.asked += count
        say(n, peer.slot, NeedJobs(d.name, count, is_waiting))


def whom_to_ask(n: Node, d: Demand, is_for_all: bool, is_waiting: bool) -> list[Peer]:
    """Linked nodes without a pending request: all, or only the sources if no client looked."""
    peers: list[Peer] = []
    for peer in n.peers:
        if not peer.is_linked or not (is_for_all or peer.slot in d.sources):
            continue
        stands = d.asked.get(peer.slot)
        if stands is None or stands.until_ms <= n.now_ms or (is_waiting and not stands.is_waiting):
            peers.append(peer)
    return peers


def take_back(n: Node, d: Demand) -> None:
    """Withdraw all requests: send NEEDJOBS with count 0."""
    for slot in d.asked:
        say(n, slot, NeedJobs(d.name, 0, False))
    d.asked = {}
    d.idle_ms = 0


def look_at(n: Node, d: Demand, at_ms: i64) -> None:
    """Check the queue at that instant or earlier."""
    if d.look_ms == 0 or at_ms < d.look_ms:
        d.look_ms = at_ms
        heappush(n.looks, (at_ms, d.name))


# ---- Requests of other nodes (SPEC F2)


def on_needjobs(n: Node, slot: i64, m: NeedJobs) -> None:
    """[F2] ON RECV NEEDJOBS."""
    count: i64 = min(max(m.count, 0), COUNT_HIGH)  # F2.1
    d = n.demands.get(m.queue)
    if count == 0:
        if d is not None:
            d.wishes.pop(slot, None)
        return
    if d is None:
        if len(n.demands) >= DEMANDS_MAX:
            return
        d = demand_of(n, m.queue)
    if not m.is_waiting:
        d.looks[int(slot)] = d.looks.get(int(slot), 0) + 1
    d.wishes[slot] = Wish(count, n.now_ms + WISH_MS, m.is_waiting)
    n.offers[m.queue] = None


def look_again(n: Node) -> None:
    """[F2] What this node held back, or did not ask for, is due again (K1.3)."""
    for name in n.demands:
        n.asks[name] = None
        n.offers[name] = None


def offer(n: Node, q: Queue, d: Demand) -> None:
    """[F2] Serve other nodes' wishes in turn, with jobs that no client here wants."""
    if n.is_double:
        return  # K1.3
    now_ms = n.now_ms
    for slot, wish in list(d.wishes.items()):
        if q.length == 0 or q.pause & PAUSE_OUT or n.is_loading or q.policy is not None:
            return
        peer = n.peers[slot]
        if not peer.is_linked or wish.until_ms <= now_ms or peer.is_leaving:  # F2.1
            del d.wishes[slot]
            continue
        if not wish.is_waiting:
            kept_ms = d.kept_until_ms(slot, wish.until_ms - WISH_MS, now_ms)
            if kept_ms > now_ms:
                look_at(n, d, kept_ms)
                continue
        if not peer.has_room:
            n.offers[q.name] = None
            n.offers_ms = now_ms + FULL_MS
            continue
        half = q.length // 2
        jobs = pick(n, q, min(wish.count, half if half > 0 else 1))  # F2.2
        if len(jobs) > 0:
            del d.wishes[slot]
            q.jobs_out += len(jobs)
            q.atime_ms = now_ms
            send_jobs(n, slot, q.name, jobs)


def pick(n: Node, q: Queue, most: i64) -> list[Job]:
    """Take up to `most` movable jobs out of the queue, in its order (F2.2)."""
    jobs: list[Job] = []
    skipped: list[Job] = []
    byte_count: i64 = 0
    while len(jobs) < most and byte_count < GIVE_BYTES and len(skipped) < SKIP_MAX:
        job = q.pop()
        if job is None:
            break
        if job.expire_ms <= n.now_ms:
            job.state = ACTIVE
            expire(n, job)
        elif not may_move(n, job):
            skipped.append(job)
        else:
            set_state(job, ACTIVE)
            jobs.append(job)
            byte_count += len(job.body)
    for job in skipped:
        q.push(job)
    return jobs


# ---- Links that come up, and timers (SPEC F1, F2)


def federate_link_up(n: Node, slot: i64) -> None:
    """[F1] A link came up: earlier requests are void; send the peer requests and pauses again."""
    for d in n.demands.values():
        d.asked.pop(slot, None)
        d.wishes.pop(slot, None)
        d.step_ms = 0
    for waiter in n.waiters.values():
        for name in waiter.queues:
            n.asks[name] = None
    repeat_custody(n, slot)
    for name, pausing in n.pauses.items():
        if pausing.is_bcast:
            say(n, slot, Pause(name, pausing.bits, pausing.stamp_ns))  # P1.8


def federate_tick(n: Node) -> None:
    """[F1, F2] Request and offer jobs for changed queues; local clients are served first."""
    while len(n.looks) > 0 and n.looks[0][0] <= n.now_ms:
        at_ms, name = heappop(n.looks)
        d = n.demands.get(name)
        if d is not None and d.look_ms == at_ms:
            d.look_ms = 0
            n.asks[name] = None
            if len(d.wishes) > 0:
                n.offers[name] = None
    if len(n.ready) > 0:
        serve_ready(n)
    if len(n.offers) > 0 and n.offers_ms <= n.now_ms:
        offers = n.offers
        n.offers = {}
        for name in offers:
            d = n.demands.get(name)
            q = n.queues.get(name)
            if d is not None and q is not None and len(d.wishes) > 0:
                offer(n, q, d)
    if len(n.asks) > 0:
        asks = n.asks
        n.asks = {}
        for name in asks:
            look(n, demand_of(n, name))
    if n.sweep_ms <= n.now_ms:
        sweep(n)


def sweep(n: Node) -> None:
    """Drop expired wishes; renew requests that have expired."""
    is_much = 2 * n.demand_bytes > n.limits.bare_bytes
    n.sweep_ms = n.now_ms + (SWEEP_SOON_MS if is_much else SWEEP_MS)  # M5.5
    for name, d in list(n.demands.items()):
        for slot, wish in list(d.wishes.items()):
            if wish.until_ms <= n.now_ms:
                del d.wishes[slot]
        for wish in d.asked.values():
            if wish.until_ms <= n.now_ms:
                n.asks[name] = None
        if d.is_over(n.now_ms) and d.look_ms == 0:
            del n.demands[name]
            n.demand_bytes -= DEMAND_BYTES + len(name)
            q = n.queues.get(name)
            if q is not None:
                q.demand = None


def federate_next_ms(n: Node) -> i64:
    """The instant at which `federate_tick` next has work."""
    if len(n.asks) > 0:
        return n.now_ms
    at_ms: i64 = FAR
    if len(n.looks) > 0:
        at_ms = n.looks[0][0]
    if len(n.offers) > 0 and n.offers_ms < at_ms:
        at_ms = n.offers_ms
    if len(n.demands) > 0 and n.sweep_ms < at_ms:
        at_ms = n.sweep_ms
    return at_ms


# ---- PAUSE with BCAST: the pause holds on all nodes (SPEC P1.7, P3)


def pause_queue(n: Node, name: bytes, bits: i64, is_bcast: bool) -> None:
    """[P1.7] ON COMMAND PAUSE: set the state here, with BCAST on every node.

    Linked nodes get it now, others when their link comes up (P1.8).
    """
    stamp_ns = n.next_ctime_ns()
    known = n.pauses.get(name)
    if known is not None and known.stamp_ns >= stamp_ns:
        stamp_ns = known.stamp_ns + 1  # P1.9
    q = n.queues.get(name)
    if q is not None and q.policy is not None:
        before = q.pause
        apply_pause(n, name, Pausing(bits, stamp_ns, False))
        if q.pause != before:
            q.policy.on_pause(n, q)  # T17.7: always sent to all nodes
        return
    pausing = Pausing(bits, stamp_ns, is_bcast)
    apply_pause(n, name, pausing)
    if is_bcast:
        for peer in n.peers:
            say(n, peer.slot, Pause(name, bits, pausing.stamp_ns))  # P1.7


def apply_pause(n: Node, name: bytes, pausing: Pausing) -> None:
    """Apply the pause now."""
    remember_pause(n, name, pausing)
    set_pause(n, name, pausing.bits, pausing.is_bcast, pausing.stamp_ns)


def remember_pause(n: Node, name: bytes, pausing: Pausing) -> None:
    """Keep the latest PAUSE of the queue. Above the limit, drop the oldest that ended a pause."""
    if n.pauses.pop(name, None) is None:
        n.pause_bytes += len(name)
    n.pauses[name] = pausing
    n.ended_pauses.pop(name, None)
    if pausing.bits == 0:
        n.ended_pauses[name] = None
    if len(n.pauses) > PAUSES_MAX or n.pause_bytes > PAUSES_BYTES:
        for other in list(islice(n.ended_pauses, PAUSES_TRIM)):
            del n.ended_pauses[other]
            del n.pauses[other]
            n.pause_bytes -= len(other)


def on_pause_message(n: Node, slot: i64, m: Pause) -> None:
    """[P3] ON RECV PAUSE: replace the state unless a later command did (P3.1, P3.2)."""
    bits = m.bits & (PAUSE_IN | PAUSE_OUT)
    q = n.queues.get(m.queue)
    if q is not None and q.policy is not None:
        return  # T17.7
    known = n.pauses.get(m.queue)
    if known is not None and known.stamp_ns >= m.stamp_ns:
        if known.stamp_ns > m.stamp_ns or known.bits >= bits:
            return  # P3.2
    apply_pause(n, m.queue, Pausing(bits, m.stamp_ns, True))
