"""Checks a closed journal, and moves damaged parts out of it (SPEC J7).

`check_dir` reads every frame and record and changes nothing. `repair_dir` moves unreadable
parts out of the files, keeps them beside them, and leaves a GAP record with the number of
missing records, so that the rest loads and the loss stays visible.
"""

import zlib
from typing import Final, final

from mypy_extensions import i64

from tuque.core.records.jobs import END, Records
from tuque.core.records.read import BadRecord, Record, decode
from tuque.store.disk import Disk
from tuque.store.frames import (
    DONE,
    FOUND,
    HEADER_BYTES,
    LEFT,
    MANIFEST,
    RETIRED,
    SEGMENT,
    SNAPSHOT,
    UNKNOWN_NODE,
    Boot,
    FrameScanner,
    JournalError,
    Manifest,
    SegmentHeader,
    WrongVersion,
    contents,
    decode_header,
    decode_manifest,
    fate_of,
    frame_header,
    keep_left,
    number_of,
    segment_name,
    snapshot_name,
    spare_name,
    write_all,
    write_file,
)
from tuque.store.replay import (
    after_bad,
    is_same_boot,
    is_torn,
    keep_aside,
)

TORN: Final = "torn"  # an incomplete write at the very end
DAMAGED: Final = "damaged"
REPEATED: Final = "records that the file has already"
MOVING: Final = ".moving"  # behind the name of a file that gets another one


@final
class Problem:
    """A part of a file that is not as written."""

    def __init__(self, offset: i64, size: i64, state: str, reason: str) -> None:
        self.offset = offset
        self.size = size  # 0: nothing to remove, but records are missing before `offset`
        self.state = state
        self.reason = reason
        self.first_seq: i64 = 0
        self.missing: i64 = 0  # records, going by the sequence
        self.now_ms: i64 = 0  # of the previous frame


@final
class FileReport:
    """The result of `check_file` for one segment or snapshot."""

    def __init__(self, path: str, name: str, kind: i64) -> None:
        self.path = path
        self.name = name
        self.kind = kind
        self.bytes: i64 = 0
        self.frames: i64 = 0
        self.records: i64 = 0
        self.first_seq: i64 = 0
        self.next_seq: i64 = 0
        self.now_ms: i64 = 0  # of the last frame
        self.salt = b""
        self.header: SegmentHeader | None = None
        self.is_ended = False
        self.problems: list[Problem] = []

    def state(self) -> str:
        """ok, torn or damaged."""
        state = "ok"
        for problem in self.problems:
            if problem.state == DAMAGED:
                return DAMAGED
            state = problem.state
        return state


