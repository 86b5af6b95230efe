"""Files beside a manifest that does not name them: none that may hold lost records is removed."""

from __future__ import annotations

from contextlib import suppress

import pytest
from journal_lab import BOOT_ID, PATH, START_MS, Lab, restarted

from tuque.store.disk import MemoryDisk, PowerCut
from tuque.store.frames import (
    HEADER_BYTES,
    MANIFEST,
    RETIRED,
    JournalError,
    Manifest,
    SegmentHeader,
    decode_header,
    segment_name,
    snapshot_name,
)
from tuque.store.repair import check_dir, repair_dir

MAN = f"{PATH}/{MANIFEST}"


def put(disk: MemoryDisk, path: str, data: bytes) -> None:
    """Write a whole file."""
    handle = disk.open_append(path)
    disk.file(path).data[:] = data
    disk.close(handle)
    disk.fsync_dir(PATH)


def log(number: int) -> str:
    return f"{PATH}/{segment_name(number)}"


def header_of(disk: MemoryDisk, number: int) -> SegmentHeader:
    header = decode_header(bytes(disk.file(log(number)).data), "")
    assert header is not None
    return header


def give_header(disk: MemoryDisk, number: int, header: SegmentHeader) -> None:
    disk.file(log(number)).data[:HEADER_BYTES] = header.encode()


def earlier_manifest(named: int) -> tuple[MemoryDisk, list[bytes]]:
    """Thirty jobs in three segments; the manifest is of when there were `named` of them."""
    disk = MemoryDisk()
    lab = Lab(disk)
    lab.start()
    kept = b""
    ids = []
    for i in range(30):
        ids.append(lab.add(b"q", b"body %d" % i))
        if i == 10 * named - 1:
            kept = bytes(disk.file(MAN).data)
        if i in (9, 19):
            assert lab.committer.journal.next_segment(lab.n.now_ms)
    lab.committer.close(lab.n.now_ms)
    put(disk, MAN, kept)
    return disk, ids


def held(disk: MemoryDisk) -> set[bytes]:
    """The contents of all files with records."""
    return {bytes(f.data) for n, f in disk.names.items() if len(f.data) > 0 and MANIFEST not in n}


@pytest.mark.parametrize("named", [1, 2])
def test_segments_that_are_newer_than_the_manifest_are_loaded(named: int) -> None:
    """J5.13 a segment with a higher number that begins with the record after the last one before
    it: the manifest is older than the files | loads it too, with a warning
    """
    disk, ids = earlier_manifest(named)
    before = held(disk)
    lab = Lab(disk, seed=1)
    loader = lab.start()
    assert set(lab.n.jobs) == set(ids)
    assert any("older than its files" in note and segment_name(3) in note for note in loader.notes)
    assert before <= held(disk)
    more = lab.add()
    lab.committer.close(START_MS)
    disk.process_crash()
    assert set(restarted(disk, START_MS, seed=2).n.jobs) == {*ids, more}


@pytest.mark.parametrize("named", [1, 2])
def test_check_names_newer_segments_and_a_repair_names_them_in_the_manifest(named: int) -> None:
    """J7.5 Segments that the next start loads too (J5.13) are no damage: `check` names them, and a
    repair writes the manifest anew with them.
    """
    disk, ids = earlier_manifest(named)
    before = held(disk)
    report = check_dir(disk, PATH, BOOT_ID)
    assert report.newer == [segment_name(i) for i in range(named + 1, 4)]
    assert (report.is_ok(), report.unnamed, len(report.files)) == (True, [], 3)
    assert repair_dir(disk, report)
    after = check_dir(disk, PATH, BOOT_ID)
    assert (after.is_ok(), after.newer, len(after.files)) == (True, [], 3)
    assert before <= held(disk)
    assert set(restarted(disk, START_MS).n.jobs) == set(ids)


def test_newer_segments_behind_a_gap_stop_the_start_and_are_repaired() -> None:
    """J7.5 If records before them are missing, a repair loads them with a gap."""
    disk, ids = earlier_manifest(1)
    disk.unlink(log(2))
    before = held(disk)
    with pytest.raises(
        JournalError, match=r"0003\.log .*newer than the manifest.* 21, expected 11"
    ):
        restarted(disk, START_MS)
    disk.process_crash()
    assert held(disk) == before
    report = check_dir(disk, PATH, BOOT_ID)
    assert not report.is_ok()
    repair_dir(disk, report)
    assert check_dir(disk, PATH, BOOT_ID).is_ok()
    lab = Lab(disk)
    assert lab.start().gap_records == 10
    assert set(lab.n.jobs) == {*ids[:10], *ids[20:]}


