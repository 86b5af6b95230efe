"""Replies wait for the journal as long as they must, and no longer (SPEC C8.3, J4)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pump_box import NODE_ID, START_MS, PumpBox
from raw_resp import Wire, encode, wait_for

from tuque.core.records import Records
from tuque.server.committer import Committer
from tuque.store.disk import Disk


class StuckDisk(Disk):
    """A real directory whose syncs of data take as long as the test wants."""

    def __init__(self) -> None:
        self.may_sync = threading.Event()
        self.may_sync.set()
        self.asked = threading.Semaphore(0)

    def fdatasync(self, handle: int) -> None:
        self.asked.release()
        assert self.may_sync.wait(20)
        super().fdatasync(handle)


class Kept:
    """A pump with a journal in a thread, on a disk that can be made to stall."""

    def __init__(self, here: Path, policy: str) -> None:
        self.disk = StuckDisk()
        self.box = PumpBox(here)
        self.committer = Committer(self.disk, str(here / "journal"), NODE_ID, START_MS, policy)
        self.committer.lock()
        loader = self.committer.loader()
        while not loader.step(self.box.n, 100):
            pass
        self.committer.start(START_MS)
        self.box.n.records = Records()
        self.box.server.committer = self.committer
        self.box.pump.watch_wake(self.committer.wake_fd)

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

        return wait_for(hear)

    def close(self) -> None:
        self.disk.may_sync.set()
        self.committer.close(START_MS)
        self.box.close()


@pytest.fixture
def make_kept(tmp_path: Path) -> Iterator[Callable[[str], Kept]]:
    made: list[Kept] = []

    def make(policy: str) -> Kept:
        made.append(Kept(tmp_path, policy))
        return made[-1]

    yield make
    for one in made:
        one.close()


ADD = encode("ADDJOB", "q", "b", 0)


def test_a_reply_held_beside_a_custody_under_everysec_goes_with_it(
    make_kept: Callable[[str], Kept],
) -> None:
    kept = make_kept("everysec")
    box = kept.box
    worker, producer = box.connect(), box.connect()
    once = encode("ADDJOB", "once", "b", 0, "RETRY", 0, "REPLICATE", 1)
    assert box.say(worker, once).startswith(b"+D-")
    kept.stall()
    assert box.say(worker, encode("GETJOB", "FROM", "once")) == b""  # J4.4
    wait_for(kept.asked)
    assert box.say(producer, ADD) == b""  # the turn comes while the sync runs
    kept.disk.may_sync.set()
    assert kept.turns_until_answered(worker).startswith(b"*1")
    assert kept.turns_until_answered(producer).startswith(b"+D-")


def test_replies_held_under_always_are_let_go_when_the_policy_is_weakened(
    make_kept: Callable[[str], Kept],
) -> None:
    kept = make_kept("always")
    box = kept.box
    producer, admin = box.connect(), box.connect()
    kept.stall()
    assert box.say(producer, ADD) == b""
    wait_for(kept.asked)
    assert box.say(producer, ADD) == b""
    heard = box.say(admin, encode("CONFIG", "SET", "appendfsync", "no"))
    assert heard == b"+OK\r\n"
    assert box.hear(producer).count(b"+D-") == 2
