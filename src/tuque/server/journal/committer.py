"""The shell of the journal as the pump sees it: commit, hold, rewrite (SPEC J4, J6).

`commit` puts everything the core recorded in one turn into one frame. Under `always` the thread
writes and syncs what has gathered, so that all turns during one fsync share the next; under
`everysec` and `no` the frame is written at once in the caller unless the thread writes just then,
and the thread syncs once a second, or never. The pump holds replies until `open_seq` reaches what
`commit` returned: what is written, under `always` what is synced. `wake_fd` becomes readable when
it may have.

When the disk fails, `error` is set until it works again. Frames wait in memory, up to a
limit; beyond it, and after a failed fsync, they are dropped, and the journal is rewritten
from the jobs in memory once the disk accepts writes.
"""

import time
from typing import Final

from tuque.core.node.node import Node
from tuque.core.records.jobs import Records
from tuque.core.staged.publish import finish_publish
from tuque.server.journal.thread import (
    ALWAYS,
    BEGIN,
    EVERYSEC,
    FINISH,
    FRAME,
    NO,
    NUDGE,
    RETRY_S,
    SLICE,
    Item,
    JournalThread,
    Note,
    Wakeup,
)
from tuque.store.disk import Disk, LockedError, machine_boot_id
from tuque.store.frames import (
    LOCK,
    MANIFEST,
    Boot,
    JournalError,
    retire,
    write_file,
)
from tuque.store.replay import Loader
from tuque.store.snapshot import Snapshot
from tuque.store.writer import Journal, why

SLICE_JOBS: Final = 2_000  # serialised in one turn while the journal is rewritten
REWRITE_BACKLOG_BYTES: Final = 32 << 20  # a rewrite pauses while more bytes wait to be written
REWRITE_RETRY_S: Final = 10.0  # after a failed rewrite, if writes succeed without it
LATE_MS: Final = 10  # delay of a sync that no reply waits for, under `always` (J4.6)
SHORT_SHARE: Final = 10  # on a full disk a rewrite is due when a tenth of the files is new
SHORT_BYTES: Final = 1 << 20  # of the files: a smaller journal has no room to give back
CLOSE_S: Final = 30.0  # how long `close` waits for a slow disk

LOAD_ONCE: Final = "load-once"


def boot_record(now_ms: int) -> Boot:
    """A record that maps the clock of `now_ms` to the machine's own."""
    if hasattr(time, "CLOCK_BOOTTIME"):
        return Boot(now_ms, machine_boot_id(), time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 10**6)
    return Boot(now_ms, b"", 0)


def lock_directory(disk: Disk, path: str, lock_name: str = LOCK) -> int:
    """Allow only one server in the directory; raises JournalError.

    Returns a handle that holds the lock until it is closed or the process ends.
    """
    try:
        disk.makedirs(path)
        return disk.lock(f"{path}/{lock_name}")
    except LockedError as e:
        holder = f"process {e.pid}" if e.pid else "another process"
        raise JournalError(
            f"{path} is in use by {holder}; stop that server first, or give this one its own dir"
        ) from e
    except OSError as failed:
        raise JournalError(
            f"cannot write in {path}: {why(failed)}; the server needs a directory that it may write"
        ) from failed


def save_once(disk: Disk, path: str, n: Node) -> str:
    """[J9] Planned restart without a journal: save all jobs for the next start.

    Returns "" or the error.
    """
    committer = Committer(disk, path, n.node_id, n.now_ms)
    try:
        committer.lock()
        committer.start_anew(n)
        error = committer.finish_rewrite(n)
        if error == "":
            write_file(disk, f"{path}/{LOAD_ONCE}", b"the next start loads this journal\n")
            disk.fsync_dir(path)
    except (JournalError, OSError) as e:
        error = str(e)
    return committer.close(n.now_ms) or error


def has_saved_once(disk: Disk, path: str) -> bool:
    """Whether the last stop asked the next start to load even without a journal."""
    return disk.exists(f"{path}/{LOAD_ONCE}") and disk.exists(f"{path}/{MANIFEST}")


