"""Journal records of batches of leases, encoded and decoded (SPEC Y9, J2).

The layout and the bounds are in core/msgs/packed.py; groups and dropped batches are in
core/msgs/records.py. No length in the bytes is trusted: what is cut or oversized is refused.
"""

from typing import Final, final

from librt.strings import BytesWriter, read_i32_le, read_i64_le, write_i32_le, write_i64_le
from mypy_extensions import i32, i64

from tuque.core.model.job import EXPIRED_OUT, WHY_MAX, Job
from tuque.core.model.job_id import ID_BYTES
from tuque.core.msgs.packed import BATCH_FIXED, POSITION_BYTES
from tuque.core.msgs.records import LeaseDrop, LeaseGroup
from tuque.core.records.jobs import LEASE_BATCH, Records
from tuque.core.tables.leases import NAME_MAX, PARTS_MAX, Batch, Group, mark_of

HOW_EXPIRED: Final = 1  # its jobs are in their queues again
HOW_TAKEN: Final = 2  # its jobs were delivered at `at_ms`: stands for a record of each
HOW_SOME: Final = 4  # only these positions changed
HOW_BITS: Final = HOW_EXPIRED | HOW_TAKEN | HOW_SOME

POSITIONS_MAX: Final = 10_000  # in one record


# ---- Encoding


def tell_group(records: Records, g: Group) -> None:
    """All of a group except its batches."""
    names = [g.name, g.owner]
    names.extend(g.queues)
    records.put(
        LeaseGroup(g.epoch, g.last_seq, g.acked_seq, g.floor_seq, g.ttl_ms, g.used_ms, names)
    )


def tell_drop(records: Records, g: Group, seq: i64) -> None:
    """The batch no longer exists."""
    records.put(LeaseDrop(g.epoch, seq, g.name))


def tell_batch(records: Records, g: Group, b: Batch, now_ms: i64, is_taken: bool) -> None:
    """All of a batch; `is_taken`: its jobs were just delivered.

    The reply then waits for the disk (Y9.5): the batch number may be in a checkpoint.
    """
    first: i64 = 0
    how: i64 = HOW_TAKEN if is_taken else 0
    if b.is_expired:
        how |= HOW_EXPIRED
    if is_taken:
        records.has_custody = True
    if b.count == 0:
        tell_positions(records, g, b, now_ms, how, 0, 0)  # Y11.3: SPLIT left it none
    while first < b.count:
        end: i64 = min(first + POSITIONS_MAX, b.count)
        tell_positions(records, g, b, now_ms, how, first, end)
        first = end


def tell_gone(records: Records, g: Group, b: Batch, at: i64, now_ms: i64) -> None:
    """A job left its position in a live batch; the record gives the reason."""
    tell_positions(records, g, b, now_ms, HOW_SOME, at, at + 1)


def tell_positions(
    records: Records, g: Group, b: Batch, now_ms: i64, how: i64, first: i64, end: i64
) -> None:
    """One record: some positions of the batch."""
    w = records.writer
    write_i32_le(w, i32(BATCH_FIXED + (end - first) * POSITION_BYTES + len(g.name)))
    w.append(LEASE_BATCH)
    write_i64_le(w, g.epoch)
    write_i64_le(w, b.seq)
    write_i32_le(w, i32(b.parts))
    w.append(how)
    write_i64_le(w, b.drop_ms)
    write_i64_le(w, now_ms)
    write_i64_le(w, b.body_bytes)
    write_i32_le(w, i32(b.count))
    write_i32_le(w, i32(first))
    write_i32_le(w, i32(end - first))
    if b.is_expired:
        i = first
        while i < end:
            w.write(b.ids[i])
            mark = i64(b.marks[i])
            if mark >= 0 and 0 < b.ends[i] <= now_ms:
                mark = -1 - EXPIRED_OUT
            write_i32_le(w, i32(mark))
            i += 1
    else:
        put_jobs(w, b.jobs, first, end)
    w.write(g.name)
    records.count += 1
    records.binding_count += 1


def put_jobs(w: BytesWriter, jobs: list[Job], first: i64, end: i64) -> None:
    """Positions of a live batch."""
    i = first
    while i < end:
        job = jobs[i]
        w.write(job.id)
        write_i32_le(w, i32(mark_of(job)))
        i += 1


# ---- Decoding


@final
class LeaseRecord:
    """One decoded LEASE_BATCH."""

    def __init__(self) -> None:
        self.name = b""
        self.epoch: i64 = 0
        self.seq: i64 = 0
        self.at_ms: i64 = 0
        self.parts: i64 = 0
        self.how: i64 = 0
        self.drop_ms: i64 = 0
        self.body_bytes: i64 = 0
        self.total: i64 = 0
        self.first: i64 = 0
        self.ids: list[bytes] = []
        self.marks: list[int] = []


def decode_batch(data: bytes, at: i64, end: i64, r: LeaseRecord) -> bool:
    """Decode the rest of a LEASE_BATCH."""
    if end - at < BATCH_FIXED - 1:
        return False
    r.epoch = read_i64_le(data, at)
    r.seq = read_i64_le(data, at + 8)
    r.parts = i64(read_i32_le(data, at + 16))
    r.how = data[at + 20]
    r.drop_ms = read_i64_le(data, at + 21)
    r.at_ms = read_i64_le(data, at + 29)
    r.body_bytes = read_i64_le(data, at + 37)
    r.total = i64(read_i32_le(data, at + 45))
    r.first = i64(read_i32_le(data, at + 49))
    here: i64 = i64(read_i32_le(data, at + 53))
    at += BATCH_FIXED - 1
    if here < 0 or here * POSITION_BYTES > end - at:
        return False
    ids: list[bytes] = []
    marks: list[int] = []
    while here > 0:
        ids.append(data[at : at + ID_BYTES])
        mark: i64 = i64(read_i32_le(data, at + ID_BYTES))
        if mark < -1 - WHY_MAX:
            return False
        marks.append(mark)
        at += POSITION_BYTES
        here -= 1
    r.ids = ids
    r.marks = marks
    r.name = data[at:end]
    if not 1 <= len(r.name) <= NAME_MAX or r.epoch <= 0 or r.seq <= 0 or r.how > HOW_BITS:
        return False
    if not 1 <= r.parts <= PARTS_MAX or (r.drop_ms | r.body_bytes | r.first) < 0:
        return False
    return r.first + len(ids) <= r.total
