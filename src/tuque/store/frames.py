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

WINDOW_BYTES: Final = 4 << 20

VERSION: Final = 2  # raise it with any change that this program would misread (J1.4)
OLDEST: Final = 1  # the first one that this program reads; 2 has the lives of jobs (W13)

MAGIC: Final = b"TUQUEJL\n"
SEGMENT: Final = 1
SNAPSHOT: Final = 2

# magic, version, kind, number, first_seq, salt, node id, wall ms, boot time ms, boot id
_HEADER: Final = Struct("<8siiqq8s40sqq16s")
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

CUT_OFF: Final = "cut off"  # the end of FrameScanner.reason if the file ends too early

# results of FrameScanner.next
FOUND: Final = 0
DONE: Final = 1
BAD: Final = 2


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
    _, version, kind, number, first_seq, salt, node_id, wall, boottime, boot_id = (
        _HEADER.unpack_from(data)
    )
    if not OLDEST <= version <= VERSION:
        raise WrongVersion(name, version)
    return SegmentHeader(kind, number, first_seq, salt, node_id, Boot(wall, boot_id, boottime))


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
