"""Passwords: scrypt hashes, slow work in a thread, and slower log-ins after failures (SPEC N4, N6).

A hash is `scrypt:LN:R:P:SALT:KEY`, salt and key in hexadecimal digits. IPROTO proves passwords by
SHA-1, which needs the SHA-1 of the SHA-1 of each: kept for users with the word `iproto` only.
"""

import hashlib
import hmac
import os
import threading
from queue import SimpleQueue
from typing import Final, final

from mypy_extensions import i64, mypyc_attr

from tuque.server.journal.thread import Wakeup
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

LINE_MAX: Final = 256  # works at once; more log-ins are refused
NICENESS: Final = 10  # the loop comes first

FREE: Final = 3  # failures without a delay
FIRST_MS: Final = 100
MOST_MS: Final = 1_000
AGAIN_MS: Final = 10  # the first in line has not taken its turn yet
FORGET_MS: Final = 60_000  # after the last failure
KEYS_MAX: Final = 10_000
SHIFTS: Final = 6


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


# ---- Slow work on passwords in one thread: a flood of log-ins never stops the loop (SPEC N4)
#
# The loop asks, the thread works and rings, the loop takes what is done. The line is bounded.


@mypyc_attr(allow_interpreted_subclasses=True)
class Work:
    """Something slow about passwords."""

    def __init__(self) -> None:
        self.is_done = False

    def run(self) -> None:
        """Do it; touches nothing that the loop uses before `is_done`."""


@final
class Hasher:
    """The thread; it starts with the first work."""

    def __init__(self) -> None:
        self.bell = Wakeup()
        self.line: SimpleQueue[Work | None] = SimpleQueue()
        self.is_closing = False
        self.thread: threading.Thread | None = None

    def ask(self, work: Work) -> bool:
        """Take the work in; False: the line is full."""
        if self.line.qsize() >= LINE_MAX:
            return False
        if self.thread is None:
            self.thread = threading.Thread(target=self.run, name="passwords", daemon=True)
            self.thread.start()
        self.line.put(work)
        return True

    def run(self) -> None:
        """The thread's loop."""
        try:
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICENESS)
        except (OSError, AttributeError):
            pass  # it works as hard as the loop, then
        while True:
            work = self.line.get()
            if work is None or self.is_closing:
                return
            work.run()
            work.is_done = True
            self.bell.ring()

    def close(self) -> None:
        """Stop the thread after the work it does, and free the bell."""
        self.is_closing = True
        if self.thread is not None:
            self.line.put(None)
            self.thread.join()
        self.bell.close()


# ---- Failed log-ins slow further ones down, by address (SPEC N6)
#
# A log-in is proved when its turn has come, not answered late: else who guesses would not wait.


@final
class Guess:
    """The failures of one address, or of one user from there."""

    def __init__(self) -> None:
        self.failures: i64 = 0
        self.last_ms: i64 = 0
        self.next_ms: i64 = 0  # the next turn
        self.line: dict[Turn, None] = {}  # who waits for one, the first first

    def delay_ms(self) -> i64:
        """The time between two turns."""
        over = self.failures - FREE
        if over < 0:
            return 0
        return MOST_MS if over >= SHIFTS else min(MOST_MS, FIRST_MS << over)


@final
class Turn:
    """The place of one log-in in a line."""

    def __init__(self, guess: Guess) -> None:
        self.guess = guess
        guess.line[self] = None

    def comes_ms(self, now_ms: i64) -> i64:
        """[N6] Take the turn if it has come: `now_ms`; else when to ask again (N6.1)."""
        guess = self.guess
        if self not in guess.line:
            return now_ms
        delay_ms = guess.delay_ms()
        if guess.last_ms + FORGET_MS < now_ms or delay_ms == 0:
            self.leave()
            return now_ms
        if guess.next_ms > now_ms:
            return guess.next_ms
        if next(iter(guess.line)) is not self:
            return now_ms + AGAIN_MS
        self.leave()
        guess.next_ms = now_ms + delay_ms
        return now_ms

    def leave(self) -> None:
        """Give the place back, if it is still there: the next one moves up."""
        self.guess.line.pop(self, None)


@final
class Guesses:
    """All of them; the oldest go when there are many."""

    def __init__(self) -> None:
        self.by_key: dict[bytes, Guess] = {}
        self.trusted: dict[bytes, None] = {}  # pairs of address and user that have logged in

    def join_line(self, host: bytes, user: bytes, now_ms: i64) -> Turn | None:
        """[N6] The last place of the line for a log-in (N6.1, N6.2); None: it need not wait."""
        key = self.key_of(host, user)
        guess = self.by_key.get(key)
        if guess is None:
            return None
        if guess.last_ms + FORGET_MS < now_ms:
            del self.by_key[key]
            return None
        return None if guess.delay_ms() == 0 else Turn(guess)

    def is_trusted(self, host: bytes, user: bytes) -> bool:
        """Whether the user has logged in from that address."""
        return host + b"\0" + user in self.trusted

    def key_of(self, host: bytes, user: bytes) -> bytes:
        """What slows this log-in down (N6.2).

        Never the failures of other addresses: whoever knows a name could lock its user out.
        """
        pair = host + b"\0" + user
        if pair in self.trusted:
            return b"p" + pair
        return b"a" + host

    def failed(self, host: bytes, user: bytes, now_ms: i64) -> None:
        """A log-in failed."""
        for key in (b"p" + host + b"\0" + user, b"a" + host):
            guess = self.by_key.pop(key, None)
            if guess is None or guess.last_ms + FORGET_MS < now_ms:
                guess = Guess()
            guess.failures += 1
            guess.last_ms = now_ms
            guess.next_ms = max(guess.next_ms, now_ms + guess.delay_ms())
            self.by_key[key] = guess
        while len(self.by_key) > KEYS_MAX:
            del self.by_key[next(iter(self.by_key))]

    def proved(self, host: bytes, user: bytes) -> None:
        """A log-in succeeded: the guesses of others do not slow this pair down."""
        pair = host + b"\0" + user
        self.trusted.pop(pair, None)
        self.trusted[pair] = None
        if len(self.trusted) > KEYS_MAX:
            del self.trusted[next(iter(self.trusted))]
