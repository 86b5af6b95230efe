"""SPEC T40, T44: keys in the bytes of a task; unique keys."""

from __future__ import annotations

from keys_lab import START_MS, keys_of

from tuque.tubes.entries.keys import (
    Keys,
    is_sound,
    lane_name,
    limit_of,
    pack,
    unique_of,
    unpack,
    until_of,
)
from tuque.tubes.policies.unique import Uniques

# ---- words


def test_keys_come_back_out_of_their_bytes() -> None:
    keys = keys_of(b"g" * 255, 7, b"l", 3, b"r", 5_000, 9)
    keys.unique, keys.until_ms = b"u" * 255, 60_000
    packed = pack(keys)
    assert is_sound(packed)
    assert pack(unpack(packed)) == packed
    assert (limit_of(packed), unique_of(packed), until_of(packed)) == (b"l", b"u" * 255, 60_000)
    assert unique_of(pack(keys_of(b"g"))) == limit_of(pack(keys_of(b"g"))) == b""
    assert pack(Keys()) == b""
    assert lane_name(b"") == lane_name(pack(keys_of(weight=2)))
    keys.unique = b"other"
    assert lane_name(pack(keys)) == lane_name(packed)  # T41.1


def test_damaged_bytes_are_no_keys() -> None:
    packed = pack(keys_of(b"g", 7, b"l", 3, b"r", 5_000, 9))
    for size in range(1, len(packed)):
        assert not is_sound(packed[:size])
    for name, value in (("weight", 0), ("places", 0), ("burst", 0), ("gap_ns", -1), ("rate", b"")):
        keys = keys_of(b"g", 7, b"l", 3, b"r", 5_000, 9)
        setattr(keys, name, value)
        assert not is_sound(pack(keys))


# ---- unique keys


def test_a_unique_key_has_one_holder() -> None:
    table = Uniques()
    table.claim(b"a", 7)
    assert table.holder(b"a", START_MS) == 7
    assert not table.free(b"a", 8)
    assert table.free(b"a", 7)
    assert table.holder(b"a", START_MS) == -1
    assert table.bytes_used == 0


def test_a_unique_key_is_taken_for_a_time() -> None:
    table = Uniques()
    for number in range(5):
        table.claim(b"k%d" % number, number, START_MS + 1_000 * number + 1_000)
    assert table.holder(b"k3", START_MS + 3_999) == 3
    assert table.holder(b"k3", START_MS + 4_000) == -1
    assert table.next_ms() == START_MS + 1_000
    assert table.drop_late(START_MS + 3_000, 2) == 0
    assert sorted(table.claims) == [b"k2", b"k3", b"k4"]
    table.claim(b"k4", 9, START_MS + 60_000)
    table.drop_late(START_MS + 9_000, 100)
    assert list(table.claims) == [b"k4"]
    assert table.next_ms() == START_MS + 60_000
    assert not table.free(b"k4", 4)
    assert table.free(b"k4", 9)
    assert table.bytes_used == 0
