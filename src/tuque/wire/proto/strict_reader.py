"""Reads RESP requests byte by byte: exact about limits and error texts (SPEC C2).

Takes what the faster ways of wire/proto/resp.py leave: partial commands, inline commands, odd or
malformed encodings.
"""

from io import BytesIO
from typing import Final, final

from mypy_extensions import i64

MAX_ARGS: Final = 1_048_576
MAX_LINE: Final = 65_536
LONG_BULK: Final = 65_536  # only a body is longer (L2.9)
LARGE_BULK: Final = 262_144  # gathered as it comes, and not copied at its end
ARG_BYTES: Final = 48  # memory overhead per argument
PART_BYTES: Final = 48  # and for each piece of a long one
KEPT_BYTES: Final = 512  # read, before the rest of the input
_NO_LENGTH: Final = 1 << 60

_ESCAPES: Final = {110: 10, 114: 13, 116: 9, 98: 8, 97: 7}  # n r t b a


class ProtocolError(Exception):
    """The client broke the protocol; the text goes after `-ERR Protocol error: `."""


@final
class StrictReader:
    """Reads requests byte by byte from a buffer, including inline commands."""

    def __init__(self, max_bulk: i64) -> None:
        self.max_bulk = max_bulk
        self.buf = b""
        self.pos: i64 = 0
        self.args_left: i64 = 0
        self.args: list[bytes] = []
        self.args_bytes: i64 = 0  # their memory
        self.parts: list[bytes] = []  # chunks of a bulk in progress
        self.large: BytesIO | None = None  # in place of them, what a large one has so far
        self.parts_bytes: i64 = 0  # of the bulk that have come
        self.bulk_need: i64 = -1  # bytes of the current bulk with its CRLF, -1: header next
        self.has_long = False  # there was a long bulk

    def feed(self, data: bytes) -> None:
        """Add bytes received."""
        if self.bulk_need >= 0:
            lacking: i64 = self.bulk_need - self.parts_bytes
            self.gather(data)
            if len(data) < lacking:
                return
            large = self.large
            if large is None:
                self.buf = b"".join(self.parts)
            else:
                self.large = None
                self.end_bulk(large.getvalue())  # this is no copy
                self.buf = data[lacking:]
            self.parts = []
            self.parts_bytes = 0
            self.pos = 0
        elif self.pos == len(self.buf):
            self.buf = data
            self.pos = 0
        else:
            self.buf = self.buf[self.pos :] + data
            self.pos = 0

    def gather(self, data: bytes) -> None:
        """Keep what has come of the current bulk; of a large one without its end of line."""
        if self.bulk_need < LARGE_BULK:
            self.parts.append(data)
        else:
            large = self.large
            if large is None:
                self.large = large = BytesIO()
            left = self.bulk_need - 2 - self.parts_bytes
            if left > 0:
                large.write(data if len(data) <= left else data[:left])
        self.parts_bytes += len(data)

    def end_bulk(self, word: bytes) -> None:
        """The current bulk is whole."""
        self.args.append(word)
        self.args_bytes += ARG_BYTES + self.bulk_need
        self.bulk_need = -1
        self.args_left -= 1

    def is_empty(self) -> bool:
        """Whether the buffer is empty: the next byte starts a command."""
        return self.args_left == 0 and self.pos == len(self.buf) and len(self.parts) == 0

    def release(self) -> None:
        """Free what was read, if it is much more than the rest."""
        if self.pos > KEPT_BYTES:
            self.buf = self.buf[self.pos :]
            self.pos = 0

    def held_bytes(self) -> i64:
        """Memory of buffered input."""
        held = len(self.buf) + self.parts_bytes + self.args_bytes
        return held + PART_BYTES * len(self.parts)

    def next(self) -> list[bytes] | None:
        """The next command (never empty), or None if more bytes are needed."""
        while True:
            if self.args_left == 0 and len(self.args) == 0:
                if self.pos >= len(self.buf):
                    return None
                if self.buf[self.pos] != 42:  # *
                    line = self.line(b"too big inline request")
                    if line is None:
                        return None
                    words = split_inline(line)
                    if len(words) > 0:
                        return words
                    continue
                line = self.line(b"too big mbulk count string")
                if line is None:
                    return None
                count = length_of(line)
                if count > MAX_ARGS:
                    raise ProtocolError("invalid multibulk length")
                if count <= 0:
                    continue
                self.args_left = count
                self.args = []
            if not self.fill():
                return None
            args = self.args
            self.args = []
            self.args_bytes = 0
            return args

    def fill(self) -> bool:
        """Read the bulks of the current command; False when more bytes are needed."""
        while self.args_left > 0:
            if self.bulk_need < 0:
                if self.pos >= len(self.buf):
                    return False
                first = self.buf[self.pos]
                if first != 36:  # $
                    raise ProtocolError(f"expected '$', got '{printable(first)}'")
                line = self.line(b"too big bulk count string")
                if line is None:
                    return False
                size = length_of(line)
                if size > self.max_bulk and size != _NO_LENGTH:
                    raise ProtocolError(too_big_bulk(size, self.max_bulk))
                if size < 0 or size > self.max_bulk:
                    raise ProtocolError("invalid bulk length")
                self.bulk_need = size + 2
                if size > LONG_BULK:
                    self.has_long = True
            have: i64 = len(self.buf) - self.pos
            if have < self.bulk_need:
                if self.parts_bytes == 0 and have > 0:
                    self.gather(self.buf[self.pos :])
                    self.buf = b""
                    self.pos = 0
                return False
            end = self.pos + self.bulk_need
            self.end_bulk(self.buf[self.pos : end - 2])
            self.pos = end
        return True

    def line(self, too_big: bytes) -> bytes | None:
        """The line at the position without its end, or None if incomplete."""
        end: i64 = self.buf.find(b"\n", self.pos)
        size: i64 = (len(self.buf) if end < 0 else end) - self.pos
        if size > MAX_LINE:
            raise ProtocolError(too_big.decode())
        if end < 0:
            return None
        line = self.buf[self.pos : end]
        self.pos = end + 1
        if line.endswith(b"\r"):
            line = line[:-1]
        return line


