"""Decodes journal records of leases; cut or oversized ones are refused (SPEC Y9, J2).

The layout is core/outbox/lease_records.py's. No length in the bytes is trusted.
"""

from typing import final

from librt.strings import read_i32_le, read_i64_le
from mypy_extensions import i64

from tuque.core.model.job import WHY_MAX
from tuque.core.model.job_id import ID_BYTES
from tuque.core.outbox.lease_records import (
    BATCH_FIXED,
    DROP_FIXED,
    GROUP_FIXED,
    HOW_EXPIRED,
    HOW_SOME,
    HOW_TAKEN,
    POSITION_BYTES,
)
from tuque.core.outbox.records import LEASE_BATCH, LEASE_GROUP
from tuque.core.state.lease_groups import NAME_MAX, PARTS_MAX


@final
class LeaseRecord:
    """One decoded record of a lease; only the fields of its kind are valid."""

    def __init__(self) -> None:
        self.name = b""
        self.epoch: i64 = 0
        self.seq: i64 = 0  # of a group: its newest batch
        self.acked_seq: i64 = 0
        self.floor_seq: i64 = 0
        self.ttl_ms: i64 = 0
        self.at_ms: i64 = 0  # of a group: its last use
        self.names: list[bytes] = []
        self.parts: i64 = 0
        self.how: i64 = 0
        self.drop_ms: i64 = 0
        self.body_bytes: i64 = 0
        self.total: i64 = 0
        self.first: i64 = 0
        self.ids: list[bytes] = []
        self.marks: list[int] = []


def decode_lease(kind: i64, data: bytes, at: i64, end: i64, r: LeaseRecord) -> bool:
    """Decode the rest of a record after its kind. False if it is malformed."""
    if kind == LEASE_GROUP:
        return decode_group(data, at, end, r)
    if kind == LEASE_BATCH:
        return decode_batch(data, at, end, r)
    if end - at < DROP_FIXED - 1:
        return False
    r.epoch = read_i64_le(data, at)
    r.seq = read_i64_le(data, at + 8)
    r.name = data[at + 16 : end]
    return is_name(r.name) and r.epoch > 0 and r.seq > 0


def is_name(name: bytes) -> bool:
    """Whether this can be the name of a group."""
    return 1 <= len(name) <= NAME_MAX


def decode_group(data: bytes, at: i64, end: i64, r: LeaseRecord) -> bool:
    """Decode the rest of a LEASE_GROUP."""
    if end - at < GROUP_FIXED - 1:
        return False
    r.epoch = read_i64_le(data, at)
    r.seq = read_i64_le(data, at + 8)
    r.acked_seq = read_i64_le(data, at + 16)
    r.floor_seq = read_i64_le(data, at + 24)
    r.ttl_ms = read_i64_le(data, at + 32)
    r.at_ms = read_i64_le(data, at + 40)
    left: i64 = i64(read_i32_le(data, at + 48))
    at += GROUP_FIXED - 1
    names: list[bytes] = []
    while left > 0 and end - at >= 4:
        size: i64 = i64(read_i32_le(data, at))
        at += 4
        if size < 0 or size > end - at:
            return False
        names.append(data[at : at + size])
        at += size
        left -= 1
    if left != 0 or at != end or len(names) < 3:
        return False
    r.name = names[0]
    r.names = names
    if not is_name(r.name) or r.epoch <= 0 or r.floor_seq < -1:
        return False
    return r.seq >= r.floor_seq and r.seq >= r.acked_seq >= 0 and r.ttl_ms >= 0


def decode_batch(data: bytes, at: i64, end: i64, r: LeaseRecord) -> bool:
    """Decode the rest of a LEASE_BATCH."""
    if end - at < BATCH_FIXED - 1:
        return False
    r.epoch = read_i64_le(data, at)
    r.seq = read_i64_le(data, at + 8)
    r.parts = i64(read_i32_le(data, at + 16))
    r.how = data[at + 20]
    r.drop_ms = read_i64_le(data, at + 21)
    r.at_ms = read_i64_le(data, at + 29)
    r.body_bytes = read_i64_le(data, at + 37)
    r.total = i64(read_i32_le(data, at + 45))
    r.first = i64(read_i32_le(data, at + 49))
    here: i64 = i64(read_i32_le(data, at + 53))
    at += BATCH_FIXED - 1
    if here < 0 or here * POSITION_BYTES > end - at:
        return False
    ids: list[bytes] = []
    marks: list[int] = []
    while here > 0:
        ids.append(data[at : at + ID_BYTES])
        mark: i64 = i64(read_i32_le(data, at + ID_BYTES))
        if mark < -1 - WHY_MAX:
            return False
        marks.append(mark)
        at += POSITION_BYTES
        here -= 1
    r.ids = ids
    r.marks = marks
    r.name = data[at:end]
    if (
        not is_name(r.name)
        or r.epoch <= 0
        or r.seq <= 0
        or r.how > HOW_EXPIRED | HOW_TAKEN | HOW_SOME
    ):
        return False
    if not 1 <= r.parts <= PARTS_MAX or r.drop_ms < 0 or r.body_bytes < 0:
        return False
    return r.first >= 0 and r.first + len(ids) <= r.total
