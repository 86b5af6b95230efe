"""Rare records: their bytes as they have always been, each field at its bounds (SPEC J2)."""

from __future__ import annotations

import pytest
from journal_lab import decode_all
from msgspec import inspect

from bounds import keep_bounds, stated
from tuque.core.msgs.records import (
    KINDS,
    TABLE,
    AppRow,
    EndRow,
    GapRow,
    GrantRow,
    LeaseDrop,
    LeaseGroup,
    PauseRow,
    PeerRow,
    Published,
    QueueSettings,
    Row,
    SessionRow,
    SoloRow,
    StageDrop,
    StagedWork,
    TopicKeys,
    TopicRow,
    TubeCfg,
    TubeDrop,
    TubeFamily,
    TubeHolder,
    TubeImplicit,
    TubeRow,
    TubeStand,
    VoteMarks,
    VotersNextRow,
    VotersRow,
)
from tuque.core.records import read as back
from tuque.core.records.jobs import KIND_NAMES, Records
from tuque.server.journal.tool import fields

A, B = b"a" * 40, b"b" * 40
D = b"d" * 8

# written by hand, when each kind had an encoder and a decoder of its own
RECORDED: list[tuple[Row, str]] = [
    (
        PauseRow(5, 1 << 60, b"queue"),
        "0f000000060500000000000000107175657565",
    ),
    (
        EndRow(1 << 40, 7),
        "110000000700000000000100000700000000000000",
    ),
    (
        GapRow(3, 1 << 33),
        "110000000803000000000000000000000002000000",
    ),
    (
        PeerRow(1, A, 1 << 40),
        "320000000a01616161616161616161616161616161616161616161616161616161616161616161616161"
        "616161610000000000010000",
    ),
    (
        TubeRow(3, 9, 1000, 2000, -5, 7, True, b"t", b"fifo", b"x", b"memtx", b"cb"),
        "490000001603000000000000000900000000000000e803000000000000d007000000000000fbffffffff"
        "ffffff07000000000000000101000400010005000200746669666f786d656d74786362",
    ),
    (
        TubeDrop(b"tube"),
        "050000001774756265",
    ),
    (
        SessionRow(4, 1 << 40, True, b"u" * 16, b"guest"),
        "270000001a0400000000000000000000000001000001757575757575757575757575757575756775657374",
    ),
    (
        TubeCfg(60_000, True, 1 << 50),
        "120000001b60ea000000000000010000000000000400",
    ),
    (
        GrantRow(3, b"tube", b"queue", b"umax"),
        "130000001c0304000500747562657175657565756d6178",
    ),
    (
        TubeHolder(5, b"u" * 16, b"guest", b"tube"),
        "260000001e05000000000000007575757575757575757575757575757505000000677565737474756265",
    ),
    (
        VotersRow(3, 1, D, 2, b"o" * 16, [(A, 1, bytes(8)), (B, 2, D)]),
        "9e00000021030000000000000001000000000000006464646464646464026f6f6f6f6f6f6f6f6f6f6f6f"
        "6f6f6f6f0200000061616161616161616161616161616161616161616161616161616161616161616161"
        "616161616161010000000000000000000000000000006262626262626262626262626262626262626262"
        "626262626262626262626262626262626262626202000000000000006464646464646464",
    ),
    (
        TubeStand(5, 4, 1 << 33, 1 << 60, A, B, b"t"),
        "720000002205000000000000000400000000000000000000000200000000000000000000106161616161"
        "616161616161616161616161616161616161616161616161616161616161616161616162626262626262"
        "62626262626262626262626262626262626262626262626262626262626262626274",
    ),
    (
        VotersNextRow(3, 9, 8, b"o" * 16, B, A, [(A, 1, bytes(8)), (B, 2, D)]),
        "ed000000230300000000000000090000000000000008000000000000006f6f6f6f6f6f6f6f6f6f6f6f6f"
        "6f6f6f626262626262626262626262626262626262626262626262626262626262626262626262626262"
        "626161616161616161616161616161616161616161616161616161616161616161616161616161616102"
        "000000616161616161616161616161616161616161616161616161616161616161616161616161616161"
        "610100000000000000000000000000000062626262626262626262626262626262626262626262626262"
        "62626262626262626262626262626202000000000000006464646464646464",
    ),
    (
        VoteMarks(1, 7, [(B, 2, 6)]),
        "4d0000002501000000000000000700000000000000010000006262626262626262626262626262626262"
        "626262626262626262626262626262626262626262626202000000000000000600000000000000",
    ),
    (
        LeaseGroup(7, 9, 5, -1, 1000, 1 << 40, [b"g", b"me", b"q", b"", b"qq"]),
        "4f0000000e070000000000000009000000000000000500000000000000ffffffffffffffffe803000000"
        "0000000000000000010000050000000100000067020000006d65010000007100000000020000007171",
    ),
    (
        LeaseDrop(7, 8, b"g"),
        "12000000100700000000000000080000000000000067",
    ),
    (
        StageDrop(b"txn", b"try"),
        "08000000120374786e747279",
    ),
    (
        Published(2, 1 << 40, 1 << 60, 3, [b"a", b"bb"], [A, bytes(40)], b"app", b"txn"),
        "820000001302000000000000000000000000010000000000000000001003000000020000000200000003"
        "0361707074786e0161026262616161616161616161616161616161616161616161616161616161616161"
        "616161616161616161610000000000000000000000000000000000000000000000000000000000000000"
        "0000000000000000",
    ),
    (
        AppRow(-1, 77, b"app"),
        "1400000015ffffffffffffffff4d00000000000000617070",
    ),
    (
        TopicRow(5, A, 1, b"t", b"q", [(b"h", b"x*"), (b"k", b"v")]),
        "430000002405000000000000006161616161616161616161616161616161616161616161616161616161"
        "6161616161616161616161010101000000027471010268782a01016b76",
    ),
    (
        TubeImplicit(b"tube"),
        "050000002674756265",
    ),
    (
        SoloRow(1, 2, D, True, True, b"o" * 16, A, 3, bytes(8)),
        "630000002701000000000000000200000000000000646464646464646401016f6f6f6f6f6f6f6f6f6f6f"
        "6f6f6f6f6f61616161616161616161616161616161616161616161616161616161616161616161616161"
        "61616103000000000000000000000000000000",
    ),
    (
        TubeFamily(b"f" * 8, 2, 5, 1 << 60, A, b"t"),
        "4a0000002866666666666666660200000000000000050000000000000000000000000000106161616161"
        "616161616161616161616161616161616161616161616161616161616161616161616174",
    ),
    (
        TopicKeys(b"t", b"q", [b"x.*", b"#"]),
        "0f00000029010100000002747103782e2a0123",
    ),
    (
        QueueSettings(5, A, 2, 9_000, True, True, 1_500, 7, b"q"),
        "490000002a05000000000000006161616161616161616161616161616161616161616161616161616161"
        "61616161616161616161610228230000000000000101dc050000000000000700000071",
    ),
    (
        StagedWork(
            2, 3, 500, 4, 5, 6, 7, True, False, True, b"t", b"a", A, b"dead", b"\x01a\x01\x00b"
        ),
        "6c0000002b0200000003000000f401000004000000000000000500000000000000060000000000000007"
        "000000000000000100010101280400000005007461616161616161616161616161616161616161616161"
        "61616161616161616161616161616161616161646561640161010062",
    ),
]
NAMES = [KIND_NAMES[TABLE.pack(row)[0]] for row, _ in RECORDED]


