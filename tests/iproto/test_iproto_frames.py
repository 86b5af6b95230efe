"""Greeting, frames and values of IPROTO, byte for byte (SPEC I1-I3, I5.2)."""

from __future__ import annotations

import tracemalloc
from base64 import b64decode
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuque.wire.proto import iproto
from tuque.wire.proto.iproto import BrokenStream, FrameReader, Request
from tuque.wire.proto.msgpack import (
    DEPTH_MAX,
    EXT,
    MsgpackError,
    Value,
    skip,
)

LIMIT = 1 << 20
encode = msgspec.msgpack.encode


def read(data: bytes, limit: int = LIMIT) -> list[Request]:
    """The requests in these bytes."""
    reader = FrameReader(limit)
    reader.feed(data)
    found = []
    while (one := reader.next()) is not None:
        found.append(one)
    return found


def golden(text: str) -> bytes:
    """Bytes written as hex with spaces."""
    return bytes.fromhex(text.replace(" ", ""))


def as_ours(reply: bytes) -> bytes:
    """A reply of Tarantool with the schema version that ours have."""
    assert reply[23:24] == b"\xce"
    return reply[:24] + b"\0\0\0\1" + reply[28:]


def test_greeting() -> None:
    salt = bytes(range(32))
    said = iproto.greeting(b"dbf34270-bf35-4917-86a1-768ee0563a61", salt)
    assert len(said) == iproto.GREETING_BYTES
    assert said[63:64] == said[127:] == b"\n"
    assert said.startswith(b"Tarantool 2.6.0 (Binary) dbf34270-bf35-4917-86a1-768ee0563a61  \n")
    assert b64decode(said[64:127].rstrip()) == salt


# what clients were seen to send: type, sync, and the body
SENT = [
    ("ce00000005 82 0040 0103", 64, 3, {}),
    (
        "2b 83 000a 0100 0500 82 22b071756575652e747562652e743a707574"
        " 21 92 81a16101 82a370726901a374746c3c",
        10,
        0,
        {0x22: "queue.tube.t:put", 0x21: [{"a": 1}, {"pri": 1, "ttl": 60}]},
    ),
    (
        "26 83 000a 0100 0500 82 22b171756575652e747562652e743a74616b65 21 91 cb3fe0000000000000",
        10,
        0,
        {0x22: "queue.tube.t:take", 0x21: [0.5]},
    ),
    (
        "1a 83 0001 0100 0500 86 10cd0119 1100 1300 12ceffffffff 1402 2090",
        1,
        0,
        {0x10: 281, 0x11: 0, 0x13: 0, 0x12: 0xFFFFFFFF, 0x14: 2, 0x20: []},
    ),
    (
        "ce00000018 82 0001 0101 84 10cd0119 12cfffffffffffffffff 1402 2090",
        1,
        1,
        {0x10: 281, 0x12: (1 << 64) - 1, 0x14: 2, 0x20: []},
    ),
    (
        "ce00000018 82 0101 0001 86 10cd0119 1100 1402 1300 12ceffffffff 2090",
        1,
        1,
        {0x10: 281, 0x11: 0, 0x14: 2, 0x13: 0, 0x12: 0xFFFFFFFF, 0x20: []},
    ),
    (
        "2f 83 0007 0100 0500 82 23a3626f62 21 92 a9636861702d73686131 c414" + "5a" * 20,
        7,
        0,
        {0x23: "bob", 0x21: ["chap-sha1", b"Z" * 20]},
    ),
]


@pytest.mark.parametrize(("text", "type", "sync", "body"), SENT)
def test_requests_as_clients_send_them(
    text: str, type: int, sync: int, body: dict[int, object]
) -> None:
    (request,) = read(golden(text))
    assert (request.type, request.sync, request.error) == (type, sync, b"")
    assert {key: msgspec.msgpack.decode(one.raw()) for key, one in request.body.items()} == body


