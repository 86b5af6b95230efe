"""Writes the journal, without threads of its own (SPEC J1, J4, J6).

Whoever holds the lock of server/journal/thread.py calls it. Four steps need no lock, as they touch
what no other step does: `flush`, `prepare`, `add_to_snapshot` and `drop_unnamed`, of the journal's
thread.

It knows what was written, what is durable, and what to do when the disk fails:

* a failed write is cut back to the last whole frame and may be retried;
* a frame without records (a mark) shows that all before it is durable, if no other does;
* after a failed fsync the state of the file is unknown, so it is *broken* until a
  rewrite has put everything into new files;
* the next segment and the manifest that names it are prepared beforehand, so that the switch
  to it, for which writers wait, syncs only what was written last and a header;
* a rewrite starts a new segment, fills a snapshot beside it, and is valid only once
  the manifest names both. Power may fail between any two steps: either the old files
  or the new ones are complete and named.

server/journal/committer.py decides when it is called.
"""

import errno
import zlib
from typing import Final, final

from mypy_extensions import i64

from tuque.core.records.jobs import Records
from tuque.store.disk import Disk
from tuque.store.frames import (
    HEADER_BYTES,
    MANIFEST,
    MANIFEST_NEXT,
    RESERVE,
    SEGMENT,
    SNAPSHOT,
    Boot,
    JournalError,
    Manifest,
    SegmentHeader,
    clear_unnamed,
    frame_header,
    header_of,
    number_of,
    segment_name,
    snapshot_name,
    write_all,
    write_file,
)

JOIN_BYTES: Final = 64 << 10  # smaller frames are written together with their header
SNAPSHOT_SYNC_BYTES: Final = 8 << 20  # of a snapshot: more would wait for the disk at its end

LOOK: Final = 16  # number of recent syncs that are averaged
QUICK_S: Final = 0.001  # the average of a quick disk is at most this
SLOW_S: Final = 0.010  # a longer sync is slow
LEAST_S: Final = 1.0  # minimum time without slow syncs before the pump syncs
MOST_S: Final = 600.0


def why(error: OSError) -> str:
    """The operating system's text for the error."""
    return error.strerror or str(error)


@final
class Prepared:
    """The next segment: an empty file, and in MANIFEST_NEXT the manifest `before` with it."""

    def __init__(self, number: i64, path: str, handle: int, salt: bytes, before: Manifest) -> None:
        self.number = number
        self.path = path
        self.handle = handle
        self.salt = salt
        self.before = before
        self.manifest = before.copy()
        self.manifest.segments.append(segment_name(number))
        self.manifest.salts.append(salt)


