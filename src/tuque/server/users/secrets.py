"""Passwords of a user: scrypt hashes, and what was proved of late (SPEC N4).

A hash is `scrypt:LN:R:P:SALT:KEY`, salt and key in hexadecimal digits. IPROTO proves passwords by
SHA-1, which needs the SHA-1 of the SHA-1 of each: kept for users with the word `iproto` only.
"""

import hashlib
import hmac
import os
from typing import Final, final

from tuque.wire.proto.iproto import secret_of

LOG_N: Final = 14
BLOCKS: Final = 8
LANES: Final = 1
SALT_BYTES: Final = 16
KEY_BYTES: Final = 32
MEMORY: Final = 64 << 20
LOG_N_MAX: Final = 16  # of a hash from elsewhere: 64 MiB, some 200 ms
PASSWORDS_MAX: Final = 8
PROVED_MAX: Final = 16
SHA1_BYTES: Final = 20


@final
class Secrets:
    """What a user's passwords are proved against."""

    def __init__(self) -> None:
        self.is_free = False  # any password, or none
        self.hashes: list[str] = []
        self.plain = b""  # of `requirepass`; empty: not set
        self.is_wired = False  # may log in over IPROTO
        self.wired: list[bytes] = []  # SHA-1 of SHA-1, of the passwords given while it was
        self.proved: dict[bytes, None] = {}  # keyed digests of passwords that fitted

    def is_same(self, other: "Secrets") -> bool:
        """Whether the other ones are the same, but for what was proved."""
        if self.is_free != other.is_free or self.is_wired != other.is_wired:
            return False
        if self.plain != other.plain:
            return False
        return self.hashes == other.hashes and self.wired == other.wired

    def copy(self) -> "Secrets":
        """The same once more."""
        other = Secrets()
        other.is_free = self.is_free
        other.hashes = list(self.hashes)
        other.plain = self.plain
        other.is_wired = self.is_wired
        other.wired = list(self.wired)
        return other

    def is_proved(self, key: bytes, password: bytes) -> bool:
        """Whether the password has fitted before; `key` is the server's own."""
        return digest(key, password) in self.proved

    def note_proved(self, key: bytes, password: bytes) -> None:
        """Remember that the password fits."""
        if len(self.proved) >= PROVED_MAX:
            self.proved = {}
        self.proved[digest(key, password)] = None

    def needs_none(self) -> bool:
        """Whether a connection is this user without a log-in."""
        return self.is_free and len(self.plain) == 0

    def fits_plain(self, password: bytes) -> bool:
        """Whether it is `requirepass`."""
        if len(self.plain) == 0:
            return False
        return hmac.compare_digest(password, self.plain)


def digest(key: bytes, password: bytes) -> bytes:
    """The keyed digest of a password."""
    return hashlib.blake2b(password, key=key, digest_size=32).digest()


def hash_of(password: bytes) -> str:
    """A new hash; takes some 40 ms."""
    salt = os.urandom(SALT_BYTES)
    key = derive(password, salt, LOG_N, BLOCKS, LANES)
    return f"scrypt:{LOG_N}:{BLOCKS}:{LANES}:{salt.hex()}:{key.hex()}"


def derive(password: bytes, salt: bytes, log_n: int, blocks: int, lanes: int) -> bytes:
    """The key of the password; slow, and the interpreter is free meanwhile."""
    return hashlib.scrypt(
        password, salt=salt, n=1 << log_n, r=blocks, p=lanes, maxmem=2 * MEMORY, dklen=KEY_BYTES
    )


def fits(password: bytes, text: str) -> bool:
    """Whether the password has that hash; takes as long as making it."""
    log_n, blocks, lanes, salt, key = parts_of(text)
    return hmac.compare_digest(derive(password, salt, log_n, blocks, lanes), key)


def parts_of(text: str) -> tuple[int, int, int, bytes, bytes]:
    """The fields of a hash. Raises ValueError if the text is not a hash."""
    kind, log_n, blocks, lanes, salt, key = text.split(":")
    n, r, p = int(log_n), int(blocks), int(lanes)
    if kind != "scrypt" or not 10 <= n <= LOG_N_MAX or r != BLOCKS or p != LANES:
        raise ValueError(text)
    if text.strip() != text or not 16 <= len(salt) <= 128 or len(key) != 2 * KEY_BYTES:
        raise ValueError(text)
    return n, r, p, bytes.fromhex(salt), bytes.fromhex(key)


def wired_of(password: bytes) -> bytes:
    """What IPROTO needs of a password."""
    return secret_of(password)