def test_replies_as_tarantool_gives_them() -> None:
    pong = golden("ce00000018 83 00ce00000000 01cf0000000000000003 05ce00000492 80")
    assert iproto.ok_reply(3) == as_ours(pong)
    put = golden(
        "ce00000026 83 00ce00000000 01cf0000000000000000 05ce0000040e"
        " 81 30 dd00000001 93 00 a172 81a16101"
    )
    task = iproto.array_head(3) + iproto.unsigned(0) + iproto.string(b"r") + encode({"a": 1})
    assert iproto.data_reply(0, [task]) == as_ours(put)
    assert iproto.data_reply(7, [])[28:] == golden("81 30 dd00000000")
    assert iproto.data_reply(7, [b"\xc0"])[28:] == golden("81 30 dd00000001 c0")
    uuid = bytes(range(200, 216))
    assert iproto.data_reply(1, [iproto.string(uuid)])[28:] == golden("8130dd00000001b0") + uuid


def test_error_reply() -> None:
    said = iproto.error_reply(9, 32, b"Task was not taken")
    assert msgspec.msgpack.decode(said[5:28]) == {0: 0x8020, 1: 9, 5: 1}
    assert msgspec.msgpack.decode(said[28:]) == {0x31: "Task was not taken"}


def test_call_16_wraps_what_is_no_array() -> None:
    found = [encode(3), encode([1, 2]), encode(None), encode(list(range(20)))]
    assert [msgspec.msgpack.decode(one) for one in iproto.tuples_of(found)] == [
        [3],
        [1, 2],
        [None],
        list(range(20)),
    ]


SIZES = [0, 1, 31, 32, 127, 128, 255, 256, 65_535, 65_536]


def test_what_we_encode_msgspec_reads() -> None:
    for size in SIZES:
        text = b"x" * size
        assert msgspec.msgpack.decode(iproto.string(text)) == text.decode()
        assert msgspec.msgpack.decode(iproto.binary(text)) == text
        assert msgspec.msgpack.decode(iproto.array_head(size) + b"\x07" * size) == [7] * size
        pairs = b"".join(encode(one) + b"\xc0" for one in range(size))
        assert msgspec.msgpack.decode(iproto.map_head(size) + pairs) == dict.fromkeys(range(size))
    for number in (*SIZES, 1 << 31, (1 << 32) - 1, 1 << 32, (1 << 64) - 1):
        assert msgspec.msgpack.decode(iproto.unsigned(number)) == number


def test_scramble_and_proof() -> None:
    salt = bytes(range(32))
    secret = iproto.secret_of(b"sesame")
    assert iproto.proves(iproto.scramble(b"sesame", salt), secret, salt)
    assert not iproto.proves(iproto.scramble(b"Sesame", salt), secret, salt)
    assert not iproto.proves(iproto.scramble(b"sesame", b"x" * 32), secret, salt)
    assert iproto.proves(iproto.scramble(b"sesame", salt[:20]), secret, salt), "20 bytes count"


STREAM = b"".join(golden(text) for text, *_ in SENT) * 3


@given(st.lists(st.integers(0, len(STREAM)), max_size=12))
def test_any_cut_of_a_stream_gives_the_same_requests(cuts: list[int]) -> None:
    """I2.1: however the bytes are cut."""
    whole = [(one.type, one.sync, one.body.keys()) for one in read(STREAM)]
    assert len(whole) == 3 * len(SENT)
    reader = FrameReader(LIMIT)
    found = []
    for begin, end in pairwise([0, *sorted(cuts), len(STREAM)]):
        if begin == end:
            continue
        reader.feed(STREAM[begin:end])
        while (one := reader.next()) is not None:
            found.append((one.type, one.sync, one.body.keys()))
    assert found == whole
    assert reader.held_bytes == 0


@pytest.mark.parametrize(
    "length", [b"\x03", b"\xcc\x03", b"\xcd\0\x03", b"\xcf" + b"\0" * 7 + b"\x03"]
)
def test_a_length_of_any_width(length: bytes) -> None:
    """I2.1"""
    (request,) = read(length + golden("81 00 40"))
    assert (request.type, request.sync, request.body) == (64, 0, {})


