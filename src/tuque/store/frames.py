"""The files of the journal: names, headers, frames, manifest (SPEC J1, J3).

A journal directory holds segments `journal-00000001.log`, at most one finished
snapshot `snapshot-00000002.snap` (all jobs at the start of the segment of that
number), a `lock`, and the `manifest`, which alone names the valid files. A file is a
header followed by frames. A frame holds the records of one or more turns of the server:
it is valid as a whole or not at all. Checksums start from a random salt of the file, so
that no client can put bytes into a job that pass for a frame. A frame without records is
a mark: like every frame, it has what is durable before it.
"""

import zlib
from struct import Struct
from typing import Final, final

from mypy_extensions import i64

from tuque.store.disk import Disk

WINDOW_BYTES: Final = 96 << 10  # a larger block would be a new mapping in each read (M1.7)

VERSION: Final = 5  # raise it with any change that older programs would misread (J1.4)
OLDEST: Final = 1  # the first one that this program reads

MAGIC: Final = b"TUQUEJL\n"
SEGMENT: Final = 1
SNAPSHOT: Final = 2

# magic, version, kind, number, first_seq, salt, node id, wall ms, boot time ms, boot id, is_anew
_HEADER: Final = Struct("<8siiqq8s40sqq16sB")
HEADER_BYTES: Final = 128
_CRC: Final = Struct("<I")

MARKER: Final = b"\xf5TQ\xfa"
# marker, payload bytes, first_seq, records, now_ms, synced_seq, payload CRC; header CRC follows
_FRAME: Final = Struct("<4sIqIqqI")
FRAME_BYTES: Final = 44
FRAME_MAX_BYTES: Final = (1 << 32) - 1

MANIFEST: Final = "manifest"
MANIFEST_NEXT: Final = "manifest.next"  # the manifest as it will be with the next segment
RETIRED: Final = "manifest.off"  # a manifest that is no longer valid
LOCK: Final = "lock"
RESERVE: Final = "reserve"  # a file that is deleted when the disk is full
UNKNOWN_NODE: Final = b"0" * 40  # in a header that was written anew

CUT_OFF: Final = "cut off"  # the end of FrameScanner.reason if the file ends too early

# results of FrameScanner.next
FOUND: Final = 0
DONE: Final = 1
BAD: Final = 2

# what becomes of a file that the manifest does not name (J5.13)
DROPPED: Final = 0
LEFT: Final = 1
NEWER: Final = 2


# ---- Reading: neighbouring reads share one read of the disk


class Windowed:
    """Keeps the last window until bytes outside of it are read."""

    def __init__(self, disk: Disk, path: str) -> None:
        self.disk = disk
        self.path = path
        self.window = b""
        self.window_start: i64 = 0

    def bytes_at(self, offset: i64, size: i64) -> bytes:
        """Bytes of the file; fewer only at its end."""
        start = offset - self.window_start
        if start < 0 or start + size > len(self.window):
            want = size if size > WINDOW_BYTES else WINDOW_BYTES
            self.window = self.disk.read(self.path, offset, want)
            self.window_start = offset
            start = 0
        if start == 0 and size == len(self.window):
            return self.window
        return self.window[start : start + size]


# ---- The formats (SPEC J1, J3)


class JournalError(Exception):
    """The journal cannot be used; the text says why and what to do."""


class WrongVersion(JournalError):
    """A file has a format that this program cannot read (J1.4)."""

    def __init__(self, path: str, version: int) -> None:
        super().__init__(
            f"{path} has format version {version}, this program reads {OLDEST} to {VERSION}; "
            "start the version of Tuque that wrote it"
        )


@final
class Boot:
    """Maps the server's clock to the machine's: wall time and time since boot."""

    def __init__(self, wall_ms: i64, boot_id: bytes, boottime_ms: i64) -> None:
        self.wall_ms = wall_ms
        self.boot_id = boot_id[:16].ljust(16, b"\0")  # all zeros: unknown
        self.boottime_ms = boottime_ms

    def later(self, now_ms: i64) -> "Boot":
        """The same mapping at `now_ms`."""
        return Boot(now_ms, self.boot_id, self.boottime_ms + now_ms - self.wall_ms)


