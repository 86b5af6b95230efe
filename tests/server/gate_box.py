"""A pump with a journal in a thread, on a disk whose syncs take as long as a test wants."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path

from pump_box import NODE_ID, START_MS, PumpBox
from raw_resp import Wire
from tuque.core.records.jobs import Records
from tuque.server.journal.committer import Committer
from tuque.store.disk import Disk
from until import until


class StuckDisk(Disk):
    """A real directory whose syncs of data take as long as the test wants, and that may be full."""

    def __init__(self) -> None:
        self.may_sync = threading.Event()
        self.may_sync.set()
        self.asked = threading.Semaphore(0)
        self.is_full = False

    def write(self, handle: int, data: bytes | memoryview) -> int:
        if self.is_full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return super().write(handle, data)

    def fdatasync(self, handle: int) -> None:
        self.asked.release()
        assert self.may_sync.wait(60)
        super().fdatasync(handle)


class Kept:
    """A pump with a journal in a thread, on a disk that can be made to stall."""

    def __init__(
        self, here: Path, policy: str, journal: Path | None = None, node_id: bytes = NODE_ID
    ) -> None:
        here.mkdir(exist_ok=True)
        self.disk = StuckDisk()
        self.box = PumpBox(here, node_id)
        path = str(journal or here / "journal")
        self.committer = Committer(self.disk, path, node_id, START_MS, policy)
        self.committer.lock()
        loader = self.committer.loader()
        while not loader.step(self.box.n, 100):
            pass
        self.committer.start(START_MS)
        self.box.n.records = Records(self.box.n.node_ids)
        self.box.server.committer = self.committer
        self.box.pump.gate.watch(self.committer.wake_fd)

    def stall(self) -> None:
        """From now on a sync does not end."""
        while self.asked():
            pass
        self.disk.may_sync.clear()

    def asked(self) -> bool:
        """Whether a sync has begun since the last look."""
        return self.disk.asked.acquire(blocking=False)

    def turns_until_answered(self, wire: Wire) -> bytes:
        """Let the pump sleep and wake as it does; what the client hears."""
        heard = b""

        def hear() -> bytes:
            nonlocal heard
            self.box.pump.turn(10)
            heard += self.box.hear(wire)
            return heard

        return until(hear)

    def close(self) -> None:
        self.disk.may_sync.set()
        self.committer.close(START_MS)
        self.box.close()
