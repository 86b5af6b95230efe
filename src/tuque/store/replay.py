"""Loads the files of a journal into a node (SPEC J5).

Records are absolute, so replay applies them in order: first the snapshot, then the segments after
it. Changes made during a rewrite are in both, with the same result.

A torn end of the last segment is cut off (`is_torn`). Any other difference is damage: loading stops
and names what `tuque journal repair` would do. Instants move with jumps of the machine's clock.
"""

from typing import Final, final

from mypy_extensions import i64

from tuque.core.dispatch.restore import creation, is_sorted, restore_job, restore_pause, shift_jobs
from tuque.core.leases.restore import LeaseLog
from tuque.core.life.restore import LifeLog
from tuque.core.model.job import ACKED, BODYLESS, IN_TRANSIT, WAIT_REPL, Job
from tuque.core.model.stats import GC_ACKED
from tuque.core.model.tombstones import CUSTODY
from tuque.core.msgs.records import (
    KINDS,
    EndRow,
    GapRow,
    PauseRow,
    PeerRow,
    QueueSettings,
    Row,
    TopicKeys,
    TopicRow,
    subscription_in,
)
from tuque.core.node.node import Node
from tuque.core.queue_settings import restore_settings, setting_in
from tuque.core.queues.procedures import CUSTODY_KEEP_MS
from tuque.core.records.jobs import (
    ACK,
    ACKED_AT,
    ADD,
    APP,
    FIRST,
    HOLDERS,
    LEASE_DROP,
    LEASE_GROUP,
    LIFE,
    OUTCOME,
    REMOVE,
    SOLO,
    STAGED,
    STAGED_WORK,
    STATE,
    TOMB,
    TUBE,
    TUBE_FAMILY,
    TUBE_HOLDER,
    TUBE_IMPLICIT,
    TUBE_STAND,
    VOTE_MARKS,
    VOTERS,
    VOTERS_NEXT,
)
from tuque.core.records.read import (
    BadRecord,
    Record,
    decode,
    job_of,
    renew,
    replace,
)
from tuque.core.staged.restore import StageLog
from tuque.core.tables.topics import Setting, Subscription
from tuque.core.topics import restore_topics
from tuque.store.disk import Disk
from tuque.store.frames import (
    BAD,
    CUT_OFF,
    FOUND,
    HEADER_BYTES,
    SNAPSHOT,
    Boot,
    Contents,
    FrameScanner,
    JournalError,
    Manifest,
    SegmentHeader,
    contents,
    decode_header,
    number_of,
    read_manifest,
)
from tuque.store.nodesets import NodeSets
from tuque.tubes.leadership.restore import TubeLog
from tuque.tubes.policy import tubes_of

VOTE_KINDS: Final = (VOTERS, TUBE_STAND, VOTERS_NEXT, VOTE_MARKS, SOLO, TUBE_FAMILY)
JUMP_MS: Final = 2_000  # smaller clock differences are ignored

# stages of a load
READING: Final = 0
SORTING: Final = 1
RESTORING: Final = 2
LOADED: Final = 3


# ---- A torn end or damage, and a clock that jumped (SPEC J5.1, J5.8, J5.9)


def after_bad(scanner: FrameScanner) -> tuple[bool, i64]:
    """Look past the bad frame: are there good ones, and which record do they call durable?

    Does not move the scanner.
    """
    offset = scanner.offset
    durable_seq: i64 = 0
    found = False
    while scanner.resync():
        found = True
        while scanner.next() == FOUND:
            if scanner.frame.synced_seq > durable_seq:
                durable_seq = scanner.frame.synced_seq
    scanner.offset = offset
    return found, durable_seq


def is_torn(found: bool, durable_seq: i64, next_seq: i64, is_booted_once: bool) -> bool:
    """[J5.1, J5.9] Whether a bad place in the last segment is its torn tail.

    `found` and `durable_seq` are from `after_bad`, `next_seq` is the first unreadable record.
    `is_booted_once`: the page cache was not lost since the segment began, so that a write cannot
    have left a hole with whole frames behind it.
    """
    if not found:
        return True
    return durable_seq < next_seq and not is_booted_once


