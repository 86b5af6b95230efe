"""Journal records of tubes and tasks, encoded at the moment of change (SPEC T14, J2).

They follow the rules of core/outbox/records.py: absolute, each complete in itself. The end
of a task is a REMOVE; a LIFE has the run that a worker has begun (T48.2). Layout, after length and
kind:

    TUBE       number i64, next number i64, ttl_ms i64, ttr_ms i64, pri i64, capacity i64,
               is temporary u8, lengths of five names u16 each: name, type, storage mode,
               engine, callback; the names
    TUBE_DROP  name
    TASK_ADD   id 40, status u8, form u8, number i64, pri i64, created_ms i64, ctime_ns i64,
               delay_s i32, queue length i32, sub-queue length i32, [state], queue, sub-queue, body
    TASK_STATE id 40, status u8, [state]
    SESSION    number i64, until_ms i64, is over u8, uuid 16, user
    TUBE_CFG   ttr_ms i64, in_replicaset u8, tokens up to this may be in use i64
    GRANT      bits u8 (0: none any more), lengths of tube and prefix u16 each; tube, prefix, holder

where state is ttl_ms i64, ttr_ms i64, qtime_ms i64, token i64, owner i64, taken_ms i64, nacks
i32, deliveries i32, delivered_count i32, first_ms i64, last_ms i64. A temporary tube
has only TUBE, with a next number above those in use.
"""

from typing import Final

from librt.strings import BytesWriter, write_i16_le, write_i32_le, write_i64_le
from mypy_extensions import i16, i32, i64, u8

from tuque.core.model.task import Task
from tuque.core.outbox.records import (
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
    write_i32_le(w, i32(size + len(task.queue) + len(task.subqueue) + len(task.body)))
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
    write_i32_le(w, i32(len(task.subqueue)))
    put_state(w, task)
    w.write(task.queue)
    w.write(task.subqueue)
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
