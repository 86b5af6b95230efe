"""What is packed by hand: what each kind reads, and its bounds, all in literals (SPEC J2).

No number here comes from the product: a bound that changes there by mistake fails here.
"""

from __future__ import annotations

from operator import attrgetter
from typing import Any

import pytest
from journal_lab import decode_all, recorded, segment

from tuque.core.records import read as back
from tuque.core.records.jobs import KIND_NAMES, Records
from tuque.store.frames import HEADER_BYTES, FrameScanner, decode_header
from tuque.tubes.entries.keys import entry_in, is_sound, opened, unpack
from tuque.tubes.log.receive import changes_in

FAR = 4_611_686_018_427_387_903
SPAN = 9_007_199_254_740_992
AT = 1_700_000_000_000  # when the journal of 0.3.0 was written

# ---- The journal of Tuque 0.3.0: each of its records

SHOWN = {
    "add": "queue body state flags repl retry_s delay_s ctime_ns expire_ms qtime_ms "
    "delivered_count",
    "first": "state flags qtime_ms first_ms last_ms delivered_count",
    "ack": "expire_ms",
    "pause": "row.bits row.stamp_ns row.queue",
    "life": "life.life.terms.attempts life.life.terms.keep_ms life.life.run_state life.life.failed "
    "life.life.starts life.life.run life.life.worker life.life.dead_ms",
    "outcome": "life.outcome.kind life.outcome.of life.outcome.until_ms life.outcome.ended_ms "
    "life.outcome.run life.outcome.result",
}
RUN = 549_764_991_948
NS = AT * 1_000_000
DUE, DAY, MONTH = AT + 60_000, AT + 86_400_000, AT + 30 * 86_400_000
# fmt: off
JOURNAL: list[tuple[Any, ...]] = [  # kind, a letter of the id, what is shown
    ("add", b"A", b"failed", b"body of failed", 2, 8, 1, 60, 0, NS, DAY, DUE, 0),
    ("life", b"A", 3, 0, 0, 0, 0, 0, b"", 0),
    ("add", b"B", b"done", b"body of done", 2, 8, 1, 60, 0, NS + 1, DAY, DUE, 0),
    ("life", b"B", 3, 60_000, 0, 0, 0, 0, b"", 0),
    ("add", b"C", b"running", b"body of running", 2, 8, 1, 60, 0, NS + 2, DAY, DUE, 0),
    ("life", b"C", 3, 0, 0, 0, 0, 0, b"", 0),
    ("add", b"D", b"dead", b"body of dead", 2, 8, 1, 60, 0, NS + 3, DAY, DUE, 0),
    ("life", b"D", 1, 0, 0, 0, 0, 0, b"", 0),
    ("add", b"E", b"waiting", b"body of waiting", 2, 8, 1, 60, 0, NS + 4, DAY, DUE, 0),
    ("life", b"E", 2, 0, 0, 0, 0, 0, b"", 0),
    ("first", b"A", 1, 12, DUE, AT, AT, 1),
    ("life", b"A", 3, 0, 1, 0, 1, RUN, b"w1", 0),
    ("first", b"B", 1, 12, DUE, AT, AT, 1),
    ("life", b"B", 3, 60_000, 1, 0, 1, RUN, b"w1", 0),
    ("first", b"C", 1, 12, DUE, AT, AT, 1),
    ("life", b"C", 3, 0, 1, 0, 1, RUN, b"w1", 0),
    ("first", b"D", 1, 12, DUE, AT, AT, 1),
    ("life", b"D", 1, 0, 1, 0, 1, RUN, b"w1", 0),
    ("first", b"A", 1, 4, AT + 300, AT, AT, 1),
    ("life", b"A", 3, 0, 3, 1, 1, RUN, b"w1", 0),
    ("first", b"D", 2, 12, DUE, AT, AT, 1),
    ("add", b"D", b"graves", b"body of dead", 2, 12, 1, 60, 0, NS + 3, MONTH, DUE, 1),
    ("life", b"D", 1, 0, 3, 1, 1, RUN, b"w1", AT),
    ("outcome", b"B", 1, 3, DUE, AT, RUN, b"its result"),
    ("ack", b"B", DAY),
    ("pause", b"", 2, 0, b"waiting"),
]
# fmt: on