def test_newer_segments_after_a_torn_one_stop_the_start() -> None:
    """J5.13 any other segment or snapshot with a higher number: records before it are missing, it
    is of another node, or its header is damaged | stops (J5.2) and removes nothing
    """
    disk, ids = earlier_manifest(1)
    del disk.file(log(1)).data[-30:]
    with pytest.raises(JournalError, match=r"0001\.log is damaged"):
        restarted(disk, START_MS)
    disk.process_crash()
    disk, ids = earlier_manifest(2)
    disk.file(log(3)).data[5] ^= 1
    with pytest.raises(JournalError, match=r"0003\.log .*its header is damaged"):
        restarted(disk, START_MS)
    disk.process_crash()
    report = check_dir(disk, PATH, BOOT_ID)
    assert not report.is_ok()
    repair_dir(disk, report)
    assert set(restarted(disk, START_MS).n.jobs) >= set(ids[:20])
    disk.process_crash()
    assert any(name.startswith(log(3)) and name != log(3) for name in disk.names)


def test_a_newer_segment_of_another_node_stops_the_start() -> None:
    """J5.13 it is of another node, or its header is damaged | stops (J5.2) and removes nothing"""
    disk, ids = earlier_manifest(2)
    header = header_of(disk, 3)
    header.node_id = b"e" * 40
    give_header(disk, 3, header)
    before = held(disk)
    with pytest.raises(JournalError, match="of another node.*tuque journal repair"):
        restarted(disk, START_MS)
    disk.process_crash()
    assert held(disk) == before
    report = check_dir(disk, PATH, BOOT_ID)
    assert (report.foreign, report.is_ok()) == ([segment_name(3)], False)
    repair_dir(disk, report)
    assert set(restarted(disk, START_MS).n.jobs) == set(ids[:20])
    disk.process_crash()
    assert before <= held(disk)


def test_a_newer_segment_under_a_wrong_name_stops_the_start() -> None:
    """J5.13 any other segment or snapshot with a higher number | stops (J5.2)"""
    disk, ids = earlier_manifest(2)
    disk.rename(log(3), log(7))
    with pytest.raises(JournalError, match="has the number 3 in its header"):
        restarted(disk, START_MS)
    disk.process_crash()
    repair_dir(disk, check_dir(disk, PATH, BOOT_ID))
    assert set(restarted(disk, START_MS).n.jobs) == set(ids)


@pytest.mark.parametrize("number", [4, 9])
def test_a_copy_of_a_segment_keeps_another_name(number: int) -> None:
    """J5.13 a copy of a segment that is there; a segment with a number not above the last of the
    manifest | renames it to its name with `.left`, with a warning
    """
    disk, ids = earlier_manifest(3)
    put(disk, log(number), bytes(disk.file(log(2)).data))
    report = check_dir(disk, PATH, BOOT_ID)
    assert (report.is_ok(), report.left) == (True, [segment_name(number)])
    lab = Lab(disk)
    loader = lab.start()
    assert set(lab.n.jobs) == set(ids)
    assert any(".left" in note for note in loader.notes)
    assert disk.file(f"{log(number)}.left").data == disk.file(log(2)).data


def test_what_holds_nothing_that_is_missing_is_removed() -> None:
    """J5.13 without a record: the segment made beforehand (J1.5), one that was begun and not yet
    named | removes it
    """
    disk, ids = earlier_manifest(3)
    rewritten = restarted(disk, START_MS)
    old = bytes(disk.file(log(1)).data)
    rewritten.rewrite(3)
    rewritten.committer.close(START_MS)
    disk.process_crash()
    last = max(name for name in disk.names if name.endswith(".log"))
    number = int(last.removesuffix(".log")[-8:])
    put(disk, log(1), old)  # below the snapshot
    put(disk, log(number + 1), b"")
    put(disk, log(number + 2), bytes(disk.file(last).data[:HEADER_BYTES]))
    snapshots = [name for name in disk.names if name.endswith(".snap")]
    put(disk, f"{PATH}/snapshot-{number + 3:08d}.tmp", bytes(disk.file(snapshots[0]).data))
    report = check_dir(disk, PATH, BOOT_ID)
    assert (report.is_ok(), report.newer, report.left) == (True, [], [])
    lab = Lab(disk)
    assert not lab.start().notes and set(lab.n.jobs) == set(ids)
    assert not any(disk.exists(log(n)) for n in (1, number + 1))
    assert not any(name.endswith((".tmp", ".left")) for name in disk.names)


def test_a_journal_that_was_switched_off_is_removed() -> None:
    """J5.13 of a journal that was switched off (`manifest.off`) | removes it: jobs changed
    without it
    """
    disk, _ = earlier_manifest(3)
    lab = restarted(disk, START_MS)
    lab.rewrite(3)
    lab.committer.close(START_MS)
    disk.process_crash()
    disk.rename(MAN, f"{PATH}/{RETIRED}")
    old = {name: bytes(file.data) for name, file in disk.names.items()}
    for how in ("no manifest", "an empty one", "a new one"):
        copy = MemoryDisk()
        for name, data in old.items():
            put(copy, name, data)
        if how == "an empty one":  # switched on, and killed before its first snapshot is complete
            put(copy, MAN, Manifest().encode())
        if how == "a new one":  # killed before the old files are removed
            restarted(copy, START_MS)
            for name, data in old.items():
                put(copy, name, data)
        copy.process_crash()
        assert not restarted(copy, START_MS).n.jobs
        assert set(old).isdisjoint(copy.names)
        assert not any(name.endswith(".left") for name in copy.names)


