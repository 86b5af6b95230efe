"""What schedules and groups are in bytes: as they have always been, each field at its bounds."""

from __future__ import annotations

from struct import error as StructError
from typing import Any

import pytest
from msgspec import inspect, structs

from bounds import ends
from tuque.core.msgs.entries import ENTRIES, GroupRow, ScheduleRow
from tuque.core.msgs.layout import BadRow
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
    assert entry_in(data).packed(0) == data


@pytest.mark.parametrize("row", [PLAN, GROUP], ids=["schedule", "group"])
def test_each_field_is_refused_beyond_its_bounds(row: Row) -> None:
    info: Any = inspect.type_info(type(row))
    for field in info.fields:
        can, cannot = ends(field.type)
        for value in can:
            changed = structs.replace(row, **{field.name: value})
            tag, data = ENTRIES.pack(changed)
            try:
                assert ENTRIES.unpack(tag, data, 0, len(data)) == changed
            except BadRow as error:
                assert "do not fit together" in str(error), (field.name, value)
        for value in cannot:
            with pytest.raises((BadRow, StructError)):
                tag, data = ENTRIES.pack(structs.replace(row, **{field.name: value}))
                ENTRIES.unpack(tag, data, 0, len(data))


@pytest.mark.parametrize("row", [PLAN, GROUP], ids=["schedule", "group"])
def test_what_is_cut_is_refused(row: Row) -> None:
    whole = ENTRIES.pack(structs.replace(row, keys=b""))[1]  # keys take what is left
    for end in range(3, len(whole)):
        assert not is_sound(whole[:end])
    assert not is_sound(whole + b"x")