def is_same_boot(a: Boot, b: Boot) -> bool:
    """Whether both are surely from the same boot of the machine."""
    return a.boot_id == b.boot_id and a.boot_id != b"\0" * 16


def keep_aside(disk: Disk, path: str, label: str, offset: i64, size: i64) -> str:
    """Copy bytes of a file to `<path>.<label>-<offset>`, durably; returns that name.

    Replaces the copy of an earlier attempt. Raises OSError.
    """
    aside = f"{path}.{label}-{offset}"
    if disk.exists(aside):
        disk.unlink(aside)
    handle = disk.open_append(aside)
    try:
        while size > 0:
            part = disk.read(path, offset, min(size, i64(4 << 20)))
            if len(part) == 0:
                break
            taken: i64 = disk.write(handle, part)
            offset += taken
            size -= taken
        disk.fdatasync(handle)
    finally:
        disk.close(handle)
    return aside


def clock_jump_ms(before: Boot, last_ms: i64, after: Boot) -> i64:
    """How far the clock of `after` differs from where that of `before` would be.

    `last_ms` is the latest instant written by `before`. Within one boot the machine's own clock is
    exact. Otherwise only a jump backwards shows: then the time in between counts as none, so that
    nothing expires early.
    """
    if is_same_boot(before, after):
        jump_ms = (after.wall_ms - before.wall_ms) - (after.boottime_ms - before.boottime_ms)
        if -JUMP_MS <= jump_ms <= JUMP_MS:
            return 0
        return jump_ms
    if after.wall_ms < last_ms:
        return after.wall_ms - last_ms
    return 0


# ---- The load


