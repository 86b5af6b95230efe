"""What the journal must know of a change, encoded at the moment of the change (SPEC J2).

The core calls one function per change; each appends one record to a buffer that the
shell takes once a turn and writes as one frame. Every record is absolute, so that
replaying one twice changes nothing. The decoder beside it trusts no length. This
module does not know of files, frames or checksums (store/journal.py).

Layout, little-endian: length of the rest i32, kind u8, then by kind

    ADD     id 40, state u8, flags u8, shape u8, repl i32, retry_s i32, delay_s i32,
            ctime_ns i64, expire_ms i64, qtime_ms i64, [history], queue length i32,
            queue, body
    STATE   id 40, state u8, flags u8, shape u8, qtime_ms i64, [history]
    FIRST   id 40, state u8, flags u8, qtime_ms i64, instant of the only delivery i64
    ACK     id 40, expire_ms i64
    REMOVE  id 40, cause u8
    PAUSE   bits u8, queue
    END     jobs i64, records i64        the last record of a snapshot
    GAP     records i64, bytes i64       what `journal repair` had to take out here
    CLOSE                                the server stopped in good order

where history, present when shape is 1, is nacks i32, deliveries i32, delivered_count
i32, first_ms i64, last_ms i64.
"""

# Checklist for a change of a layout: raise VERSION in store/journal.py, keep reading the
# old layout (the reader knows the version of its file), extend tests/store/test_records.py.

from typing import Final, final

from librt.strings import (
    BytesWriter,
    read_i32_le,
    read_i64_le,
    write_i32_le,
    write_i64_le,
)
from mypy_extensions import i32, i64, u8

from tuque.core.ids import ID_BYTES
from tuque.core.job import ACKED, Job

ADD: Final = 1
STATE: Final = 2
FIRST: Final = 3
ACK: Final = 4
REMOVE: Final = 5
PAUSE: Final = 6
END: Final = 7
GAP: Final = 8
CLOSE: Final = 9

KIND_NAMES: Final = ["?", "add", "state", "first", "ack", "remove", "pause", "end", "gap", "close"]

HISTORY_BYTES: Final = 28
ADD_BYTES: Final = 84  # kind to queue length, without history
STATE_BYTES: Final = 52
FIRST_BYTES: Final = 59
ACK_BYTES: Final = 49
REMOVE_BYTES: Final = 42

KEEP_BYTES: Final = 1 << 20  # a buffer larger than this is given back after use


class BadRecord(Exception):
    """Bytes that are no record, although their checksum was right or not yet looked at."""


