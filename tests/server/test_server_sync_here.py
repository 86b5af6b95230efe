"""J4.5 to J4.7: under `always` the pump syncs the journal itself while the disk is quick."""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from gate_box import Kept, StuckDisk

from pump_box import START_MS
from raw_resp import Wire, encode
from tuque.server.loop.gate import Gather
from tuque.store.writer import (
    LEAST_S,
    LOOK,
    MOST_S,
    QUICK_S,
    SLOW_S,
    Pace,
)
from until import until

ADD = encode("ADDJOB", "q", "b", 0)
GET = encode("GETJOB", "NOHANG", "FROM", "q")
PING = encode("PING")


class WatchedDisk(StuckDisk):
    """It knows which threads have synced data, can fail, and can be slow once."""

    def __init__(self) -> None:
        super().__init__()
        self.synced_by: list[int] = []
        self.is_bad = False
        self.slow_s = 0.0

    def fdatasync(self, handle: int) -> None:
        self.synced_by.append(threading.get_ident())
        if self.is_bad:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        time.sleep(self.slow_s)
        self.slow_s = 0.0
        super().fdatasync(handle)


class Quick:
    """A pump with a journal on a disk that counts as quick."""

    def __init__(self, here: Path) -> None:
        self.kept = Kept(here, "always")
        self.box = self.kept.box
        self.disk = WatchedDisk()
        self.kept.disk = self.disk
        self.kept.committer.journal.disk = self.disk
        self.thread = self.kept.committer.thread
        self.be_quick()

    def be_quick(self) -> None:
        """All syncs so far took no time."""
        self.thread.pace = Pace()
        self.be_quick_now()

    def be_quick_now(self) -> None:
        """The last syncs took no time."""
        for _ in range(LOOK):
            self.thread.pace.note(0.0, time.monotonic(), False)

    def mine(self) -> int:
        """Syncs by this thread, which is the pump's."""
        return self.disk.synced_by.count(threading.get_ident())

    def turn(self, wire: Wire, request: bytes) -> bytes:
        """One turn that reads the request; what the client has heard after it."""
        wire.sock.sendall(request)
        self.box.pump.turn(0)
        wire.sock.setblocking(False)
        try:
            return wire.sock.recv(1 << 16)
        except BlockingIOError:
            return b""
        finally:
            wire.sock.setblocking(True)

    def is_at_rest(self) -> bool:
        """Whether the thread has nothing to do, and the pump has let all replies out."""
        self.box.pump.turn(0)
        return self.thread.is_idle() and self.is_synced() and not self.box.pump.gate.has_held()

    def is_synced(self) -> bool:
        """Whether all that was recorded is on the disk."""
        return self.kept.committer.durable_seq == self.kept.committer.seq


@pytest.fixture
def quick(tmp_path: Path) -> Iterator[Quick]:
    made = Quick(tmp_path)
    until(made.is_at_rest)
    yield made
    made.disk.is_bad = False
    made.kept.close()


def test_a_quick_disk_is_synced_by_the_pump(quick: Quick) -> None:
    """J4.5 Under `always` the pump itself writes and syncs the records that replies wait for if the
    thread is idle, the journal works and is not being rewritten, and the disk is fast."""
    producer = quick.box.connect()
    committer = quick.kept.committer
    until(lambda: quick.is_at_rest() and quick.turn(producer, ADD) and quick.mine() > 0)
    assert committer.durable_seq == committer.seq == quick.box.pump.gate.binding_seq
    assert committer.info()["journal_fsyncs_in_turn"] == quick.mine()


def test_without_a_look_at_the_disk_the_thread_syncs(tmp_path: Path) -> None:
    """Otherwise the thread does it, and the pump goes on meanwhile."""
    kept = Kept(tmp_path, "always")
    kept.stall()
    wire, other = kept.box.connect(), kept.box.connect()
    assert kept.box.say(wire, ADD) == b""
    until(kept.asked)
    before = kept.box.server.figures.commands
    kept.box.say(other, PING)
    assert kept.box.server.figures.commands == before + 1
    kept.close()


