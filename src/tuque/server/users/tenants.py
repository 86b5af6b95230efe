"""Tenants: what each may have and was refused; ACL LOG, the denials (SPEC N7, N10, N11)."""

from collections import deque
from typing import Final, final

from mypy_extensions import i64

CONNECTIONS: Final = b"connections"
ADDS: Final = b"adds"
JOBS: Final = b"jobs"
BYTES: Final = b"bytes"
QUOTAS: Final = [CONNECTIONS, ADDS, JOBS, BYTES]
QUOTA_MAX: Final = 1 << 40
UNIT: Final = 1_000  # parts of an add in the bucket

SAME_MS: Final = 60_000  # the same again within it counts in one entry
NAME_MAX: Final = 256  # bytes kept of what was denied

NEWEST: Final = 32  # entries that are compared

AUTH: Final = "auth"
COMMAND: Final = "command"
QUEUE: Final = "key"  # as Redis clients know it


@final
class Tenant:
    """One tenant, as its users say."""

    def __init__(self, name: bytes) -> None:
        self.name = name
        self.refused: i64 = 0  # commands, by a quota
        self.users: i64 = 0
        self.room: i64 = 0  # thousandths of adds that may come at once
        self.room_ms: i64 = 0  # when that was counted
        self.connections: i64 = 0  # limits; 0: none
        self.adds: i64 = 0  # in a second
        self.jobs: i64 = 0
        self.bytes: i64 = 0

    def begin(self) -> None:
        """Forget what its users said: they are asked again."""
        self.users = 0
        self.connections = 0
        self.adds = 0
        self.jobs = 0
        self.bytes = 0

    def join(self, quotas: dict[bytes, int]) -> None:
        """Count one of its users, whose words say these quotas: the smallest hold (N11.1)."""
        self.users += 1
        self.connections = least(self.connections, quotas.get(CONNECTIONS, 0))
        self.adds = least(self.adds, quotas.get(ADDS, 0))
        self.jobs = least(self.jobs, quotas.get(JOBS, 0))
        self.bytes = least(self.bytes, quotas.get(BYTES, 0))

    def wait_ms(self, now_ms: i64, count: i64 = 1) -> i64:
        """Count so many adds; or the ms until there is room for them (N11.3).

        More at once than come in a second need a second without any, and those after them wait.
        """
        if self.adds == 0:
            return 0
        most_ms: i64 = UNIT + (0 if self.room >= 0 else -self.room // self.adds + 1)
        self.room += min(now_ms - self.room_ms, most_ms) * self.adds
        self.room_ms = now_ms
        if self.room > self.adds * UNIT:
            self.room = self.adds * UNIT
        needed: i64 = min(count, self.adds) * UNIT
        if self.room < needed:
            return (needed - self.room + self.adds - 1) // self.adds
        self.room -= count * UNIT
        return 0


def least(one: i64, other: i64) -> i64:
    """The smaller limit; 0 is none."""
    if one == 0 or other == 0:
        return one + other
    return min(one, other)


# ---- ACL LOG: the latest denials, equal ones in one entry (SPEC N7)


@final
class Denial:
    """One entry."""

    def __init__(self, number: i64, reason: str, what: bytes, user: bytes, now_ms: i64) -> None:
        self.number = number
        self.reason = reason
        self.what = what[:NAME_MAX]  # unit, queue, or AUTH
        self.user = user[:NAME_MAX]
        self.count: i64 = 1
        self.first_ms = now_ms
        self.last_ms = now_ms
        self.client = b""  # who it was last


@final
class Denials:
    """The latest entries, newest first, and counters since the start."""

    def __init__(self) -> None:
        self.entries: deque[Denial] = deque()
        self.next_number: i64 = 0
        self.logins: i64 = 0  # failed
        self.late: i64 = 0  # log-ins that had to wait
        self.commands: i64 = 0
        self.queues: i64 = 0

    def note(
        self, reason: str, what: bytes, user: bytes, client: bytes, now_ms: i64, most: i64
    ) -> None:
        """[N7] Add a denial; at most `most` entries are kept (N7.1)."""
        if reason == AUTH:
            self.logins += 1
        elif reason == COMMAND:
            self.commands += 1
        else:
            self.queues += 1
        entry = self.find(reason, what, user, now_ms)
        if entry is None:
            entry = Denial(self.next_number, reason, what, user, now_ms)
            self.next_number += 1
        else:
            entry.count += 1
            entry.last_ms = now_ms
            self.entries.remove(entry)
        entry.client = client
        self.entries.appendleft(entry)
        while len(self.entries) > most:
            self.entries.pop()

    def find(self, reason: str, what: bytes, user: bytes, now_ms: i64) -> Denial | None:
        """The same denial, if it is recent: among the newest ones."""
        for looked, entry in enumerate(self.entries):
            if looked == NEWEST:
                return None
            is_same = entry.reason == reason and entry.user == user[:NAME_MAX]
            if is_same and entry.what == what[:NAME_MAX] and now_ms < entry.last_ms + SAME_MS:
                return entry
        return None

    def clear(self) -> None:
        """Remove the entries; the counters stay."""
        self.entries.clear()
