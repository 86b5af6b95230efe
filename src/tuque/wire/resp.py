"""RESP2 and RESP3: requests in, replies out (SPEC C2-C5).

Requests are read in one of three ways. A chunk that is one short, plainly encoded
command, as a client that waits for its reply sends it, is cut up by `one_plain`. hiredis
takes a longer chunk of whole, plain commands. Anything else (a command cut in two, an
inline command, odd or malformed encodings) goes to `StrictReader`, which is exact about
limits and error texts. The three agree on every stream (tests/wire).
"""

import re
from typing import Final, final

import hiredis
from mypy_extensions import i64

MAX_ARGS: Final = 1_048_576
MAX_BULK: Final = 536_870_912
MAX_LINE: Final = 65_536
SMALL_ARGS: Final = 10  # before AUTH
SMALL_BULK: Final = 16_384
LARGE_BULK: Final = 262_144  # it is not copied more often than must be
ARG_BYTES: Final = 48  # an argument takes in memory, beside itself

# hiredis makes a list as long as a header says, so a header may not say much there.
_LONG_ARRAY: Final = re.compile(rb"\*[0-9]{3}")
_NO_LENGTH: Final = 1 << 60
_SHORT: Final = 512  # bytes of a chunk that is cheaper to read here than through hiredis
_MORE: Final = object()  # hiredis: not enough data


class ProtocolError(Exception):
    """The client broke the protocol; the text goes after `-ERR Protocol error: `."""


class Status:
    """A value to be written as a simple string."""

    def __init__(self, text: str) -> None:
        self.text = text


class NullArray:
    """A value to be written as RESP2's null array."""


NULL_ARRAY: Final = NullArray()


@final
class StrictReader:
    """Reads requests byte by byte from a buffer, inline commands too."""

    def __init__(self, max_bulk: i64) -> None:
        self.max_bulk = max_bulk
        self.buf = b""
        self.pos: i64 = 0
        self.args_left: i64 = 0
        self.args: list[bytes] = []
        self.args_bytes: i64 = 0  # memory that they take
        self.parts: list[bytes] = []  # chunks of a long bulk that is still coming
        self.parts_bytes: i64 = 0
        self.bulk_need: i64 = -1  # bytes of the current bulk with its CRLF, -1: header next

    def feed(self, data: bytes) -> None:
        """Add bytes received."""
        if self.bulk_need >= 0:
            lacking: i64 = self.bulk_need - self.parts_bytes
            if len(data) < lacking or self.bulk_need < LARGE_BULK:
                self.parts.append(data)
                self.parts_bytes += len(data)
                if self.parts_bytes < self.bulk_need:
                    return
                self.buf = b"".join(self.parts)
            else:
                self.end_large(data, lacking)
            self.parts = []
            self.parts_bytes = 0
            self.pos = 0
        elif self.pos == len(self.buf):
            self.buf = data
            self.pos = 0
        else:
            self.buf = self.buf[self.pos :] + data
            self.pos = 0

    def end_large(self, data: bytes, lacking: i64) -> None:
        """The rest of a large bulk is in `data`: it is put together once, and not copied again."""
        if lacking > 2:
            self.parts.append(data[: lacking - 2])
        elif lacking < 2:
            last = self.parts.pop()  # the bulk's end came with it
            self.parts.append(last[: len(last) - (2 - lacking)])
        self.args.append(b"".join(self.parts))
        self.args_bytes += ARG_BYTES + self.bulk_need
        self.args_left -= 1
        self.bulk_need = -1
        self.buf = data[lacking:]

    def is_empty(self) -> bool:
        """Whether nothing is held back: the next byte starts a command."""
        return self.args_left == 0 and self.pos == len(self.buf) and len(self.parts) == 0

    def held_bytes(self) -> i64:
        """Memory of what was received and not yet given out."""
        return len(self.buf) - self.pos + self.parts_bytes + self.args_bytes

    def next(self) -> list[bytes] | None:
        """The next command (never empty), None when more bytes are needed."""
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
            have: i64 = len(self.buf) - self.pos
            if have < self.bulk_need:
                if self.parts_bytes == 0 and have > 0:
                    self.parts = [self.buf[self.pos :]]
                    self.parts_bytes = have
                    self.buf = b""
                    self.pos = 0
                return False
            end = self.pos + self.bulk_need
            self.args.append(self.buf[self.pos : end - 2])
            self.args_bytes += ARG_BYTES + self.bulk_need
            self.pos = end
            self.bulk_need = -1
            self.args_left -= 1
        return True

    def line(self, too_big: bytes) -> bytes | None:
        """The line at the position without its end, None when it is not whole yet."""
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


