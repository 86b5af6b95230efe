"""The loop of the server (SPEC C8): poll, read all, run, journal, bus, clients.

One turn reads all input, runs it, and then releases its results in the only legal order:
records to the journal first, then messages to other nodes, then replies, one write per
client. Under `appendfsync always` the replies of a turn are held until its records are on
disk; input that arrives meanwhile is run and shares the next fsync.
"""

import socket
import time
from typing import Final, final

from mypy_extensions import i64

from tuque.core.dispatch.timers import next_timer_ms, tick
from tuque.core.jobs.deliver import serve_ready
from tuque.core.jobs.transitions import FAR
from tuque.core.model.work import TURN_WORK
from tuque.server.commands.dispatch import execute, is_long, tell_wakes
from tuque.server.loop.doors import Doors
from tuque.server.loop.gather import Gather
from tuque.server.loop.iproto_door import IprotoDoor
from tuque.server.loop.keeping import keep_house, log_cut_off, log_notes, note_unrun, unread_limit
from tuque.server.loop.lookout import Lookout
from tuque.server.loop.outlet import Outlet
from tuque.server.loop.share import Share
from tuque.server.loop.standstill import begin_turn, end_replies
from tuque.server.loop.tell_events import tell_events
from tuque.server.replies import producers
from tuque.server.replies.chores import run_chores
from tuque.server.sockets.clock import steady_ms
from tuque.server.sockets.connection import Connection
from tuque.server.sockets.poller import OUT, Poller
from tuque.server.state.client import NOT_HELD, Client
from tuque.server.state.iproto_connection import Wired
from tuque.server.state.state import Server
from tuque.server.tubes.turn import end_turn, has_left, next_turn_ms

REWRITE_JOBS: Final = 2_000  # written per turn while the journal is rewritten
HOUSE_MS: Final = 100  # between two rounds of housekeeping under traffic
IDLE_HOUSE_MS: Final = 1_000
UNREAD_BYTES: Final = 1 << 20  # of a waiting producer: beyond it nothing more is read