def test_the_journal_of_an_older_version_is_read_record_by_record() -> None:
    disk = recorded("journal-0.3.0.txt")
    path = segment(disk)
    header = decode_header(disk.read(path, 0, HEADER_BYTES), path)
    assert header is not None
    scanner = FrameScanner(disk, path, header.salt, HEADER_BYTES)
    found: list[tuple[Any, ...]] = []
    while scanner.offset < scanner.size:
        scanner.next()
        assert scanner.reason == ""
        for r in decode_all(scanner.frame.payload):
            name = KIND_NAMES[r.kind]
            shown = [attrgetter(one)(r) for one in SHOWN[name].split()]
            found.append((name, r.id[26:27], *shown))
    assert found == JOURNAL


# ---- The other kinds, in bytes that were written before the layouts were in one place

NODES = {"<D>": b"D" * 40, "<E>": b"E" * 40, "<1>": b"1" * 40, "<2>": b"2" * 40}
RECORDED = """
add 8100000001 <D> 0208030500000003 0000000400000001 0000000000000002 0000000000000006
    0000000000000007 0000000800000009 0000000a00000000 0000000b00000000 0000000300000000
    0000000500000071 75657565626f6479
state 5000000002 <D> 0208010600000000 0000000700000008 000000090000000a 000000000000000b
    00000000000000
holders 310000000b <D> 0300000000000000
acked 390000000c <D> 0200000000000000 0300000000000000
remove 2a00000005 <D> 03
tomb 320000000d <D> 0500000000000000 02
close 0100000009
life f70000001f <D> b001010000000400 0000070000000800 0000090000000200 0000000000000300
    0000000000000500 0000000000000600 0000000000000a00 0000000000000d00 0006800500000e00
    0000000000000f00 0000000000001000 0000000000001100 0000000000001200 0000000000001300
    0000000000000400 0000050000000100 0000020000000100 0000020000000100 0000646561640161
    0100627763727064 636f140000000000 0000150000000200 0000020000000200 0000020000006c77
    6c636c726c641600 000017000000
outcome 6c00000020 <D> 0105030000000100 0000000000000200 0000000000000600 8002000200000100
    0000010000000100 00000c0000007770 7207000000000000 0074756265726573 756c74
task-add ae00000018 <D> 7401020000000000 0000030000000000 0000040000000000 0000010000000000
    0000050000000400 0000030000000600 0000000000000700 0000000000000800 0000000000000900
    0000000000000a00 0000000000000b00 0000000000000c00 00000d0000000e00 00000f0000000000
    0000100000000000 0000747562657375 62626f6479
task-state 7600000019 <D> 7406000000000000 0007000000000000 0008000000000000 0009000000000000
    000a000000000000 000b000000000000 000c0000000d0000 000e0000000f0000 0000000000100000
    0000000000
tube-home 820000001d010000 0000000000020000 0000000000030000 0000000000040000 0000000000050000
    0000000000060000 0007 <1> <2> 74756265
staged 4200000011010000 0000000000020000 0003000000040000 0005000000060000 0007000000080000
    0000000000030303 0500000074786e74 72796b6579717565 7565626f6479
key 3a00000014010000 0000000000 <D> 71756575656b6579 03
lease-batch 970000000f010000 0000000000020000 0000000000030000 0001040000000000 0000050000000000
    0000060000000000 0000020000000000 000002000000 <D> faffffff <E> 0700000067726f75 70
keys 06000167016c0172 0200000003000000 0400000000000000 0500000006000000 000000000175
child ffff020103020000 0000000000030000 0000000000040000 0000000000280004 000300 <D>
    646f6e6577687972 6573756c74
keeper feff28 <D> 6b6579
"""

