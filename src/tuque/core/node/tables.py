"""The tables of jobs and queues, walked in slices; the node's time (SPEC G8, S4, S5).

Each dict has a list of the same elements without gaps. An element knows its position; when it
leaves, the last one takes its place. A walk goes from the end to the start: elements not met
yet are before it and only move towards the start. So it meets everything that stays throughout
at least once, needs no copy, and its cursor is a number.
"""

from typing import Final

from mypy_extensions import i32, i64

from tuque.core.model.job import (
    ACKED,
    ACTIVE,
    AS_AT_WORK,
    AS_BITS,
    AS_DELAYED,
    AS_TASK,
    WHY_BITS,
    Job,
    job_bytes,
)
from tuque.core.model.stats import (
    TALLY_BYTES,
    Owner,
    Tally,
    count_as,
    tenant_of,
)
from tuque.core.model.work import BRIEF, CUT_DETAIL, OVER_QUOTA, THIN_MIN, Life
from tuque.core.node.node import Node
from tuque.core.node.queue import QUEUE_BYTES, Queue, queue_bytes

BARE_REVIEW: Final = 100  # queues reviewed when waits may make no more
BARE_BYTES: Final = QUEUE_BYTES + TALLY_BYTES


def enter_job(n: Node, job: Job) -> Tally:
    """Put a job into the table; its id must be new there. Returns the tally of its queue."""
    job.place = i32(len(n.job_list))
    n.job_list.append(job)
    n.jobs[job.id] = job
    tally = tally_of(n, job.queue)
    tally.jobs += 1
    owner = tally.owner
    owner.jobs += 1
    owner.bytes += len(job.body)
    return tally


def leave_job(n: Node, job: Job) -> None:
    """Take a job out of the table."""
    del n.jobs[job.id]
    book = n.book
    tally = book.of(job.queue)
    tally.jobs -= 1
    owner = tally.owner
    owner.jobs -= 1
    owner.bytes -= len(job.body)
    book.uncount(job, tally)
    if tally.jobs == 0 and not tally.is_kept:
        drop_tally(n, job.queue)
    last = n.job_list.pop()
    if last is not job:
        n.job_list[job.place] = last
        last.place = job.place
    job.place = -1


def put_body(n: Node, job: Job, body: bytes) -> None:
    """Give a job in the table another body."""
    n.book.of(job.queue).owner.bytes += len(body) - len(job.body)
    n.job_bytes -= job_bytes(job)
    job.body = body
    n.job_bytes += job_bytes(job)


def rehouse(n: Node, job: Job, queue: bytes) -> Job:
    """The job, queued nowhere now, belongs to another queue; returns its new record.

    The old record may still stand in the order list of the old queue: it stays behind as acked, so
    that nobody takes it from there.
    """
    fresh = Job(
        job.id,
        queue,
        job.body,
        job.ctime_ns,
        job.expire_ms,
        job.retry_s,
        job.delay_s,
        i32(job.repl),
    )
    fresh.state = job.state
    fresh.flags = job.flags
    fresh.marks = job.marks
    fresh.why = job.why & (WHY_BITS | AS_TASK)
    fresh.level = job.level
    fresh.nacks = job.nacks
    fresh.deliveries = job.deliveries
    fresh.delivered_count = job.delivered_count
    fresh.qtime_ms = job.qtime_ms
    fresh.first_ms = job.first_ms
    fresh.last_ms = job.last_ms
    fresh.holders = job.holders
    fresh.confirmed = job.confirmed
    n.wheel.cancel(job)
    life = n.life.by_id.get(job.id)
    if life is not None:
        n.life.rehouse(life, queue)
    leave_job(n, job)
    job.state = ACKED
    enter_job(n, fresh)
    n.wheel.arm(fresh, n.now_ms)
    return fresh


def swap_job(n: Node, job: Job, fresh: Job) -> None:
    """The new record of a job takes the place of the old one, in its queue."""
    fresh.place = job.place
    n.job_list[job.place] = fresh
    n.jobs[job.id] = fresh
    job.place = -1


def enter_queue(n: Node, q: Queue) -> None:
    """Put a queue into the table; its name must be new there."""
    q.place = len(n.queue_list)
    n.queue_list.append(q)
    n.queues[q.name] = q
    n.queue_bytes += queue_bytes(q)
    counts = q.tally = tally_of(n, q.name)
    counts.is_kept = True
    counts.owner.queue_bytes += queue_bytes(q)


