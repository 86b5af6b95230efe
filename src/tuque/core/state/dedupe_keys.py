"""Keys under which a job was added, so that the same is not added twice (SPEC Z4, Z5).

A table with an end for each key, and what waits: keys whose job still waits for copies, and
producers that came with such a key meanwhile. This module keeps; core/jobs/idempotent_add.py
decides.
"""

from heapq import heapify, heappop, heappush
from typing import Final, final

from mypy_extensions import i64

FAR: Final = (1 << 62) - 1  # the most that compiled code keeps without an object
KEY_MAX: Final = 255  # bytes (Z4.1)
KEY_BYTES: Final = 310  # what one costs beside its text, measured, its job gone or not (M1)


def full_key(queue: bytes, key: bytes) -> bytes:
    """Queue and key as one string: the last byte says where the key begins."""
    return queue + key + bytes([len(key)])


@final
class Kept:
    """The job that came with a key, and until when the key is kept."""

    def __init__(self, id: bytes, until_ms: i64) -> None:
        self.id = id
        self.until_ms = until_ms


@final
class Follower:
    """A producer whose key is that of a job which still waits for copies (Z4.4)."""

    def __init__(self, client: i64, serial: i64, until_ms: i64) -> None:
        self.client = client
        self.serial = serial
        self.until_ms = until_ms  # 0: no limit


@final
class Keys:
    """All keys of a node, by `full_key`."""

    def __init__(self) -> None:
        self.kept: dict[bytes, Kept] = {}
        self.ends: list[tuple[int, bytes]] = []  # heap of (instant, key)
        self.text_bytes: i64 = 0
        self.pending: dict[bytes, bytes] = {}  # by job id: keys the journal does not have yet
        self.followers: dict[bytes, list[Follower]] = {}  # by job id
        self.follower_ends: list[tuple[int, bytes]] = []  # heap of (instant, job id)
        self.hits: i64 = 0  # since the start

    def find(self, full: bytes, now_ms: i64) -> Kept | None:
        """The job that was added with the key, while the key is kept."""
        found = self.kept.get(full)
        return found if found is not None and found.until_ms > now_ms else None

    def put(self, full: bytes, id: bytes, until_ms: i64) -> None:
        """Keep the key until then; one that is over is replaced."""
        if full not in self.kept:
            self.text_bytes += len(full)
        self.kept[full] = Kept(id, until_ms)
        heappush(self.ends, (until_ms, full))
        if len(self.ends) > 1000 + 2 * len(self.kept):
            self.ends = [(int(kept.until_ms), name) for name, kept in self.kept.items()]
            heapify(self.ends)

    def drop(self, full: bytes) -> None:
        """The key is free again; nothing when it is not kept."""
        if full in self.kept:
            del self.kept[full]
            self.text_bytes -= len(full)

    def tick(self, now_ms: i64, most: i64) -> None:
        """Drop keys that are over, up to `most` of them."""
        left = most
        while len(self.ends) > 0 and self.ends[0][0] <= now_ms and left > 0:
            until_ms, full = heappop(self.ends)
            found = self.kept.get(full)
            if found is not None and found.until_ms == until_ms:
                self.drop(full)
            left -= 1
        if len(self.kept) == 0 and len(self.ends) == 0 and left < most:
            self.kept = {}  # gives the table back
            self.ends = []

    def next_ms(self) -> i64:
        """When `tick` or a follower has something to do; FAR when never."""
        at_ms: i64 = FAR
        if len(self.ends) > 0:
            at_ms = self.ends[0][0]
        if len(self.follower_ends) > 0 and self.follower_ends[0][0] < at_ms:
            at_ms = self.follower_ends[0][0]
        return at_ms

    def bytes_used(self) -> i64:
        """What they cost the process (M1)."""
        return len(self.kept) * KEY_BYTES + self.text_bytes