def test_a_slow_sync_sends_the_next_ones_to_the_thread(quick: Quick) -> None:
    """So a disk that becomes slow stops the pump once"""
    producer, other = quick.box.connect(), quick.box.connect()
    before = quick.mine()

    def slow_one() -> bool:
        quick.be_quick()
        quick.disk.slow_s = 2 * SLOW_S
        assert quick.turn(producer, ADD) is not None
        return quick.mine() > before

    until(lambda: quick.is_at_rest() and slow_one())
    until(quick.is_at_rest)
    mine = quick.mine()
    quick.be_quick_now()  # on average; one was slow all the same
    quick.kept.stall()
    assert quick.turn(producer, ADD) == b""
    until(quick.kept.asked)
    before = quick.box.server.figures.commands
    quick.turn(other, PING)  # the pump does not wait for the disk
    assert quick.box.server.figures.commands == before + 1
    quick.disk.may_sync.set()
    assert quick.kept.turns_until_answered(producer).startswith(b"+D-")
    assert quick.mine() == mine


def test_what_follows_a_frame_of_the_thread_does_not_overtake_it(quick: Quick) -> None:
    """if the thread has nothing to do"""
    first, second = quick.box.connect(), quick.box.connect()
    quick.thread.pace = Pace()
    quick.kept.stall()
    assert quick.turn(first, ADD) == b""
    until(quick.kept.asked)
    quick.be_quick()
    mine = quick.mine()
    assert quick.turn(second, ADD) == b""
    assert quick.mine() == mine
    quick.disk.may_sync.set()
    assert quick.kept.turns_until_answered(first).startswith(b"+D-")
    assert quick.kept.turns_until_answered(second).startswith(b"+D-")


def test_a_failed_sync_of_the_pump_acknowledges_nothing(
    quick: Quick, caplog: pytest.LogCaptureFixture
) -> None:
    """J6.1 If a write or sync fails, writes and PING get `-MISCONF Errors writing to the AOF file:
    <reason>` until the journal works again. The failure is an error in the log."""
    caplog.set_level("INFO", "tuque")
    box = quick.box
    producer, other = box.connect(), box.connect()
    quick.disk.is_bad = True
    heard = quick.turn(producer, ADD)
    while not box.server.journal_error:
        box.pump.turn(10)
    heard += box.hear(producer)
    assert b"+D-" not in heard
    assert not box.is_open(producer)
    assert box.say(other, PING).startswith(b"-MISCONF Errors writing to the AOF file: Input/output")
    quick.disk.is_bad = False

    def is_well() -> bool:
        box.pump.turn(10)
        return not box.server.journal_error

    until(is_well)
    until(lambda: b"+PONG" in box.say(other, PING))
    assert box.say(other, encode("QLEN", "q")).endswith(b":1\r\n")  # rewritten from memory (J6.2)
    told = {one.getMessage(): one.levelname for one in caplog.records}
    failed = {level for text, level in told.items() if text.startswith("journal: Input/output")}
    assert (failed, told["journal: working again"]) == ({"ERROR"}, "INFO"), told


def test_a_failed_write_of_the_pump_is_tried_again_by_the_thread(quick: Quick) -> None:
    box = quick.box
    producer = box.connect()
    quick.disk.is_full = True
    mine = quick.mine()
    assert quick.turn(producer, ADD) == b""
    assert quick.mine() == mine
    quick.disk.is_full = False

    def is_well() -> bool:
        box.pump.turn(10)
        return not box.server.journal_error and quick.is_synced()

    until(is_well)
    assert box.say(box.connect(), encode("QLEN", "q")) == b":1\r\n"


def test_what_nobody_waits_for_is_synced_with_the_next_or_by_the_thread(quick: Quick) -> None:
    """J4.6 On a fast disk the pump also writes records that no reply waits for (J4.3). The next
    sync covers them; if none follows within 10 ms, the pump asks the thread for one."""
    committer = quick.kept.committer
    wire = quick.box.connect()
    assert quick.box.say(wire, ADD * 2) or quick.kept.turns_until_answered(wire)
    until(quick.is_at_rest)
    quick.be_quick()
    mine = quick.mine()
    assert quick.turn(wire, GET).startswith(b"*1")
    assert quick.mine() == mine
    assert committer.journal.seq == committer.seq  # it is in the file
    assert committer.durable_seq < committer.seq
    assert 0 < quick.box.pump.gate.late_ms <= quick.box.n.now_ms + 10

    def is_synced() -> bool:
        quick.box.pump.turn(20)
        return committer.durable_seq == committer.seq

    until(is_synced)
    assert quick.mine() == mine
    until(quick.is_at_rest)
    quick.box.pump.turn(0)
    assert quick.box.pump.gate.late_ms == 0


