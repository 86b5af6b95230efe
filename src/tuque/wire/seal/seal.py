"""The code of each frame in one direction of a link (SPEC B2.7)."""

from hashlib import blake2b
from hmac import compare_digest
from typing import Final, final

from mypy_extensions import i64

CODE_BYTES: Final = 16


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
