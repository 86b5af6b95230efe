"""Timers of leases: they expire, are renewed and forgotten (SPEC Y7, Y8).

Each group has one timer. Nothing here scans all jobs, only those of a batch.
"""

from heapq import heappop, heappush, heapreplace
from typing import Final

from mypy_extensions import i64

from tuque.core.model.job import ACTIVE, DELIVERED, EXPIRED_OUT, LEASED, QUEUED, Job, set_state
from tuque.core.model.timers import PIECE
from tuque.core.node.node import Node
from tuque.core.node.peers import tell_working
from tuque.core.queues.procedures import REQUEUE_LEASE, get_queue, requeue
from tuque.core.records.leases import tell_batch, tell_drop
from tuque.core.tables.leases import (
    Batch,
    Beat,
    Group,
    Returning,
    gone,
    gone_bytes,
    gone_cost,
    is_leased,
    mark_of,
)

FAR: Final = (1 << 62) - 1  # largest int that mypyc stores unboxed
KEEP_TTLS: Final = 10  # TTLs for which an expired batch is kept (Y7.4)
FIRST_BEAT_MS: Final = 500  # as in V4.6
NO_ROOM_MS: Final = 50  # delay before checking full links again
RETURN_MOST: Final = 2 * PIECE  # jobs of ended leases per turn
PATIENT_MS: Final = 5_000  # RETRY above this can wait for it


def renew(n: Node, g: Group) -> None:
    """Renew the lease: it lasts for its TTL from now (Y7.1)."""
    g.used_ms = n.now_ms
    if g.ttl_ms > 0:
        g.until_ms = n.now_ms + g.ttl_ms
        if g.until_ms < g.armed_ms:
            arm(n, g)  # its TTL became shorter


def arm(n: Node, g: Group) -> None:
    """Set the group's timer to its next due instant."""
    at_ms = due_ms(g)
    if at_ms < FAR and (g.armed_ms == 0 or at_ms < g.armed_ms):
        g.armed_ms = at_ms
        heappush(n.leases.timers, (at_ms, g.name))


def due_ms(g: Group) -> i64:
    """When the group is next due, in ms; FAR: never."""
    at_ms: i64 = FAR
    for b in g.batches.values():
        then = b.drop_ms if b.is_expired else g.until_ms
        if then < at_ms:
            at_ms = then
    return at_ms


def lease_tick(n: Node) -> None:
    """[Y7] TIMER of groups: expire leases, forget expired batches; bounded per turn."""
    timers = n.leases.timers
    left = n.limits.timers_per_step
    while left > 0 and len(timers) > 0 and timers[0][0] <= n.now_ms:
        at_ms, name = heappop(timers)
        g = n.leases.groups.get(name)
        if g is None or g.armed_ms != at_ms:
            continue
        g.armed_ms = 0
        left -= 1 + on_group_timer(n, g)
        arm(n, g)
    if len(n.leases.returning) > 0:
        return_some(n)
    beats_tick(n)


def lease_next_ms(n: Node) -> i64:
    """The instant at which `lease_tick` next has work; FAR: never."""
    at_ms: i64 = FAR
    if len(n.leases.returning) > 0:
        return n.now_ms
    if len(n.leases.timers) > 0:
        at_ms = n.leases.timers[0][0]
    if len(n.leases.beats) > 0 and n.leases.beats[0][0] < at_ms:
        at_ms = n.leases.beats[0][0]
    return at_ms


def on_group_timer(n: Node, g: Group) -> i64:
    """Expire at most one live batch; forget those that expired long enough ago.

    Returns the number of jobs expired.
    """
    for seq in list(g.batches):
        b = g.batches[seq]
        if b.is_expired:
            if b.drop_ms <= n.now_ms:
                del g.batches[seq]  # Y7.4
                n.leases.bytes -= b.bytes_used()
                if n.records is not None:
                    tell_drop(n.records, g, seq)
        elif g.until_ms <= n.now_ms:
            expire(n, g, b)
            return b.count
    return 0