def test_the_journal_is_the_same_whoever_wrote_it(quick: Quick, tmp_path: Path) -> None:
    producer = quick.box.connect()
    for i in range(60):
        if i % 7 == 3:
            quick.thread.pace = Pace()
        elif i % 7 == 5:
            quick.be_quick()
        heard = quick.turn(producer, ADD + GET if i % 3 == 0 else ADD)
        if b"+D-" not in heard:
            quick.kept.turns_until_answered(producer)
    assert 0 < quick.mine() < len(quick.disk.synced_by)
    until(quick.is_at_rest)
    jobs = {id: int(job.state) for id, job in quick.box.n.jobs.items()}
    assert len(jobs) == 60
    assert quick.kept.committer.close(START_MS) == ""
    again = Kept(tmp_path / "again", "always", tmp_path / "journal")
    assert {id: int(job.state) for id, job in again.box.n.jobs.items()} == jobs
    again.close()
    quick.kept = Kept(tmp_path / "third", "always")


def test_more_that_has_come_shares_the_sync(quick: Quick) -> None:
    """J4.7 Before the pump syncs itself, it reads for up to 1 ms what else has arrived, so that
    more commands share the sync."""
    first, second = quick.box.connect(), quick.box.connect()
    gather = Gather(quick.box.server, quick.box.pump.poller)
    records = quick.box.n.records
    assert records is not None
    second.sock.sendall(PING)
    assert gather.more(records.binding_count) == []  # nothing needs a sync
    records.binding_count += 1
    found: list[tuple[int, int]] = []

    def is_found() -> bool:
        quick.be_quick()
        gather.on_synced(100, 1)
        found.extend(gather.more(records.binding_count - 1))
        return len(found) > 0 or not until(quick.is_at_rest)

    until(is_found)
    fds = {int(c.fd) for c in quick.box.server.clients.values()}
    assert len(found) == 1 and found[0][0] in fds
    quick.thread.pace = Pace()
    gather.on_synced(100, 1)
    assert gather.more(records.binding_count - 1) == []  # the thread will sync
    first.close()


# ---- the pace


def paced(*took_s: float, by_pump: bool = True, since_s: float = 0.0) -> Pace:
    """Syncs one second after another."""
    pace = Pace()
    for i, one in enumerate(took_s):
        pace.note(one, since_s + i, by_pump)
    return pace


def test_sixteen_syncs_of_a_millisecond_on_average_are_quick() -> None:
    """The disk is quick if its last 16 syncs took at most 1 ms on average"""
    assert LOOK == 16 and QUICK_S == 0.001 and SLOW_S == 0.010
    assert not paced(*[0.0] * 15).is_quick(100)
    assert paced(*[0.0] * 15, 0.009).is_quick(100)
    assert not paced(*[0.0] * 14, 0.009, 0.009).is_quick(100)
    assert paced(0.009, 0.009, *[0.0] * 16).is_quick(100)  # only the last ones count


@pytest.mark.parametrize("by_pump", [True, False])
def test_a_slow_sync_keeps_the_pump_off_for_a_while(by_pump: bool) -> None:
    """and none took longer than 10 ms during the last N seconds. N is 1 at first. It doubles, up to
    600, with each sync of the pump that takes longer than 10 ms"""
    pace = paced(*[0.0] * 16)
    for n in (2, 4, 8, 16, 32, 64, 128, 256, 512, 600, 600):
        now_s = 10_000.0 * n
        pace.keep_off_s = pace.keep_off_s if by_pump else LEAST_S
        pace.note(0.011, now_s, by_pump)
        wanted = n if by_pump else LEAST_S
        assert pace.keep_off_s == wanted
        for i in range(16):
            pace.note(0.0, now_s + i / 1000, by_pump)
        assert not pace.is_quick(now_s + wanted - 0.001)
        assert pace.is_quick(now_s + wanted)
        pace.since_s = now_s + 10_000_000  # no halving in this test
    assert pace.keep_off_s == (MOST_S if by_pump else LEAST_S)


def test_it_tries_sooner_when_the_disk_stays_quick() -> None:
    """it halves, down to 1, when no sync took so long for 2 N seconds"""
    pace = paced(0.011, 0.011, 0.011)
    seen = [pace.keep_off_s]
    for second in range(3, 60):
        pace.note(0.0, float(second), True)
        if pace.keep_off_s != seen[-1]:
            seen.append(pace.keep_off_s)
    assert seen == [8.0, 4.0, 2.0, 1.0]