@final
class RequestReader:
    """The reader of one connection: the fastest of the three ways that fits each chunk."""

    def __init__(self, max_bulk: i64) -> None:
        self.max_bulk = max_bulk
        self.fast = hiredis.Reader(notEnoughData=_MORE)
        self.strict: StrictReader | None = None
        self.error = ""  # what broke the protocol, after the commands that `read` gave

    def read(self, data: bytes) -> list[list[bytes]]:
        """The whole commands in the bytes so far; look at `error` after them."""
        if self.error:
            return []  # nothing after the fault can be told apart
        if self.strict is None:
            commands = self.read_fast(data)
            if commands is not None:
                return commands
            self.strict = StrictReader(self.max_bulk)
        strict = self.strict
        strict.feed(data)
        commands = []
        try:
            while True:
                command = strict.next()
                if command is None:
                    break
                commands.append(command)
        except ProtocolError as error:
            self.error = str(error)
        if strict.is_empty():
            self.strict = None
        return commands

    def read_fast(self, data: bytes) -> list[list[bytes]] | None:
        """All commands of a chunk that holds nothing but whole plain ones, else None.

        `at` follows the encoding that the values must have had. hiredis takes lengths in
        their one plain form only, so a `*` and a `$` at each expected place prove the chunk.
        """
        if len(data) < 4 or data[0] != 42:
            return None
        if len(data) < _SHORT <= self.max_bulk:
            one = one_plain(data)
            if one is not None:
                return [one]
        if data.find(b"*", 1) >= 0 or (data[2] != 13 and data[3] != 13):  # one short command?
            if _LONG_ARRAY.search(data) is not None:
                return None
        fast = self.fast
        fast.feed(data)
        commands: list[list[bytes]] = []
        at: i64 = 0
        size: i64 = len(data)
        try:
            while at < size:
                value: object = fast.gets()
                if not isinstance(value, list) or data[at] != 42:
                    break
                command: list[bytes] = value
                count: i64 = len(command)
                if count == 0:
                    break
                at += 3 + digits(count)
                for arg in command:
                    if data[at] != 36:
                        raise TypeError
                    length: i64 = len(arg)
                    if length > self.max_bulk:
                        raise TypeError
                    at += 5 + digits(length) + length
                commands.append(command)
        except (hiredis.ProtocolError, TypeError):  # len(None) too
            at = -1
        if at != size:
            self.fast = hiredis.Reader(notEnoughData=_MORE)
            return None
        return commands

    def check_small(self) -> None:
        """Refuse a command that is coming in when it is bigger than one to log in may be."""
        strict = self.strict
        if strict is None or self.error:
            return
        if strict.args_left + len(strict.args) > SMALL_ARGS:
            self.error = "unauthenticated multibulk length"
        elif strict.bulk_need > SMALL_BULK + 2:
            self.error = "unauthenticated bulk length"

    def held_bytes(self) -> i64:
        """Bytes received that make no whole command yet."""
        return 0 if self.strict is None else self.strict.held_bytes()

    def body_bytes(self) -> i64:
        """Of those, bytes of a large body."""
        return 0 if self.strict is None else self.strict.parts_bytes


def one_plain(data: bytes) -> list[bytes] | None:
    """The command that a short chunk consists of; None when it is not one, whole and plain."""
    size: i64 = len(data)
    count: i64 = data[1]
    count -= 48
    if count < 1 or count > 9 or data[2] != 13 or data[3] != 10:
        return None
    args: list[bytes] = []
    at: i64 = 4
    while count > 0:
        if at + 4 > size or data[at] != 36:
            return None
        length: i64 = data[at + 1]
        length -= 48
        if length < 0 or length > 9:
            return None
        at += 2
        digit: i64 = data[at]
        digit -= 48
        while 0 < length < _SHORT and 0 <= digit <= 9 and at + 1 < size:  # no zero in front
            length = length * 10 + digit
            at += 1
            digit = data[at]
            digit -= 48
        end = at + 2 + length
        if data[at] != 13 or end + 2 > size or data[at + 1] != 10:
            return None
        args.append(data[at + 2 : end])
        at = end + 2
        count -= 1
    return args if at == size else None


