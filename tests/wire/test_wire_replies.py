"""Replies: what we write, other readers read back; nothing a client sent can break a line."""

from __future__ import annotations

from typing import Any

import hiredis
from hypothesis import given
from hypothesis import strategies as st

from tuque.wire.proto.resp import (
    NULL_ARRAY,
    Status,
    bulk_head,
    error_reply,
    int_reply,
    put_value,
)

LEAVES = st.one_of(st.binary(max_size=30), st.integers(-(1 << 63), (1 << 63) - 1), st.none())
VALUES = st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=5), max_leaves=30)


def written(value: object, resp3: bool) -> bytes:
    """The reply on the wire."""
    out: list[bytes] = []
    put_value(out, value, resp3)
    return b"".join(out)


def read(data: bytes) -> Any:
    """What hiredis reads; there must be exactly one reply."""
    reader = hiredis.Reader()
    reader.feed(data)
    value = reader.gets()
    assert value is not False
    assert reader.gets() is False
    return value


@given(VALUES, st.booleans())
def test_values_come_back(value: object, resp3: bool) -> None:
    assert read(written(value, resp3)) == value


@given(st.dictionaries(st.binary(max_size=9), VALUES, max_size=5))
def test_maps(value: dict[bytes, object]) -> None:
    """C6.1 After HELLO 3 a map, before it its names and values in a row."""
    assert read(written(value, True)) == value
    flat = [item for pair in value.items() for item in pair]
    assert read(written(value, False)) == flat


@given(st.text(max_size=30))
def test_a_status_or_error_is_one_line(text: str) -> None:
    """C4.5 If an error repeats text that a client sent, line ends become spaces."""
    for data in (written(Status(text), False), error_reply(text.encode())):
        assert data.count(b"\r\n") == 1
        assert data.count(b"\n") == data.count(b"\r") == 1


def test_nulls() -> None:
    """C6.1, C6.2 A null bulk is `$-1`, a null array `*-1`; both `_` in RESP3."""
    assert written(None, False) == b"$-1\r\n"
    assert written(NULL_ARRAY, False) == b"*-1\r\n"
    assert written([], False) == written([], True) == b"*0\r\n"
    assert written([None, NULL_ARRAY], True) == b"*2\r\n_\r\n_\r\n"


@given(st.integers(-(1 << 63), (1 << 63) - 1))
def test_integers(value: int) -> None:
    assert read(int_reply(value)) == value


@given(st.integers(0, 1 << 30))
def test_heads_of_bulks(size: int) -> None:
    assert bulk_head(size) == b"$%d\r\n" % size
