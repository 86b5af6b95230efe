"""Journal records of tubes, tasks and sessions, encoded and decoded (SPEC T14, J2).

No length in the bytes is trusted.
"""

from typing import Final, final

from librt.strings import (
    BytesWriter,
    read_i16_le,
    read_i32_le,
    read_i64_le,
    write_i16_le,
    write_i32_le,
    write_i64_le,
)
from mypy_extensions import i16, i32, i64, u8

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
    GRANT,
    LIFE,
    SESSION,
    TASK_ADD,
    TASK_STATE,
    TUBE,
    TUBE_CFG,
    TUBE_DROP,
    Records,
)

TUBE_FIXED: Final = 59  # after the kind, to the names
STATE_FIXED: Final = 76
ADD_FIXED: Final = 86  # after the kind, to the state
SESSION_FIXED: Final = 33
CFG_FIXED: Final = 17
CFG_BEFORE: Final = 9  # an older record, without the number of tokens
GRANT_FIXED: Final = 5

CALL_AND_TRUNCATE: Final = 3  # the highest bits of a grant


# ---- Encoding
#
# They follow the rules of core/records/jobs.py: absolute, each complete in itself. The end
# of a task is a REMOVE; a LIFE has the run that a worker has begun (T48.2). Layout, after length
# and kind:
#
#     TUBE       number i64, next number i64, ttl_ms i64, ttr_ms i64, pri i64, capacity i64,
#                is temporary u8, lengths of five names u16 each: name, type, storage mode,
#                engine, callback; the names
#     TUBE_DROP  name
#     TASK_ADD   id 40, status u8, form u8, number i64, pri i64, created_ms i64, ctime_ns i64,
#                delay_s i32, queue length i32, sub-queue length i32, [state], queue, sub-queue,
#                body
#     TASK_STATE id 40, status u8, [state]
#     SESSION    number i64, until_ms i64, is over u8, uuid 16, user
#     TUBE_CFG   ttr_ms i64, in_replicaset u8, tokens up to this may be in use i64
#     GRANT      bits u8 (0: none any more), lengths of tube and prefix u16 each; tube, prefix,
#                holder
#
# where state is ttl_ms i64, ttr_ms i64, qtime_ms i64, token i64, owner i64, taken_ms i64, nacks
# i32, deliveries i32, delivered_count i32, first_ms i64, last_ms i64. A temporary tube
# has only TUBE, with a next number above those in use.


def tell_tube(
    records: Records,
    number: i64,
    next_number: i64,
    ttl_ms: i64,
    ttr_ms: i64,
    pri: i64,
    capacity: i64,
    is_temporary: bool,
    names: list[bytes],
) -> None:
    """All of a tube except its tasks. `names`: name, type, storage mode, engine, callback."""
    assert len(names) == 5
    size: i64 = 1 + TUBE_FIXED
    for name in names:
        size += len(name)
    w = records.writer
    write_i32_le(w, i32(size))
    w.append(TUBE)
    write_i64_le(w, number)
    write_i64_le(w, next_number)
    write_i64_le(w, ttl_ms)
    write_i64_le(w, ttr_ms)
    write_i64_le(w, pri)
    write_i64_le(w, capacity)
    w.append(1 if is_temporary else 0)
    for name in names:
        write_i16_le(w, i16(len(name)))
    for name in names:
        w.write(name)
    records.count += 1
    records.binding_count += 1


def tell_tube_drop(records: Records, name: bytes) -> None:
    """The tube is dropped; its tasks have records of their own."""
    w = records.writer
    write_i32_le(w, i32(1 + len(name)))
    w.append(TUBE_DROP)
    w.write(name)
    records.count += 1
    records.binding_count += 1


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


def tell_session(
    records: Records, number: i64, until_ms: i64, is_over: bool, uuid: bytes, user: bytes
) -> None:
    """A session that survives a restart, or its end."""
    w = records.writer
    write_i32_le(w, i32(1 + SESSION_FIXED + len(user)))
    w.append(SESSION)
    write_i64_le(w, number)
    write_i64_le(w, until_ms)
    w.append(1 if is_over else 0)
    w.write(uuid)
    w.write(user)
    records.count += 1
    records.binding_count += 1


def tell_tube_cfg(records: Records, ttr_ms: i64, in_replicaset: bool, token_reserved: i64) -> None:
    """The configuration of the tubes; tokens up to `token_reserved` may be in use (T5.1)."""
    w = records.writer
    write_i32_le(w, i32(1 + CFG_FIXED))
    w.append(TUBE_CFG)
    write_i64_le(w, ttr_ms)
    w.append(1 if in_replicaset else 0)
    write_i64_le(w, token_reserved)
    records.count += 1
    records.binding_count += 1


def tell_grant(records: Records, holder: bytes, tube: bytes, prefix: bytes, bits: i64) -> None:
    """The holder's rights to the tube under that prefix, from now on."""
    w = records.writer
    write_i32_le(w, i32(1 + GRANT_FIXED + len(tube) + len(prefix) + len(holder)))
    w.append(GRANT)
    w.append(u8(bits))
    write_i16_le(w, i16(len(tube)))
    write_i16_le(w, i16(len(prefix)))
    w.write(tube)
    w.write(prefix)
    w.write(holder)
    records.count += 1
    records.binding_count += 1


# ---- Decoding


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
