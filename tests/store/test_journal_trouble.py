"""A disk that is full, broken, taken or not writable: clear words, and nothing lost."""

from __future__ import annotations

import os
import zlib
from pathlib import Path

import pytest
from journal_lab import NODE_ID, PATH, START_MS, Lab, restarted

from tuque.core.copies.ack import on_ackjob
from tuque.core.copies.add import on_addjob, settle
from tuque.core.model.job import PLAIN
from tuque.server.journal.committer import Committer, forget_saved, has_saved_once, save_once
from tuque.server.journal.thread import BACKLOG_BYTES
from tuque.store.disk import Disk, MemoryDisk
from tuque.store.frames import (
    HEADER_BYTES,
    OLDEST,
    VERSION,
    JournalError,
    decode_manifest,
    read_manifest,
)
from tuque.store.repair import check_dir


def test_a_full_disk_stops_writes_with_a_clear_error_and_heals_by_itself() -> None:
    lab = Lab()
    lab.start()
    first = lab.add()
    lab.disk.capacity = lab.disk.used() + 100  # the next frame fits only in part
    durable = lab.committer.durable_seq
    second = lab.add()
    assert "No space left on device writing /data/journal/journal-" in lab.committer.error
    assert "free space" in lab.committer.error
    assert lab.committer.durable_seq == durable
    assert lab.committer.must_hold(lab.committer.seq)
    assert lab.committer.waiting_bytes() > 0
    lab.disk.capacity = 1 << 60
    third = lab.add()
    assert lab.committer.error == ""
    assert not lab.committer.must_hold(lab.committer.seq)
    assert [note for note in lab.committer.take_notes() if "working again" in note.text]
    lab.disk.power_cut()
    again = restarted(lab.disk, lab.n.now_ms)
    assert set(again.n.jobs) == {first, second, third}


def test_a_full_disk_leaves_whole_frames_only() -> None:
    lab = Lab()
    lab.start()
    lab.add()
    expected = lab.state()
    lab.disk.capacity = lab.disk.used() + 60
    lab.add()
    lab.disk.process_crash()
    again = restarted(cleared(lab.disk), lab.n.now_ms)
    assert again.state() == expected


def cleared(disk: Disk) -> MemoryDisk:
    assert isinstance(disk, MemoryDisk)
    disk.capacity = 1 << 60
    return disk


def test_short_writes_are_continued() -> None:
    lab = Lab()
    lab.disk.write_most = 7
    lab.start()
    lab.add(b"q", b"long body" * 20)
    lab.rewrite()
    lab.disk.power_cut()
    assert restarted(lab.disk, lab.n.now_ms).state() == lab.state()


def test_too_much_that_waits_is_dropped_and_rewritten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tuque.server.journal.thread.BACKLOG_BYTES", 500)
    assert BACKLOG_BYTES > 500
    lab = Lab()
    lab.start()
    lab.add()
    lab.disk.capacity = lab.disk.used()
    for _ in range(10):
        lab.add(b"q", b"x" * 100)
    assert lab.committer.waiting_bytes() < 500
    assert "wait for the disk" in lab.committer.error
    lab.disk.capacity = 1 << 60
    lab.committer._retry_at = 0
    for _ in range(10):
        lab.turn()
    assert lab.committer.error == ""
    lab.disk.power_cut()
    assert restarted(lab.disk, lab.n.now_ms).state() == lab.state()


def test_a_failed_fsync_acknowledges_nothing_until_all_is_in_new_files() -> None:
    lab = Lab()
    lab.start()
    lab.add()
    durable = lab.committer.durable_seq
    old = lab.disk.listdir(PATH)
    lab.disk.fsync_errors = 1
    lab.add()
    assert "syncing /data/journal/journal-" in lab.committer.error
    assert "refused until" in lab.committer.error
    assert lab.committer.durable_seq == durable
    lab.disk.fsync_errors = 3  # the first tries to rewrite fail too
    for _ in range(3):
        lab.committer._retry_at = 0
        lab.turn()
        lab.turn()
        assert lab.committer.error != "" and lab.committer.durable_seq == durable
    for _ in range(3):
        lab.committer._retry_at = 0
        lab.turn()
        lab.turn()
    assert lab.committer.error == "" and lab.committer.durable_seq == lab.committer.seq
    assert not set(old) & set(lab.disk.listdir(PATH)) - {"manifest"}
    lab.add()
    lab.disk.power_cut()
    assert restarted(lab.disk, lab.n.now_ms).state() == lab.state()


