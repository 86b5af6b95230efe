"""Procedures that the rules share: lookup, register, unregister, enqueue, timers (SPEC G)."""

from heapq import heappop, heappush
from typing import Final

from mypy_extensions import i64

from tuque.core.model import stats
from tuque.core.model.errors import (
    BOTH_IN_WAY,
    LETTERS_IN_WAY,
    NOREPL_REMOVED,
    OUTCOMES_IN_WAY,
    Refusal,
)
from tuque.core.model.job import (
    ACKED,
    ACTIVE,
    ANNOUNCE_QUEUED,
    BODYLESS,
    DELIVERED,
    ENDED,
    EXPIRED_OUT,
    EXTERNAL,
    IN_TRANSIT,
    JOB_BYTES,
    LEASED,
    ONCE_QUEUED,
    QUEUED,
    QUEUED_THERE,
    WAIT_REPL,
    Job,
    job_bytes,
    set_state,
)
from tuque.core.model.stats import (
    BY_COMMAND,
    BY_LEASE,
    BY_NACK,
    BY_RETRY,
    set_why,
    why_of,
)
from tuque.core.model.task import TASK_BYTES, Task
from tuque.core.msgs.bus import (
    COUNT_DELIVERY,
    COUNT_NACK,
    HAS_QUEUED,
    WAS_ASKED,
)
from tuque.core.node.node import TIMED_OUT, Added, Adding, Node, Wake
from tuque.core.node.peers import (
    jitter_ms,
    set_due,
    take_back,
    tell_queued,
)
from tuque.core.node.queue import PAUSE_OUT, Policy, Queue
from tuque.core.node.tables import (
    check_table,
    enter_job,
    enter_queue,
    leave_job,
    leave_queue,
)
from tuque.core.queues.dedupe import on_add_over
from tuque.core.queues.ends import check_lives, drop_claim, end_life
from tuque.core.records.events import REQUEUE_COMMAND, REQUEUE_OF_LEASE, REQUEUE_TIMEOUT
from tuque.core.tables.leases import GONE_BYTES

# why a job is queued again, or after a delay
REQUEUE_RETRY: Final = 1
REQUEUE_NACK: Final = 2
REQUEUE_ENQUEUE: Final = 3
REQUEUE_DELAY: Final = 4
REQUEUE_LEASE: Final = 5
REQUEUE_RELEASE: Final = 6

CAUSES: Final = [-1, BY_RETRY, BY_NACK, BY_COMMAND, -1, BY_LEASE, -1]  # as counted

FAR: Final = (1 << 62) - 1  # largest int that mypyc stores unboxed
IDLE_MOST: Final = 1_000  # queues that are checked in a turn
THIN_AT_ONCE: Final = 100  # results and details that go before one job is refused
CUSTODY_KEEP_MS: Final = 600_000  # margin for the clocks of two nodes at a job's expiry


def get_queue(n: Node, name: bytes) -> Queue:
    """The queue of that name, created if absent."""
    q = n.queues.get(name)
    if q is None:
        n.queue_serial += 1
        q = Queue(name, n.queue_serial, n.now_ms)
        enter_queue(n, q)
        if len(n.demands) > 0:
            q.demand = n.demands.get(name)
        check_idle_at(n, q, n.now_ms + idle_limit_ms(n))
    return q


def register(n: Node, job: Job, cause: i64) -> None:
    """[G5] PROCEDURE register: enter the job into the table; its id must be new here.

    It starts with one holder, this node (G5.2). The caller records it and writes the event
    `added`: it knows the initial state (G5.3).
    """
    assert job.id not in n.jobs, "job registered twice"
    tally = enter_job(n, job)
    n.job_bytes += job_bytes(job)
    n.ledger.enter(cause)  # G5.1, G9.1
    if cause == stats.CREATED:
        tally.added += 1
        n.book.total.added += 1
    if len(n.denied.entries) > 0 and cause != stats.CREATED:
        take_back(n, job)


def unregister(n: Node, job: Job, cause: i64) -> None:
    """[G2] PROCEDURE unregister: remove the job from queue, timers and table.

    The caller records it and writes the event.
    """
    if isinstance(job, Task):
        policy_of(n).forget(n, job)
        drop_task(n, job, cause)
        return
    if n.has_lives:
        end_life(n, job, cause)
        n.life.hasten(job.id, n.now_ms)  # W7.3
    leave_node(n, job, cause)


