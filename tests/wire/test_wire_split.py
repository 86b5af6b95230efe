"""SPEC C2.3: any cut of a stream into pieces gives the same commands, whoever wrote it."""

from __future__ import annotations

import tracemalloc

import hiredis
import pytest
from hypothesis import given
from hypothesis import strategies as st
from redis.connection import PythonRespSerializer
from streams import COMMANDS, STREAMS, cut, encode, inline, read, read_strictly

from tuque.wire.proto.resp import RequestReader

PLACES = st.lists(st.integers(0, 1 << 16), max_size=12)
PIECES = st.sampled_from(
    [
        b"*1\r\n", b"$4\r\nPING\r\n", b"*2\r\n", b"$1\r\nx\r\n", b"+OK\r\n", b"-no\r\n", b":1\r\n",
        b"$-1\r\n", b"*-1\r\n", b"*0\r\n", b"*-7\r\n", b"$0\r\n\r\n", b"~1\r\n", b"%1\r\n",
        b">1\r\n", b"|1\r\n", b"=7\r\ntxt:abc\r\n", b"+ABCDEFGHIJ\r\n", b"(12\r\n", b"_\r\n",
        b"#t\r\n", b",1\r\n", b"\r\n", b"\n", b"\r", b"PING\n", b"\x00", b"*01\r\n", b"*+1\r\n",
        b"*1\n", b"$04\r\nPING\r\n", b"$4\nPING\r\n", b"'a", b'"a b" c\n', b"*1048577\r\n",
        b"$1048577\r\n", b"*\r\n", b"$\r\n",
    ]
)  # fmt: skip


@given(STREAMS, PLACES)
def test_every_split_gives_the_same_commands(stream: list[list[bytes]], places: list[int]) -> None:
    """C2.3 The commands do not depend on how the stream is split into reads."""
    data = b"".join(map(encode, stream))
    assert read([data]) == (stream, "")
    assert read(cut(data, places)) == (stream, "")
    assert read_strictly(cut(data, places)) == (stream, "")


@given(STREAMS, PLACES)
def test_encoders_of_others_are_understood(stream: list[list[bytes]], places: list[int]) -> None:
    """C2.1 Requests are RESP arrays of bulk strings: what hiredis and redis-py write."""
    by_hiredis = b"".join(hiredis.pack_command(tuple(command)) for command in stream)
    assert read(cut(by_hiredis, places)) == (stream, "")
    redis_py = PythonRespSerializer(6000, lambda word: word)
    named = [[b"PING", *command] for command in stream]  # it splits the first word at spaces
    by_redis_py = b"".join(b"".join(redis_py.pack(*command)) for command in named)
    assert read(cut(by_redis_py, places)) == (named, "")


@given(st.lists(st.tuples(st.booleans(), COMMANDS), min_size=1, max_size=6), PLACES)
def test_inline_and_arrays_mix(stream: list[tuple[bool, list[bytes]]], places: list[int]) -> None:
    """C2.1 Inline commands may stand between arrays, with quotes and escapes."""
    wanted = [command for _, command in stream]
    short = all(len(word) < 2000 for command in wanted for word in command)
    written = [inline(c) if is_inline and short else encode(c) for is_inline, c in stream]
    assert read(cut(b"".join(written), places)) == (wanted, "")


@given(st.lists(PIECES, min_size=1, max_size=10).map(b"".join), PLACES)
def test_splits_of_broken_streams_agree_too(data: bytes, places: list[int]) -> None:
    """C2.3 and C2.4: the same commands before the fault and the same error, however cut."""
    wanted = read_strictly([data])
    assert read([data]) == wanted
    assert read(cut(data, places)) == wanted
    assert read_strictly(cut(data, places)) == wanted


@given(st.binary(max_size=200), PLACES)
def test_splits_of_noise_agree(data: bytes, places: list[int]) -> None:
    assert read(cut(data, places)) == read([data]) == read_strictly([data])


def test_byte_by_byte() -> None:
    stream = [[b"ADDJOB", b"q", b"b" * 300, b"0"], [b"PING"], [b"", b"\r\n"]]
    data = b"".join(map(encode, stream))
    assert read([data[i : i + 1] for i in range(len(data))]) == (stream, "")


@pytest.mark.parametrize("size", [65_535, 65_536, 65_537, 200_000])
@pytest.mark.parametrize("start", [b"", b"*", b"*1\r\n$"])
def test_long_lines_are_judged_alike_however_cut(start: bytes, size: int) -> None:
    """C2.4 A line over 64 KiB is an error also when its end has come with it."""
    data = start + b"1" * (size - len(start.rpartition(b"\n")[2])) + b"\r\n"
    whole = read([data])
    assert read(cut(data, [65_000, 65_537, 65_538])) == whole == read_strictly([data])
    assert whole[1].startswith("too big") == (size > 65_535)  # CR counts


def test_odd_types_are_no_requests() -> None:
    """The sizes of odd types can add up to those of plain ones; each place is looked at."""
    for data in (
        b"*2\r\n+ABCDEFGHIJ\r\n=7\r\ntxt:abc\r\n",
        b"*1\r\n$4\r\nPING\r\n~1\r\n$4\r\nPING\r\n",
        b"*1\r\n$4\r\nPING\r\n>1\r\n$4\r\nPING\r\n",
        b"*1\r\n(123\r\n",
    ):
        assert read([data]) == read_strictly([data])


@pytest.mark.parametrize("cut_at", [-4, -3, -2, -1, 0, 1, 5])
def test_the_end_of_a_large_bulk_may_be_cut_anywhere(cut_at: int) -> None:
    """C2.3 The commands do not depend on how the stream is split into reads."""
    body = bytes(range(256)) * 1_200
    stream = [[b"ADDJOB", b"q", body, b"0"], [b"ECHO", body], [b"PING"]]
    first = encode([b"ADDJOB", b"q", body, b"0"]).index(body) + len(body) + 2 + cut_at
    data = encode(stream[0]) + encode(stream[1]) + encode(stream[2])
    second = data.rindex(body) + len(body) + 2 + cut_at
    cuts = [10, 50, 1000, 200_000, first, first + 1, second - 100_000, second, second + 1]
    assert read(cut(data, cuts)) == (stream, "")
    assert read_strictly(cut(data, cuts)) == (stream, "")


def test_a_large_body_is_not_copied_once_it_has_come() -> None:
    """L2.12 A body over 256 KiB is not copied once it has come."""
    size = 16 << 20
    data = b"*4\r\n$6\r\nADDJOB\r\n$1\r\nq\r\n$%d\r\n" % size + bytes(size) + b"\r\n$1\r\n0\r\n"
    chunks = cut(data, list(range(60_000, len(data), 60_000)))
    reader = RequestReader(size)
    tracemalloc.start()
    try:
        for chunk in chunks[:-1]:
            assert reader.read(chunk) == []
        tracemalloc.reset_peak()
        before, _ = tracemalloc.get_traced_memory()
        [command] = reader.read(chunks[-1])
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert [len(word) for word in command] == [6, 1, size, 1]
    assert peak - before < 1 << 20
    assert reader.strict is None
