"""Decodes journal records; one that is cut or exceeds its length is refused (SPEC J2).

Layouts and bounds are those of core/msgs/packed.py. No length in the bytes is trusted.
"""

from typing import final

from librt.strings import read_i32_le, read_i64_le
from mypy_extensions import i32, i64, u8

from tuque.core.model.job import ACKED, LEVEL, LEVEL_MAX, Job
from tuque.core.model.job_id import ID_BYTES
from tuque.core.msgs.layout import BadRow
from tuque.core.msgs.packed import ADD_BYTES, FIRST_BYTES, HISTORY_BYTES, STATE_BYTES
from tuque.core.msgs.records import KINDS, TABLE, Row
from tuque.core.records.jobs import (
    ACK,
    ADD,
    CLOSE,
    FIRST,
    HAS_HISTORY,
    HAS_HOLDERS,
    HAS_LEVEL,
    HOLDERS,
    KEY,
    KIND_NAMES,
    LEASE_BATCH,
    LIFE,
    OUTCOME,
    REMOVE,
    STAGED,
    STATE,
    TASK_ADD,
    TASK_STATE,
    TOMB,
    TUBE_HOME,
)
from tuque.core.records.leases import LeaseRecord, decode_batch
from tuque.core.records.staged import StageRecord, decode_stage
from tuque.core.records.tubes import HomeRecord, TaskRecord, decode_home, decode_task
from tuque.core.records.work import LifeRecord, decode_life, decode_outcome


class BadRecord(Exception):
    """Bytes that are not a record; their checksum was right or not checked yet."""


@final
class Record:
    """One decoded record; only the fields of its kind are valid."""

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
        self.holders: i64 = 1
        self.level: i64 = LEVEL
        self.bits: i64 = 0  # REMOVE: cause, TOMB: kind
        self.lease = LeaseRecord()
        self.stage = StageRecord()
        self.task = TaskRecord()
        self.home = HomeRecord()
        self.life = LifeRecord()
        self.row: Row | None = None  # of core/msgs/records.py


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
    if has_id(kind):
        if end - at < ID_BYTES:
            raise BadRecord("record too short")
        r.id = data[at : at + ID_BYTES]
        at += ID_BYTES
        at = decode_job_record(data, at, end, r)
    else:
        at = decode_other(data, at, end, r)
    if at != end:
        raise BadRecord("record longer than its kind")
    return end


def decode_job_record(data: bytes, at: i64, end: i64, r: Record) -> i64:
    """Decode the rest of a record about one job, after its id."""
    kind = r.kind
    if kind == ADD:
        return decode_add(data, at, end, r)
    if kind == STATE:
        return decode_state(data, at, end, r)
    if kind == FIRST:
        return decode_first(data, at, end, r)
    if kind == REMOVE:
        need(at, 1, end)
        r.bits = data[at]
        return at + 1
    if kind == ACK:
        need(at, 8, end)
        r.expire_ms = read_i64_le(data, at)
        return at + 8
    if kind >= LIFE:
        if kind == LIFE:
            is_whole = decode_life(data, at, end, r.life)
        else:
            is_whole = decode_outcome(r.id, data, at, end, r.life)
        if not is_whole:
            raise BadRecord("life of a job out of range")
        return end
    return decode_set(data, at, end, r)


def decode_other(data: bytes, at: i64, end: i64, r: Record) -> i64:
    """Decode the rest of a record that is not about one job."""
    kind = r.kind
    if kind in (TASK_ADD, TASK_STATE):
        if not decode_task(kind, data, at, end, r.task):
            raise BadRecord("task out of range")
        return end
    if kind in KINDS:
        try:
            r.row = TABLE.unpack(kind, data, at, end)
        except BadRow as error:
            raise BadRecord(f"{KIND_NAMES[kind]} out of range: {error}") from None
        return end
    if kind == LEASE_BATCH:
        if not decode_batch(data, at, end, r.lease):
            raise BadRecord("lease out of range")
        return end
    if kind in (STAGED, KEY):
        if not decode_stage(kind, data, at, end, r.stage):
            raise BadRecord("staged write out of range")
        return end
    if kind == TUBE_HOME:
        if not decode_home(data, at, end, r.home):
            raise BadRecord("home of a tube out of range")
        return end
    if kind != CLOSE:
        raise BadRecord("unknown kind of record")
    return at


def has_id(kind: i64) -> bool:
    """Whether a record of this kind is about one job."""
    return ADD <= kind <= REMOVE or HOLDERS <= kind <= TOMB or LIFE <= kind <= OUTCOME