def length_of(line: bytes) -> i64:
    """The number in a `*` or `$` line in its one plain form; beyond any limit if malformed."""
    size: i64 = len(line)
    first: i64 = 2 if size > 1 and line[1] == 45 else 1
    if first == size or size > 12 or (line[first] == 48 and size > 2):
        return _NO_LENGTH
    value: i64 = 0
    i = first
    while i < size:
        digit: i64 = line[i] - 48
        if digit < 0 or digit > 9:
            return _NO_LENGTH
        value = value * 10 + digit
        i += 1
    return value if first == 1 else -value


def too_big_bulk(size: i64, most: i64) -> str:
    """The error for a bulk over the limit: Disque's words, then the option and what to do."""
    return (
        f"invalid bulk length: {size} is over max-body-bytes ({most}); "
        "send less, or raise it with CONFIG SET (at most 512mb)"
    )


def printable(byte: i64) -> str:
    """A byte as shown in an error text."""
    if 32 <= byte < 127:
        return chr(byte)
    return f"\\x{byte:02x}"


def split_inline(line: bytes) -> list[bytes]:
    """The words of an inline command; double quotes allow escapes, single quotes only \\'."""
    words: list[bytes] = []
    i: i64 = 0
    size: i64 = len(line)
    while True:
        while i < size and line[i] in (32, 9, 11, 12, 13, 0):
            i += 1
        if i >= size:
            return words
        word = bytearray()
        quote: i64 = 0
        while i < size:
            c: i64 = line[i]
            if quote == 34 and c == 92 and i + 1 < size:
                i = _escape(line, i, word)
                continue
            if quote == 39 and c == 92 and i + 1 < size and line[i + 1] == 39:
                word.append(39)
                i += 2
                continue
            if quote != 0 and c == quote:
                if i + 1 < size and line[i + 1] not in (32, 9, 11, 12, 13):
                    raise ProtocolError("unbalanced quotes in request")
                quote = 0
                i += 1
                break
            if quote == 0 and (c == 34 or c == 39):
                quote = c
            elif quote == 0 and c in (32, 9, 11, 12, 13, 0):
                break
            else:
                word.append(c)
            i += 1
        if quote != 0:
            raise ProtocolError("unbalanced quotes in request")
        words.append(bytes(word))  # "" is an argument, too


def _escape(line: bytes, i: i64, word: bytearray) -> i64:
    """Decode the escape at `i` (a backslash) into `word`; returns the next position."""
    if i + 3 < len(line) and line[i + 1] == 120:
        digits16 = line[i + 2 : i + 4]
        if digits16.isalnum():  # int() would accept signs, spaces and _
            try:
                word.append(int(digits16, 16))
                return i + 4
            except ValueError:
                pass
    word.append(_ESCAPES.get(line[i + 1], line[i + 1]))
    return i + 2
