"""IPROTO, Tarantool's binary protocol: greeting, frames, requests, replies (SPEC I1-I3, I5).

    length | header map | body map        all MessagePack; a reply's length has always 5 bytes

A stream of bytes goes in, requests come out; nothing here knows sockets, tubes or users.
"""

from base64 import b64encode
from hashlib import sha1
from hmac import compare_digest
from io import BytesIO
from typing import Final, final

from mypy_extensions import i64

from tuque.wire.proto.msgpack import (
    ARRAY,
    INT,
    MAP,
    STR,
    MsgpackError,
    Passage,
    Value,
    count_of,
    kind_of,
    payload_at,
    skip,
)

GREETING_BYTES: Final = 128
VERSION: Final = b"2.6.0"  # clients expect more from 2.10 on, and less before 1.7
SALT_BYTES: Final = 32
SCHEMA: Final = 1  # of every reply; clients fetch the schema again when it changes

# types of requests
SELECT: Final = 1
CALL_16: Final = 6
AUTH: Final = 7
EVAL: Final = 8
CALL: Final = 10
PING: Final = 64
ID: Final = 73

# keys of headers and bodies
TYPE: Final = 0x00
SYNC: Final = 0x01
SPACE: Final = 0x10
TUPLE: Final = 0x21
FUNCTION: Final = 0x22
USER: Final = 0x23
EXPRESSION: Final = 0x27

TYPE_NAMES: Final = {
    SELECT: b"SELECT",
    CALL_16: b"CALL_16",
    AUTH: b"AUTH",
    EVAL: b"EVAL",
    CALL: b"CALL",
    PING: b"PING",
    ID: b"ID",
}

# codes of errors
E_MEMORY: Final = 2
E_READ_ONLY: Final = 7
E_KEY_TYPE: Final = 18
E_KEY_COUNT: Final = 19
E_MSGPACK: Final = 20
E_FIELD_TYPE: Final = 23
E_PROC: Final = 32
E_NO_PROC: Final = 33
E_NO_SPACE: Final = 36
E_FIELD_MISSING: Final = 39
E_JOURNAL: Final = 40
E_ACCESS: Final = 42
E_NO_USER: Final = 45
E_PASSWORD: Final = 47
E_TYPE: Final = 48
E_MISSING: Final = 69
E_NO_ROLE: Final = 82
E_TOO_LARGE: Final = 110
E_LOADING: Final = 116

PART_BYTES: Final = 48  # memory overhead of a piece of input
SPACE_LAST: Final = 511  # lower ids are the server's own tables
LENGTH_SIZES: Final = {0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8}
LONG_FRAME: Final = 65_536  # bytes: longer ones are read in pieces
LARGE_FRAME: Final = 8 << 20  # they are not copied
ALL_LOOKS: Final = (1 << 62) - 1
AUTH_SALT: Final = 20  # bytes of the salt that go into a scramble


class IprotoError(Exception):
    """The error reply to a request: Tarantool's code and a text."""

    def __init__(self, code: int, text: bytes) -> None:
        self.code = code
        self.text = text
        super().__init__(text.decode("utf-8", "backslashreplace"))


class BrokenStream(Exception):
    """The input is not frames: send the error `text`, read no more (I2.4)."""

    def __init__(self, text: bytes) -> None:
        self.text = text
        super().__init__(text.decode())


def greeting(uuid: bytes, salt: bytes) -> bytes:
    """[I1] The 128-byte greeting; `uuid` is its dashed text."""
    first = b"Tarantool %s (Binary) %s" % (VERSION, uuid)
    return first.ljust(63) + b"\n" + b64encode(salt).ljust(63) + b"\n"


def type_name(type: i64) -> bytes:
    """The name of a type of request."""
    return TYPE_NAMES.get(type, b"TYPE_%d" % type)


@final
class Request:
    """One frame: its type and sync, and where its values are."""

    def __init__(self, type: i64, sync: int) -> None:
        self.type = type
        self.sync = sync
        self.body: dict[int, Value] = {}
        self.error = b""  # what is wrong with the body (I2.5)

    def text(self, key: i64, name: bytes) -> bytes:
        """A string of the body. Raises IprotoError if it is missing."""
        value = self.body.get(key)
        if value is None:
            raise IprotoError(E_MISSING, b"Missing mandatory field '%s' in request" % name)
        if value.kind != STR:
            raise IprotoError(E_MSGPACK, b"Invalid MsgPack - packet body")
        return value.payload()

    def arguments(self, most: i64) -> list[Value]:
        """The first arguments, at most `most`; none if there is no tuple."""
        value = self.body.get(TUPLE)
        if value is None:
            return []
        if value.kind != ARRAY:
            raise IprotoError(E_MSGPACK, b"Invalid MsgPack - packet body")
        return value.items(most)

    def argument_count(self) -> i64:
        """The number of arguments."""
        value = self.body.get(TUPLE)
        return value.size() if value is not None and value.kind == ARRAY else 0


