"""Journal records of leases, encoded at the moment of change (SPEC Y9, J2).

They follow the rules of core/outbox/records.py: absolute, each complete in itself. A batch of
many jobs is several records, back to back in one frame. Layout, after length and kind:

    LEASE_GROUP  epoch i64, last i64, acked i64, floor i64, ttl_ms i64, used_ms i64,
                 names: how many i32, then each as length i32 and bytes: group, owner, queues
    LEASE_BATCH  epoch i64, seq i64, parts i32, how u8, drop_ms i64, at_ms i64, body bytes i64,
                 positions i32, first position here i32, positions here i32,
                 each an id 40 and mark i32 (-1 - why: the job left it, Y3.8), then the group
    LEASE_DROP   epoch i64, seq i64, the group

`floor` -1: the group is forgotten.
"""

from typing import Final

from librt.strings import BytesWriter, write_i32_le, write_i64_le
from mypy_extensions import i32, i64

from tuque.core.model.job import EXPIRED_OUT, Job
from tuque.core.outbox.records import LEASE_BATCH, LEASE_DROP, LEASE_GROUP, Records
from tuque.core.state.lease_groups import Batch, Group, mark_of

HOW_EXPIRED: Final = 1  # its jobs are in their queues again
HOW_TAKEN: Final = 2  # its jobs were delivered at `at_ms`: stands for a record of each
HOW_SOME: Final = 4  # only these positions changed

GROUP_FIXED: Final = 53  # kind to the number of names
BATCH_FIXED: Final = 58  # kind to the first position
DROP_FIXED: Final = 17
POSITION_BYTES: Final = 44
POSITIONS_MAX: Final = 10_000  # in one record


def tell_group(records: Records, g: Group) -> None:
    """All of a group except its batches."""
    names = [g.name, g.owner]
    names.extend(g.queues)
    size: i64 = GROUP_FIXED
    for name in names:
        size += 4 + len(name)
    w = records.writer
    write_i32_le(w, i32(size))
    w.append(LEASE_GROUP)
    write_i64_le(w, g.epoch)
    write_i64_le(w, g.last_seq)
    write_i64_le(w, g.acked_seq)
    write_i64_le(w, g.floor_seq)
    write_i64_le(w, g.ttl_ms)
    write_i64_le(w, g.used_ms)
    write_i32_le(w, i32(len(names)))
    for name in names:
        write_i32_le(w, i32(len(name)))
        w.write(name)
    records.count += 1
    records.binding_count += 1


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


def tell_drop(records: Records, g: Group, seq: i64) -> None:
    """The batch no longer exists."""
    w = records.writer
    write_i32_le(w, i32(DROP_FIXED + len(g.name)))
    w.append(LEASE_DROP)
    write_i64_le(w, g.epoch)
    write_i64_le(w, seq)
    w.write(g.name)
    records.count += 1
    records.binding_count += 1
