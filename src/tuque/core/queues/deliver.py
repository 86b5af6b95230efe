"""GETJOB delivers jobs or makes clients wait (SPEC V); queues are paused (SPEC P)."""

from heapq import heapify, heappush
from typing import Final

from mypy_extensions import i64

from tuque.core.model.job import (
    ACTIVE,
    ANNOUNCE_WILL,
    DELIVERED,
    OUT_HERE,
    Job,
    awake_ms,
    set_state,
)
from tuque.core.model.timers import REPLY_BYTES, TURN_WORK
from tuque.core.node.node import DATA_RESET, GOT_JOBS, NODE_DOUBLE, NODE_LEAVING, Node, Waiter, Wake
from tuque.core.node.peers import jitter_first_ms, tell_delivered
from tuque.core.node.queue import PAUSE_BCAST, PAUSE_OUT, Queue
from tuque.core.node.tables import note_bare
from tuque.core.queues.ends import life_of
from tuque.core.queues.procedures import get_queue, mark_ready, stop_waiting
from tuque.core.queues.work_copies import expire
from tuque.core.tables.repair import DEMAND_BYTES, LINGER_MS, Demand

WAITER_BYTES: Final = 370  # per waiting client
WAIT_BYTES: Final = 160  # per queue that it waits in, plus the name
STALE_DEADLINES: Final = 1024  # entries of clients served in time that are kept before a clean-up


def take(n: Node, q: Queue, client: i64) -> Job | None:
    """[V4] PROCEDURE deliver: hand the first job of the queue to the client.

    Plain jobs of a tube were there, or in flight, when it was made. GETJOB gets them after its
    tasks, of a type with keys before them; TAKE never (T1.8).
    """
    policy = q.policy
    is_before = policy is not None and policy.has_older(q) and not is_take(n, client)
    if policy is not None and not is_before:
        task = policy.take(n, q, client)
        if task is not None or is_take(n, client):
            return task
    job = q.pop()  # in a tube: a plain job
    while job is not None and job.expire_ms <= n.now_ms:
        job.state = ACTIVE
        expire(n, job)  # V2.3
        n.passed += 1
        job = q.pop() if n.passed < TURN_WORK or has_live_head(n, q) else None
    if job is None:
        return policy.take(n, q, client) if policy is not None and is_before else None
    count_delivery(n, q, job)  # V4.1, V4.2
    now_ms = n.now_ms
    job.marks = OUT_HERE
    if job.retry_s > 0:
        job.qtime_ms = now_ms + i64(job.retry_s) * 1000  # V4.3: from the delivery, not the enqueue
        if job.holders != 1:
            job.qtime_ms += jitter_first_ms(n)
            job.flags |= ANNOUNCE_WILL
            tell_delivered(n, job)  # V4.6
        n.wheel.set(job, awake_ms(job), now_ms)
    else:
        job.qtime_ms = 0
        n.delivered_amo[job.id] = None
    if n.records is not None:
        n.records.state(job)  # V4.4
    if n.events is not None:
        n.events.delivered(now_ms, job, client)  # V4.5
    return job


def count_delivery(n: Node, q: Queue, job: Job) -> None:
    """Make a job just taken from its queue active, and count the delivery (V4.1, V4.2)."""
    set_state(job, ACTIVE)
    if job.delivered_count == 0:
        job.first_ms = n.now_ms
    else:
        n.redeliveries += 1
    job.delivered_count += 1
    job.last_ms = n.now_ms
    if n.has_lives:
        life = life_of(n, job.id)
        if life is not None:
            life.is_resting = False
    job.flags |= DELIVERED
    n.deliveries += 1
    n.book.deliver(job, q.tally, n.now_ms, job.delivered_count == 1)
    q.jobs_out += 1
    q.atime_ms = n.now_ms
    if q.demand is not None:
        q.demand.note_seen(n.now_ms, q.length == 0)
        if q.length == 0:
            n.asks[q.name] = None  # F1.1