# fmt: off
READ: dict[str, dict[str, Any]] = {
    "add": {
        "id": b"D" * 40, "state": 2, "flags": 8, "repl": 5, "retry_s": 3, "delay_s": 4,
        "ctime_ns": 1,
        "expire_ms": 2, "qtime_ms": 6, "nacks": 7, "deliveries": 8, "delivered_count": 9,
        "first_ms": 10, "last_ms": 11, "holders": 3, "queue": b"queue", "body": b"body",
    },
    "state": {
        "id": b"D" * 40, "state": 2, "flags": 8, "qtime_ms": 6, "nacks": 7, "deliveries": 8,
        "delivered_count": 9, "first_ms": 10, "last_ms": 11,
    },
    "holders": {"id": b"D" * 40, "holders": 3},
    "acked": {"id": b"D" * 40, "expire_ms": 2, "holders": 3},
    "remove": {"id": b"D" * 40, "bits": 3},
    "tomb": {"id": b"D" * 40, "expire_ms": 5, "bits": 2},
    "close": {"kind": 9},
    "life": {
        "id": b"D" * 40, "life.life.terms.attempts": 1, "life.life.terms.first_ms": 2,
        "life.life.terms.max_ms": 3, "life.life.terms.jitter": 4, "life.life.terms.dead": b"dead",
        "life.life.terms.keep_ms": 5, "life.life.terms.limit_ms": 6, "life.life.terms.drops": False,
        "life.life.headers": b"\x01a\x01\x00b", "life.life.run_state": 1, "life.life.failed": 7,
        "life.life.starts": 8, "life.life.unstarted": 9, "life.life.replays": 10,
        "life.life.run": 11 << 39 | 12 << 23 | 13, "life.life.since_ms": 14,
        "life.life.expire_ms": 15, "life.life.ttl_ms": 16, "life.life.dead_ms": 17,
        "life.life.serial": 18, "life.life.edit": 19, "life.life.worker": b"w",
        "life.life.cancel_reason": b"cr", "life.life.progress": b"p", "life.life.dead_cause": b"dc",
        "life.life.origin": b"o", "life.life.first": None, "life.life.last.at_ms": 20,
        "life.life.last.attempt": 21, "life.life.last.worker": b"lw", "life.life.last.cause": b"lc",
        "life.life.last.reason": b"lr", "life.life.last.detail": b"ld", "life.life.returned": 22,
        "life.life.crashes": 23,
    },
    "outcome": {
        "life.outcome.id": b"D" * 40, "life.outcome.kind": 1, "life.outcome.until_ms": 1,
        "life.outcome.ended_ms": 2, "life.outcome.of": 3, "life.outcome.run": 4 << 39 | 5 << 23 | 6,
        "life.outcome.worker": b"w", "life.outcome.progress": b"p", "life.outcome.reason": b"r",
        "life.outcome.result": b"result", "life.outcome.number": 7, "life.outcome.queue": b"tube",
    },
    "task-add": {
        "task.id": b"D" * 40, "task.status": 116, "task.form": 1, "task.number": 2, "task.pri": 3,
        "task.created_ms": 4, "task.ctime_ns": 1, "task.delay_s": 5, "task.ttl_ms": 6,
        "task.ttr_ms": 7, "task.qtime_ms": 8, "task.token": 9, "task.owner": 10,
        "task.taken_ms": 11,
        "task.nacks": 12, "task.deliveries": 13, "task.delivered_count": 14, "task.first_ms": 15,
        "task.last_ms": 16, "task.queue": b"tube", "task.subqueue": b"sub", "task.body": b"body",
    },
    "task-state": {
        "task.id": b"D" * 40, "task.status": 116, "task.ttl_ms": 6, "task.ttr_ms": 7,
        "task.qtime_ms": 8, "task.token": 9, "task.owner": 10, "task.taken_ms": 11,
        "task.nacks": 12, "task.deliveries": 13,
        "task.delivered_count": 14, "task.first_ms": 15, "task.last_ms": 16,
    },
    "tube-home": {
        "home.epoch": 1, "home.seq": 2, "home.copy_epoch": 3, "home.told_seq": 4, "home.made_ns": 5,
        "home.sync": 6, "home.flags": 7, "home.maker": b"1" * 40, "home.home": b"2" * 40,
        "home.name": b"tube",
    },
    "staged": {
        "stage.until_ms": 1, "stage.position": 2, "stage.repl": 3, "stage.retry_s": 4,
        "stage.delay_s": 5, "stage.ttl_s": 6, "stage.maxlen": 7, "stage.key_ttl_ms": 8,
        "stage.txn": b"txn", "stage.attempt": b"try", "stage.key": b"key", "stage.queue": b"queue",
        "stage.body": b"body",
    },
    "key": {"stage.until_ms": 1, "stage.id": b"D" * 40, "stage.key": b"queuekey\x03"},
    "lease-batch": {
        "lease.epoch": 1, "lease.seq": 2, "lease.parts": 3, "lease.how": 1, "lease.drop_ms": 4,
        "lease.at_ms": 5, "lease.body_bytes": 6, "lease.total": 2, "lease.first": 0,
        "lease.ids": [b"D" * 40, b"E" * 40], "lease.marks": [-6, 7], "lease.name": b"group",
    },
    "keys": {
        "group": b"g", "weight": 2, "limit": b"l", "places": 3, "rate": b"r", "gap_ns": 4,
        "burst": 5, "unique": b"u", "until_ms": 6,
    },
    "child": {
        "state": 1, "group": 2, "index": 3, "over_ms": 4, "id": b"D" * 40, "is_met": True,
        "word": b"done", "reason": b"why", "result": b"result",
    },
    "keeper": {"id": b"D" * 40, "key": b"key"},
}
# fmt: on
CARRIED = ("keys", "child", "keeper")  # by tasks, without a kind

