"""Tenants: what each may have at this node, and what it was refused (SPEC N10, N11)."""

from typing import Final, final

from mypy_extensions import i64

CONNECTIONS: Final = b"connections"
ADDS: Final = b"adds"
JOBS: Final = b"jobs"
BYTES: Final = b"bytes"
QUOTAS: Final = [CONNECTIONS, ADDS, JOBS, BYTES]
QUOTA_MAX: Final = 1 << 40
UNIT: Final = 1_000  # parts of an add in the bucket


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