def digits(number: i64) -> i64:
    """Decimal digits of a number >= 0."""
    count: i64 = 1
    while number >= 10:
        number //= 10
        count += 1
    return count


def strict_int(word: bytes) -> i64 | None:
    """A decimal integer of 64 bits: optional sign, digits, nothing else. None if it is not."""
    size: i64 = len(word)
    i: i64 = 0
    negative = False
    if size > 0 and (word[0] == 45 or word[0] == 43):
        negative = word[0] == 45
        i = 1
    if i == size or size - i > 19:
        return None
    value: i64 = 0
    while i < size:
        digit: i64 = word[i] - 48
        if digit < 0 or digit > 9:
            return None
        if value > 922_337_203_685_477_580 or (value == 922_337_203_685_477_580 and digit > 7):
            return None
        value = value * 10 + digit
        i += 1
    return -value if negative else value


def length_of(line: bytes) -> i64:
    """The number of a `*` or `$` line in its one plain form; beyond any limit if it is not."""
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
    """What is said of a bulk over the limit: Disque's words, then the option and what to do."""
    return (
        f"invalid bulk length: {size} is over max-body-bytes ({most}); "
        "send less, or raise it with CONFIG SET (at most 512mb)"
    )


def printable(byte: i64) -> str:
    """A byte as it may stand in an error text."""
    if 32 <= byte < 127:
        return chr(byte)
    return f"\\x{byte:02x}"


_ESCAPES: Final = {110: 10, 114: 13, 116: 9, 98: 8, 97: 7}  # n r t b a


def split_inline(line: bytes) -> list[bytes]:
    """The words of an inline command; double quotes know escapes, single quotes only \\'."""
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
        words.append(bytes(word))  # "" is an argument too


def _escape(line: bytes, i: i64, word: bytearray) -> i64:
    """Decode the escape at `i` (a backslash) into `word`; returns the next position."""
    if i + 3 < len(line) and line[i + 1] == 120:
        digits16 = line[i + 2 : i + 4]
        if digits16.isalnum():  # int() takes signs, spaces and _ too
            try:
                word.append(int(digits16, 16))
                return i + 4
            except ValueError:
                pass
    word.append(_ESCAPES.get(line[i + 1], line[i + 1]))
    return i + 2


# ---- replies

_SMALL: Final = [b":%d\r\n" % i for i in range(1024)]
_BULK_HEADS: Final = [b"$%d\r\n" % i for i in range(4096)]


def int_reply(value: i64) -> bytes:
    """`:n`."""
    if 0 <= value < 1024:
        return _SMALL[value]
    return b":%d\r\n" % value


def bulk_head(size: i64) -> bytes:
    """`$n` and its line end."""
    if size < 4096:
        return _BULK_HEADS[size]
    return b"$%d\r\n" % size


def put_bulk(out: list[bytes], value: bytes) -> None:
    """`$n`, the bytes."""
    out.append(bulk_head(len(value)))
    out.append(value)
    out.append(b"\r\n")


def put_value(out: list[bytes], value: object, resp3: bool) -> None:
    """Any value: bytes bulk, Status simple, int, None null, list array, dict map."""
    if isinstance(value, bytes):
        put_bulk(out, value)
    elif isinstance(value, Status):
        out.append(b"+%s\r\n" % one_line(value.text.encode()))
    elif isinstance(value, str):
        put_bulk(out, value.encode())
    elif isinstance(value, int):
        out.append(b":%d\r\n" % value)
    elif value is None:
        out.append(b"_\r\n" if resp3 else b"$-1\r\n")
    elif isinstance(value, NullArray):
        out.append(b"_\r\n" if resp3 else b"*-1\r\n")
    elif isinstance(value, list):
        out.append(b"*%d\r\n" % len(value))
        for item in value:
            put_value(out, item, resp3)
    else:
        assert isinstance(value, dict), "no RESP form for this value"
        out.append(b"%%%d\r\n" % len(value) if resp3 else b"*%d\r\n" % (2 * len(value)))
        for key, item in value.items():
            put_value(out, key, resp3)
            put_value(out, item, resp3)


def error_reply(text: bytes) -> bytes:
    """`-` and the text on one line."""
    return b"-%s\r\n" % one_line(text)


def one_line(text: bytes) -> bytes:
    """The text with line ends replaced by spaces."""
    if b"\n" in text or b"\r" in text:
        return text.replace(b"\r", b" ").replace(b"\n", b" ")
    return text
