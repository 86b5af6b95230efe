"""A node by hand with a journal on a disk in memory, and restarts of every kind."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from node_by_hand import NODE_ID, START_MS, Box

from tuque.core.records.jobs import Records
from tuque.server.journal.committer import Committer
from tuque.store.disk import MemoryDisk
from tuque.store.frames import Boot, read_manifest

PATH = "/data/journal"
BOOT_ID = b"boot of the test"


class Kept:
    """A node with a journal in a memory disk, written at the end of each turn."""

    def __init__(self, policy: str = "always", disk: MemoryDisk | None = None) -> None:
        self.disk = MemoryDisk() if disk is None else disk
        self.policy = policy
        self.booted_ms = START_MS
        self.begin(START_MS)

    def begin(self, now_ms: int, may_cut: bool = True) -> None:
        """Start the process at that wall time and load."""
        self.box = Box()
        self.box.n.now_ms = now_ms
        self.committer = Committer(self.disk, PATH, NODE_ID, now_ms, self.policy, threaded=False)
        self.committer.boot = Boot(now_ms, BOOT_ID, now_ms - self.booted_ms)
        self.committer.journal.boot = self.committer.boot
        self.committer.lock()
        self.box.n.records = None
        loader = self.committer.loader(may_cut)
        while not loader.step(self.box.n, 100):
            pass
        self.notes = loader.notes
        self.box.n.records = Records()
        self.committer.start(now_ms)
        self.box.run = Turned(self)

    def turn(self) -> int:
        """The end of a turn; returns the number of its last record."""
        records = self.box.n.records
        assert records is not None
        seq = self.committer.commit(records, self.box.n.now_ms)
        self.committer.on_turn(self.box.n, self.box.n.now_ms, 5)
        return seq

    def restart(self, how: str = "stop", off_ms: int = 0, jump_ms: int = 0) -> None:
        """Stop, crash or cut the power; then start again after that time."""
        now_ms = self.box.n.now_ms
        if how == "stop":
            assert self.committer.close(now_ms) == ""
        else:
            self.disk.power_cut() if how == "power" else self.disk.process_crash()
        self.close()
        self.booted_ms += jump_ms
        self.begin(now_ms + off_ms + jump_ms)

    def close(self) -> None:
        """Free the sockets."""
        self.box.sessions[0].close()


class Turned:
    """The first session of a box; every command ends its turn."""

    def __init__(self, kept: Kept) -> None:
        self.kept = kept
        self.session = kept.box.run

    def __call__(self, *words: str | bytes | int) -> object:
        reply = self.session(*words)
        self.kept.turn()
        return reply


@pytest.fixture
def kept() -> Iterator[Kept]:
    made = Kept()
    yield made
    made.close()


def segment(kept: Kept) -> str:
    """The path of the segment that is written."""
    manifest = read_manifest(kept.disk, PATH)
    assert manifest is not None
    return f"{PATH}/{manifest.segments[-1]}"
