"""Damage is reported with its place, set aside by repair, and never skipped in silence."""

from __future__ import annotations

import os
import random
from contextlib import suppress
from pathlib import Path

import pytest
from journal_lab import BOOT_ID, PATH, START_MS, Lab, restarted

from tuque.store.disk import Disk, MemoryDisk, PowerCut
from tuque.store.frames import FRAME_BYTES, HEADER_BYTES, MANIFEST, JournalError, decode_header
from tuque.store.repair import DAMAGED, TORN, check_dir, named_in, repair_dir


def journal_of(count: int, rewrite: bool = False) -> tuple[Lab, list[bytes], list[int]]:
    """A stopped server's journal: jobs, and where the record of each begins."""
    lab = Lab()
    lab.start()
    name = path_of(lab.disk)
    ids, offsets = [], []
    for i in range(count):
        offsets.append(lab.disk.size(name))
        ids.append(lab.add(b"q", b"body %d" % i))
    if rewrite:
        lab.rewrite(3)
    lab.committer.close(lab.n.now_ms)
    return lab, ids, offsets


def path_of(disk: MemoryDisk, tail: str = ".log") -> str:
    return f"{PATH}/" + max(n for n in disk.listdir(PATH) if n.endswith(tail))


def flip(disk: MemoryDisk, path: str, offset: int, size: int = 1) -> None:
    for i in range(size):
        disk.file(path).data[offset + i] ^= 0x5A


def test_a_sound_journal_is_ok() -> None:
    lab, _, _ = journal_of(5, rewrite=True)
    report = check_dir(lab.disk, PATH)
    assert report.is_ok()
    assert [file.records for file in report.files] == [6, 1]
    before = {n: bytes(f.data) for n, f in lab.disk.names.items()}
    assert repair_dir(lab.disk, report) == []
    assert {n: bytes(f.data) for n, f in lab.disk.names.items()} == before


@pytest.mark.parametrize("where", ["marker", "length", "payload", "checksum"])
def test_damage_in_the_middle_is_set_aside(where: str) -> None:
    lab, ids, offsets = journal_of(9)
    path = path_of(lab.disk)
    at = {"marker": 1, "length": 5, "payload": 60, "checksum": 41}[where]
    flip(lab.disk, path, offsets[4] + at)
    before = bytes(lab.disk.file(path).data)
    with pytest.raises(JournalError, match=f"damaged at offset {offsets[4]}.*Nothing was loaded"):
        restarted(lab.disk, START_MS)
    assert bytes(lab.disk.file(path).data) == before
    lab.disk.process_crash()
    report = check_dir(lab.disk, PATH)
    (problem,) = report.files[0].problems
    assert (problem.state, problem.offset, problem.missing) == (DAMAGED, offsets[4], 1)
    lines = repair_dir(lab.disk, report)
    aside = f"{path}.quarantine-{offsets[4]}"
    assert any(aside in line for line in lines)
    assert bytes(lab.disk.file(aside).data) == before[offsets[4] : offsets[5]]
    assert check_dir(lab.disk, PATH).is_ok()
    again = Lab(lab.disk)
    loader = again.start()
    assert loader.gap_records == 1
    assert set(again.n.jobs) == set(ids) - {ids[4]}


def test_a_whole_frame_that_is_gone_is_missed() -> None:
    lab, ids, offsets = journal_of(9)
    del lab.disk.file(path_of(lab.disk)).data[offsets[4] : offsets[6]]
    with pytest.raises(JournalError, match="records 5 to 6 are missing"):
        restarted(lab.disk, START_MS)
    lab.disk.process_crash()
    report = check_dir(lab.disk, PATH)
    (problem,) = report.files[0].problems
    assert (problem.size, problem.missing) == (0, 2)
    repair_dir(lab.disk, report)
    assert set(restarted(lab.disk, START_MS).n.jobs) == set(ids) - {ids[4], ids[5]}


