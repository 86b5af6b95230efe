"""Journal records of staged writes and of subscriptions to topics (SPEC Z6, T60.6, J2).

They follow the rules of core/records/jobs.py. Layout, after length and kind:

    STAGED     until_ms i64, position in the attempt i32, repl i32, retry_s i32, delay_s i32,
               ttl_s i32, maxlen i32, key_ttl_ms i64, length of txn u8, of attempt u8, of key u8,
               of queue i32, txn, attempt, key, queue, body
    STAGE_DROP length of txn u8, txn, attempt         without attempt: all of the transaction
    PUBLISHED  version i64, now_ms i64, first ctime_ns i64, default repl i32, attempts i32,
               ids i32, length of app u8, of txn u8, app, txn, each attempt as length u8 and
               bytes, each id 40 (zeros: its key was there, no job was made)
    KEY        until_ms i64, id 40, queue and key as core/tables/dedupe_keys.py joins them
    APP        version i64, used_ms i64, app          version -1: forgotten

A PUBLISHED stands for all its jobs, however many: they are made from the staged ones. A snapshot
has staged jobs and apps as of the start of its segment.
"""

from typing import Final, final

from librt.strings import BytesWriter, read_i32_le, read_i64_le, write_i32_le, write_i64_le
from mypy_extensions import i32, i64

from tuque.core.model.job_id import ID_BYTES
from tuque.core.records.jobs import (
    APP,
    KEY,
    NODE_ID_BYTES,
    PUBLISHED,
    STAGE_DROP,
    STAGED,
    TOPIC,
    Records,
)
from tuque.core.tables.staged import Attempt, Staged
from tuque.core.tables.topics import (
    FILTERS_MAX,
    QUEUE_MAX,
    VERSION_MAX,
    Subscription,
)

STAGED_FIXED: Final = 48  # kind to the length of the queue
PUBLISHED_FIXED: Final = 39  # kind to the length of txn
KEY_FIXED: Final = 49
APP_FIXED: Final = 17
NO_ID: Final = bytes(40)

TOPIC_FIXED: Final = 55


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


# ---- The record of a subscription to a topic (SPEC T60.6)
#
# Layout, after length and kind, little-endian:
#
#     TOPIC   version i64, node id 40, 1 if it was removed u8, length of topic u8, of queue i32,
#             filters u8, topic, queue, of each filter: length of name u8, of pattern u8, both
#
# Version 0: nothing is known of it.


@final
class TopicRecord:
    """One decoded record."""

    def __init__(self) -> None:
        self.one: Subscription | None = None


def tell_topic(records: Records, one: Subscription) -> None:
    """All of a subscription, or that it was removed."""
    size: i64 = 1 + TOPIC_FIXED + len(one.topic) + len(one.queue)
    for text in one.filters:
        size += 1 + len(text)
    w = records.writer
    write_i32_le(w, i32(size))
    w.append(TOPIC)
    write_i64_le(w, one.version)
    w.write(one.node)
    w.append(1 if one.is_gone else 0)
    w.append(len(one.topic))
    write_i32_le(w, i32(len(one.queue)))
    w.append(len(one.filters) // 2)
    w.write(one.topic)
    w.write(one.queue)
    for i in range(0, len(one.filters), 2):
        w.append(len(one.filters[i]))
        w.append(len(one.filters[i + 1]))
        w.write(one.filters[i])
        w.write(one.filters[i + 1])
    records.count += 1
    records.binding_count += 1


def decode_topic(data: bytes, at: i64, end: i64, r: TopicRecord) -> bool:
    """Decode the rest of a TOPIC; False: it is none."""
    if end - at < TOPIC_FIXED:
        return False
    version = read_i64_le(data, at)
    node = data[at + 8 : at + 8 + NODE_ID_BYTES]
    at += 8 + NODE_ID_BYTES
    is_gone: i64 = data[at]
    topic_size: i64 = data[at + 1]
    queue_size: i64 = i64(read_i32_le(data, at + 2))
    count: i64 = data[at + 6]
    at += 7
    if not 0 <= version <= VERSION_MAX or is_gone > 1 or count > FILTERS_MAX or topic_size < 1:
        return False
    if not 1 <= queue_size <= QUEUE_MAX or topic_size + queue_size > end - at:
        return False
    topic = data[at : at + topic_size]
    queue = data[at + topic_size : at + topic_size + queue_size]
    at += topic_size + queue_size
    filters: list[bytes] = []
    while count > 0:
        if end - at < 2:
            return False
        name_size: i64 = data[at]
        glob_size: i64 = data[at + 1]
        at += 2
        if name_size + glob_size > end - at:
            return False
        filters.append(data[at : at + name_size])
        filters.append(data[at + name_size : at + name_size + glob_size])
        at += name_size + glob_size
        count -= 1
    r.one = Subscription(topic, queue, filters, version, node, is_gone == 1)
    return at == end


# ---- Decoding of staged jobs, publications and keys. No length in the bytes is trusted


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
