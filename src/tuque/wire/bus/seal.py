"""The keys of a link, and the codes of its frames (SPEC B1.1, B2.7, B2.8).

Must not know: messages.
"""

from hashlib import blake2b
from hmac import compare_digest
from io import BytesIO
from typing import Final, final
from zlib import crc32

from mypy_extensions import i64

KEY_BYTES: Final = 64
PROOF_BYTES: Final = 32
DIALER: Final = b"tuque dialer"
ACCEPTOR: Final = b"tuque acceptor"
FROM_DIALER: Final = b"tuque frames out"
FROM_ACCEPTOR: Final = b"tuque frames in"

CODE_BYTES: Final = 16

STEP_BYTES: Final = 524_288


# ---- Keys of a link: made of the cluster's secret and both greetings (SPEC B1.1)
#
#     root        = BLAKE2b(key of the secret, greeting of the dialler, greeting of the other end)
#     proofs      = BLAKE2b(root, ...), one for each end; the second one covers the first
#     frame keys  = BLAKE2b(root), one for each direction
#
# Each use has a label of its own, so that no value made for one use can serve another. A greeting
# has a nonce: who repeats what another link sent has other keys.


def root_of(secret: bytes, dialer: bytes, acceptor: bytes) -> bytes:
    """The key of all keys of a link, of the secret and both greetings."""
    key = blake2b(secret, digest_size=KEY_BYTES, person=b"tuque secret").digest()
    text = b"%d:%s%s" % (len(dialer), dialer, acceptor)
    return blake2b(text, digest_size=KEY_BYTES, key=key, person=b"tuque link").digest()


def proof_of(root: bytes, role: bytes, text: bytes) -> bytes:
    """The code by which the end in that role shows that it knows the secret, and means the text."""
    return blake2b(text, digest_size=PROOF_BYTES, key=root, person=role).digest()


def frame_key(root: bytes, direction: bytes) -> bytes:
    """The key of the frames in one direction."""
    return blake2b(digest_size=KEY_BYTES, key=root, person=direction).digest()


# ---- Codes of frames in one direction (SPEC B2.7)


@final
class Seal:
    """Makes or checks the codes of frames, in their order.

    A code covers the number of the frame, which is not sent, and its bytes. So a frame that was
    changed, repeated, left out or moved has a wrong code.
    """

    def __init__(self, key: bytes) -> None:
        self.keyed = blake2b(digest_size=CODE_BYTES, key=key, person=b"tuque frame")
        self.number: i64 = 0  # of the next frame

    def begin(self) -> blake2b:
        """The code of the next frame, before its bytes."""
        whole = self.keyed.copy()
        number: int = self.number
        whole.update(number.to_bytes(8, "big"))
        self.number += 1
        return whole

    def code(self, payload: bytes) -> bytes:
        """The code of the next frame."""
        whole = self.begin()
        whole.update(payload)
        return whole.digest()

    def fits(self, code: bytes, payload: bytes) -> bool:
        """Whether that is the code of the next frame."""
        return compare_digest(code, self.code(payload))


# ---- Codes of large frames, made and checked in steps: no turn is as long as a body (SPEC B2.8)


@final
class Coder:
    """The code of one frame, made of its bytes as they come."""

    def __init__(self, seal: Seal | None, salt: i64) -> None:
        """`seal`: of the link, whose next frame this is; None: a CRC-32 and the `salt`."""
        self.keyed = None if seal is None else seal.begin()
        self.crc: int = 0
        self.salt = salt

    def add(self, part: memoryview) -> None:
        """Go on with these bytes."""
        if self.keyed is None:
            self.crc = crc32(part, self.crc)
        else:
            self.keyed.update(part)

    def code(self) -> bytes:
        """The code, after all bytes."""
        if self.keyed is not None:
            return self.keyed.digest()
        code: int = self.crc ^ self.salt
        return code.to_bytes(4, "big")


@final
class Head:
    """The head of a large frame, made in steps before the frame leaves."""

    def __init__(self, parts: list[bytes], coder: Coder) -> None:
        """`parts`: of the payload, none of them empty."""
        self.parts = parts
        self.coder = coder
        self.index: i64 = 0  # the part that comes next, and where
        self.at: i64 = 0

    def step(self) -> bytes:
        """Go on by some bytes; the head if that was the last step, else nothing."""
        parts = self.parts
        left: i64 = STEP_BYTES
        while left > 0 and self.index < len(parts):
            part = parts[self.index]
            end = min(len(part), self.at + left)
            self.coder.add(memoryview(part)[self.at : end])
            left -= end - self.at
            self.at = end
            if end == len(part):
                self.index += 1
                self.at = 0
        if self.index < len(parts):
            return b""
        size: i64 = 0
        for part in parts:
            size += len(part)
        whole: int = size
        return whole.to_bytes(4, "big") + self.coder.code()


@final
class Arriving:
    """A large frame that has come in part."""

    def __init__(self, size: i64, code: bytes, coder: Coder) -> None:
        self.left: i64 = size  # bytes that have not come
        self.code = code
        self.coder = coder
        self.buffer = BytesIO()

    def add(self, data: bytes, at: i64) -> i64:
        """Take what is of this frame, from there on; returns where it ends."""
        end = min(len(data), at + self.left)
        part = memoryview(data)[at:end]
        self.buffer.write(part)
        self.coder.add(part)
        self.left -= end - at
        return end

    def fits(self) -> bool:
        """Whether its code is the right one; after all bytes."""
        return compare_digest(self.code, self.coder.code())

    def payload(self) -> bytes:
        """All of it; not a copy."""
        return self.buffer.getvalue()
