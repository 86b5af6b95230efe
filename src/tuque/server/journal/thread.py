"""The thread of the journal: takes items from an inbox, writes, syncs by policy.

Decides how frames are joined, when to sync and how to recover from an error. The meaning of
an item is in store/writer.py; server/journal/committer.py creates the items.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Final

from tuque.core.model.stats import Histogram
from tuque.store.writer import Journal, Pace

OFF: Final = "off"
NO: Final = "no"
EVERYSEC: Final = "everysec"
ALWAYS: Final = "always"

BACKLOG_BYTES: Final = 256 << 20  # waiting frames in memory
JOIN_BYTES: Final = 1 << 20  # waiting frames are joined up to this size
GATHER_SHARE: Final = 0.5  # of the last sync's time is spent gathering more frames
HERE_BYTES: Final = 1 << 20  # larger frames go to the thread: their checksum and write take long
GATHER_S_MAX: Final = 0.002
LOCK_S: Final = 0.001  # the caller waits that long for the thread to give the lock back
RETRY_S: Final = 1.0  # between attempts to write to a failing disk
WATCH_S: Final = 1.0  # between questions for the free room of the disk
MARK_S: Final = 1.0  # idle time after a sync before it is marked

SPENT: Final = "the disk is full: the journal uses its reserve, and no more jobs are taken"

# kinds of items
FRAME: Final = 0
BEGIN: Final = 1  # of a rewrite
SLICE: Final = 2
FINISH: Final = 3
NUDGE: Final = 4  # nothing to write: the policy changed, or the thread is to end


# ---- The thread wakes the pump: a descriptor becomes readable


class Wakeup:
    """An eventfd, or a pipe where the system has none."""

    def __init__(self) -> None:
        make = getattr(os, "eventfd", None)
        if make is not None:
            self.fd = self._write_fd = make(0)
            os.set_blocking(self.fd, False)
        else:
            self.fd, self._write_fd = os.pipe()
            os.set_blocking(self.fd, False)
            os.set_blocking(self._write_fd, False)

    def ring(self) -> None:
        """Make the descriptor readable."""
        try:
            os.write(self._write_fd, b"\1\0\0\0\0\0\0\0")
        except BlockingIOError:
            return  # it is readable already

    def quiet(self) -> None:
        """Make it unreadable again."""
        try:
            os.read(self.fd, 8)
        except BlockingIOError:
            return

    def close(self) -> None:
        """Close the descriptors."""
        os.close(self.fd)
        if self._write_fd != self.fd:
            os.close(self._write_fd)


# ---- The thread and its items


class Item:
    """A piece of work for the writer.

    `number` is the last record for BEGIN, the jobs for SLICE, the records of all slices for
    FINISH, 1 for a FRAME to sync at once.
    """

    __slots__ = ("count", "kind", "now_ms", "number", "pieces", "rewrite", "size")

    def __init__(
        self, kind: int, payload: bytes, count: int, now_ms: int, number: int = 0, rewrite: int = 0
    ) -> None:
        self.kind = kind
        self.pieces = [payload]
        self.size = len(payload)
        self.count = count  # records in the payload
        self.now_ms = now_ms
        self.number = number
        self.rewrite = rewrite  # the rewrite of this process that it belongs to

    def extend(self, pieces: list[bytes]) -> None:
        """Append to the payload."""
        self.pieces += pieces
        self.size += sum(map(len, pieces))


class Note:
    """A line for the log about the journal."""

    __slots__ = ("is_failure", "text")

    def __init__(self, text: str, is_failure: bool) -> None:
        self.text = text
        self.is_failure = is_failure


class Room:
    """[J6.9] The free room of the journal's disk, asked for once a second."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self.free_bytes = -1  # -1: unknown
        self.free_min = 0  # fewer are too few; 0: any are enough
        self.due = 0.0  # when to ask next
        self.had_reserve = False

    def watch(self, now: float) -> None:
        """Ask, if it is time; write the reserve, if there is room for it (J6.10)."""
        if now < self.due:
            return
        self.due = now + WATCH_S
        journal = self.journal
        free = self.free_bytes = journal.disk.free_bytes(journal.path)
        if journal.may_reserve(free, self.free_min) and not journal.error:
            self.had_reserve = journal.keep_reserve()

    def is_short(self, most_bytes: int) -> bool:
        """Whether there is too little for more jobs; `most_bytes`: of a rewrite.

        What the reserve has given is for ends of jobs, until it is written again (J6.9).
        """
        if self.free_bytes >= 0 and self.journal.is_reserve_used:
            return True
        return self.free_min > 0 and 0 <= self.free_bytes < max(self.free_min, most_bytes)

    def is_spent(self) -> bool:
        """Whether the reserve has just been used: the disk is full."""
        if not self.had_reserve or self.journal.has_reserve:
            return False
        self.had_reserve = False
        self.free_bytes = 0
        self.due = 0.0
        return True


