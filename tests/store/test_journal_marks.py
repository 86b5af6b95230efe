"""SPEC J3.2, J5.1, J5.9, J5.10: what is a torn tail, what is damage, and the marks that tell."""

from __future__ import annotations

from pathlib import Path

import pytest
from journal_lab import PATH, START_MS, Lab, restarted
from test_journal_cuts import copy_of, segment
from test_journal_thread import add, commit, opened

from tuque.store.disk import MemoryDisk
from tuque.store.frames import (
    FOUND,
    FRAME_BYTES,
    FrameScanner,
    JournalError,
    decode_header,
)
from tuque.store.repair import check_dir, repair_dir
from until import until

NEXT_BOOT = b"the next boot"


def written(
    count: int, policy: str, synced: int = 0, marked: bool = False
) -> tuple[Lab, list[int]]:
    """A node that added jobs and was killed; where each frame of its segment begins.

    `synced` of the jobs were synced before the rest came; `marked`: all, and it was idle.
    """
    lab = Lab(policy=policy)
    lab.start()
    path = segment(lab.disk)
    offsets = []
    for i in range(count):
        if i == synced and i > 0:
            lab.committer.journal.sync()
        offsets.append(lab.disk.size(path))
        lab.add(b"q", b"body %d" % i)
    if marked:
        lab.committer.journal.sync()
        offsets.append(lab.disk.size(path))
        lab.committer.journal.mark()
    return lab, offsets


def files_of(lab: Lab) -> tuple[dict[str, bytes], str]:
    """The content of all files, and the path of the segment."""
    return {name: bytes(file.data) for name, file in lab.disk.names.items()}, segment(lab.disk)


def flipped(data: bytes, at: int) -> bytes:
    changed = bytearray(data)
    changed[at] ^= 0x11
    return bytes(changed)


def loaded(disk: MemoryDisk, boot_id: bytes) -> Lab:
    lab = Lab(disk, seed=1, boot_id=boot_id)
    lab.start()
    return lab


@pytest.mark.parametrize(
    ("boot_id", "policy"),
    [
        (b"boot of the test", "always"),
        (NEXT_BOOT, "everysec"),
        pytest.param(b"boot of the test", "everysec", marks=pytest.mark.slow),
        pytest.param(NEXT_BOOT, "always", marks=pytest.mark.slow),
    ],
)
def test_every_flipped_byte_of_an_idle_journal_stops_the_start(policy: str, boot_id: bytes) -> None:
    """J5.2 Damage anywhere else stops the start with a text that names the file, the offset and the
    command that repairs it. It is never skipped silently.
    """
    lab, offsets = written(5, policy, marked=True)
    files, path = files_of(lab)
    mark = offsets[-1]
    assert len(files[path]) == mark + FRAME_BYTES
    for at in range(offsets[0], len(files[path])):
        disk = copy_of({**files, path: flipped(files[path], at)})
        if at >= mark:  # nothing is lost: the mark itself was the end
            assert loaded(disk, boot_id).state() == lab.state(), at
            continue
        frame = max(offset for offset in offsets if offset <= at)
        with pytest.raises(
            JournalError, match=rf"damaged at offset {frame}:.*tuque journal repair"
        ):
            loaded(disk, boot_id)
        disk.process_crash()
        report = check_dir(disk, PATH, boot_id)
        assert [problem.state for problem in report.files[0].problems] == ["damaged"]
        assert disk.file(path).data == flipped(files[path], at), "the start changes nothing"
        repair_dir(disk, report)
        assert len(loaded(disk, boot_id).n.jobs) == 4, at
        assert f"{path}.quarantine-{frame}" in disk.names


@pytest.mark.parametrize("marked", [True, False])
def test_every_cut_of_the_end_loads_what_was_whole(marked: bool) -> None:
    """J5.1 A torn tail of the last segment is truncated and reported;"""
    lab, offsets = written(6, "everysec", marked=marked)
    files, path = files_of(lab)
    ends = [*offsets[1:6], *(offsets[6:] or [len(files[path])])]
    for size in range(offsets[0], len(files[path]) + 1):
        disk = copy_of({**files, path: files[path][:size]})
        again = loaded(disk, b"boot of the test")
        assert len(again.n.jobs) == sum(end <= size for end in ends), size
        assert not [name for name in disk.names if "torn" in name], "half a write needs no copy"


def test_a_killed_process_leaves_no_holes() -> None:
    """J5.9 Whole frames behind a damaged place of the last segment make it damage in the middle
    (J5.2) [...] if the machine was not restarted since the segment began.
    """
    for policy in ("everysec", "no"):
        lab, offsets = written(5, policy)
        files, path = files_of(lab)
        for at in range(offsets[0], len(files[path])):
            disk = copy_of({**files, path: flipped(files[path], at)})
            if at < offsets[4]:
                with pytest.raises(JournalError, match="damaged at offset"):
                    loaded(disk, b"boot of the test")
            else:  # nothing whole follows
                again = loaded(disk, b"boot of the test")
                assert len(again.n.jobs) == 4
                aside = disk.file(f"{path}.torn-{offsets[4]}").data
                assert aside == flipped(files[path], at)[offsets[4] :], "all of it is kept"