def bare_size(name: bytes) -> i64:
    """Bytes of a queue of that name without jobs."""
    return BARE_BYTES + 5 * len(name)


def note_bare(n: Node, q: Queue) -> None:
    """[M5] A wait has made the queue (M5.4)."""
    n.bare[q.name] = None
    count_bare(n, q, bare_size(q.name))


def end_bare(n: Node, q: Queue) -> None:
    """It has or had a job, or is gone."""
    del n.bare[q.name]
    count_bare(n, q, -bare_size(q.name))


def count_bare(n: Node, q: Queue, size: i64) -> None:
    """So many bytes more are those of bare queues."""
    n.bare_bytes += size
    q.tally.owner.bare_bytes += size


def review_bare(n: Node) -> None:
    """[M5] Some of the queues that waits made may have had jobs since: they count as others do."""
    for name in list(n.bare)[:BARE_REVIEW]:
        q = n.queues[name]
        if q.pause == 0 and q.policy is None and q.jobs_in == 0:
            del n.bare[name]
            n.bare[name] = None  # it is the last to be reviewed again
        else:
            end_bare(n, q)


def leave_queue(n: Node, q: Queue) -> None:
    """Take a queue out of the table."""
    if q.name in n.bare:
        end_bare(n, q)
    del n.queues[q.name]
    last = n.queue_list.pop()
    if last is not q:
        n.queue_list[q.place] = last
        last.place = q.place
    q.place = -1
    n.queue_bytes -= queue_bytes(q)
    counts = q.tally
    counts.is_kept = False
    counts.owner.queue_bytes -= queue_bytes(q)
    if counts.jobs == 0:
        drop_tally(n, q.name)


def tally_of(n: Node, name: bytes) -> Tally:
    """The counts of that queue, made if absent."""
    if name is n.book.near_name:
        return n.book.near
    tally = n.book.tallies.get(name)
    if tally is None:
        tally = n.book.make(name)
        tally.look_ms = tally.past_ms = n.now_ms
        n.queue_bytes += TALLY_BYTES + len(name)
    return tally


def drop_tally(n: Node, name: bytes) -> None:
    """Neither the queue nor a job of it is left."""
    n.book.drop(name)
    n.queue_bytes -= TALLY_BYTES + len(name)


def check_tallies(n: Node) -> None:
    """Assert that each job counts once, as what it is."""
    counts: dict[bytes, list[int]] = {}
    in_queue: dict[bytes, int] = {}  # bytes of bodies
    bodies: dict[bytes, int] = {}  # the same, by tenant
    for job in n.job_list:
        in_queue[job.queue] = in_queue.get(job.queue, 0) + len(job.body)
        count = counts.get(job.queue)
        if count is None:
            count = counts[job.queue] = [0, 0, 0]
        count[0] += 1
        count[1] += 1 if job.why & AS_DELAYED else 0
        count[2] += 1 if job.why & AS_AT_WORK else 0
        if len(n.peers) == 1 and job.state == ACTIVE and job.why & AS_TASK == 0:
            is_as_counted = job.why & AS_BITS == count_as(job, n.book.id_head)
            assert is_as_counted, "a job that counts as what it is not"
    for name, size in in_queue.items():
        tenant = tenant_of(name)
        bodies[tenant] = bodies.get(tenant, 0) + size
    sums = [0, 0]
    for name, tally in n.book.tallies.items():
        assert tally.is_kept == (name in n.queues), "tally of a queue"
        count = counts.pop(name, [0, 0, 0])
        assert count == [tally.jobs, tally.delayed, tally.at_work], "jobs of a queue"
        assert tally.is_kept or tally.jobs > 0, "tally of nothing"
        sums[0] += tally.delayed
        sums[1] += tally.at_work
    assert len(counts) == 0, "jobs without a tally"
    jobs: i64 = 0
    for owner in owners(n):
        assert owner.bytes == bodies.get(owner.name, 0), "bodies of a tenant"
        jobs += owner.jobs
    assert jobs == len(n.job_list), "jobs of tenants"
    total = n.book.total
    assert sums == [total.delayed, total.at_work], "jobs of the node"


def owners(n: Node) -> list[Owner]:
    """What each tenant has, and what is of none."""
    return [n.book.nobody, *n.book.owners.values()]


