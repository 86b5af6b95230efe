"""LEASE BEGIN, SPLIT and DEFER: how a client finds the job that makes its batches fail (SPEC Y11).

Jobs move between batch numbers here; only DEFER delivers, and only the jobs that it takes anew.
Functions that can be refused return the refusal.
"""

from typing import final

from mypy_extensions import i64

from tuque.core.leases.expiry import arm, begin_beats, give_back_all, reclaim, renew
from tuque.core.leases.leases import no_batch, take_jobs
from tuque.core.model.errors import NO_HALVES, Refusal
from tuque.core.node.node import Node
from tuque.core.records.leases import tell_batch, tell_drop, tell_group
from tuque.core.tables.leases import (
    BATCH_BYTES,
    DEFERS_MAX,
    LIVE_BYTES,
    POSITIONS_OF_UNIT,
    SPLITS_MAX,
    Batch,
    Group,
    gone_bytes,
    is_leased,
)


@final
class Begun:
    """The reply of BEGIN for one batch."""

    def __init__(self) -> None:
        self.times: i64 = 0  # how often work began, including now
        self.jobs: i64 = 0  # still in the batch
        self.half: i64 = 0  # positions with the first half of them; 0: fewer than two
        self.proof: i64 = 0  # Y11.2
        self.before: i64 = 0  # jobs that it had at the time before
        self.error: Refusal | None = None


def find_live(n: Node, client: i64, g: Group, seq: i64) -> Refusal | None:
    """Return the refusal if there is no such batch; lease an expired one again (Y7.6)."""
    b = g.batches.get(seq)
    if b is None:
        return no_batch(g, seq)
    if b.is_expired:
        reclaim(n, client, g, b)
    renew(n, g)
    return None


def on_begin(n: Node, client: i64, g: Group, seq: i64) -> Begun:
    """[Y11] ON COMMAND LEASE BEGIN: count that work on a batch begins (Y11.1)."""
    found = Begun()
    found.error = find_live(n, client, g, seq)
    if found.error is not None:
        return found
    b = g.batches[seq]
    n.work += b.count // POSITIONS_OF_UNIT
    if b.proof_at < 0:
        b.proof_at = g.proofs
        b.last_proof_at = g.proofs
    if b.last_proof_at > b.proof_at:
        found.proof = 2
    elif g.proofs > b.proof_at:
        found.proof = 1
    b.last_proof_at = g.proofs
    b.begun += 1
    found.times = b.begun
    found.before = b.at_work
    b.at_work = live_jobs(b)
    found.jobs = b.at_work
    found.half = half_of(b, found.jobs)
    return found


def live_jobs(b: Batch) -> i64:
    """The number of jobs that are still in the batch."""
    jobs: i64 = 0
    for job in b.jobs:
        if is_leased(job):
            jobs += 1
    return jobs


def half_of(b: Batch, jobs: i64) -> i64:
    """The number of leading positions with half of the jobs; 0: fewer than two jobs."""
    left: i64 = jobs // 2
    if left == 0:
        return 0
    at: i64 = 0
    for job in b.jobs:
        at += 1
        if is_leased(job):
            left -= 1
            if left == 0:
                break
    return at


def on_split(
    n: Node, client: i64, g: Group, seq: i64, keep: i64, begun: i64
) -> tuple[i64, Refusal | None]:
    """[Y11] ON COMMAND LEASE SPLIT: positions from `keep` on become the newest batch (Y11.3)."""
    error = find_live(n, client, g, seq)
    if error is not None:
        return 0, error
    b = g.batches[seq]
    if keep >= b.count:
        return b.count, None
    if len(g.batches) >= SPLITS_MAX:
        return 0, Refusal(NO_HALVES, (g.name, len(g.batches)))
    n.leases.bytes -= b.bytes_used()
    rest = Batch(g.last_seq + 1, b.parts)
    rest.jobs = b.jobs[keep:]
    rest.begun = begun
    rest.proof_at = b.proof_at
    rest.last_proof_at = b.proof_at
    b.jobs = b.jobs[:keep]
    b.at_work = live_jobs(b)
    count(b)
    count(rest)
    g.last_seq = rest.seq
    g.batches[rest.seq] = rest
    n.leases.bytes += b.bytes_used() + rest.bytes_used()
    n.leases.batches_made += 1
    tell_moved(n, g, [b, rest])
    return b.count, None


