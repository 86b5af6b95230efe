"""Journal records of tube leaders, replicas and votes, encoded and decoded (SPEC T22, J2).

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

from tuque.core.records.jobs import (
    NODE_ID_BYTES,
    TUBE_HOLDER,
    TUBE_HOME,
    TUBE_STAND,
    VOTE_MARKS,
    VOTERS,
    VOTERS_NEXT,
    Records,
)

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

PROPOSED: Final = 1  # steps of a list: its maker may still take it back
IN_FORCE: Final = 2

ORIGIN_BYTES: Final = 16
VOTERS_MAX: Final = 62  # as many nodes as there are slots
VOTERS_FIXED: Final = 37
VOTER_BYTES: Final = 48
NEXT_FIXED: Final = 124
STAND_FIXED: Final = 112
MARKS_FIXED: Final = 20
MARK_BYTES: Final = 56


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


# ---- Records of votes about leaders (SPEC T22.4)
#
# Layout, after length and kind, little-endian:
#
#     VOTERS      number i64, right of this node i64, step u8, origin 16, voters i32,
#                 of each voter: node id 40, right i64
#     VOTERS_NEXT number i64, attempt i64, written attempt i64, origin 16, node 40, written node 40,
#                 voters i32, of each voter: node id 40, right i64
#     VOTE_MARKS  right i64, mark i64, voters i32, of each other voter: node id 40, right i64,
#                 mark i64
#     TUBE_STAND  epoch i64, whole epoch i64, whole seq i64, made_ns i64, maker 40, node 40, name
#
# VOTERS is the whole list, and the right that this node has in it (0: none). VOTERS_NEXT is the
# last attempt at the next list that this node has heard, and the list that it has written down.
# VOTE_MARKS has the mark of this node under its right, and the highest ones that it has heard of
# others. TUBE_STAND is a vote: the node that this one stands with, and the newest copy that was
# whole here (the epoch 0: none).


@final
class VoteRecord:
    """One decoded record; only the fields of its kind are valid."""

    def __init__(self) -> None:
        self.number: i64 = 0
        self.right: i64 = 0
        self.step: i64 = 0
        self.origin = b""
        self.voters: list[tuple[bytes, int]] = []  # node id, right
        self.mark: i64 = 0
        self.marks: list[tuple[bytes, int, int]] = []  # node id, right, mark
        self.attempt: i64 = 0
        self.written_attempt: i64 = 0
        self.written_node = b""
        self.epoch: i64 = 0
        self.whole_epoch: i64 = 0
        self.whole_seq: i64 = 0
        self.made_ns: i64 = 0
        self.maker = b""
        self.node = b""
        self.name = b""


def tell_voters(records: Records, r: VoteRecord) -> None:
    """The list of voters that this node goes by (T22.4)."""
    w = records.writer
    write_i32_le(w, i32(1 + VOTERS_FIXED + VOTER_BYTES * len(r.voters)))
    w.append(VOTERS)
    write_i64_le(w, r.number)
    write_i64_le(w, r.right)
    w.append(r.step)
    w.write(r.origin)
    tell_list(records, r)


def tell_next(records: Records, r: VoteRecord) -> None:
    """What this node has promised and written down about the next list (T22.4)."""
    w = records.writer
    write_i32_le(w, i32(1 + NEXT_FIXED + VOTER_BYTES * len(r.voters)))
    w.append(VOTERS_NEXT)
    write_i64_le(w, r.number)
    write_i64_le(w, r.attempt)
    write_i64_le(w, r.written_attempt)
    w.write(r.origin)
    w.write(r.node)
    w.write(r.written_node)
    tell_list(records, r)


def tell_list(records: Records, r: VoteRecord) -> None:
    """The voters at the end of a record."""
    w = records.writer
    write_i32_le(w, i32(len(r.voters)))
    for node_id, right in r.voters:
        w.write(node_id)
        write_i64_le(w, right)
    records.count += 1
    records.binding_count += 1


def tell_stand(records: Records, r: VoteRecord) -> None:
    """Which node this one voted for, and what it had of the tube (T22.4)."""
    w = records.writer
    write_i32_le(w, i32(1 + STAND_FIXED + len(r.name)))
    w.append(TUBE_STAND)
    write_i64_le(w, r.epoch)
    write_i64_le(w, r.whole_epoch)
    write_i64_le(w, r.whole_seq)
    write_i64_le(w, r.made_ns)
    w.write(r.maker)
    w.write(r.node)
    w.write(r.name)
    records.count += 1
    records.binding_count += 1


def tell_marks(records: Records, r: VoteRecord) -> None:
    """How far this node has come as a voter, and how far others said that they have (T29.1, T29.2).

    No reply waits for it: it is not binding.
    """
    w = records.writer
    write_i32_le(w, i32(1 + MARKS_FIXED + MARK_BYTES * len(r.marks)))
    w.append(VOTE_MARKS)
    write_i64_le(w, r.right)
    write_i64_le(w, r.mark)
    write_i32_le(w, i32(len(r.marks)))
    for node_id, right, mark in r.marks:
        w.write(node_id)
        write_i64_le(w, right)
        write_i64_le(w, mark)
    records.count += 1


def decode_vote(kind: i64, data: bytes, at: i64, end: i64, r: VoteRecord) -> bool:
    """Decode the rest of a record after its kind. False if it is malformed."""
    if kind == TUBE_STAND:
        return decode_stand(data, at, end, r)
    if kind == VOTERS_NEXT:
        return decode_next(data, at, end, r)
    if kind == VOTE_MARKS:
        return decode_marks(data, at, end, r)
    if end - at < VOTERS_FIXED:
        return False
    r.number = read_i64_le(data, at)
    r.right = read_i64_le(data, at + 8)
    r.step = data[at + 16]
    r.origin = data[at + 17 : at + 17 + ORIGIN_BYTES]
    if not decode_list(data, at + 33, end, r) or len(r.voters) == 0:
        return False
    return r.number > 0 and r.right >= 0 and PROPOSED <= r.step <= IN_FORCE


def decode_list(data: bytes, at: i64, end: i64, r: VoteRecord) -> bool:
    """Decode the voters at the end of a record."""
    count: i64 = i64(read_i32_le(data, at))
    at += 4
    if count < 0 or count > VOTERS_MAX or end - at != VOTER_BYTES * count:
        return False
    r.voters = []
    while at < end:
        right = read_i64_le(data, at + NODE_ID_BYTES)
        if right < 1:
            return False
        r.voters.append((data[at : at + NODE_ID_BYTES], right))
        at += VOTER_BYTES
    return True


def decode_next(data: bytes, at: i64, end: i64, r: VoteRecord) -> bool:
    """Decode the rest of a VOTERS_NEXT."""
    if end - at < NEXT_FIXED:
        return False
    r.number = read_i64_le(data, at)
    r.attempt = read_i64_le(data, at + 8)
    r.written_attempt = read_i64_le(data, at + 16)
    r.origin = data[at + 24 : at + 24 + ORIGIN_BYTES]
    at += 40
    r.node = data[at : at + NODE_ID_BYTES]
    at += NODE_ID_BYTES
    r.written_node = data[at : at + NODE_ID_BYTES]
    if not decode_list(data, at + NODE_ID_BYTES, end, r):
        return False
    return r.number > 0 and r.attempt >= 0 and r.written_attempt >= 0


def decode_marks(data: bytes, at: i64, end: i64, r: VoteRecord) -> bool:
    """Decode the rest of a VOTE_MARKS."""
    if end - at < MARKS_FIXED:
        return False
    r.right = read_i64_le(data, at)
    r.mark = read_i64_le(data, at + 8)
    count: i64 = i64(read_i32_le(data, at + 16))
    at += MARKS_FIXED
    if count < 0 or count > VOTERS_MAX or end - at != MARK_BYTES * count:
        return False
    r.marks = []
    while at < end:
        right = read_i64_le(data, at + NODE_ID_BYTES)
        mark = read_i64_le(data, at + NODE_ID_BYTES + 8)
        if right < 1 or mark < 0:
            return False
        r.marks.append((data[at : at + NODE_ID_BYTES], right, mark))
        at += MARK_BYTES
    return r.right >= 0 and r.mark >= 0


def decode_stand(data: bytes, at: i64, end: i64, r: VoteRecord) -> bool:
    """Decode the rest of a TUBE_STAND."""
    if end - at <= STAND_FIXED:
        return False
    r.epoch = read_i64_le(data, at)
    r.whole_epoch = read_i64_le(data, at + 8)
    r.whole_seq = read_i64_le(data, at + 16)
    r.made_ns = read_i64_le(data, at + 24)
    at += 32
    r.maker = data[at : at + NODE_ID_BYTES]
    at += NODE_ID_BYTES
    r.node = data[at : at + NODE_ID_BYTES]
    r.name = data[at + NODE_ID_BYTES : end]
    return r.epoch >= 0 and r.whole_epoch >= 0 and r.whole_seq >= 0 and r.made_ns >= 0