def has_live_head(n: Node, q: Queue) -> bool:
    """Whether the queue's next job is live, after this turn has skipped enough expired ones (V2.3).

    If that one has expired too, the search continues in the next turn.
    """
    job = q.first()
    if job is not None and job.expire_ms <= n.now_ms:
        n.looks_later[q.name] = None
        return False
    return True


def look_again(n: Node) -> None:
    """[V2] TIMER: retry clients that wait for queues with many expired jobs (V2.3).

    Not in the turn that skipped them: its takes are done by now.
    """
    n.has_passed = not n.has_passed
    if n.has_passed:
        return
    n.passed = 0
    names = n.looks_later
    n.looks_later = {}
    for name in names:
        q = n.queues.get(name)
        if q is not None and q.length > 0 and len(q.waiters) > 0:
            mark_ready(n, q)


def is_take(n: Node, client: i64) -> bool:
    """Whether the client waits in a TAKE, not in a GETJOB."""
    waiter = n.waiters.get(client)
    return waiter is not None and waiter.taker >= 0


def on_getjob(n: Node, client: i64, queues: list[bytes], count: i64) -> list[Job]:
    """[V2] PROCEDURE take: one job a queue a round, left to right, up to `count` (V2.1)."""
    jobs: list[Job] = []
    if len(queues) == 1:
        q = n.queues.get(queues[0])
        if q is None or q.pause & PAUSE_OUT:  # V2.2, P2.2
            return jobs
        if count == 1:
            if q.length > 0:
                job = take(n, q, client)
                if job is not None:
                    jobs.append(job)
            return jobs
        take_from(n, client, [q], count, jobs)
        return jobs
    open: list[Queue] = []
    for name in queues:
        q = n.queues.get(name)
        if q is not None and q.length > 0 and q.pause & PAUSE_OUT == 0:
            open.append(q)
    n.work += len(queues) // 8  # a lookup is cheap
    take_from(n, client, open, count, jobs)
    return jobs


def take_from(n: Node, client: i64, queues: list[Queue], count: i64, jobs: list[Job]) -> None:
    """Fill `jobs` with one of each queue in turn, up to `count` or the size of a reply (L2.5).

    A queue that gives nothing is not tried again, even if its length is above 0: in a tube this
    counts tasks of busy sub-queues (T1.7). Consumes `queues`.
    """
    if count > TURN_WORK:
        count = TURN_WORK
    size: i64 = 0
    while len(queues) > 0:
        given: i64 = 0
        for q in queues:
            if len(jobs) >= count or size > REPLY_BYTES:
                return
            job = take(n, q, client) if q.length > 0 else None
            if job is None:
                continue
            queues[given] = q
            given += 1
            jobs.append(job)
            size += len(job.body)
            if count > 1:
                n.work += 1
                size += n.life.size_of_headers(job.id)
        if given < len(queues):
            del queues[given:]


def wait(
    n: Node,
    client: i64,
    queues: list[bytes],
    count: i64,
    extras: i64,
    until_ms: i64,
    taker: i64 = -1,
) -> None:
    """Block the client (V1.6) until a job comes or `until_ms` passes (0: no limit).

    In a tube, tasks go to the session of client `taker`; -1: no session.
    """
    assert client not in n.waiters
    waiter = Waiter(client, queues, count, extras, until_ms, taker)
    n.waiters[client] = waiter
    size: i64 = WAITER_BYTES
    for name in queues:
        q = n.queues.get(name)
        if q is None:
            q = get_queue(n, name)
            note_bare(n, q)
        q.waiters[client] = None
        size += WAIT_BYTES + len(name)
        if len(n.peers) > 1:
            n.asks[name] = None  # V1.6, F1.1
    waiter.bytes_used = size
    n.wait_bytes += size
    if until_ms > 0:
        if until_ms < n.now_ms + LINGER_MS:
            waiter.is_short = True
            on_poll(n, queues)  # F1.4
        heappush(n.deadlines, (until_ms, client))
        if len(n.deadlines) > 2 * len(n.waiters) + STALE_DEADLINES:
            drop_deadlines(n)


