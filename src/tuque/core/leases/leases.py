"""A group leases jobs in numbered batches, commits them, and shows them (SPEC Y1-Y5, Y10).

Functions that can be refused return the refusal, None on success.
core/leases/fetch.py reads rows, core/leases/expiry.py runs the timers.
"""

from typing import Final

from mypy_extensions import i64

from tuque.core.copies.ack_gc import retire
from tuque.core.leases.expiry import arm, begin_beats, end_lease, give_back, give_back_all, renew
from tuque.core.model.errors import (
    ACKED_BATCH,
    AHEAD,
    BATCHES_FULL,
    FENCED,
    GROUPS_FULL,
    LEASE_LEAVING,
    NOBATCH,
    NOGROUP,
    OVER,
    TUBE_LEASED,
    Refusal,
)
from tuque.core.model.job import ACKED, LEASED, NACKED, WAIT_REPL, Job
from tuque.core.model.timers import TURN_WORK
from tuque.core.node.node import Node
from tuque.core.node.queue import PAUSE_OUT, Queue
from tuque.core.queues.deliver import count_delivery, on_poll
from tuque.core.queues.procedures import REQUEUE_NACK
from tuque.core.queues.work_copies import expire
from tuque.core.records.leases import tell_batch, tell_gone, tell_group
from tuque.core.tables.leases import (
    BATCH_BYTES,
    BATCHES_MAX,
    GONE_BYTES,
    GROUPS_MAX,
    LIVE_BYTES,
    Batch,
    Group,
    gone,
    gone_bytes,
    is_leased,
)

BATCH_MAX: Final = 100_000  # jobs, so that no command blocks others for long (Y2.5)

IDLE_GROUP_MS: Final = 3_600_000  # a group without batches may be replaced after that


def find(n: Node, name: bytes, epoch: i64) -> Refusal | None:
    """[Y1] Why a command with this epoch is refused (Y1.6, Y1.7); None if it is not."""
    g = n.leases.groups.get(name)
    if g is None:
        return Refusal(NOGROUP, (name,))
    if epoch < g.epoch:
        return Refusal(FENCED, (epoch, name, g.owner, g.epoch))
    return Refusal(AHEAD, (name, epoch, g.epoch)) if epoch > g.epoch else None


def check(n: Node, name: bytes, epoch: i64, seq: i64) -> Refusal | None:
    """[Y4] Why a COMMIT of this batch is refused; None if it is not (Y4.2)."""
    error = find(n, name, epoch)
    if error is not None:
        return error
    g = n.leases.groups[name]
    if seq <= g.acked_seq or seq in g.batches:
        return None
    return no_batch(g, seq)


def no_batch(g: Group, seq: i64) -> Refusal:
    """The refusal for a batch that does not exist (Y3.2)."""
    if seq <= g.acked_seq:
        return Refusal(ACKED_BATCH, (seq, g.name, g.acked_seq))
    if seq <= g.last_seq and seq > 0:
        return Refusal(OVER, (seq, g.name))
    return Refusal(NOBATCH, (g.name, seq, g.last_seq, g.last_seq + 1))


def open_refusal(n: Node, queues: list[bytes]) -> Refusal | None:
    """Why nothing can be leased from these queues, checked before any change; None if it can."""
    for queue in queues:
        q = n.queues.get(queue)
        if q is not None and q.policy is not None:
            return Refusal(TUBE_LEASED, (queue,))  # T1.6
    return None


def on_open(n: Node, name: bytes, owner: bytes, queues: list[bytes]) -> tuple[i64, Refusal | None]:
    """[Y1] ON COMMAND LEASE OPEN: the epoch, or 0 and the refusal."""
    leases = n.leases
    g = leases.groups.get(name)
    error = open_refusal(n, queues)
    if error is not None:
        return 0, error
    if g is not None and g.owner == owner and g.queues == queues:
        renew(n, g)
        return g.epoch, None  # Y1.1
    if g is None and len(leases.groups) >= GROUPS_MAX and not make_room(n):
        return 0, Refusal(GROUPS_FULL, (len(leases.groups),))  # Y1.4
    if g is not None:
        end_lease(n, g)  # Y1.2
        leases.bytes -= g.bytes_used()
    epoch: i64 = n.now_ms
    if epoch <= leases.last_epoch:
        epoch = leases.last_epoch + 1
    leases.last_epoch = epoch
    g = Group(name, owner, queues, epoch)
    g.used_ms = n.now_ms
    leases.groups[name] = g
    leases.bytes += g.bytes_used()
    if n.records is not None:
        tell_group(n.records, g)  # Y9.1
        n.records.has_custody = True  # Y9.6
    return epoch, None