# field, where it is, form, least and greatest value; `-`: what the form can be
BOUNDS = f"""
add         state 45 u8 0 3, repl 48 i32 0 -, retry_s 52 i32 0 -, delay_s 56 i32 0 -,
            ctime_ns 60 i64 0 -, expire_ms 68 i64 0 -, nacks 84 i32 0 -, deliveries 88 i32 0 -,
            delivered_count 92 i32 0 -, holders 112 i64 0 -, queue 120 i32 0 9
state       state 45 u8 0 3, nacks 56 i32 0 -, deliveries 60 i32 0 -, delivered_count 64 i32 0 -
holders     holders 45 i64 0 -
acked       expire_ms 45 i64 0 -, holders 53 i64 0 -
tomb        expire_ms 45 i64 0 -
life        run_state 46 u8 0 7, attempts 47 i32 0 65535, jitter 51 i32 0 1000,
            failed 55 i32 0 65535, starts 59 i32 0 16777215, unstarted 63 i32 0 -,
            first_ms 67 i64 0 {SPAN}, max_ms 75 i64 0 {SPAN}, keep_ms 83 i64 0 {SPAN},
            limit_ms 91 i64 0 {SPAN}, replays 99 i64 0 {FAR}, since_ms 115 i64 0 {FAR},
            expire_ms 123 i64 0 {FAR}, ttl_ms 131 i64 0 {FAR}, dead_ms 139 i64 0 {FAR},
            serial 147 i64 0 {FAR}, edit 155 i64 0 -, at_ms 207 i64 0 {FAR},
            attempt 215 i32 0 65535, returned 243 i32 1 -, crashes 247 i32 1 -
outcome     kind 45 u8 1 4, attempts 47 i32 0 65535, until_ms 51 i64 0 {FAR},
            ended_ms 59 i64 0 {FAR}, number 94 i64 0 {FAR}
task-add    form 46 u8 0 2, number 47 i64 0 {FAR}, pri 55 i64 0 {FAR}, created_ms 63 i64 0 {FAR},
            ctime_ns 71 i64 0 -, delay_s 79 i32 0 -, queue 83 i32 1 8, subqueue 87 i32 0 7,
            ttl_ms 91 i64 0 {FAR}, ttr_ms 99 i64 0 {FAR}, qtime_ms 107 i64 0 {FAR},
            token 115 i64 0 {FAR}, owner 123 i64 0 {FAR}, taken_ms 131 i64 0 {FAR},
            nacks 139 i32 0 -, deliveries 143 i32 0 -, delivered_count 147 i32 0 -,
            first_ms 151 i64 0 {FAR}, last_ms 159 i64 0 {FAR}
task-state  ttl_ms 46 i64 0 {FAR}, ttr_ms 54 i64 0 {FAR}, qtime_ms 62 i64 0 {FAR},
            token 70 i64 0 {FAR}, owner 78 i64 0 {FAR}, taken_ms 86 i64 0 {FAR},
            nacks 94 i32 0 -, deliveries 98 i32 0 -, delivered_count 102 i32 0 -,
            first_ms 106 i64 0 {FAR}, last_ms 114 i64 0 {FAR}
tube-home   epoch 5 i64 0 {FAR}, seq 13 i64 0 {FAR}, copy_epoch 21 i64 0 {FAR},
            told_seq 29 i64 0 {FAR}, made_ns 37 i64 0 -, sync 45 i32 1 -
staged      until_ms 5 i64 0 -, position 13 i32 0 -, retry_s 21 i32 0 -, delay_s 25 i32 0 -,
            ttl_s 29 i32 1 -, maxlen 33 i32 0 -, key_ttl_ms 37 i64 0 -, txn 45 u8 1 7,
            attempt 46 u8 1 7, key 47 u8 0 7, queue 48 i32 0 9
key         until_ms 5 i64 0 {FAR}, key 61 u8 1 8
lease-batch epoch 5 i64 1 -, seq 13 i64 1 -, parts 21 i32 1 1024, how 25 u8 0 7,
            drop_ms 26 i64 0 -, body_bytes 42 i64 0 -, total 50 i32 2 -, first 54 i32 0 0,
            mark 102 i32 -6 -, mark 146 i32 -6 -
keys        weight 8 i32 1 1000, places 12 i32 1 1000000, gap_ns 16 i64 1 3600000000000,
            burst 24 i32 1 1000000, until_ms 28 i64 -1 31622400000, unique 36 u8 1 1
child       kind 2 u8 2 2, state 3 u8 0 2, bits 4 u8 1 3, group 5 i64 0 {FAR}, index 13 i64 0 9999,
            over_ms 21 i64 0 {FAR}, id 29 i16 1 46, word 31 i16 0 10, reason 33 i16 0 9
keeper      id 2 u8 1 42
"""