def written(row: Row) -> bytes:
    """The record of the row."""
    records = Records()
    records.put(row)
    return records.take()


def read(data: bytes) -> Row | None:
    """The row in a record."""
    (r,) = decode_all(data)
    return r.row


def test_each_kind_is_recorded_here() -> None:
    assert sorted(TABLE.pack(row)[0] for row, _ in RECORDED) == sorted(KINDS)
    words = """pause end gap peer tube tube-drop session tube-cfg grant tube-holder voters
        tube-stand
        voters-next vote-marks lease-group lease-drop stage-drop published app topic
        tube-implicit solo tube-family topic-keys queue-settings staged-work"""
    assert words.split() == NAMES


@pytest.mark.parametrize(("row", "digits"), RECORDED, ids=NAMES)
def test_the_bytes_are_what_they_were(row: Row, digits: str) -> None:
    """A journal of an older program is read, and this one writes no other bytes."""
    assert read(bytes.fromhex(digits)) == row
    assert written(row).hex() == digits


@pytest.mark.parametrize(("row", "digits"), RECORDED, ids=NAMES)
def test_a_record_that_is_cut_or_too_long_is_refused(row: Row, digits: str) -> None:
    """J2: no length in the bytes is trusted."""
    whole = bytes.fromhex(digits)
    for size in range(1, len(whole) - 4):
        data = size.to_bytes(4, "little") + whole[4 : 4 + size]
        if ends_in_a_word(row) or isinstance(row, TubeCfg):
            continue_or_refuse(row, data)
        else:
            with pytest.raises(back.BadRecord):
                back.decode(data, 0, back.Record())
    if not ends_in_a_word(row):
        data = (len(whole) - 3).to_bytes(4, "little") + whole[4:] + b"x"
        with pytest.raises(back.BadRecord):
            back.decode(data, 0, back.Record())


