"""What time does to leases: they expire, are taken up again, are forgotten (SPEC Y7, Y8).

A group has one timer. Nothing here walks over all jobs, only over those of a batch.
"""

from heapq import heappop, heappush, heapreplace
from typing import Final

from mypy_extensions import i64

from tuque.core.jobs.transitions import REQUEUE_LEASE, get_queue, requeue
from tuque.core.model.job import ACTIVE, DELIVERED, EXPIRED_OUT, LEASED, QUEUED, Job, set_state
from tuque.core.model.work import PIECE
from tuque.core.node.announce import tell_working
from tuque.core.node.node import Node
from tuque.core.outbox.lease_records import tell_batch, tell_drop
from tuque.core.state.lease_groups import (
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

FAR: Final = (1 << 62) - 1  # the most that compiled code keeps without an object
KEEP_TTLS: Final = 10  # an expired batch is kept for so many TTLs (Y7.4)
FIRST_BEAT_MS: Final = 500  # as V4.6
NO_ROOM_MS: Final = 50  # until links that are full are looked at again
RETURN_MOST: Final = 2 * PIECE  # jobs of leases that are over, in one turn
PATIENT_MS: Final = 5_000  # a retry time above this can wait for it


def renew(n: Node, g: Group) -> None:
    """The lease lives for its TTL from now on (Y7.1)."""
    g.used_ms = n.now_ms
    if g.ttl_ms > 0:
        g.until_ms = n.now_ms + g.ttl_ms
        if g.until_ms < g.armed_ms:
            arm(n, g)  # its TTL is shorter now


def arm(n: Node, g: Group) -> None:
    """See to it that the timer looks at the group when something is due."""
    at_ms = due_ms(g)
    if at_ms < FAR and (g.armed_ms == 0 or at_ms < g.armed_ms):
        g.armed_ms = at_ms
        heappush(n.leases.timers, (at_ms, g.name))


def due_ms(g: Group) -> i64:
    """When something of the group is due; FAR when nothing is."""
    at_ms: i64 = FAR
    for b in g.batches.values():
        then = b.drop_ms if b.is_expired else g.until_ms
        if then < at_ms:
            at_ms = then
    return at_ms


def lease_tick(n: Node) -> None:
    """[Y7] TIMER of groups: leases end, expired batches are forgotten; some at a time."""
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
    """When `lease_tick` has something to do; FAR when never."""
    at_ms: i64 = FAR
    if len(n.leases.returning) > 0:
        return n.now_ms
    if len(n.leases.timers) > 0:
        at_ms = n.leases.timers[0][0]
    if len(n.leases.beats) > 0 and n.leases.beats[0][0] < at_ms:
        at_ms = n.leases.beats[0][0]
    return at_ms


def on_group_timer(n: Node, g: Group) -> i64:
    """One live batch expires at a time, those that were expired long enough are forgotten.

    Returns how many jobs that was about.
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
    """[Y7] The lease of the batch is over: its jobs go back, their ids stay (Y7.2)."""
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
    """[Y7] The next jobs of leases that are over go back, as many as a turn has room for (L2.6)."""
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
    """The batch is leased again: it keeps the jobs that are not back yet, if it may."""
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
    """All batches of the group are over: their jobs go back (Y1.2, Y5.3). Returns how many.

    The group's record is the caller's, who knows what the group is from now on.
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
    """Of a lease that is about to end, let up to `room` jobs go; how many, and how many of them
    are queued again (L2.2)."""
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
    """Take the lease off the jobs and queue them again; returns how many."""
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
    """[Y7] An expired batch is read again: it gets its jobs that no other client got (Y7.6)."""
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
    """How a job of an expired batch left it, as far as is known (Y3.8)."""
    if mark < 0:
        return -1 - mark
    return EXPIRED_OUT if 0 < end_ms <= now_ms else 0


def take_again(n: Node, client: i64, job: Job) -> None:
    """Out of its queue, out of turn, if it is there: a delivery like any other (V4)."""
    q = get_queue(n, job.queue)
    if job.state == QUEUED:  # else it was not back yet
        set_state(job, ACTIVE)
        q.left()
    job.delivered_count += 1
    job.last_ms = n.now_ms
    job.flags |= DELIVERED | LEASED
    job.qtime_ms = 0
    n.deliveries += 1
    n.redeliveries += 1
    q.jobs_out += 1
    q.atime_ms = n.now_ms
    if n.events is not None:
        n.events.delivered(n.now_ms, job, client)


def begin_beats(n: Node, jobs: list[Job]) -> None:
    """[Y8] The other holders of leased jobs get WORKING, now or soon, and then again (Y8.1)."""
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
    """Whether the links take more."""
    return all(peer.has_room or not peer.is_linked for peer in n.peers)


def beats_tick(n: Node) -> None:
    """[Y8] Send WORKING to the other holders of leased jobs, some at a time."""
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