@final
class Loader:
    """Loads the journal in `path` step by step; nothing enters the node before all is read.

    Raises JournalError, at once or from `step`. `notes` are lines for the log.
    """

    def __init__(self, disk: Disk, path: str, boot: Boot, may_cut: bool) -> None:
        self.disk = disk
        self.path = path
        self.boot = boot
        self.may_cut = may_cut  # aof_load_truncated
        self.found = found_in(disk, path)
        self.manifest = self.found.manifest
        self.names: list[str] = []
        if self.manifest.snapshot != "":
            self.names.append(self.manifest.snapshot)
        self.names.extend(self.manifest.segments)
        self.sizes: list[i64] = []
        for name in self.names:
            self.sizes.append(file_size(disk, f"{path}/{name}"))
        self.total_bytes: i64 = sum(self.sizes)
        self.loaded_bytes: i64 = 0
        self.stage: i64 = READING
        self.file_index: i64 = -1
        self.scanner: FrameScanner | None = None
        self.header: SegmentHeader | None = None
        self.payload = b""
        self.payload_pos: i64 = 0
        self.record = Record()
        self.next_seq: i64 = 0  # of the next record; 0: any, as the file begins
        self.is_ended = False  # the snapshot's END was seen
        self.clock_ms: i64 = 0  # the journal's latest instant
        self.jobs: dict[bytes, Job] = {}
        self.acked: dict[bytes, int] = {}  # id: refused until
        self.buried: dict[bytes, tuple[int, int]] = {}  # with copies on other nodes: (end, nodes)
        self.tombs: dict[bytes, tuple[int, int]] = {}  # other tombstones: (end, kind)
        self.nodes = NodeSets()
        self.lives: dict[bytes, int] = {}  # of at-most-once jobs: the other node's incarnation
        self.pauses: dict[bytes, tuple[i64, i64]] = {}  # bits, instant of the command ns
        self.settings: dict[bytes, Setting] = {}
        self.topics: dict[tuple[bytes, bytes], Subscription] = {}
        self.leases = LeaseLog()
        self.staging = StageLog()
        self.tubes = TubeLog()
        self.life = LifeLog()
        self.order: list[Job] = []
        self.restored: i64 = 0
        self.notes: list[str] = notes_of(path, self.found)
        self.record_count: i64 = 0
        self.job_count: i64 = 0  # entered into the node
        self.expired_count: i64 = 0
        self.refused_count: i64 = 0  # adds of jobs already acked
        self.cut_bytes: i64 = 0
        self.gap_records: i64 = 0  # removed by an earlier repair
        self.shift_ms: i64 = 0  # sum of all clock jumps

    def seq(self) -> i64:
        """The last record loaded; new ones follow."""
        return self.next_seq - 1 if self.next_seq > 0 else 0

    def step(self, n: Node, budget: i64) -> bool:
        """Process about `budget` records; True when everything is in the node."""
        if self.stage == READING:
            if self.read(budget):
                self.shift(self.boot)
                self.payload = b""
                self.scanner = None
                self.stage = SORTING
        elif self.stage == SORTING:
            self.order = list(self.jobs.values())
            self.jobs = {}
            if not is_sorted(self.order):
                self.order.sort(key=creation)
            if not self.tubes.is_empty():
                self.notes.extend(self.tubes.restore(n, tubes_of(n)))
            self.stage = RESTORING
        elif self.stage == RESTORING and self.restore(n, budget):
            n.remembers = self.record_count > 0
            if not self.tubes.is_empty():
                self.tubes.begin_sessions(n, tubes_of(n))
            self.stage = LOADED
        return self.stage == LOADED

    def read(self, budget: i64) -> bool:
        """Apply about `budget` records; True at the end of the last file."""
        left = budget
        while left > 0:
            if self.payload_pos < len(self.payload):
                left -= self.apply_some(left)
                continue
            scanner = self.scanner
            if scanner is None:
                if not self.open_next():
                    return True
                continue
            before = scanner.offset
            found = scanner.next()
            if found == FOUND:
                self.on_frame(scanner)
            elif found == BAD:
                self.on_bad(scanner)
            else:
                self.on_file_end()
            self.loaded_bytes += scanner.offset - before
        return False

    def open_next(self) -> bool:
        """Open the next file and check its header; False when there is none."""
        self.file_index += 1
        if self.file_index == len(self.names):
            return False
        name = self.names[self.file_index]
        path = f"{self.path}/{name}"
        header = decode_header(self.disk.read(path, 0, HEADER_BYTES), path)
        if header is None:
            raise self.damage(path, 0, "its header is damaged")
        salt = self.salt_of(name)
        if header.salt != salt:
            mine, named = header.salt.hex(), salt.hex()
            raise self.damage(
                path, 0, f"it is of another journal (it has {mine}, the manifest {named})"
            )
        if header.kind == SNAPSHOT:
            self.next_seq = 1
        elif self.next_seq == 0:
            self.next_seq = header.first_seq
        elif header.first_seq != self.next_seq:
            what = f"it begins with record {header.first_seq}, expected {self.next_seq}"
            if name in self.found.newer:
                what = f"it is newer than the manifest, and {what}"
            raise self.damage(path, 0, what)
        if header.boot.wall_ms > 0:  # else written anew by a repair that knew no time
            self.shift(header.boot)
            self.clock_ms = header.boot.wall_ms
        self.header = header
        self.scanner = FrameScanner(self.disk, path, header.salt, HEADER_BYTES)
        self.loaded_bytes += HEADER_BYTES
        return True

    def salt_of(self, name: str) -> bytes:
        """The salt that the manifest has for the file."""
        m = self.manifest
        return m.snapshot_salt if name == m.snapshot else m.salts[m.segments.index(name)]

    def on_frame(self, scanner: FrameScanner) -> None:
        """Check that no record is missing before the frame, and load its records."""
        frame = scanner.frame
        if frame.first_seq != self.next_seq:
            raise self.damage(
                scanner.path,
                frame.offset,
                f"records {self.next_seq} to {frame.first_seq - 1} are missing",
            )
        self.next_seq += frame.count
        header = self.header
        assert header is not None
        # The segment beside a snapshot started first, before the snapshot's frames.
        if frame.now_ms > self.clock_ms and header.kind != SNAPSHOT:
            self.clock_ms = frame.now_ms
        self.payload = frame.payload
        self.payload_pos = 0

    def on_file_end(self) -> None:
        """At the end of a file: a snapshot must have an end mark."""
        header = self.header
        if header is not None and header.kind == SNAPSHOT:
            if not self.is_ended:
                name = f"{self.path}/{self.names[self.file_index]}"
                raise self.damage(name, self.sizes[self.file_index], "its end is missing")
            self.next_seq = 0
        self.scanner = None

    def on_bad(self, scanner: FrameScanner) -> None:
        """Cut a torn end of the last segment; refuse everything else."""
        offset = scanner.offset
        reason = scanner.reason
        is_last = self.file_index == len(self.names) - 1
        header = self.header
        assert header is not None
        if not is_last or header.kind == SNAPSHOT:
            raise self.damage(scanner.path, offset, reason)
        found, durable_seq = after_bad(scanner)
        if not is_torn(found, durable_seq, self.next_seq, is_same_boot(header.boot, self.boot)):
            raise self.damage(scanner.path, offset, reason)
        size = scanner.size - offset
        if not self.may_cut:
            raise JournalError(
                f"{scanner.path} ends in {size} bytes of an unfinished write at offset {offset}; "
                "set aof-load-truncated to yes to cut them off, or run: "
                f"tuque journal repair {self.path}"
            )
        if found or not reason.endswith(CUT_OFF):
            # More than a short write: leave it to a person.
            try:
                aside = keep_aside(self.disk, scanner.path, "torn", offset, size)
            except OSError as e:
                raise JournalError(
                    f"cannot write the torn end of {scanner.path} to a file of its own: "
                    f"{e.strerror or e}; nothing was cut. Free space or check the disk, and "
                    "start again"
                ) from e
            later = "later frames are whole: all of it" if found else "it"
            reason += f"; {later} is kept in {aside}"
        try:
            self.disk.truncate(scanner.path, offset)
        except OSError as e:
            raise JournalError(f"cannot cut {scanner.path}: {e.strerror or e}") from e
        self.cut_bytes += size
        self.notes.append(f"{scanner.path}: cut {size} bytes of an unfinished write ({reason})")
        self.loaded_bytes += size
        self.scanner = None

    def damage(self, path: str, offset: i64, what: str) -> JournalError:
        """The error for a damaged journal."""
        return JournalError(
            f"{path} is damaged at offset {offset}: {what}. Nothing was loaded. Look at it with "
            f"`tuque journal check {self.path}`; `tuque journal repair {self.path}` "
            "sets the damaged part aside so that the rest loads"
        )

    # Applying

    def apply_some(self, most: i64) -> i64:
        """Apply up to `most` records of the current frame; returns how many."""
        payload = self.payload
        total: i64 = len(payload)
        r = self.record
        done: i64 = 0
        pos = self.payload_pos
        while pos < total and done < most:
            try:
                pos = decode(payload, pos, r)
            except BadRecord as e:
                scanner = self.scanner
                assert scanner is not None
                raise self.damage(scanner.path, scanner.frame.offset, str(e)) from e
            self.apply(r)
            done += 1
        self.payload_pos = pos
        self.record_count += done
        return done

    def apply(self, r: Record) -> None:
        """Apply one record; a repeat changes nothing."""
        kind = r.kind
        if kind == ADD:
            self.on_add(r)
        elif STATE <= kind <= FIRST:
            job = self.jobs.get(r.id)
            if job is not None and job.state != ACKED:
                renew(job, r)
        elif kind == ACK:
            self.on_end(r.id, r.expire_ms, -1)
            self.acked[r.id] = r.expire_ms
        elif kind == REMOVE:
            self.on_end(r.id, 0, r.bits)
        elif kind == HOLDERS:
            job = self.jobs.get(r.id)
            if job is not None:
                self.hold(job, r.holders)
        elif kind == ACKED_AT:
            self.on_acked(r)
        elif kind == TOMB:
            self.tombs[r.id] = (r.expire_ms, r.bits)
        elif LEASE_GROUP <= kind <= LEASE_DROP:
            for id in self.leases.apply(r, self.jobs):
                self.acked[id] = self.jobs[id].expire_ms
                self.on_end(id, self.acked[id], -1)
        elif STAGED <= kind <= APP or kind == STAGED_WORK:
            self.on_staged(r)
        elif TUBE <= kind <= TUBE_HOLDER or kind == TUBE_IMPLICIT:
            self.tubes.take(kind, r, self.jobs)
        elif kind in VOTE_KINDS and r.row is not None:
            self.tubes.homes.votes.apply(r.row)
        elif LIFE <= kind <= OUTCOME and not self.tubes.takes_life(r, self.jobs):
            self.life.apply(kind, r.life, self.jobs.get(r.id))
        elif kind in KINDS and r.row is not None:
            self.on_row(r.row)

    def on_row(self, row: Row) -> None:
        """Apply a record of a queue, of a node, of a subscription, or of the journal itself."""
        if isinstance(row, PeerRow):
            self.nodes.name(row.slot, row.node_id, row.incarnation)
        elif isinstance(row, PauseRow):
            self.pauses.pop(row.queue, None)
            if row.bits != 0 or row.stamp_ns != 0:
                self.pauses[row.queue] = (row.bits, row.stamp_ns)
        elif isinstance(row, TopicRow):
            self.on_topic(subscription_in(row))
        elif isinstance(row, TopicKeys):
            known = self.topics.get((row.topic, row.queue))
            if known is not None:
                known.keys = list(row.keys)
        elif isinstance(row, QueueSettings):
            self.settings.pop(row.queue, None)
            if row.version > 0:
                self.settings[row.queue] = setting_in(row)
        elif isinstance(row, EndRow):
            self.is_ended = True
        elif isinstance(row, GapRow):
            self.gap_records += row.records
            self.tubes.homes.votes.on_gap()

    def on_topic(self, one: Subscription) -> None:
        """A version of a subscription takes the place of the one before (T60.6)."""
        self.topics.pop((one.topic, one.queue), None)
        if one.version > 0:
            self.topics[(one.topic, one.queue)] = one

    def on_staged(self, r: Record) -> None:
        """A record of staged jobs; a publication makes jobs, unless they were read."""
        for made in self.staging.apply(r):
            if made.id not in self.acked and made.id not in self.jobs:
                self.jobs[made.id] = made
                work = self.staging.works.get(made.id)
                if work is not None:
                    self.life.begun(made.id, work)

    def on_add(self, r: Record) -> None:
        """Add a job, unless its ack was read: an ack is final."""
        if r.id in self.acked:
            self.refused_count += 1
            return
        job = self.jobs.get(r.id)
        if job is None:
            job = job_of(r)
            self.jobs[r.id] = job
        elif job.state == ACKED and r.state != ACKED:
            self.refused_count += 1
            return
        else:
            replace(job, r)
            self.life.replaced(r.id)
        self.hold(job, r.holders)
        self.tombs.pop(r.id, None)

    def hold(self, job: Job, nodes: i64) -> None:
        """The holders of a job, in the writing process's slots."""
        job.holders = self.nodes.common(nodes)
        if job.retry_s == 0:
            self.lives[job.id] = self.nodes.life_of(job.holders)

    def on_acked(self, r: Record) -> None:
        """The job is acked, and other nodes must still be told."""
        if r.id in self.acked:
            return
        job = self.jobs.get(r.id)
        if job is None:
            job = Job(r.id, b"", b"", 0, r.expire_ms, 1, 0, 0)
            self.jobs[r.id] = job
        self.life.drop(r.id)
        job.state = ACKED
        job.body = b""
        if r.holders == 0:
            job.flags = BODYLESS  # A3.4
            job.holders = 1
        else:
            job.holders = self.nodes.common(r.holders)

    def on_end(self, id: bytes, expire_ms: i64, cause: i64) -> None:
        """A record was removed by an ack (cause -1) or REMOVE; refuse late messages about it."""
        job = self.jobs.pop(id, None)
        self.life.drop(id)
        if job is None or job.holders == 1:
            return
        if job.state == ACKED or cause < 0:
            self.buried[id] = (max(expire_ms, job.expire_ms), job.holders & ~1)
        elif job.retry_s == 0 and job.flags & IN_TRANSIT == 0 and cause != GC_ACKED:
            self.tombs[id] = (job.expire_ms + CUSTODY_KEEP_MS, CUSTODY)

    # Clocks

    def shift(self, to: Boot) -> None:
        """Move all instants loaded so far if the clock jumped before `to` began (G8.3, J5.8)."""
        header = self.header
        if header is None:
            return
        jump_ms = clock_jump_ms(header.boot, self.clock_ms, to)
        if jump_ms == 0:
            return
        self.shift_ms += jump_ms
        self.notes.append(f"the clock jumped by {jump_ms} ms: due times move along")
        shift_jobs(self.jobs, jump_ms)
        self.leases.shift(jump_ms)
        self.staging.shift(jump_ms)
        self.life.shift(jump_ms)
        for job_id in list(self.acked):
            self.acked[job_id] += jump_ms
        for job_id, (end_ms, nodes) in list(self.buried.items()):
            self.buried[job_id] = (end_ms + jump_ms, nodes)
        for job_id, (end_ms, kind) in list(self.tombs.items()):
            self.tombs[job_id] = (end_ms + jump_ms, kind)

    # Restoring

    def restore(self, n: Node, budget: i64) -> bool:
        """Enter about `budget` jobs into the node; True when all are in."""
        order = self.order
        end = self.restored + budget
        if end > len(order):
            end = len(order)
        while self.restored < end:
            job = order[self.restored]
            if job.state == WAIT_REPL:
                self.staging.take_up(job)
            if job.holders != 1:
                if job.retry_s == 0:
                    job.holders = self.nodes.custodians(n, job.holders, self.lives[job.id])
                else:
                    job.holders = self.nodes.slots(n, job.holders)
            life = self.life.begin(n, job)
            if restore_job(n, job):
                self.job_count += 1
                if life is not None:
                    self.life.enter(n, job, life)
            else:
                self.expired_count += 1
            self.restored += 1
        if self.restored < len(order):
            return False
        self.order = []
        for queue, (bits, stamp_ns) in self.pauses.items():
            restore_pause(n, queue, bits, stamp_ns)
        restore_topics(n, self.topics)
        restore_settings(n, self.settings)
        self.leases.restore(n)
        self.staging.restore(n)
        self.life.finish(n)
        self.restore_tombs(n)
        return True

    def restore_tombs(self, n: Node) -> None:
        """Restore ids that other nodes may still send (J5.12)."""
        for id, (end_ms, nodes) in self.buried.items():
            if end_ms > n.now_ms and id not in n.jobs:
                n.tombs.bury(id, end_ms, self.nodes.slots(n, nodes) & ~1, n.round)
        for id, (end_ms, kind) in self.tombs.items():
            if end_ms > n.now_ms and id not in n.jobs:
                if kind == CUSTODY:
                    n.tombs.keep_custody(id, end_ms)
                else:
                    n.tombs.keep(id, end_ms)


