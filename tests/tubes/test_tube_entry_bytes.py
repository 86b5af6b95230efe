"""What schedules and groups are in bytes: as they have always been, each field at its bounds."""

from __future__ import annotations

import pytest
from msgspec import structs

from bounds import keep_bounds, stated
from tuque.core.msgs.entries import ENTRIES, GroupRow, ScheduleRow
from tuque.core.msgs.records import Row
from tuque.tubes.entries.keys import NO_KEYS, entry_in, is_sound

# fmt: off
PLAN = ScheduleRow(
    0, 1 << 41, 2, 1, 3, 4, 0, 1 << 40, -1, -5, 5, 6, True, 2, b"n", b"* * * * *", b"UTC", b""
)
# fmt: on
GROUP = GroupRow(-1, 1, 2, 1, True, 10_000, 60_000, 7, NO_KEYS)

# written by hand, when both had an encoder and a decoder of their own
RECORDED: list[tuple[Row, str]] = [
    (
        PLAN,
        "000000000000000200000200000000000000010000000000000003000000000000000400000000000000"
        "00000000000000000000000000010000fffffffffffffffffbffffffffffffff05000000000000000600"
        "000000000000010201000900030000006e2a202a202a202a202a555443",
    ),
    (
        GROUP,
        "ffff01020101102700000000000060ea0000000000000700000000000000030000000001000000000000"
        "00000000000000000001000000000000000000000000",
    ),
]


@pytest.mark.parametrize(("row", "digits"), RECORDED, ids=["schedule", "group"])
def test_the_bytes_are_what_they_were(row: Row, digits: str) -> None:
    """What an older program has written is read, and this one writes no other bytes."""
    tag, data = ENTRIES.pack(row)
    assert data.hex() == digits
    assert ENTRIES.unpack(tag, data, 0, len(data)) == row
    assert is_sound(data)
    entry = entry_in(data)
    assert entry is not None
    assert entry.packed(0) == data


# stated here once more: a bound that changes there by mistake fails here
FAR, LAST = (1 << 62) - 1, (1 << 63) - 1
BOUNDS = stated(
    f"""
ScheduleRow mark 0 0, noted_ms 0 {FAR}, fired_ms 0 {FAR}, base_ms 0 {FAR}, fired_seq 0 {FAR},
    fired_epoch 0 {FAR}, every_ms 0 31622400000, ttl_ms -1 {FAR}, ttr_ms -1 {FAR},
    pri {-LAST - 1} {LAST}, fired 0 {LAST}, late 0 {LAST}, missed 0 2, name 1 128, cron 0 128,
    zone 0 64, keys 0 16384
GroupRow mark -1 -1, kind 1 1, policy 0 2, state 0 3, size 1 10000, keep_ms 0 {FAR},
    over_ms 0 {FAR}, keys 0 16384
"""
)


@pytest.mark.parametrize("row", [PLAN, GROUP], ids=["schedule", "group"])
def test_each_field_is_refused_beyond_its_bounds(row: Row) -> None:
    keep_bounds(row, BOUNDS[type(row).__name__], passed_on)


def passed_on(row: Row) -> Row:
    """The row that comes back from its bytes."""
    tag, data = ENTRIES.pack(row)
    found: Row = ENTRIES.unpack(tag, data, 0, len(data))
    return found


@pytest.mark.parametrize("row", [PLAN, GROUP], ids=["schedule", "group"])
def test_what_is_cut_is_refused(row: Row) -> None:
    whole = ENTRIES.pack(structs.replace(row, keys=b""))[1]  # keys take what is left
    for end in range(3, len(whole)):
        assert not is_sound(whole[:end])
    assert not is_sound(whole + b"x")
