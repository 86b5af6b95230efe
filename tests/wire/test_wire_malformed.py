"""SPEC C2.4: a broken stream gets its error or waits, never raises, and costs no memory."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable

import pytest
from streams import MAX_BULK, cut, encode, read, read_strictly

from tuque.wire.proto.resp import RequestReader
from world import World
from world_trace import digest

COUNT = "invalid multibulk length"
SIZE = "invalid bulk length"
QUOTES = "unbalanced quotes in request"
BAD_NUMBERS = [
    b"", b"+1", b" 1", b"1 ", b"01", b"00", b"-0", b"1x", b"x", b"0x1", b"1.0", b"--1", b"\x001",
    b"\xff", b"2147483648", b"4294967296", b"9223372036854775807", b"9223372036854775808",
    b"18446744073709551616", b"9" * 400, b"\r",
]  # fmt: skip


@pytest.mark.parametrize("number", BAD_NUMBERS, ids=repr)
def test_bad_lengths(number: bytes) -> None:
    """Array count not a number or over 1,048,576; bulk length not a number or over the limit."""
    for tail in (b"", b"$4\r\nPING\r\n"):
        assert read([b"*%s\r\n%s" % (number, tail)]) == ([], COUNT)
        commands, error = read([b"*1\r\n$%s\r\n%s" % (number, tail)])
        assert commands == [] and error.partition(":")[0] == SIZE


def test_counts_at_the_limits() -> None:
    assert read([b"*1048577\r\n"]) == ([], COUNT)
    assert read([b"*1048576\r\n"]) == ([], "")
    over = f"{SIZE}: {MAX_BULK + 1} is over max-body-bytes ({MAX_BULK}); "
    assert read([b"*1\r\n$%d\r\n" % (MAX_BULK + 1)])[1].startswith(over)
    assert read([b"*1\r\n$%d\r\n" % MAX_BULK]) == ([], "")
    assert read([b"*1\r\n$-1\r\n"]) == ([], SIZE)
    words = [b""] * 1_048_576
    assert read(cut(encode(words), list(range(0, 7 << 20, 60_000)))) == ([words], "")


def test_empty_requests_are_skipped() -> None:
    """C2.2 `*0`, `*-1` and an empty inline line are skipped."""
    for nothing in (b"*0\r\n", b"*-1\r\n", b"\r\n", b"\n", b"   \r\n", b"*-2147483648\r\n"):
        assert read([nothing + b"PING\r\n" + nothing]) == ([[b"PING"]], ""), nothing


@pytest.mark.parametrize(
    ("first", "shown"),
    [
        (b"+PING\r\n", "+"), (b":1\r\n", ":"), (b"*1\r\n", "*"), (b"\x00", "\\x00"),
        (b"\xff", "\\xff"), (b"\r\n", "\\x0d"), (b"P", "P"), (b"-1\r\n", "-"), (b"'", "'"),
    ],
)  # fmt: skip
def test_elements_must_be_bulks(first: bytes, shown: str) -> None:
    """Element of an array that does not start with `$`."""
    assert read([b"*1\r\n" + first]) == ([], f"expected '$', got '{shown}'")
    assert read([b"*2\r\n$4\r\nPING\r\n" + first]) == ([], f"expected '$', got '{shown}'")


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        (b'PING "a b" c', [b"PING", b"a b", b"c"]),
        (b"PING 'a \"b' c", [b"PING", b'a "b', b"c"]),
        (b"PING 'it\\'s'", [b"PING", b"it's"]),
        (b'PING "\\n\\r\\t\\b\\a\\x41\\\\\\"\\q"', [b"PING", b'\n\r\t\b\aA\\"q']),
        (b'PING "\\xZZ\\x+1\\x1"', [b"PING", b"xZZx+1x1"]),
        (b'PING ""', [b"PING", b""]),
        (b"  PING\t x ", [b"PING", b"x"]),
        (b"PING \xff\xfe", [b"PING", b"\xff\xfe"]),
        (b"P\x00Q", [b"P", b"Q"]),
        (b"PING 'a'b", QUOTES),
        (b'PING "a"b', QUOTES),
        (b'PING "a', QUOTES),
        (b"PING 'a", QUOTES),
        (b'PING "a\\"', QUOTES),
    ],
)
def test_inline_words(line: bytes, wanted: list[bytes] | str) -> None:
    """C2.1 Double quotes know escapes, single quotes know only the single quote."""
    expected = ([], wanted) if isinstance(wanted, str) else ([wanted], "")
    assert read([line + b"\r\n"]) == read([line + b"\n"]) == expected


def test_a_line_without_end() -> None:
    """Inline request, array header, bulk header over 64 KiB."""
    for start, text in (
        (b"", "too big inline request"),
        (b"*", "too big mbulk count string"),
        (b"*1\r\n$", "too big bulk count string"),
    ):
        assert read([start, b"1" * 65_537]) == ([], text)
        assert read([start, b"1" * 60_000])[1] == ""


def test_cr_alone_ends_no_line() -> None:
    assert read([b"*1\r$4\rPING\r"]) == ([], "")
    assert read([b"*1\r$4\rPING\r\n"]) == ([], COUNT)


def test_nothing_is_read_after_a_fault() -> None:
    reader = RequestReader(MAX_BULK)
    assert reader.read(b"PING\r\n*x\r\n") == [[b"PING"]]
    assert reader.error == COUNT
    assert reader.read(b"PING\r\n") == []
    assert reader.error == COUNT


SAMPLE = b"".join(
    map(encode, [[b"ADDJOB", b"q", b"a body", b"0", b"RETRY", b"9"], [b"PING"], [b"QLEN", b"q"]])
)


def test_truncated_at_every_byte() -> None:
    """A stream that ends early gives its whole commands and no error."""
    whole = read([SAMPLE])[0]
    for size in range(len(SAMPLE)):
        commands, error = read([SAMPLE[:size]])
        assert error == ""
        assert commands == whole[: len(commands)]


def test_every_bit_of_the_first_bytes_flipped() -> None:
    for bit in range(min(64, len(SAMPLE)) * 8):
        data = bytearray(SAMPLE)
        data[bit // 8] ^= 1 << bit % 8
        assert read([bytes(data)]) == read_strictly([bytes(data)])
        assert read([bytes(data)]) == read([bytes(data[i : i + 1]) for i in range(len(data))])


@pytest.mark.parametrize(
    "data",
    [
        b"*1048576\r\n",
        b"*1\r\n$%d\r\n" % MAX_BULK,
        b"*999999\r\n$1\r\nx\r\n" * 4000,
        b"*9999\r\n" * 8000,
        b"*2\r\n$1\r\nx\r\n*999\r\n" * 4000,
        b"*99\r\n$1\r\nx\r\n" * 5000,
        b"*1\r\n" * 16_000,
        b"%99999999\r\n" * 100,
        b"x" * 65_536,
        b"'" * 65_536,
        b"*1\r\n$9999\r\n" + b"x" * 500,
    ],
    ids=lambda data: data[:24].decode(),
)
def test_a_declared_size_costs_nothing(data: bytes) -> None:
    """Memory and time follow the bytes that came, not those that were promised."""
    read([b"PING\r\n", b"*1\r\n$4\r\nPING\r\n"])  # what is made once is not counted
    tracemalloc.start()
    begin = time.process_time()
    reader = RequestReader(MAX_BULK)
    for piece in cut(data, list(range(0, len(data), 65_536))):
        reader.read(piece)
    spent_s = time.process_time() - begin
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak <= 4 * len(data) + (1 << 20)
    assert spent_s < 0.5


BROKEN = [
    b"*x\r\n", b"*1\r\n$x\r\n", b"*1\r\n+PING\r\n", b"*2\r\n$4\r\nPING\r\n:1\r\n", b"'\r\n",
    b"*1048577\r\n", b"*1\r\n$999999999999\r\n", b"*1\r\n$-1\r\n", b"*1\r\n*1\r\n$4\r\nPING\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\n", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"\x00\x01\n",
    b"\xff\xff\n", b"x" * 70_000, b"*" + b"1" * 70_000, b"*1\r\n$" + b"1" * 70_000,
]  # fmt: skip


@pytest.mark.parametrize("data", BROKEN, ids=lambda data: repr(data[:20]))
def test_a_broken_stream_changes_nothing(world: World, data: bytes) -> None:
    """C2.4 gets one of the errors and is closed; it changes nothing, and others are served."""
    other = world.wire()
    assert other.say(encode([b"ADDJOB", b"q", b"b", b"0"])).startswith(b"+D-")
    before = digest(world.n)
    wire = world.wire()
    answer = wire.say(b"PING\r\n" + data)
    assert answer.startswith(b"+PONG\r\n-ERR ")
    assert answer.endswith(b"\r\n")
    if b"Protocol error" in answer:
        assert answer.count(b"\r\n") == 2
        assert not wire.is_open()
    assert digest(world.n) == before
    assert other.say(b"QLEN q\r\n") == b":1\r\n"


@pytest.mark.parametrize("line", [b"POST / HTTP/1.1\r\n", b"GET / HTTP/1.1\r\nhost: x:7711\r\n"])
def test_a_web_page_changes_nothing(world: World, line: bytes) -> None:
    """C2.7 The connection is closed without an answer, and what follows is not run."""
    wire = world.wire()
    answer = wire.say(line + b"Content-Length: 20\r\n\r\nADDJOB q b 0\r\n")
    assert answer == b"" or answer == b"-ERR unknown command 'GET'\r\n"
    assert not wire.is_open()
    assert len(world.n.jobs) == 0


def test_flipped_bits_never_break_the_node(world: World) -> None:
    """Whatever a flipped bit makes of a request: an answer or a close, and a sound node."""
    data = encode([b"ADDJOB", b"queue", b"body", b"0"]) + b"PING\r\n"
    for bit in range(min(64, len(data)) * 8):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        wire = world.wire()
        answer = wire.say(bytes(flipped))
        assert answer == b"" or answer[:1] in b"+-:$*"
        wire.close()
    assert world.wire().say(b"PING\r\n") == b"+PONG\r\n"


def test_before_auth_little_may_be_sent(make_world: Callable[..., World]) -> None:
    """L1 Before AUTH, when a password is set: 10 arguments, 16 KiB a bulk."""
    world = make_world(requirepass="secret")
    for data, text in (
        (b"*11\r\n", b"unauthenticated multibulk length"),
        (b"*2\r\n$4\r\nPING\r\n$16385\r\n", b"unauthenticated bulk length"),
    ):
        wire = world.wire()
        assert wire.say(data) == b"-ERR Protocol error: " + text + b"\r\n"
        assert not wire.is_open()
    wire = world.wire()
    body = b"x" * 100_000
    assert wire.say(encode([b"AUTH", b"secret"]), encode([b"PING", body])) == (
        b"+OK\r\n$100000\r\n" + body + b"\r\n"
    )
