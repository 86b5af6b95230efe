"""Journal records of tasks and of leaders of tubes, encoded and decoded (SPEC T14, T22, J2).

Those of tubes, sessions, rights and votes are in core/msgs/records.py.

No length in the bytes is trusted.
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
    Task,
    carried_by,
    whole_s,
)
from tuque.core.records.jobs import (
    LIFE,
    NODE_ID_BYTES,
    TASK_ADD,
    TASK_STATE,
    TUBE_HOME,
    Records,
)

STATE_FIXED: Final = 76
ADD_FIXED: Final = 86  # after the kind, to the state


MINE: Final = 1  # flags: this node leads the tube and has the tasks
COMPLETE: Final = 2  # the replica has all tasks
OWED: Final = 4  # handed to a leader that has not confirmed yet
GONE: Final = 8  # the tube was dropped
FOREIGN: Final = 16  # this node leads it; its tasks are held by sessions of the last leader
BY_VOTE: Final = 32  # votes choose its leader
OTHERS: Final = 128  # voters of another list choose its leader
MAJORITY: Final = 64  # a majority of the voters must have a change before its reply

HOME_FIXED: Final = 125


# ---- Encoding
#
# They follow the rules of core/records/jobs.py: absolute, each complete in itself. The end
# of a task is a REMOVE; a LIFE has the run that a worker has begun (T48.2). Layout, after length
# and kind:
#
#     TASK_ADD   id 40, status u8, form u8, number i64, pri i64, created_ms i64, ctime_ns i64,
#                delay_s i32, queue length i32, sub-queue length i32, [state], queue, sub-queue,
#                body
#     TASK_STATE id 40, status u8, [state]
#
# where state is ttl_ms i64, ttr_ms i64, qtime_ms i64, token i64, owner i64, taken_ms i64, nacks
# i32, deliveries i32, delivered_count i32, first_ms i64, last_ms i64. A temporary tube
# has no records of tasks.


def tell_task(records: Records, task: Task) -> None:
    """All of a task."""
    size: i64 = 1 + ADD_FIXED + STATE_FIXED
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
    write_i32_le(w, 42 + STATE_FIXED)
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
    write_i32_le(w, i32(41 + len(work)))
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
        self.body = b""


def decode_task(kind: i64, data: bytes, at: i64, end: i64, r: TaskRecord) -> bool:
    """Decode the rest of a record after its kind. False if it is malformed."""
    if kind == TASK_ADD:
        return decode_add(data, at, end, r)
    if end - at != ID_BYTES + 1 + STATE_FIXED:
        return False
    r.id = data[at : at + ID_BYTES]
    r.status = data[at + ID_BYTES]
    return is_status(r.status) and decode_state(data, at + ID_BYTES + 1, r)


def is_status(status: i64) -> bool:
    """Whether a stored task can have this status."""
    return status in (READY, TAKEN, DELAYED, BURIED)


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


# ---- The leader of a tube, and what this node has of it (SPEC T22)
#
# Layout, after length and kind:
#
#     TUBE_HOME   epoch i64, seq i64, copy epoch i64, told seq i64, made_ns i64, sync i32, flags u8,
#                 maker 40, home 40, name
#
# `seq` is the last change that the replica here has, in the copy epoch; on the leader it is a
# number that no change reaches before the next record, and `told seq` the last change that was
# made. Replicated tasks use the records of tasks. TUBE_DROP means that a tube is no longer here,
# TUBE_HOME with GONE that it was dropped. A replica writes it with each message of its leader.


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
    if r.epoch < 0 or r.seq < 0 or r.copy_epoch < 0 or r.told_seq < 0 or r.made_ns < 0:
        return False
    return r.sync > 0
