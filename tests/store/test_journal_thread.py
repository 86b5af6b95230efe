"""The writer thread on a real disk: group commit, policies, waking the pump."""

from __future__ import annotations

import select
import threading
import time
from pathlib import Path

from journal_lab import NODE_ID, START_MS, state_of

from quick import is_quick
from tuque.core.copies.add import on_addjob, settle
from tuque.core.model.job import PLAIN
from tuque.core.node.node import Node
from tuque.core.queues.deliver import on_getjob
from tuque.core.records.jobs import Records
from tuque.server.journal.committer import Committer
from tuque.server.journal.thread import BEGIN, FINISH, FRAME, SLICE, Item, JournalThread, Wakeup
from tuque.store.disk import Disk, MemoryDisk
from tuque.store.frames import Boot, Manifest
from tuque.store.writer import Journal
from until import until


def opened(path: Path, policy: str, disk: Disk | None = None) -> tuple[Node, Committer]:
    n = Node(NODE_ID, b"%d" % time.monotonic_ns(), START_MS)
    committer = Committer(disk or Disk(), str(path / "journal"), NODE_ID, START_MS, policy)
    # The clock of these tests stands still; beside the machine's own it would seem to be set back.
    committer.boot = committer.journal.boot = Boot(START_MS, b"", 0)
    committer.lock()
    loader = committer.loader()
    while not loader.step(n, 100):
        pass
    committer.start(START_MS)
    n.records = Records()
    return n, committer


def add(n: Node, retry_s: int = 60) -> None:
    spec = settle(n, PLAIN)
    spec.retry_s = retry_s
    on_addjob(n, b"q", b"body", spec)


def commit(n: Node, committer: Committer) -> int:
    assert n.records is not None
    return committer.commit(n.records, n.now_ms)


class CountingDisk(Disk):
    """A real disk whose fsyncs wait for `gate`."""

    def __init__(self) -> None:
        self.syncs = self.begun = 0
        self.gate = threading.Event()
        self.gate.set()

    def fdatasync(self, handle: int) -> None:
        self.begun += 1
        self.gate.wait(60)
        self.syncs += 1
        super().fdatasync(handle)


def test_always_wakes_the_pump_when_durable_and_shares_an_fsync(tmp_path: Path) -> None:
    disk = CountingDisk()
    n, committer = opened(tmp_path, "always", disk)
    disk.gate.clear()
    before = disk.syncs
    seqs = []
    for _ in range(200):
        add(n)
        seqs.append(commit(n, committer))
    assert committer.must_hold(seqs[0])
    disk.gate.set()
    while committer.must_hold(seqs[-1]):
        assert select.select([committer.wake_fd], [], [], 60)[0]
        committer.on_wake()
    assert disk.syncs - before <= 3
    assert committer.close(START_MS) == ""
    again, other = opened(tmp_path, "no")
    assert state_of(again) == state_of(n)
    other.close(START_MS)


def test_everysec_holds_nothing_but_custody_and_syncs_within_a_second(tmp_path: Path) -> None:
    n, committer = opened(tmp_path, "everysec")
    add(n)
    seq = commit(n, committer)
    assert not committer.must_hold(seq)
    until(lambda: committer.durable_seq >= seq, "show the sync of the second")

    def take_custody() -> None:
        add(n, retry_s=0)
        commit(n, committer)
        job = [j for j in on_getjob(n, 1, [b"q"], 2) if j.retry_s == 0]
        assert job
        seq = commit(n, committer)
        while committer.must_hold(seq):
            assert select.select([committer.wake_fd], [], [], 60)[0]
            committer.on_wake()

    assert is_quick(take_custody, 0.9)  # did not wait for the second
    committer.close(START_MS)


def test_without_sync_a_frame_is_in_the_file_when_commit_returns(tmp_path: Path) -> None:
    """A killed process loses nothing then, unless the thread was just busy."""
    n, committer = opened(tmp_path, "no")
    (file,) = (tmp_path / "journal").glob("*.log")
    at_once = 0
    for _ in range(50):
        until(lambda: committer.waiting_bytes() == 0, "show the thread's turn")
        size = file.stat().st_size
        add(n)
        commit(n, committer)
        at_once += file.stat().st_size > size
    assert at_once > 0
    committer.close(START_MS)
    again, other = opened(tmp_path, "no")
    assert state_of(again) == state_of(n)
    other.close(START_MS)


