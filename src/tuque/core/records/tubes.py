"""Journal records of tasks and of leaders of tubes, encoded and decoded (SPEC T14, T22, J2).

Layouts and bounds are in core/msgs/packed.py; those of tubes, sessions, rights and votes are in
core/msgs/records.py. No length in the bytes is trusted.
"""

from typing import Final, final

from librt.strings import (
    BytesWriter,
    read_i32_le,
    read_i64_le,
    write_i32_le,
    write_i64_le,
)
from mypy_extensions import i32, i64, u8

from tuque.core.model.job_id import ID_BYTES
from tuque.core.model.task import (
    BURIED,
    BYTES,
    DELAYED,
    FAR,
    MSGPACK,
    READY,
    TAKEN,
    Entry,
    Task,
    carried_by,
    whole_s,
)
from tuque.core.msgs.packed import (
    HOME_FIXED,
    NODE_ID_BYTES,
    NUMBER_LAST,
    TASK_ADD_FIXED,
    TASK_FIXED,
    TASK_STATE_FIXED,
)
from tuque.core.records.jobs import LIFE, TASK_ADD, TASK_STATE, TUBE_HOME, Records

MINE: Final = 1  # flags: this node leads the tube and has the tasks
COMPLETE: Final = 2  # the replica has all tasks
OWED: Final = 4  # handed to a leader that has not confirmed yet
GONE: Final = 8  # the tube was dropped
FOREIGN: Final = 16  # this node leads it; its tasks are held by sessions of the last leader
BY_VOTE: Final = 32  # votes choose its leader
OTHERS: Final = 128  # of older journals: voters of another list choose its leader
MAJORITY: Final = 64  # a majority of the voters must have a change before its reply

# ---- Encoding


def tell_task(records: Records, task: Task) -> None:
    """All of a task."""
    size: i64 = 1 + TASK_ADD_FIXED + TASK_FIXED
    w = records.writer
    carried = carried_by(task)
    write_i32_le(w, i32(size + len(task.queue) + len(carried) + len(task.body)))
    w.append(TASK_ADD)
    w.write(task.id)
    w.append(task.status)
    w.append(task.form)
    write_i64_le(w, task.number)
    write_i64_le(w, task.pri)
    write_i64_le(w, task.created_ms)
    write_i64_le(w, task.ctime_ns)
    write_i32_le(w, task.delay_s)
    write_i32_le(w, i32(len(task.queue)))
    write_i32_le(w, i32(len(carried)))
    put_state(w, task)
    w.write(task.queue)
    w.write(carried)
    records.body(task.body)
    records.count += 1
    records.binding_count += 1


def tell_task_state(records: Records, task: Task, binds: bool) -> None:
    """All that can change in a task. `binds`: a client could notice its loss."""
    w = records.writer
    write_i32_le(w, 1 + TASK_STATE_FIXED + TASK_FIXED)
    w.append(TASK_STATE)
    w.write(task.id)
    w.append(task.status)
    put_state(w, task)
    records.count += 1
    if binds:
        records.binding_count += 1


def tell_task_life(records: Records, id: bytes, work: bytes) -> None:
    """The life of a task, in the bytes that it carries: a LIFE without its id."""
    w = records.writer
    write_i32_le(w, i32(1 + ID_BYTES + len(work)))
    w.append(LIFE)
    w.write(id)
    w.write(work)
    records.count += 1
    records.binding_count += 1


def put_state(w: BytesWriter, task: Task) -> None:
    """The part that both task records share."""
    write_i64_le(w, task.ttl_ms)
    write_i64_le(w, task.ttr_ms)
    write_i64_le(w, task.qtime_ms)
    write_i64_le(w, task.token)
    write_i64_le(w, task.owner)
    write_i64_le(w, task.taken_ms)
    write_i32_le(w, task.nacks)
    write_i32_le(w, task.deliveries)
    write_i32_le(w, task.delivered_count)
    write_i64_le(w, task.first_ms)
    write_i64_le(w, task.last_ms)


# ---- Decoding


@final
class TaskRecord:
    """One decoded record; only the fields of its kind are valid."""

    def __init__(self) -> None:
        self.id = b""
        self.status: i64 = 0
        self.form: i64 = 0
        self.is_whole = False  # TASK_ADD: all of the task
        self.number: i64 = 0
        self.pri: i64 = 0
        self.created_ms: i64 = 0
        self.ctime_ns: i64 = 0
        self.delay_s: i64 = 0
        self.ttl_ms: i64 = 0
        self.ttr_ms: i64 = 0
        self.qtime_ms: i64 = 0
        self.token: i64 = 0
        self.owner: i64 = 0
        self.taken_ms: i64 = 0
        self.nacks: i64 = 0
        self.deliveries: i64 = 0
        self.delivered_count: i64 = 0
        self.first_ms: i64 = 0
        self.last_ms: i64 = 0
        self.queue = b""
        self.subqueue = b""
        self.entry: Entry | None = None  # in `subqueue`, once its tube has looked
        self.body = b""