def check_table(n: Node) -> None:
    """Assert that dicts and lists have the same elements."""
    assert len(n.job_list) == len(n.jobs), "places of jobs"
    for i, job in enumerate(n.job_list):
        assert i64(job.place) == i, "place of a job"
        assert n.jobs[job.id] is job, "job without its name"
    check_tallies(n)
    assert len(n.queue_list) == len(n.queues), "places of queues"
    total: i64 = 0
    for i, q in enumerate(n.queue_list):
        assert q.place == i, "place of a queue"
        assert n.queues[q.name] is q, "queue without its name"
        total += queue_bytes(q)
    for name in n.book.tallies:
        total += TALLY_BYTES + len(name)
    assert total == n.queue_bytes, "bytes of queues"
    bare: i64 = 0
    for name in n.bare:
        assert name in n.queues, "bare queue that is gone"
        bare += bare_size(name)
    assert bare == n.bare_bytes, "bytes of bare queues"


# ---- What each tenant has, and how little is kept of work beyond its quota (SPEC N11)


def held_by(n: Node, tenant: bytes) -> tuple[i64, i64]:
    """[N11] The jobs of the tenant here, and its bytes (N11.2)."""
    owner = n.book.owners.get(tenant)
    jobs: i64 = 0 if owner is None else owner.jobs
    size: i64 = 0 if owner is None else owner.bytes
    share = n.life.shares.by_name.get(tenant)
    if share is not None:
        jobs += share.staged_jobs
        size += share.staged_bytes + share.kept_bytes + share.life_bytes
    return jobs, size


def record_job(n: Node, job: Job) -> None:
    """Record all of a job, with its work if it has some."""
    if n.records is not None:
        n.records.add(job)
        work = n.life.by_id.get(job.id)
        if work is not None:
            n.records.life(job.id, work)


def headers_bytes(n: Node, id: bytes) -> i64:
    """The bytes of the headers of the job."""
    work = n.life.by_id.get(id)
    return 0 if work is None else len(work.headers)


def brief(n: Node) -> i64:
    """[M2] How long a text about work may be that is kept in any case (M2.8, N11.10)."""
    return BRIEF if n.is_full() else THIN_MIN


def may_grow(n: Node, work: Life, more: i64) -> bool:
    """[N11] Whether so many bytes more may be known of the job: as far as there is memory (M2.8),
    and its tenant may have them (N11.10).
    """
    if n.is_full():
        return False
    most: i64 = n.limits.quota_bytes.get(work.tenant, 0)
    return most == 0 or held_by(n, work.tenant)[1] + more <= most


def fitting(n: Node, id: bytes, reason: bytes, detail: bytes, is_last: bool) -> tuple[bytes, bytes]:
    """[N11] What is kept of the reason and the detail of a failure of the job (M2.8, N11.10)."""
    if n.is_full():
        ends_wait = is_last and id in n.life.watchers
        is_cut = len(detail) > BRIEF and not ends_wait  # M3.4
        return reason[:BRIEF], CUT_DETAIL if is_cut else detail
    work = n.life.by_id.get(id)
    if work is None or len(reason) + len(detail) <= THIN_MIN:
        return reason, detail
    last = work.last
    more: i64 = -(len(last.reason) + len(last.detail)) if last is not None else len(reason)
    if len(detail) > THIN_MIN and not may_grow(n, work, more + len(reason) + len(detail)):
        detail = OVER_QUOTA
    if len(reason) > THIN_MIN and not may_grow(n, work, more + len(reason) + len(detail)):
        reason = reason[:THIN_MIN]
    return reason, detail


def fitting_reason(n: Node, work: Life, reason: bytes) -> bytes:
    """[N11] What is kept of the reason of a CANCEL, or of another end (M2.8, N11.10)."""
    most = brief(n)
    if len(reason) <= most or may_grow(n, work, len(reason)):
        return reason
    return reason[:most]


# ---- The node's time; whether the process stood still (SPEC G8)


def set_time(n: Node, now_ms: i64) -> bool:
    """[G8] Set the time to `now_ms`, never back (G8.1).

    True if the process stood still (G8.4) while this node led tubes: replies not sent yet must be
    dropped (T19.7).
    """
    span_ms = now_ms - n.now_ms
    if span_ms <= 0:
        return False
    stood = has_stood(n, now_ms)
    n.now_ms = now_ms
    if not stood:
        return False
    n.standstills += 1
    n.stood_ms = span_ms
    return n.policy is not None and n.policy.on_standstill(n)


def has_stood(n: Node, now_ms: i64) -> bool:
    """[G8] Whether the process has stood still since the time was last set (G8.4)."""
    return n.others != 0 and now_ms - n.now_ms > n.limits.node_timeout_ms