@final
class Records:
    """The records of one turn, encoded back to back; `take` empties it."""

    def __init__(self) -> None:
        self.writer = BytesWriter()
        self.count: i64 = 0
        # Records so far whose loss a client could notice. A first delivery of an
        # at-least-once job is none: without it the job is only delivered once more.
        self.binding_count: i64 = 0
        # An at-most-once job was handed out this turn: the reply must wait for the disk.
        self.has_custody = False

    def add(self, job: Job) -> None:
        """All of a job that is new here (or, in a snapshot, all of a job)."""
        if job.state == ACKED:
            self.ack(job.id, job.expire_ms)
            return
        w = self.writer
        size: i64 = ADD_BYTES + len(job.queue) + len(job.body)
        has_history = job.delivered_count != 0 or job.nacks != 0 or job.deliveries != 0
        if has_history:
            size += HISTORY_BYTES
        write_i32_le(w, i32(size))
        w.append(ADD)
        w.write(job.id)
        w.append(job.state)
        w.append(job.flags)
        w.append(1 if has_history else 0)
        write_i32_le(w, job.repl)
        write_i32_le(w, job.retry_s)
        write_i32_le(w, job.delay_s)
        write_i64_le(w, job.ctime_ns)
        write_i64_le(w, job.expire_ms)
        write_i64_le(w, job.qtime_ms)
        if has_history:
            self.history(job)
        write_i32_le(w, i32(len(job.queue)))
        w.write(job.queue)
        w.write(job.body)
        self.count += 1
        self.binding_count += 1

    def state(self, job: Job) -> None:
        """All that can change in a job: delivered, queued again, NACKed, worked on."""
        w = self.writer
        is_first = (
            job.delivered_count == 1
            and job.nacks == 0
            and job.deliveries == 0
            and job.first_ms == job.last_ms
        )
        if is_first:
            write_i32_le(w, i32(FIRST_BYTES))
            w.append(FIRST)
            w.write(job.id)
            w.append(job.state)
            w.append(job.flags)
            write_i64_le(w, job.qtime_ms)
            write_i64_le(w, job.last_ms)
        else:
            write_i32_le(w, i32(STATE_BYTES + HISTORY_BYTES))
            w.append(STATE)
            w.write(job.id)
            w.append(job.state)
            w.append(job.flags)
            w.append(1)
            write_i64_le(w, job.qtime_ms)
            self.history(job)
        self.count += 1
        if job.retry_s == 0:
            self.has_custody = True
            self.binding_count += 1
        elif not is_first:
            self.binding_count += 1

    def history(self, job: Job) -> None:
        """The counters and instants of a job's deliveries."""
        w = self.writer
        write_i32_le(w, job.nacks)
        write_i32_le(w, job.deliveries)
        write_i32_le(w, job.delivered_count)
        write_i64_le(w, job.first_ms)
        write_i64_le(w, job.last_ms)

    def holders(self, job: Job) -> None:
        """The nodes that may have a copy of the job changed."""

    def ack(self, job_id: bytes, expire_ms: i64) -> None:
        """The job is done; its id is refused until `expire_ms`."""
        w = self.writer
        write_i32_le(w, i32(ACK_BYTES))
        w.append(ACK)
        w.write(job_id)
        write_i64_le(w, expire_ms)
        self.count += 1
        self.binding_count += 1

    def ack_job(self, job: Job) -> None:
        """The job is done, and other nodes that may have a copy are still to hear of it."""
        self.ack(job.id, job.expire_ms)

    def remove(self, job_id: bytes, cause: i64) -> None:
        """The job left for another cause of core/ledger.py."""
        w = self.writer
        write_i32_le(w, i32(REMOVE_BYTES))
        w.append(REMOVE)
        w.write(job_id)
        w.append(cause)
        self.count += 1
        self.binding_count += 1

    def pause(self, queue: bytes, bits: i64) -> None:
        """The queue's pause is now `bits` (0: not paused)."""
        w = self.writer
        write_i32_le(w, i32(2 + len(queue)))
        w.append(PAUSE)
        w.append(bits)
        w.write(queue)
        self.count += 1
        self.binding_count += 1

    def end(self, job_count: i64, record_count: i64) -> None:
        """Close a snapshot of that many jobs and records before this one."""
        self.pair(END, job_count, record_count)

    def gap(self, record_count: i64, byte_count: i64) -> None:
        """Stand for records that damage made unreadable."""
        self.pair(GAP, record_count, byte_count)

    def pair(self, kind: i64, first: i64, second: i64) -> None:
        """A record of two numbers."""
        w = self.writer
        write_i32_le(w, 17)
        w.append(kind)
        write_i64_le(w, first)
        write_i64_le(w, second)
        self.count += 1
        self.binding_count += 1

    def close(self) -> None:
        """The server stops in good order."""
        write_i32_le(self.writer, 1)
        self.writer.append(CLOSE)
        self.count += 1
        self.binding_count += 1

    def take(self) -> bytes:
        """All records since the last call, back to back."""
        w = self.writer
        payload = w.getvalue()
        if len(payload) > KEEP_BYTES:
            self.writer = BytesWriter()
        else:
            w.truncate(0)
        self.count = 0
        self.has_custody = False
        return payload


@final
class Record:
    """One decoded record; only the fields of its kind mean something."""

    def __init__(self) -> None:
        self.kind: i64 = 0
        self.id = b""
        self.queue = b""
        self.body = b""
        self.state: i64 = 0
        self.flags: i64 = 0
        self.repl: i64 = 0
        self.retry_s: i64 = 0
        self.delay_s: i64 = 0
        self.ctime_ns: i64 = 0
        self.expire_ms: i64 = 0
        self.qtime_ms: i64 = 0
        self.nacks: i64 = 0
        self.deliveries: i64 = 0
        self.delivered_count: i64 = 0
        self.first_ms: i64 = 0
        self.last_ms: i64 = 0
        self.bits: i64 = 0  # PAUSE: bits, REMOVE: cause
        self.a: i64 = 0  # END: jobs, GAP: records
        self.b: i64 = 0  # END: records, GAP: bytes


def decode(data: bytes, start: i64, r: Record) -> i64:
    """Read the record at `start` into `r`; returns where the next one begins.

    Raises BadRecord for anything but one whole record of a known kind.
    """
    total: i64 = len(data)
    if start < 0 or start + 5 > total:
        raise BadRecord("record cut off")
    size: i64 = i64(read_i32_le(data, start))
    at = start + 4
    end = at + size
    if size < 1 or end > total:
        raise BadRecord("record length out of range")
    kind: i64 = data[at]
    r.kind = kind
    at += 1
    if ADD <= kind <= REMOVE:
        if end - at < ID_BYTES:
            raise BadRecord("record too short")
        r.id = data[at : at + ID_BYTES]
        at += ID_BYTES
    if kind == ADD:
        at = decode_add(data, at, end, r)
    elif kind == STATE:
        at = decode_state(data, at, end, r)
    elif kind == FIRST:
        at = decode_first(data, at, end, r)
    elif kind == ACK:
        need(at, 8, end)
        r.expire_ms = read_i64_le(data, at)
        at += 8
    elif kind == REMOVE:
        need(at, 1, end)
        r.bits = data[at]
        at += 1
    elif kind == PAUSE:
        need(at, 1, end)
        r.bits = data[at]
        r.queue = data[at + 1 : end]
        at = end
    elif END <= kind <= GAP:
        need(at, 16, end)
        r.a = read_i64_le(data, at)
        r.b = read_i64_le(data, at + 8)
        at += 16
    elif kind != CLOSE:
        raise BadRecord("unknown kind of record")
    if at != end:
        raise BadRecord("record longer than its kind")
    return end