def test_a_frame_never_overtakes_one_that_waits_for_the_thread(tmp_path: Path) -> None:
    path = str(tmp_path)
    journal = Journal(Disk(), path, NODE_ID, Boot(START_MS, b"", 0))
    journal.start(Manifest(), 0, START_MS)
    thread = JournalThread(journal, "everysec", Wakeup(), 1 << 20)  # not started: it is busy
    records = Records()
    for queue in (b"first", b"second", b"third"):
        records.pause(queue, 1, 0)
        urgent = int(queue == b"first")  # this one waits for a sync
        thread.put(Item(FRAME, records.take(), 1, START_MS, urgent))
    assert journal.seq == 0
    assert thread.stop(1.0)
    journal.close()
    data = Path(journal.segment).read_bytes()
    assert data.index(b"first") < data.index(b"second") < data.index(b"third")


def test_frames_keep_their_order_whoever_writes_them(tmp_path: Path) -> None:
    disk = CountingDisk()
    n, committer = opened(tmp_path, "everysec", disk)
    for i in range(3000):
        add(n, retry_s=0 if i % 50 == 0 else 60)
        if i % 3 == 0:
            on_getjob(n, 1, [b"q"], 1)  # of an at-most-once job now and then: the thread syncs
        commit(n, committer)
        if i % 1000 == 500:
            committer.start_rewrite(n, n.now_ms)  # or one runs still
        committer.on_turn(n, n.now_ms, 50)
    assert committer.rewrite_now(n) == ""
    assert committer.info()["journal_rewrites"] >= 2
    add(n)
    commit(n, committer)
    assert committer.close(START_MS) == ""
    again, other = opened(tmp_path, "no")
    assert state_of(again) == state_of(n)
    assert other.seq >= committer.seq
    other.close(START_MS)


class ListeningDisk(Disk):
    """A real disk that remembers what it was given to write."""

    def __init__(self) -> None:
        self.given: list[bytes | memoryview] = []

    def write(self, handle: int, data: bytes | memoryview) -> int:
        self.given.append(data)
        return super().write(handle, data)


def test_a_large_body_is_written_as_it_is(tmp_path: Path) -> None:
    """A body of many MB is not copied: the loop would wait for the copy."""
    disk = ListeningDisk()
    n, committer = opened(tmp_path, "everysec", disk)
    body = bytes(range(256)) * (12 << 10)
    for text in (b"before", body, b"between", body[::-1], b"after"):
        on_addjob(n, b"q", text, settle(n, PLAIN))
    commit(n, committer)
    add(n)
    commit(n, committer)
    assert committer.close(START_MS) == ""
    assert len([data for data in disk.given if data is body]) == 1
    again, other = opened(tmp_path, "no")
    assert state_of(again) == state_of(n) and len(again.jobs) == 6
    assert sorted(job.body for job in again.jobs.values()) == sorted(
        job.body for job in n.jobs.values()
    )
    other.close(START_MS)


def one_more_and_all_is_kept(tmp_path: Path, n: Node, committer: Committer) -> None:
    """The next record is written, and what the files say is what the node has."""
    add(n)
    commit(n, committer)
    assert committer.close(START_MS) == ""
    again, other = opened(tmp_path, "no")
    assert state_of(again) == state_of(n)
    other.close(START_MS)


def test_a_rewrite_in_the_background_while_jobs_come(tmp_path: Path) -> None:
    n, committer = opened(tmp_path, "everysec")
    for _ in range(3000):
        add(n)
    commit(n, committer)
    assert committer.start_rewrite(n, n.now_ms)
    turns = 0

    def is_done() -> bool:
        nonlocal turns
        if turns < 10_000:  # more would only keep the thread from its work
            add(n)
            commit(n, committer)
        committer.on_turn(n, n.now_ms, 100)
        turns += 1
        return not committer.is_rewriting()

    while turns < 10_000 and not is_done():
        pass
    if committer.is_rewriting():
        until(is_done, "show the rewrite")
    assert turns > 20
    assert committer.rewrite_now(n) == ""
    one_more_and_all_is_kept(tmp_path, n, committer)


def test_a_rewrite_begins_when_its_segment_is_prepared(tmp_path: Path) -> None:
    """J1.5, and replies wait for no file: while the disk makes it, the pump writes on."""
    disk = CountingDisk()
    n, committer = opened(tmp_path, "everysec", disk)
    disk.gate.clear()
    begun = disk.begun
    committer.ask_rewrite()
    committer.on_turn(n, n.now_ms)
    assert committer.is_rewriting()
    until(lambda: disk.begun > begun, "show the sync of the prepared files")
    add(n)
    seq = commit(n, committer)
    assert committer.thread.is_idle() and committer.journal.seq == seq, "it is in the file"
    assert not committer.journal.is_rewriting
    disk.gate.set()

    def is_done() -> bool:
        committer.on_turn(n, n.now_ms)
        return not committer.is_rewriting()

    until(is_done, "show the rewrite")
    assert committer.thread.done_rewrite == 1
    one_more_and_all_is_kept(tmp_path, n, committer)


