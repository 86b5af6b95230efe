"""Decodes records of tubes and tasks, or refuses them (SPEC T14, J2).

The layout is core/outbox/tube_records.py's. No length in the bytes is trusted.
"""

from typing import Final, final

from librt.strings import read_i16_le, read_i32_le, read_i64_le
from mypy_extensions import i32, i64, u8

from tuque.core.model.job_id import ID_BYTES
from tuque.core.model.task import BURIED, BYTES, DELAYED, FAR, MSGPACK, READY, TAKEN, Task, whole_s
from tuque.core.outbox.records import GRANT, SESSION, TASK_ADD, TASK_STATE, TUBE, TUBE_DROP
from tuque.core.outbox.tube_records import (
    ADD_FIXED,
    CFG_BEFORE,
    CFG_FIXED,
    GRANT_FIXED,
    SESSION_FIXED,
    STATE_FIXED,
    TUBE_FIXED,
)

CALL_AND_TRUNCATE: Final = 3  # the highest bits of a grant


@final
class TaskRecord:
    """One decoded record; only the fields of its kind are valid."""

    def __init__(self) -> None:
        self.id = b""
        self.status: i64 = 0
        self.form: i64 = 0
        self.is_whole = False  # TASK_ADD: all of the task
        self.number: i64 = 0  # also of a tube, a session
        self.pri: i64 = 0
        self.created_ms: i64 = 0
        self.ctime_ns: i64 = 0
        self.delay_s: i64 = 0
        self.ttl_ms: i64 = 0
        self.ttr_ms: i64 = 0
        self.qtime_ms: i64 = 0  # of a session: its end
        self.token: i64 = 0
        self.owner: i64 = 0
        self.taken_ms: i64 = 0
        self.nacks: i64 = 0
        self.deliveries: i64 = 0
        self.delivered_count: i64 = 0
        self.first_ms: i64 = 0
        self.last_ms: i64 = 0
        self.queue = b""  # of a tube: its name
        self.subqueue = b""
        self.body = b""
        self.next_number: i64 = 0
        self.capacity: i64 = 0
        self.flag = False  # temporary, is over, in_replicaset
        self.names: list[bytes] = []
        self.uuid = b""
        self.user = b""  # of a grant: its holder
        self.prefix = b""
        self.bits: i64 = 0  # of a grant


def decode_task(kind: i64, data: bytes, at: i64, end: i64, r: TaskRecord) -> bool:
    """Decode the rest of a record after its kind. False if it is malformed."""
    if kind == TASK_ADD:
        return decode_add(data, at, end, r)
    if kind == TASK_STATE:
        if end - at != ID_BYTES + 1 + STATE_FIXED:
            return False
        r.id = data[at : at + ID_BYTES]
        r.status = data[at + ID_BYTES]
        return is_status(r.status) and decode_state(data, at + ID_BYTES + 1, r)
    if kind == TUBE:
        return decode_tube(data, at, end, r)
    if kind == TUBE_DROP:
        r.queue = data[at:end]
        return end > at
    if kind == SESSION:
        if end - at < SESSION_FIXED:
            return False
        r.number = read_i64_le(data, at)
        r.qtime_ms = read_i64_le(data, at + 8)
        r.flag = data[at + 16] != 0
        r.uuid = data[at + 17 : at + 33]
        r.user = data[at + 33 : end]
        return r.number > 0 and r.qtime_ms >= 0
    if kind == GRANT:
        return decode_grant(data, at, end, r)
    if end - at != CFG_FIXED and end - at != CFG_BEFORE:
        return False
    r.ttr_ms = read_i64_le(data, at)
    r.flag = data[at + 8] != 0
    r.token = read_i64_le(data, at + 9) if end - at == CFG_FIXED else 0
    return r.ttr_ms >= 0 and r.token >= 0


def decode_grant(data: bytes, at: i64, end: i64, r: TaskRecord) -> bool:
    """Decode the rest of a GRANT."""
    if end - at < GRANT_FIXED:
        return False
    r.bits = data[at]
    tube_size: i64 = i64(read_i16_le(data, at + 1))
    prefix_size: i64 = i64(read_i16_le(data, at + 3))
    at += GRANT_FIXED
    if tube_size < 1 or prefix_size < 0:
        return False
    r.queue = data[at : at + tube_size]
    r.prefix = data[at + tube_size : at + tube_size + prefix_size]
    r.user = data[at + tube_size + prefix_size : end]
    return len(r.user) > 0 and r.bits <= CALL_AND_TRUNCATE  # no user: a length is too large


def is_status(status: i64) -> bool:
    """Whether a stored task can have this status."""
    return status in (READY, TAKEN, DELAYED, BURIED)


