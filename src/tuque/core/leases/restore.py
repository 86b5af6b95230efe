"""Restores leases from the journal (SPEC Y9).

Records are applied in order during the load; groups enter the node at its end, when their
jobs are there. Applying a record twice changes nothing.
"""

from typing import final

from mypy_extensions import i32, i64

from tuque.core.leases.expiry import arm, begin_beats, renew, why_gone
from tuque.core.model.job import ACKED, ACTIVE, ANNOUNCE_WILL, DELIVERED, EXTERNAL, LEASED, Job
from tuque.core.msgs.records import LeaseDrop, LeaseGroup
from tuque.core.node.node import Node
from tuque.core.records.jobs import LEASE_BATCH, Records
from tuque.core.records.leases import (
    HOW_EXPIRED,
    HOW_SOME,
    HOW_TAKEN,
    LeaseRecord,
    tell_batch,
    tell_group,
)
from tuque.core.records.read import Record
from tuque.core.tables.leases import Batch, Group, gone


@final
class LeaseLog:
    """The groups read so far. Batches hold ids and marks, live or not."""

    def __init__(self) -> None:
        self.groups: dict[bytes, Group] = {}
        self.last_epoch: i64 = 0

    def apply(self, record: Record, jobs: dict[bytes, Job]) -> list[bytes]:
        """Apply one record to the groups and to `jobs`.

        Returns the ids it acks that no other node has.
        """
        row = record.row
        if record.kind == LEASE_BATCH:
            r = record.lease
            if r.how & HOW_TAKEN:
                hand_out(r, jobs)
            self.on_batch(r, jobs)
        elif isinstance(row, LeaseGroup):
            return self.on_group(row, jobs)
        elif isinstance(row, LeaseDrop):
            g = self.groups.get(row.name)
            if g is not None and g.epoch == row.epoch:
                g.batches.pop(row.seq, None)
        return []

    def on_group(self, r: LeaseGroup, jobs: dict[bytes, Job]) -> list[bytes]:
        """Update a group; remove its ended batches, acked or not (Z6.2)."""
        acked: list[bytes] = []
        name = r.names[0]
        if r.epoch > self.last_epoch:
            self.last_epoch = r.epoch
        g = self.groups.get(name)
        if r.floor_seq < 0:
            self.groups.pop(name, None)
            return acked
        if g is None or g.epoch != r.epoch:
            g = Group(name, r.names[1], r.names[2:], r.epoch)
            self.groups[name] = g
        g.last_seq = r.last_seq
        g.acked_seq = r.acked_seq
        g.floor_seq = r.floor_seq
        g.ttl_ms = r.ttl_ms
        g.used_ms = r.used_ms
        for seq in list(g.batches):
            if seq <= r.floor_seq:
                b = g.batches.pop(seq)
                if seq <= r.acked_seq:
                    ack_batch(b, jobs, acked)
        return acked

    def on_batch(self, r: LeaseRecord, jobs: dict[bytes, Job]) -> None:
        """Replace a batch, extend it, or change some of its positions."""
        g = self.groups.get(r.name)
        if g is None or g.epoch != r.epoch or r.seq <= g.floor_seq:
            return
        b = g.batches.get(r.seq)
        if r.how & HOW_SOME:
            if b is not None:
                patch(b, r)
            return
        if b is None or r.first == 0:
            b = Batch(r.seq, r.parts)
            g.batches[r.seq] = b
        b.count = r.total
        b.body_bytes = r.body_bytes
        b.is_expired = r.how & HOW_EXPIRED != 0
        b.drop_ms = r.drop_ms
        if r.first == len(b.ids):
            b.ids.extend(r.ids)
            b.marks.extend(r.marks)
            for id in r.ids:
                job = jobs.get(id)
                b.ends.append(job.expire_ms if job is not None else 0)
        if r.seq > g.last_seq:
            g.last_seq = r.seq

    def shift(self, jump_ms: i64) -> None:
        """The clock jumped: move all instants (J5.8)."""
        for g in self.groups.values():
            g.used_ms += jump_ms
            for b in g.batches.values():
                if b.drop_ms != 0:
                    b.drop_ms += jump_ms
                b.ends = [i64(end) + jump_ms if end > 0 else 0 for end in b.ends]

    def restore(self, n: Node) -> None:
        """[Y9] Enter the groups; live leases run for their TTL from now (Y9.3)."""
        leases = n.leases
        leases.last_epoch = max(leases.last_epoch, self.last_epoch)
        for g in self.groups.values():
            leases.groups[g.name] = g
            leases.bytes += g.bytes_used()
            renew(n, g)
            for seq in list(g.batches):
                b = g.batches[seq]
                if len(b.ids) != b.count:
                    del g.batches[seq]  # incomplete in the journal: no client got it
                    continue
                if not b.is_expired:
                    link(n, b)
                leases.bytes += b.bytes_used()
            arm(n, g)
        leases.loaded = {}