def ends_in_a_word(row: Row) -> bool:
    """Whether the last field takes what is left."""
    fields = inspect.type_info(type(row)).fields  # type: ignore[attr-defined]  # of a struct
    last = fields[-1].type
    return isinstance(last, inspect.Metadata) and (last.extra or {}).get("form") == "0s"


def continue_or_refuse(row: Row, data: bytes) -> None:
    """A shorter word is a word; what is read is a row that gives the same bytes."""
    r = back.Record()
    try:
        assert back.decode(data, 0, r) == len(data)
    except back.BadRecord:
        return
    assert r.row is not None
    assert type(r.row) is type(row)
    assert written(r.row) == data or isinstance(row, TubeCfg)


# stated here once more: a bound that changes there by mistake fails here
LAST = (1 << 63) - 1
ANY = f"{-LAST - 1} {LAST}"
SPAN = 1 << 53
BOUNDS = stated(
    f"""
PauseRow bits 0 255, stamp_ns 0 {LAST}, queue 0 -
EndRow jobs {ANY}, records {ANY}
GapRow records {ANY}, bytes {ANY}
PeerRow slot 0 255, node_id 40 40, incarnation {ANY}
TubeRow number 0 {LAST}, next_number 0 {LAST}, ttl_ms 0 {LAST}, ttr_ms 0 {LAST}, pri {ANY},
    capacity {ANY}, name 1 32767, kind 0 32767, storage 0 32767, engine 0 32767,
    callback 0 32767
TubeDrop name 1 -
TubeImplicit name 1 -
SessionRow number 1 {LAST}, until_ms 0 {LAST}, uuid 16 16, user 0 -
TubeCfg ttr_ms 0 {LAST}, token_reserved 0 {LAST}
GrantRow bits 0 3, tube 1 32767, prefix 0 32767, holder 1 -
TubeHolder number 1 {LAST}, uuid 16 16, user 0 -, name 1 -
VotersRow number 1 {LAST}, right 0 {LAST}, disk 8 8, step 1 2, origin 16 16, voters 1 62,
    voters.0.0 40 40, voters.0.1 1 {LAST}, voters.0.2 8 8
SoloRow number 1 {LAST}, right 0 {LAST}, disk 8 8, origin 16 16, voter 40 40,
    voter_right 1 {LAST}, voter_disk 8 8
TubeFamily family 8 8, moves 0 {LAST}, from_number 0 {LAST}, made_ns 0 {LAST}, maker 40 40, name 1 -
TubeStand epoch 0 {LAST}, whole_epoch 0 {LAST}, whole_seq 0 {LAST}, made_ns 0 {LAST}, maker 40 40,
    node 40 40, name 1 -
VotersNextRow number 1 {LAST}, attempt 0 {LAST}, written_attempt 0 {LAST}, origin 16 16, node 40 40,
    written_node 40 40, voters 0 62, voters.0.0 40 40, voters.0.1 1 {LAST}, voters.0.2 8 8
VoteMarks right 0 {LAST}, mark 0 {LAST}, marks 0 62, marks.0.0 40 40, marks.0.1 1 {LAST},
    marks.0.2 0 {LAST}
LeaseGroup epoch 1 {LAST}, last_seq 0 {LAST}, acked_seq 0 {LAST}, floor_seq -1 {LAST},
    ttl_ms 0 {LAST}, used_ms {ANY}, names 3 -, names.0 1 255
LeaseDrop epoch 1 {LAST}, seq 1 {LAST}, name 1 255
StageDrop txn 1 255, attempt 0 255
Published version 0 {LAST}, now_ms 0 {LAST}, ctime_ns 0 {LAST}, default_repl 1 2147483647,
    attempts 0 -, attempts.0 1 255, ids 0 -, ids.0 40 40, app 1 255, txn 1 255
AppRow version -1 {LAST}, used_ms {ANY}, app 1 255
TopicRow version 0 1152921504606846976, node 40 40, is_gone 0 1, topic 1 255, queue 1 512,
    filters 0 8, filters.0.0 0 255, filters.0.1 0 255
TopicKeys topic 1 255, queue 1 512, keys 1 64, keys.0 1 255
StagedWork position 0 2147483647, attempts 0 65535, jitter 0 1000, first_ms 0 {SPAN},
    max_ms 0 {SPAN}, keep_ms 0 {SPAN}, limit_ms 0 {SPAN}, txn 1 255, attempt 1 255,
    id 0 40, dead 0 -, headers 0 32767
QueueSettings version 0 1152921504606846976, node 40 40, state 0 2, expires_ms 0 31622400000,
    ttl_ms 0 2147483647000, maxlen 0 2147483647, queue 1 512
"""
)