def decode_tube(data: bytes, at: i64, end: i64, r: TaskRecord) -> bool:
    """Decode the rest of a TUBE."""
    if end - at < TUBE_FIXED:
        return False
    r.number = read_i64_le(data, at)
    r.next_number = read_i64_le(data, at + 8)
    r.ttl_ms = read_i64_le(data, at + 16)
    r.ttr_ms = read_i64_le(data, at + 24)
    r.pri = read_i64_le(data, at + 32)
    r.capacity = read_i64_le(data, at + 40)
    r.flag = data[at + 48] != 0
    lengths: i64 = at + 49
    at += TUBE_FIXED
    r.names = []
    for i in range(5):
        size: i64 = i64(read_i16_le(data, lengths + 2 * i))
        if size < 0 or size > end - at:
            return False
        r.names.append(data[at : at + size])
        at += size
    r.queue = r.names[0]
    if r.number < 0 or r.next_number < 0 or r.ttl_ms < 0 or r.ttr_ms < 0:
        return False
    return at == end and len(r.queue) > 0


def decode_add(data: bytes, at: i64, end: i64, r: TaskRecord) -> bool:
    """Decode the rest of a TASK_ADD."""
    if end - at < ADD_FIXED + STATE_FIXED:
        return False
    r.id = data[at : at + ID_BYTES]
    at += ID_BYTES
    r.status = data[at]
    r.form = data[at + 1]
    r.number = read_i64_le(data, at + 2)
    r.pri = read_i64_le(data, at + 10)
    r.created_ms = read_i64_le(data, at + 18)
    r.ctime_ns = read_i64_le(data, at + 26)
    r.delay_s = i64(read_i32_le(data, at + 34))
    queue_size: i64 = i64(read_i32_le(data, at + 38))
    key_size: i64 = i64(read_i32_le(data, at + 42))
    at += ADD_FIXED - ID_BYTES
    if not decode_state(data, at, r):
        return False
    at += STATE_FIXED
    if queue_size < 1 or key_size < 0 or queue_size + key_size > end - at:
        return False
    r.queue = data[at : at + queue_size]
    at += queue_size
    r.subqueue = data[at : at + key_size]
    r.body = data[at + key_size : end]
    if not is_status(r.status) or r.form < BYTES or r.form > MSGPACK:
        return False
    return r.number >= 0 and r.created_ms >= 0 and r.ctime_ns >= 0 and r.delay_s >= 0


def decode_state(data: bytes, at: i64, r: TaskRecord) -> bool:
    """Decode the part that both task records share. The caller has checked its length."""
    r.ttl_ms = read_i64_le(data, at)
    r.ttr_ms = read_i64_le(data, at + 8)
    r.qtime_ms = read_i64_le(data, at + 16)
    r.token = read_i64_le(data, at + 24)
    r.owner = read_i64_le(data, at + 32)
    r.taken_ms = read_i64_le(data, at + 40)
    r.nacks = i64(read_i32_le(data, at + 48))
    r.deliveries = i64(read_i32_le(data, at + 52))
    r.delivered_count = i64(read_i32_le(data, at + 56))
    r.first_ms = read_i64_le(data, at + 60)
    r.last_ms = read_i64_le(data, at + 68)
    if r.ttl_ms < 0 or r.ttr_ms < 0 or r.qtime_ms < 0 or r.token < 0 or r.owner < 0:
        return False
    return r.nacks >= 0 and r.deliveries >= 0 and r.delivered_count >= 0


def task_of(r: TaskRecord) -> Task:
    """Build a task from a TASK_ADD."""
    task = Task(r.id, r.queue, r.body, r.ctime_ns, r.number, r.pri, r.form)
    task.subqueue = r.subqueue
    task.created_ms = r.created_ms
    task.delay_s = i32(r.delay_s)
    renew_task(task, r)
    return task


def renew_task(task: Task, r: TaskRecord) -> None:
    """Update a task from either record. Its tube sets its state and expiry."""
    task.status = u8(r.status)
    task.ttl_ms = r.ttl_ms
    task.ttr_ms = r.ttr_ms
    task.retry_s = whole_s(r.ttr_ms if r.ttr_ms > 0 else 1)
    task.qtime_ms = r.qtime_ms
    task.token = r.token
    task.owner = r.owner
    task.taken_ms = r.taken_ms
    task.nacks = i32(r.nacks)
    task.deliveries = i32(r.deliveries)
    task.delivered_count = i32(r.delivered_count)
    task.first_ms = r.first_ms
    task.last_ms = r.last_ms
    task.dead_ms = FAR
