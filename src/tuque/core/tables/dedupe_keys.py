"""Keys of added jobs, so that the same job is not added twice (SPEC Z4, Z5).

A table of keys with their expiry, keys whose job still waits for copies, and producers that
came with such a key. Plain data; core/queues/dedupe.py decides.
"""

from typing import Final, final

from mypy_extensions import i64

from tuque.core.model.rows import Instants
from tuque.core.model.stats import tenant_of

FAR: Final = (1 << 62) - 1  # largest int that mypyc stores unboxed
KEY_MAX: Final = 255  # bytes (Z4.1)
KEY_BYTES: Final = 310  # cost besides its text, measured, with its job or without (M1)


def full_key(queue: bytes, key: bytes) -> bytes:
    """Queue and key as one string; the last byte is the length of the key."""
    return queue + key + bytes([len(key)])


def queue_of(full: bytes) -> bytes:
    """The queue in what `full_key` has joined."""
    size: i64 = len(full)
    return full[: size - 1 - i64(full[size - 1])]


@final
class Kept:
    """The job added with a key, and the key's expiry."""

    def __init__(self, id: bytes, until_ms: i64) -> None:
        self.id = id
        self.until_ms = until_ms


@final
class Follower:
    """A producer whose key belongs to a job that still waits for copies (Z4.4)."""

    def __init__(self, client: i64, serial: i64, until_ms: i64) -> None:
        self.client = client
        self.serial = serial
        self.until_ms = until_ms  # 0: no limit


@final
class Keys:
    """All keys of a node, by `full_key`."""

    def __init__(self) -> None:
        self.kept: dict[bytes, Kept] = {}
        self.ends = Instants()
        self.text_bytes: i64 = 0
        # Of queues that are tubes, those that go to other nodes with the tasks (T18.8).
        self.of_tubes: dict[bytes, dict[bytes, None]] = {}
        self.by_tenant: dict[bytes, int] = {}  # how many each has
        self.text_of: dict[bytes, int] = {}  # bytes of their text, by tenant
        self.pending: dict[bytes, bytes] = {}  # by job id: keys of jobs that wait for copies
        # Jobs that waited for copies when the node stopped, and the nodes that have one by now.
        self.unsure: dict[bytes, int] = {}
        self.asking: dict[bytes, None] = {}  # those of them for which somebody waits
        self.ask_ms: i64 = FAR
        self.followers: dict[bytes, list[Follower]] = {}  # by job id
        self.follower_ends: list[tuple[int, bytes]] = []  # heap of (instant, job id)
        self.hits: i64 = 0  # since the start

    def find(self, full: bytes, now_ms: i64) -> Kept | None:
        """The job added with the key, while the key is kept."""
        found = self.kept.get(full)
        return found if found is not None and found.until_ms > now_ms else None

    def is_of(self, full: bytes, id: bytes) -> bool:
        """Whether the job has the key."""
        found = self.kept.get(full)
        return found is not None and found.id == id

    def row(self, full: bytes) -> list[tuple[bytes, bytes, int]]:
        """The key, the id of its job and its end; empty: it is free."""
        found = self.kept.get(full)
        return [] if found is None else [(full, found.id, int(found.until_ms))]

    def in_tube(self, name: bytes) -> list[tuple[bytes, bytes, int]]:
        """The keys of a tube, as `row` has them."""
        rows: list[tuple[bytes, bytes, int]] = []
        for full in self.of_tubes.get(name, {}):
            rows += self.row(full)
        return rows

    def index(self) -> None:
        """Find the keys of tubes: they came before the tubes did."""
        for full in self.kept:
            named = self.of_tubes.get(queue_of(full))
            if named is not None:
                named[full] = None

    def put(self, full: bytes, id: bytes, until_ms: i64) -> None:
        """Keep the key until `until_ms`; replaces an expired one."""
        old = self.kept.get(full)
        if old is None:
            self.text_bytes += len(full)
            self.count(full, 1)
        else:
            self.ends.unset(full, old.until_ms)
        self.ends.set(full, until_ms)
        self.kept[full] = Kept(id, until_ms)
        if len(self.of_tubes) > 0:
            named = self.of_tubes.get(queue_of(full))
            if named is not None:
                named[full] = None

    def drop(self, full: bytes) -> None:
        """Free the key; no-op if it is not kept."""
        kept = self.kept.pop(full, None)
        if kept is not None:
            self.ends.unset(full, kept.until_ms)
            if kept.id not in self.asking:
                self.unsure.pop(kept.id, None)
            self.text_bytes -= len(full)
            self.count(full, -1)
            if len(self.of_tubes) > 0:
                named = self.of_tubes.get(queue_of(full))
                if named is not None:
                    named.pop(full, None)

    def count(self, full: bytes, by: i64) -> None:
        """[N11] Count a key of a tenant's queue that came or went (N11.8)."""
        tenant = tenant_of(queue_of(full))
        if len(tenant) > 0:
            left = self.by_tenant.get(tenant, 0) + int(by)
            if left > 0:
                self.by_tenant[tenant] = left
                self.text_of[tenant] = self.text_of.get(tenant, 0) + len(full) * int(by)
            else:
                self.by_tenant.pop(tenant, None)
                self.text_of.pop(tenant, None)

    def tick(self, now_ms: i64, most: i64) -> None:
        """Drop up to `most` expired keys."""
        left = most
        while left > 0 and self.ends.first_ms() <= now_ms:
            self.drop(self.ends.first_key())
            left -= 1
        if len(self.kept) == 0 and left < most:
            self.kept = {}  # frees the table

    def next_ms(self) -> i64:
        """The instant at which `tick` or a follower next has work; FAR: never."""
        at_ms = self.ends.first_ms()
        if len(self.follower_ends) > 0 and self.follower_ends[0][0] < at_ms:
            at_ms = self.follower_ends[0][0]
        return at_ms if at_ms < self.ask_ms else self.ask_ms

    def bytes_used(self) -> i64:
        """Memory used, in bytes (M1)."""
        return len(self.kept) * KEY_BYTES + self.text_bytes