@final
class Pump:
    """Drives one Server until asked to stop."""

    def __init__(self, s: Server) -> None:
        self.s = s
        self.poller = Poller()
        self.lookout = Lookout(s, self.poller)
        self.doors = Doors(s, self.poller)
        self.outlet = Outlet(s, self.poller)
        self.gather = Gather(s, self.poller)
        self.share = Share(s)
        self.iproto = IprotoDoor(s, self.outlet)
        self.wake_fd: i64 = -1  # of the journal
        self.watched: object = None  # the journal it belongs to
        self.signal_fd: i64 = -1
        self.gate: list[Connection] = []  # with replies held until their records are durable
        self.house_ms: i64 = 0
        self.events_ms: i64 = 0  # when to flush the event stream
        self.rewriting = False
        self.late_ms: i64 = 0  # when to check the journal
        self.was_noted = True  # the journal may have lines for the log
        self.binding: i64 = 0  # count of records that replies depend on
        self.binding_seq: i64 = 0  # the last of these records

    def listen(self, sock: socket.socket) -> None:
        """Accept clients from a bound, listening, non-blocking socket."""
        self.doors.listen(sock)

    def watch_wake(self, fd: i64) -> None:
        """The journal writes to this descriptor when records became durable or it failed."""
        self.wake_fd = fd
        self.watched = self.s.committer
        self.poller.add(fd)

    def drop_wake(self) -> None:
        """The journal is about to close its descriptor."""
        if self.wake_fd >= 0:
            self.poller.drop(self.wake_fd)
            self.wake_fd = -1

    def watch_signals(self, fd: i64) -> None:
        """A signal handler writes to this descriptor."""
        self.signal_fd = fd
        self.poller.add(fd)

    def clock(self) -> None:
        """[G8] Set the node's time; it never goes back (G8.1)."""
        begin_turn(self.s, self.outlet)

    def run(self) -> None:
        """Run turns until asked to stop."""
        while not self.s.stop_requested:
            self.turn(-1)

    def wait_ms(self, most_ms: i64) -> i64:
        """How long to sleep: until the next timer, at most `most_ms`."""
        s = self.s
        if len(s.resumed) > 0 or len(s.dirty) > 0 or len(s.n.added) > 0 or len(s.n.dirty_peers) > 0:
            return 0
        if self.iproto.has_work():
            return 0
        if len(s.chores) > 0 and not s.is_loading and s.paused_until_ms <= s.n.now_ms:
            return 0
        if s.n.policy is not None and not s.is_loading and has_left(s):
            return 0
        if self.rewriting:
            return 1
        at_ms = next_timer_ms(s.n)
        has_clients = (
            len(s.clients) > 0 or len(s.wired) > 0 or s.figures.commands != s.last_house_commands
        )
        if has_clients or s.members.is_changed:
            at_ms = min(at_ms, self.house_ms)  # once more after all have gone
        if 0 < self.events_ms < at_ms:
            at_ms = self.events_ms
        at_ms = self.doors.next_ms(at_ms)
        if len(s.stalled) > 0:
            at_ms = min(at_ms, producers.next_stall_ms(s))
        at_ms = min(at_ms, next_turn_ms(s))
        if 0 < self.late_ms < at_ms:
            at_ms = self.late_ms
        if s.paused_until_ms > s.n.now_ms and s.paused_until_ms < at_ms:
            at_ms = s.paused_until_ms
        if s.bus is not None:
            at_ms = min(at_ms, s.bus.next_ms())
            if s.members.is_changed:
                at_ms = min(at_ms, s.keep_ms)
        if at_ms == FAR:
            return most_ms
        left_ms = at_ms - (steady_ms() + s.clock_offset_ms)
        if left_ms < 0:
            left_ms = 0
        if left_ms > 60_000:
            left_ms = 60_000
        return left_ms if most_ms < 0 or left_ms < most_ms else most_ms

    def turn(self, most_ms: i64) -> None:
        """[C8] One turn of the loop; sleeps at most `most_ms` (-1: until something happens)."""
        s = self.s
        ready = self.lookout.wait(self.wait_ms(most_ms))
        self.clock()
        s.figures.turns += 1
        s.n.work = 0
        self.share.begin()
        self.take(ready)
        while s.committer is not None and not s.stop_requested and len(self.share.late) == 0:
            ready = self.gather.more(self.binding)
            if len(ready) == 0:
                break
            self.take(ready)
        self.step()
        self.settle()

    def take(self, ready: list[tuple[int, int]]) -> None:
        """[C8.1] Serve the ready descriptors."""
        s = self.s
        clients = s.clients
        bus = s.bus
        for fd, mask in self.share.in_order(ready):
            if s.stop_requested:
                break
            c = clients.get(fd)
            if c is not None:
                if mask & OUT:
                    self.outlet.drain(c)
                if mask & ~OUT and not c.is_closed:
                    if self.share.is_used():
                        self.share.late[fd] = None  # L2.8
                        continue
                    try:
                        self.read(c)
                    except Exception as error:
                        self.outlet.on_bug(c, error)
            elif fd in s.wired:
                self.on_wired(s.wired[fd], mask)
            elif bus is not None and bus.on_ready(fd, mask):
                pass
            elif fd in self.doors.listeners:
                self.doors.accept(fd)
            elif self.doors.on_refused(fd):
                pass
            elif fd == self.wake_fd:
                self.on_journal_wake()
            elif fd == self.signal_fd:  # SIGTERM or SIGINT: stop in order
                s.stop_requested = "signal"

    def step(self) -> None:
        """Timers, waiting clients, deferred commands."""
        s = self.s
        n = s.n
        if s.is_loading or s.stop_requested:
            return
        if s.bus is not None:
            producers.look_at_bus(s, s.bus)
        if s.committer is not None and n.records is not None:
            s.committer.grant(n.records)
        if next_timer_ms(n) <= n.now_ms:
            tick(n)
        if len(s.chores) > 0:
            run_chores(s)
        if len(n.ready) > 0:
            serve_ready(n)
        if len(n.wakes) > 0:
            tell_wakes(s)
        if len(n.added) > 0:
            producers.tell_added(s)
        if len(s.stalled) > 0:
            producers.wake_stalled(s)
        if s.paused_until_ms != 0 and s.paused_until_ms <= n.now_ms:
            s.paused_until_ms = 0
            for c in list(s.clients.values()):
                if c.may_run():
                    s.resumed.append(c)
        if len(s.resumed) > 0:
            resumed = s.resumed
            s.resumed = []
            self.share.begin()
            for i, c in enumerate(resumed):
                if self.share.is_used():
                    s.resumed = resumed[i:] + s.resumed  # L2.8
                    break
                if not c.is_closed:
                    self.go_on(c)
            if len(n.added) > 0:
                producers.tell_added(s)
        self.iproto.run_stalled()
        end_turn(s)
        self.doors.on_time()
        if s.members.is_changed and self.house_ms > n.now_ms + HOUSE_MS:
            self.house_ms = n.now_ms + HOUSE_MS  # keeps nodes.conf current (K1.1)
        if self.house_ms <= n.now_ms:
            keep_house(s)
            busy = s.figures.commands != s.last_house_commands
            s.last_house_commands = s.figures.commands
            self.house_ms = n.now_ms + (HOUSE_MS if busy else IDLE_HOUSE_MS)

    def settle(self) -> None:
        """[C8.3] Release the results of the turn: journal, events, then replies."""
        s = self.s
        if s.n.policy is not None:
            s.n.policy.turn_end(s.n)  # T18.2
        seq = self.write_journal()
        if s.bus is not None:
            s.bus.settle(self.for_peers(seq))
        if s.eventlog is not None:
            self.events_ms = tell_events(s, seq, self.binding_seq, self.events_ms)
        if s.n.others != 0:
            end_replies(s, self.outlet)  # T19.7
        if len(s.dirty) > 0:
            dirty = s.dirty
            s.dirty = []
            for c in dirty:
                c.is_dirty = False
                self.let_out(c, seq)
        if self.has_held() and (seq < 0 or len(s.journal_error) > 0):
            self.open_gate()
        if len(s.doomed) > 0:
            doomed = s.doomed
            s.doomed = []
            for c in doomed:
                self.outlet.close(c)

    def write_journal(self) -> i64:
        """Hand over the turn's records; returns the record that replies wait for, -1: none."""
        s = self.s
        n = s.n
        committer = s.committer
        if committer is None:
            if self.wake_fd >= 0 or self.has_held():  # turned off: all is on disk
                self.wake_fd = -1
                self.watched = None
                s.journal_error = ""
                self.open_gate()
            return -1
        is_binding = False
        records = n.records
        if records is not None:
            if self.watched is not committer:
                self.on_new_journal(committer.wake_fd)
            is_binding = records.binding_count != self.binding  # committed here or by a command
            if records.count > 0:
                began_ns: i64 = time.monotonic_ns()
                must_be = is_binding or committer.has_wish(records)
                committer.commit(records, n.now_ms, must_be)
                took_ns = time.monotonic_ns() - began_ns
                self.gather.on_synced(records.binding_count - self.binding, took_ns)
            committer.note_wish(records)
            if is_binding:
                self.binding = records.binding_count
                self.binding_seq = committer.seq
            committer.grant(records)
            self.late_ms = committer.when_late(n.now_ms)
            committer.on_turn(n, n.now_ms, REWRITE_JOBS)
        self.rewriting = committer.is_rewriting()
        s.journal_error = committer.error
        if self.rewriting or s.journal_error or self.was_noted:
            log_notes(committer.take_notes())
        self.was_noted = self.rewriting or len(s.journal_error) > 0
        if s.journal_error and not is_binding:
            return -1  # what waited got no answer (J6.1); others must not wait for ever
        return self.binding_seq if committer.must_hold(self.binding_seq) else -1

    def for_peers(self, seq: i64) -> i64:
        """The record that frames to other nodes wait for, also while the journal fails (J6.6)."""
        committer = self.s.committer
        if seq < 0 and committer is not None and committer.must_hold(self.binding_seq):
            return self.binding_seq
        return seq

    def let_out(self, c: Connection, seq: i64) -> None:
        """Send the client's output of this turn, or hold it until `seq` is durable."""
        if c.is_closed:
            return
        if seq >= 0 or len(c.gated) > 0:
            if len(c.gated) == 0:
                self.gate.append(c)
            c.hold(seq)
            self.outlet.limit_output(c)
            return
        self.outlet.send(c)

    def has_held(self) -> bool:
        """Whether replies or frames wait for the journal."""
        return len(self.gate) > 0 or (self.s.bus is not None and len(self.s.bus.gate) > 0)

    def on_new_journal(self, fd: i64) -> None:
        """The journal was turned on, or loaded again: nothing waits for the old one."""
        self.watch_wake(fd)
        self.binding = 0
        self.binding_seq = 0
        for c in self.gate:
            c.gated = [(0, held) for _, held in c.gated]
        if self.s.bus is not None:
            self.s.bus.release(FAR)
        self.open_gate()

    def on_journal_wake(self) -> None:
        """Records became durable, or the journal failed."""
        committer = self.s.committer
        if committer is None:
            return  # turned off by a command of this turn
        committer.on_wake()
        self.was_noted = True
        self.open_gate()

    def open_gate(self) -> None:
        """Release replies that need not wait (any more); if the journal failed, close clients.

        A weaker policy, or the end of a custody, releases replies, too.
        """
        committer = self.s.committer
        durable: i64 = FAR
        if committer is not None and committer.must_hold(committer.seq):
            durable = committer.durable_seq
        if self.s.bus is not None:
            self.s.bus.release(durable)
        gate = self.gate
        self.gate = []
        for c in gate:
            if not c.is_closed and c.release(durable):
                self.outlet.send_released(c)
            if len(c.gated) > 0 and not c.is_closed:
                if committer is not None and committer.error:
                    log_cut_off(c.address, c.held_bytes, committer.error)
                    self.outlet.close(c)
                else:
                    self.gate.append(c)

    # ---- sockets

    def on_wired(self, w: Wired, mask: i64) -> None:
        """An IPROTO connection is writable, or has input."""
        if mask & OUT:
            self.outlet.drain(w)
        if mask & ~OUT and not w.is_closed:
            if self.share.is_used():
                self.share.late[int(w.fd)] = None
                return
            try:
                self.iproto.read(w, self.share.each)
            except Exception as error:
                self.outlet.on_bug(w, error)

    def read(self, c: Client) -> None:
        """[C2] Read input and run the whole commands in it."""
        s = self.s
        try:
            data = c.receive(self.share.each)
        except BlockingIOError:
            return
        except OSError:
            self.outlet.close(c)
            return
        if len(data) == 0:
            self.outlet.on_end(c, len(c.todo) == 0 and not c.is_busy())
            return
        s.figures.in_bytes += len(data)
        if c.is_closing:
            return  # nothing more runs, e.g. after QUIT
        c.last_ms = s.n.now_ms
        held = c.reader.body_bytes()
        commands = c.reader.read(data)
        if len(commands) > 0:
            self.share.note_body(held)
        if c.reader.strict is None:
            c.half_since_ms = 0
        elif c.half_since_ms == 0 or len(commands) > 0:
            c.half_since_ms = s.n.now_ms
        if c.is_blocked or s.paused_until_ms > s.n.now_ms or len(c.todo) > 0:
            c.put_off(commands, False)
            self.fill_up(c)
        else:
            c.came_ms = c.last_ms
            self.run_commands(c, commands)
            self.come_back(c)
        if c.reader.strict is not None and len(s.password) > 0 and not c.is_authed:
            c.reader.check_small()
        most = unread_limit(s, c)
        if c.todo_bytes + c.reader.held_bytes() > most:
            note_unrun(s, c, most)
            c.reader.error = f"the command is over client-query-buffer-limit ({most})"
            if c.is_stuck() or len(c.todo) > 0:
                self.outlet.close(c)
        if c.reader.error and not c.is_closed and not c.is_stuck() and len(c.todo) == 0:
            self.outlet.break_off(c)

    def run_commands(self, c: Client, commands: list[list[bytes]]) -> None:
        """Run commands until the client blocks, is paused or ends."""
        s = self.s
        i: i64 = 0
        count: i64 = len(commands)
        while i < count:
            if c.is_blocked or c.is_closing or s.paused_until_ms > s.n.now_ms or s.stop_requested:
                if not c.is_closing:
                    c.put_off(commands[i:], True)
                return
            if (len(c.holes) > 0 or s.is_crowded) and producers.must_wait(s, c, commands[i]):
                c.put_off(commands[i:], True)
                return
            if s.n.work >= TURN_WORK and is_long(s, commands[i]):
                c.put_off(commands[i:], True)  # L2.3
                return
            execute(s, c, commands[i])
            i += 1
            if i < count and c.has_much():
                c.put_off(commands[i:], True)  # replies go out first, and others get their turn
                return

    def come_back(self, c: Client) -> None:
        """Continue next turn with commands that only this turn's end has stopped."""
        if c.may_run() and self.s.paused_until_ms <= self.s.n.now_ms:
            self.s.resumed.append(c)

    def go_on(self, c: Client) -> None:
        """Run pending commands; an internal error ends the client (C2.8)."""
        try:
            self.run_todo(c)
        except Exception as error:
            self.outlet.on_bug(c, error)

    def run_todo(self, c: Client) -> None:
        """Run some commands read while the client was blocked or paused; the rest next turn."""
        self.run_commands(c, c.take_up())
        if c.is_full and c.todo_bytes <= UNREAD_BYTES:
            c.is_full = False
            self.outlet.watch(c)
        if c.has_ended and c.is_waiting():
            self.outlet.close(c)
            return
        if len(c.todo) > 0:
            self.come_back(c)
            return
        if c.is_stuck() or c.is_closing:
            return
        if c.reader.error:
            self.outlet.break_off(c)
        elif c.has_ended:
            c.is_closing = True
            self.s.touch(c)

    def fill_up(self, c: Client) -> None:
        """Stop reading from a waiting producer with much pending input (B2.4)."""
        if c.held != NOT_HELD and c.todo_bytes > UNREAD_BYTES and not c.is_full:
            c.is_full = True
            self.outlet.watch(c)

    def close_all(self) -> None:
        """Close every connection and the poller; pending output is sent if possible."""
        self.outlet.close_all()
        self.doors.close()
        if self.s.bus is not None:
            if self.s.stop_requested:
                self.s.bus.settle(-1)  # for producers that left with their clients (R7.1)
            self.s.bus.close()
        self.poller.close()