def forget_saved(disk: Disk, path: str, goes_on: bool) -> None:
    """Discard the saved jobs after a load, before serving: else a crash would load them again.

    `goes_on`: a journal is on and continues the files. Raises OSError.
    """
    if not goes_on:
        retire(disk, path)
    if disk.exists(f"{path}/{LOAD_ONCE}"):
        disk.unlink(f"{path}/{LOAD_ONCE}")
        disk.fsync_dir(path)


class Committer:
    """The journal of a running server. One thread calls all methods; the writer has its own.

    Order of calls: `lock`; then `loader` stepped to its end and `start`, or `start_anew` when
    the journal is turned on at run time; `commit` and `on_turn` each turn; `close`. With
    `threaded` False everything is written inside `commit` (tests). The simulator passes its own
    thread, with its bell and clock.
    """

    def __init__(
        self,
        disk: Disk,
        path: str,
        node_id: bytes,
        now_ms: int,
        policy: str = EVERYSEC,
        *,
        threaded: bool = True,
        thread: JournalThread | None = None,
        segment_bytes: int = 64 << 20,
        rewrite_percentage: int = 100,
        rewrite_min_bytes: int = 64 << 20,
        no_fsync_on_rewrite: bool = False,
        reserve_bytes: int = 0,
        free_min: int = 0,
    ) -> None:
        self.disk = disk
        self.path = path
        if thread is None:
            journal = Journal(disk, path, node_id, boot_record(now_ms))
            bell = Wakeup() if threaded else None
            thread = JournalThread(journal, policy, bell, segment_bytes)
        self.thread = thread
        self.journal = thread.journal
        self.wake_fd = -1 if thread.bell is None else thread.bell.fd
        self.slice_jobs = SLICE_JOBS
        self.thread.spare_rewrites = no_fsync_on_rewrite
        self.thread.room.free_min = free_min
        self.journal.reserve_bytes = reserve_bytes
        self.rewrite_percentage = rewrite_percentage
        self.rewrite_min_bytes = rewrite_min_bytes
        self.seq = 0  # last record passed to `commit`
        self.loaded: Loader | None = None
        self._lock_handle = -1
        self._put_bytes = 0
        self._custody_seq = 0
        self._late_ms = 0  # when the thread is to sync what the pump wrote without a sync
        self._wish = self._wish_seq = 0
        self._query = self._query_seq = 0
        # the rewrite
        self._rewrite = self._slice_records = 0  # number of the latest one, and its records so far
        self._snapshot: Snapshot | None = None  # while jobs are added to it
        self._is_finishing = self._is_preparing = False  # at its end; of its files, before it
        self._is_asked = False
        self._started_at = 0.0
        self._took_s = -1
        self._retry_at = 0.0
        self._most_jobs = 0  # since the disk became short, or since the last rewrite
        self.is_short = False  # the disk has too little room for more jobs (J6.9)

    @property
    def durable_seq(self) -> int:
        """The last record that survives a power cut."""
        return self.thread.durable_seq

    @property
    def open_seq(self) -> int:
        """[J4.2] The last record whose replies may leave: a kill of the process keeps it.

        Under `always`, and while a delivery of an at-most-once job waits (J4.4), a power cut does.
        After a failed sync only what the next snapshot has is kept, once that is complete (J6.2).
        """
        thread = self.thread
        if thread.policy == ALWAYS or self._custody_seq > thread.durable_seq:
            return thread.durable_seq
        if self.journal.is_broken and thread.error:
            return thread.durable_seq
        return int(self.journal.seq)

    @property
    def error(self) -> str:
        """Why writes must be refused now; "" if they need not be."""
        return self.thread.error

    @property
    def policy(self) -> str:
        """When to sync the journal: no, everysec or always."""
        return self.thread.policy

    def take_notes(self) -> list[Note]:
        """Return and clear the lines for the log."""
        notes = self.thread.notes
        if notes:
            self.thread.notes = []
        return notes

    # Start and stop

    def lock(self) -> None:
        """Lock the directory for this process; raises JournalError with the other's pid."""
        self._lock_handle = lock_directory(self.disk, self.path)

    def loader(self, may_cut: bool = True) -> Loader:
        """The reader of the journal; call `step(node, records)` until it returns True."""
        self.loaded = Loader(self.disk, self.path, self.journal.boot, may_cut)
        return self.loaded

    def start(self, now_ms: int) -> None:
        """Continue writing after the load. Raises JournalError if the directory is not writable."""
        assert self.loaded is not None
        seq = self.loaded.seq()
        self.journal.start(self.loaded.manifest, seq, now_ms)
        self.loaded = None
        self.seq = seq
        self.thread.start()

    def start_anew(self, n: Node, seq: int = 0) -> None:
        """[J6.5] Begin with the node's present jobs, which a rewrite saves in the background.

        The journal is invalid until that is done. Raises JournalError.
        """
        self.journal.start_anew(seq)
        self.seq = seq
        self.thread.start()
        self.start_rewrite(n, n.now_ms)

    def close(self, now_ms: int, retired: bool = False) -> str:
        """Write and sync what waits, stop the thread, unlock the directory; "" or the error.

        `retired`: the node goes on without a journal (CONFIG SET appendonly no), so the files
        will be out of date and must not be loaded again.
        """
        error = self._finish(now_ms, retired) if self.thread.is_started else ""
        if self._lock_handle >= 0:
            self.disk.close(self._lock_handle)
            self._lock_handle = -1
        if self.thread.bell is not None:
            self.thread.bell.close()
        return error

    def _finish(self, now_ms: int, retired: bool) -> str:
        """Write and sync everything; "" or the error."""
        if self.error == "":
            records = Records()
            records.close()
            self.commit(records, now_ms)
        if not self.thread.stop(CLOSE_S):
            return f"the disk did not take the journal within {CLOSE_S:.0f} s"
        self.journal.close()
        if retired:
            try:
                retire(self.disk, self.path)
            except OSError as e:
                return f"{why(e)} retiring the journal in {self.path}"
        return self.error

    # The pump's side

    def commit(self, records: Records, now_ms: int, is_binding: bool = False) -> int:
        """Hand over the core's records of this turn as one frame.

        Returns the number of the last record; the turn is durable once `durable_seq` reaches it.
        Under `always` that may be at once, when `is_binding` says that replies wait (J4.5).
        """
        count = records.count
        if count == 0:
            return self.seq
        seq = self.seq = self.seq + count
        urgent = 0
        if records.has_custody and self.thread.policy != NO:
            self._custody_seq = seq
            urgent = 1
        pieces = records.take_pieces()
        item = Item(FRAME, pieces[0], count, now_ms, urgent)
        if len(pieces) > 1:
            item.extend(pieces[1:])
        self._put(item, is_binding)
        return seq

    def when_late(self, now_ms: int) -> int:
        """[J4.6] Once a turn: have the thread sync what was left to it; when to call again.

        0: nothing is left.
        """
        if not self.thread.is_late():
            self._late_ms = 0
        elif self._late_ms == 0:
            self._late_ms = now_ms + LATE_MS
        elif now_ms >= self._late_ms:
            self._late_ms = 0
            self._put(Item(NUDGE, b"", 0, 0))
        return self._late_ms

    def syncs_here(self) -> bool:
        """[J4.5] Whether `commit` would now sync in the caller."""
        thread = self.thread
        return thread.policy == ALWAYS and thread.is_idle() and thread.is_quick()

    def must_hold(self, seq: int) -> bool:
        """Whether replies that depend on record `seq` must wait."""
        return seq > self.open_seq

    def has_wish(self, records: Records) -> bool:
        """Whether the core wants something new on disk."""
        return records.wish != self._wish

    def note_wish(self, records: Records) -> None:
        """The records that the core wants on disk have been committed; call after `commit`."""
        if records.wish != self._wish:
            self._wish = records.wish
            self._wish_seq = self.seq
        if records.query != self._query:
            self._query = records.query
            self._query_seq = self.seq

    def grant(self, records: Records) -> None:
        """[T20] Report to the core that what it wanted on disk is there (T20.3, T20.4)."""
        if records.granted < self._wish and not self.must_hold(self._wish_seq):
            records.granted = self._wish
        if self._query_seq <= self.thread.durable_seq:
            records.safe = self._query

    def on_wake(self) -> None:
        """Empty `wake_fd`; check `durable_seq` and `error` afterwards."""
        if self.thread.bell is not None:
            self.thread.bell.quiet()

    def set_policy(self, policy: str) -> None:
        """Change when to sync, from the next batch on."""
        self.thread.policy = policy
        self._put(Item(NUDGE, b"", 0, 0))

    def waiting_bytes(self) -> int:
        """Bytes committed but not written yet."""
        return self._put_bytes - self.thread.written_bytes

    def _put(self, item: Item, is_binding: bool = False) -> None:
        self._put_bytes += item.size
        self.thread.put(item, is_binding)

    # Rewriting, on the pump's side

    def on_turn(self, n: Node, now_ms: int, budget: int | None = None) -> None:
        """Once a turn, after `commit`: start a rewrite that is due, or continue one.

        `budget`: the number of jobs at most, by default `slice_jobs`.
        """
        self._watch_room(n)
        if self._snapshot is not None or self._is_finishing:
            self.rewrite_step(n, now_ms, self.slice_jobs if budget is None else budget)
        elif n.staging.running is None and self._is_rewrite_due():
            self._is_preparing = not self.thread.may_switch()
            if not self._is_preparing:
                self.start_rewrite(n, now_ms)

    def _watch_room(self, n: Node) -> None:
        """[J6.9] Whether there is room for more jobs; [J6.11] a rewrite that gives room back."""
        room, journal = self.thread.room, self.journal
        total = int(journal.total_bytes())
        if not room.is_short(total) or not room.is_short(min(total, int(n.used_bytes()))):
            self.is_short, self._most_jobs = False, 0
            return
        self.is_short = True
        jobs = len(n.jobs)
        self._most_jobs = max(self._most_jobs, jobs)
        grown = total - int(journal.base_bytes)
        is_worth = 2 * jobs < self._most_jobs or grown * SHORT_SHARE > total
        if is_worth and total > SHORT_BYTES and self.rewrite_percentage > 0:
            self._most_jobs = jobs
            self._is_asked = True

    def is_rewriting(self) -> bool:
        """Whether a rewrite is running (Disque: aof_rewrite_in_progress)."""
        return self._is_running() or self._is_preparing

    def _is_running(self) -> bool:
        """Whether a rewrite has begun."""
        return self._snapshot is not None or self._is_finishing

    def ask_rewrite(self) -> None:
        """Start a rewrite next turn (BGREWRITEAOF)."""
        self._is_asked = True

    def start_rewrite(self, n: Node, now_ms: int) -> bool:
        """Start a rewrite in the background; False when one is running."""
        if self._is_running():
            return False
        self._is_preparing = False
        finish_publish(n)  # a snapshot has all of it, or nothing (Z6.4)
        if n.records is not None:
            self.commit(n.records, now_ms)
        self._is_asked = False
        self._rewrite += 1
        self._started_at = self.thread.clock()
        journal = self.journal
        journal.wanted_bytes = min(int(journal.total_bytes()), int(n.used_bytes()))
        self._put(Item(BEGIN, b"", 0, now_ms, self.seq, self._rewrite))
        self._snapshot = Snapshot(n)
        self._slice_records = 0
        return True

    def rewrite_step(self, n: Node, now_ms: int, budget: int) -> None:
        """Add up to `budget` more jobs to the snapshot."""
        thread = self.thread
        if thread.done_rewrite == self._rewrite:
            self._is_finishing = False
            self._took_s = round(self.thread.clock() - self._started_at)
        elif thread.failed_rewrite == self._rewrite:
            self._snapshot = None
            self._is_finishing = False
            patience_s = RETRY_S if self.journal.is_broken else REWRITE_RETRY_S
            self._retry_at = self.thread.clock() + patience_s
        snapshot = self._snapshot
        if snapshot is None or self.waiting_bytes() > REWRITE_BACKLOG_BYTES:
            return
        payload = snapshot.slice(n, budget)
        if payload:
            count = snapshot.record_count
            self._slice_records += count
            item = Item(SLICE, payload, count, now_ms, snapshot.job_count, self._rewrite)
            self._put(item)
        if snapshot.is_done():
            self._snapshot = None
            self._is_finishing = True
            self._put(Item(FINISH, b"", 0, now_ms, self._slice_records, self._rewrite))

    def rewrite_now(self, n: Node, timeout_s: float = 600.0) -> str:
        """Rewrite and wait for it (SHUTDOWN REWRITE-AOF); "" or the error."""
        self.finish_rewrite(n, timeout_s)  # a running one began before the latest changes
        self.start_rewrite(n, n.now_ms)
        return self.finish_rewrite(n, timeout_s)

    def finish_rewrite(self, n: Node, timeout_s: float = 600.0) -> str:
        """Wait for the running rewrite; "" or the error."""
        deadline = self.thread.clock() + timeout_s
        while self._is_running() and self.thread.clock() < deadline:
            self._step_and_wait(n)
        if self.thread.done_rewrite == self._rewrite:
            return ""
        return self.journal.rewrite_error or self.error or "the rewrite did not finish in time"

    def settle(self, n: Node) -> None:
        """Before `close`: finish a rewrite without which the files are invalid (J6.5, J9.2)."""
        if self.journal.is_broken and self._is_running():
            self.finish_rewrite(n)

    def _step_and_wait(self, n: Node) -> None:
        self.rewrite_step(n, n.now_ms, 10_000)
        if self._is_finishing or self.waiting_bytes() > REWRITE_BACKLOG_BYTES:
            time.sleep(0.002)  # lets the thread run

    def _is_rewrite_due(self) -> bool:
        """After an error once the disk may work again; else when the journal has grown enough."""
        journal = self.journal
        if journal.is_broken or self._is_asked:
            return self.thread.clock() >= self._retry_at
        total = journal.total_bytes()
        if self.rewrite_percentage == 0 or total < self.rewrite_min_bytes:
            return False
        growth = (total - journal.base_bytes) * 100 // max(journal.base_bytes, 1)
        if growth < self.rewrite_percentage or self.error != "":
            return False
        return self.thread.clock() >= self._retry_at

    # For people

    def info(self) -> dict[str, str | int]:
        """Fields of INFO persistence: Disque's names, then ours."""
        journal = self.journal
        return {
            "aof_enabled": 1,
            "aof_state": "wait-rewrite" if journal.is_broken else "on",
            "aof_rewrite_in_progress": int(self.is_rewriting()),
            "aof_rewrite_scheduled": int(self._is_asked),
            "aof_last_rewrite_time_sec": self._took_s,
            "aof_last_bgrewrite_status": "err" if journal.rewrite_error else "ok",
            "aof_last_write_status": "err" if self.error else "ok",
            "aof_current_size": journal.total_bytes(),
            "aof_base_size": journal.base_bytes,
            "aof_buffer_length": self.waiting_bytes(),
            "journal_disk_free_bytes": self.thread.room.free_bytes,
            "journal_disk_short": int(self.is_short),
            "journal_reserve": int(journal.has_reserve),
            "aof_pending_bio_fsync": int(journal.synced_seq != journal.seq),
            "journal_error": self.error,
            "journal_records": self.seq,
            "journal_durable_records": self.durable_seq,
            "journal_fsyncs": self.thread.sync_count,
            "journal_fsyncs_in_turn": self.thread.here_count,
            "journal_fsync_ms_max": round(self.thread.sync_s_max * 1000),
            "journal_rewrites": self.thread.done_rewrite,
        }
