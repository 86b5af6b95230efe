"""STAGE: writes that stay invisible until published, their timers and copies (SPEC Z1, Z4.9).

core/staged/publish.py publishes them.
"""

from heapq import heapify, heappop, heappush
from typing import Final

from mypy_extensions import i64

from tuque.core.copies.replicate import copy_of
from tuque.core.model.job import ACKED, Job
from tuque.core.msgs.records import AppRow, StageDrop
from tuque.core.node.node import Node
from tuque.core.node.peers import say, slots_of
from tuque.core.queues.dedupe import followers_tick, make_sure, on_copies
from tuque.core.records.staged import (
    record_key,
    tell_staged,
)
from tuque.core.tables.staged import (
    APP_BYTES,
    APP_KEEP_MS,
    Attempt,
    Staged,
    named_bytes,
    staged_bytes,
)

ASK_MS: Final = 1_000
FAR: Final = (1 << 62) - 1  # largest int that mypyc stores unboxed

NAMED_MS: Final = 1_000  # delay before checking an attempt that is being published again


# ---- Jobs with a key that waited for copies when the node stopped (SPEC Z4.9)
#
# The journal has them with their key, and nobody knows how many copies they have. When their ADDJOB
# is said again, the holders are asked. core/repair makes what is missing.


def ask_copies(n: Node, id: bytes) -> None:
    """[Z4] A producer waits for the job: ask its holders for their copies."""
    keys = n.keys
    if id not in keys.unsure or id in keys.asking:
        return
    keys.unsure[id] = 1
    keys.asking[id] = None
    ask_holders(n, n.jobs[id])
    if keys.ask_ms == FAR:
        keys.ask_ms = n.now_ms + ASK_MS


def ask_again(n: Node) -> None:
    """[Z4] Once a second while producers wait: jobs may have ended, and nodes come back."""
    keys = n.keys
    for id in list(keys.asking):
        job = n.jobs.get(id)
        if id not in keys.unsure or id not in keys.followers:
            del keys.asking[id]
        elif job is None or job.state == ACKED:
            del keys.asking[id]
            make_sure(n, id)
        else:
            ask_holders(n, job)
    keys.ask_ms = n.now_ms + ASK_MS if len(keys.asking) > 0 else FAR


def ask_holders(n: Node, job: Job) -> None:
    """Send the job to its holders again; each that has it, or stores it now, says so (R2.3)."""
    confirmed: i64 = n.keys.unsure[job.id]
    for slot in slots_of(job.holders & ~confirmed & n.reachable & ~1):
        if n.peers[slot].has_room:
            say(n, slot, copy_of(n, slot, job, 0))


# ---- Staged jobs and their timers (SPEC Z1)


def on_stage(n: Node, txn: bytes, name: bytes, ttl_ms: i64, job: Staged) -> i64:
    """[Z1] ON COMMAND STAGE, accepted: returns the number of jobs in the attempt (Z1.3)."""
    a = n.staging.attempt(txn, name)
    if a is None:
        a = begin_attempt(n, txn, name)
    a.until_ms = n.now_ms + ttl_ms  # Z1.4
    if len(a.jobs) == 0:
        watch(n, a)
    position: i64 = len(a.jobs)
    add_staged(n, a, job)
    if n.records is not None:
        tell_staged(n.records, a, position, job)
    return position + 1


def begin_attempt(n: Node, txn: bytes, name: bytes) -> Attempt:
    """A new, empty attempt."""
    a = Attempt(txn, name)
    attempts = n.staging.txns.get(txn)
    if attempts is None:
        attempts = {}
        n.staging.txns[txn] = attempts
    attempts[name] = a
    n.staging.bytes += a.bytes
    n.staging.attempt_count += 1
    share(n, txn, 0, a.bytes)
    return a


def add_staged(n: Node, a: Attempt, job: Staged) -> None:
    """Add a job to the attempt; jobs of a queue share one name object."""
    size = staged_bytes(job)
    is_same = False
    if len(a.jobs) > 0:
        last = a.jobs[len(a.jobs) - 1]
        is_same = last.queue == job.queue
        if is_same:
            job.queue = last.queue
    if not is_same and job.queue not in a.queues:
        a.queues[job.queue] = None
        name_queue(n, job.queue)
    a.jobs.append(job)
    a.bytes += size
    n.staging.bytes += size
    n.staging.count += 1
    share(n, a.txn, 1, size)


def share(n: Node, name: bytes, jobs: i64, size: i64) -> None:
    """So many jobs of so many bytes more are staged by the tenant of the transaction or queue."""
    n.life.shares.stage(name, jobs, size)


def name_queue(n: Node, queue: bytes) -> None:
    """[Z5] One more attempt has jobs for the queue; it counts once (Z5.1)."""
    staging = n.staging
    used = staging.queues.get(queue, 0)
    staging.queues[queue] = used + 1
    if used == 0:
        staging.bytes += named_bytes(queue)
        share(n, queue, 0, named_bytes(queue))


def leave_queue(n: Node, queue: bytes) -> None:
    """An attempt with jobs for the queue has gone."""
    staging = n.staging
    used = staging.queues.pop(queue)
    if used > 1:
        staging.queues[queue] = used - 1
        return
    staging.bytes -= named_bytes(queue)
    share(n, queue, 0, -named_bytes(queue))


