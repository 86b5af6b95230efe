"""The disk of one machine.

The files are store/disk.py's disk in memory; added are faults that come by chance: a power
cut that leaves a random prefix, or holes, of what was not synced.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final

from tuque.store.disk import MemoryDisk

PATH: Final = "/data/journal"
WINDOW_US: Final = 1_200_000  # everysec: what may be lost, beside the longest fsync
SECTOR: Final = 64  # small, so that holes happen in short files


class SimDisk(MemoryDisk):
    """The disk in memory, with random faults."""

    def __init__(self, chance: Random) -> None:
        super().__init__()
        self.chance = chance
        self.before_step: Callable[[], None] | None = None
        self.on_fsync: Callable[[], None] | None = None  # somebody waits for the disk
        self.covered = -1  # bytes that the fsync covers which ends now; -1: all
        self.torn_bytes = 0
        self.lost_bytes = 0
        self.has_lied = False  # a power cut removed data reported clean after a failed fsync

    def step(self) -> None:
        """Every change of the disk is an effect: the process may end before it."""
        if self.before_step is not None:
            self.before_step()
        super().step()

    def fdatasync(self, handle: int) -> None:
        """Make what was written durable, which takes its time."""
        if self.on_fsync is not None:
            self.on_fsync()
        file = self.handles[handle]
        before = file.durable
        super().fdatasync(handle)
        if 0 <= self.covered < len(file.data) and not file.is_lost:
            file.durable = max(before, bytes(file.data[: self.covered]), key=len)

    def written(self, handle: int) -> int:
        """Bytes of the file so far."""
        return len(self.handles[handle].data) if handle in self.handles else -1

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

    def empty(self) -> SimDisk:
        """Another disk of this kind, new."""
        return type(self)(self.chance)

    def copy(self) -> SimDisk:
        """A copy of the disk, as for a backup or a cloned machine."""
        other = self.empty()
        for name, file in self.names.items():
            twin = type(file)()
            twin.data = bytearray(file.data)
            twin.durable = bytes(file.data)
            other.names[name] = twin
            other.durable_names[name] = twin
        other.dirs = dict(self.dirs)
        other.salts = self.salts
        return other
