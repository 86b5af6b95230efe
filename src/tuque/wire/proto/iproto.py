"""IPROTO, Tarantool's binary protocol: greeting, frames, requests, replies (SPEC I1-I3, I5).

    length | header map | body map        all MessagePack; a reply's length has always 5 bytes

A stream of bytes goes in, requests come out; nothing here knows sockets, tubes or users.
"""

from base64 import b64encode
from hashlib import sha1
from hmac import compare_digest
from typing import Final, final

from mypy_extensions import i64

from tuque.wire.proto.msgpack import (
    ARRAY,
    INT,
    MAP,
    STR,
    MsgpackError,
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

    def memory(self) -> i64:
        """Memory of buffered input, also if it came in many small pieces."""
        return self.held_bytes + PART_BYTES * len(self.parts)

    def feed(self, data: bytes) -> None:
        """Add bytes received."""
        self.parts.append(data)
        self.held_bytes += len(data)

    def next(self) -> Request | None:
        """The next whole request, or None. Raises BrokenStream."""
        if self.held_bytes < self.need_bytes:
            return None
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
            return None
        end = begin + length
        request = request_of(data, begin, end)
        self.held_bytes -= end - at
        if self.held_bytes == 0:
            self.parts = []
            self.at = 0
        else:
            self.at = end
        self.need_bytes = 1
        return request


def request_of(data: bytes, at: i64, end: i64) -> Request:
    """The request at this place. Raises BrokenStream if its header is invalid (I2.4)."""
    try:
        fields, after = fields_of(data, at, end)
    except MsgpackError:
        raise BrokenStream(b"Invalid MsgPack - packet header") from None
    type = fields.get(TYPE)
    sync = fields.get(SYNC)
    if type is None or type.kind != INT or (sync is not None and sync.kind != INT):
        raise BrokenStream(b"Invalid MsgPack - packet header")
    number = type.integer()
    told = sync.integer() if sync is not None else 0
    if number < 0 or number > 0xFFFFFFFF or told < 0:
        raise BrokenStream(b"Invalid MsgPack - packet header")
    request = Request(number, told)
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
