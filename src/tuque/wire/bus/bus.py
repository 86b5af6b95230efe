"""Frames of the bus: many messages, one length, one code (SPEC B2).

    length u32 | keyed code, 16 bytes | msgpack list of messages                   under a secret
    length u32 | CRC-32 u32, mixed with the connection's salt | the same         without a secret

Nothing is trusted before it is checked: the length against a bound, the code, the counts
inside against the bytes present (msgspec does), and each field of a message against its bounds
(core/msgs). The core defines what a message means.
"""

from typing import Final, final
from zlib import crc32

import msgspec
from mypy_extensions import i64

from tuque.core.msgs.bus import CHECKS, LARGE_BODY, AnyMessage, ReplJob, TubeCopy
from tuque.wire.bus.seal import CODE_BYTES, Arriving, Coder, Seal

HEAD_BYTES: Final = 8
SEALED_HEAD_BYTES: Final = 4 + CODE_BYTES
FRAME_BYTES: Final = 1 << 20  # frames are split between messages above it

NO_BODY: Final = b"\xc4\x00"  # as MessagePack writes it
LONG: Final = b"\xc6"  # bytes with a length of 32 bits

_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder(list[AnyMessage])


class BusError(Exception):
    """The other end violated the protocol of the bus; the text says how."""


class SealError(BusError):
    """A frame was not made by the other end, or does not come in its turn (B2.7)."""


def encoded(messages: list[AnyMessage]) -> bytes:
    """The messages in order, as the payload of a frame."""
    return _ENCODER.encode(messages)


def frames_of(messages: list[AnyMessage], salt: i64, seal: Seal | None = None) -> bytes:
    """Encode the messages in order, as one frame unless they are large (B2.1)."""
    return frames_with(messages, encoded(messages), salt, seal)


def frames_with(
    messages: list[AnyMessage], payload: bytes, salt: i64, seal: Seal | None, total: i64 = -1
) -> bytes:
    """The same of messages that are encoded already; `total`: their checksum, -1 if not known."""
    if len(payload) > FRAME_BYTES and len(messages) > 1:
        half = len(messages) // 2
        first = frames_of(messages[:half], salt, seal)
        return first + frames_of(messages[half:], salt, seal)
    if seal is not None:
        return sealed(payload, seal)
    if total < 0:
        total = crc32(payload)
    return b"%s%s" % (head_with(len(payload), total ^ salt), payload)


def is_large(message: AnyMessage) -> bool:
    """Whether it has a frame of its own, without a copy of its body (B2.8)."""
    if isinstance(message, ReplJob):
        return len(message.body) >= LARGE_BODY
    return isinstance(message, TubeCopy) and len(message.records) >= LARGE_BODY


def parts_of(message: AnyMessage) -> list[bytes]:
    """The payload of a frame with this large message alone, its body or records as they are."""
    if isinstance(message, TubeCopy):
        body = message.records
        text = _ENCODER.encode([msgspec.structs.replace(message, records=b"")])
        before: list[object] = [message.name, message.maker, message.made_ns, message.epoch]
        before += [message.from_seq, message.to_seq, message.now_ms]
        before += [message.next_number, message.flags]
    else:
        assert isinstance(message, ReplJob)
        body = message.body
        text = _ENCODER.encode([msgspec.structs.replace(message, body=b"")])
        before = [message.id, message.queue]
    at = 3 + sum([len(_ENCODER.encode(field)) for field in before])
    assert text[at : at + 2] == NO_BODY  # behind two lengths and the tag
    return [text[:at] + LONG + len(body).to_bytes(4, "big"), body, text[at + 2 :]]


def sealed(payload: bytes, seal: Seal) -> bytes:
    """The next frame under a secret (B2.7)."""
    return b"%s%s%s" % (len(payload).to_bytes(4, "big"), seal.code(payload), payload)


def head_of(payload: bytes, salt: i64) -> bytes:
    """Length and checksum."""
    return head_with(len(payload), crc32(payload) ^ salt)


def head_with(size: i64, code: i64) -> bytes:
    """The same of numbers."""
    head: int = size << 32 | code
    return head.to_bytes(HEAD_BYTES, "big")