@final
class SegmentHeader:
    """The first 128 bytes of a segment or snapshot."""

    def __init__(
        self, kind: i64, number: i64, first_seq: i64, salt: bytes, node_id: bytes, boot: Boot
    ) -> None:
        self.kind = kind
        self.number = number
        self.first_seq = first_seq  # of the first record in the file
        self.salt = salt
        self.node_id = node_id
        self.boot = boot
        self.is_anew = False  # counts only with the snapshot of its rewrite (J1.2)

    def encode(self) -> bytes:
        """The header's bytes."""
        assert len(self.salt) == 8
        assert len(self.node_id) == 40
        boot = self.boot
        fixed = _HEADER.pack(
            MAGIC,
            VERSION,
            self.kind,
            self.number,
            self.first_seq,
            self.salt,
            self.node_id,
            boot.wall_ms,
            boot.boottime_ms,
            boot.boot_id,
            self.is_anew,
        )
        padded = fixed.ljust(HEADER_BYTES - 4, b"\0")
        return padded + _CRC.pack(zlib.crc32(padded))


def decode_header(data: bytes, name: str) -> SegmentHeader | None:
    """The header, None if damaged; raises WrongVersion."""
    if len(data) < HEADER_BYTES or data[:8] != MAGIC:
        return None
    data = data[:HEADER_BYTES]
    crc: int = _CRC.unpack_from(data, HEADER_BYTES - 4)[0]
    if crc != zlib.crc32(data[: HEADER_BYTES - 4]):
        return None
    _, version, kind, number, first_seq, salt, node_id, wall, boottime, boot_id, is_anew = (
        _HEADER.unpack_from(data)
    )
    if not OLDEST <= version <= VERSION:
        raise WrongVersion(name, version)
    boot = Boot(wall, boot_id, boottime)
    header = SegmentHeader(kind, number, first_seq, salt, node_id, boot)
    header.is_anew = is_anew == 1
    return header


def header_at(disk: Disk, path: str) -> SegmentHeader | None:
    """The header of that file, None if damaged; raises WrongVersion and OSError."""
    return decode_header(disk.read(path, 0, HEADER_BYTES), path)


def frame_header(
    payload: bytes, first_seq: i64, count: i64, now_ms: i64, synced_seq: i64, salt_crc: int
) -> bytes:
    """The header of a frame around `payload`, which holds `count` records.

    `synced_seq` is the last record known to be durable when the frame is written: records
    missing up to it are damage, those missing after it may be a torn tail.
    """
    return header_of([payload], first_seq, count, now_ms, synced_seq, salt_crc)


def header_of(
    parts: list[bytes], first_seq: i64, count: i64, now_ms: i64, synced_seq: i64, salt_crc: int
) -> bytes:
    """The same of a payload in parts."""
    size: i64 = 0
    crc = salt_crc
    for part in parts:
        size += len(part)
        crc = zlib.crc32(part, crc)
    assert size <= FRAME_MAX_BYTES
    fixed = _FRAME.pack(MARKER, size, first_seq, count, now_ms, synced_seq, crc)
    return fixed + _CRC.pack(zlib.crc32(fixed, salt_crc))


@final
class Frame:
    """One frame found in a file."""

    def __init__(self) -> None:
        self.offset: i64 = 0
        self.end: i64 = 0
        self.first_seq: i64 = 0
        self.count: i64 = 0
        self.now_ms: i64 = 0
        self.synced_seq: i64 = 0
        self.payload = b""