@final
class Journal:
    """The journal open for writing. Methods that return bool say False after an error."""

    def __init__(self, disk: Disk, path: str, node_id: bytes, boot: Boot) -> None:
        self.disk = disk
        self.path = path
        self.node_id = node_id
        self.boot = boot
        self.manifest = Manifest()
        self.prepared: Prepared | None = None
        self.must_sync_names = False  # the manifest was renamed, and that is not durable yet
        self.number: i64 = 0  # of the newest segment
        self.handle = -1
        self.segment = ""  # its path
        self.salt_crc: int = 0
        self.size: i64 = 0  # bytes of it in whole frames
        self.is_ragged = False  # the rest of a failed write may follow these
        self.seq: i64 = 0  # last record written
        self.synced_seq: i64 = 0  # last record known to be durable
        self.marked_seq: i64 = 0  # the last one that the segment itself marks as durable
        self.last_ms: i64 = 0  # of the last frame
        self.old_bytes: i64 = 0  # of the other files in the manifest
        self.base_bytes: i64 = 0  # total after the last rewrite
        self.error = ""  # "" or the problem and what to do
        self.is_broken = False  # an fsync failed: only a rewrite helps
        self.must_begin = False  # the start found no room for a segment: the loaded files are valid
        self.rewrite_error = ""  # of the last rewrite
        self.is_rewriting = False
        self.snapshot = -1  # handle
        self.snapshot_number: i64 = 0  # of the segment that continues it
        self.snapshot_path = ""
        self.snapshot_salt = b""
        self.snapshot_salt_crc: int = 0
        self.snapshot_seq: i64 = 0
        self.snapshot_jobs: i64 = 0
        self.snapshot_bytes: i64 = 0
        self.snapshot_synced: i64 = 0  # of these bytes
        self.slice_error = ""  # why the last slice was not written
        self.is_slice_full = False  # the disk had no room for it
        self.wanted_bytes: i64 = 0  # that the rewrite may need
        self.reserve_bytes: i64 = 0  # wanted of the reserve; 0: none
        self.has_reserve = False
        self.is_reserve_used = False  # since then it was not written again

    def total_bytes(self) -> i64:
        """Bytes of all valid files."""
        return self.old_bytes + self.size

    # Start and stop

    def start(self, manifest: Manifest, seq: i64, now_ms: i64) -> None:
        """Continue the loaded journal in a new segment; `seq` is its last record.

        Raises JournalError if the directory refuses a new file.
        """
        self.manifest = manifest.copy()
        self.seq = seq
        self.synced_seq = seq
        self.find_number()
        m = self.manifest
        is_new = m.snapshot == "" and len(m.segments) == 0
        if len(m.segments) > 0:
            last = m.segments[len(m.segments) - 1]
            if self.disk.size(f"{self.path}/{last}") <= HEADER_BYTES:
                m.segments.pop()  # no frames in it: keep no row of empty files
                m.salts.pop()
        self.find_reserve(is_new)
        try:
            self.begin(now_ms)
        except OSError as e:
            self.begin_again(e, now_ms)
        if not self.is_broken:
            self.drop_unnamed()
        self.measure_old()
        self.base_bytes = self.total_bytes()

    def begin(self, now_ms: i64) -> None:
        """Begin the segment that continues the loaded ones."""
        manifest = self.manifest.copy()
        self.sync_last(manifest)
        salt = self.new_segment(now_ms)
        manifest.segments.append(segment_name(self.number))
        manifest.salts.append(salt)
        self.write_manifest(manifest)
        self.manifest = manifest

    def begin_again(self, e: OSError, now_ms: i64) -> None:
        """[J6.10] Begin with the room of the reserve, or later: the loaded files stay valid."""
        try:
            if self.frees_room(e):
                self.begin(now_ms)
                return
        except OSError as again:
            e = again
        is_new = self.manifest.snapshot == "" and len(self.manifest.segments) == 0
        if e.errno != errno.ENOSPC or is_new:
            raise JournalError(
                f"cannot write the journal in {self.path}: {why(e)}; "
                "the directory must be writable and have free space"
            ) from e
        self.must_begin = True
        self.last_ms = now_ms
        self.marked_seq = self.seq
        self.note_full(e)

    def note_full(self, e: OSError) -> None:
        """Set the error while there is no segment to write to."""
        what = f"{why(e)} beginning a segment in {self.path}"
        self.error = f"{what}; free space, the server retries each second"

    def begin_late(self) -> bool:
        """[J6.10] Begin what the start could not; False: there is still no room."""
        try:
            self.begin(self.last_ms)
        except OSError as e:
            self.note_full(e)
            return False
        self.must_begin = False
        self.error = ""
        self.drop_unnamed()
        self.measure_old()
        return True

    # The reserve (SPEC J6.10)

    def find_reserve(self, is_new: bool) -> None:
        """Look for the reserve; a journal that is not new and has none has used it (J6.9)."""
        path = f"{self.path}/{RESERVE}"
        self.has_reserve = self.disk.exists(path)
        self.is_reserve_used = self.reserve_bytes > 0 and not self.has_reserve and not is_new
        if self.has_reserve and self.disk.size(path) != self.reserve_bytes:
            self.spend_reserve()
            self.is_reserve_used = False

    def may_reserve(self, free_bytes: i64, least_bytes: i64) -> bool:
        """Whether the reserve is missing and leaves that much of the free room."""
        if self.has_reserve or self.reserve_bytes == 0:
            return False
        return free_bytes >= self.reserve_bytes + least_bytes

    def keep_reserve(self) -> bool:
        """Write the reserve; False: the disk refuses."""
        path = f"{self.path}/{RESERVE}"
        try:
            self.disk.occupy(path, self.reserve_bytes)
        except OSError:
            self.unlink_quietly(path)
            return False
        self.has_reserve = True
        self.is_reserve_used = False
        return True

    def spend_reserve(self) -> bool:
        """Delete the reserve; False: there is none."""
        if not self.has_reserve:
            return False
        self.has_reserve = False
        self.is_reserve_used = True
        self.unlink_quietly(f"{self.path}/{RESERVE}")
        return True

    def spend_on_rewrite(self) -> None:
        """[J6.10] Delete the reserve if a rewrite then has room: ends of jobs may need it first."""
        free: i64 = self.disk.free_bytes(self.path)
        if free < 0 or free + self.reserve_bytes >= self.wanted_bytes:
            self.spend_reserve()

    def frees_room(self, e: OSError) -> bool:
        """Whether the disk was full and now has the room of the reserve."""
        return e.errno == errno.ENOSPC and self.spend_reserve()

    def sync_last(self, manifest: Manifest) -> None:
        """[J5.10] Sync loaded files: after a kill they may be in the page cache only."""
        count = len(manifest.segments)
        if count == 0:
            return
        handle = self.disk.open_append(f"{self.path}/{manifest.segments[count - 1]}")
        try:
            self.disk.fdatasync(handle)
        finally:
            self.disk.close(handle)

    def start_anew(self, seq: i64) -> None:
        """Begin without loading: nothing is valid until a rewrite has finished.

        Files of an older journal stay until then. Raises JournalError.
        """
        self.seq = seq
        self.synced_seq = seq
        self.find_number()
        self.is_broken = True
        if not self.disk.exists(f"{self.path}/{MANIFEST}"):
            try:
                self.write_manifest(Manifest())
            except OSError as e:
                raise JournalError(f"cannot write the journal in {self.path}: {why(e)}") from e

    def close(self) -> None:
        """Close the files; call `append` and `sync` for the rest before."""
        if self.is_rewriting:
            self.abort_rewrite("the journal was closed")
        self.drop_prepared()
        if self.handle >= 0:
            self.disk.close(self.handle)
            self.handle = -1

    def find_number(self) -> None:
        """Skip every number that a file in the directory has."""
        for name in self.disk.listdir(self.path):
            number = number_of(name)
            if number > self.number:
                self.number = number

    def new_segment(self, now_ms: i64) -> bytes:
        """Create the next segment, durable and empty, and write to it; returns its salt."""
        number = self.number + 1
        salt = self.disk.salt()
        path = f"{self.path}/{segment_name(number)}"
        write_file(self.disk, path, self.header(number, salt, now_ms))
        self.disk.fsync_dir(self.path)
        self.enter(number, path, self.disk.open_append(path), salt, now_ms)
        return salt

    def header(self, number: i64, salt: bytes, now_ms: i64) -> bytes:
        """The header of a segment that begins after the last record."""
        boot = self.boot.later(now_ms)
        header = SegmentHeader(SEGMENT, number, self.seq + 1, salt, self.node_id, boot)
        header.is_anew = self.is_broken
        return header.encode()

    def enter(self, number: i64, path: str, handle: int, salt: bytes, now_ms: i64) -> None:
        """Write to that segment from now on; it has a header only."""
        if self.handle >= 0:
            self.disk.close(self.handle)
        self.handle = handle
        self.number = number
        self.segment = path
        self.is_ragged = False
        self.salt_crc = zlib.crc32(salt)
        self.size = HEADER_BYTES
        self.marked_seq = self.seq
        self.last_ms = now_ms

    # The next segment, beforehand

    def prepare(self) -> None:
        """Do what a switch to the next segment can do beforehand; an error leaves it to the switch.

        The manifest names the segment only after the switch: until then it is a file too many.
        """
        if self.is_prepared() or self.is_broken or self.must_begin:
            return
        self.drop_prepared()
        number = self.number + 1
        path = f"{self.path}/{segment_name(number)}"
        try:
            if self.disk.exists(path):
                self.disk.unlink(path)
            handle = self.disk.open_append(path)
        except OSError:
            return
        prepared = Prepared(number, path, handle, self.disk.salt(), self.manifest)
        self.prepared = prepared
        try:
            self.disk.fsync_dir(self.path)
            write_file(self.disk, f"{self.path}/{MANIFEST_NEXT}", prepared.manifest.encode())
        except OSError:
            self.drop_prepared()

    def is_prepared(self) -> bool:
        """Whether the next switch finds its files prepared."""
        prepared = self.prepared
        return prepared is not None and prepared.before is self.manifest

    def drop_prepared(self) -> None:
        """Remove what was prepared: it is not wanted, or another file came before."""
        prepared = self.prepared
        if prepared is None:
            return
        self.prepared = None
        self.disk.close(prepared.handle)
        if prepared.number > self.number:
            self.unlink_quietly(prepared.path)

    def enter_prepared(self, now_ms: i64) -> bool:
        """Switch to the prepared segment; all before it is durable. False: it cannot be used."""
        prepared = self.prepared
        if prepared is None or self.is_broken or not self.is_prepared():
            return False
        try:
            header = self.header(prepared.number, prepared.salt, now_ms)
            write_all(self.disk, prepared.handle, header)
            self.disk.fdatasync(prepared.handle)
            self.disk.rename(f"{self.path}/{MANIFEST_NEXT}", f"{self.path}/{MANIFEST}")
        except OSError:
            return False
        self.prepared = None
        self.must_sync_names = True
        self.old_bytes += self.size
        self.enter(prepared.number, prepared.path, prepared.handle, prepared.salt, now_ms)
        self.manifest = prepared.manifest
        return True

    def write_manifest(self, manifest: Manifest) -> None:
        """Make the manifest valid atomically. OSError: it is not, or, if broken, perhaps."""
        final_path = f"{self.path}/{MANIFEST}"
        write_file(self.disk, final_path + ".tmp", manifest.encode())
        try:
            self.disk.rename(final_path + ".tmp", final_path)
            self.disk.fsync_dir(self.path)
        except OSError as e:
            self.break_off(f"{why(e)} renaming {final_path}")
            raise

    def drop_unnamed(self) -> None:
        """[J5.13] Remove or keep aside what the manifest does not name (any more)."""
        prepared = "" if self.prepared is None else segment_name(self.prepared.number)
        clear_unnamed(self.disk, self.path, self.manifest, prepared)

    def measure_old(self) -> None:
        """Add up the files in the manifest, except the one being written."""
        m = self.manifest
        total: i64 = 0
        if m.snapshot != "":
            total += self.disk.size(f"{self.path}/{m.snapshot}")
        for name in m.segments:
            path = f"{self.path}/{name}"
            if path != self.segment:
                total += self.disk.size(path)
        self.old_bytes = total

    # Writing

    def append(self, payload: bytes, count: i64, now_ms: i64) -> bool:
        """Write one frame of `count` records. False: not written, retry unchanged."""
        return self.append_parts([payload], count, now_ms)

    def append_parts(self, parts: list[bytes], count: i64, now_ms: i64) -> bool:
        """The same of a payload in parts, which are joined only if they are small."""
        if self.is_broken and not self.is_rewriting:
            return False
        if self.is_ragged:
            self.cut_back()
            if self.is_broken:
                return False
        try:
            self.write_frame(parts, count, now_ms)
        except OSError as e:
            if not self.frees_room(e):
                self.on_write_error(e)
                return False
            self.cut_back()
            return self.append_parts(parts, count, now_ms)
        if not self.is_broken:
            self.error = ""
        return True

    def try_append(self, parts: list[bytes], count: i64, now_ms: i64) -> bool:
        """The same beside the journal's thread, which does what follows an error. False: retry."""
        if self.is_broken or self.is_ragged or self.error != "":
            return False
        try:
            self.write_frame(parts, count, now_ms)
        except OSError:
            self.is_ragged = True
            return False
        return True

    def write_frame(self, parts: list[bytes], count: i64, now_ms: i64) -> None:
        """Write one frame. OSError: a part of it may be there."""
        head = header_of(parts, self.seq + 1, count, now_ms, self.synced_seq, self.salt_crc)
        size: i64 = 0
        for part in parts:
            size += len(part)
        if size <= JOIN_BYTES:
            write_all(self.disk, self.handle, b"".join([head, *parts]))
        else:
            write_all(self.disk, self.handle, head)
            for part in parts:
                if len(part) > 0:
                    write_all(self.disk, self.handle, part)
        self.size += len(head) + size
        self.seq += count
        self.marked_seq = self.synced_seq
        self.last_ms = now_ms

    def must_mark(self) -> bool:
        """Whether all is durable, but nothing in the segment says so."""
        seq = self.seq
        return self.marked_seq != seq and self.synced_seq == seq and not self.is_broken

    def mark(self) -> None:
        """[J3.2] Mark in the segment that all is durable: later damage in it is no torn tail."""
        if self.write_mark():
            self.note_flush(self.flush(), self.synced_seq)

    def write_mark(self) -> bool:
        """Write the mark, which takes effect when it is flushed; False: there is none."""
        if not self.must_mark() or self.is_ragged:
            return False
        seq = self.seq
        head = frame_header(b"", seq + 1, 0, self.last_ms, self.synced_seq, self.salt_crc)
        try:
            write_all(self.disk, self.handle, head)
        except OSError:
            self.marked_seq = seq  # skipped without room: the next frame says the same
            self.cut_back()
            return False
        self.size += len(head)
        self.marked_seq = seq
        return True

    def on_write_error(self, e: OSError) -> None:
        """Cut off the rest of a failed write."""
        hint = "free space" if e.errno == errno.ENOSPC else "check the disk"
        if self.is_rewriting:
            self.abort_rewrite(f"{why(e)} writing {self.segment}")  # frees its space
        if self.is_broken:
            return
        self.error = f"{why(e)} writing {self.segment}; {hint}, the server retries each second"
        self.cut_back()

    def cut_back(self) -> None:
        """Cut the segment to its whole frames."""
        try:
            self.disk.truncate(self.segment, self.size)
            self.is_ragged = False
        except OSError as again:
            self.break_off(f"{why(again)} cutting {self.segment}")

    def sync(self) -> bool:
        """Make all writes durable."""
        if self.is_broken and not self.is_rewriting:
            return False
        if self.synced_seq == self.seq and not self.is_broken:
            return True
        return self.note_flush(self.flush(), self.seq)

    def flush(self) -> str:
        """Sync the segment, whatever is written to it meanwhile; "" or the error."""
        try:
            if self.must_sync_names:
                self.disk.fsync_dir(self.path)  # before anything in the segment counts
                self.must_sync_names = False
            self.disk.fdatasync(self.handle)
        except OSError as e:
            return f"{why(e)} syncing {self.segment}"
        return ""

    def note_flush(self, error: str, seq: i64) -> bool:
        """A flush ended that began when `seq` was written last; whether all up to it is durable."""
        if error != "":
            self.break_off(error)
            return False
        if not self.is_broken and seq > self.synced_seq:
            self.synced_seq = seq
        return True

    def break_off(self, what: str) -> None:
        """The state of the files is unknown: only a rewrite into new ones helps."""
        if self.is_rewriting:
            self.abort_rewrite(what)
        self.is_broken = True
        self.error = (
            f"{what}: what was written may be lost; "
            "writes are refused until the server has rewritten its journal to new files"
        )

    # Rewriting

    def begin_rewrite(self, seq: i64, now_ms: i64) -> bool:
        """Continue in a new segment and open a snapshot beside it; `seq` is the last record used.

        When broken, the new segment becomes valid only with the whole snapshot.
        """
        assert not self.is_rewriting
        self.rewrite_error = ""
        if self.is_broken:
            self.seq = seq  # what was dropped meanwhile will be in the snapshot
            self.manifest = Manifest()
            self.old_bytes = 0
        assert self.seq == seq
        if not self.next_segment(now_ms):
            return False
        self.must_begin = False
        self.is_rewriting = True
        self.snapshot_number = self.number
        try:
            self.open_snapshot(now_ms)
        except OSError as e:
            self.abort_rewrite(f"{why(e)} creating {self.snapshot_path}")
            return False
        return True

    def next_segment(self, now_ms: i64) -> bool:
        """Switch to a new segment, after syncing the old one."""
        if self.is_ragged and not self.is_broken:
            self.cut_back()
        if not self.is_broken and not self.sync():
            return False
        if self.enter_prepared(now_ms):
            return True
        self.drop_prepared()
        old_segment = self.segment
        old_size = self.size
        try:
            manifest = self.manifest.copy()
            salt = self.new_segment(now_ms)
            manifest.segments.append(segment_name(self.number))
            manifest.salts.append(salt)
            if not self.is_broken:
                self.write_manifest(manifest)
                self.old_bytes += old_size
            self.manifest = manifest
        except OSError as e:
            self.on_segment_error(e, old_segment, old_size)
            return False
        return True

    def on_segment_error(self, e: OSError, old_segment: str, old_size: i64) -> None:
        """Continue in the old segment, the last one in the manifest."""
        self.rewrite_error = f"{why(e)} creating a segment in {self.path}"
        self.frees_room(e)  # for the next attempt
        if self.is_broken:
            self.tell_broken(self.rewrite_error)
            if self.handle >= 0:
                self.disk.close(self.handle)
                self.handle = -1
            return
        if self.segment == old_segment:
            return
        self.unlink_quietly(self.segment)
        self.disk.close(self.handle)
        self.handle = -1
        self.segment = old_segment
        self.size = old_size
        self.marked_seq = 0
        self.salt_crc = zlib.crc32(self.manifest.salts[len(self.manifest.salts) - 1])
        try:
            self.handle = self.disk.open_append(old_segment)
        except OSError as again:
            self.break_off(f"{why(again)} opening {old_segment}")

    def open_snapshot(self, now_ms: i64) -> None:
        """Create the file for the jobs."""
        self.snapshot_path = f"{self.path}/{snapshot_name(self.number)[:-5]}.tmp"
        self.snapshot_salt = self.disk.salt()
        self.snapshot_salt_crc = zlib.crc32(self.snapshot_salt)
        header = SegmentHeader(
            SNAPSHOT, self.number, 1, self.snapshot_salt, self.node_id, self.boot.later(now_ms)
        )
        if self.disk.exists(self.snapshot_path):
            self.disk.unlink(self.snapshot_path)
        self.snapshot = self.disk.open_append(self.snapshot_path)
        write_all(self.disk, self.snapshot, header.encode())
        self.snapshot_seq = 0
        self.snapshot_jobs = 0
        self.snapshot_bytes = HEADER_BYTES
        self.snapshot_synced = 0
        self.slice_error = ""

    def add_to_snapshot(self, payload: bytes, count: i64, job_count: i64, now_ms: i64) -> bool:
        """Write one frame of the snapshot. False: not written, `give_up_slice` says why."""
        head = frame_header(
            payload, self.snapshot_seq + 1, count, now_ms, 0, self.snapshot_salt_crc
        )
        try:
            write_all(self.disk, self.snapshot, head)
            write_all(self.disk, self.snapshot, payload)
            self.snapshot_bytes += len(head) + len(payload)
            if self.snapshot_bytes - self.snapshot_synced >= SNAPSHOT_SYNC_BYTES:
                self.disk.fdatasync(self.snapshot)
                self.snapshot_synced = self.snapshot_bytes
        except OSError as e:
            self.slice_error = f"{why(e)} writing {self.snapshot_path}"
            self.is_slice_full = e.errno == errno.ENOSPC
            return False
        self.snapshot_seq += count
        self.snapshot_jobs += job_count
        return True

    def give_up_slice(self) -> None:
        """Abandon the rewrite whose slice was not written."""
        if self.is_rewriting:
            self.abort_rewrite(self.slice_error)
        if self.is_slice_full:
            self.is_slice_full = False
            self.spend_on_rewrite()  # for the next attempt

    def is_whole(self, records: i64) -> bool:
        """Whether so many records were written of the snapshot; False as for a slice."""
        if self.snapshot_seq == records:
            return True
        self.slice_error = f"{self.snapshot_path} has {self.snapshot_seq} of {records} records"
        return False

    def flush_snapshot(self) -> bool:
        """Sync what was written of the snapshot; False as for a slice."""
        try:
            self.disk.fdatasync(self.snapshot)
        except OSError as e:
            self.slice_error = f"{why(e)} syncing {self.snapshot_path}"
            return False
        self.snapshot_synced = self.snapshot_bytes
        return True

    def finish_rewrite(self, now_ms: i64) -> bool:
        """Make the snapshot and the segment beside it the journal. `drop_unnamed` comes next."""
        records = Records()
        records.end(self.snapshot_jobs, self.snapshot_seq)
        if not self.add_to_snapshot(records.take(), 1, 0, now_ms):
            self.give_up_slice()
            return False
        manifest = Manifest()
        manifest.snapshot = snapshot_name(self.snapshot_number)
        manifest.snapshot_salt = self.snapshot_salt
        for i in range(len(self.manifest.segments)):
            if number_of(self.manifest.segments[i]) >= self.snapshot_number:
                manifest.segments.append(self.manifest.segments[i])
                manifest.salts.append(self.manifest.salts[i])
        # The snapshot includes changes whose records are in the segment: they must be
        # durable first, or a cut would replay older records over a newer snapshot.
        if not self.keep_snapshot(manifest.snapshot) or not self.sync():
            return False
        self.is_rewriting = False
        try:
            self.write_manifest(manifest)
        except OSError as e:
            self.abort_rewrite(f"{why(e)} writing the manifest in {self.path}")
            return False
        self.manifest = manifest
        self.is_broken = False
        self.error = ""
        self.synced_seq = self.seq
        self.measure_old()
        self.base_bytes = self.total_bytes()
        return True

    def keep_snapshot(self, name: str) -> bool:
        """Make the snapshot durable under its name; the manifest does not name it yet."""
        try:
            self.disk.fdatasync(self.snapshot)
            self.disk.rename(self.snapshot_path, f"{self.path}/{name}")
        except OSError as e:
            self.abort_rewrite(f"{why(e)} finishing {self.snapshot_path}")
            return False
        self.disk.close(self.snapshot)
        self.snapshot = -1
        self.snapshot_path = f"{self.path}/{name}"
        return True

    def abort_rewrite(self, reason: str) -> None:
        """Abandon the rewrite; the journal continues with its old files and the new segment."""
        self.rewrite_error = reason
        self.is_rewriting = False
        if self.snapshot >= 0:
            self.disk.close(self.snapshot)
            self.snapshot = -1
        self.unlink_quietly(self.snapshot_path)
        if self.is_broken:
            self.tell_broken(reason)
            if self.handle >= 0:
                self.disk.close(self.handle)
                self.handle = -1
                self.unlink_quietly(self.segment)

    def tell_broken(self, reason: str) -> None:
        """[J6.5] The journal could not even begin; later errors already say what is wrong."""
        if self.error == "":
            self.error = f"{reason}: the journal does not begin; the server retries each second"

    def unlink_quietly(self, path: str) -> None:
        """Try to remove the file; one that no manifest names does no harm."""
        try:
            self.disk.unlink(path)
        except OSError:
            return


