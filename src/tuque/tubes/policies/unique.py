"""The UNIQUE keys of a tube: which task has a key, and until when (SPEC T44)."""

from typing import Final, final

from mypy_extensions import i64, mypyc_attr

from tuque.core.model.rows import Instants
from tuque.core.model.task import BURIED, FAR, Task
from tuque.tubes.entries.keys import UNTIL_START, keys_of, unique_of, until_of
from tuque.tubes.entries.schedule import HoldEntry

# A key, without its bytes. By tracemalloc, interpreted: 159 with 20,000 keys, 190 with 44,000.
UNIQUE_BYTES: Final = 180


@final
@mypyc_attr(acyclic=True)
class Claim:
    """The holder of a key."""

    def __init__(self, number: i64, until_ms: i64) -> None:
        self.number = number  # of the task
        self.until_ms = until_ms  # FAR: as long as the task says


@final
class Uniques:
    """All unique keys of one tube."""

    def __init__(self) -> None:
        self.claims: dict[bytes, Claim] = {}
        self.ends = Instants()  # of claims that have one
        self.bytes_used: i64 = 0

    def holder(self, key: bytes, now_ms: i64) -> i64:
        """The number of the task that has the key; -1: it is free."""
        claim = self.claims.get(key)
        if claim is None or claim.until_ms <= now_ms:
            return -1
        return claim.number

    def joined(self, task: Task, now_ms: i64) -> None:
        """A task with keys is in the tube: it has its unique key, unless its time for it is over
        (T44.2, T44.3)."""
        entry = task.entry
        if isinstance(entry, HoldEntry):
            if task.qtime_ms > now_ms:
                self.claim(entry.key, task.number, task.qtime_ms)
            return
        keys = keys_of(task)
        key = unique_of(keys) if len(keys) > 0 else b""
        if len(key) == 0:
            return
        until = until_of(keys)
        if task.delivered_count > 0 and until == UNTIL_START:
            return
        if task.status == BURIED and until <= 0:
            return  # it is dead
        until_ms: i64 = task.created_ms + until if until > 0 else FAR
        if self.holder(key, now_ms) < 0:
            self.claim(key, task.number, until_ms)

    def kept_until(self, task: Task, now_ms: i64) -> i64:
        """Until when the unique key is taken though the task ends now; 0: it is free (T44.3)."""
        keys = keys_of(task)
        if len(self.claims) == 0 or len(keys) == 0 or until_of(keys) <= 0:
            return 0
        claim = self.claims.get(unique_of(keys))
        if claim is None or claim.number != task.number or claim.until_ms <= now_ms:
            return 0
        return claim.until_ms

    def claim(self, key: bytes, number: i64, until_ms: i64 = FAR) -> None:
        """The task has the key from now on, until it is freed, or until the instant."""
        old = self.claims.get(key)
        if old is None:
            self.bytes_used += UNIQUE_BYTES + len(key)
        elif old.until_ms != FAR:
            self.ends.unset(key, old.until_ms)
        self.claims[key] = Claim(number, until_ms)
        if until_ms != FAR:
            self.ends.set(key, until_ms)

    def free(self, key: bytes, number: i64) -> bool:
        """The task gives the key up; False: it has not got it."""
        claim = self.claims.get(key)
        if claim is None or claim.number != number:
            return False
        self.drop(key)
        return True

    def drop(self, key: bytes) -> None:
        """Nobody has the key."""
        until_ms = self.claims.pop(key).until_ms
        if until_ms != FAR:
            self.ends.unset(key, until_ms)
        self.bytes_used -= UNIQUE_BYTES + len(key)

    def next_ms(self) -> i64:
        """When `drop_late` has work next."""
        return self.ends.first_ms()

    def drop_late(self, now_ms: i64, most: i64) -> i64:
        """Drop up to `most` claims whose time is over; returns how many more it might have been."""
        while most > 0 and self.next_ms() <= now_ms:
            self.drop(self.ends.first_key())
            most -= 1
        return most
