"""The disk of one machine, and the twin of the journal's thread on it.

The files are store/files/disk.py's disk in memory, plus random faults: a power cut leaves a
prefix of unsynced data, or holes in it. The journal is the real store/writer.py; only its
thread is replaced: an fsync takes simulated time, frames that arrive meanwhile wait, and what was
written before it is durable when it ends.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Final

from tuque.core.node.node import Node
from tuque.core.outbox.records import Records
from tuque.sim.engine.world import World
from tuque.store.files.disk import MemoryDisk
from tuque.store.journal import Boot
from tuque.store.replay import Loader
from tuque.store.rewrite import Snapshot
from tuque.store.writer import Journal

PATH: Final = "/data/journal"
STALL_US: Final = 1_000_000  # the longest fsync, unless the disk is slow
WINDOW_US: Final = 1_200_000  # everysec: what may be lost, besides the longest fsync
SLICE_JOBS: Final = 20
ALWAYS: Final = "always"
EVERYSEC: Final = "everysec"
SECTOR: Final = 64  # small, so that holes happen in short files


class SimDisk(MemoryDisk):
    """The disk in memory, with random faults."""

    def __init__(self, chance: Random) -> None:
        super().__init__()
        self.chance = chance
        self.before_step: Callable[[], None] | None = None
        self.torn_bytes = 0
        self.lost_bytes = 0
        self.has_lied = False  # a power cut removed data reported clean after a failed fsync

    def step(self) -> None:
        """Every change of the disk is an effect: the process may end before it."""
        if self.before_step is not None:
            self.before_step()
        super().step()

    def lose_power(self, with_holes: bool) -> None:
        """Keep what was synced; of the rest a random prefix, perhaps with holes."""
        self.names = dict(self.durable_names)
        self.handles = {}
        self.locks = {}
        for file in self.names.values():
            cached = bytes(file.data)
            sure = len(file.durable)
            self.has_lied |= file.is_lost and len(cached) > sure
            if file.is_lost or not cached.startswith(file.durable):
                file.data = bytearray(file.durable)
                continue
            kept = self.chance.randrange(sure, len(cached) + 1)
            self.lost_bytes += len(cached) - kept
            self.torn_bytes += kept - sure
            data = bytearray(cached[:kept])
            if with_holes and kept - sure > SECTOR:
                at = self.chance.randrange(sure, kept - SECTOR)
                data[at : at + SECTOR] = bytes(SECTOR)
            file.data = data
            file.durable = bytes(data)

    def copy(self) -> SimDisk:
        """A copy of the disk, as for a backup or a cloned machine."""
        other = SimDisk(self.chance)
        for name, file in self.names.items():
            twin = type(file)()
            twin.data = bytearray(file.data)
            twin.durable = bytes(file.data)
            other.names[name] = twin
            other.durable_names[name] = twin
        other.dirs = dict(self.dirs)
        other.salts = self.salts
        return other


class SimJournal:
    """The twin of server/journal/committer.py, with simulated time."""

    def __init__(
        self, world: World, disk: SimDisk, node_id: bytes, boot: Boot, policy: str, sync_us: int
    ) -> None:
        self.world = world
        self.disk = disk
        self.policy = policy
        self.sync_us = sync_us
        self.boot = boot
        self.journal = Journal(disk, PATH, node_id, boot)
        self.inbox: deque[tuple[bytes, int, int, bool]] = deque()
        self.seq = 0
        self.durable_seq = 0
        self.custody_seq = 0
        self.wish = 0  # the core's last request for durability
        self.wish_seq = 0
        self.is_syncing = False
        self.is_urgent = False
        self.is_gone = False  # its process has ended
        self.synced_us = 0
        self.retry_us = 0
        self.chance = world.stream(f"sync {node_id[:4].decode()}")
        self.on_change: Callable[[], None] | None = None
        self.guard: Callable[[Callable[[], None]], None] = lambda step: step()
        self.snapshot: Snapshot | None = None
        self.loader: Loader | None = None  # while loading
        self.stall_us = 0  # the longest fsync

    @property
    def error(self) -> str:
        """Why writes must be refused now."""
        return self.journal.error

    def begin_load(self) -> None:
        """Open the journal. Raises JournalError."""
        self.disk.makedirs(PATH)
        self.loader = Loader(self.disk, PATH, self.boot, True)

    def load_some(self, n: Node, records: int) -> bool:
        """Load some records into the node; True when done. Raises JournalError."""
        loader = self.loader
        assert loader is not None
        if not loader.step(n, records):
            return False
        self.journal.start(loader.manifest, loader.seq(), n.now_ms)
        self.seq = self.durable_seq = int(loader.seq())
        self.loader = None
        return True

    # The pump's side

    def commit(self, records: Records, now_ms: int) -> None:
        """Hand over a turn's records."""
        count = int(records.count)
        self.seq += count
        urgent = records.has_custody and self.policy != "no"
        if urgent:
            self.custody_seq = self.seq
        self.inbox.append((records.take(), count, now_ms, urgent))
        self.work()

    def must_hold(self, seq: int) -> bool:
        """Whether output that depends on the record must wait."""
        if seq <= self.durable_seq:
            return False
        return self.policy == ALWAYS or self.custody_seq > self.durable_seq

    def grant(self, records: Records) -> None:
        """Confirm the core's request for durability when it is met."""
        if records.wish != self.wish:
            self.wish = int(records.wish)
            self.wish_seq = self.seq
        if records.granted != records.wish and not self.must_hold(self.wish_seq):
            records.granted = self.wish

    # The thread's side

    def work(self) -> None:
        """Write waiting frames, unless an fsync runs; then sync by policy."""
        if self.is_syncing or self.is_gone:
            return
        journal = self.journal
        while self.inbox:
            payload, count, now_ms, urgent = self.inbox[0]
            if journal.is_broken and not journal.is_rewriting:
                self.inbox.popleft()  # nobody was promised it; a rewrite follows
                continue
            if not journal.append(payload, count, now_ms):
                if not journal.is_broken:
                    self._later(1_000_000)
                    break
                continue
            self.is_urgent = self.is_urgent or urgent
            self.inbox.popleft()
        if self.journal.is_broken and not self.journal.is_rewriting:
            self._later(1_000_000)
        if journal.synced_seq != journal.seq and not journal.is_broken:
            if self.policy == ALWAYS or self.is_urgent:
                self._begin_sync()
            elif self.policy == EVERYSEC:
                self._begin_sync_at(self.synced_us + 1_000_000)

    def _begin_sync(self) -> None:
        """Start an fsync that ends later."""
        self.is_syncing = True
        took_us = int(self.sync_us * (0.5 + self.chance.random())) + 1
        if self.chance.random() < 0.02:
            took_us = max(took_us, min(took_us * 20, STALL_US))
        self.stall_us = max(self.stall_us, took_us)
        self.world.after(took_us, partial(self.guard, self._end_sync))

    def _begin_sync_at(self, at_us: int) -> None:
        """Start the fsync of each second when due."""
        self.is_syncing = at_us <= self.world.now_us
        if self.is_syncing:
            self._begin_sync()
        elif self.retry_us <= self.world.now_us:
            self._later(at_us - self.world.now_us)

    def _later(self, wait_us: int) -> None:
        """Check again later."""
        if self.retry_us <= self.world.now_us:
            self.retry_us = self.world.now_us + wait_us
            self.world.at(self.retry_us, partial(self.guard, self._again))

    def _again(self) -> None:
        self.work()
        if self.on_change is not None and not self.is_gone:
            self.on_change()

    def _end_sync(self) -> None:
        """The fsync ends: what was written before it is durable."""
        self.is_syncing = False
        if self.is_gone:
            return
        self.journal.sync()
        self.synced_us = self.world.now_us
        self.durable_seq = int(self.journal.synced_seq)
        self.is_urgent = False
        self.work()
        if self.on_change is not None:
            self.on_change()

    # Rewriting

    def on_turn(self, n: Node, wants_rewrite: bool) -> None:
        """Once per turn: start a rewrite that is due or requested, or continue it."""
        if self.is_syncing:
            return
        if self.snapshot is None:
            if wants_rewrite or self.journal.is_broken:
                self.work()
                if not self.is_syncing and not self.inbox:
                    if self.journal.begin_rewrite(self.seq, n.now_ms):
                        self.snapshot = Snapshot(n)
            return
        if not self.journal.is_rewriting:
            self.snapshot = None
            return
        payload = self.snapshot.slice(n, SLICE_JOBS)
        if payload:
            s = self.snapshot
            if not self.journal.add_to_snapshot(payload, s.record_count, s.job_count, n.now_ms):
                self.snapshot = None
                return
        if self.snapshot.is_done():
            self.snapshot = None
            if self.journal.finish_rewrite(n.now_ms):
                self.durable_seq = int(self.journal.synced_seq)
                if self.on_change is not None:
                    self.on_change()