def expire(n: Node, g: Group, b: Batch) -> None:
    """[Y7] Expire the batch: its jobs go back, it keeps their ids (Y7.2)."""
    n.leases.expired += 1
    n.leases.bytes -= b.bytes_used()
    jobs = b.jobs
    b.jobs = []
    b.freed = 0
    b.is_expired = True
    b.drop_ms = n.now_ms + KEEP_TTLS * g.ttl_ms
    for job in jobs:
        b.ids.append(job.id)
        b.marks.append(mark_of(job))
        b.ends.append(job.expire_ms)
    n.leases.bytes += b.bytes_used()
    if n.records is not None:
        tell_batch(n.records, g, b, n.now_ms, False)
    if len(jobs) <= PIECE:
        give_back_all(n, jobs)
    else:
        n.leases.bytes += sum(gone_cost(job) for job in jobs)
        n.leases.returning.append(Returning(b, jobs))


def return_some(n: Node) -> None:
    """[Y7] Return more jobs of ended leases to their queues, up to a turn's limit (L2.6)."""
    back = n.leases.returning[0]
    end: i64 = min(back.at + RETURN_MOST, len(back.jobs))
    n.work += end - back.at
    while back.at < end:
        job = back.jobs[back.at]
        back.at += 1
        n.leases.bytes -= gone_cost(job)
        if is_leased(job):
            job.flags &= 0xFF ^ LEASED
            give_back(n, job, REQUEUE_LEASE)
    if back.at == len(back.jobs):
        n.leases.returning.pop(0)


def stop_returning(n: Node, b: Batch) -> None:
    """The batch is leased again: keep its jobs not returned yet, if allowed."""
    for i, back in enumerate(n.leases.returning):
        if back.batch is b:
            for job in back.jobs[back.at :]:
                n.leases.bytes -= gone_cost(job)
                if is_leased(job) and (job.retry_s == 0 or job.expire_ms <= n.now_ms):
                    job.flags &= 0xFF ^ LEASED
                    give_back(n, job, REQUEUE_LEASE)
            n.leases.returning.pop(i)
            return


def end_lease(n: Node, g: Group) -> i64:
    """End all batches of the group and return their jobs (Y1.2, Y5.3). Returns how many.

    The caller records the group, as it knows the group's next state.
    """
    done: i64 = 0
    if g.filling is not None:
        n.leases.bytes -= gone_bytes(g.filling)
        done += give_back_all(n, g.filling.jobs)
        g.filling = None
    for b in list(g.batches.values()):
        n.leases.bytes -= b.bytes_used()
        done += give_back_all(n, b.jobs)
    g.batches = {}
    g.floor_seq = g.last_seq
    return done


def give_back_some(n: Node, g: Group, room: i64) -> tuple[i64, i64]:
    """Release up to `room` jobs of a lease about to end: how many, and how many of them were
    queued again (L2.2)."""
    freed: i64 = 0
    done: i64 = 0
    for b in g.batches.values():
        while b.freed < len(b.jobs) and freed < room:
            job = b.jobs[b.freed]
            b.freed += 1
            if is_leased(job):
                job.flags &= 0xFF ^ LEASED
                freed += 1
                if give_back(n, job, REQUEUE_LEASE):
                    done += 1
    return freed, done


def give_back_all(n: Node, jobs: list[Job]) -> i64:
    """Release the jobs and queue them again; returns how many were queued."""
    done: i64 = 0
    for job in jobs:
        if is_leased(job):
            job.flags &= 0xFF ^ LEASED
            if give_back(n, job, REQUEUE_LEASE):
                done += 1
    return done


def give_back(n: Node, job: Job, why: i64) -> bool:
    """Queue a job whose lease ended; an at-most-once job is not delivered again."""
    if job.retry_s > 0:
        requeue(n, job, why)  # Y7.2
        return True
    n.delivered_amo[job.id] = None  # Y7.3
    if n.records is not None:
        n.records.state(job)
    return False