def make_room(n: Node, prefix: bytes = b"") -> bool:
    """Forget the least recently used group if it has no batches (Y1.4).

    `prefix`: of the names that are searched.
    """
    idle: Group | None = None
    for g in n.leases.groups.values():
        if len(g.batches) > 0 or not g.name.startswith(prefix):
            continue
        if idle is None or g.used_ms < idle.used_ms:
            idle = g
    if idle is None or idle.used_ms + IDLE_GROUP_MS > n.now_ms:
        return False
    forget_group(n, idle)
    return True


def forget_group(n: Node, g: Group) -> None:
    """Forget the group; its epoch is never used again."""
    g.floor_seq = -1
    if g.filling is not None:
        n.leases.bytes -= gone_bytes(g.filling)
        give_back_all(n, g.filling.jobs)
        g.filling = None
    for b in g.batches.values():
        n.leases.bytes -= b.bytes_used()
    g.batches = {}
    n.leases.bytes -= g.bytes_used()
    del n.leases.groups[g.name]
    if n.records is not None:
        tell_group(n.records, g)


def on_next(
    n: Node,
    client: i64,
    g: Group,
    seq: i64,
    count: i64,
    body_bytes: i64,
    parts: i64,
    ttl_ms: i64,
) -> tuple[i64, Refusal | None]:
    """[Y2] ON COMMAND LEASE NEXT: the number of jobs in the batch, may be 0; or a refusal."""
    count_of, error = begin_next(n, g, seq)
    if count_of >= 0 or error is not None:
        return max(count_of, 0), error
    b = Batch(seq, parts)
    most = min(count, BATCH_MAX)
    is_new_ttl = begin_fill(n, g, ttl_ms)
    take_jobs(n, client, g, b, most, body_bytes)
    return end_next(n, g, b, most, is_new_ttl), None


def begin_next(n: Node, g: Group, seq: i64) -> tuple[i64, Refusal | None]:
    """The job count of a batch that exists; -1: it is to be made; or a refusal."""
    b = g.batches.get(seq)
    if b is not None:
        renew(n, g)
        return b.count, None  # Y2.2
    if seq != g.last_seq + 1:
        return 0, no_batch(g, seq)  # Y2.3
    if len(g.batches) >= BATCHES_MAX:
        return 0, Refusal(BATCHES_FULL, (g.name, len(g.batches)))  # Y2.4
    if n.is_leaving:
        return 0, Refusal(LEASE_LEAVING)  # Y8.3
    error = open_refusal(n, g.queues)  # Y2.8
    return (0, error) if error is not None else (-1, None)


def begin_fill(n: Node, g: Group, ttl_ms: i64) -> bool:
    """Renew the lease with this TTL; True if the TTL changed."""
    is_new_ttl = ttl_ms != g.ttl_ms
    g.ttl_ms = ttl_ms
    renew(n, g)
    return is_new_ttl


def end_next(n: Node, g: Group, b: Batch, most: i64, is_new_ttl: bool) -> i64:
    """The batch is filled: make it the group's newest; returns its job count."""
    seq = b.seq
    if len(b.jobs) < most:
        on_poll(n, g.queues, most - len(b.jobs))  # F1.1
    if len(b.jobs) == 0:
        if is_new_ttl and n.records is not None:
            tell_group(n.records, g)
        return 0  # Y2.6
    b.count = len(b.jobs)
    g.last_seq = seq
    g.batches[seq] = b
    n.leases.bytes += BATCH_BYTES + LIVE_BYTES * b.count
    n.leases.batches_made += 1
    n.leases.jobs_leased += b.count
    arm(n, g)
    begin_beats(n, b.jobs)
    if n.records is not None:
        if is_new_ttl:
            tell_group(n.records, g)
        tell_batch(n.records, g, b, n.now_ms, True)  # Y9.1
    return b.count


def take_jobs(n: Node, client: i64, g: Group, b: Batch, count: i64, body_bytes: i64) -> bool:
    """[Y2] Fill the batch: one job from each queue in turn, the oldest first (Y2.1).

    True: it can take no more. False: it has `count` jobs, or continues in the next turn (V2.3).
    """
    names = g.queues
    queues: list[Queue] = []
    for i in range(len(names)):
        q = n.queues.get(names[(g.turn + i) % len(names)])
        if q is not None and q.pause & PAUSE_OUT == 0 and q.length > 0 and q.policy is None:
            queues.append(q)
    if len(names) > 1:
        g.turn = (g.turn + 1) % len(names)
    while len(queues) > 0:
        has_dry = False
        for q in queues:
            job = q.first()
            while job is not None and job.expire_ms <= n.now_ms:
                if n.passed >= TURN_WORK:
                    n.looks_later[q.name] = None
                    return False
                expire(n, job)  # V2.3
                n.passed += 1
                job = q.first()
            if job is None:
                has_dry = True
                continue
            size: i64 = len(job.body)
            if len(b.jobs) > 0 and b.body_bytes + size > body_bytes:
                return True
            q.pop()
            lease_job(n, client, q, job)
            b.jobs.append(job)
            b.body_bytes += size
            if len(b.jobs) >= count:
                return False
        if has_dry:
            queues = [q for q in queues if q.length > 0]
    return True