@final
class DirReport:
    """The result of `check_dir` for a journal directory."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.manifest = Manifest()
        self.manifest_problem = ""
        self.files: list[FileReport] = []
        self.places: dict[str, str] = {}  # the file that has what belongs into each name
        self.copies: list[str] = []  # of what is there in its place
        self.newer: list[str] = []  # they count, though the manifest on disk lacks them (J5.13)
        self.unnamed: list[str] = []  # they do not count
        self.left: list[str] = []  # those of them that the next start keeps under another name
        self.empty: list[str] = []  # and those without a record
        self.absent: list[str] = []  # named by the manifest, but missing
        self.foreign: list[str] = []  # of another journal, in the place of an absent one

    def is_ok(self) -> bool:
        """Nothing to repair; a torn end is something."""
        if self.manifest_problem != "" or len(self.absent) > 0:
            return False
        if len(self.copies) > 0 or len(self.foreign) > 0:
            return False
        if any(name != place for name, place in self.places.items()):
            return False
        return all(len(file.problems) == 0 for file in self.files)


def check_dir(disk: Disk, path: str, boot_id: bytes = b"") -> DirReport:
    """Read the whole journal; raises JournalError if there is none or it has another version.

    `boot_id` is the machine's present one, b"" if unknown: it identifies a torn end (J5.9).
    """
    report = DirReport(path)
    numbered = [one for one in disk.listdir(path) if number_of(one.removesuffix(MOVING)) >= 0]
    report.places, copies = placed(disk, path, numbered)
    read_or_rebuild(disk, report)
    find_foreign(disk, report)
    find_stale(disk, report)
    find_newer(disk, report)
    names, salts = named_in(report.manifest)
    expected: i64 = 0
    last_ms: i64 = 0
    for i in range(len(names)):
        if names[i] not in report.places:
            report.absent.append(names[i])
            continue
        is_last = i == len(names) - 1
        file = check_file(
            disk,
            f"{path}/{report.places[names[i]]}",
            names[i],
            salts[i],
            is_last,
            expected,
            last_ms,
            boot_id,
        )
        check_join(report, file)
        report.files.append(file)
        last_ms = max(last_ms, file.now_ms)
        expected = 0 if file.kind == SNAPSHOT else file.next_seq
    for other in list(report.places):
        if other not in names:
            report.unnamed.append(report.places.pop(other))
    for other in copies:
        if other in names or report.manifest_problem != "" or other.endswith(MOVING):
            report.copies.append(other)
        else:
            report.unnamed.append(other)
    is_retired = disk.exists(f"{path}/{RETIRED}")
    for other in report.unnamed:
        if disk.size(f"{path}/{other}") <= HEADER_BYTES:
            report.empty.append(other)
        elif fate_of(disk, f"{path}/{other}", other, report.manifest, is_retired) == LEFT:
            report.left.append(other)
    return report


def named_in(m: Manifest) -> tuple[list[str], list[bytes]]:
    """The files of a manifest in order, and their salts."""
    names = list(m.segments)
    salts = list(m.salts)
    if m.snapshot != "":
        names.insert(0, m.snapshot)
        salts.insert(0, m.snapshot_salt)
    return names, salts


def find_foreign(disk: Disk, report: DirReport) -> None:
    """[J7] Files whose salt is not the one that the manifest has for them (J7.3).

    If they are the most, the manifest is of another journal. Raises JournalError if nothing tells
    which files belong together.
    """
    path = report.path
    names, salts = named_in(report.manifest)
    foreign: list[str] = []
    nodes: dict[bytes, str] = {}
    read: i64 = 0
    for i in range(len(names)):
        place = report.places.get(names[i], "")
        if place == "":
            continue
        header = decode_header(disk.read(f"{path}/{place}", 0, HEADER_BYTES), place)
        if header is None:
            continue
        read += 1
        if header.salt != salts[i]:
            foreign.append(names[i])
        if header.node_id != UNKNOWN_NODE:
            nodes[header.node_id] = place
    if report.manifest_problem != "":
        if len(nodes) > 1:
            listed = " and ".join(f"{node.decode()} ({nodes[node]})" for node in sorted(nodes))
            raise JournalError(
                f"{path} has files of the nodes {listed}, and no manifest that says which belong "
                "together: move those of the other nodes away"
            )
        return
    if 2 * len(foreign) > read:
        report.manifest_problem = "of another journal"
        report.manifest = rebuilt_manifest(disk, path, report.places)
        find_foreign(disk, report)
        return
    for name in foreign:
        report.foreign.append(report.places.pop(name))


def find_stale(disk: Disk, report: DirReport) -> None:
    """[J7] A manifest that names files which are gone, beside whole ones that it does not name, is
    older or newer than the files: these say what belongs together (J7.5).
    """
    names, _ = named_in(report.manifest)
    if report.manifest_problem != "" or all(name in report.places for name in names):
        return
    for name, place in report.places.items():
        if name in names or name in report.foreign or name.endswith(".tmp"):
            continue
        if disk.size(f"{report.path}/{place}") > HEADER_BYTES:
            report.manifest_problem = "older or newer than the files here"
            report.manifest = rebuilt_manifest(disk, report.path, report.places)
            find_foreign(disk, report)
            return


def find_newer(disk: Disk, report: DirReport) -> None:
    """[J5.13] Files that are newer than the manifest; the segments after its last one count."""
    if report.manifest_problem != "":
        return
    found = contents(disk, report.path, report.manifest, report.places)
    for name in found.foreign:
        report.foreign.append(report.places.pop(name))
    if len(found.snapshots) > 0:
        report.manifest_problem = "older than the files here"
        report.manifest = rebuilt_manifest(disk, report.path, report.places)
        find_foreign(disk, report)
        return
    report.manifest = found.manifest
    report.newer = found.newer


def read_or_rebuild(disk: Disk, report: DirReport) -> None:
    """The manifest of the report; raises JournalError if there is nothing to make one from."""
    path = report.path
    name = f"{path}/{MANIFEST}"
    if disk.exists(name):
        try:
            report.manifest = decode_manifest(disk.read(name, 0, disk.size(name)), name)
        except WrongVersion:
            raise
        except JournalError:
            report.manifest_problem = "damaged"
            report.manifest = rebuilt_manifest(disk, path, report.places)
    elif len(report.places) > 0:
        report.manifest_problem = "missing"
        report.manifest = rebuilt_manifest(disk, path, report.places)
    else:
        raise JournalError(f"{path} holds no journal")


def placed(disk: Disk, path: str, names: list[str]) -> tuple[dict[str, str], list[str]]:
    """The file of each name, going by the number in its header; copies of what is there already.

    A file whose header is damaged stays where it is, unless another one says that it belongs there.
    """
    places: dict[str, str] = {}
    strayed: list[tuple[str, str]] = []
    unsaid: set[str] = set()  # names whose file has no header that says so
    for name in sorted(names):
        base = name.removesuffix(MOVING)
        header = decode_header(disk.read(f"{path}/{name}", 0, HEADER_BYTES), name)
        if header is not None and header.kind == kind_of(base):
            number = int(header.number)
        else:
            number = int(number_of(base))
            unsaid.add(name)
        own = segment_name(number) if kind_of(base) == SEGMENT else snapshot_name(number)
        if name == own or base.endswith(".tmp"):
            places[name] = name
        else:
            strayed.append((own, name))
    copies: list[str] = []
    for own, name in strayed:
        if own not in places:
            places[own] = name
        elif places[own] in unsaid:
            copies.append(places[own])
            places[own] = name
        else:
            copies.append(name)
    return places, copies


def kind_of(name: str) -> i64:
    """What a file of that name has."""
    return SEGMENT if name.endswith(".log") else SNAPSHOT


def rebuilt_manifest(disk: Disk, path: str, places: dict[str, str]) -> Manifest:
    """A manifest derived from the files: the newest whole snapshot and what follows.

    Without a whole one: the segments if they begin with the first record, else a part of one.
    """
    m = Manifest()
    first: i64 = 0
    is_whole = False
    for name in sorted(places, reverse=True):
        if not name.endswith(".snap"):
            continue
        header = decode_header(disk.read(f"{path}/{places[name]}", 0, HEADER_BYTES), name)
        if header is None:
            continue
        is_whole = check_file(disk, f"{path}/{places[name]}", name, b"", False, 0, 0).is_ended
        if m.snapshot == "" or is_whole:
            first = number_of(name)
            m.snapshot = name
            m.snapshot_salt = header.salt
        if is_whole:
            break
    for name in sorted(places):
        if not name.endswith(".log"):
            continue
        header = decode_header(disk.read(f"{path}/{places[name]}", 0, HEADER_BYTES), name)
        if not is_whole and header is not None and header.first_seq == 1:
            first = 0
            m.snapshot = ""
            m.snapshot_salt = b""
        if header is None and disk.size(f"{path}/{places[name]}") == 0:
            continue  # made for later (J1.5)
        if number_of(name) >= first:
            m.segments.append(name)
            m.salts.append(b"\0" * 8 if header is None else header.salt)
    return m


def check_join(report: DirReport, file: FileReport) -> None:
    """Records missing between two files count as missing at the end of the first."""
    if len(report.files) == 0 or file.kind == SNAPSHOT:
        return
    before = report.files[len(report.files) - 1]
    if before.kind == SNAPSHOT or file.first_seq <= before.next_seq:
        return
    missing = file.first_seq - before.next_seq
    count = len(before.problems)
    if count > 0 and before.problems[count - 1].offset + before.problems[count - 1].size >= (
        before.bytes
    ):
        problem = before.problems[count - 1]
        problem.missing += missing
    else:
        problem = Problem(before.bytes, 0, DAMAGED, "records missing at the end")
        problem.first_seq = before.next_seq
        problem.missing = missing
        problem.now_ms = before.now_ms
        before.problems.append(problem)
    before.next_seq = file.first_seq


def check_file(
    disk: Disk,
    path: str,
    name: str,
    salt: bytes,
    is_last: bool,
    expected: i64,
    last_ms: i64,
    boot_id: bytes = b"",
) -> FileReport:
    """Read one file to its end. `salt` is from the manifest, b"" if there is none.

    `expected` is the first record it should hold, 0 if unknown; `last_ms` the latest instant of
    the files before.
    """
    kind: i64 = SEGMENT if name.endswith(".log") else SNAPSHOT
    report = FileReport(path, name, kind)
    report.bytes = disk.size(path)
    header = decode_header(disk.read(path, 0, HEADER_BYTES), path)
    report.header = header
    report.salt = salt
    if header is None:
        size = min(report.bytes, i64(HEADER_BYTES))
        problem = Problem(0, size, DAMAGED, "the file's header is damaged")
        report.problems.append(problem)
        problem.first_seq = report.next_seq = expected if kind == SEGMENT else 1
        report.now_ms = last_ms
    else:
        report.salt = header.salt
        report.next_seq = header.first_seq
        report.now_ms = header.boot.wall_ms
    report.first_seq = report.next_seq
    if report.bytes > HEADER_BYTES and len(report.salt) == 8:
        scanner = FrameScanner(disk, path, report.salt, HEADER_BYTES)
        is_booted_once = header is not None and is_same_boot(header.boot, Boot(0, boot_id, 0))
        check_frames(report, scanner, is_last and kind == SEGMENT, is_booted_once)
    if kind == SNAPSHOT and not report.is_ended:
        problem = Problem(report.bytes, 0, DAMAGED, "the snapshot's end is missing")
        problem.first_seq = report.next_seq
        report.problems.append(problem)
    return report


def check_frames(
    report: FileReport, scanner: FrameScanner, may_be_torn: bool, is_booted_once: bool
) -> None:
    """Walk the frames and note every problem."""
    while True:
        found = scanner.next()
        if found == DONE:
            return
        if found == FOUND:
            check_frame(report, scanner)
            continue
        offset = scanner.offset
        problem = Problem(offset, 0, DAMAGED, scanner.reason)
        problem.first_seq = report.next_seq
        problem.now_ms = report.now_ms
        report.problems.append(problem)
        if may_be_torn:
            is_found, durable_seq = after_bad(scanner)
            if is_torn(is_found, durable_seq, report.next_seq, is_booted_once):
                problem.state = TORN
                problem.size = scanner.size - offset
                return
        if scanner.resync():
            first_seq = scanner.frame.first_seq
            problem.missing = max(first_seq - report.next_seq, 0)
            if report.next_seq == 0:  # the header with the first record's number is damaged, too
                problem.missing = 0
                report.first_seq = first_seq
            report.next_seq = max(report.next_seq, first_seq)  # less: of a copy (J7.2)
        problem.size = scanner.offset - offset


def check_frame(report: FileReport, scanner: FrameScanner) -> None:
    """Check a good frame's position in the sequence, and its records."""
    frame = scanner.frame
    if report.next_seq == 0:
        report.next_seq = frame.first_seq
        report.first_seq = frame.first_seq
    if frame.first_seq < report.next_seq:
        note_repeated(report, frame.offset, frame.end)
        return
    if frame.first_seq > report.next_seq:
        problem = Problem(frame.offset, 0, DAMAGED, "records missing")
        problem.first_seq = report.next_seq
        problem.missing = frame.first_seq - report.next_seq
        problem.now_ms = report.now_ms
        report.problems.append(problem)
    report.frames += 1
    report.next_seq = frame.first_seq + frame.count
    report.now_ms = frame.now_ms
    r = Record()
    pos: i64 = 0
    try:
        while pos < len(frame.payload):
            pos = decode(frame.payload, pos, r)
            report.records += 1
            if r.kind == END:
                report.is_ended = True
    except BadRecord as e:
        problem = Problem(frame.offset, frame.end - frame.offset, DAMAGED, str(e))
        problem.first_seq = frame.first_seq
        problem.missing = frame.count
        problem.now_ms = frame.now_ms
        report.problems.append(problem)