class JournalThread:
    """Writes what `put` hands over, in a thread or (without a bell) in the caller."""

    def __init__(
        self,
        journal: Journal,
        policy: str,
        bell: Wakeup | None,
        segment_bytes: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.journal = journal
        self.policy = policy
        self.bell = bell  # rung when the caller should check; None: nobody waits
        self.threaded = bell is not None
        self.clock = clock  # s since some instant
        self.segment_bytes = segment_bytes
        self.spare_rewrites = False  # no fsync during a rewrite
        # read by the caller's thread
        self.durable_seq = 0
        self.error = ""
        self.notes: list[Note] = []
        self.written_bytes = 0  # of all payloads so far
        self.failed_rewrite = 0
        self.done_rewrite = 0
        self.sync_count = 0
        self.sync_s_max = 0.0
        self.syncs = Histogram()  # of their times, in 0.1 ms
        self.pace = Pace()
        self.here_count = 0  # syncs in the caller's thread
        self.room = Room(journal)
        self.is_started = False
        self.is_closing = False
        # between the two threads: whoever holds the lock may write; frames stay in order because
        # the caller writes only after the thread has taken all earlier ones. Slices of a snapshot
        # are another file: they count for nothing here.
        self._lock = threading.Lock()
        self._put_count = 0
        self._taken_count = 0
        # of this thread
        self._inbox: SimpleQueue[Item] = SimpleQueue()
        self._queue: deque[Item] = deque()
        self._slices: deque[Item] = deque()  # SLICE and FINISH: frames go first
        self._has_written = False  # frames, since the last report
        self._queued_bytes = self._queued_records = 0
        self._expected_records = 0  # expected for the next sync, going by the last
        self._last_sync_s = 0.0
        self._begun_rewrite = self._finished_rewrite = 0  # slices of an earlier one are dropped
        self._is_urgent = False  # a written frame must be synced now, under any policy
        self._synced_at = clock()
        self._roll_at = segment_bytes
        self._is_next_asked = self._is_next_tried = False  # the preparation of the next segment
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread."""
        self.durable_seq = self.journal.synced_seq
        self.room.had_reserve = self.journal.has_reserve
        self.error = self.journal.error
        if self.journal.is_reserve_used:
            self.room.watch(self.clock())  # no job comes before it is known whether there is room
        self.is_started = True
        if self.threaded:
            self._thread = threading.Thread(target=self._run, name="journal", daemon=True)
            self._thread.start()

    def put(self, item: Item, is_binding: bool = False) -> None:
        """Hand an item over.

        A frame that no reply waits for is written here and now, unless the thread is busy: a
        write to the page cache costs less than waking a thread, and a killed process then loses
        nothing. Under `always` this holds on a quick disk, which is also synced here when replies
        wait for it (`is_binding`, J4.5). The thread does the rest, and replies wait for it (J4.2).
        """
        if self.threaded and item.kind == FRAME:
            must_sync = self.policy == ALWAYS
            is_mine = self.is_quick() if must_sync else not item.number
            if is_mine and self.is_idle() and self._has_lock(must_sync):
                try:
                    if self.is_idle() and self._write_here(item, must_sync and is_binding):
                        return
                finally:
                    self._lock.release()
        if item.kind in (FRAME, BEGIN):
            self._put_count += 1
        self._inbox.put(item)
        if not self.threaded:
            self._turn_all()

    def _has_lock(self, must_sync: bool) -> bool:
        """Get the lock, unless the thread has it for long: it syncs, or begins a segment."""
        return self._lock.acquire(timeout=0 if must_sync else LOCK_S)

    def is_quick(self) -> bool:
        """[J4.5] Whether the disk is quick enough to sync in the caller's thread."""
        return self.pace.is_quick(self.clock())

    def is_idle(self) -> bool:
        """Whether the thread has nothing to write."""
        return self._put_count == self._taken_count

    def may_switch(self) -> bool:
        """Whether the next segment is prepared, or cannot be; else the thread does that now."""
        if not self.threaded or self._is_next_tried or self.journal.is_broken:
            return True
        if not self._is_next_asked:
            self._is_next_asked = True
            self.put(Item(NUDGE, b"", 0, 0))
        return False

    def is_late(self) -> bool:
        """[J4.6] Whether a write under `always` has no sync coming."""
        journal = self.journal
        return self.policy == ALWAYS and self.is_idle() and journal.synced_seq != journal.seq

    def _write_here(self, item: Item, must_sync: bool) -> bool:
        """Write the frame in the caller's thread, and sync it; False leaves it to this thread."""
        journal = self.journal
        if journal.is_broken or journal.size >= self._roll_at or item.size > HERE_BYTES:
            return False
        if self.policy == ALWAYS and (journal.is_rewriting or journal.error):
            return False
        was_synced = journal.synced_seq == journal.seq
        was_marked = was_synced and not journal.must_mark()
        if not journal.try_append([b"".join(item.pieces)], item.count, item.now_ms):
            return False
        self.written_bytes += item.size
        if 2 * journal.size >= self._roll_at:
            self.may_switch()
        if must_sync:
            self._sync(True)
            self._expected_records = 0
            if self._tell() and self.error:
                self._wake()
        if was_marked if must_sync else was_synced and self.policy == EVERYSEC:
            self._inbox.put(Item(NUDGE, b"", 0, 0))  # there is something to sync or mark again
        return True

    def stop(self, timeout_s: float) -> bool:
        """Write and sync what waits, and end the thread; False when the disk is too slow."""
        self.is_closing = True
        if self._thread is not None:
            self._inbox.put(Item(NUDGE, b"", 0, 0))
            self._thread.join(timeout_s)
            if self._thread.is_alive():
                return False
        self._turn_all()
        self._sync()
        self.journal.mark()
        if self._tell():
            self._wake()
        return True

    def _run(self) -> None:
        """The thread's main function."""
        while not self.is_closing:
            try:
                is_well = self._turn()
            except Exception as e:  # a bug must not silently end durability
                with self._lock:
                    self.journal.break_off(f"{type(e).__name__} in the journal: {e}")
                    self._tell()
                self._wake()
                is_well = False
            if not is_well:
                time.sleep(RETRY_S)
            elif not self._queue and not self._slices and self._inbox.empty():
                self._rest()

    def _turn_all(self) -> None:
        """Write all that waits, unless the disk fails."""
        while self._turn() and (self._slices or not self._inbox.empty()):
            continue

    def _turn(self) -> bool:
        """Write what waits, sync by policy, report; then one step of a rewrite.

        False after an error that a retry may clear.
        """
        self._drain()
        self.room.watch(self.clock())
        if self.policy == ALWAYS and self._queued_records < self._expected_records:
            self._gather()
        if self._is_next_due():
            self._prepare_next()
        if self._is_switch_due():
            self._sync_beside()  # the switch itself then finds little left to sync
        records = self._queued_records
        with self._lock:
            is_well = self._write_out()
            is_due = self._is_sync_due()
            is_beside = is_due and self._may_sync_beside()
            if is_due and not is_beside:
                self._sync()
            must_wake = self._end_turn(is_due and not is_beside, records)
        if must_wake:
            self._wake()
        if is_beside:
            self._sync_beside()
        elif self._is_mark_due():
            self._mark()
        if is_well and self._has_slice():
            self._step_rewrite(self._slices.popleft())
        return is_well

    def _has_slice(self) -> bool:
        """Whether a step of a rewrite may be done: its BEGIN may still wait among the frames."""
        return bool(self._slices) and self._slices[0].rewrite <= self._begun_rewrite

    def _end_turn(self, has_synced: bool, records: int) -> bool:
        """After the sync of so many records, if it was due; whether to wake the caller."""
        if has_synced:
            self._drain()
            self._expected_records = (records + self._queued_records) * 9 // 10
        return self._tell()

    def _may_sync_beside(self) -> bool:
        """Whether the caller may write meanwhile: under `always` it would begin a second sync."""
        return self.threaded and self.policy != ALWAYS

    def _is_next_due(self) -> bool:
        """Whether to prepare the next segment: somebody asks for it, or this one is half full."""
        if not self.threaded or self._is_next_tried:
            return False
        return self._is_next_asked or 2 * self.journal.size >= self._roll_at

    def _prepare_next(self) -> None:
        """Prepare the next segment, while the caller may write."""
        self.journal.prepare()
        self._is_next_tried = True
        if self._is_next_asked:
            self._wake()

    def _end_switch(self) -> None:
        """A segment has begun, or could not: the next one is to be prepared again."""
        self._is_next_asked = self._is_next_tried = False

    def _is_switch_due(self) -> bool:
        """Whether the next item begins a segment."""
        journal = self.journal
        if not self._queue or not self._may_sync_beside() or journal.is_broken:
            return False
        is_switch = self._queue[0].kind == BEGIN or journal.size >= self._roll_at
        return is_switch and journal.synced_seq != journal.seq

    def _sync_beside(self) -> None:
        """Sync what is written now, while the caller may write more."""
        seq = self.journal.seq
        started = self.clock()
        error = self.journal.flush()
        with self._lock:
            self.journal.note_flush(error, seq)
            self._note_sync(started, False)
            must_wake = self._tell()
        if must_wake:
            self._wake()

    def _mark(self) -> None:
        """[J3.2] Mark that all is durable."""
        journal = self.journal
        with self._lock:
            if not journal.write_mark():
                return
            seq = journal.synced_seq
            if self.policy == ALWAYS:
                journal.note_flush(journal.flush(), seq)
                return
        error = journal.flush()
        with self._lock:
            journal.note_flush(error, seq)
            must_wake = self._tell()
        if must_wake:
            self._wake()

    def _drain(self) -> None:
        """Take the items from the inbox."""
        inbox = self._inbox
        for _ in range(inbox.qsize()):
            self._accept(inbox.get())

    def _accept(self, item: Item) -> None:
        if item.kind in (SLICE, FINISH):
            self._slices.append(item)
            return
        self._queued_bytes += item.size
        if item.kind == FRAME:
            self._queued_records += item.count
        self._queue.append(item)

    def _gather(self) -> None:
        """Wait briefly for clients that the last sync released.

        Otherwise the clients split into two groups that alternate, and each sync serves half.
        """
        if not self.threaded or self.is_closing:
            return
        deadline = self.clock() + min(self._last_sync_s * GATHER_SHARE, GATHER_S_MAX)
        while self._queued_records < self._expected_records and self.clock() < deadline:
            time.sleep(0.0001)
            self._drain()

    def _rest(self) -> None:
        """Sleep until there is an item, or a sync is due."""
        left: float | None = None
        if self._will_sync():
            left = max(self._synced_at + 1.0 - self.clock(), 0.0)
        elif self.journal.must_mark():
            left = max(self._synced_at + MARK_S - self.clock(), 0.0)
        watch_s = max(self.room.due - self.clock(), 0.0)
        left = watch_s if left is None else min(left, watch_s)
        try:
            item = self._inbox.get(timeout=left)
        except Empty:
            return
        self._accept(item)

    def _write_out(self) -> bool:
        """Write the frames that wait, in order. False after an error that a retry may clear."""
        queue = self._queue
        if self.journal.must_begin and not self.journal.begin_late():
            return False
        while queue:
            item = queue[0]
            if item.kind == FRAME:
                if not self._write_frames():
                    return False
                continue
            self._take()
            if item.kind == BEGIN:
                self._has_written = True  # what was dropped before it is in the snapshot
                self._begun_rewrite = item.rewrite
                if not self.journal.begin_rewrite(item.number, item.now_ms):
                    self._fail_rewrite(item)
                self._end_switch()
        return True

    def _take(self) -> Item:
        """Remove the first item of the queue and update the counts."""
        item = self._queue.popleft()
        self._queued_bytes -= item.size
        if item.kind == FRAME:
            self._queued_records -= item.count
        self.written_bytes += item.size
        if item.kind != NUDGE:
            self._taken_count += 1
        return item

    def _step_rewrite(self, item: Item) -> None:
        """Write one slice, or finish: the caller writes frames meanwhile, but for the switch."""
        journal = self.journal
        if item.rewrite != self._begun_rewrite:  # that one has failed
            self.written_bytes += item.size
            return
        done = journal.is_rewriting
        if done and item.kind == SLICE:
            done = journal.add_to_snapshot(item.pieces[0], item.count, item.number, item.now_ms)
        elif done:
            done = journal.is_whole(item.number) and journal.flush_snapshot()
            if done and self._may_sync_beside() and journal.synced_seq != journal.seq:
                self._sync_beside()
        self.written_bytes += item.size
        with self._lock:
            if not done:
                journal.give_up_slice()
            elif item.kind == FINISH:
                done = self._write_out() and journal.is_rewriting
                done = done and journal.finish_rewrite(item.now_ms)
            if not done:
                self._fail_rewrite(item)
            elif item.kind == FINISH:
                self._finished_rewrite = item.rewrite
            must_wake = self._tell()
        if must_wake:
            self._wake()
        if done and item.kind == FINISH:
            journal.drop_unnamed()  # large files take their time

    def _fail_rewrite(self, item: Item) -> None:
        """Note once that the rewrite of the item has failed."""
        if self.failed_rewrite != item.rewrite:
            self.failed_rewrite = item.rewrite
            reason = self.journal.rewrite_error or self.journal.error
            self.notes.append(Note(f"journal rewrite failed: {reason}", True))

    def _write_frames(self) -> bool:
        """Join the frames at the head of the queue and write them together."""
        journal = self.journal
        if journal.is_broken and not journal.is_rewriting:
            self._drop_frames()
            return True
        parts: list[bytes] = []
        size = records = now_ms = items = 0
        for item in self._queue:
            if item.kind != FRAME or (size and size + item.size > JOIN_BYTES):
                break
            parts += item.pieces
            size += item.size
            items += 1
            records += item.count
            now_ms = item.now_ms
            if item.number:
                self._is_urgent = True
        if journal.size >= self._roll_at and not journal.is_broken:
            self._roll_at = self.segment_bytes
            if not journal.next_segment(now_ms):
                self._roll_at += journal.size  # no room for a new segment: continue the old one
            self._end_switch()
        if size <= JOIN_BYTES:
            parts = [b"".join(parts)]  # a body of many MB is not copied: the loop would wait for it
        if not journal.append_parts(parts, records, now_ms):
            if journal.is_broken or self._queued_bytes > BACKLOG_BYTES:
                self._drop_frames()
            return journal.is_broken
        for _ in range(items):
            self._take()
        self._has_written = True
        return True

    def _drop_frames(self) -> None:
        """Drop frames: what waited for them gets an error, and a rewrite from memory follows."""
        if not self.journal.is_broken:
            self.journal.break_off(f"more than {BACKLOG_BYTES >> 20} MB wait for the disk")
        while self._queue and self._queue[0].kind == FRAME:
            self._take()

    def _is_sync_due(self) -> bool:
        """Whether the policy requires a sync now."""
        journal = self.journal
        if journal.synced_seq == journal.seq or journal.is_broken:
            return False
        if self.policy == ALWAYS or self._is_urgent:
            return True
        return self._will_sync() and self.clock() - self._synced_at >= 1.0

    def _will_sync(self) -> bool:
        """Whether `everysec` will sync what is written: not what is broken, or spared a rewrite."""
        journal = self.journal
        if journal.synced_seq == journal.seq or journal.is_broken:
            return False
        return self.policy == EVERYSEC and not (self.spare_rewrites and journal.is_rewriting)

    def _is_mark_due(self) -> bool:
        """[J3.2] Whether a mark must say that all is synced, as no record has followed."""
        if not self.threaded or self._queue or not self.journal.must_mark():
            return False
        return self.clock() - self._synced_at >= MARK_S

    def _sync(self, here: bool = False) -> None:
        """Sync, and measure it; `here`: in the caller's thread."""
        started = self.clock()
        self.journal.sync()
        self._note_sync(started, here)

    def _note_sync(self, started: float, here: bool) -> None:
        """A sync has ended that began then."""
        now = self._synced_at = self.clock()
        self.sync_count += 1
        self.here_count += here
        took_s = self._last_sync_s = now - started
        self.sync_s_max = max(self.sync_s_max, took_s)
        self.syncs.add(int(took_s * 10_000) + 1)
        self.pace.note(took_s, now, here)

    def _tell(self) -> bool:
        """Publish the progress to the caller; whether it may wait for that. Holds the lock."""
        journal = self.journal
        changed = self.error != journal.error
        if changed:
            self.error = journal.error
            text = f"journal: {self.error}" if self.error else "journal: working again"
            self.notes.append(Note(text, len(self.error) > 0))
        if self._finished_rewrite != self.done_rewrite:
            self.done_rewrite = self._finished_rewrite
            size = f"{journal.snapshot_jobs} jobs, {journal.total_bytes()} bytes"
            self.notes.append(Note(f"journal rewritten: {size}", False))
        if self.room.is_spent():
            self.notes.append(Note(SPENT, True))
            changed = True
        if journal.synced_seq != self.durable_seq:
            self.durable_seq = journal.synced_seq
            changed = changed or self.policy == ALWAYS or self._is_urgent
            self._is_urgent = False
        if self._has_written:
            self._has_written = False
            changed = changed or self.policy != ALWAYS
        return changed

    def _wake(self) -> None:
        """Wake the caller."""
        if self.bell is not None:
            self.bell.ring()