def leave_node(n: Node, job: Job, cause: i64) -> None:
    """[G2] As `unregister`, of a job that is no task, and whose life has ended."""
    if job.state == QUEUED:
        job.state = ACKED
        n.queues[job.queue].left(job)  # G2.2
    elif job.state == WAIT_REPL:
        job.state = ACKED
        adding = n.adding.pop(job.id, None)
        if adding is not None:
            tell_producer(n, adding, Refusal(NOREPL_REMOVED))  # G2.4
    elif job.state == ACKED:
        n.acked.pop(job.id, None)
        if job.flags & BODYLESS:
            forget_stray(n, job.id)
    else:
        job.state = ACKED
    n.wheel.cancel(job)  # G2.3
    leave_job(n, job)
    if len(n.losses.short) > 0:
        n.losses.short.pop(job.id, None)
    n.job_bytes -= job_bytes(job)
    if job.flags & LEASED:
        job.body = b""  # its batch keeps only the id (Y6.1)
        if why_of(job) == 0:
            set_why(job, EXPIRED_OUT if cause == stats.EXPIRED else ENDED)  # Y3.8
        n.leases.bytes += GONE_BYTES
    if job.retry_s == 0:
        n.delivered_amo.pop(job.id, None)
        if job.holders != 1 or len(n.custody) > 0:
            end_custody(n, job, cause)
    n.ledger.leave(cause)  # G2.1


def told_job(n: Node, id: bytes) -> Job | None:
    """Look up a job that another node names; tasks are never shared (T1.4)."""
    job = n.jobs.get(id)
    return None if isinstance(job, Task) else job


def is_task(n: Node, id: bytes) -> bool:
    """Whether the id is a task here."""
    return isinstance(n.jobs.get(id), Task)


def drop_task(n: Node, task: Task, cause: i64) -> None:
    """[G2] Remove a task, already out of its tube, from timers and table."""
    n.wheel.cancel(task)  # G2.3
    if n.has_lives:
        end_life(n, task, cause)
    leave_job(n, task)
    n.job_bytes -= job_bytes(task)
    n.ledger.leave(cause)  # G2.1


def policy_of(n: Node) -> Policy:
    """The policy of tasks; exists while there are tasks."""
    policy = n.policy
    assert policy is not None
    return policy


def forget_stray(n: Node, id: bytes) -> None:
    """Drop the record of an orphan ack: its client may make another one (A3.4)."""
    drop_claim(n, id)
    client = n.strays.pop(id)
    count = n.stray_counts.pop(client) - 1
    if count > 0:
        n.stray_counts[client] = count


def end_custody(n: Node, job: Job, cause: i64) -> None:
    """The at-most-once job is removed while the node it came from may resend it (F2.3).

    Leaves a tombstone for that.
    """
    n.custody.pop(job.id, None)
    if job.holders == 1:
        return
    if job.flags & (IN_TRANSIT | EXTERNAL) == 0 and cause != stats.GC_ACKED:
        n.tombs.keep_custody(job.id, job.expire_ms + CUSTODY_KEEP_MS)