def table(text: str) -> dict[str, list[str]]:
    """The words of each kind; a line that is indented goes on."""
    found: dict[str, list[str]] = {}
    for line in text.split("\n"):
        words = line.split()
        if words and not line.startswith(" "):
            last = found[words.pop(0)] = []
        if words:
            last += words
    return found


WRITTEN = {
    name: b"".join(NODES.get(word) or bytes.fromhex(word) for word in words)
    for name, words in table(RECORDED).items()
}


def is_read(name: str, data: bytes) -> bool:
    """Whether the reader takes these bytes of that kind."""
    if name in CARRIED:
        return is_sound(data)
    try:
        return back.decode(data, 0, back.Record()) == len(data)
    except back.BadRecord:
        return False


def changed(data: bytes, at: int, form: str, value: int) -> bytes | None:
    """The bytes with another value there; None: the form has no such value."""
    size = int(form[1:]) // 8
    try:
        word = value.to_bytes(size, "little", signed=form[0] == "i")
    except OverflowError:
        return None
    return data[:at] + word + data[at + size :]


def test_each_kind_is_here() -> None:
    words = """add state holders acked remove tomb close life outcome task-add task-state tube-home
        staged key lease-batch keys child keeper"""
    assert words.split() == list(WRITTEN) == list(READ)
    assert {*words.split(), "first", "ack"} >= set(table(BOUNDS))


@pytest.mark.parametrize("name", WRITTEN)
def test_each_field_is_read(name: str) -> None:
    data = WRITTEN[name]
    found: Any
    if name == "keys":
        found = unpack(data)
    elif name in CARRIED:
        found = entry_in(data)
    else:
        (found,) = decode_all(data)
        assert KIND_NAMES[found.kind] == name
    assert {one: attrgetter(one)(found) for one in READ[name]} == READ[name]