@pytest.mark.parametrize(("row", "digits"), RECORDED, ids=NAMES)
def test_each_field_is_refused_beyond_its_bounds(row: Row, digits: str) -> None:
    keep_bounds(row, BOUNDS[type(row).__name__], lambda changed: read(written(changed)))


def test_an_older_record_of_the_options_has_no_tokens() -> None:
    """A record without the number, as it was written once, is read."""
    whole = written(TubeCfg(5, True, 7))
    short = (10).to_bytes(4, "little") + whole[4:14]
    assert read(short) == TubeCfg(5, True, 0)


def test_no_reply_waits_for_marks() -> None:
    records = Records()
    records.put(VoteMarks(1, 7, []), False)
    assert (records.count, records.binding_count) == (1, 0)
    records.put(TubeDrop(b"t"))
    assert (records.count, records.binding_count) == (2, 1)


def test_votes_are_shown() -> None:
    """`tuque journal show` prints the list and the vote."""
    shown = {row["record"]: row for row in map(fields, decode_all(b"".join(map(written, ROWS))))}
    solo, family = shown["solo"], shown["tube-family"]
    assert (solo["is_in_force"], solo["voters"]) == (False, ["aaaaaaaa:3"])
    assert (family["tube"], family["moves"], family["from_list"]) == ("t", 2, 5)
    marks, after = shown["vote-marks"], shown["voters-next"]
    voters, stand = shown["voters"], shown["tube-stand"]
    assert (marks["mark"], marks["others"]) == (7, ["bbbbbbbb:2:6"])
    assert (after["attempt"], after["written"]) == (9, 8)
    assert (voters["list"], voters["is_in_force"]) == (3, True)
    assert voters["voters"] == ["aaaaaaaa:1", f"bbbbbbbb:2:{D.hex()}"]
    assert voters["disk"] == D.hex()
    assert (stand["tube"], stand["epoch"], stand["stands_with"]) == ("t", 5, "bbbbbbbb")


ROWS = [row for row, _ in RECORDED]