def test_a_rewrite_without_room_is_given_up_and_gives_its_room_back() -> None:
    lab = Lab()
    lab.start()
    for _ in range(20):
        lab.add(b"q", b"x" * 200)
    lab.disk.capacity = lab.disk.used() + 900
    assert lab.committer.start_rewrite(lab.n, lab.n.now_ms)
    for _ in range(30):
        lab.turn()
    assert not lab.committer.is_rewriting()
    assert lab.committer.error == ""  # writes go on
    assert lab.committer.info()["aof_last_bgrewrite_status"] == "err"
    assert any(
        "No space left" in note.text for note in lab.committer.take_notes() if note.is_failure
    )
    lab.add()
    assert lab.committer.error == ""
    lab.disk.power_cut()
    assert restarted(cleared(lab.disk), lab.n.now_ms).state() == lab.state()


def test_growth_starts_a_rewrite_by_itself() -> None:
    lab = Lab()
    lab.start()
    lab.committer.rewrite_min_bytes = 4000
    for _ in range(40):
        lab.ack(lab.add(b"q", b"x" * 100))
    assert lab.committer.info()["journal_rewrites"] >= 1
    assert lab.committer.journal.total_bytes() < 4000 + 2000
    lab.disk.power_cut()
    assert restarted(lab.disk, lab.n.now_ms).state() == lab.state() == {}


def test_a_second_server_is_told_who_has_the_directory(tmp_path: Path) -> None:
    path = str(tmp_path / "journal")
    first = Committer(Disk(), path, NODE_ID, START_MS)
    first.lock()
    second = Committer(Disk(), path, NODE_ID, START_MS)
    with pytest.raises(JournalError, match=rf"in use by process {os.getpid()}; stop that server"):
        second.lock()
    first.close(START_MS)
    second.lock()
    second.close(START_MS)


def test_a_directory_that_takes_no_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    committer = Committer(Disk(), str(tmp_path / "file" / "journal"), NODE_ID, START_MS)
    with pytest.raises(JournalError, match=r"cannot write in .*needs a directory"):
        committer.lock()
    committer.close(START_MS)
    lab = Lab()
    lab.disk.capacity = 10
    with pytest.raises(JournalError, match=r"cannot write the journal in .*No space left"):
        lab.start()


@pytest.mark.parametrize("version", [OLDEST - 1, VERSION + 1])
def test_another_format_is_refused_and_left_alone(version: int) -> None:
    """J1.4 It refuses a file of another version, names that version and what to do, and changes no
    file."""
    lab = Lab()
    lab.start()
    lab.add()
    lab.disk.process_crash()
    (name,) = [n for n in lab.disk.listdir(PATH) if n.endswith(".log")]
    data = lab.disk.file(f"{PATH}/{name}").data
    data[8:12] = version.to_bytes(4, "little")
    data[124:HEADER_BYTES] = zlib.crc32(bytes(data[:124])).to_bytes(4, "little")
    files = {n: bytes(f.data) for n, f in lab.disk.names.items()}
    told = f"{name} has format version {version}, .*reads {OLDEST} to {VERSION}; start the version"
    with pytest.raises(JournalError, match=told):
        restarted(lab.disk, START_MS)
    with pytest.raises(JournalError, match=told):
        check_dir(lab.disk, PATH)
    assert {n: bytes(f.data) for n, f in lab.disk.names.items()} == files


@pytest.mark.parametrize("version", [OLDEST - 1, VERSION + 1])
def test_a_manifest_of_another_format_is_refused(version: int) -> None:
    """J1.4, and check and repair take it for no damage."""
    text = b"tuque-journal %d\n" % version
    data = text + b"crc %08x\n" % zlib.crc32(text)
    with pytest.raises(JournalError, match=f"version {version}"):
        decode_manifest(data, "manifest")
    with pytest.raises(JournalError, match="manifest is damaged; run: tuque journal repair"):
        decode_manifest(data.replace(text, b"tuque-journal %d\n" % (version + 7)), "manifest")
    lab = Lab()
    lab.start()
    lab.disk.process_crash()
    lab.disk.file(f"{PATH}/manifest").data[:] = data
    with pytest.raises(JournalError, match=f"version {version}"):
        check_dir(lab.disk, PATH)


def test_a_torn_tail_is_cut_or_refused_as_configured() -> None:
    lab = Lab()
    lab.start()
    lab.add()
    lab.add()
    (name,) = [n for n in lab.disk.listdir(PATH) if n.endswith(".log")]
    data = lab.disk.file(f"{PATH}/{name}").data
    del data[-5:]
    lab.disk.process_crash()
    strict = Lab(lab.disk)
    strict.committer.lock()
    loader = strict.committer.loader(may_cut=False)
    with pytest.raises(JournalError, match="unfinished write at offset .* aof-load-truncated"):
        while not loader.step(strict.n, 100):
            pass
    strict.committer.close(START_MS)
    lax = Lab(lab.disk)
    loader = lax.start()
    assert loader.cut_bytes > 0 and "unfinished write" in loader.notes[0]
    assert len(lax.n.jobs) == 1


