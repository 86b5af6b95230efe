"""The gate of the journal: nothing that depends on a record leaves before it is kept (SPEC C8).

Each turn hands over its records; replies and frames to other nodes wait as the policy asks.
"""

import os
from typing import Final, final

from mypy_extensions import i64

from tuque.core.model.timers import NEVER_MS
from tuque.core.queues.procedures import FAR
from tuque.server.loop.housekeeping import log_cut_off, log_notes, log_room
from tuque.server.loop.output import Output
from tuque.server.net.system import Poller
from tuque.server.state.client import Connection
from tuque.server.state.server import JOURNAL, Server

NONE: Final[list[tuple[int, int]]] = []
MOST_NS: Final = 1_000_000  # a turn gathers for at most this long
SHARE: Final = 2  # the wait is at most this fraction (1/2) of the last sync's time
EXPECTED: Final = 9  # tenths of the replies that the last sync released: enough to stop waiting


# ---- Whether a turn reads on before it syncs the journal: more share the sync (SPEC J4.7)


@final
class ReadBatch:
    """Polls for more input within a turn."""

    def __init__(self, s: Server, poller: Poller) -> None:
        self.s = s
        self.poller = poller
        self.freed: i64 = 0  # replies that the last sync released, roughly
        self.sync_ns: i64 = 0  # its duration
        self.began_ns: i64 = 0  # of this turn

    def more(self, binding: i64) -> list[tuple[int, int]]:
        """[J4.7] More ready descriptors, with masks; empty: sync now. `binding`: count before."""
        records = self.s.n.records
        committer = self.s.committer
        system = self.s.system
        if committer is None or records is None:
            return NONE
        came: i64 = records.binding_count - binding
        if came == 0 or not committer.syncs_here():
            return NONE
        now_ns: i64 = system.work_ns()
        if self.began_ns == 0:
            self.began_ns = now_ns
        end_ns = self.began_ns + MOST_NS
        idle_ns = now_ns + self.sync_ns // SHARE
        while True:
            if now_ns >= end_ns:
                return NONE
            ready = self.poller.wait(0)
            if len(ready) > 0:
                return ready
            if not system.may_spin or now_ns >= idle_ns:
                return NONE
            if 10 * came >= EXPECTED * self.freed:
                return NONE
            os.sched_yield()
            now_ns = system.work_ns()

    def on_synced(self, freed: i64, took_ns: i64) -> None:
        """The turn has synced."""
        self.freed = freed
        self.sync_ns = took_ns
        self.began_ns = 0


# ---- The gate of one server (SPEC C8)


