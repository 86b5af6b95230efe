"""Reads the append-only file of Disque 1.0 (SPEC J8): RESP arrays of LOADJOB and DELJOB.

A LOADJOB argument is the job as Disque serialises it, little-endian:

    0 length of the rest u32 · 4 id 40 · 44 state (low nibble) u8 · 45 flags u8 ·
    46 repl u16 · 48 expiry, unix s u32 · 52 ctime ns u64 · 60 delay s u32 · 64 retry s u32 ·
    68 nacks u16 · 70 additional deliveries u16 · 72 queue length u32, queue ·
    body length u32, body · holder count u32, node ids of 40

Every length is checked against what is there. Holders are read and dropped: they name
nodes of another cluster, the importing node becomes the holder.
"""

from struct import Struct
from typing import Final, final

from mypy_extensions import i32, i64

from tuque.core.model.job import ACKED, ACTIVE, DELIVERED, ONCE_QUEUED, QUEUED, Job
from tuque.core.model.job_id import ID_BYTES, is_job_id
from tuque.store.disk import Disk
from tuque.store.frames import Windowed

_FIXED: Final = Struct("<I40sBBHIQIIHH")  # to the queue length
_U32: Final = Struct("<I")
FIXED_BYTES: Final = 72

MAX_BULK_BYTES: Final = 600 << 20  # Disque takes bodies up to 512 MiB
MAX_S: Final = (1 << 31) - 1

LOAD: Final = 0
DELETE: Final = 1
OTHER: Final = 2
DONE: Final = 3
CUT: Final = 4  # the file ends inside a command
BROKEN: Final = 5  # not RESP here


class BadJob(Exception):
    """A LOADJOB argument that is not a job."""


@final
class AofReader(Windowed):
    """Walks the commands of the file; `argument` belongs to the last LOADJOB or DELJOB."""

    def __init__(self, disk: Disk, path: str) -> None:
        super().__init__(disk, path)
        self.size: i64 = disk.size(path)
        self.offset: i64 = 0
        self.argument = b""
        self.at: i64 = 0  # how far the command at `offset` has been read

    def next(self) -> i64:
        """Read one command: LOAD, DELETE, OTHER, DONE, or CUT and BROKEN without moving."""
        if self.offset >= self.size:
            return DONE
        self.at = self.offset
        count = self.number(b"*")
        if count < 0:
            return count + CUT + 2
        if count == 0 or count > 1024:
            return BROKEN
        word = b""
        for i in range(count):
            size = self.number(b"$")
            if size < 0:
                return size + CUT + 2
            if size > MAX_BULK_BYTES:
                return BROKEN
            data = self.bytes_at(self.at, size + 2)
            if len(data) < size + 2:
                return CUT
            if data[size:] != b"\r\n":
                return BROKEN
            self.at += size + 2
            if i == 0:
                word = data[:size].upper()
            else:
                self.argument = data[:size]
        self.offset = self.at
        if count == 2 and word == b"LOADJOB":
            return LOAD
        if count == 2 and word == b"DELJOB":
            return DELETE
        return OTHER

    def number(self, mark: bytes) -> i64:
        """The number of a `*n` or `$n` line; -2 if truncated, -1 if malformed."""
        line = self.bytes_at(self.at, 16)
        end: i64 = line.find(b"\r\n")
        if end < 0:
            could_be = line == b"" or (line[:1] == mark and line[1:].rstrip(b"\r").isdigit())
            return -2 if len(line) < 16 and (could_be or len(line) == 1) else -1
        if line[:1] != mark or not line[1:end].isdigit():
            return -1
        self.at += end + 2
        return int(line[1:end])

    def resync(self) -> i64:
        """After BROKEN: move to the next LOADJOB or DELJOB; returns the bytes skipped."""
        start = self.offset
        at = start + 1
        while at < self.size:
            self.bytes_at(at, 16)
            window = self.window
            begin = at - self.window_start
            hits = [
                hit
                for hit in (
                    window.find(b"*2\r\n$7\r\nLOADJOB\r\n", begin),
                    window.find(b"*2\r\n$6\r\nDELJOB\r\n", begin),
                )
                if hit >= 0
            ]
            if hits:
                self.offset = self.window_start + min(hits)
                return self.offset - start
            end = self.window_start + len(window)
            if end >= self.size:
                break
            at = end - 20
        self.offset = self.size
        return self.size - start