def ack_batch(b: Batch, jobs: dict[bytes, Job], acked: list[bytes]) -> None:
    """Ack the jobs that the batch still has: later records may be lost."""
    for i, id in enumerate(b.ids):
        job = jobs.get(id)
        if job is None or job.state == ACKED or b.marks[i] < 0:
            continue
        if not b.is_expired and (
            job.state != ACTIVE or not job.flags & LEASED or job.delivered_count != b.marks[i]
        ):
            continue
        if job.holders == 1:
            acked.append(id)
        else:
            job.state = ACKED
            job.body = b""
            job.flags &= 0xFF ^ (EXTERNAL | ANNOUNCE_WILL | LEASED)


def patch(b: Batch, r: LeaseRecord) -> None:
    """Set the marks of positions that still name the same jobs."""
    for i, id in enumerate(r.ids):
        at = r.first + i
        if at < len(b.ids) and b.ids[at] == id:
            b.marks[at] = r.marks[i]


def hand_out(r: LeaseRecord, jobs: dict[bytes, Job]) -> None:
    """The batch's jobs were delivered at that instant (Y9.2)."""
    for i, id in enumerate(r.ids):
        job = jobs.get(id)
        if job is None or r.marks[i] < 0 or job.state == ACKED:
            continue
        job.state = ACTIVE
        job.flags |= DELIVERED | LEASED
        job.delivered_count = i32(r.marks[i])
        if job.first_ms == 0:
            job.first_ms = r.at_ms
        job.last_ms = r.at_ms
        job.qtime_ms = 0


def link(n: Node, b: Batch) -> None:
    """Give the batch its remaining jobs again (Y9.3)."""
    loaded = n.leases.loaded
    for i, id in enumerate(b.ids):
        job = loaded.get(id)
        mark = i64(b.marks[i])
        if job is None or job.delivered_count != mark:
            b.jobs.append(gone(id, why_gone(mark, i64(b.ends[i]), n.now_ms)))
            continue
        del loaded[id]
        job.flags |= LEASED
        job.qtime_ms = 0
        n.wheel.arm(job, n.now_ms)
        n.delivered_amo.pop(id, None)
        b.jobs.append(job)
    b.ids = []
    b.marks = []
    b.ends = []
    begin_beats(n, b.jobs)


def tell_all(n: Node, records: Records) -> None:
    """[Y9] Record all groups and batches at the start of a snapshot (Y9.4).

    The first record keeps the last epoch, which may belong to a forgotten group (Y1.6).
    """
    if n.leases.last_epoch > 0:
        last = Group(b"-", b"", [b""], n.leases.last_epoch)
        last.floor_seq = -1
        tell_group(records, last)
    for g in n.leases.groups.values():
        tell_group(records, g)
        for b in g.batches.values():
            tell_batch(records, g, b, n.now_ms, False)