# ---- The recent speed of the disk: it decides which thread syncs under `always` (SPEC J4.5)
#
# A sync in the pump saves two wake-ups, but all clients wait for it. So the pump syncs only on a
# disk that has been fast, and pauses longer after each slow sync.


@final
class Pace:
    """The last syncs of the journal, and the pump's pause after a slow one."""

    def __init__(self) -> None:
        self.last: list[float] = []  # duration of each in s, a ring
        self.at: i64 = 0  # its next position
        self.sum_s: float = 0.0
        self.keep_off_s: float = LEAST_S
        self.since_s: float = -MOST_S  # the last slow sync, or the last halving
        self.slow_s: float = -MOST_S  # the last slow sync

    def note(self, took_s: float, now_s: float, by_pump: bool) -> None:
        """Add a sync that took so long and ended now; times in s of one steady clock."""
        if len(self.last) < LOOK:
            self.last.append(took_s)
            self.sum_s += took_s
        else:
            self.sum_s += took_s - self.last[self.at]
            self.last[self.at] = took_s
        self.at = (self.at + 1) % LOOK
        if took_s > SLOW_S:
            if by_pump:
                self.keep_off_s = min(2 * self.keep_off_s, MOST_S)
            self.slow_s = self.since_s = now_s
        elif now_s - self.since_s >= 2 * self.keep_off_s and self.keep_off_s > LEAST_S:
            self.keep_off_s = max(self.keep_off_s / 2, LEAST_S)
            self.since_s = now_s

    def is_quick(self, now_s: float) -> bool:
        """[J4.5] Whether the pump may sync."""
        if len(self.last) < LOOK or self.sum_s > LOOK * QUICK_S:
            return False
        return now_s - self.slow_s >= self.keep_off_s
