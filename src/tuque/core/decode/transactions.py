"""Decodes records of staged jobs, publications and keys, or refuses them (SPEC Z6, J2).

The layout is core/outbox/transaction_records.py's. No length in the bytes is trusted.
"""

from typing import final

from librt.strings import read_i32_le, read_i64_le
from mypy_extensions import i64

from tuque.core.model.job_id import ID_BYTES
from tuque.core.outbox.records import APP, KEY, PUBLISHED, STAGED
from tuque.core.outbox.transaction_records import (
    APP_FIXED,
    KEY_FIXED,
    PUBLISHED_FIXED,
    STAGED_FIXED,
)


@final
class StageRecord:
    """One decoded record; only the fields of its kind are valid."""

    def __init__(self) -> None:
        self.txn = b""
        self.attempt = b""
        self.position: i64 = 0
        self.until_ms: i64 = 0  # also of a key
        self.repl: i64 = 0  # of a publication: the default
        self.retry_s: i64 = 0
        self.delay_s: i64 = 0
        self.ttl_s: i64 = 0
        self.maxlen: i64 = 0
        self.key_ttl_ms: i64 = 0
        self.key = b""  # of KEY: with its queue
        self.queue = b""
        self.body = b""
        self.app = b""
        self.version: i64 = 0
        self.now_ms: i64 = 0  # of an app: its last use
        self.ctime_ns: i64 = 0
        self.attempts: list[bytes] = []
        self.ids: list[bytes] = []
        self.id = b""


def decode_stage(kind: i64, data: bytes, at: i64, end: i64, r: StageRecord) -> bool:
    """Decode the rest of a record after its kind. False if it is malformed."""
    if kind == STAGED:
        return decode_staged(data, at, end, r)
    if kind == PUBLISHED:
        return decode_published(data, at, end, r)
    if kind == KEY:
        if end - at < KEY_FIXED:
            return False
        r.until_ms = read_i64_le(data, at)
        r.id = data[at + 8 : at + 8 + ID_BYTES]
        r.key = data[at + 8 + ID_BYTES : end]
        size: i64 = data[end - 1]
        return r.until_ms >= 0 and 0 < size < len(r.key)
    if kind == APP:
        if end - at < APP_FIXED:
            return False
        r.version = read_i64_le(data, at)
        r.now_ms = read_i64_le(data, at + 8)
        r.app = data[at + 16 : end]
        return r.version >= -1 and len(r.app) <= 255
    return decode_drop(data, at, end, r)


def decode_drop(data: bytes, at: i64, end: i64, r: StageRecord) -> bool:
    """Decode the rest of a STAGE_DROP."""
    if end - at < 2:
        return False
    size: i64 = data[at]
    at += 1
    if size < 1 or size > end - at:
        return False
    r.txn = data[at : at + size]
    r.attempt = data[at + size : end]
    return len(r.attempt) <= 255


def decode_staged(data: bytes, at: i64, end: i64, r: StageRecord) -> bool:
    """Decode the rest of a STAGED."""
    if end - at < STAGED_FIXED - 1:
        return False
    r.until_ms = read_i64_le(data, at)
    r.position = i64(read_i32_le(data, at + 8))
    r.repl = i64(read_i32_le(data, at + 12))
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
    if r.position < 0 or r.repl < -1 or r.repl == 0 or r.retry_s < 0 or r.delay_s < 0:
        return False
    return r.ttl_s > 0 and r.maxlen >= 0 and r.key_ttl_ms >= 0 and r.until_ms >= 0


def decode_published(data: bytes, at: i64, end: i64, r: StageRecord) -> bool:
    """Decode the rest of a PUBLISHED."""
    if end - at < PUBLISHED_FIXED - 1:
        return False
    r.version = read_i64_le(data, at)
    r.now_ms = read_i64_le(data, at + 8)
    r.ctime_ns = read_i64_le(data, at + 16)
    r.repl = i64(read_i32_le(data, at + 24))
    names: i64 = i64(read_i32_le(data, at + 28))
    count: i64 = i64(read_i32_le(data, at + 32))
    app_size: i64 = data[at + 36]
    txn_size: i64 = data[at + 37]
    at += PUBLISHED_FIXED - 1
    if r.version < 0 or r.now_ms < 0 or r.ctime_ns < 0 or r.repl < 1 or names < 0 or count < 0:
        return False
    if app_size < 1 or txn_size < 1 or app_size + txn_size > end - at:
        return False
    r.app = data[at : at + app_size]
    at += app_size
    r.txn = data[at : at + txn_size]
    at += txn_size
    r.attempts = []
    while names > 0 and at < end:
        size: i64 = data[at]
        if size < 1 or size >= end - at:
            return False
        r.attempts.append(data[at + 1 : at + 1 + size])
        at += 1 + size
        names -= 1
    if names != 0 or end - at != count * ID_BYTES:
        return False
    r.ids = []
    while at < end:
        r.ids.append(data[at : at + ID_BYTES])
        at += ID_BYTES
    return True