def broken_rewrite(cut_at: int) -> tuple[MemoryDisk, set[bytes], set[bytes], int]:
    """After a failed sync all is written anew, until the power goes; jobs before and after."""
    disk = MemoryDisk()
    lab = Lab(disk, policy="everysec")
    lab.start()
    ids = {lab.add() for _ in range(4)}
    journal = lab.committer.journal
    assert journal.sync()
    begun = disk.ops
    disk.cut_at = 0 if cut_at == 0 else begun + cut_at
    more = set()
    with suppress(PowerCut):
        disk.fsync_errors = 1
        more.add(lab.add())
        journal.sync()
        assert journal.is_broken
        for _ in range(30):
            more.add(lab.add())
    disk.fsync_errors = 0
    return disk, ids, ids | set(lab.n.jobs), disk.ops - begun


def test_a_crash_in_a_rewrite_after_a_failed_sync_never_stops_the_start() -> None:
    """J5.13 a segment that is `is_anew`, without such a snapshot | removes it: the rewrite was not
    finished, and nothing in it was answered as kept
    """
    total = broken_rewrite(0)[-1]
    assert total > 20
    shapes = set()
    for at in range(1, total + 1):
        disk, before, after, _ = broken_rewrite(at)
        disk.process_crash()
        shapes.add((disk.exists(log(2)), any(n.endswith(".snap") for n in disk.names)))
        again = restarted(disk, START_MS)
        assert before <= set(again.n.jobs) <= after, at
        assert not any(name.endswith(".left") for name in disk.names)
    assert shapes == {(False, False), (True, False), (True, True)}


def anew_beside_an_older_manifest() -> tuple[MemoryDisk, set[bytes]]:
    """All was written anew after a failed sync, and the manifest is of before that."""
    disk = MemoryDisk()
    lab = Lab(disk, policy="everysec")
    lab.start()
    ids = {lab.add() for _ in range(4)}
    old = {name: bytes(file.data) for name, file in disk.names.items()}
    disk.fsync_errors = 1
    ids.add(lab.add())
    assert not lab.committer.journal.sync()
    for _ in range(20):
        ids.add(lab.add())
    assert not lab.committer.journal.is_broken and disk.exists(f"{PATH}/{snapshot_name(2)}")
    lab.committer.close(START_MS)
    disk.process_crash()
    for name in (MAN, log(1)):
        put(disk, name, old[name])
    return disk, ids


def test_a_newer_snapshot_counts_with_the_segments_after_it() -> None:
    """J5.13 a snapshot with a higher number whose own segment is `is_anew`: complete, the manifest
    was not yet replaced | loads it and the segments after it
    """
    disk, ids = anew_beside_an_older_manifest()
    assert header_of(disk, 2).is_anew and not header_of(disk, 1).is_anew
    assert set(restarted(disk, START_MS).n.jobs) == ids
    disk, ids = anew_beside_an_older_manifest()
    report = check_dir(disk, PATH, BOOT_ID)
    assert report.manifest_problem == "older than the files here"
    repair_dir(disk, report)
    assert check_dir(disk, PATH, BOOT_ID).is_ok()
    assert set(restarted(disk, START_MS).n.jobs) == ids


def test_a_newer_snapshot_without_its_segment_stops_the_start() -> None:
    """J5.13 any other segment or snapshot with a higher number | stops (J5.2)"""
    disk, _ = anew_beside_an_older_manifest()
    disk.unlink(log(2))
    before = held(disk)
    with pytest.raises(JournalError, match="which continues .* is not there.*tuque journal repair"):
        restarted(disk, START_MS)
    assert held(disk) == before


def test_a_copy_in_the_documented_order_has_all_of_before_it() -> None:
    """J5.13 a segment with a higher number that begins with the record after the last one before
    it: docs/operations.md copies the manifest first, then the files from the newest to the oldest.
    """
    for rolls_at in range(6):
        disk = MemoryDisk()
        lab = Lab(disk)
        lab.start()
        journal = lab.committer.journal
        ids = []
        for i in range(30):
            ids.append(lab.add())
            if i in (9, 19):
                assert journal.next_segment(lab.n.now_ms)
        journal.prepare()
        copy = MemoryDisk()
        copy.makedirs(PATH)
        put(copy, MAN, bytes(disk.file(MAN).data))
        if rolls_at == 0:
            assert journal.next_segment(lab.n.now_ms)
        names = sorted((n for n in disk.names if n.endswith(".log")), reverse=True)
        for step, name in enumerate(names, 1):
            lab.add()
            put(copy, name, bytes(disk.file(name).data))
            lab.add()
            if step == rolls_at:
                assert journal.next_segment(lab.n.now_ms)
        assert check_dir(copy, PATH, BOOT_ID).is_ok()
        assert set(ids) <= set(restarted(copy, START_MS).n.jobs)
