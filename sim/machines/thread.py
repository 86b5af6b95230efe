"""The thread of the journal in simulated time: the same steps as server/journal/thread.py's.

Frames wait while an fsync runs; when it ends, bytes written before it are durable. Where the
thread would sleep, an event is scheduled.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from sim.engine.disk import WINDOW_US
from sim.machines.kernel import SimBell
from tuque.server.journal.thread import (
    ALWAYS,
    EVERYSEC,
    GATHER_S,
    GATHER_S_MAX,
    GATHER_SHARE,
    MARK_S,
    RETRY_S,
    Item,
    JournalThread,
)
from tuque.store.writer import Journal

if TYPE_CHECKING:
    from sim.machines.shell import Shell

STALL_US: Final = 1_000_000  # the longest fsync, unless the disk is slow
WAKE_US: Final = 50  # until a thread runs that was woken
SEGMENT_BYTES: Final = 64 << 20


class SimThread(JournalThread):
    """The steps of `_run`, split where it waits."""

    def __init__(self, shell: Shell, journal: Journal, policy: str, sync_us: int) -> None:
        bell = SimBell(shell.kernel)
        super().__init__(journal, policy, bell, SEGMENT_BYTES, shell.kernel.work_s)
        self.shell = shell
        self.world = shell.world
        self.sync_us = sync_us
        self.chance = shell.world.stream(f"sync {shell.machine.name} {shell.number}")
        self.stall_us = 0  # the longest that an fsync took
        self.due_us = -1  # when it continues; -1: after a wake-up
        self.awake_us = 0  # it sleeps until then, whatever arrives
        self.is_syncing = False
        self.has_gathered = False
        self.is_well = True
        self.records = 0  # of this turn
        self.began_s = 0.0  # the fsync

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
        if not self.is_syncing and not self._inbox.empty():
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
            self.shell.machine.guard(self.end_sync if self.is_syncing else self.work)

    def work(self) -> None:
        """`_turn`, up to its fsync."""
        self._drain()
        if self.policy == ALWAYS and self._queued_records < self._expected_records:
            if not self.has_gathered:
                self.has_gathered = True
                wait_s = min(self._last_sync_s * GATHER_SHARE, GATHER_S_MAX)
                self.awake_us = self.world.now_us + int(wait_s * 1e6)
                self.go_on_at(self.awake_us)
                return
        self.has_gathered = False
        self.records = self._queued_records
        self._lock.acquire(False)
        self.is_well = self._write_out()
        if self._is_sync_due():
            self.is_syncing = True
            self.began_s = self.clock()
            self.go_on_at(self.world.now_us + self.draw_us())
        else:
            self.end_work(False)

    def end_sync(self) -> None:
        """The fsync is over."""
        self.is_syncing = False
        self.journal.sync()
        self._note_sync(self.began_s, False)
        self.end_work(True)

    def end_work(self, has_synced: bool) -> None:
        """The rest of `_turn`, and for how long `_run` and `_rest` sleep."""
        must_wake = self._end_turn(has_synced, self.records)
        self._lock.release()
        if must_wake:
            self._wake()
        now_us = self.world.now_us
        if not self.is_well:
            self.awake_us = now_us + int(RETRY_S * 1e6)
            self.go_on_at(self.awake_us)
            return
        self.awake_us = now_us if self.policy == ALWAYS else now_us + int(GATHER_S * 1e6)
        if self._queue:
            self.go_on_at(now_us + 1)
        self.nudge()
        if self.policy == EVERYSEC and self.journal.synced_seq != self.journal.seq:
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
        if self.is_started and not self.is_syncing and self.shell.in_turn:
            self.shell.kernel.spent_us += self.draw_us()
