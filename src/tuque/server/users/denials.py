"""ACL LOG: what was denied of late, the same in one entry (SPEC N7)."""

from collections import deque
from typing import Final, final

from mypy_extensions import i64

SAME_MS: Final = 60_000  # the same again within it counts in one entry
NAME_MAX: Final = 256  # bytes kept of what was denied

NEWEST: Final = 32  # entries that are compared

AUTH: Final = "auth"
COMMAND: Final = "command"
QUEUE: Final = "key"  # as Redis clients know it


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
