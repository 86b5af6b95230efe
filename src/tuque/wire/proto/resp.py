"""RESP2 and RESP3: requests in, replies out (SPEC C2-C5).

Requests are read in one of two ways. `read_plain` splits whole, plainly encoded commands, as all
clients send them. Anything else (a partial command, an inline command, odd or malformed encodings)
goes to `StrictReader`, which is exact about limits and error texts (wire/proto/strict_reader.py).
The two agree on every stream (tests/wire).
"""

from typing import Final, final

from mypy_extensions import i64

from tuque.wire.proto.strict_reader import (
    LONG_BULK,
    MAX_ARGS,
    ProtocolError,
    StrictReader,
)

MAX_BULK: Final = 536_870_912
SMALL_ARGS: Final = 10  # before AUTH
SMALL_BULK: Final = 16_384

_CR: Final = 13 - 48  # as a digit
_LEAST_WORD: Final = 6  # bytes of `$0` with its ends of lines

_SMALL: Final = [b":%d\r\n" % i for i in range(1024)]
_BULK_HEADS: Final = [b"$%d\r\n" % i for i in range(4096)]
_ARRAY_HEADS: Final = [b"*%d\r\n" % i for i in range(1024)]


class Status:
    """A value written as a simple string."""

    def __init__(self, text: str) -> None:
        self.text = text


class NullArray:
    """A value written as RESP2's null array."""


NULL_ARRAY: Final = NullArray()


@final
class RequestReader:
    """The reader of one connection: picks the fastest way for each chunk."""

    def __init__(self, max_bulk: i64) -> None:
        self.max_bulk = max_bulk
        self.strict: StrictReader | None = None
        self.has_long = False  # there was a command with a long word
        self.error = ""  # the protocol error that follows the commands from `read`

    def read(self, data: bytes) -> list[list[bytes]]:
        """The whole commands in the bytes so far; check `error` after them."""
        if self.error:
            return []  # nothing after the error can be told apart
        commands: list[list[bytes]] = []
        strict = self.strict
        if strict is None:
            at = read_plain(data, 0, self.max_bulk, commands)
            if at == len(data):
                if at > LONG_BULK:
                    self.look_for_long(commands)
                return commands
            strict = StrictReader(self.max_bulk)
            self.strict = strict
            strict.feed(data)
            strict.pos = at
        else:
            strict.feed(data)
        try:
            while True:
                command = strict.next()
                if command is None:
                    break
                commands.append(command)
                strict.pos = read_plain(strict.buf, strict.pos, self.max_bulk, commands)
        except ProtocolError as error:
            self.error = str(error)
        self.has_long = self.has_long or strict.has_long
        if len(data) > LONG_BULK:
            self.look_for_long(commands)
        if strict.is_empty():
            self.strict = None
        else:
            strict.release()
        return commands

    def look_for_long(self, commands: list[list[bytes]]) -> None:
        """Note whether one of the commands has a long word."""
        if not self.has_long:
            self.has_long = True in [len(word) > LONG_BULK for one in commands for word in one]

    def check_small(self) -> None:
        """Refuse a partial command bigger than what a client may send before AUTH."""
        strict = self.strict
        if strict is None or self.error:
            return
        if strict.args_left + len(strict.args) > SMALL_ARGS:
            self.error = "unauthenticated multibulk length"
        elif strict.bulk_need > SMALL_BULK + 2:
            self.error = "unauthenticated bulk length"

    def held_bytes(self) -> i64:
        """Buffered bytes that are no whole command yet."""
        return 0 if self.strict is None else self.strict.held_bytes()

    def body_bytes(self) -> i64:
        """Bytes among them that belong to a large body."""
        return 0 if self.strict is None else self.strict.parts_bytes


def read_plain(data: bytes, at: i64, most: i64, commands: list[list[bytes]]) -> i64:
    """Append the whole, plain commands from `at` on; returns where the first other thing begins.

    `most`: bytes of a word.
    """
    size: i64 = len(data)
    while at + 4 <= size and data[at] == 42:
        count: i64 = data[at + 1]
        count -= 48
        if count < 1 or count > 9:
            return at
        i: i64 = at + 2
        digit: i64 = data[i]
        digit -= 48
        while 0 <= digit <= 9 and count <= MAX_ARGS and i + 1 < size:
            count = count * 10 + digit
            i += 1
            digit = data[i]
            digit -= 48
        if digit != _CR or count > MAX_ARGS or i + 2 > size or data[i + 1] != 10:
            return at
        i += 2
        args: list[bytes] = []
        while count > 0:
            if i + _LEAST_WORD > size or data[i] != 36:
                return at
            length: i64 = data[i + 1]
            length -= 48
            if length < 0 or length > 9:
                return at
            i += 2
            digit = data[i]
            digit -= 48
            while 0 <= digit <= 9 and 0 < length <= most and i + 1 < size:  # no leading zero
                length = length * 10 + digit
                i += 1
                digit = data[i]
                digit -= 48
            end = i + 2 + length
            if digit != _CR or length > most or end + 2 > size or data[i + 1] != 10:
                return at
            args.append(data[i + 2 : end])
            i = end + 2
            count -= 1
        commands.append(args)
        at = i
    return at


def digits(number: i64) -> i64:
    """Decimal digits of a number >= 0."""
    count: i64 = 1
    while number >= 10:
        number //= 10
        count += 1
    return count


def strict_int(word: bytes) -> i64 | None:
    """A 64-bit decimal integer: optional sign, digits, nothing else; or None."""
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


# ---- Replies


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


def array_head(count: i64) -> bytes:
    """`*n` and its line end."""
    if count < 1024:
        return _ARRAY_HEADS[count]
    return b"*%d\r\n" % count


def put_bulk(out: list[bytes], value: bytes) -> None:
    """`$n`, the bytes."""
    out.append(bulk_head(len(value)))
    out.append(value)
    out.append(b"\r\n")


def put_value(out: list[bytes], value: object, resp3: bool) -> None:
    """Any value: bytes bulk, Status simple string, int, None null, list array, dict map."""
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