def test_unknown_keys_are_ignored() -> None:
    """I2.6"""
    header = golden("84 cc99 01 00 40 a178 93010203 01 05")
    body = golden("83 cc99 c0 21 90 a179 81c0c0")
    (request,) = read(bytes([len(header) + len(body)]) + header + body)
    assert (request.type, request.sync) == (64, 5)
    assert list(request.body) == [0x21]


BROKEN = [
    ("94 00 00 00", b"Invalid MsgPack - packet length"),
    ("c1", b"Invalid MsgPack - packet length"),
    ("ceffffffff", b"Invalid MsgPack - too big packet size in the header: 4294967295"),
    (
        "cfffffffffffffffff",
        b"Invalid MsgPack - too big packet size in the header: 18446744073709551615",
    ),
    ("00", b"Invalid MsgPack - packet header"),
    ("01 90", b"Invalid MsgPack - packet header"),
    ("01 80", b"Invalid MsgPack - packet header"),
    ("01 8f", b"Invalid MsgPack - packet header"),
    ("03 81 00 a0", b"Invalid MsgPack - packet header"),
    ("03 81 00 ff", b"Invalid MsgPack - packet header"),
    ("05 82 00 40 01 c0", b"Invalid MsgPack - packet header"),
]


@pytest.mark.parametrize(("text", "told"), BROKEN)
def test_what_is_no_frame(text: str, told: bytes) -> None:
    """I2.3, I2.4"""
    with pytest.raises(BrokenStream) as caught:
        read(golden(text))
    assert caught.value.text == told


def test_a_web_page_is_no_client() -> None:
    """I2.4: what a browser is made to send ends the stream."""
    post = b"POST / HTTP/1.1\r\nHost: localhost:3301\r\n" + b"x" * 200
    with pytest.raises(BrokenStream):
        read(post + golden("ce00000005 82 0040 0103"))


@pytest.mark.parametrize("body", ["90", "05", "81", "81 21", "80 80", "81 21 c1", "df7fffffff"])
def test_a_body_that_is_none_spoils_only_its_request(body: str) -> None:
    """I2.5"""
    frame = golden("82 000a 0107" + body)
    bad, good = read(bytes([len(frame)]) + frame + golden("03 81 00 40"))
    assert (bad.sync, bad.error) == (7, b"Invalid MsgPack - packet body")
    assert good.type == 64


COUNTS = [
    "dd7fffffff",
    "dfffffffff",
    "dbffffffff",
    "c6ffffffff",
    "c9ffffffff00",
    "dcffff",
    "8f",
    "bf",
]


@pytest.mark.parametrize("head", COUNTS)
def test_a_count_is_not_believed(head: str) -> None:
    """I2.2"""
    with pytest.raises(MsgpackError):
        data = golden(head)
        skip(data, 0, len(data))


def test_depth_is_bounded() -> None:
    """I2.2"""
    fine = b"\x91" * DEPTH_MAX + b"\xc0"
    assert skip(fine, 0, len(fine)) == len(fine)
    deep = b"\x91" + fine
    with pytest.raises(MsgpackError, match="too deep"):
        skip(deep, 0, len(deep))
    flat = b"\x91\x90" * 50
    assert skip(flat, 0, 2) == 2


PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), (1 << 64) - 1)
    | st.floats(allow_nan=False)
    | st.text(max_size=40)
    | st.binary(max_size=300)
    | st.builds(msgspec.msgpack.Ext, st.integers(-128, 127), st.binary(max_size=40)),
    lambda inner: st.lists(inner, max_size=20) | st.dictionaries(st.text(max_size=9), inner),
    max_leaves=30,
)


@given(PLAIN, st.binary(max_size=8))
def test_skip_finds_the_end_of_any_value(thing: object, behind: bytes) -> None:
    data = encode(thing)
    assert skip(data + behind, 0, len(data) + len(behind)) == len(data)
    for end in range(len(data)):
        with pytest.raises(MsgpackError):
            skip(data, 0, end)
    assert same(Value(data, 0, len(data)), thing)