def watch(n: Node, a: Attempt) -> None:
    """Check the attempt when it may have expired."""
    n.staging.serial += 1
    heappush(n.staging.ends, (a.until_ms, n.staging.serial, a))


def drop_attempt(n: Node, a: Attempt) -> None:
    """Drop the attempt; the caller records it. Its memory is freed in slices."""
    staging = n.staging
    attempts = staging.txns[a.txn]
    del attempts[a.name]
    if len(attempts) == 0:
        del staging.txns[a.txn]
    a.is_gone = True
    for queue in a.queues:
        leave_queue(n, queue)
    a.queues = {}
    staging.bytes -= a.bytes
    staging.count -= len(a.jobs)
    staging.attempt_count -= 1
    share(n, a.txn, -i64(len(a.jobs)), -a.bytes)
    if len(a.jobs) > 0:
        staging.dropping.append(a.jobs)
        a.jobs = []
    if len(staging.ends) > 1000 + 2 * staging.attempt_count:
        ends: list[tuple[int, int, Attempt]] = []
        for end in staging.ends:
            if not end[2].is_gone:
                ends.append(end)
        heapify(ends)
        staging.ends = ends


def drop_txn(n: Node, txn: bytes) -> i64:
    """Drop all that is staged in the transaction; returns the number of jobs."""
    attempts = n.staging.txns.get(txn)
    if attempts is None:
        return 0
    dropped: i64 = 0
    for a in list(attempts.values()):
        dropped += len(a.jobs)
        drop_attempt(n, a)
    if n.records is not None:
        n.records.put(StageDrop(txn, b""))
    n.staging.jobs_dropped += dropped
    return dropped


def staging_tick(n: Node) -> None:
    """[Z1, Z2, Z4] Drop expired attempts and keys, bounded per turn."""
    staging = n.staging
    now_ms = n.now_ms
    left = n.limits.timers_per_step
    while left > 0 and len(staging.ends) > 0 and staging.ends[0][0] <= now_ms:
        left -= 1
        _, _, a = heappop(staging.ends)
        if a.is_gone:
            continue
        if a.is_named and a.until_ms <= now_ms:
            a.until_ms = now_ms + NAMED_MS  # Z2.11
        if a.until_ms > now_ms:
            watch(n, a)
            continue
        staging.jobs_dropped += len(a.jobs)
        if n.records is not None:
            n.records.put(StageDrop(a.txn, a.name))
        drop_attempt(n, a)  # Z1.4
    if len(staging.dropping) > 0:
        free_some(n)
    n.keys.tick(now_ms, n.limits.timers_per_step)
    followers_tick(n)
    if n.keys.ask_ms <= now_ms:
        ask_again(n)


def free_some(n: Node) -> None:
    """Free some memory of jobs that were staged."""
    jobs = n.staging.dropping[len(n.staging.dropping) - 1]
    most: i64 = n.limits.timers_per_step
    if len(jobs) > most:
        del jobs[len(jobs) - most :]
    else:
        n.staging.dropping.pop()


def staging_next_ms(n: Node) -> i64:
    """The instant at which `staging_tick` next has work; FAR: never."""
    if len(n.staging.dropping) > 0:
        return n.now_ms
    at_ms = n.keys.next_ms()
    if len(n.staging.ends) > 0 and n.staging.ends[0][0] < at_ms:
        at_ms = n.staging.ends[0][0]
    return at_ms


def forget_apps(n: Node) -> None:
    """[Z2] Forget apps not used for 30 days (Z2.9)."""
    for name, app in list(n.staging.apps.items()):
        if app.used_ms + APP_KEEP_MS <= n.now_ms:
            forget_app(n, name)


def forget_app(n: Node, name: bytes) -> None:
    """Forget the app."""
    del n.staging.apps[name]
    n.staging.bytes -= APP_BYTES + len(name)
    if n.records is not None:
        n.records.put(AppRow(-1, n.now_ms, name))


def flush_staged(n: Node) -> None:
    """[S7] Drop all that is staged, published or kept (S7.1)."""
    x = n.staging.running
    n.staging.running = None
    if x is not None and x.copying is not None:
        on_copies(n, x.copying)
    for b in n.leases.ending:
        n.leases.bytes -= b.bytes_used()
    n.leases.ending = []
    for txn in list(n.staging.txns):
        drop_txn(n, txn)
    for name in list(n.staging.apps):
        forget_app(n, name)
    for full, kept in list(n.keys.kept.items()):
        n.keys.drop(full)
        if n.records is not None:
            record_key(n.records, full, kept.id, 0)


def staging_figures(n: Node) -> dict[str, object]:
    """[Z7] Figures for INFO (Z7.1)."""
    staging = n.staging
    return {
        "staged_txns": len(staging.txns),
        "staged_attempts": int(staging.attempt_count),
        "staged_jobs": int(staging.count),
        "staged_bytes": int(staging.bytes),
        "staged_jobs_dropped": int(staging.jobs_dropped),
        "publish_apps": len(staging.apps),
        "publish_waiting": len(staging.publishing),
        "publish_done": int(staging.published),
        "publish_repeated": int(staging.repeated),
        "publish_jobs": int(staging.jobs_published),
        "dedupe_keys": len(n.keys.kept),
        "dedupe_max_keys": int(n.limits.keys_max),
        "dedupe_bytes": int(n.keys.bytes_used()),
        "dedupe_hits": int(n.keys.hits),
    }