@final
class FrameScanner(Windowed):
    """Walks the frames of one file from `offset`; `frame` is the last one found."""

    def __init__(self, disk: Disk, path: str, salt: bytes, offset: i64) -> None:
        super().__init__(disk, path)
        self.salt_crc: int = zlib.crc32(salt)
        self.offset = offset
        self.size: i64 = disk.size(path)
        self.frame = Frame()
        self.reason = ""  # why the frame at `offset` is BAD

    def next(self) -> i64:
        """FOUND (moves past it), DONE at the end of the file, BAD (does not move)."""
        offset = self.offset
        if offset >= self.size:
            return DONE
        self.reason = self.try_frame(offset)
        if self.reason != "":
            return BAD
        self.offset = self.frame.end
        return FOUND

    def try_frame(self, offset: i64) -> str:
        """Read the frame at `offset` into `frame`; "" or the reason why it is bad."""
        head = self.bytes_at(offset, FRAME_BYTES)
        if len(head) < FRAME_BYTES:
            return "frame header " + CUT_OFF
        if head[:4] != MARKER:
            return "no frame begins here"
        crc: int = _CRC.unpack_from(head, FRAME_BYTES - 4)[0]
        if crc != zlib.crc32(head[: FRAME_BYTES - 4], self.salt_crc):
            return "checksum of the frame header is wrong"
        _, size, first_seq, count, now_ms, synced_seq, payload_crc = _FRAME.unpack_from(head)
        frame = self.frame
        end: i64 = offset + FRAME_BYTES + size
        if end > self.size:
            return "frame " + CUT_OFF
        frame.payload = self.bytes_at(offset + FRAME_BYTES, size)
        if payload_crc != zlib.crc32(frame.payload, self.salt_crc):
            return "checksum of the frame is wrong"
        frame.offset = offset
        frame.end = end
        frame.first_seq = first_seq
        frame.count = count
        frame.now_ms = now_ms
        frame.synced_seq = synced_seq
        return ""

    def resync(self) -> bool:
        """Move from a BAD frame to the next good one; False when there is none."""
        at = self.offset + 1
        while at < self.size:
            self.bytes_at(at, len(MARKER))
            hit: i64 = self.window.find(MARKER, at - self.window_start)
            if hit < 0:
                end = self.window_start + len(self.window)
                if end >= self.size:
                    break
                at = end - len(MARKER) + 1
                continue
            at = self.window_start + hit
            if self.try_frame(at) == "":
                self.offset = at
                return True
            at += 1
        self.offset = self.size
        return False


@final
class Manifest:
    """The files of the journal: a snapshot ("" for none) and segments in order.

    It also keeps each file's salt, so that the frames behind a damaged header stay readable.
    """

    def __init__(self) -> None:
        self.snapshot = ""
        self.snapshot_salt = b""
        self.segments: list[str] = []
        self.salts: list[bytes] = []

    def encode(self) -> bytes:
        """A few lines of text, the last one a checksum."""
        lines = [f"tuque-journal {VERSION}"]
        if self.snapshot != "":
            lines.append(f"snapshot {self.snapshot} {self.snapshot_salt.hex()}")
        for i in range(len(self.segments)):
            lines.append(f"segment {self.segments[i]} {self.salts[i].hex()}")
        text = ("\n".join(lines) + "\n").encode()
        return text + b"crc %08x\n" % zlib.crc32(text)

    def copy(self) -> "Manifest":
        """A copy of the manifest."""
        other = Manifest()
        other.snapshot = self.snapshot
        other.snapshot_salt = self.snapshot_salt
        other.segments = list(self.segments)
        other.salts = list(self.salts)
        return other


def decode_manifest(data: bytes, path: str) -> Manifest:
    """The manifest; raises JournalError if it is damaged or of another version."""
    damaged = JournalError(f"{path} is damaged; run: tuque journal repair")
    head, mark, crc = data.rpartition(b"crc ")
    if mark == b"" or crc != b"%08x\n" % zlib.crc32(head):
        raise damaged
    lines = head.decode("ascii", "replace").splitlines()
    words = lines[0].split() if lines else []
    if len(words) != 2 or words[0] != "tuque-journal" or not words[1].isdigit():
        raise damaged
    if not OLDEST <= int(words[1]) <= VERSION:
        raise WrongVersion(path, int(words[1]))
    manifest = Manifest()
    for line in lines[1:]:
        words = line.split()
        if len(words) != 3 or number_of(words[1]) < 0 or len(words[2]) != 16:
            raise damaged
        if words[0] == "snapshot":
            manifest.snapshot = words[1]
            manifest.snapshot_salt = bytes.fromhex(words[2])
        else:
            manifest.segments.append(words[1])
            manifest.salts.append(bytes.fromhex(words[2]))
    return manifest


