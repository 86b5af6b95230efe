"""Journal records of staged jobs, publications and keys (SPEC Z6, J2).

They follow the rules of core/outbox/records.py. Layout, after length and kind:

    STAGED     until_ms i64, position in the attempt i32, repl i32, retry_s i32, delay_s i32,
               ttl_s i32, maxlen i32, key_ttl_ms i64, length of txn u8, of attempt u8, of key u8,
               of queue i32, txn, attempt, key, queue, body
    STAGE_DROP length of txn u8, txn, attempt         without attempt: all of the transaction
    PUBLISHED  version i64, now_ms i64, first ctime_ns i64, default repl i32, attempts i32,
               ids i32, length of app u8, of txn u8, app, txn, each attempt as length u8 and
               bytes, each id 40 (zeros: its key was there, no job was made)
    KEY        until_ms i64, id 40, queue and key as core/state/dedupe_keys.py joins them
    APP        version i64, used_ms i64, app          version -1: forgotten

A PUBLISHED stands for all its jobs, however many: they are made from the staged ones. A snapshot
has staged jobs and apps as of the start of its segment.
"""

from typing import Final

from librt.strings import BytesWriter, write_i32_le, write_i64_le
from mypy_extensions import i32, i64

from tuque.core.outbox.records import APP, KEY, PUBLISHED, STAGE_DROP, STAGED, Records
from tuque.core.state.staged import Attempt, Staged

STAGED_FIXED: Final = 48  # kind to the length of the queue
PUBLISHED_FIXED: Final = 39  # kind to the length of txn
KEY_FIXED: Final = 49
APP_FIXED: Final = 17
NO_ID: Final = bytes(40)


def tell_staged(records: Records, a: Attempt, position: i64, job: Staged) -> None:
    """A job of the attempt."""
    w = records.writer
    size: i64 = STAGED_FIXED + len(a.txn) + len(a.name) + len(job.key) + len(job.queue)
    write_i32_le(w, i32(size + len(job.body)))
    w.append(STAGED)
    write_i64_le(w, a.until_ms)
    write_i32_le(w, i32(position))
    write_i32_le(w, job.repl)
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


def tell_stage_drop(records: Records, txn: bytes, attempt: bytes) -> None:
    """The attempt is dropped; with an empty name, the whole transaction."""
    w = records.writer
    write_i32_le(w, i32(2 + len(txn) + len(attempt)))
    w.append(STAGE_DROP)
    w.append(len(txn))
    w.write(txn)
    w.write(attempt)
    records.count += 1
    records.binding_count += 1


def tell_published(
    records: Records,
    app: bytes,
    version: i64,
    now_ms: i64,
    ctime_ns: i64,
    default_repl: i64,
    txn: bytes,
    attempts: list[bytes],
    ids: list[bytes],
) -> None:
    """The version is published, with these jobs."""
    size: i64 = PUBLISHED_FIXED + len(app) + len(txn) + 40 * len(ids)
    for name in attempts:
        size += 1 + len(name)
    w = records.writer
    write_i32_le(w, i32(size))
    w.append(PUBLISHED)
    write_i64_le(w, version)
    write_i64_le(w, now_ms)
    write_i64_le(w, ctime_ns)
    write_i32_le(w, i32(default_repl))
    write_i32_le(w, i32(len(attempts)))
    write_i32_le(w, i32(len(ids)))
    put_names(w, app, txn)
    for name in attempts:
        w.append(len(name))
        w.write(name)
    for id in ids:
        w.write(id)
    records.count += 1
    records.binding_count += 1


def put_names(w: BytesWriter, app: bytes, txn: bytes) -> None:
    """Both names, each after its length."""
    w.append(len(app))
    w.append(len(txn))
    w.write(app)
    w.write(txn)


def tell_key(records: Records, full: bytes, id: bytes, until_ms: i64) -> None:
    """The key belongs to that job until `until_ms`."""
    w = records.writer
    write_i32_le(w, i32(KEY_FIXED + len(full)))
    w.append(KEY)
    write_i64_le(w, until_ms)
    w.write(id)
    w.write(full)
    records.count += 1
    records.binding_count += 1


def tell_app(records: Records, app: bytes, version: i64, used_ms: i64) -> None:
    """The last version of the app; -1: forgotten."""
    w = records.writer
    write_i32_le(w, i32(APP_FIXED + len(app)))
    w.append(APP)
    write_i64_le(w, version)
    write_i64_le(w, used_ms)
    w.write(app)
    records.count += 1
    records.binding_count += 1