@final
class FrameReader:
    """Cuts a stream of bytes into requests."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes: int = limit_bytes  # of one frame; a length may exceed 63 bits
        self.parts: list[bytes] = []  # received, not consumed
        self.at: i64 = 0  # start of the unread rest of the first part
        self.held_bytes: i64 = 0
        self.need_bytes: i64 = 1  # bytes needed before another attempt to parse
        self.large: BytesIO | None = None  # in place of the parts, while a large frame comes
        self.long: LongFrame | None = None  # it is whole, and is read in pieces
        self.looks: i64 = 0  # at values of long frames, so far

    def memory(self) -> i64:
        """Memory of buffered input, also if it came in many small pieces."""
        return self.at + self.held_bytes + PART_BYTES * len(self.parts)

    def feed(self, data: bytes) -> None:
        """Add bytes received."""
        if self.large is not None:
            self.large.write(data)
        else:
            self.parts.append(data)
        self.held_bytes += len(data)

    def next(self, looks: i64 = ALL_LOOKS) -> Request | None:
        """The next whole request, or None. Raises BrokenStream.

        Of a long one it looks at up to `looks` values; then it goes on with the next call.
        """
        if self.long is not None:
            return self.read_on(self.long, looks)
        if self.held_bytes < self.need_bytes:
            return None
        if self.large is not None:
            self.parts = [self.large.getvalue()]  # this is no copy
            self.large = None
        if len(self.parts) > 1:
            if self.at > 0:
                self.parts[0] = self.parts[0][self.at :]
                self.at = 0
            self.parts = [b"".join(self.parts)]
        data = self.parts[0]
        at = self.at
        head: i64 = data[at]
        begin: i64 = at + 1
        size: int = int(head)
        if head > 0x7F:
            wide: i64 = LENGTH_SIZES.get(int(head), 0)
            if wide == 0:
                raise BrokenStream(b"Invalid MsgPack - packet length")  # I2.4
            begin += wide
            if self.held_bytes < 1 + wide:
                self.need_bytes = 1 + wide
                return None
            size = int.from_bytes(data[at + 1 : begin], "big")
        if size > self.limit_bytes:
            text = b"Invalid MsgPack - too big packet size in the header: %d" % size
            raise BrokenStream(text)  # I2.3
        length: i64 = size
        if self.held_bytes < begin - at + length:
            self.need_bytes = begin - at + length
            if length >= LARGE_FRAME:
                self.large = BytesIO()
                self.large.write(data[at:])
                self.parts = []
                self.at = 0
            return None
        end = begin + length
        if length > LONG_FRAME:
            self.long = LongFrame(data, begin, end)
            return self.read_on(self.long, looks)
        request = request_of(data, begin, end)
        self.consume(end)
        return request

    def read_on(self, frame: "LongFrame", looks: i64) -> Request | None:
        """The request of a long frame, once all of it was read."""
        left = frame.step(looks)
        self.looks += looks - left
        if not frame.is_done:
            return None
        self.long = None
        self.consume(frame.until)
        return frame.request

    def consume(self, end: i64) -> None:
        """The first part has been read up to there."""
        self.held_bytes -= end - self.at
        if self.held_bytes == 0:
            self.parts = []
            self.at = 0
        else:
            self.at = end
        self.need_bytes = 1


@final
class Pairs:
    """As `fields_of`, in pieces."""

    def __init__(self, data: bytes, at: i64, end: i64) -> None:
        if at >= end:
            raise MsgpackError("nothing is there")
        if kind_of(data[at]) != MAP:
            raise MsgpackError("no map")
        if payload_at(data, at) > end:
            raise MsgpackError("it ends inside a value")
        self.data = data
        self.end = end
        self.left: i64 = count_of(data, at)
        self.at = payload_at(data, at)
        self.ends: dict[int, int] = {}
        self.found: dict[int, Value] = {}
        self.after_key: i64 = -1  # -1: the key comes
        self.inside: Passage | None = None  # the key or value that is being passed over
        if self.left * 2 > end - self.at:
            raise MsgpackError("no map")

    def step(self, looks: i64) -> i64:
        """Read on; how many looks are left: none, if there is more to read."""
        while self.left > 0 and looks > 0:
            inside = self.inside
            begin = self.at if self.after_key < 0 else self.after_key
            after = begin + 1
            if inside is None and begin < self.end and is_short(self.data[begin]):
                looks -= 1  # the common case
            else:
                if inside is None:
                    inside = Passage(self.data, begin, self.end, self.ends)
                    self.inside = inside
                looks = inside.step(looks)
                if not inside.is_done():
                    break
                after = inside.at
                self.inside = None
            self.passed(after)
        return looks

    def passed(self, after: i64) -> None:
        """A key, or the value of one, ends there."""
        if self.after_key < 0:
            self.after_key = after
            return
        key: i64 = self.data[self.at]
        if key <= 0x7F:
            self.found[int(key)] = Value(self.data, self.after_key, after, self.ends)
        self.at = after
        self.after_key = -1
        self.left -= 1


def is_short(head: i64) -> bool:
    """Whether the value is its first byte alone."""
    return head <= 0x7F or head >= 0xE0


@final
class LongFrame:
    """As `request_of`, in pieces."""

    def __init__(self, data: bytes, begin: i64, end: i64) -> None:
        self.data = data
        self.until = end  # in the stream's buffer
        self.end = end
        self.begin = begin
        self.pairs: Pairs | None = None  # of the header, then of the body
        self.request: Request | None = None  # once the header was read
        self.is_done = False

    def step(self, looks: i64) -> i64:
        """Read on; how many looks are left. Raises BrokenStream if the header is invalid (I2.4)."""
        if self.request is None:
            try:
                if self.pairs is None:
                    self.pairs = Pairs(self.data, self.begin, self.end)
                looks = self.pairs.step(looks)
            except MsgpackError:
                raise BrokenStream(b"Invalid MsgPack - packet header") from None
            if self.pairs.left > 0:
                return looks
            self.request = headed(self.pairs.found)
            after = self.pairs.at
            self.pairs = None
            if after == self.end:
                self.is_done = True
                return looks
            self.begin = after
            if self.end - after < LARGE_FRAME:
                # a copy, so that the arguments do not keep a whole buffer alive; of a large frame
                # nearly all of the buffer is theirs, and a copy takes long
                self.data = self.data[after : self.end]
                self.begin = 0
                self.end -= after
        request = self.request
        try:
            if self.pairs is None:
                self.pairs = Pairs(self.data, self.begin, self.end)
            looks = self.pairs.step(looks)
        except MsgpackError:
            request.error = b"Invalid MsgPack - packet body"  # I2.5
            self.is_done = True
            return looks
        if self.pairs.left > 0:
            return looks
        request.body = self.pairs.found
        if self.pairs.at != self.end:
            request.error = b"Invalid MsgPack - packet body"  # I2.5
        self.is_done = True
        return looks


def request_of(data: bytes, at: i64, end: i64) -> Request:
    """The request at this place. Raises BrokenStream if its header is invalid (I2.4)."""
    try:
        fields, after = fields_of(data, at, end)
    except MsgpackError:
        raise BrokenStream(b"Invalid MsgPack - packet header") from None
    request = headed(fields)
    if after == end:
        return request
    # a copy, so that the arguments do not keep a whole buffer alive
    body = data[after:end]
    try:
        request.body, after = fields_of(body, 0, len(body))
        if after != len(body):
            request.error = b"Invalid MsgPack - packet body"  # I2.5
    except MsgpackError:
        request.error = b"Invalid MsgPack - packet body"  # I2.5
    return request


def headed(fields: dict[int, Value]) -> Request:
    """The request of a header, without its body. Raises BrokenStream (I2.4)."""
    type = fields.get(TYPE)
    sync = fields.get(SYNC)
    if type is None or type.kind != INT or (sync is not None and sync.kind != INT):
        raise BrokenStream(b"Invalid MsgPack - packet header")
    number = type.integer()
    told = sync.integer() if sync is not None else 0
    if number < 0 or number > 0xFFFFFFFF or told < 0:
        raise BrokenStream(b"Invalid MsgPack - packet header")
    return Request(number, told)


def fields_of(data: bytes, at: i64, end: i64) -> tuple[dict[int, Value], i64]:
    """The values of a map under keys below 128, others ignored (I2.6); and its end.

    MsgpackError if it is not a map that ends by `end`.
    """
    if at >= end:
        raise MsgpackError("nothing is there")
    head: i64 = data[at]
    if kind_of(head) != MAP:
        raise MsgpackError("no map")
    if head > 0x8F and skip(data, at, end) < 0:  # the bytes must hold as many items as it counts
        raise MsgpackError("no map")
    left = count_of(data, at)
    at = payload_at(data, at)
    found: dict[int, Value] = {}
    while left > 0:
        after_key = skip(data, at, end)
        after = skip(data, after_key, end)
        key: i64 = data[at]
        if key <= 0x7F:
            found[int(key)] = Value(data, after_key, after)
        at = after
        left -= 1
    return found, at


def frame(status: int, sync: int, body: bytes) -> bytes:
    """[I3] A reply, each number as wide as Tarantool writes it."""
    return b"\xce%s\x83\x00\xce%s\x01\xcf%s\x05\xce\x00\x00\x00\x01%s" % (
        (23 + len(body)).to_bytes(4, "big"),
        status.to_bytes(4, "big"),
        sync.to_bytes(8, "big"),
        body,
    )


def ok_reply(sync: int) -> bytes:
    """The reply without data, to PING and AUTH."""
    return frame(0, sync, b"\x80")


def data_reply(sync: int, found: list[bytes]) -> bytes:
    """A reply with encoded values (I3.2)."""
    body = b"\x81\x30\xdd%s%s" % (len(found).to_bytes(4, "big"), b"".join(found))
    return frame(0, sync, body)


def tuples_of(found: list[bytes]) -> list[bytes]:
    """[I3.3] The values as CALL_16 returns them: each in an array, unless it is one."""
    return [one if kind_of(one[0]) == ARRAY else b"\x91" + one for one in found]


def error_reply(sync: int, code: int, text: bytes) -> bytes:
    """[I3.4] An error reply; clients read its text as UTF-8."""
    if not text.isascii():
        text = text.decode("utf-8", "backslashreplace").encode()
    return frame(0x8000 | code, sync, b"\x81\x31" + string(text))


def id_reply(sync: int) -> bytes:
    """[I4.6] The reply to ID: protocol version 1, no features."""
    return frame(0, sync, b"\x82\x54\x01\x55\x90")


def string(text: bytes) -> bytes:
    """The text as MP_STR, whatever its bytes."""
    size = len(text)
    if size < 32:
        return bytes([0xA0 | size]) + text
    if size < 256:
        return b"\xd9%c%s" % (size, text)
    if size < 65_536:
        return b"\xda%s%s" % (size.to_bytes(2, "big"), text)
    return b"\xdb%s%s" % (size.to_bytes(4, "big"), text)


def binary(data: bytes) -> bytes:
    """The data as MP_BIN."""
    size = len(data)
    if size < 256:
        return b"\xc4%c%s" % (size, data)
    if size < 65_536:
        return b"\xc5%s%s" % (size.to_bytes(2, "big"), data)
    return b"\xc6%s%s" % (size.to_bytes(4, "big"), data)


def unsigned(number: int) -> bytes:
    """A number from 0 to 2**64 - 1, in the shortest form."""
    if number < 128:
        return bytes([number])
    if number < 256:
        return b"\xcc%c" % number
    if number < 65_536:
        return b"\xcd" + number.to_bytes(2, "big")
    if number < 1 << 32:
        return b"\xce" + number.to_bytes(4, "big")
    return b"\xcf" + number.to_bytes(8, "big")


def array_head(count: int) -> bytes:
    """The head of an array of so many items."""
    if count < 16:
        return bytes([0x90 | count])
    if count < 65_536:
        return b"\xdc" + count.to_bytes(2, "big")
    return b"\xdd" + count.to_bytes(4, "big")


def map_head(count: int) -> bytes:
    """The head of a map of so many pairs."""
    if count < 16:
        return bytes([0x80 | count])
    return b"\xdf" + count.to_bytes(4, "big")


def secret_of(password: bytes) -> bytes:
    """What a server stores of a password: SHA-1 of its SHA-1 (I5.2)."""
    return sha1(sha1(password).digest()).digest()


def scramble(password: bytes, salt: bytes) -> bytes:
    """[I5.2] A client's proof that it knows the password."""
    first = sha1(password).digest()
    mask = sha1(salt[:AUTH_SALT] + sha1(first).digest()).digest()
    return xor(first, mask)


def proves(told: bytes, secret: bytes, salt: bytes) -> bool:
    """[I5.2] Whether the scramble of 20 bytes was made from the password of this secret."""
    mask = sha1(salt[:AUTH_SALT] + secret).digest()
    return compare_digest(sha1(xor(told, mask)).digest(), secret)


def xor(left: bytes, right: bytes) -> bytes:
    """XOR of two strings of 20 bytes."""
    both = int.from_bytes(left, "big") ^ int.from_bytes(right, "big")
    return both.to_bytes(20, "big")