def lease_job(n: Node, client: i64, q: Queue, job: Job) -> None:
    """[V4, Y2] Lease a job just taken from its queue (Y2.1).

    Its timer is already set to its expiry and stays there. The caller records it.
    """
    count_delivery(n, q, job)
    job.flags |= LEASED
    job.qtime_ms = 0
    if n.events is not None:
        n.events.delivered(n.now_ms, job, client)  # V4.5


def commit(n: Node, name: bytes, epoch: i64, seq: i64, before: i64 = 0) -> i64:
    """[Y4] ON COMMAND LEASE COMMIT, after `check`: returns the number of jobs acked.

    `before`: jobs that `ack_some` has acked for this command.
    """
    g = n.leases.groups[name]
    assert g.epoch == epoch
    renew(n, g)
    if seq <= g.acked_seq:
        return 0  # Y4.2
    acked: i64 = 0
    is_proof = before > 0
    for number in list(g.batches):
        if number > seq:
            break
        b = g.batches.pop(number)
        n.leases.bytes -= b.bytes_used()
        acked += ack_batch(n, b)  # Y4.1
        is_proof = is_proof or b.count == 0
    g.acked_seq = seq
    g.floor_seq = seq
    if is_proof or acked > 0:
        g.proofs += 1  # Y11.2
    if n.records is not None:
        tell_group(n.records, g)
    return acked


def commit_later(n: Node, name: bytes, epoch: i64, seq: i64) -> list[Batch]:
    """[Z2] `commit` for a PUBLISH: returns the batches that the caller acks with `ack_ending`.

    The group's record stands for all these acks (Z6.2).
    """
    g = n.leases.groups[name]
    assert g.epoch == epoch
    renew(n, g)
    if seq <= g.acked_seq:
        return []  # Y4.2
    batches: list[Batch] = []
    for number in list(g.batches):
        if number <= seq:
            batches.append(g.batches.pop(number))
    n.leases.ending.extend(batches)
    g.acked_seq = seq
    g.floor_seq = seq
    if any(b.count == 0 or has_work(n, b) for b in batches):
        g.proofs += 1  # Y11.2
    if n.records is not None:
        tell_group(n.records, g)
    return batches


def ack_ending(n: Node, b: Batch, room: i64) -> i64:
    """Ack up to `room` jobs of a committed batch; returns how many it looked at."""
    begun = b.freed
    if not b.is_expired:
        while b.freed < len(b.jobs) and b.freed - begun < room:
            ack_leased(n, b.jobs[b.freed])
            b.freed += 1
    else:
        while b.freed < len(b.ids) and b.freed - begun < room:
            ack_known(n, b, b.freed)
            b.freed += 1
    if b.freed == b.count:
        n.leases.ending.remove(b)
        n.leases.bytes -= b.bytes_used()
    return b.freed - begun


def ack_some(n: Node, g: Group, seq: i64, room: i64) -> i64:
    """Ack up to `room` jobs ahead of a COMMIT; returns how many it acked (L2.2)."""
    acked: i64 = 0
    for number, b in g.batches.items():
        if number > seq:
            break
        while b.freed < len(b.jobs) and acked < room:
            job = b.jobs[b.freed]
            b.freed += 1
            if ack_leased(n, job):
                acked += 1
    return acked


def ack_batch(n: Node, b: Batch) -> i64:
    """Ack the batch's remaining jobs, as ACKJOB does; returns how many."""
    acked: i64 = 0
    for job in b.jobs:
        if ack_leased(n, job):
            acked += 1
    for i in range(len(b.ids)):
        if ack_known(n, b, i):
            acked += 1
    return acked


def has_work(n: Node, b: Batch) -> bool:
    """Whether a job of the batch is not acked yet."""
    for job in b.jobs:
        if is_leased(job):
            return True
    for i, id in enumerate(b.ids):
        job_there = n.jobs.get(id) if b.marks[i] >= 0 else None
        if job_there is not None and job_there.state != ACKED:
            return True
    return False