def segment_name(number: i64) -> str:
    """The file name of a segment."""
    return f"journal-{number:08d}.log"


def snapshot_name(number: i64) -> str:
    """The file name of the snapshot that segment `number` continues."""
    return f"snapshot-{number:08d}.snap"


def number_of(name: str) -> i64:
    """The number in the name of a segment or snapshot; -1 for other files."""
    for head, tail in (("journal-", ".log"), ("snapshot-", ".snap"), ("snapshot-", ".tmp")):
        if name.startswith(head) and name.endswith(tail):
            digits = name[len(head) : len(name) - len(tail)]
            if digits.isdigit():
                return int(digits)
    return -1


def read_manifest(disk: Disk, path: str) -> Manifest | None:
    """The manifest of the journal directory; None if there is no journal yet.

    Raises JournalError if it is damaged, or missing while journal files exist.
    """
    name = f"{path}/{MANIFEST}"
    if disk.exists(name):
        return decode_manifest(disk.read(name, 0, disk.size(name)), name)
    if not disk.exists(path) or disk.exists(f"{path}/{RETIRED}"):
        return None
    # A first start interrupted before its manifest leaves a segment without frames.
    for other in disk.listdir(path):
        if number_of(other) >= 0 and disk.size(f"{path}/{other}") > HEADER_BYTES:
            raise JournalError(
                f"{path} holds journal files but no manifest; run: tuque journal repair {path}"
            )
    return None


# ---- Files that the manifest does not name (SPEC J5.13)


@final
class Contents:
    """The files of a journal directory, going by the manifest and by their own headers."""

    def __init__(self, manifest: Manifest) -> None:
        self.manifest = manifest  # with the newer files
        self.newer: list[str] = []  # they count, and the manifest on disk does not name them
        self.snapshots: list[str] = []  # newer than the manifest; perhaps they do not count
        self.left: list[str] = []  # they hold records, and do not count
        self.foreign: list[str] = []  # of another node
        self.problem = ""  # why the newer ones cannot be loaded


def contents(disk: Disk, path: str, manifest: Manifest, places: dict[str, str]) -> Contents:
    """[J5.13] The manifest with the files that are newer, and what else holds records.

    `places` has the file of each name. Raises WrongVersion and OSError.
    """
    found = Contents(manifest.copy())
    is_retired = disk.exists(f"{path}/{RETIRED}")
    node_id = node_of(disk, path, manifest, places)
    salts: list[bytes] = []
    for name in sorted(places):
        if name == manifest.snapshot or name in manifest.segments:
            continue
        file = f"{path}/{places[name]}"
        fate = fate_of(disk, file, name, manifest, is_retired)
        if fate == LEFT:
            found.left.append(name)
        if fate != NEWER:
            continue
        header = header_at(disk, file)
        if name.endswith(".snap"):
            found.snapshots.append(name)
        elif header is None:
            found.newer.append(name)  # its load fails, and says so
        elif header.salt in salts:
            found.left.append(name)
        elif node_id != b"" and header.node_id not in (node_id, UNKNOWN_NODE):
            found.foreign.append(name)
        else:
            if header.number != number_of(name):
                found.problem = f"{file} has the number {header.number} in its header"
            found.newer.append(name)
            salts.append(header.salt)
    for name in found.snapshots:
        number = number_of(name)
        own = places.get(segment_name(number), "")
        header = None if own == "" else header_at(disk, f"{path}/{own}")
        if header is None:
            found.problem = f"{path}/{segment_name(number)}, which continues {name}, is not there"
        elif header.is_anew:
            begin_with(disk, path, places, name, found)
    for name in found.newer:
        if name.endswith(".log"):
            found.manifest.segments.append(name)
            found.manifest.salts.append(salt_at(disk, f"{path}/{places[name]}"))
    return found


def begin_with(
    disk: Disk, path: str, places: dict[str, str], snapshot: str, found: Contents
) -> None:
    """[J5.13] What counts is that newer snapshot and the segments after it."""
    found.manifest = Manifest()
    found.manifest.snapshot = snapshot
    found.manifest.snapshot_salt = salt_at(disk, f"{path}/{places[snapshot]}")
    found.newer = [snapshot]
    number = number_of(snapshot)
    for name in sorted(places):
        if not name.endswith(".log") or number_of(name) < number:
            continue
        if name in found.foreign or name in found.left:
            continue
        if number_of(name) == number or disk.size(f"{path}/{places[name]}") > HEADER_BYTES:
            found.newer.append(name)


