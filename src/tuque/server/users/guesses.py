"""Failed log-ins slow further ones down, by address (SPEC N6).

A log-in is proved when its turn has come, not answered late: else who guesses would not wait.
"""

from typing import Final, final

from mypy_extensions import i64

FREE: Final = 3  # failures without a delay
FIRST_MS: Final = 100
MOST_MS: Final = 5_000
FORGET_MS: Final = 60_000  # after the last failure
KEYS_MAX: Final = 10_000
SHIFTS: Final = 6


@final
class Guess:
    """The failures of one address, or of one user from there."""

    def __init__(self) -> None:
        self.failures: i64 = 0
        self.last_ms: i64 = 0
        self.next_ms: i64 = 0  # the next turn

    def delay_ms(self) -> i64:
        """The time between two turns."""
        over = self.failures - FREE
        if over < 0:
            return 0
        return MOST_MS if over >= SHIFTS else min(MOST_MS, FIRST_MS << over)


@final
class Guesses:
    """All of them; the oldest go when there are many."""

    def __init__(self) -> None:
        self.by_key: dict[bytes, Guess] = {}
        self.trusted: dict[bytes, None] = {}  # pairs of address and user that have logged in

    def turn_ms(self, host: bytes, user: bytes, now_ms: i64) -> i64:
        """[N6] When this log-in may be proved; takes the turn (N6.1)."""
        at_ms = now_ms
        for key in self.keys_of(host, user):
            guess = self.by_key.get(key)
            if guess is None:
                continue
            if guess.last_ms + FORGET_MS < now_ms:
                del self.by_key[key]
                continue
            delay_ms = guess.delay_ms()
            if delay_ms > 0:
                at_ms = max(at_ms, guess.next_ms)
                guess.next_ms = max(now_ms, guess.next_ms) + delay_ms
        return at_ms

    def is_trusted(self, host: bytes, user: bytes) -> bool:
        """Whether the user has logged in from that address."""
        return host + b"\0" + user in self.trusted

    def keys_of(self, host: bytes, user: bytes) -> list[bytes]:
        """What slows this log-in down (N6.2).

        Never the failures of other addresses: whoever knows a name could lock its user out.
        """
        pair = host + b"\0" + user
        if pair in self.trusted:
            return [b"p" + pair]
        return [b"a" + host]

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