@pytest.mark.parametrize("name", table(BOUNDS))
def test_each_number_is_refused_beyond_its_bounds(name: str) -> None:
    """J2: no length in the bytes is trusted, and no number."""
    data = WRITTEN[name]
    assert is_read(name, data)
    for row in " ".join(table(BOUNDS)[name]).split(","):
        field, at, form, low, high = row.split()
        most = (1 << int(form[1:]) - (form[0] == "i")) - 1
        last = most if high == "-" else int(high)
        ends = [(int(low), True), (last, True), (int(low) - 1, False), (last + 1, False)]
        for value, is_good in ends:
            other = changed(data, int(at), form, value)
            if other is not None:
                assert is_read(name, other) == is_good, (field, value)


@pytest.mark.parametrize(
    ("name", "at", "form", "values"),
    [
        ("add", 47, "u8", [4, 255]),  # shapes
        ("state", 47, "u8", [2, 3]),  # the set is in none
        ("life", 45, "u8", [0, 8, 24, 255]),  # bits: a failure or a count too few or too many
        ("life", 46, "u8", [8, 15, 16, 255]),  # attempts that are not there
        ("life", 107, "i64", [-1, 1, 1 << 39, 1 << 23]),  # no tokens
        *(("life", 163 + 4 * i, "i32", [-1, 2**31 - 1]) for i in range(7)),  # sizes of words
        ("life", 195, "u8", [0, 2, 9]),  # a header's name that is longer, or ends sooner
        ("life", 197, "i16", [0, 2]),  # its value
        *(("life", 219 + 4 * i, "i32", [-1, 0, 2**31 - 1]) for i in range(4)),
        ("outcome", 46, "u8", [0, 8, 255]),
        *(("outcome", 75 + 4 * i, "i32", [-1, 2**31 - 1]) for i in range(4)),
        ("outcome", 67, "i64", [-1, 1, 1 << 39, 1 << 23]),
        ("task-add", 45, "u8", [0, 45, 115, 255]),  # statuses
        ("task-state", 45, "u8", [0, 45, 115, 255]),
        ("staged", 17, "i32", [0, -2, 65_536, 1 << 17, (10 << 17) - 1]),  # copies, levels
        ("keys", 12, "i32", [0]),  # a limit without places
        ("keys", 16, "i64", [0]),  # a rate without a gap
        ("keys", 2, "u8", [0]),  # a group whose size is another one's
    ],
)
def test_what_cannot_be_is_refused(name: str, at: int, form: str, values: list[int]) -> None:
    for value in values:
        other = changed(WRITTEN[name], at, form, value)
        assert other is not None
        assert not is_read(name, other), value


def test_a_rate_fills_in_31_years() -> None:
    """T44.1 Its burst times its gap has a bound, too."""
    widest = changed(WRITTEN["keys"], 24, "i32", 1_000_000)
    assert widest is not None
    for gap_ns, is_good in ((10**12, True), (10**12 + 1, False)):
        data = changed(widest, 16, "i64", gap_ns)
        assert data is not None
        assert is_sound(data) == is_good


# of how many bytes its last word may be shorter
LOOSE = {
    "add": 4, "outcome": 6, "task-add": 4, "tube-home": 3, "staged": 4, "lease-batch": 4,
    "child": 6, "keeper": 2,
}  # fmt: skip


@pytest.mark.parametrize("name", WRITTEN)
def test_what_is_cut_or_too_long_is_refused(name: str) -> None:
    """J2: its own length is believed only as far as the fields of its kind fit."""
    whole = WRITTEN[name]
    if name in CARRIED:
        for size in range(1, len(whole)):
            assert is_read(name, whole[:size]) == (size >= len(whole) - LOOSE.get(name, 0))
        return
    for size in range(len(whole)):
        assert not is_read(name, whole[:size])
    body = whole[4:]
    for size in range(len(body)):
        shorter = size.to_bytes(4, "little") + body[:size]
        assert is_read(name, shorter) == (size >= len(body) - LOOSE.get(name, 0)), size
    longer = (len(body) + 1).to_bytes(4, "little") + body + b"\3"
    assert is_read(name, longer) == (name in LOOSE or name == "key")