def messages_of(payload: bytes) -> list[AnyMessage]:
    """Decode a frame's messages; its checksum was right. Raises BusError."""
    try:
        messages: list[AnyMessage] = _DECODER.decode(payload)
    except Exception as error:  # B2.5: decoders have many ways to fail
        text = "a frame is no list of messages, or has fields out of range"  # R2.1
        raise BusError(f"{text}: {error}") from None
    for message in messages:
        check = CHECKS.get(type(message))
        if check is not None and not check(message):
            raise BusError(f"a {type(message).__name__} has fields out of range")  # R2.1
    return messages


def u32(data: bytes, at: i64) -> i64:
    """The number in four bytes, the highest first."""
    a: i64 = data[at]
    b: i64 = data[at + 1]
    c: i64 = data[at + 2]
    d: i64 = data[at + 3]
    return a << 24 | b << 16 | c << 8 | d


@final
class FrameReader:
    """Cuts a stream of bytes into the payloads of frames."""

    def __init__(self, limit_bytes: i64) -> None:
        self.limit_bytes = limit_bytes
        self.salt: i64 = 0
        self.seal: Seal | None = None  # checks the frames from now on
        self.head_bytes: i64 = HEAD_BYTES
        self.parts: list[bytes] = []  # received, not returned yet
        self.at: i64 = 0  # read position in the first part
        self.held_bytes: i64 = 0
        self.need_bytes: i64 = HEAD_BYTES  # held bytes from which decoding is worth trying
        self.large: Arriving | None = None  # the next frame, if it is large and has come in part

    def feed(self, data: bytes) -> None:
        """Add bytes received."""
        if self.large is not None:
            at = self.large.add(data, 0)
            if at == len(data):
                return
            data = data[at:]
        self.parts.append(data)
        self.held_bytes += len(data)

    def unseal(self, seal: Seal) -> None:
        """Expect frames under a secret from now on."""
        self.seal = seal
        self.head_bytes = SEALED_HEAD_BYTES
        self.need_bytes = SEALED_HEAD_BYTES

    def next(self) -> bytes | None:
        """The payload of the next whole frame; None if it is incomplete. Raises BusError."""
        if self.large is not None:
            return self.next_large(self.large)
        if self.held_bytes < self.need_bytes:
            return None
        if len(self.parts) > 1:
            self.parts[0] = self.parts[0][self.at :]
            self.parts = [b"".join(self.parts)]
            self.at = 0
        data = self.parts[0]
        at = self.at
        size = u32(data, at)
        head = self.head_bytes
        end = head + size
        if size > self.limit_bytes:
            text = f"a frame of {size} bytes, the limit is {self.limit_bytes}"
            raise BusError(text) if self.seal is None else SealError(text)
        if self.held_bytes < end:
            if size >= FRAME_BYTES:
                self.begin_large(data, at, size)
            else:
                self.need_bytes = end
            return None
        payload = data[at + head : at + end]
        self.check(data[at + 4 : at + head], payload)
        self.held_bytes -= end
        if self.held_bytes == 0:
            self.parts = []
            self.at = 0
        else:
            self.at = at + end
        self.need_bytes = head
        return payload

    def begin_large(self, data: bytes, at: i64, size: i64) -> None:
        """[B2] The next frame is large: gather it, and go on with its code as it comes (B2.8)."""
        body = at + self.head_bytes
        self.large = Arriving(size, data[at + 4 : body], Coder(self.seal, self.salt))
        self.large.add(data, body)
        self.parts = []
        self.at = 0
        self.held_bytes = 0
        self.need_bytes = self.head_bytes

    def next_large(self, large: Arriving) -> bytes | None:
        """The payload of a large frame, once it is whole. Raises BusError."""
        if large.left > 0:
            return None
        self.large = None
        if not large.fits():
            raise self.wrong_code()
        return large.payload()

    def check(self, code: bytes, payload: bytes) -> None:
        """Whether the other end made this frame, and in this place. Raises BusError."""
        seal = self.seal
        if seal is None:
            if crc32(payload) ^ self.salt != u32(code, 0):
                raise self.wrong_code()
        elif not seal.fits(code, payload):
            raise self.wrong_code()

    def wrong_code(self) -> BusError:
        """The error of a frame that the other end did not make, or not in this place."""
        if self.seal is None:
            return BusError("a frame has a wrong checksum")
        return SealError("a frame has a wrong code: it was changed, repeated, left out or moved")