def count(b: Batch) -> None:
    """Recount a batch whose jobs changed."""
    b.count = len(b.jobs)
    b.body_bytes = 0
    for job in b.jobs:
        if is_leased(job):
            b.body_bytes += len(job.body)


def tell_moved(n: Node, g: Group, batches: list[Batch]) -> None:
    """Record all of them in one frame (Y9.8)."""
    records = n.records
    for b in batches:
        n.work += b.count // POSITIONS_OF_UNIT
    if records is None:
        return
    tell_group(records, g)
    for b in batches:
        tell_batch(records, g, b, n.now_ms, False)
    records.has_custody = True


def on_defer(
    n: Node, client: i64, g: Group, seq: i64, most: i64, body_bytes: i64
) -> tuple[i64, Refusal | None]:
    """[Y11] ON COMMAND LEASE DEFER: put other jobs before those of a batch (Y11.4)."""
    fresh, error = begin_defer(n, client, g, seq)
    if error is not None:
        return 0, error
    if may_defer(n, g) and most > 0:
        take_jobs(n, client, g, fresh, most, body_bytes)
    return end_defer(n, client, g, fresh)


def begin_defer(n: Node, client: i64, g: Group, seq: i64) -> tuple[Batch, Refusal | None]:
    """The batch of other jobs, still empty; or the refusal."""
    error = find_live(n, client, g, seq)
    return Batch(seq, 1 if error is not None else g.batches[seq].parts), error


def may_defer(n: Node, g: Group) -> bool:
    """Whether other jobs may go first."""
    return len(g.batches) < DEFERS_MAX and not n.is_leaving


def end_defer(n: Node, client: i64, g: Group, fresh: Batch) -> tuple[i64, Refusal | None]:
    """The other jobs are taken, if there are any: they go before those of the batch."""
    seq = fresh.seq
    error = find_live(n, client, g, seq)
    if len(fresh.jobs) > 0 and (error is not None or not may_defer(n, g)):
        n.leases.bytes -= gone_bytes(fresh)
        give_back_all(n, fresh.jobs)  # another connection has changed the batches meanwhile
        fresh.jobs = []
    if error is not None:
        return 0, error
    old = g.batches[seq]
    if len(fresh.jobs) > 0:
        put_before(n, g, old, fresh)
        return fresh.count, None
    later = [number for number in g.batches if number > seq]
    if len(later) > 0:
        rotate(n, client, g, [seq, *later])
        if old.count == 0:
            drop_last(n, g, old)
    return g.batches[seq].count, None


def put_before(n: Node, g: Group, old: Batch, fresh: Batch) -> None:
    """The fresh batch takes the old one's number; the old one becomes the newest, or ends if it
    has no positions.
    """
    fresh.count = len(fresh.jobs)
    g.batches[old.seq] = fresh
    if old.count > 0:
        g.last_seq += 1
        old.seq = g.last_seq
        g.batches[old.seq] = old
    else:
        n.leases.bytes -= old.bytes_used()
    n.leases.bytes += BATCH_BYTES + LIVE_BYTES * fresh.count
    n.work += (old.count + fresh.count) // POSITIONS_OF_UNIT
    n.leases.batches_made += 1
    n.leases.jobs_leased += fresh.count
    arm(n, g)
    begin_beats(n, fresh.jobs)
    records = n.records
    if records is not None:
        tell_group(records, g)
        if old.count > 0:
            tell_batch(records, g, old, n.now_ms, False)
        tell_batch(records, g, fresh, n.now_ms, True)


def drop_last(n: Node, g: Group, b: Batch) -> None:
    """End the newest batch, which has no positions; its number is free again (Y11.4)."""
    del g.batches[b.seq]
    n.leases.bytes -= b.bytes_used()
    g.last_seq -= 1
    if n.records is not None:
        tell_group(n.records, g)
        tell_drop(n.records, g, b.seq)


def rotate(n: Node, client: i64, g: Group, numbers: list[int]) -> None:
    """Each number gets the jobs of the next one, the last number those of the first."""
    moved: list[Batch] = []
    for number in numbers:
        b = g.batches[number]
        if b.is_expired:
            reclaim(n, client, g, b)
        moved.append(b)
    first = moved.pop(0)
    moved.append(first)
    for i, number in enumerate(numbers):
        b = moved[i]
        b.seq = number
        g.batches[number] = b
    tell_moved(n, g, moved)