def test_an_id_has_64_bytes_and_a_key_255() -> None:
    """T44.3, T50.3 Of a task that keeps a key, and of a child."""
    child = WRITTEN["child"]
    for size, is_good in ((64, True), (65, False)):
        assert is_sound(b"\xfe\xff" + bytes([size]) + b"i" * size + b"k") == is_good
        longer = child[:29] + bytes([size]) + child[30:35] + b"i" * size + child[75:]
        assert is_sound(longer) == is_good
    for size, is_good in ((0, False), (255, True), (256, False)):
        assert is_sound(b"\xfe\xff\x01i" + b"k" * size) == is_good


@pytest.mark.parametrize("name", ["task-add", "task-state"])
def test_a_counter_from_another_node_may_still_grow(name: str) -> None:
    """B2.1 In 32 bits: 1 << 30 of a journal is read, and of a message it is not."""
    at = READ_AT[name]
    for value, is_good in ((1 << 30, False), ((1 << 30) - 1, True)):
        for place in (at, at + 4, at + 8):
            data = changed(WRITTEN[name], place, "i32", value)
            assert data is not None
            assert is_read(name, data)
            assert (changes_in(data) is not None) == is_good


READ_AT = {"task-add": 139, "task-state": 94}


@pytest.mark.parametrize("ended_ms", [0, 1])
def test_no_leader_sends_a_claim(ended_ms: int) -> None:
    """T48.6 A journal has claims, which are of no task."""
    data = changed(WRITTEN["outcome"], 59, "i64", ended_ms)
    assert data is not None
    assert is_read("outcome", data)
    assert (changes_in(data) is not None) == (ended_ms == 1)


def test_the_work_of_a_task_ends_in_200_years() -> None:
    """T48.2 Its ttl, and of a run that lasts the begin after its take."""
    work = WRITTEN["life"][45:]
    for at, last in ((131 - 45, 6_307_200_000_000), (115 - 45, 6_307_200_000_000)):
        for value in (last, last + 1):
            data = changed(work, at, "i64", value)
            assert data is not None
            assert is_sound(WRITTEN["keys"] + data) == (value == last)
    entry = opened(WRITTEN["keys"] + work)
    assert entry is not None
    assert entry.work is not None
    assert entry.work.ttl_ms == 16
    assert not is_sound(WRITTEN["keys"] + work[:1] + b"\2" + work[2:])  # a run that lasts no more


def test_an_add_has_the_level_of_its_job_only_if_it_is_not_5() -> None:
    """In a byte before the size of the queue, and a bit of the shape; 0 to 9."""
    data = WRITTEN["add"]
    assert decode_all(data)[0].level == 5
    head = (int.from_bytes(data[:4], "little") + 1).to_bytes(4, "little")
    for level in range(11):
        longer = head + data[4:47] + bytes([data[47] | 4]) + data[48:120] + bytes([level])
        longer += data[120:]
        assert is_read("add", longer) == (level < 10)
        if level < 10:
            (found,) = decode_all(longer)
            assert (found.level, found.queue, found.body) == (level, b"queue", b"body")
    job = back.job_of(decode_all(data)[0])
    job.holders = 1
    sizes = []
    for level in (5, 0, 9):
        job.level = level
        records = Records()
        records.add(job)
        sizes.append(records.size())
        assert back.job_of(decode_all(records.take())[0]).level == level
    assert sizes == [sizes[0], sizes[0] + 1, sizes[0] + 1]


def test_the_copies_of_a_staged_job_have_its_level() -> None:
    data = WRITTEN["staged"]
    for repl in (-1, 1, 65_535):
        for step, level in ((0, 5), (4, 9), (5, 0), (9, 4)):
            other = changed(data, 17, "i32", repl + (step << 17))
            assert other is not None
            (found,) = decode_all(other)
            assert (found.stage.repl, found.stage.level) == (repl, level)