def tell_producer(n: Node, adding: Adding, error: Refusal | None) -> None:
    """Reply to the producer once; no-op if none waits."""
    if adding.publishing is not None or len(n.keys.pending) + len(n.keys.followers) > 0:
        on_add_over(n, adding, error)
    if error is None:
        n.book.reply(adding.needed, n.now_ms - adding.job.ctime_ns // 1_000_000)
    if adding.client >= 0:
        n.added.append(Added(adding.client, adding.serial, adding.job.id, error))
        adding.client = -1


def producer_done(n: Node, job: Job) -> None:
    """[A1.6] The job was acked before it had all copies: reply with its id."""
    adding = n.adding.pop(job.id, None)
    if adding is not None:
        tell_producer(n, adding, None)


def remove(n: Node, job: Job, cause: i64) -> None:
    """Unregister for a cause other than an ack; record it and write the event."""
    is_told = tells_end(n, job, cause)
    if is_told and cause == stats.EXPIRED:
        n.book.expire(job)
    returned = n.returned(job.id)
    unregister(n, job, cause)
    if n.records is not None:
        n.records.remove(job.id, cause)  # G2.5
    if n.events is not None and is_told:
        if cause == stats.EXPIRED:
            n.events.expired(n.now_ms, job, returned)  # G2.6
        else:
            n.events.deleted(n.now_ms, job, cause, returned)


def tells_end(n: Node, job: Job, cause: i64) -> bool:
    """Whether this node writes the event of the job's end: one per job, not per copy (E1.5)."""
    if job.state == ACKED:
        return False
    if job.holders == 1 or job.state == QUEUED or cause != stats.EXPIRED:
        return True
    if job.state == ACTIVE and job.marks & QUEUED_THERE:
        return False  # E1.6
    if job.delivered_count > 0:
        return True
    return job.flags & DELIVERED == 0 and job.id[2:10] == n.node_id[:8]


def may_enqueue(job: Job) -> bool:
    """Whether the job may be queued (again): an at-most-once job is not, once delivered (G3.1).

    While a lease holds the job, only the lease may put it back (Y6.2).
    """
    if job.state != ACTIVE or job.flags & LEASED:
        return False
    return job.retry_s > 0 or job.flags & (DELIVERED | IN_TRANSIT) == 0


def enqueue(n: Node, job: Job) -> None:
    """[G3] PROCEDURE enqueue: put an active job into its queue and serve those who wait.

    `requeue` counts and records it; a first enqueue is recorded by `add`.
    """
    set_state(job, QUEUED)  # G3.3
    job.flags |= ONCE_QUEUED
    job.marks = 0
    job.qtime_ms = n.now_ms + i64(job.retry_s) * 1000 if job.retry_s > 0 else 0
    if job.holders != 1 and job.retry_s > 0:
        job.qtime_ms += jitter_ms(n)  # G3.4
    q = get_queue(n, job.queue)
    q.push(job)  # G3.2
    q.jobs_in += 1  # G3.6
    q.atime_ms = n.now_ms
    n.wheel.arm(job, n.now_ms)
    if len(q.waiters) > 0:
        mark_ready(n, q)
    if q.demand is not None and len(q.demand.wishes) > 0:
        n.offers[q.name] = None  # other nodes want it


def enqueue_open(n: Node, job: Job) -> bool:
    """[W16] As `enqueue`, but a job that is cancelled enters no queue: it ends after RETRY (W16.8).
    Whether it is queued.
    """
    work = n.life.by_id.get(job.id)
    if work is None or not work.is_cancelled or work.is_dead or job.retry_s == 0:
        enqueue(n, job)
        return True
    set_due(n, job, n.now_ms + i64(job.retry_s) * 1000)
    return False


def requeue(n: Node, job: Job, why: i64) -> None:
    """Enqueue (G3) a job that was out, or whose delay has passed; count and record it."""
    how: i64 = HAS_QUEUED if job.flags & (DELIVERED | ANNOUNCE_QUEUED) else 0
    job.flags &= 0xFF ^ ANNOUNCE_QUEUED
    if why == REQUEUE_NACK:
        job.nacks += 1
        n.nacks += 1
        how = COUNT_NACK | HAS_QUEUED
    elif job.flags & ONCE_QUEUED:
        job.deliveries += 1  # G3.5
        how = COUNT_DELIVERY | HAS_QUEUED
    if why in (REQUEUE_ENQUEUE, REQUEUE_RELEASE) and how != 0:
        how |= WAS_ASKED
    enqueue(n, job)
    n.requeues += 1
    if CAUSES[why] >= 0:
        n.book.requeue(job, CAUSES[why])
    if job.holders != 1 and how != 0:
        tell_queued(n, job, how)
    if n.records is not None:
        n.records.state(job)  # G3.7
    if n.events is not None:
        if why == REQUEUE_NACK:
            n.events.nacked(n.now_ms, job)
        elif CAUSES[why] >= 0:
            cause = REQUEUE_TIMEOUT if why == REQUEUE_RETRY else REQUEUE_COMMAND
            if why == REQUEUE_LEASE:
                cause = REQUEUE_OF_LEASE
            n.events.requeued(n.now_ms, job, cause)  # Q2.3, Q5.2, Y7.2


def dequeue(n: Node, job: Job) -> None:
    """[G4] PROCEDURE dequeue: take a queued job (G4.1) out of its queue and make it active."""
    set_state(job, ACTIVE)  # G4.2
    n.queues[job.queue].left(job)
    set_due(n, job, retry_due_ms(n, job) if job.retry_s > 0 else 0)


def retry_due_ms(n: Node, job: Job) -> i64:
    """Now + retry + J."""
    return n.now_ms + i64(job.retry_s) * 1000 + jitter_ms(n)


def mark_ready(n: Node, q: Queue) -> None:
    """Mark the queue: it may have a job for waiting clients."""
    if not q.is_ready and q.pause & PAUSE_OUT == 0:
        q.is_ready = True
        n.ready.append(q)


def on_wait_timeout(n: Node, client: i64, until_ms: i64) -> None:
    """[V5] TIMER of a waiting client: it gets nothing."""
    waiter = n.waiters.get(client)
    if waiter is not None and waiter.until_ms == until_ms:
        stop_waiting(n, client)
        n.wakes.append(Wake(client, TIMED_OUT, [], 0))  # V5.1


def stop_waiting(n: Node, client: i64) -> None:
    """[V6] End the client's wait (V6.1, V3.3); no-op if it does not wait."""
    waiter = n.waiters.pop(client, None)
    if waiter is None:
        return
    n.wait_bytes -= waiter.bytes_used
    for name in waiter.queues:
        q = n.queues.get(name)
        if q is not None:
            q.waiters.pop(client, None)
            if q.demand is not None and len(q.waiters) == 0:
                n.asks[name] = None  # the request may no longer be needed


def check_idle_at(n: Node, q: Queue, at_ms: i64) -> None:
    """[M4] Look then whether the queue is idle; what was set before does not count any more."""
    q.check_ms = at_ms
    heappush(n.idle_checks, (at_ms, q.name))


def idle_tick(n: Node) -> None:
    """[M4] TIMER of idle queues: some of those that are due, then of those to be set anew."""
    left: i64 = IDLE_MOST
    while left > 0 and len(n.idle_checks) > 0 and n.idle_checks[0][0] <= n.now_ms:
        at_ms, name = heappop(n.idle_checks)
        q = n.queues.get(name)
        if q is not None and q.check_ms == at_ms:
            on_idle_check(n, q)
        left -= 1
    soon_ms = n.now_ms + idle_limit_ms(n)
    while left > 0 and n.idle_left > 0:
        n.idle_left -= 1
        left -= 1
        if n.idle_left < len(n.queue_list):
            q = n.queue_list[n.idle_left]
            if q.check_ms > soon_ms:
                check_idle_at(n, q, soon_ms)


def on_idle_check(n: Node, q: Queue) -> None:
    """[M4] Drop the queue after the idle time, or look again later."""
    if q.policy is not None:
        return  # tubes stay (T2.4)
    limit_ms = idle_limit_ms(n)
    is_idle = q.length == 0 and len(q.waiters) == 0 and q.pause == 0
    if is_idle and q.atime_ms + limit_ms <= n.now_ms:
        leave_queue(n, q)
        return
    check_idle_at(n, q, q.atime_ms + limit_ms if is_idle else n.now_ms + limit_ms)


def on_memory_level(n: Node) -> None:
    """[M4] The memory level changed: all queues are checked sooner, some in each turn."""
    level = idle_level(n)
    if level != n.idle_level:
        n.idle_level = level
        n.idle_left = len(n.queue_list)


def idle_level(n: Node) -> i64:
    """[M4] How soon queues are idle (M4.1)."""
    return 2 if 2 * n.bare_bytes > n.limits.bare_bytes else memory_level(n)


def idle_limit_ms(n: Node) -> i64:
    """Idle time of a queue in ms: shorter if memory is short (M4.1)."""
    level = idle_level(n)
    limit_ms = n.limits.queue_idle_ms
    if level == 1 and limit_ms > 10_000:
        return 10_000
    if level >= 2 and limit_ms > 2_000:
        return 2_000
    return limit_ms


def memory_level(n: Node) -> i64:
    """[M2] 0 below 75 % of the limit, 1 above, 2 above 95 %, 3 above all of it."""
    limit = n.limits.memory_bytes
    if limit == 0 or limit == n.roomy_limit:
        return 0
    used = n.counted_bytes()
    if used * 4 <= limit * 3:
        return 0
    if used * 20 <= limit * 19:
        return 1
    return 2 if used <= limit else 3


def is_short(n: Node) -> bool:
    """[M2] Whether the node takes no jobs now: what may go is dropped first (M3.5)."""
    left = THIN_AT_ONCE
    while memory_level(n) > 0:
        if left == 0 or not thin(n):
            return True
        left -= 1
    return False


def thin(n: Node) -> bool:
    """[M3] Drop the oldest result, or the oldest letter's details; False: nothing was dropped.

    Below 95 % only if all of them together would let the node take jobs again (M3.5).
    """
    lives = n.life
    if lives.fat_bytes == 0 or not n.limits.may_evict:
        return False
    if memory_level(n) == 1 and not is_room_without(n, lives.fat_bytes):
        return False
    return lives.thin_result() or lives.thin_letter()


def is_room_without(n: Node, some_bytes: i64) -> bool:
    """[M2] Whether the node would be at level 0 if it did not use these bytes."""
    return (n.counted_bytes() - some_bytes) * 4 <= n.limits.memory_bytes * 3


def letters_in_way(n: Node) -> i64:
    """[M2] Bytes of dead letters, if the node would take jobs without them; else 0 (M2.6)."""
    used = n.life.dead_bytes + n.life.letter_count() * JOB_BYTES
    is_full = n.limits.memory_bytes > 0 and memory_level(n) > 0
    return used if is_full and used > 0 and is_room_without(n, used) else 0


def megabytes(some_bytes: i64) -> int:
    """Bytes as MB, rounded up, for the texts of errors and the log."""
    return int((some_bytes + (1 << 20) - 1) >> 20)


def outcomes_in_way(n: Node) -> i64:
    """[M2] Bytes of kept outcomes, if the node would take jobs without them; else 0 (M2.6)."""
    used = n.life.kept_bytes
    is_full = n.limits.memory_bytes > 0 and memory_level(n) > 0
    return used if is_full and used > 0 and is_room_without(n, used) else 0


def in_way(n: Node) -> tuple[int, int]:
    """[M2] Bytes of dead letters and of kept outcomes, as far as these are why the node takes no
    jobs: either alone, or both together (M2.6).
    """
    letters, outcomes = letters_in_way(n), outcomes_in_way(n)
    if letters == 0 and outcomes == 0 and n.limits.memory_bytes > 0 and memory_level(n) > 0:
        buried = n.life.dead_bytes + n.life.letter_count() * JOB_BYTES
        kept = n.life.kept_bytes
        if buried > 0 and kept > 0 and is_room_without(n, buried + kept):
            return int(buried), int(kept)
    return int(letters), int(outcomes)


def in_way_text(n: Node) -> bytes:
    """[M2] What alone is in the way of new jobs, as the end of an error (M2.6); b"": nothing is."""
    letters, outcomes = in_way(n)
    if letters > 0 and outcomes > 0:
        return BOTH_IN_WAY % (megabytes(letters), megabytes(outcomes))
    if letters > 0:
        return LETTERS_IN_WAY % megabytes(letters)
    return OUTCOMES_IN_WAY % megabytes(outcomes) if outcomes > 0 else b""


def check(n: Node) -> None:
    """Assert that tables, queues, timers and ledger agree (for tests and `DEBUG CHECK`)."""
    check_table(n)
    check_lives(n)
    queued: dict[bytes, int] = {}
    total: i64 = 0
    acked: i64 = 0
    leased: i64 = 0
    for id, job in n.jobs.items():
        assert job.id == id
        assert job.slot >= 0, "job without a timer"
        total += job_bytes(job)
        if isinstance(job, Task):
            total += TASK_BYTES
        if job.state == ACKED:
            acked += 1
            assert id in n.acked, "acked job without its place"
            assert len(job.body) == 0, "body of an acked job"
            assert (job.flags & BODYLESS != 0) == (id in n.strays), "ack without a job"
        if job.flags & LEASED and job.state == ACTIVE:
            leased += 1
        if job.state == QUEUED:
            assert job.flags & LEASED == 0, "queued and leased"
            queued[job.queue] = queued.get(job.queue, 0) + 1
    for name, q in n.queues.items():
        if q.policy is None or q.policy.is_counted(q):
            assert q.length == queued.get(name, 0), "queue length"
        assert len(q.peek(q.length + 1)) == q.length, "queue order list"
        assert q.jobs.is_ordered(), "queue order"
    assert acked == len(n.acked), "acked jobs"
    assert leased == n.leases.check(), "jobs of batches"
    n.staging.check()
    if n.policy is not None:
        n.policy.check(n)
    assert len(n.strays) == sum(n.stray_counts.values()), "acks without a job"
    assert total == n.job_bytes, "bytes of jobs"
    assert n.wheel.count == len(n.jobs), "timers"
    assert n.ledger.balance(len(n.jobs)) == 0, "ledger"
