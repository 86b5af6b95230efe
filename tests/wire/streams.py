"""Streams of commands and cuts of them, for the tests of this folder."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import strategies as st

from tuque.wire.proto.resp import RequestReader
from tuque.wire.proto.strict_reader import ProtocolError, StrictReader

MAX_BULK = 1 << 20

WORDS = st.one_of(
    st.sampled_from(
        [b"PING", b"ADDJOB", b"q", b"", b"*1000000", b"$5", b"\r\n", b"\x00", b"'", b'"']
    ),
    st.binary(max_size=40),
    st.integers(0, 3000).map(lambda size: b"x" * size),
)
COMMANDS = st.lists(WORDS, min_size=1, max_size=8)
STREAMS = st.lists(COMMANDS, min_size=1, max_size=8)

Outcome = tuple[list[list[bytes]], str]


def encode(command: list[bytes]) -> bytes:
    """A command as an array of bulks."""
    parts = [b"*%d\r\n" % len(command)]
    parts += [b"$%d\r\n%s\r\n" % (len(word), word) for word in command]
    return b"".join(parts)


def quote(word: bytes) -> bytes:
    """A word as inline commands spell it."""
    plain = word and all(48 <= b <= 57 or 65 <= b <= 122 for b in word) and b"\\" not in word
    if plain:
        return word
    return b'"' + b"".join(b"\\x%02x" % byte for byte in word) + b'"'


def inline(command: list[bytes]) -> bytes:
    """A command on one line."""
    return b" ".join(quote(word) for word in command) + b"\n"


def cut(data: bytes, places: list[int]) -> list[bytes]:
    """The data in pieces, cut at the places (any order, taken modulo the length)."""
    at = sorted({place % (len(data) + 1) for place in places} | {0, len(data)})
    return [data[a:b] for a, b in pairwise(at)]


def read(pieces: list[bytes]) -> Outcome:
    """What the reader of a connection makes of the pieces."""
    reader = RequestReader(MAX_BULK)
    commands = []
    for piece in pieces:
        commands += reader.read(piece)
    return commands, reader.error


def read_strictly(pieces: list[bytes]) -> Outcome:
    """The same by StrictReader alone."""
    reader = StrictReader(MAX_BULK)
    commands = []
    try:
        for piece in pieces:
            reader.feed(piece)
            while True:
                command = reader.next()
                if command is None:
                    break
                commands.append(command)
    except ProtocolError as error:
        return commands, str(error)
    return commands, ""
