"""The thread of the journal in simulated time: the same steps as server/journal/thread.py's.

An fsync takes its time, and covers what was written before it began; so does a slice of a snapshot.
Where the thread would sleep, an event is scheduled.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from sim.engine.disk import WINDOW_US
from sim.machines.kernel import SimWakeup
from tuque.server.journal.thread import (
    ALWAYS,
    BEGIN,
    FINISH,
    GATHER_S_MAX,
    GATHER_SHARE,
    MARK_S,
    RETRY_S,
    WATCH_S,
    Item,
    JournalThread,
)
from tuque.store.writer import Journal

if TYPE_CHECKING:
    from sim.machines.shell import Shell

STALL_US: Final = 1_000_000  # the longest fsync, unless the disk is slow
WAKE_US: Final = 50  # until a thread runs that was woken
SEGMENT_BYTES: Final = 64 << 20
SLICE_US: Final = 300  # of a slice, and one more for
BYTES_A_US: Final = 200  # bytes


class SimThread(JournalThread):
    """The steps of `_run`, split where it waits."""

    def __init__(self, shell: Shell, journal: Journal, policy: str, sync_us: int) -> None:
        bell = SimWakeup(shell.kernel)
        super().__init__(journal, policy, bell, SEGMENT_BYTES, shell.kernel.work_s)
        self.shell = shell
        self.world = shell.world
        self.sync_us = sync_us
        self.chance = shell.world.stream(f"sync {shell.machine.name} {shell.number}")
        self.stall_us = 0  # the longest that an fsync took
        self.due_us = -1  # when it continues; -1: after a wake-up
        self.awake_us = 0  # it sleeps until then, whatever arrives
        self.next_step: Callable[[], None] | None = None  # after what takes its time
        self.has_gathered = False
        self.is_well = True
        self.records = 0  # of this turn
        self.began_s = 0.0  # the fsync
        self.sync_seq = 0  # what it covers
        self.sync_bytes = 0

    def window_us(self) -> int:
        """What may be lost now under everysec: nothing is synced while the process stands still."""
        shell = self.shell
        still_us = self.world.now_us - shell.paused_us if shell.is_paused else 0
        return WINDOW_US + self.stall_us + still_us

    def start(self) -> None:
        """Start working on the inbox."""
        self.durable_seq = self.journal.synced_seq
        self.is_started = True
        self.nudge()

    def put(self, item: Item, is_binding: bool = False) -> None:
        """Hand an item over, and wake the thread if it waits."""
        super().put(item, is_binding)
        self.nudge()

    def nudge(self) -> None:
        """The inbox may have items."""
        if self.next_step is None and not self._inbox.empty():
            self.go_on_at(max(self.world.now_us + WAKE_US, self.awake_us))

    def resume(self) -> None:
        """The process continues after a pause."""
        self.due_us = -1
        self.go_on_at(self.world.now_us + 1)

    def go_on_at(self, at_us: int) -> None:
        """Continue at that time, or before."""
        if self.due_us < 0 or at_us < self.due_us:
            self.due_us = at_us
            self.world.at(at_us, partial(self.on_time, at_us))

    def on_time(self, at_us: int) -> None:
        """The time has come, unless it was moved."""
        if self.due_us == at_us and not self.shell.is_dead and not self.shell.is_paused:
            self.due_us = -1
            step, self.next_step = self.next_step or self.work, None
            self.shell.machine.guard(step)

    def wait(self, took_us: int, step: Callable[[], None]) -> None:
        """Something takes its time; `step` follows."""
        self.next_step = step
        self.due_us = -1
        self.go_on_at(self.world.now_us + took_us)

    def work(self) -> None:
        """`_turn`, up to what takes time."""
        self._drain()
        self.room.watch(self.clock())
        if self.policy == ALWAYS and self._queued_records < self._expected_records:
            if not self.has_gathered:
                self.has_gathered = True
                wait_s = min(self._last_sync_s * GATHER_SHARE, GATHER_S_MAX)
                self.awake_us = self.world.now_us + int(wait_s * 1e6)
                self.go_on_at(self.awake_us)
                return
        self.has_gathered = False
        if self._is_next_due():
            self.wait(3 * self.sync_us, self.end_prepare)
        elif self._is_switch_due():
            self.begin_sync(self.write)
        else:
            self.write()

    def end_prepare(self) -> None:
        """The files of the next segment have been made, beside the pump."""
        self._prepare_next()
        self.work()

    def write(self) -> None:
        """The part of `_turn` that holds the lock."""
        self.records = self._queued_records
        is_switch = bool(self._queue) and self._queue[0].kind == BEGIN
        self._lock.acquire(False)
        self.is_well = self._write_out()
        if is_switch:  # its syncs take their time, and it has the lock
            self.wait(2 * self.draw_us(), self.end_write)
        else:
            self.end_write()

    def end_write(self) -> None:
        """After the frames: a sync under the lock, or beside the pump, or none."""
        is_due = self._is_sync_due()
        if is_due and not self._may_sync_beside():
            self.began_s = self.clock()
            self.wait(self.draw_us(), self.end_sync)
            return
        self.unlock(self._end_turn(False, self.records))
        if is_due:
            self.begin_sync(self.step_rewrite)
            return
        if self._is_mark_due():
            self._mark()
        self.step_rewrite()

    def unlock(self, must_wake: bool) -> None:
        """Let the pump write."""
        self._lock.release()
        if must_wake:
            self._wake()

    def end_sync(self) -> None:
        """The sync under the lock is over."""
        self.journal.sync()
        self._note_sync(self.began_s, False)
        self.unlock(self._end_turn(True, self.records))
        self.step_rewrite()

    def begin_sync(self, then: Callable[[], None]) -> None:
        """`_sync_beside`: the pump may write more meanwhile, which is not synced then."""
        self.began_s = self.clock()
        self.sync_seq = self.journal.seq
        self.sync_bytes = self.shell.machine.disk.written(self.journal.handle)
        self.wait(self.draw_us(), partial(self.end_sync_beside, then))

    def end_sync_beside(self, then: Callable[[], None]) -> None:
        """The sync is over."""
        disk = self.shell.machine.disk
        disk.covered = self.sync_bytes
        error = self.journal.flush()
        disk.covered = -1
        self.journal.note_flush(error, self.sync_seq)
        self._note_sync(self.began_s, False)
        if self._tell():
            self._wake()
        then()

    def step_rewrite(self) -> None:
        """The next slice of a rewrite, which takes its time; the last step has the lock."""
        if not self.is_well or not self._has_slice():
            self.rest()
            return
        item = self._slices.popleft()
        took_us = SLICE_US + item.size // BYTES_A_US
        if item.kind == FINISH:
            self._lock.acquire(False)
            took_us += 3 * self.draw_us()
        self.wait(took_us, partial(self.end_slice, item))

    def end_slice(self, item: Item) -> None:
        """The slice is written."""
        if item.kind == FINISH:
            self._lock.release()
            self._drain()
        self._step_rewrite(item)
        self.go_on_at(self.world.now_us + 1)

    def _sync_beside(self) -> None:
        """Within the last step of a rewrite, whose time has passed."""
        self.journal.note_flush(self.journal.flush(), self.journal.seq)

    def rest(self) -> None:
        """For how long `_run` and `_rest` sleep."""
        now_us = self.world.now_us
        if not self.is_well:
            self.awake_us = now_us + int(RETRY_S * 1e6)
            self.go_on_at(self.awake_us)
            return
        self.awake_us = now_us
        if self._queue:
            self.go_on_at(now_us + 1)
        self.nudge()
        if self.room.is_short(0):
            self.go_on_at(now_us + int(WATCH_S * 1e6))
        if self._will_sync():
            self.go_on_at(max(self.awake_us, self.after_sync_us(1.0)))
        elif self.journal.must_mark():
            self.go_on_at(max(self.awake_us, self.after_sync_us(MARK_S)))

    def after_sync_us(self, wait_s: float) -> int:
        """The first time at which the last sync is that long ago, also in rounded floats."""
        return int((self._synced_at + wait_s) * 1e6) + 2

    def draw_us(self) -> int:
        """The duration of the next fsync, in us."""
        took_us = int(self.sync_us * (0.5 + self.chance.random())) + 1
        if self.chance.random() < 0.02:
            took_us = max(took_us, min(took_us * 20, STALL_US))
        self.stall_us = max(self.stall_us, took_us)
        return took_us

    def on_fsync(self) -> None:
        """The disk syncs: if the pump called it, the pump waits (J4.5)."""
        if self.is_started and self.shell.in_turn:
            self.shell.kernel.spent_us += self.draw_us()