def decode_job(blob: bytes, now_ms: i64) -> Job:
    """The job of a LOADJOB argument; raises BadJob. `now_ms` is used for due times.

    Disque does not write when jobs are handed out. A job stored as queued comes back
    queued. An active one is due at its delay, or a retry from now when that is over; an
    active at-most-once job whose delay is over may have been handed out, so it counts so.
    """
    total: i64 = len(blob)
    if total < FIXED_BYTES + 12:
        raise BadJob("too short")
    size, job_id, state, flags, repl, etime, ctime, delay, retry, nacks, more = _FIXED.unpack_from(
        blob
    )
    if size != total - 4:
        raise BadJob("length does not fit")
    if not is_job_id(job_id):
        raise BadJob("no job id")
    queue, at = counted(blob, FIXED_BYTES)
    body, at = counted(blob, at)
    if total - at < 4:
        raise BadJob("holder count cut off")
    holders: i64 = _U32.unpack_from(blob, at)[0]
    if total - at - 4 != holders * ID_BYTES:
        raise BadJob("holders do not fit")
    state &= 15
    if state > ACKED or retry > MAX_S or delay > MAX_S or ctime > (1 << 62):
        raise BadJob("field out of range")
    job = Job(job_id, queue, body, ctime, etime * 1000, i32(retry), i32(delay), i32(repl))
    job.nacks = nacks
    job.deliveries = more
    due_ms: i64 = i64(ctime) // 1_000_000 + i64(delay) * 1000
    if state == ACKED:
        job.state = ACKED
    elif state == QUEUED:
        job.state = QUEUED
        job.flags = ONCE_QUEUED
        job.qtime_ms = now_ms + i64(retry) * 1000 if retry > 0 else 0
    else:
        job.state = ACTIVE
        if flags & DELIVERED:
            job.flags |= DELIVERED
        if due_ms > now_ms and not flags & DELIVERED:
            job.qtime_ms = due_ms
        elif retry > 0:
            job.qtime_ms = now_ms + i64(retry) * 1000
        else:
            job.flags |= DELIVERED
    return job


def counted(blob: bytes, at: i64) -> tuple[bytes, i64]:
    """The length-prefixed bytes at `at`, and their end."""
    total: i64 = len(blob)
    if total - at < 4:
        raise BadJob("length cut off")
    size: i64 = _U32.unpack_from(blob, at)[0]
    at += 4
    if size > total - at:
        raise BadJob("field longer than the job")
    return blob[at : at + size], at + size


@final
class Import:
    """The jobs of a Disque AOF after all its commands, and counts of the rest."""

    def __init__(self) -> None:
        self.jobs: dict[bytes, Job] = {}
        self.acked: dict[bytes, int] = {}  # id: expiry
        self.deleted_count: i64 = 0  # DELJOB: acked, or removed for another reason
        self.expired_count: i64 = 0
        self.bad_count: i64 = 0  # invalid commands
        self.bad_bytes: i64 = 0  # skipped because they are not RESP
        self.cut_bytes: i64 = 0  # an unfinished command at the end
        self.notes: list[str] = []


def import_step(reader: AofReader, found: Import, now_ms: i64, budget: i64) -> bool:
    """Read up to `budget` commands into `found`; True at the end of the file."""
    while budget > 0:
        budget -= 1
        offset = reader.offset
        kind = reader.next()
        if kind == LOAD:
            on_loadjob(found, reader.argument, offset, now_ms)
        elif kind == DELETE:
            found.deleted_count += 1
            gone = found.jobs.pop(reader.argument, None)
            if gone is not None:
                found.acked[reader.argument] = gone.expire_ms
        elif kind == OTHER:
            found.bad_count += 1
            found.notes.append(f"offset {offset}: neither LOADJOB nor DELJOB, left out")
        elif kind == BROKEN:
            size = reader.resync()
            found.bad_count += 1
            found.bad_bytes += size
            found.notes.append(f"offset {offset}: {size} bytes are no command, left out")
        else:
            if kind == CUT:
                found.cut_bytes = reader.size - offset
                found.notes.append(f"offset {offset}: the last command is cut off")
            return True
    return False


def on_loadjob(found: Import, blob: bytes, offset: i64, now_ms: i64) -> None:
    """Add the job of one LOADJOB unless it has expired or was acked."""
    try:
        job = decode_job(blob, now_ms)
    except BadJob as e:
        found.bad_count += 1
        found.notes.append(f"offset {offset}: LOADJOB is damaged ({e}), left out")
        return
    if job.id in found.acked:
        return
    if job.state == ACKED:
        found.jobs.pop(job.id, None)
        found.acked[job.id] = job.expire_ms
    elif job.expire_ms <= now_ms:
        found.expired_count += 1
    else:
        found.jobs[job.id] = job