def same(value: Value, thing: object) -> bool:
    """Whether a Value says of itself what was encoded."""
    if thing is None or isinstance(thing, bool):
        return value.is_true() == bool(thing)
    if isinstance(thing, int):
        return value.integer() == thing
    if isinstance(thing, float):
        return value.real() == thing
    if isinstance(thing, (str, bytes)):
        plain = thing.encode() if isinstance(thing, str) else thing
        return value.payload() == plain
    if isinstance(thing, list):
        return value.size() == len(thing) and all(
            same(one, item) for one, item in zip(value.items(1000), thing, strict=True)
        )
    if isinstance(thing, dict):
        pairs = value.pairs()
        return len(pairs) == len(thing) and all(
            same(pairs[key.encode()], item) for key, item in thing.items()
        )
    return value.kind == EXT


@given(st.binary(max_size=200))
def test_random_bytes_raise_nothing_else(data: bytes) -> None:
    """I2: nothing but a BrokenStream comes out."""
    look(data)


@given(st.integers(0, len(STREAM) - 1), st.integers(0, 255), st.integers(0, 40))
def test_mutated_frames_raise_nothing_else(at: int, byte: int, cut: int) -> None:
    """I2: nor from frames with a byte changed and some bytes missing."""
    look(STREAM[:at] + bytes([byte]) + STREAM[at + 1 + cut :])


def look(data: bytes) -> None:
    """Read as a server does, and look at all that a request may be asked for."""
    try:
        found = read(data)
    except BrokenStream:
        return
    for request in found:
        for value in request.body.values():
            assert skip(value.data, value.at, value.end) == value.end
        try:
            request.arguments(4)
            request.text(iproto.FUNCTION, b"function name")
        except iproto.IprotoError as error:
            assert error.code in (iproto.E_MSGPACK, iproto.E_MISSING)


def test_a_large_frame_is_not_copied_once_it_is_whole() -> None:
    """L2.7: a copy of all of it would be one long step."""
    size = 2 * iproto.LARGE_FRAME
    body = b"\x81\x21" + b"\xc6" + size.to_bytes(4, "big") + bytes(size)
    packet = b"\x82\x00\x0a\x01\x07" + body
    reader = FrameReader(4 * size)
    reader.feed(b"\xce" + len(packet).to_bytes(4, "big") + packet + b"\x05")
    tracemalloc.start()
    try:
        request = reader.next()
        while request is None and reader.long is not None:
            request = reader.next()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert request is not None and not request.error
    assert len(request.body[0x21].raw()) == size + 5
    assert peak < 1 << 20
    assert reader.held_bytes == 1


def test_a_large_frame_is_gathered_as_it_comes() -> None:
    """L2.12 A body over 256 KiB is not copied once it has come. What follows it is read."""
    size = 2 * iproto.LARGE_FRAME
    packet = b"\x82\x00\x0a\x01\x07" + b"\x81\x21\xc6" + size.to_bytes(4, "big") + bytes(size)
    one = b"\xce" + len(packet).to_bytes(4, "big") + packet
    stream = one + one[:100]
    reader = FrameReader(4 * size)
    chunks = [stream[at : at + 60_000] for at in range(0, len(stream), 60_000)]
    tracemalloc.start()
    try:
        for chunk in chunks[:-1]:
            reader.feed(chunk)
            assert reader.next() is None
        tracemalloc.reset_peak()
        before, _ = tracemalloc.get_traced_memory()
        reader.feed(chunks[-1])
        request = reader.next()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert request is not None and len(request.body[0x21].raw()) == size + 5
    assert peak - before < 1 << 20
    assert reader.held_bytes == 100 and reader.next() is None
    reader.feed(one[100:])
    again = reader.next()
    assert again is not None and again.sync == 7 and reader.held_bytes == 0


@pytest.mark.parametrize("size", [100_000, 2 * iproto.LARGE_FRAME])
def test_what_follows_a_long_frame_is_read(size: int) -> None:
    """I2.2"""
    packet = b"\x82\x00\x0a\x01\x07" + b"\x81\x21\xc6" + size.to_bytes(4, "big") + bytes(size)
    one = b"\xce" + len(packet).to_bytes(4, "big") + packet
    assert [request.sync for request in read(one + one, 4 * size)] == [7, 7]
