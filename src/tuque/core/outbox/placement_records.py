"""Journal records of tube leaders and replicas, encoded and decoded (SPEC T22, J2).

Layout, after length and kind, little-endian:

    TUBE_HOME   epoch i64, seq i64, copy epoch i64, told seq i64, made_ns i64, sync i32, flags u8,
                maker 40, home 40, name
    TUBE_HOLDER number i64, uuid 16, length of user i32, user, name

`seq` is the last change that the replica here has, in the copy epoch; on the leader it is a number
that no change reaches before the next record, and `told seq` the last change that was made.
Replicated tasks use the records of tasks. TUBE_DROP means that a tube is no longer here, TUBE_HOME
with GONE that it was dropped.
"""

from typing import Final, final

from librt.strings import read_i32_le, read_i64_le, write_i32_le, write_i64_le
from mypy_extensions import i32, i64

from tuque.core.outbox.records import NODE_ID_BYTES, TUBE_HOLDER, TUBE_HOME, Records

MINE: Final = 1  # flags: this node leads the tube and has the tasks
COMPLETE: Final = 2  # the replica has all tasks
OWED: Final = 4  # handed to a leader that has not confirmed yet
GONE: Final = 8  # the tube was dropped
FOREIGN: Final = 16  # this node leads it; its tasks are held by sessions of the last leader
BY_VOTE: Final = 32  # votes choose its leader
OTHERS: Final = 128  # voters of another list choose its leader
MAJORITY: Final = 64  # a majority of the voters must have a change before its reply

HOME_FIXED: Final = 125
HOLDER_FIXED: Final = 28
UUID_BYTES: Final = 16


@final
class HomeRecord:
    """One decoded record; only the fields of its kind are valid."""

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
        self.number: i64 = 0
        self.uuid = b""
        self.user = b""


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


def tell_tube_holder(records: Records, name: bytes, number: i64, uuid: bytes, user: bytes) -> None:
    """A session that holds tasks of a replica, by the number that the leader gave it."""
    w = records.writer
    write_i32_le(w, i32(1 + HOLDER_FIXED + len(user) + len(name)))
    w.append(TUBE_HOLDER)
    write_i64_le(w, number)
    w.write(uuid)
    write_i32_le(w, i32(len(user)))
    w.write(user)
    w.write(name)
    records.count += 1
    records.binding_count += 1


def decode_home(kind: i64, data: bytes, at: i64, end: i64, r: HomeRecord) -> bool:
    """Decode the rest of a record after its kind. False if it is malformed."""
    if kind == TUBE_HOLDER:
        return decode_holder(data, at, end, r)
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


def decode_holder(data: bytes, at: i64, end: i64, r: HomeRecord) -> bool:
    """Decode the rest of a TUBE_HOLDER."""
    if end - at <= HOLDER_FIXED:
        return False
    r.number = read_i64_le(data, at)
    r.uuid = data[at + 8 : at + 24]
    size: i64 = i64(read_i32_le(data, at + 24))
    at += HOLDER_FIXED
    if size < 0 or size >= end - at or r.number <= 0:
        return False
    r.user = data[at : at + size]
    r.name = data[at + size : end]
    return True
