"""The journal's records of leases, encoded at the moment of change (SPEC Y9, J2).

They follow the rules of core/records.py: absolute, each complete in itself. A batch of
many jobs is several records, back to back in one frame. Layout, after length and kind:

    LEASE_GROUP  epoch i64, last i64, acked i64, floor i64, ttl_ms i64, used_ms i64,
                 names: how many i32, then each as length i32 and bytes: group, owner, queues
    LEASE_BATCH  epoch i64, seq i64, parts i32, how u8, drop_ms i64, at_ms i64, body bytes i64,
                 positions i32, first position here i32, positions here i32,
                 each an id 40 and mark i32, then the group
    LEASE_DROP   epoch i64, seq i64, the group

`floor` -1 says that the group is unknown from now on.
"""

from typing import Final

from librt.strings import BytesWriter, write_i32_le, write_i64_le
from mypy_extensions import i32, i64

from tuque.core.job import Job
from tuque.core.leases import Batch, Group, is_leased
from tuque.core.records import LEASE_BATCH, LEASE_DROP, LEASE_GROUP, Records

HOW_EXPIRED: Final = 1  # its jobs are back in their queues
HOW_TAKEN: Final = 2  # its jobs were handed out at `at_ms`: the record says so of each of them

GROUP_FIXED: Final = 53  # kind to the number of names
BATCH_FIXED: Final = 58  # kind to the first position
DROP_FIXED: Final = 17
POSITION_BYTES: Final = 44
POSITIONS_MAX: Final = 10_000  # in one record


def tell_group(records: Records, g: Group) -> None:
    """All of a group but its batches."""
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
    """All of a batch; `is_taken`: its jobs were handed out just now.

    Then the reply waits for the disk (Y9.5): its number may stand in a checkpoint.
    """
    first: i64 = 0
    if is_taken:
        records.has_custody = True
    while first < b.count:
        tell_positions(records, g, b, now_ms, is_taken, first)
        first += POSITIONS_MAX


def tell_positions(
    records: Records, g: Group, b: Batch, now_ms: i64, is_taken: bool, first: i64
) -> None:
    """One record: up to POSITIONS_MAX positions of the batch."""
    end: i64 = min(first + POSITIONS_MAX, b.count)
    how: i64 = HOW_TAKEN if is_taken else 0
    if b.is_expired:
        how |= HOW_EXPIRED
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
            write_i32_le(w, i32(b.marks[i]))
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
        if is_leased(job):
            write_i32_le(w, job.delivered_count)
        else:
            write_i32_le(w, -1)
        i += 1


def tell_drop(records: Records, g: Group, seq: i64) -> None:
    """The group has no such batch any more."""
    w = records.writer
    write_i32_le(w, i32(DROP_FIXED + len(g.name)))
    w.append(LEASE_DROP)
    write_i64_le(w, g.epoch)
    write_i64_le(w, seq)
    w.write(g.name)
    records.count += 1
    records.binding_count += 1
