"""Tombstones: ids of acked jobs, kept so that a late copy cannot come to life again (SPEC A8)."""

from typing import final

from mypy_extensions import i64


@final
class Tombs:
    """The tombstones of one node."""

    def __init__(self) -> None:
        self.ids: dict[bytes, int] = {}  # id -> expiry, ms

    def has(self, id: bytes) -> bool:
        """Whether the id has a tombstone (A8.2)."""
        return id in self.ids

    def add(self, id: bytes, expire_ms: i64, holders: i64, round: i64) -> None:
        """Leave one; it may go when `holders` answered a heartbeat after `round`, or at its end."""
        self.ids[id] = expire_ms