def note_repeated(report: FileReport, offset: i64, end: i64) -> None:
    """Note a frame whose records came before; those in a row are one problem."""
    count = len(report.problems)
    if count > 0:
        last = report.problems[count - 1]
        if last.reason == REPEATED and last.offset + last.size == offset:
            last.size = end - last.offset
            return
    problem = Problem(offset, end - offset, DAMAGED, REPEATED)
    problem.first_seq = report.next_seq
    report.problems.append(problem)


def repair_dir(disk: Disk, report: DirReport) -> list[str]:
    """Repair what the report names; returns lines that describe the repair.

    Nothing is deleted: removed parts are kept beside the file.
    """
    done: list[str] = []
    put_in_place(disk, report, done)
    for file in report.files:
        if len(file.problems) > 0:
            repair_file(disk, file, done)
    m = report.manifest
    if not report.is_ok():
        keep_unnamed(disk, report, done)
    for name in report.absent:
        done.append(f"{name}: gone; taken out of the manifest, what it held is lost")
        if name == m.snapshot:
            m.snapshot = ""
        else:
            index = m.segments.index(name)
            m.segments.pop(index)
            m.salts.pop(index)
    if report.manifest_problem != "" or len(report.absent) + len(report.newer) > 0:
        path = f"{report.path}/{MANIFEST}"
        for file in report.files:
            if file.name in m.segments:
                m.salts[m.segments.index(file.name)] = file.salt
        if disk.exists(path):
            disk.rename(path, path + ".quarantine")
        write_file(disk, path + ".tmp", m.encode())
        disk.rename(path + ".tmp", path)
        done.append(f"{MANIFEST}: written anew from the files in the directory")
    disk.fsync_dir(report.path)
    return done