def test_after_a_power_cut_only_what_was_not_synced_may_have_holes() -> None:
    """J5.9 if one of them says that a record of that place was synced (J3.2) [...] Otherwise the
    place is a tail (J5.1), and is kept.
    """
    lab, offsets = written(8, "everysec", synced=4)
    files, path = files_of(lab)
    for at in range(offsets[0], offsets[7]):
        damaged = flipped(files[path], at)
        disk = copy_of({**files, path: damaged})
        frame = max(offset for offset in offsets if offset <= at)
        if frame < offsets[4]:
            with pytest.raises(JournalError, match=f"damaged at offset {frame}"):
                loaded(disk, NEXT_BOOT)
            continue
        again = Lab(disk, boot_id=NEXT_BOOT)
        notes = again.start().notes
        assert len(again.n.jobs) == offsets.index(frame)
        assert disk.file(f"{path}.torn-{frame}").data == damaged[frame:]
        assert any(f"kept in {path}.torn-{frame}" in note for note in notes)


def test_a_stop_says_that_all_is_synced() -> None:
    """J3.2 If nothing follows a sync for a second, and at an orderly stop, a synced frame
    without records has it.
    """
    for policy in ("no", "everysec", "always"):
        lab = Lab(policy=policy)
        lab.start()
        lab.add()
        path = segment(lab.disk)
        assert lab.committer.close(lab.n.now_ms) == ""
        lab.disk.power_cut()
        lab.disk.file(path).data[130] ^= 1
        with pytest.raises(JournalError, match="damaged at offset 128"):
            loaded(lab.disk, NEXT_BOOT)


def test_a_mark_is_damaged_between_frames() -> None:
    lab, offsets = written(3, "everysec", marked=True)
    lab.add()
    lab.committer.journal.sync()
    lab.committer.journal.mark()
    files, path = files_of(lab)
    disk = copy_of({**files, path: flipped(files[path], offsets[3] + 9)})
    with pytest.raises(JournalError, match=f"damaged at offset {offsets[3]}"):
        loaded(disk, NEXT_BOOT)
    disk.process_crash()
    repair_dir(disk, check_dir(disk, PATH))
    assert loaded(disk, NEXT_BOOT).state() == lab.state(), "no record was in it"


def test_a_mark_without_room_is_left_out() -> None:
    lab, _ = written(2, "always")
    journal = lab.committer.journal
    path = segment(lab.disk)
    size = lab.disk.size(path)
    lab.disk.capacity = lab.disk.used() + 20
    assert journal.must_mark()
    journal.mark()
    assert (journal.error, journal.must_mark(), lab.disk.size(path)) == ("", False, size)
    lab.disk.capacity = 1 << 60
    lab.add()
    lab.disk.fsync_errors = 1
    journal.mark()
    assert "syncing" in journal.error and journal.is_broken
    for _ in range(3):
        lab.turn()
    assert journal.error == ""
    lab.disk.power_cut()
    assert restarted(lab.disk, START_MS).state() == lab.state()


def test_a_start_syncs_what_it_continues() -> None:
    """J5.10 A start syncs the segment that it continues."""
    lab, _ = written(3, "everysec")
    lab.disk.process_crash()
    again = restarted(lab.disk, START_MS)
    again.add()
    again.disk.power_cut()
    assert restarted(again.disk, START_MS, seed=2).state() == again.state()
    assert len(again.n.jobs) == 4


@pytest.mark.parametrize(
    "policy", [pytest.param("everysec", marks=pytest.mark.slow), "always", "no"]
)
def test_an_idle_thread_marks_once(tmp_path: Path, policy: str) -> None:
    n, committer = opened(tmp_path, policy)
    journal = committer.journal
    for _ in range(2):
        add(n)
        commit(n, committer)
        if policy == "no":
            until(lambda: committer.waiting_bytes() == 0, "show the write")
            assert not journal.must_mark()
            break
        until(lambda: committer.durable_seq == committer.seq, "show the sync")
        until(lambda: journal.marked_seq == committer.seq, "show the mark")
    (file,) = (tmp_path / "journal").glob("*.log")
    header = decode_header(file.read_bytes(), "x")
    assert header is not None
    scanner = FrameScanner(committer.disk, str(file), header.salt, 128)
    counts = []
    while scanner.next() == FOUND:
        counts.append((scanner.frame.count, scanner.frame.synced_seq))
    assert counts == ([(1, 0)] if policy == "no" else [(1, 0), (0, 1), (1, 1), (0, 2)])
    assert committer.error == ""
    assert not journal.must_mark(), "the thread sleeps until there is something"
    assert committer.close(START_MS) == ""