def reclaim(n: Node, client: i64, g: Group, b: Batch) -> None:
    """[Y7] Lease an expired batch again, with the jobs that no other client got (Y7.6)."""
    stop_returning(n, b)
    n.leases.bytes -= b.bytes_used()
    ids = b.ids
    marks = b.marks
    ends = b.ends
    b.ids = []
    b.marks = []
    b.ends = []
    b.is_expired = False
    b.body_bytes = 0
    for i, id in enumerate(ids):
        job = n.jobs.get(id)
        if (
            job is None
            or (job.state != QUEUED and not is_leased(job))
            or job.delivered_count != marks[i]
            or job.expire_ms <= n.now_ms
        ):
            b.jobs.append(gone(id, why_gone(i64(marks[i]), i64(ends[i]), n.now_ms)))
        else:
            take_again(n, client, job)
            b.jobs.append(job)
            b.body_bytes += len(job.body)
    n.leases.bytes += b.bytes_used()
    renew(n, g)
    arm(n, g)
    begin_beats(n, b.jobs)
    if n.records is not None:
        tell_batch(n.records, g, b, n.now_ms, True)


def why_gone(mark: i64, end_ms: i64, now_ms: i64) -> i64:
    """Why a job left an expired batch, if known (Y3.8)."""
    if mark < 0:
        return -1 - mark
    return EXPIRED_OUT if 0 < end_ms <= now_ms else 0


def take_again(n: Node, client: i64, job: Job) -> None:
    """Take the job, out of order, from its queue if it is there: this is a delivery (V4)."""
    q = get_queue(n, job.queue)
    if job.state == QUEUED:  # else it was not returned yet
        set_state(job, ACTIVE)
        q.left(job)
    job.delivered_count += 1
    job.last_ms = n.now_ms
    job.flags |= DELIVERED | LEASED
    job.qtime_ms = 0
    n.book.hand_out(job, n.now_ms, False)
    n.book.arm(job)
    n.deliveries += 1
    n.redeliveries += 1
    q.jobs_out += 1
    q.atime_ms = n.now_ms
    if n.events is not None:
        n.events.delivered(n.now_ms, job, client)


def begin_beats(n: Node, jobs: list[Job]) -> None:
    """[Y8] Schedule WORKING to the other holders of leased jobs, now or soon, then again (Y8.1)."""
    if len(n.peers) <= 1:
        return
    by_retry: dict[int, list[Job]] = {}
    for job in jobs:
        if job.holders != 1 and job.retry_s > 0 and is_leased(job):
            shared = by_retry.get(i64(job.retry_s))
            if shared is None:
                shared = []
                by_retry[i64(job.retry_s)] = shared
            shared.append(job)
    leases = n.leases
    for retry_s, shared in by_retry.items():
        leases.beat_number += 1
        leases.beating[leases.beat_number] = Beat(shared, retry_s * 500)
        at_ms = n.now_ms + FIRST_BEAT_MS if retry_s * 1000 > PATIENT_MS else n.now_ms
        heappush(leases.beats, (at_ms, leases.beat_number))


def has_room(n: Node) -> bool:
    """Whether all links have room."""
    return all(peer.has_room or not peer.is_linked for peer in n.peers)


def beats_tick(n: Node) -> None:
    """[Y8] Send WORKING to the other holders of leased jobs; bounded per turn."""
    leases = n.leases
    left = n.limits.timers_per_step
    while len(leases.beats) > 0 and leases.beats[0][0] <= n.now_ms and left > 0:
        _, number = leases.beats[0]
        if not has_room(n):
            heapreplace(leases.beats, (n.now_ms + NO_ROOM_MS, number))  # B2.4
            return
        beat = leases.beating[number]
        while beat.next < len(beat.jobs) and left > 0:
            job = beat.jobs[beat.next]
            beat.next += 1
            left -= 1
            if is_leased(job):
                tell_working(n, job, i64(job.retry_s) * 1000)
        if beat.next < len(beat.jobs):
            return
        heappop(leases.beats)
        beat.next = 0
        beat.jobs = [job for job in beat.jobs if is_leased(job)]
        if len(beat.jobs) == 0:
            del leases.beating[number]
        else:
            heappush(leases.beats, (n.now_ms + beat.step_ms, number))
