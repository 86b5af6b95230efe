"""Journal records of staged jobs and of keys (SPEC Z6, J2).

Layouts and bounds are in core/msgs/packed.py; publications, apps and subscriptions are in
core/msgs/records.py.

A snapshot has staged jobs and apps as of the start of its segment.
"""

from typing import Final, final

from librt.strings import read_i32_le, read_i64_le, write_i32_le, write_i64_le
from mypy_extensions import i32, i64

from tuque.core.model.job import LEVEL, LEVEL_MAX, level_of_step, step_of
from tuque.core.model.job_id import ID_BYTES
from tuque.core.model.work import NO_TERMS, Terms
from tuque.core.msgs.packed import KEY_FIXED, NUMBER_LAST, REPL_MAX, STAGED_FIXED, STAGED_UNIT
from tuque.core.msgs.records import StagedWork
from tuque.core.records.jobs import KEY, STAGED, Records
from tuque.core.tables.staged import Attempt, Staged

NO_ID: Final = bytes(ID_BYTES)


def tell_staged(records: Records, a: Attempt, position: i64, job: Staged) -> None:
    """A job of the attempt; what of it has no place there follows (Z6.1)."""
    w = records.writer
    size: i64 = STAGED_FIXED + len(a.txn) + len(a.name) + len(job.key) + len(job.queue)
    write_i32_le(w, i32(size + len(job.body)))
    w.append(STAGED)
    write_i64_le(w, a.until_ms)
    write_i32_le(w, i32(position))
    write_i32_le(w, i32(i64(job.repl) + step_of(i64(job.level)) * STAGED_UNIT))
    write_i32_le(w, job.retry_s)
    write_i32_le(w, job.delay_s)
    write_i32_le(w, job.ttl_s)
    write_i32_le(w, job.maxlen)
    write_i64_le(w, job.key_ttl_ms)
    w.append(len(a.txn))
    w.append(len(a.name))
    w.append(len(job.key))
    write_i32_le(w, i32(len(job.queue)))
    w.write(a.txn)
    w.write(a.name)
    w.write(job.key)
    w.write(job.queue)
    records.body(job.body)
    records.count += 1
    records.binding_count += 1
    if job.has_work() or len(job.id) > 0:
        records.put(work_row(a, position, job))


def work_row(a: Attempt, position: i64, job: Staged) -> StagedWork:
    """The id and the work of a job of the attempt."""
    terms = NO_TERMS if job.terms is None else job.terms
    return StagedWork(
        int(position),
        int(terms.attempts),
        int(terms.jitter),
        int(terms.first_ms),
        int(terms.max_ms),
        int(terms.keep_ms),
        int(terms.limit_ms),
        job.terms is not None,
        terms.drops,
        terms.keeps_body,
        a.txn,
        a.name,
        job.id,
        terms.dead,
        job.headers,
    )


def add_work(job: Staged, row: StagedWork) -> None:
    """The staged job has the id and the work of that row."""
    job.id = row.id
    job.headers = row.headers
    if row.has_terms:
        job.terms = Terms(
            row.attempts,
            row.first_ms,
            row.max_ms,
            row.jitter,
            row.dead,
            row.keep_ms,
            row.limit_ms,
            row.drops,
            row.keeps_body,
        )


def record_key(records: Records, full: bytes, id: bytes, until_ms: i64) -> None:
    """The key belongs to that job until `until_ms`."""
    w = records.writer
    write_i32_le(w, i32(KEY_FIXED + len(full)))
    w.append(KEY)
    write_i64_le(w, until_ms)
    w.write(id)
    w.write(full)
    records.count += 1
    records.binding_count += 1


# ---- Decoding. No length in the bytes is trusted


@final
class StageRecord:
    """One decoded record; only the fields of its kind are valid."""

    def __init__(self) -> None:
        self.txn = b""
        self.attempt = b""
        self.position: i64 = 0
        self.until_ms: i64 = 0  # also of a key
        self.repl: i64 = 0
        self.level: i64 = LEVEL
        self.retry_s: i64 = 0
        self.delay_s: i64 = 0
        self.ttl_s: i64 = 0
        self.maxlen: i64 = 0
        self.key_ttl_ms: i64 = 0
        self.key = b""  # of KEY: with its queue
        self.queue = b""
        self.body = b""
        self.id = b""


def decode_stage(kind: i64, data: bytes, at: i64, end: i64, r: StageRecord) -> bool:
    """Decode the rest of a record after its kind. False if it is malformed."""
    if kind == STAGED:
        return decode_staged(data, at, end, r)
    if end - at < KEY_FIXED:
        return False
    r.until_ms = read_i64_le(data, at)
    r.id = data[at + 8 : at + 8 + ID_BYTES]
    r.key = data[at + 8 + ID_BYTES : end]
    size: i64 = data[end - 1]
    return 0 <= r.until_ms <= NUMBER_LAST and 0 < size < len(r.key)


def decode_staged(data: bytes, at: i64, end: i64, r: StageRecord) -> bool:
    """Decode the rest of a STAGED."""
    if end - at < STAGED_FIXED - 1:
        return False
    r.until_ms = read_i64_le(data, at)
    r.position = i64(read_i32_le(data, at + 8))
    copies = i64(read_i32_le(data, at + 12))
    step = (copies + 1) // STAGED_UNIT
    r.repl = copies - step * STAGED_UNIT
    r.level = level_of_step(step)
    r.retry_s = i64(read_i32_le(data, at + 16))
    r.delay_s = i64(read_i32_le(data, at + 20))
    r.ttl_s = i64(read_i32_le(data, at + 24))
    r.maxlen = i64(read_i32_le(data, at + 28))
    r.key_ttl_ms = read_i64_le(data, at + 32)
    txn_size: i64 = data[at + 40]
    name_size: i64 = data[at + 41]
    key_size: i64 = data[at + 42]
    queue_size: i64 = i64(read_i32_le(data, at + 43))
    at += STAGED_FIXED - 1
    if txn_size < 1 or name_size < 1 or queue_size < 0:
        return False
    if txn_size + name_size + key_size + queue_size > end - at:
        return False
    r.txn = data[at : at + txn_size]
    at += txn_size
    r.attempt = data[at : at + name_size]
    at += name_size
    r.key = data[at : at + key_size]
    at += key_size
    r.queue = data[at : at + queue_size]
    r.body = data[at + queue_size : end]
    if (r.position | r.retry_s | r.delay_s | r.maxlen | r.key_ttl_ms | r.until_ms) < 0:
        return False
    if not 0 <= step <= LEVEL_MAX or not -1 <= r.repl <= REPL_MAX:
        return False
    return r.repl != 0 and r.ttl_s > 0