def decode_task(kind: i64, data: bytes, at: i64, end: i64, r: TaskRecord) -> bool:
    """Decode the rest of a record after its kind. False if it is malformed."""
    r.is_whole = kind == TASK_ADD
    if r.is_whole:
        return decode_add(data, at, end, r)
    if end - at != TASK_STATE_FIXED + TASK_FIXED:
        return False
    r.id = data[at : at + ID_BYTES]
    r.status = data[at + ID_BYTES]
    return is_status(r.status) and decode_state(data, at + ID_BYTES + 1, r)


def is_status(status: i64) -> bool:
    """Whether a stored task can have this status."""
    return status in (READY, TAKEN, DELAYED, BURIED)


def decode_add(data: bytes, at: i64, end: i64, r: TaskRecord) -> bool:
    """Decode the rest of a TASK_ADD."""
    if end - at < TASK_ADD_FIXED + TASK_FIXED:
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
    at += TASK_ADD_FIXED - ID_BYTES
    if not decode_state(data, at, r):
        return False
    at += TASK_FIXED
    if queue_size < 1 or key_size < 0 or queue_size + key_size > end - at:
        return False
    r.queue = data[at : at + queue_size]
    at += queue_size
    r.subqueue = data[at : at + key_size]
    r.body = data[at + key_size : end]
    if not is_status(r.status) or r.form < BYTES or r.form > MSGPACK:
        return False
    return 0 <= r.number | r.pri | r.created_ms <= NUMBER_LAST and (r.ctime_ns | r.delay_s) >= 0


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
    instants = r.qtime_ms | r.taken_ms | r.first_ms | r.last_ms
    if not 0 <= instants | r.ttl_ms | r.ttr_ms | r.token | r.owner <= NUMBER_LAST:
        return False  # the bits of all: NUMBER_LAST has only ones
    return (r.nacks | r.deliveries | r.delivered_count) >= 0


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


# ---- The leader of a tube, and what this node has of it (SPEC T22)


@final
class HomeRecord:
    """All of the record."""

    def __init__(self) -> None:
        self.name = b""
        self.epoch: i64 = 0
        self.seq: i64 = 0
        self.copy_epoch: i64 = 0
        self.told_seq: i64 = 0
        self.made_ns: i64 = 0
        self.sync: i64 = 1
        self.flags: i64 = 0
        self.maker = b""
        self.home = b""


def tell_tube_home(records: Records, r: HomeRecord) -> None:
    """Which node leads a tube, and what this node has of it (T22.1)."""
    w = records.writer
    write_i32_le(w, i32(1 + HOME_FIXED + len(r.name)))
    w.append(TUBE_HOME)
    write_i64_le(w, r.epoch)
    write_i64_le(w, r.seq)
    write_i64_le(w, r.copy_epoch)
    write_i64_le(w, r.told_seq)
    write_i64_le(w, r.made_ns)
    write_i32_le(w, i32(r.sync))
    w.append(r.flags)
    w.write(r.maker)
    w.write(r.home)
    w.write(r.name)
    records.count += 1
    records.binding_count += 1


def decode_home(data: bytes, at: i64, end: i64, r: HomeRecord) -> bool:
    """Decode the rest of the record after its kind. False if it is malformed."""
    if end - at <= HOME_FIXED:
        return False
    r.epoch = read_i64_le(data, at)
    r.seq = read_i64_le(data, at + 8)
    r.copy_epoch = read_i64_le(data, at + 16)
    r.told_seq = read_i64_le(data, at + 24)
    r.made_ns = read_i64_le(data, at + 32)
    r.sync = i64(read_i32_le(data, at + 40))
    r.flags = data[at + 44]
    at += 45
    r.maker = data[at : at + NODE_ID_BYTES]
    at += NODE_ID_BYTES
    r.home = data[at : at + NODE_ID_BYTES]
    r.name = data[at + NODE_ID_BYTES : end]
    numbers = r.epoch | r.seq | r.copy_epoch | r.told_seq
    return 0 <= numbers <= NUMBER_LAST and r.made_ns >= 0 and r.sync > 0