def ack_leased(n: Node, job: Job) -> bool:
    """Ack a job of a live batch; False if it has left the batch."""
    if not is_leased(job):
        return False
    job.flags &= 0xFF ^ LEASED
    n.book.ack(job, n.now_ms)
    if n.events is not None:
        n.events.acked(n.now_ms, job, n.returned(job.id))
    retire(n, job)
    return True


def ack_known(n: Node, b: Batch, i: i64) -> bool:
    """Ack a job of an expired batch wherever it is on this node (Y7.5)."""
    job = n.jobs.get(b.ids[i]) if b.marks[i] >= 0 else None
    if job is None or job.state == ACKED or job.state == WAIT_REPL:
        return False
    n.book.ack(job, n.now_ms)
    if n.events is not None:
        n.events.acked(n.now_ms, job, n.returned(job.id))
    retire(n, job)
    return True


def on_touch(n: Node, g: Group, ttl_ms: i64) -> i64:
    """[Y5] ON COMMAND LEASE TOUCH: returns the uncommitted batches (Y5.1). `ttl_ms` 0: as is."""
    if ttl_ms > 0 and ttl_ms != g.ttl_ms:
        g.ttl_ms = ttl_ms
        if n.records is not None:
            tell_group(n.records, g)
    renew(n, g)
    return len(g.batches)


def on_lease_nack(n: Node, g: Group, seq: i64, ids: list[bytes]) -> tuple[i64, Refusal | None]:
    """[Y5] ON COMMAND LEASE NACK: returns how many jobs went back to their queue (Y5.2)."""
    b = g.batches.get(seq)
    if b is None:
        return 0, no_batch(g, seq)
    renew(n, g)
    wanted: dict[bytes, None] = {}
    for id in ids:
        wanted[id] = None
    done: i64 = 0
    for i, job in enumerate(b.jobs):
        if job.id in wanted and is_leased(job):
            b.jobs[i] = gone(job.id, NACKED)
            n.leases.bytes += GONE_BYTES
            job.flags &= 0xFF ^ LEASED
            give_back(n, job, REQUEUE_NACK)
            done += 1
            if n.records is not None:
                tell_gone(n.records, g, b, i, n.now_ms)  # Y9.7
    return done, None


def on_release(n: Node, g: Group) -> i64:
    """[Y5] ON COMMAND LEASE RELEASE: returns how many jobs went back; the epoch stays (Y5.3)."""
    g.used_ms = 0  # nobody uses it: the first to go when there is no room (Y5.4)
    done = end_lease(n, g)
    if n.records is not None:
        tell_group(n.records, g)
    return done


# ---- The replies of LEASE INFO and INFO about groups (SPEC Y10). Read only


def lease_info(n: Node, g: Group) -> dict[str, object]:
    """[Y10] The fields of a group (Y10.1)."""
    queued: i64 = 0
    oldest_ms: i64 = n.now_ms
    tubes: list[bytes] = []
    for name in g.queues:
        q = n.queues.get(name)
        if q is None:
            continue
        if q.policy is not None:
            tubes.append(name)
            continue
        queued += q.length
        for job in q.next_ones():
            oldest_ms = min(oldest_ms, job.ctime_ns // 1_000_000)
    batches: list[object] = []
    for b in g.batches.values():
        batches.append(
            [int(b.seq), int(b.count), int(b.body_bytes), int(b.attempts()), int(b.is_expired)]
        )
    is_live = any(not b.is_expired for b in g.batches.values())
    return {
        "group": g.name,
        "owner": g.owner,
        "epoch": int(g.epoch),
        "queues": list(g.queues),
        "last-seq": int(g.last_seq),
        "acked-seq": int(g.acked_seq),
        "ttl-ms": int(g.ttl_ms),
        "left-ms": max(0, int(g.until_ms - n.now_ms)) if is_live else 0,
        "batches": batches,
        "queued": int(queued),
        "oldest-ms": int(n.now_ms - oldest_ms),
        "tubes": tubes,
    }


def lease_figures(n: Node) -> dict[str, object]:
    """[Y10] Figures for INFO (Y10.2)."""
    leases = n.leases
    batches: i64 = 0
    jobs: i64 = 0
    for g in n.leases.groups.values():
        for b in g.batches.values():
            batches += 1
            if not b.is_expired:
                jobs += b.count
    return {
        "lease_groups": len(leases.groups),
        "lease_batches": int(batches),
        "lease_jobs": int(jobs),
        "lease_bytes": int(leases.bytes),
        "lease_batches_made": int(leases.batches_made),
        "lease_jobs_taken": int(leases.jobs_leased),
        "lease_batches_expired": int(leases.expired),
    }