def test_a_segment_is_prepared_when_the_one_before_is_half_full(tmp_path: Path) -> None:
    """J1.5"""
    n, committer = opened(tmp_path, "always")
    thread, journal = committer.thread, committer.journal
    thread.segment_bytes = thread._roll_at = 8_000
    for count in range(2, 5):
        while journal.size < 4_000:
            add(n)
            commit(n, committer)
            until(thread.is_idle, "show the frame")
        until(journal.is_prepared, "show the prepared segment")
        assert len(journal.manifest.segments) == count - 1
        while len(journal.manifest.segments) < count:
            add(n)
            commit(n, committer)
            until(thread.is_idle, "show the frame")
    assert committer.close(START_MS) == ""
    names = sorted(one.name for one in (tmp_path / "journal").iterdir())
    assert [name for name in names if name.endswith(".log")] == journal.manifest.segments
    again, other = opened(tmp_path, "no")
    assert state_of(again) == state_of(n)
    other.close(START_MS)


def test_a_rewrite_that_begins_during_a_sync_has_all_jobs(tmp_path: Path) -> None:
    """J6.4 The new manifest takes effect only when the snapshot is complete and synced."""
    disk = CountingDisk()
    n, committer = opened(tmp_path, "always", disk)
    for _ in range(100):
        add(n)
    commit(n, committer)
    until(lambda: committer.durable_seq == committer.seq, "sync")
    disk.gate.clear()
    begun = disk.begun
    add(n)
    commit(n, committer)
    until(lambda: disk.begun > begun, "begin the sync")
    assert committer.start_rewrite(n, n.now_ms)
    for _ in range(30):
        committer.on_turn(n, n.now_ms, 10)
    disk.gate.set()
    assert committer.finish_rewrite(n) == ""
    assert [note.text for note in committer.take_notes() if note.is_failure] == []
    assert committer.close(START_MS) == ""
    again, other = opened(tmp_path, "no")
    assert len(again.jobs) == 101 and state_of(again) == state_of(n)
    other.close(START_MS)


def test_slices_of_a_failed_rewrite_are_not_in_the_next(tmp_path: Path) -> None:
    """J6.4 The new manifest takes effect only when the snapshot is complete and synced."""
    journal = Journal(Disk(), str(tmp_path), NODE_ID, Boot(START_MS, b"", 0))
    journal.start(Manifest(), 0, START_MS)
    thread = JournalThread(journal, "everysec", Wakeup(), 1 << 20)
    thread.put(Item(BEGIN, b"", 0, START_MS, 0, 1))
    thread._turn()
    journal.abort_rewrite("the disk failed")
    late = [(1, SLICE, b"old", 1, 1), (1, FINISH, b"", 0, 1)]
    for rewrite, kind, payload, count, number in late:
        thread.put(Item(kind, payload, count, START_MS, number, rewrite))
    thread.put(Item(BEGIN, b"", 0, START_MS, 0, 2))
    for payload in (b"new", b"newer"):
        thread.put(Item(SLICE, payload, 1, START_MS, 1, 2))
    assert thread.stop(1.0)
    assert (thread.done_rewrite, thread.failed_rewrite) == (0, 0)
    assert Path(journal.snapshot_path).read_bytes().count(b"new") == 2
    assert b"old" not in Path(journal.snapshot_path).read_bytes()
    journal.close()


def test_a_snapshot_without_all_its_records_is_not_taken(tmp_path: Path) -> None:
    """J6.4 The new manifest takes effect only when the snapshot is complete and synced."""
    journal = Journal(Disk(), str(tmp_path), NODE_ID, Boot(START_MS, b"", 0))
    journal.start(Manifest(), 0, START_MS)
    thread = JournalThread(journal, "everysec", Wakeup(), 1 << 20)
    thread.put(Item(BEGIN, b"", 0, START_MS, 0, 1))
    thread.put(Item(SLICE, b"one", 1, START_MS, 1, 1))
    thread.put(Item(FINISH, b"", 0, START_MS, 2, 1))
    assert thread.stop(1.0)
    assert (thread.done_rewrite, thread.failed_rewrite) == (0, 1)
    assert [note.text for note in thread.notes] == [
        f"journal rewrite failed: {journal.path}/snapshot-00000002.tmp has 1 of 2 records"
    ]
    journal.close()


def test_a_broken_journal_is_not_asked_for_each_second() -> None:
    """The thread waits for the rewrite that mends it, instead of turning without a pause."""
    disk = MemoryDisk()
    disk.makedirs("/journal")
    journal = Journal(disk, "/journal", NODE_ID, Boot(START_MS, b"", 0))
    journal.start(Manifest(), 0, START_MS)
    thread = JournalThread(journal, "everysec", None, 64 << 20)
    assert journal.append(b"record", 1, START_MS)
    assert thread._will_sync()
    journal.break_off("the disk")
    assert not thread._will_sync() and not thread._is_sync_due()