def found_in(disk: Disk, path: str) -> Contents:
    """[J5.13] The files that count; raises JournalError if newer ones cannot be loaded."""
    manifest = read_manifest(disk, path)
    if manifest is None:
        return Contents(Manifest())
    try:
        places = {name: name for name in disk.listdir(path) if number_of(name) >= 0}
        found = contents(disk, path, manifest, places)
    except OSError as e:
        raise JournalError(f"cannot read a file of {path}: {e.strerror or e}") from e
    problem = found.problem
    if len(found.foreign) > 0:
        problem = f"{path}/{found.foreign[0]} is of another node"
    if problem != "":
        raise JournalError(
            f"the manifest in {path} is older than files beside it, and they do not follow it: "
            f"{problem}. Nothing was loaded. Bring the right file back, or run: "
            f"tuque journal repair {path}"
        )
    return found


def notes_of(path: str, found: Contents) -> list[str]:
    """What the log says of files that the manifest does not name."""
    notes: list[str] = []
    if len(found.newer) > 0:
        names = ", ".join(found.newer)
        notes.append(f"the manifest in {path} was older than its files: also loaded {names}")
    for name in found.left:
        notes.append(f"{path}/{name} has records and is not of this journal: renamed to .left")
    return notes


def file_size(disk: Disk, path: str) -> i64:
    """Size in bytes of a file named by the manifest."""
    try:
        return disk.size(path)
    except OSError as e:
        raise JournalError(
            f"cannot read {path}, which the manifest names: {e.strerror or e}; "
            "bring it back, or run: tuque journal repair"
        ) from e