def put_in_place(disk: Disk, report: DirReport, done: list[str]) -> None:
    """[J7] Set copies aside, give each file the name that its header says (J7.2).

    If this ends half-way, the next check finds the files by their headers again.
    """
    path = report.path
    for name in report.copies:
        aside = spare_name(disk, f"{path}/{name.removesuffix(MOVING)}.copy")
        disk.rename(f"{path}/{name}", aside)
        done.append(f"{name}: a copy of a file that is there; moved to {aside}")
    for name in report.foreign:
        aside = spare_name(disk, f"{path}/{name}.foreign")
        disk.rename(f"{path}/{name}", aside)
        done.append(f"{name}: of another journal; moved to {aside}")
    moves = {own: name for own, name in report.places.items() if own != name}
    for name in moves.values():
        if not name.endswith(MOVING):
            disk.rename(f"{path}/{name}", f"{path}/{name}{MOVING}")
    for own, name in moves.items():
        disk.rename(f"{path}/{name.removesuffix(MOVING)}{MOVING}", f"{path}/{own}")
        done.append(f"{name.removesuffix(MOVING)}: holds what belongs to {own}; renamed")
    for file in report.files:
        file.path = f"{path}/{file.name}"


def keep_unnamed(disk: Disk, report: DirReport, done: list[str]) -> None:
    """[J7] The next start removes what the manifest does not name: files with records get names
    that it leaves alone (J7.5).
    """
    for name in report.unnamed:
        if name in report.empty:
            continue
        aside = keep_left(disk, report.path, name)
        done.append(f"{name}: not part of the journal now; moved to {aside}")