def fate_of(disk: Disk, file: str, name: str, m: Manifest, is_retired: bool) -> i64:
    """[J5.13] What becomes of `file`, which has the place of `name`: the manifest lacks it."""
    number = number_of(name)
    last = last_number(m)
    if name.endswith(".tmp") or disk.size(file) <= HEADER_BYTES:
        return DROPPED
    if number < number_of(m.snapshot):
        return DROPPED
    if is_retired and (number <= last or last < 0):
        return DROPPED
    if name.endswith(".snap"):
        return NEWER if number > last else DROPPED
    header = header_at(disk, file)
    if last < 0 or (header is not None and header.is_anew):
        return DROPPED
    if number <= last or (header is not None and header.salt in m.salts):
        return LEFT
    return NEWER


def clear_unnamed(disk: Disk, path: str, m: Manifest, prepared: str) -> None:
    """[J5.13] Remove or keep aside what the manifest does not name, but the prepared segment.

    What the disk refuses waits for the next start.
    """
    is_retired = disk.exists(f"{path}/{RETIRED}")
    for name in disk.listdir(path):
        if number_of(name) < 0 or name in (m.snapshot, prepared) or name in m.segments:
            continue
        try:
            fate = fate_of(disk, f"{path}/{name}", name, m, is_retired)
            if fate == DROPPED:
                disk.unlink(f"{path}/{name}")
            elif fate == LEFT:
                keep_left(disk, path, name)
        except (JournalError, OSError):
            continue
    if is_retired:
        try:
            disk.unlink(f"{path}/{RETIRED}")
        except OSError:
            return


def last_number(m: Manifest) -> i64:
    """The highest number of its files; -1 if it names none."""
    last = number_of(m.snapshot)
    for name in m.segments:
        last = max(last, number_of(name))
    return last


def node_of(disk: Disk, path: str, m: Manifest, places: dict[str, str]) -> bytes:
    """The node of the files that the manifest names; b"" if no header says it."""
    for name in [m.snapshot, *m.segments]:
        if name in places:
            header = header_at(disk, f"{path}/{places[name]}")
            if header is not None and header.node_id != UNKNOWN_NODE:
                return header.node_id
    return b""


def salt_at(disk: Disk, path: str) -> bytes:
    """The salt in the header of that file; zeros if it is damaged."""
    header = header_at(disk, path)
    return b"\0" * 8 if header is None else header.salt


def keep_left(disk: Disk, path: str, name: str) -> str:
    """[J5.13] Give the file a name that no start removes; returns the new path."""
    aside = spare_name(disk, f"{path}/{name}.left")
    disk.rename(f"{path}/{name}", aside)
    return aside


def spare_name(disk: Disk, path: str) -> str:
    """A name that no file has yet."""
    found = path
    count = 1
    while disk.exists(found):
        count += 1
        found = f"{path}{count}"
    return found


def retire(disk: Disk, path: str) -> None:
    """Invalidate the journal: jobs change without it, so that it would be out of date.

    The files stay until a new journal begins. OSError if the disk refuses.
    """
    disk.rename(f"{path}/{MANIFEST}", f"{path}/{RETIRED}")
    disk.fsync_dir(path)


def write_all(disk: Disk, handle: int, data: bytes) -> None:
    """Append all of `data`, in as many writes as it takes."""
    taken = disk.write(handle, data)
    if taken == len(data):
        return
    view = memoryview(data)
    while taken < len(data):
        taken += disk.write(handle, view[taken:])


def write_file(disk: Disk, path: str, data: bytes) -> None:
    """Create the file with that content; the content is durable, the name not yet."""
    if disk.exists(path):
        disk.unlink(path)
    handle = disk.open_append(path)
    try:
        write_all(disk, handle, data)
        disk.fdatasync(handle)
    finally:
        disk.close(handle)