@final
class Gate:
    """What waits for the journal of one server."""

    def __init__(self, s: Server, poller: Poller, output: Output, read_batch: ReadBatch) -> None:
        self.s = s
        self.poller = poller
        self.output = output
        self.read_batch = read_batch
        self.held: list[Connection] = []  # with replies held until their records are durable
        self.wake_fd: i64 = -1  # of the journal
        self.watched: object = None  # the journal it belongs to
        self.is_rewriting = False
        self.was_short = False  # the disk took no more jobs (J6.9)
        self.was_noted = True  # the journal may have lines for the log
        self.binding: i64 = 0  # count of records that replies depend on
        self.binding_seq: i64 = 0  # the last of these records

    def watch(self, fd: i64) -> None:
        """The journal writes to this descriptor when records became durable or it failed."""
        self.wake_fd = fd
        self.watched = self.s.committer
        self.poller.add(fd)

    def drop(self) -> None:
        """The journal is about to close its descriptor."""
        if self.wake_fd >= 0:
            self.poller.drop(self.wake_fd)
            self.wake_fd = -1

    def write(self) -> i64:
        """Hand over the turn's records; returns the record that replies wait for, -1: none."""
        s = self.s
        n = s.n
        committer = s.committer
        if committer is None:
            if self.wake_fd >= 0 or self.has_held():  # turned off: all is on disk
                self.wake_fd = -1
                self.watched = None
                s.journal_error = ""
                self.is_rewriting = False
                s.alarms.unset(JOURNAL)
                self.open()
            return -1
        is_binding = False
        records = n.records
        if records is not None:
            if self.watched is not committer:
                self.on_new(committer.wake_fd)
            is_binding = records.binding_count != self.binding  # committed here or by a command
            if records.count > 0:
                began_ns: i64 = s.system.work_ns()
                must_be = is_binding or committer.has_wish(records)
                committer.commit(records, n.now_ms, must_be)
                took_ns = s.system.work_ns() - began_ns
                self.read_batch.on_synced(records.binding_count - self.binding, took_ns)
            committer.note_wish(records)
            if is_binding:
                self.binding = records.binding_count
                self.binding_seq = committer.seq
            committer.grant(records)
            late_ms: i64 = committer.when_late(n.now_ms)
            s.alarms.set(JOURNAL, late_ms if late_ms > 0 else NEVER_MS)
            committer.on_turn(n, n.now_ms)
        self.is_rewriting = committer.is_rewriting()
        s.journal_error = committer.error
        if self.was_short != committer.is_short:
            self.was_short = committer.is_short
            log_room(self.was_short, committer.thread.room.free_bytes)
        if records is not None:
            if records.is_failing:
                n.life.deaf_ms = n.now_ms  # until this turn (W6.1)
            records.is_failing = len(s.journal_error) > 0
        if self.is_rewriting or s.journal_error or self.was_noted:
            log_notes(committer.take_notes())
        self.was_noted = self.is_rewriting or len(s.journal_error) > 0
        if s.journal_error and not is_binding:
            return -1  # what waited got no answer (J6.1); others must not wait for ever
        return self.binding_seq if committer.must_hold(self.binding_seq) else -1

    def for_peers(self, seq: i64) -> i64:
        """The record that frames to other nodes wait for, also while the journal fails (J6.6)."""
        committer = self.s.committer
        if seq < 0 and committer is not None and committer.must_hold(self.binding_seq):
            return self.binding_seq
        return seq

    def release(self, c: Connection, seq: i64) -> None:
        """Send the client's output of this turn, or hold it until `seq` is durable."""
        if c.is_closed:
            return
        if seq >= 0 or len(c.gated) > 0:
            if len(c.gated) == 0:
                self.held.append(c)
            c.hold(seq)
            self.output.limit_output(c)
            return
        self.output.send(c)

    def has_held(self) -> bool:
        """Whether replies or frames wait for the journal."""
        return len(self.held) > 0 or (self.s.bus is not None and len(self.s.bus.gate) > 0)

    def on_new(self, fd: i64) -> None:
        """The journal was turned on, or loaded again: nothing waits for the old one."""
        self.watch(fd)
        self.binding = 0
        self.binding_seq = 0
        for c in self.held:
            c.gated = [(0, held) for _, held in c.gated]
        if self.s.bus is not None:
            self.s.bus.release(FAR)
        self.open()

    def on_wake(self) -> None:
        """Records became durable, or the journal failed."""
        committer = self.s.committer
        if committer is None:
            return  # turned off by a command of this turn
        committer.on_wake()
        self.was_noted = True
        self.open()

    def open(self) -> None:
        """Release replies that need not wait (any more); if the journal failed, close clients.

        A weaker policy, or the end of a custody, frees replies as well.
        """
        committer = self.s.committer
        durable: i64 = FAR
        if committer is not None and committer.must_hold(committer.seq):
            durable = committer.open_seq
        if self.s.bus is not None:
            self.s.bus.release(durable)
        held = self.held
        self.held = []
        for c in held:
            if not c.is_closed and c.release(durable):
                self.output.send_released(c)
            if len(c.gated) > 0 and not c.is_closed:
                if committer is not None and committer.error:
                    log_cut_off(c.address, c.held_bytes, committer.error)
                    self.output.close(c)
                else:
                    self.held.append(c)