def repair_file(disk: Disk, file: FileReport, done: list[str]) -> None:
    """Write the file anew without its bad parts, and replace the old one."""
    out = file.path + ".repaired"
    header = file.header
    if header is None:
        if len(file.salt) != 8:
            file.salt = disk.salt()
        boot = Boot(file.now_ms, b"", 0)
        number = number_of(file.name)
        header = SegmentHeader(file.kind, number, file.first_seq, file.salt, UNKNOWN_NODE, boot)
    if disk.exists(out):
        disk.unlink(out)
    handle = disk.open_append(out)
    try:
        write_all(disk, handle, header.encode())
        at: i64 = HEADER_BYTES
        for problem in file.problems:
            if problem.offset >= HEADER_BYTES:
                copy_range(disk, file.path, at, problem.offset, handle)
                at = problem.offset + problem.size
            elif problem.size == HEADER_BYTES:
                done.append(f"{file.name}: header written anew")
            set_aside(disk, file, problem, done)
            if problem.missing > 0:
                write_all(disk, handle, gap_frame(file, problem))
        copy_range(disk, file.path, at, file.bytes, handle)
        if file.kind == SNAPSHOT and not file.is_ended:
            write_all(disk, handle, end_frame(file))
        disk.fdatasync(handle)
    finally:
        disk.close(handle)
    disk.rename(out, file.path)


def set_aside(disk: Disk, file: FileReport, problem: Problem, done: list[str]) -> None:
    """Keep the bad bytes beside the file, and report it."""
    if problem.size > 0:
        label = "torn" if problem.state == TORN else "quarantine"
        aside = keep_aside(disk, file.path, label, problem.offset, problem.size)
        done.append(
            f"{file.name}: {problem.size} bytes at {problem.offset} ({problem.reason}) "
            f"moved to {aside}"
        )
    if problem.missing > 0:
        done.append(f"{file.name}: {problem.missing} records missing at {problem.offset}")


def gap_frame(file: FileReport, problem: Problem) -> bytes:
    """A frame that stands for the missing records."""
    records = Records()
    records.gap(problem.missing, problem.size)
    payload = records.take()
    salt_crc = zlib.crc32(file.salt)
    head = frame_header(payload, problem.first_seq, problem.missing, problem.now_ms, 0, salt_crc)
    return head + payload


def end_frame(file: FileReport) -> bytes:
    """An end mark for a snapshot that lost its own."""
    records = Records()
    records.end(file.records, file.next_seq - 1)
    payload = records.take()
    return frame_header(payload, file.next_seq, 1, 0, 0, zlib.crc32(file.salt)) + payload


def copy_range(disk: Disk, path: str, start: i64, end: i64, handle: int) -> None:
    """Append the bytes from `start` to `end` of the file to the handle."""
    while start < end:
        part = disk.read(path, start, min(end - start, i64(4 << 20)))
        if len(part) == 0:
            return
        write_all(disk, handle, part)
        start += len(part)