def on_poll(n: Node, queues: list[bytes], lack: i64 = 1) -> None:
    """[F1] GETJOB NOHANG found nothing, or a short wait begins, or LEASE NEXT lacks jobs (F1.1).

    Requests jobs from other nodes for the next call.
    """
    if len(n.peers) > 1:
        for name in queues:
            q = n.queues.get(name)
            if q is not None and q.length > 0:
                continue
            if n.demand_bytes > n.limits.bare_bytes and name not in n.demands:
                continue  # M5.5
            d = demand_of(n, name)
            if lack > d.lack or d.poll_ms + LINGER_MS <= n.now_ms:
                d.lack = lack
            d.poll_ms = n.now_ms
            d.note_seen(n.now_ms, True)
            n.asks[name] = None


def demand_of(n: Node, name: bytes) -> Demand:
    """The queue's demand record, created if absent."""
    d = n.demands.get(name)
    if d is None:
        d = Demand(name)
        n.demands[name] = d
        n.demand_bytes += DEMAND_BYTES + len(name)
        if 2 * n.demand_bytes > n.limits.bare_bytes:  # M5.5: those that are over go soon
            n.sweep_ms = min(n.sweep_ms, n.now_ms + LINGER_MS)
        q = n.queues.get(name)
        if q is not None:
            q.demand = d
    return d


def drop_deadlines(n: Node) -> None:
    """Drop deadlines of clients already served: they may lie far in the future."""
    deadlines: list[tuple[int, int]] = []
    for waiter in n.waiters.values():
        if waiter.until_ms > 0:
            deadlines.append((waiter.until_ms, waiter.client))
    heapify(deadlines)
    n.deadlines = deadlines


def serve_ready(n: Node) -> None:
    """[V3] PROCEDURE serve waiting clients: ready queues in order (V3.1)."""
    while len(n.ready) > 0:
        ready = n.ready
        n.ready = []
        for q in ready:
            q.is_ready = False
            while q.length > 0 and len(q.waiters) > 0 and q.pause & PAUSE_OUT == 0:
                client: i64 = -1
                for first in q.waiters:
                    client = first
                    break
                if not serve(n, n.waiters[client]):
                    break  # all expired, or no client may take the tube's tasks


def serve(n: Node, waiter: Waiter) -> bool:
    """Serve the first waiting client of a queue, up to its COUNT (V3.2)."""
    if n.is_double:
        return False  # K1.3: it is about to be refused
    jobs = on_getjob(n, waiter.client, waiter.queues, waiter.count)
    if len(jobs) > 0:  # else all queued jobs had expired: it keeps its place and waits on
        stop_waiting(n, waiter.client)  # V3.3
        n.wakes.append(Wake(waiter.client, GOT_JOBS, jobs, waiter.extras))
    return len(jobs) > 0


def wake_all(n: Node, why: i64) -> None:
    """[V7] Unblock all clients (V7.1): the node leaves or has a twin, or its data are reset."""
    assert why in (NODE_LEAVING, DATA_RESET, NODE_DOUBLE)
    for client in list(n.waiters):
        stop_waiting(n, client)
        n.wakes.append(Wake(client, why, [], 0))


def set_pause(n: Node, name: bytes, bits: i64, is_bcast: bool = False, stamp_ns: i64 = 0) -> None:
    """[P1] ON COMMAND PAUSE: replace the state (P1.2); clearing `out` serves waiting clients.

    `stamp_ns` is the instant of the command (P1.9); with 0, only a change is recorded.
    """
    q = n.queues.get(name)
    if q is None and bits != 0:
        q = get_queue(n, name)  # P1.3
    if stamp_ns == 0 and (q is None or q.pause == bits):
        return
    if n.records is not None:
        n.records.pause(name, bits | PAUSE_BCAST if is_bcast else bits, stamp_ns)  # P1.5, P1.9
    if q is None:
        return
    q.pause = bits
    if bits & PAUSE_OUT == 0 and q.length > 0 and len(q.waiters) > 0:
        mark_ready(n, q)  # P1.6
    if len(n.peers) > 1:
        n.asks[name] = None
        n.offers[name] = None