def test_a_disk_that_fails_while_a_torn_end_is_kept_aside_changes_nothing() -> None:
    lab = Lab()
    lab.start()
    lab.add()
    lab.add()
    (name,) = [n for n in lab.disk.listdir(PATH) if n.endswith(".log")]
    data = lab.disk.file(f"{PATH}/{name}").data
    data[-5] ^= 1
    lab.disk.process_crash()
    before = bytes(data)
    lab.disk.fsync_errors = 1
    with pytest.raises(JournalError, match="cannot write the torn end .* nothing was cut"):
        Lab(lab.disk).start()
    assert lab.disk.file(f"{PATH}/{name}").data == before
    lab.disk.process_crash()
    again = Lab(lab.disk)
    (note,) = again.start().notes
    aside = note.split("kept in ")[1].rstrip(")")
    assert before.endswith(lab.disk.file(aside).data), "once, though the first try wrote it too"
    assert len(again.n.jobs) == 1


def test_turning_it_on_in_a_running_server_replaces_what_was_there() -> None:
    lab = Lab()
    lab.start()
    lab.add()
    lab.committer.close(lab.n.now_ms, retired=True)
    assert restarted_empty(lab.disk)
    other = Lab(lab.disk, seed=8)
    kept = [other_job(other) for _ in range(5)]
    other.committer.lock()
    other.committer.start_anew(other.n)
    other.committer.settle(other.n)
    later = other.add()
    other.disk.power_cut()
    assert set(restarted(other.disk, START_MS).n.jobs) == {*kept, later}


def restarted_empty(disk: MemoryDisk) -> bool:
    """A retired journal does not come back."""
    lab = restarted(disk, START_MS)
    count = len(lab.n.jobs)
    lab.committer.close(START_MS)
    return count == 0


def other_job(lab: Lab) -> bytes:
    """A job added while there is no journal."""
    records, lab.n.records = lab.n.records, None
    job = on_addjob(lab.n, b"q", b"b", settle(lab.n, PLAIN))
    lab.n.records = records
    return job.id


def test_a_planned_restart_without_a_journal_loads_once(tmp_path: Path) -> None:
    disk, path = Disk(), str(tmp_path / "journal")
    lab = Lab()
    job_id = other_job(lab)
    assert not has_saved_once(disk, path)
    assert save_once(disk, path, lab.n) == ""
    assert has_saved_once(disk, path)
    again = Lab(seed=2)
    committer = Committer(disk, path, NODE_ID, START_MS)
    committer.lock()
    loader = committer.loader()
    while not loader.step(again.n, 10):
        pass
    forget_saved(disk, path, goes_on=False)
    committer.close(START_MS)
    assert list(again.n.jobs) == [job_id]
    assert not has_saved_once(disk, path)
    assert read_manifest(disk, path) is None


@pytest.mark.parametrize("policy", ["no", "everysec", "always"])
def test_what_only_an_unfinished_rewrite_has_is_not_kept(policy: str) -> None:
    """J6.2 After a failed sync everything is written anew from memory before writes are accepted
    again.
    """
    lab = Lab(policy=policy)
    lab.start()
    job_id = lab.add()
    lab.committer.journal.break_off("the sync failed")
    assert lab.n.records is not None
    on_ackjob(lab.n, job_id)
    seq = lab.committer.commit(lab.n.records, lab.n.now_ms)
    lab.committer.start_rewrite(lab.n, lab.n.now_ms)  # its first record is the one after `seq`
    assert lab.committer.error != ""
    assert lab.committer.must_hold(seq), "the files have the job, and not its end"
    lab.disk.process_crash()
    assert job_id in restarted(lab.disk, lab.n.now_ms).n.jobs


def test_it_is_kept_when_the_rewrite_has_finished() -> None:
    """Replies that wait for it may leave then."""
    lab = Lab(policy="everysec")
    lab.start()
    job_id = lab.add()
    lab.committer.journal.break_off("the sync failed")
    assert lab.n.records is not None
    on_ackjob(lab.n, job_id)
    seq = lab.committer.commit(lab.n.records, lab.n.now_ms)
    lab.committer.start_rewrite(lab.n, lab.n.now_ms)
    while lab.committer.is_rewriting():
        lab.turn()
    assert not lab.committer.must_hold(seq)
    lab.disk.process_crash()
    assert job_id not in restarted(lab.disk, lab.n.now_ms).n.jobs