@pytest.mark.parametrize("tail", [".snap", ".log"])
@pytest.mark.parametrize("part", ["all", "half", "no header"])
def test_a_file_that_is_there_twice(tail: str, part: str) -> None:
    """One repair is enough, and nothing counts as missing: a copy was appended to the file."""
    lab, ids, _ = journal_of(9, rewrite=tail == ".snap")
    path = path_of(lab.disk, tail)
    data = lab.disk.file(path).data
    begin = HEADER_BYTES if part == "no header" else 0
    before = len(data)
    data += data[begin : before // 2 if part == "half" else before]
    report = check_dir(lab.disk, PATH)
    (file,) = [file for file in report.files if file.problems]
    assert [one.missing for one in file.problems] == [0] * len(file.problems)
    assert len(file.problems) <= 3, "frames in a row are one problem"
    repair_dir(lab.disk, report)
    assert check_dir(lab.disk, PATH).is_ok()
    left = len(lab.disk.file(path).data) - before
    assert 0 <= left < 2 * FRAME_BYTES, "at most a mark, which has no records"
    again = Lab(lab.disk)
    assert again.start().gap_records == 0
    assert set(again.n.jobs) == set(ids)


def test_several_damaged_places_and_a_torn_end() -> None:
    lab, ids, offsets = journal_of(12)
    path = path_of(lab.disk)
    flip(lab.disk, path, offsets[2] + 3, 200)  # two frames
    flip(lab.disk, path, offsets[7])
    del lab.disk.file(path).data[offsets[11] + 50 :]
    report = check_dir(lab.disk, PATH)
    states = [problem.state for problem in report.files[0].problems]
    assert states == [DAMAGED, DAMAGED, TORN]
    repair_dir(lab.disk, report)
    assert check_dir(lab.disk, PATH).is_ok()
    again = restarted(lab.disk, START_MS)
    lost = {ids[i] for i in (7, 11)} | {ids[i] for i in range(12) if ids[i] not in again.n.jobs}
    assert set(again.n.jobs) == set(ids) - lost and len(lost) <= 5
    assert path + f".torn-{offsets[11]}" in lab.disk.names


def test_damage_of_a_snapshot_and_of_headers() -> None:
    for tail in (".snap", ".log"):
        lab, ids, _ = journal_of(9, rewrite=True)
        path = path_of(lab.disk, tail)
        flip(lab.disk, path, 20)
        with pytest.raises(JournalError, match="header is damaged"):
            restarted(lab.disk, START_MS)
        lab.disk.process_crash()
        repair_dir(lab.disk, check_dir(lab.disk, PATH))
        assert check_dir(lab.disk, PATH).is_ok()
        assert set(restarted(lab.disk, START_MS).n.jobs) == set(ids)
    lab, ids, _ = journal_of(9, rewrite=True)
    flip(lab.disk, path_of(lab.disk, ".snap"), HEADER_BYTES + 60)
    with pytest.raises(JournalError):
        restarted(lab.disk, START_MS)
    lab.disk.process_crash()
    repair_dir(lab.disk, check_dir(lab.disk, PATH))
    assert set(restarted(lab.disk, START_MS).n.jobs) == set(ids[3:])
    lab, ids, _ = journal_of(9, rewrite=True)
    path = path_of(lab.disk, ".snap")
    del lab.disk.file(path).data[lab.disk.size(path) - 30 :]  # its end
    with pytest.raises(JournalError):
        restarted(lab.disk, START_MS)
    lab.disk.process_crash()
    repair_dir(lab.disk, check_dir(lab.disk, PATH))
    assert set(restarted(lab.disk, START_MS).n.jobs) == set(ids)


@pytest.mark.parametrize("how", ["gone", "damaged"])
def test_a_manifest_is_written_anew_from_the_files(how: str) -> None:
    lab, ids, _ = journal_of(9, rewrite=True)
    if how == "gone":
        lab.disk.unlink(f"{PATH}/{MANIFEST}")
    else:
        flip(lab.disk, f"{PATH}/{MANIFEST}", 4)
    with pytest.raises(JournalError, match="tuque journal repair"):
        restarted(lab.disk, START_MS)
    lab.disk.process_crash()
    report = check_dir(lab.disk, PATH)
    assert not report.is_ok()
    repair_dir(lab.disk, report)
    assert check_dir(lab.disk, PATH).is_ok()
    assert set(restarted(lab.disk, START_MS).n.jobs) == set(ids)


def test_a_lost_segment_is_named() -> None:
    lab, ids, _ = journal_of(4)
    lab = restarted(lab.disk, START_MS, seed=2)
    more = [lab.add() for _ in range(3)]
    lab.committer.close(START_MS)
    lab.disk.unlink(f"{PATH}/journal-00000001.log")
    with pytest.raises(JournalError, match=r"cannot read .*journal-00000001\.log"):
        restarted(lab.disk, START_MS)
    lab.disk.process_crash()
    report = check_dir(lab.disk, PATH)
    assert report.absent == ["journal-00000001.log"]
    repair_dir(lab.disk, report)
    assert set(restarted(lab.disk, START_MS, seed=3).n.jobs) == set(more)
    assert ids


def test_holes_that_a_power_cut_leaves_are_no_damage_before_the_next_fsync() -> None:
    """J5.9 Otherwise the place is a tail, and is kept: when the power goes, pages that were not
    synced may be missing in any order.
    """
    lab = Lab(policy="everysec")
    lab.start()
    first = lab.add()
    lab.committer.journal.sync()
    path = path_of(lab.disk)
    offset = lab.disk.size(path)
    for _ in range(5):
        lab.add()
    flip(lab.disk, path, offset + 20)
    lab.disk.process_crash()
    with pytest.raises(JournalError, match=f"damaged at offset {offset}"):
        restarted(lab.disk, START_MS)  # the machine ran on: a hole cannot come from a write
    lab.disk.process_crash()
    assert check_dir(lab.disk, PATH).files[0].problems[0].state == TORN
    assert check_dir(lab.disk, PATH, BOOT_ID).files[0].problems[0].state == DAMAGED
    again = Lab(lab.disk, boot_id=b"the next boot")
    loader = again.start()
    assert set(again.n.jobs) == {first}
    assert loader.cut_bytes > 0
    assert f"{path}.torn-{offset}" in lab.disk.names
    assert f"kept in {path}.torn-{offset}" in loader.notes[0]


def test_any_noise_in_the_files_is_repaired_or_refused() -> None:
    rng = random.Random(4)
    for _ in range(120):
        lab, ids, _ = journal_of(6, rewrite=rng.random() < 0.5)
        for _ in range(rng.randrange(1, 4)):
            name = rng.choice([n for n in lab.disk.names if not n.endswith("lock")])
            data = lab.disk.file(name).data
            at = rng.randrange(len(data))
            if rng.random() < 0.3:
                del data[at:]
            else:
                data[at : at + rng.randrange(1, 200)] = rng.randbytes(rng.randrange(200))
        try:
            report = check_dir(lab.disk, PATH)
        except JournalError:
            continue
        repair_dir(lab.disk, report)
        assert check_dir(lab.disk, PATH).is_ok()
        assert set(restarted(lab.disk, START_MS).n.jobs) <= set(ids)


# ---- whole files in the place of others


def three_segments(salts: int = 0) -> tuple[MemoryDisk, list[str]]:
    """The closed journal of 30 jobs, ten in each segment, and the paths of these."""
    disk = MemoryDisk()
    disk.salts = salts
    lab = Lab(disk)
    lab.start()
    for i in range(30):
        lab.add(b"q", b"body %d" % i)
        if i in (9, 19):
            assert lab.committer.journal.next_segment(lab.n.now_ms)
    lab.committer.close(lab.n.now_ms)
    return disk, sorted(f"{PATH}/{n}" for n in disk.listdir(PATH) if n.endswith(".log"))


def put(disk: MemoryDisk, path: str, data: bytes) -> None:
    """Write a whole file."""
    handle = disk.open_append(path)
    disk.file(path).data[:] = data
    disk.close(handle)
    disk.fsync_dir(PATH)


PLACES = {  # the file in each place, and how many of the 30 jobs are left
    "the last two swapped": ([0, 2, 1], 30),
    "the first two swapped": ([1, 0, 2], 30),
    "all in a circle": ([1, 2, 0], 30),
    "the last one twice, behind": ([0, 1, 2, 2], 30),
    "the first one twice, behind": ([0, 1, 2, 0], 30),
    "the second one over the last": ([0, 1, 1], 20),
    "the last one over the second": ([0, 2, 2], 20),
    "the first one over the last": ([0, 1, 0], 20),
}


@pytest.mark.parametrize("has_manifest", [True, False])
@pytest.mark.parametrize(("order", "left"), PLACES.values(), ids=PLACES)
def test_whole_files_in_the_place_of_others(
    order: list[int], left: int, has_manifest: bool
) -> None:
    """J7.2 A file in the place of another one gets back its own, by the number in its header; a
    copy of a file that is there gets the suffix `.copy`.
    """
    disk, paths = three_segments()
    held = [bytes(disk.file(path).data) for path in paths]
    places = [*paths, paths[-1].replace("3.log", "4.log")]
    for path, at in zip(places, order, strict=False):
        put(disk, path, held[at])
    if not has_manifest:
        disk.unlink(f"{PATH}/{MANIFEST}")
    report = check_dir(disk, PATH, BOOT_ID)
    is_extra = len(order) > 3 and has_manifest  # which the manifest does not name
    assert report.is_ok() is is_extra
    repair_dir(disk, report)
    assert check_dir(disk, PATH, BOOT_ID).is_ok()
    kept = {bytes(file.data) for file in disk.names.values()}
    assert {held[at] for at in order[1:]} <= kept  # nothing is thrown away
    assert len(restarted(disk, START_MS).n.jobs) == left


def test_a_repair_that_ends_while_files_move_goes_on() -> None:
    """J7.2 A file in the place of another one gets back its own, by the number in its header; a
    copy of a file that is there gets the suffix `.copy`.
    """
    for most in range(1, 12):
        disk, paths = three_segments()
        held = [bytes(disk.file(path).data) for path in paths]
        for path, at in zip(paths, [2, 0, 1], strict=True):
            put(disk, path, held[at])
        report = check_dir(disk, PATH, BOOT_ID)
        disk.cut_at = disk.ops + most
        with suppress(PowerCut):
            repair_dir(disk, report)
        disk.process_crash()
        repair_dir(disk, check_dir(disk, PATH, BOOT_ID))
        assert len(restarted(disk, START_MS).n.jobs) == 30


@pytest.mark.parametrize("is_older", [True, False])
def test_a_manifest_that_is_older_or_newer_than_the_files(is_older: bool) -> None:
    """J7.5 a repair uses the newest whole snapshot and the segments after it."""
    disk, ids = two_states(is_older)
    with pytest.raises(JournalError, match="cannot read"):
        restarted(disk, START_MS)
    disk.process_crash()
    held = {bytes(file.data) for name, file in disk.names.items() if MANIFEST not in name}
    report = check_dir(disk, PATH, BOOT_ID)
    assert (report.manifest_problem, report.is_ok()) == (
        "older or newer than the files here",
        False,
    )
    repair_dir(disk, report)
    assert check_dir(disk, PATH, BOOT_ID).is_ok()
    assert set(restarted(disk, START_MS).n.jobs) == ids
    disk.process_crash()
    assert held <= {bytes(file.data) for file in disk.names.values()}


def test_a_repair_keeps_what_the_manifest_does_not_name() -> None:
    """J7.5 After any repair, files with records that the manifest does not name get the suffix
    `.left`, so that the next start does not remove them.
    """
    disk, ids = two_states(True)
    for name, file in two_states(False)[0].names.items():
        if name not in disk.names:
            put(disk, name, bytes(file.data))
    disk.unlink(f"{PATH}/{MANIFEST}")
    held = {bytes(file.data) for file in disk.names.values()}
    repair_dir(disk, check_dir(disk, PATH, BOOT_ID))
    assert set(restarted(disk, START_MS).n.jobs) == ids
    assert held <= {bytes(file.data) for file in disk.names.values()}
    assert disk.exists(f"{PATH}/journal-00000001.log.left")


def test_a_file_without_a_header_in_the_place_of_a_segment() -> None:
    """J7.2 A file in the place of another one gets back its own, by the number in its header.

    The segment that was made for later has no header yet, and was swapped with the last one.
    """
    disk, paths = three_segments()
    later = paths[-1].replace("3.log", "4.log")
    put(disk, later, bytes(disk.file(paths[-1]).data))
    put(disk, paths[-1], bytes(4096))
    repair_dir(disk, check_dir(disk, PATH, BOOT_ID))
    assert len(restarted(disk, START_MS).n.jobs) == 30


def two_states(is_older: bool) -> tuple[MemoryDisk, set[bytes]]:
    """The files of before a rewrite with the manifest of after it, or the other way round."""
    lab, ids, _ = journal_of(6)
    before = {name: bytes(file.data) for name, file in lab.disk.names.items()}
    lab = restarted(lab.disk, START_MS, seed=2)
    lab.rewrite(3)
    lab.committer.close(START_MS)
    lab.disk.process_crash()
    after = {name: bytes(file.data) for name, file in lab.disk.names.items()}
    files, other = (after, before) if is_older else (before, after)
    disk = MemoryDisk()
    for name, data in files.items():
        put(disk, name, other[name] if name.endswith(MANIFEST) else data)
    return disk, set(ids)


def test_a_snapshot_without_its_end_is_not_the_newest_whole_one() -> None:
    """J7.5 a repair uses the newest whole snapshot and the segments after it."""
    disk, ids = two_states(False)
    name = max(n for n in named_in(check_dir(two_states(True)[0], PATH).manifest)[0])
    assert name.endswith(".snap")
    put(disk, f"{PATH}/{name}", torn_snapshot())
    repair_dir(disk, check_dir(disk, PATH, BOOT_ID))
    assert set(restarted(disk, START_MS).n.jobs) == ids


def torn_snapshot() -> bytes:
    """The first half of a snapshot."""
    lab, _, _ = journal_of(6, rewrite=True)
    data = bytes(lab.disk.file(path_of(lab.disk, ".snap")).data)
    return data[: len(data) // 2]


@pytest.mark.parametrize("at", [0, 1, 2])
def test_a_file_of_another_journal_is_moved_away(at: int) -> None:
    """J7.3 A file with another salt than the manifest has is of another journal: the start stops
    (J5.2), and a repair gives it the suffix `.foreign`.
    """
    disk, paths = three_segments()
    other, others = three_segments(50)
    stray = bytes(other.file(others[at]).data)
    put(disk, paths[at], stray)
    with pytest.raises(JournalError, match="is of another journal"):
        restarted(disk, START_MS)
    disk.process_crash()
    report = check_dir(disk, PATH, BOOT_ID)
    assert report.foreign == [paths[at].removeprefix(f"{PATH}/")]
    assert not report.is_ok()
    repair_dir(disk, report)
    assert check_dir(disk, PATH, BOOT_ID).is_ok()
    assert bytes(disk.file(f"{paths[at]}.foreign").data) == stray
    assert len(restarted(disk, START_MS).n.jobs) == 20


def test_a_manifest_of_another_journal_is_written_anew() -> None:
    """J7.3 If most files are so, the manifest is the foreign one."""
    disk, _ = three_segments()
    other, _ = three_segments(50)
    put(disk, f"{PATH}/{MANIFEST}", bytes(other.file(f"{PATH}/{MANIFEST}").data))
    with pytest.raises(JournalError, match="is of another journal"):
        restarted(disk, START_MS)
    disk.process_crash()
    report = check_dir(disk, PATH, BOOT_ID)
    assert (report.manifest_problem, report.foreign) == ("of another journal", [])
    repair_dir(disk, report)
    assert len(restarted(disk, START_MS).n.jobs) == 30


def test_files_of_two_nodes_are_not_guessed_at() -> None:
    """J7.3 Without a manifest, files of several nodes are refused."""
    disk, paths = three_segments()
    data = bytearray(disk.file(paths[1]).data)
    header = decode_header(bytes(data[:HEADER_BYTES]), "")
    assert header is not None
    header.node_id = b"e" * 40
    data[:HEADER_BYTES] = header.encode()
    put(disk, paths[1], bytes(data))
    disk.unlink(f"{PATH}/{MANIFEST}")
    with pytest.raises(JournalError, match="files of the nodes .* and eeee"):
        check_dir(disk, PATH, BOOT_ID)


@pytest.mark.parametrize("at", [0, 1, 2])
@pytest.mark.parametrize("size", [0, 1, 40, HEADER_BYTES - 1])
def test_a_header_that_is_cut_moves_no_clock(at: int, size: int) -> None:
    """J7.4 A header that a repair writes anew has the time of the last record before it, so that
    the next start sees no jump of the clock.
    """
    disk, paths = three_segments()
    put(disk, paths[at], bytes(disk.file(paths[at]).data[:size]))
    repair_dir(disk, check_dir(disk, PATH, BOOT_ID))
    assert check_dir(disk, PATH, BOOT_ID).is_ok()
    again = Lab(disk)
    loader = again.start()
    assert (loader.shift_ms, len(again.n.jobs)) == (0, 20)


def test_a_pipe_in_the_place_of_a_segment_is_an_error(tmp_path: Path) -> None:
    """To open it would wait for another program."""
    os.mkfifo(tmp_path / "journal-00000001.log")
    for use in (lambda path: Disk().read(path, 0, 10), Disk().open_append):
        with pytest.raises(OSError):
            use(str(tmp_path / "journal-00000001.log"))