def need(at: i64, size: i64, end: i64) -> None:
    """Raise BadRecord unless `size` bytes are left."""
    if end - at < size:
        raise BadRecord("record too short")


def decode_add(data: bytes, at: i64, end: i64, r: Record) -> i64:
    """Decode the rest of an ADD after its id."""
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
    r.holders = 1
    if shape & HAS_HOLDERS:
        need(at, 8, end)
        r.holders = read_i64_le(data, at)
        at += 8
    r.level = LEVEL
    if shape & HAS_LEVEL:
        need(at, 1, end)
        r.level = data[at]
        at += 1
    need(at, 4, end)
    queue_size: i64 = i64(read_i32_le(data, at))
    at += 4
    if queue_size < 0 or queue_size > end - at:
        raise BadRecord("queue name longer than its record")
    if (r.repl | r.retry_s | r.delay_s | r.ctime_ns | r.expire_ms | r.holders) < 0:
        raise BadRecord("negative field")
    if r.level > LEVEL_MAX:
        raise BadRecord("level out of range")
    r.queue = data[at : at + queue_size]
    r.body = data[at + queue_size : end]
    return end


def decode_state(data: bytes, at: i64, end: i64, r: Record) -> i64:
    """Decode the rest of a STATE after its id."""
    need(at, STATE_BYTES - 1 - ID_BYTES, end)
    shape: i64 = data[at + 2]
    if shape & ~HAS_HISTORY:
        raise BadRecord("state or shape out of range")
    decode_bits(data, at, shape, r)
    r.qtime_ms = read_i64_le(data, at + 3)
    return decode_history(data, at + 11, end, shape, r)


def decode_first(data: bytes, at: i64, end: i64, r: Record) -> i64:
    """Decode the rest of a FIRST after its id."""
    need(at, FIRST_BYTES - 1 - ID_BYTES, end)
    decode_bits(data, at, 0, r)
    r.qtime_ms = read_i64_le(data, at + 2)
    r.nacks = 0
    r.deliveries = 0
    r.delivered_count = 1
    r.first_ms = read_i64_le(data, at + 10)
    r.last_ms = r.first_ms
    return at + 18


def decode_set(data: bytes, at: i64, end: i64, r: Record) -> i64:
    """Decode the rest of a HOLDERS, ACKED or TOMB after its id."""
    need(at, 8, end)
    first = read_i64_le(data, at)
    at += 8
    if first < 0:
        raise BadRecord("negative field")
    if r.kind == HOLDERS:
        r.holders = first
        return at
    r.expire_ms = first
    if r.kind == TOMB:
        need(at, 1, end)
        r.bits = data[at]
        return at + 1
    need(at, 8, end)
    r.holders = read_i64_le(data, at)
    if r.holders < 0:
        raise BadRecord("negative field")
    return at + 8


def decode_bits(data: bytes, at: i64, shape: i64, r: Record) -> None:
    """Decode state and flags, checked like `shape`."""
    r.state = data[at]
    r.flags = data[at + 1]
    if r.state > ACKED or shape > HAS_HISTORY | HAS_HOLDERS | HAS_LEVEL:
        raise BadRecord("state or shape out of range")


def decode_history(data: bytes, at: i64, end: i64, shape: i64, r: Record) -> i64:
    """Decode the history if the record has one, else set zeros."""
    if shape & HAS_HISTORY == 0:
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
    if (r.nacks | r.deliveries | r.delivered_count) < 0:
        raise BadRecord("negative counter")
    return at + HISTORY_BYTES


def job_of(r: Record) -> Job:
    """Build a job from an ADD record."""
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
    job.holders = r.holders
    job.level = u8(r.level)
    return job


def replace(job: Job, r: Record) -> None:
    """Update a known job from an ADD: a dead letter's queue changes, UPDATEJOB changes the body."""
    job.queue = r.queue
    job.body = r.body
    job.delay_s = i32(r.delay_s)
    job.expire_ms = r.expire_ms
    renew(job, r)


def renew(job: Job, r: Record) -> None:
    """Update a job from an ADD, STATE or FIRST record."""
    job.state = u8(r.state)
    job.flags = u8(r.flags)
    job.qtime_ms = r.qtime_ms
    job.nacks = i32(r.nacks)
    job.deliveries = i32(r.deliveries)
    job.delivered_count = i32(r.delivered_count)
    job.first_ms = r.first_ms
    job.last_ms = r.last_ms