def need(at: i64, size: i64, end: i64) -> None:
    """Raise BadRecord unless `size` bytes are left."""
    if end - at < size:
        raise BadRecord("record too short")


def decode_add(data: bytes, at: i64, end: i64, r: Record) -> i64:
    """The rest of an ADD after its id."""
    need(at, ADD_BYTES - 1 - ID_BYTES, end)
    shape: i64 = data[at + 2]
    decode_bits(data, at, shape, r)
    r.repl = i64(read_i32_le(data, at + 3))
    r.retry_s = i64(read_i32_le(data, at + 7))
    r.delay_s = i64(read_i32_le(data, at + 11))
    r.ctime_ns = read_i64_le(data, at + 15)
    r.expire_ms = read_i64_le(data, at + 23)
    r.qtime_ms = read_i64_le(data, at + 31)
    at = decode_history(data, at + 39, end, shape, r)
    need(at, 4, end)
    queue_size: i64 = i64(read_i32_le(data, at))
    at += 4
    if queue_size < 0 or queue_size > end - at:
        raise BadRecord("queue name longer than its record")
    if r.repl < 0 or r.retry_s < 0 or r.delay_s < 0 or r.ctime_ns < 0 or r.expire_ms < 0:
        raise BadRecord("negative field")
    r.queue = data[at : at + queue_size]
    r.body = data[at + queue_size : end]
    return end


def decode_state(data: bytes, at: i64, end: i64, r: Record) -> i64:
    """The rest of a STATE after its id."""
    need(at, STATE_BYTES - 1 - ID_BYTES, end)
    shape: i64 = data[at + 2]
    decode_bits(data, at, shape, r)
    r.qtime_ms = read_i64_le(data, at + 3)
    return decode_history(data, at + 11, end, shape, r)


def decode_first(data: bytes, at: i64, end: i64, r: Record) -> i64:
    """The rest of a FIRST after its id."""
    need(at, FIRST_BYTES - 1 - ID_BYTES, end)
    decode_bits(data, at, 0, r)
    r.qtime_ms = read_i64_le(data, at + 2)
    r.nacks = 0
    r.deliveries = 0
    r.delivered_count = 1
    r.first_ms = read_i64_le(data, at + 10)
    r.last_ms = r.first_ms
    return at + 18


def decode_bits(data: bytes, at: i64, shape: i64, r: Record) -> None:
    """State and flags, checked like `shape`."""
    r.state = data[at]
    r.flags = data[at + 1]
    if r.state >= ACKED or shape > 1:
        raise BadRecord("state or shape out of range")


def decode_history(data: bytes, at: i64, end: i64, shape: i64, r: Record) -> i64:
    """The history when the record has one, else zeros."""
    if shape == 0:
        r.nacks = 0
        r.deliveries = 0
        r.delivered_count = 0
        r.first_ms = 0
        r.last_ms = 0
        return at
    need(at, HISTORY_BYTES, end)
    r.nacks = i64(read_i32_le(data, at))
    r.deliveries = i64(read_i32_le(data, at + 4))
    r.delivered_count = i64(read_i32_le(data, at + 8))
    r.first_ms = read_i64_le(data, at + 12)
    r.last_ms = read_i64_le(data, at + 20)
    if r.nacks < 0 or r.deliveries < 0 or r.delivered_count < 0:
        raise BadRecord("negative counter")
    return at + HISTORY_BYTES


def job_of(r: Record) -> Job:
    """A job as an ADD record tells it."""
    job = Job(
        r.id,
        r.queue,
        r.body,
        r.ctime_ns,
        r.expire_ms,
        i32(r.retry_s),
        i32(r.delay_s),
        i32(r.repl),
    )
    renew(job, r)
    return job


def renew(job: Job, r: Record) -> None:
    """Give the job the changeable fields of an ADD, STATE or FIRST record."""
    job.state = u8(r.state)
    job.flags = u8(r.flags)
    job.qtime_ms = r.qtime_ms
    job.nacks = i32(r.nacks)
    job.deliveries = i32(r.deliveries)
    job.delivered_count = i32(r.delivered_count)
    job.first_ms = r.first_ms
    job.last_ms = r.last_ms
