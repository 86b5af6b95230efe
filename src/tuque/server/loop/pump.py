"""The loop of the server (SPEC C8): poll, read all, run, journal, bus, clients.

One turn reads all input, runs it, and then releases its results in the only legal order:
records to the journal first, then messages to other nodes, then replies, one write per
client. Under `appendfsync always` the replies of a turn are held until its records are on
disk; input that arrives meanwhile is run and shares the next fsync.
"""

import os
import socket
from collections.abc import Callable
from typing import Final, final

from mypy_extensions import i64

from tuque.core.dispatch.timers import next_timer_ms, tick
from tuque.core.model.timers import NEVER_MS, PIECE, TURN_NS, TURN_WORK
from tuque.core.node.node import NODE_LEAVING
from tuque.core.node.tables import has_stood, set_time
from tuque.core.queues.deliver import serve_ready, wake_all
from tuque.core.repair.drain import set_stopping, tubes_to_move
from tuque.logtext import facts
from tuque.server.commands.dispatch import execute, is_long, tell_wakes
from tuque.server.loop.accept import Acceptors
from tuque.server.loop.fairness import Share, leaves_unrun
from tuque.server.loop.gate import Gate, ReadBatch
from tuque.server.loop.housekeeping import (
    end_turn,
    evict_clients,
    has_left,
    next_turn_ms,
    run_housekeeping,
    tell_events,
)
from tuque.server.loop.iproto_input import IprotoDoor
from tuque.server.loop.output import Output, drop_unsent
from tuque.server.net.system import IN, OUT, Poller
from tuque.server.replies import waiting
from tuque.server.replies.errors import LEAVING
from tuque.server.replies.long_commands import next_long_command_ms, run_long_commands
from tuque.server.state.client import (
    NOT_HELD,
    SHORT_READ,
    Client,
    Wired,
)
from tuque.server.state.server import REFUSED, REOPEN, WATCH, Server, log
from tuque.tubes.leadership.switchover import run_any
from tuque.tubes.policy import tubes_of
from tuque.wire.commands.rows import LIGHT_WORK

FIRST_NS: Final = 25_000  # first busy poll
FEW: Final = 4  # jobs or messages: with more the cores have other work

HOUSE_MS: Final = 100  # between two rounds of housekeeping under traffic
IDLE_HOUSE_MS: Final = 1_000
DEAF_MS: Final = 1_000  # a turn that is late by more has heard nobody (W6.1)
PART_MS: Final = 2_000  # a stop waits for what is in flight, at most (C11)
QUIET_MS: Final = 100  # a client without a call for that long hears of the stop by its end
PART_STEP_MS: Final = 20  # between two looks at them
SIGNALS_MAX: Final = 64  # heard in one turn; the others in the next
UNREAD_BYTES: Final = 1 << 20  # of a waiting producer: beyond it nothing more is read


# ---- The pump's sleep: what is ready, and a busy poll when a reply is near (SPEC C8.4)
#
# A sleeping process takes some 30 us to run again, and finds its caches cold; copies of a job
# take two or three such waits in sequence. The kernel's halt polling does the same below us.


@final
class Patience:
    """How long to busy-poll: longer after input that came soon, shorter after late input."""

    def __init__(self) -> None:
        self.ns: i64 = 0

    def learn(self, wait_ns: i64, most_ns: i64) -> None:
        """Input came after `wait_ns`; no busy poll shall exceed `most_ns`."""
        if wait_ns > most_ns:
            self.ns = self.ns // 2 if self.ns >= 2 * FIRST_NS else 0
        else:
            self.ns = min(most_ns, max(FIRST_NS, 2 * self.ns))


@final
class Poll:
    """Waits for sockets on behalf of the pump."""

    def __init__(self, s: Server, poller: Poller) -> None:
        self.s = s
        self.poller = poller
        self.for_copies = Patience()  # copies that producers here wait for
        self.for_more = Patience()  # more messages after those just received

    def patience(self) -> Patience | None:
        """[C8.4] What is expected soon; None: nothing."""
        bus = self.s.bus
        if bus is None or self.s.busy_poll_ns == 0 or not self.s.system.may_spin:
            return None
        heard = bus.heard
        bus.heard = 0
        adding: i64 = len(self.s.n.adding)
        if adding > 0:
            return self.for_copies if adding <= FEW else None
        return self.for_more if 0 < heard <= FEW else None

    def wait(self, most_ms: i64) -> list[tuple[int, int]]:
        """The ready descriptors with their masks; waits up to `most_ms`, -1 for ever."""
        patience = self.patience()
        if patience is None or most_ms == 0:
            return self.poller.wait(most_ms)
        began_ns: i64 = self.s.system.work_ns()
        if patience.ns > 0:
            ready = self.look(began_ns + patience.ns)
            if len(ready) > 0:
                patience.learn(0, self.s.busy_poll_ns)
                return ready
        ready = self.poller.wait(most_ms)
        now_ns: i64 = self.s.system.work_ns()
        patience.learn(now_ns - began_ns, self.s.busy_poll_ns)
        return ready

    def look(self, until_ns: i64) -> list[tuple[int, int]]:
        """Busy-poll until then; other processes get the core in between."""
        while True:
            ready = self.poller.wait(0)
            if len(ready) > 0:
                return ready
            now_ns: i64 = self.s.system.work_ns()
            if now_ns >= until_ns:
                return ready
            os.sched_yield()


# ---- After a standstill: the process was stopped, suspended, or busy for too long
#
# No earlier reply about tubes leaves after it: another node may lead them (SPEC T19.7).


def begin_turn(s: Server, output: Output) -> None:
    """[G8] Set the node's time, and detect a standstill before any read (G8.4)."""
    n = s.n
    before = n.standstills
    is_stale = set_time(n, s.clock_ms())
    n.measure_room()
    if n.standstills == before:
        return
    closed = drop_unsent(s, output) if is_stale else 0
    if s.bus is not None:
        s.bus.hear_all()
    log.warning(
        "the process stood still for %(ms)d ms, longer than cluster-node-timeout; "
        "its tubes wait for a reply of other nodes; %(closed)d connections closed",
        facts("stood_still", ms=n.stood_ms, closed=closed),
    )


def end_replies(s: Server, output: Output) -> None:
    """[T19] Before replies are sent: drop them if the process stood still in this turn (T19.7), or
    so long that a lease ended (T25.8).
    """
    n = s.n
    clock_ms = s.clock_ms()
    t = tubes_of(n)
    if not has_stood(n, clock_ms) and not n.now_ms <= t.voter_state.lease_ms < clock_ms:
        return
    if run_any(t):
        drop_unsent(s, output)  # the next turn does the rest


# ---- The loop


@final
class Pump:
    """Drives one Server until asked to stop."""

    def __init__(self, s: Server) -> None:
        self.s = s
        self.poller = Poller(s.system.open_epoll())
        self.poll = Poll(s, self.poller)
        self.acceptors = Acceptors(s, self.poller)
        self.output = Output(s, self.poller)
        self.read_batch = ReadBatch(s, self.poller)
        self.gate = Gate(s, self.poller, self.output, self.read_batch)
        self.share = Share(s)
        self.has_had_long = False  # a long command ran in this turn
        self.is_going_on = False  # those that have waited run
        self.iproto = IprotoDoor(s, self.output)
        self.signal_fd: i64 = -1
        self.bells: dict[int, Callable[[], None]] = {}  # rung by threads, and what to do then
        self.house_ms: i64 = 0
        self.began_ns: i64 = 0  # of the last turn, without its sleep
        self.ended_ns: i64 = 0

    def listen(self, sock: socket.socket) -> None:
        """Accept clients from a bound, listening, non-blocking socket."""
        self.acceptors.listen(sock)

    def watch_signals(self, fd: i64) -> None:
        """A signal handler writes to this descriptor."""
        self.signal_fd = fd
        self.poller.add(fd)

    def watch_bell(self, fd: i64, on_ring: Callable[[], None]) -> None:
        """A thread makes this descriptor readable when the loop is to call `on_ring`."""
        self.bells[int(fd)] = on_ring
        self.poller.add(fd)

    def welcome(
        self, sock: socket.socket, address: object, is_iproto: bool, user: bytes, early: bool
    ) -> None:
        """[X4] A connection whose handshake is over; `early`: it has sent something already.

        `user`: the common name of the client's certificate.
        """
        fd: i64 = sock.fileno()
        if self.acceptors.admit(sock, address, is_iproto, user) and early:
            self.take([(int(fd), IN)])

    def clock(self) -> None:
        """[G8] Set the node's time; it never goes back (G8.1)."""
        begin_turn(self.s, self.output)

    def run(self) -> None:
        """Run turns until asked to stop."""
        if not self.s.stop_requested:
            self.turn(-1)
        while not self.s.stop_requested:
            self.turn_in(self.sleep_ms(-1, self.ended_ms()))

    def wait_ms(self, most_ms: i64) -> i64:
        """How long to sleep: until the next timer, at most `most_ms`."""
        return self.sleep_ms(most_ms, self.s.clock_ms())

    def ended_ms(self) -> i64:
        """When the last turn ended. It costs less than another look at the clock."""
        return self.s.n.now_ms + (self.ended_ns - self.began_ns) // 1_000_000

    def sleep_ms(self, most_ms: i64, clock_ms: i64) -> i64:
        """As `wait_ms`, at that instant."""
        s = self.s
        if len(s.resumed) > 0 or len(s.dirty) > 0 or len(s.n.added) > 0 or len(s.n.dirty_peers) > 0:
            return 0
        if self.iproto.has_work() or len(s.late_wakes) > 0:
            return 0
        if len(s.long_commands) > 0 and not s.is_loading and s.paused_until_ms <= s.n.now_ms:
            return 0
        if s.n.policy is not None and not s.is_loading and has_left(s):
            return 0
        if self.gate.is_rewriting:
            return 1
        at_ms = self.asked_ms()
        if not s.is_loading:  # `step` rings none then
            at_ms = min(at_ms, s.alarms.next_ms())
        if at_ms == NEVER_MS:
            return most_ms
        left_ms = at_ms - clock_ms
        if left_ms < 0:
            left_ms = 0
        if left_ms > 60_000:
            left_ms = 60_000
        return left_ms if most_ms < 0 or left_ms < most_ms else most_ms

    def asked_ms(self) -> i64:
        """When there is work of the features that have no alarm (server/state/server.py)."""
        s = self.s
        now_ms = s.n.now_ms
        at_ms = next_timer_ms(s.n)
        has_clients = (
            len(s.clients) > 0 or len(s.wired) > 0 or s.figures.commands != s.last_house_commands
        )
        if has_clients or s.members.is_changed:
            at_ms = min(at_ms, self.house_ms)  # once more after all have gone
        if len(s.stalled) > 0:
            at_ms = min(at_ms, waiting.next_stall_ms(s))
        at_ms = min(at_ms, next_turn_ms(s))
        if s.paused_until_ms > now_ms:
            at_ms = min(at_ms, s.paused_until_ms)
        elif len(s.resting) > 0:
            at_ms = min(at_ms, next_long_command_ms(s))
        if s.bus is not None:
            at_ms = min(at_ms, s.bus.next_ms())
            if s.members.is_changed:
                at_ms = min(at_ms, s.keep_ms)
        if len(s.end_asked) > 0:
            at_ms = min(at_ms, now_ms + PART_STEP_MS)
        return at_ms

    def turn(self, most_ms: i64) -> None:
        """[C8] One turn of the loop; sleeps at most `most_ms` (-1: until something happens)."""
        self.turn_in(self.wait_ms(most_ms))

    def turn_in(self, waited_ms: i64) -> None:
        """The turn, after a sleep of so many ms, or as long as nothing happens (-1)."""
        before_ms = self.s.n.now_ms
        ready = self.poll.wait(waited_ms)
        self.began_ns = self.s.system.work_ns()
        self.hear(ready)
        if 0 <= waited_ms < self.s.n.now_ms - before_ms - DEAF_MS:
            self.s.n.life.deaf_ms = self.s.n.now_ms  # W6.1
        self.step()
        self.settle()
        if len(self.s.end_asked) > 0:
            self.part()
        self.ended_ns = self.s.system.work_ns()
        self.s.watch.note_turn(self.ended_ns - self.began_ns, self.ended_ns)

    def hear(self, ready: list[tuple[int, int]]) -> None:
        """[C8.1] Begin a turn: read the input and run it."""
        s = self.s
        self.clock()
        s.figures.turns += 1
        s.n.work = 0
        s.long_ns = s.woken_bytes = 0
        if len(s.late_wakes) > 0:
            s.n.wakes = list(s.late_wakes.values()) + s.n.wakes
            s.late_wakes = {}
        self.has_had_long = False
        s.mark_ns = 0
        self.share.begin()
        self.take(ready)
        while s.committer is not None and not s.stop_requested and len(self.share.late) == 0:
            ready = self.read_batch.more(self.gate.binding)
            if len(ready) == 0:
                break
            self.take(ready)

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
                if mask & OUT and self.share.may_write(c):
                    self.output.drain(c)
                    s.mark_ns = 0
                if mask & ~OUT and not c.is_closed and self.share.may_read(c):
                    try:
                        self.read(c)
                    except Exception as error:
                        self.output.on_bug(c, error)
                    self.share.note_read(c)
                continue
            s.mark_ns = 0
            if fd in s.wired:
                self.on_wired(s.wired[fd], mask)
            elif bus is not None and bus.on_ready(fd, mask):
                pass
            elif fd in self.acceptors.listeners:
                self.acceptors.accept(fd)
            elif self.acceptors.on_refused(fd):
                pass
            elif fd == self.gate.wake_fd:
                self.gate.on_wake()
            elif fd in self.bells:
                self.bells[fd]()
            elif fd == self.signal_fd:  # SIGTERM or SIGINT: stop in order
                self.on_signal()

    def on_signal(self) -> None:
        """[C11] Signals came, each with a byte: stop in order, or at once (C11.5)."""
        sockets = self.s.signal_sockets
        if sockets is None:
            return
        for _ in sockets[0].recv(SIGNALS_MAX):
            self.s.ask_end("signal")

    def part(self) -> None:
        """[C11] Send clients elsewhere, move the tubes, and stop when nothing is in flight."""
        s = self.s
        now_ms = s.n.now_ms
        if s.end_ms == 0:
            s.end_ms = now_ms + PART_MS
            self.acceptors.shut()  # C11.1
            wake_all(s.n, NODE_LEAVING)  # C11.2
            set_stopping(s.n, True)  # C11.3
        is_over = tubes_to_move(s.n) == 0
        for w in list(s.wired.values()):
            if w.is_at_rest() and w.last_ms + QUIET_MS <= now_ms:
                self.output.close(w)
            else:
                is_over = False
        for c in s.clients.values():
            if not c.is_at_rest() or c.last_ms + QUIET_MS > now_ms:
                is_over = False
            elif not c.lingers:
                c.error(LEAVING)  # the reply to a call that comes now, and is not run
                c.is_closing = True
                c.lingers = True
                s.touch(c)
                is_over = False
        if is_over or now_ms >= s.end_ms:
            s.stop_requested = s.end_asked

    def step(self) -> None:
        """Timers, waiting clients, deferred commands."""
        s = self.s
        n = s.n
        if s.stop_requested:
            return
        if s.is_loading:
            self.run_logins()
            return
        if s.bus is not None:
            waiting.run_link_timers(s, s.bus)
        if s.committer is not None and n.records is not None:
            s.committer.grant(n.records)
        if next_timer_ms(n) <= n.now_ms:
            tick(n)
        if len(s.long_commands) > 0 or len(s.resting) > 0:
            run_long_commands(s)
        if len(n.ready) > 0:
            serve_ready(n)
        if len(n.wakes) > 0 or len(n.life.calls) > 0:
            tell_wakes(s)
        if len(n.added) > 0:
            waiting.tell_added(s)
        if len(s.stalled) > 0:
            waiting.wake_stalled(s)
        if s.paused_until_ms != 0 and s.paused_until_ms <= n.now_ms:
            s.paused_until_ms = 0
            for c in list(s.clients.values()):
                if c.may_run():
                    s.resumed.append(c)
        if len(s.resumed) > 0:
            self.go_on_all()
        self.iproto.run_stalled()
        end_turn(s)
        if s.alarms.next_ms() <= n.now_ms:
            self.ring()
        self.housekeeping()

    def run_logins(self) -> None:
        """[N4] Log-ins go on while the node loads: its clients may ask how far it is (N4.6)."""
        s = self.s
        if len(s.long_commands) > 0 or len(s.resting) > 0:
            run_long_commands(s)
        if len(s.resumed) > 0:
            self.go_on_all()

    def go_on_all(self) -> None:
        """Clients whose wait is over run what they have sent meanwhile."""
        s = self.s
        resumed = s.resumed
        s.resumed = []
        s.mark_ns = 0
        self.share.begin()
        self.is_going_on = True
        for i, c in enumerate(resumed):
            if self.share.is_used():
                s.resumed = resumed[i:] + s.resumed  # L2.8
                break
            if self.share.waits_for_room(c):
                s.resumed.append(c)
            elif not c.is_closed:
                self.go_on(c)
        self.is_going_on = False
        if len(s.n.added) > 0:
            waiting.tell_added(s)

    def ring(self) -> None:
        """Run what is due of the alarms; the turn runs the others in its order (C8)."""
        s = self.s
        now_ms = s.n.now_ms
        if s.alarms.at(REOPEN) <= now_ms or s.alarms.at(REFUSED) <= now_ms:
            self.acceptors.on_time()
        if s.alarms.at(WATCH) <= now_ms:
            s.alarms.set(WATCH, s.watch.look(s.n))  # O3.1

    def housekeeping(self) -> None:
        """Housekeeping."""
        s = self.s
        n = s.n
        if s.members.is_changed and self.house_ms > n.now_ms + HOUSE_MS:
            self.house_ms = n.now_ms + HOUSE_MS  # keeps nodes.conf current (K1.1)
        if self.house_ms <= n.now_ms:
            run_housekeeping(s)
            busy = s.figures.commands != s.last_house_commands
            s.last_house_commands = s.figures.commands
            self.house_ms = n.now_ms + (HOUSE_MS if busy else IDLE_HOUSE_MS)

    def settle(self) -> None:
        """[C8.3] Release the results of the turn: journal, events, then replies."""
        s = self.s
        if s.n.policy is not None:
            s.n.policy.turn_end(s.n)  # T18.2
        seq = self.gate.write()
        if s.bus is not None:
            s.bus.settle(self.gate.for_peers(seq))
        if s.eventlog is not None:
            tell_events(s, seq, self.gate.binding_seq)
        if s.n.others != 0:
            end_replies(s, self.output)  # T19.7
        if len(s.dirty) > 0:
            dirty = s.dirty
            s.dirty = []
            for c in dirty:
                c.is_dirty = False
                self.gate.release(c, seq)
        if self.gate.has_held() and (seq < 0 or len(s.journal_error) > 0):
            self.gate.open()
        if 0 < s.n.limits.clients_bytes < s.n.held_by_clients():
            evict_clients(s)
        if len(s.doomed) > 0:
            doomed = s.doomed
            s.doomed = []
            for c in doomed:
                self.output.close(c)

    # ---- sockets

    def on_wired(self, w: Wired, mask: i64) -> None:
        """An IPROTO connection is writable, or has input."""
        if mask & OUT and self.share.may_write(w):
            self.output.drain(w)
        if mask & ~OUT and not w.is_closed and self.share.may_read(w):
            try:
                self.iproto.read(w, self.share.each)
            except Exception as error:
                self.output.on_bug(w, error)
            self.share.note_read(w)

    def read(self, c: Client) -> None:
        """[C2] Read input and run the whole commands in it."""
        s = self.s
        try:
            most = self.share.most(s.is_nobody(c))
            data = c.receive(most)
        except BlockingIOError:
            return
        except OSError:
            self.output.close(c)
            return
        if len(data) == 0:
            self.output.on_end(c, len(c.todo) == 0 and not c.is_busy())
            return
        s.figures.in_bytes += len(data)
        if len(data) >= SHORT_READ:
            s.mark_ns = 0  # a longer read, and what it holds, take time of their own
        self.share.has_more = len(data) >= most
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
            self.stop_reading(c)
        else:
            c.came_ms = c.last_ms
            self.run_commands(c, commands)
            s.figures.much_bytes += c.take_much()
            self.reschedule(c)
        if c.reader.strict is not None and s.is_nobody(c):
            c.reader.check_small()
        if leaves_unrun(s, c) and (c.is_stuck() or len(c.todo) > 0):
            self.output.close(c)
        if c.reader.error and not c.is_closed and not c.is_stuck() and len(c.todo) == 0:
            self.output.break_off(c)

    def run_commands(self, c: Client, commands: list[list[bytes]]) -> None:
        """Run commands until the client blocks, is paused or ends."""
        s = self.s
        i: i64 = 0
        count: i64 = len(commands)
        if c.spent_turn == s.figures.turns:
            c.put_off(commands, True)
            return
        work = s.n.work
        most = work + (PIECE if work < TURN_WORK else LIGHT_WORK)
        while i < count:
            if c.is_blocked or c.is_closing or s.paused_until_ms > s.n.now_ms or s.stop_requested:
                if not c.is_closing:
                    c.put_off(commands[i:], True)
                return
            if (len(c.holes) > 0 or s.is_crowded) and waiting.must_wait(s, c, commands[i]):
                c.put_off(commands[i:], True)
                return
            if s.n.work >= TURN_WORK and is_long(s, commands[i]):
                if self.has_had_long or not self.is_going_on:
                    c.put_off(commands[i:], True)  # L2.3
                    return
                self.has_had_long = True
            before = s.n.work
            execute(s, c, commands[i])
            if s.n.work - before > LIGHT_WORK and not self.has_had_long:
                self.has_had_long = s.long_ns < TURN_NS or is_long(s, commands[i])
            i += 1
            if s.n.work + i >= most:  # L2.10: each command is a unit for its connection
                c.spent_turn = s.figures.turns
                c.put_off(commands[i:], True)
                return
            if c.has_much():
                c.put_off(commands[i:], True)  # replies go out first, and others get their turn
                return

    def reschedule(self, c: Client) -> None:
        """Continue next turn with commands that only this turn's end has stopped."""
        if c.may_run() and self.s.paused_until_ms <= self.s.n.now_ms:
            self.s.resumed.append(c)

    def go_on(self, c: Client) -> None:
        """Run pending commands; an internal error ends the client (C2.8)."""
        try:
            self.run_todo(c)
        except Exception as error:
            self.output.on_bug(c, error)

    def run_todo(self, c: Client) -> None:
        """Run some commands read while the client was blocked or paused; the rest next turn."""
        if c.spent_turn == self.s.figures.turns:
            self.reschedule(c)
            return
        self.run_commands(c, c.take_up())
        self.s.figures.much_bytes += c.take_much()
        if c.is_full and c.todo_bytes <= UNREAD_BYTES:
            c.is_full = False
            self.output.watch(c)
        if c.has_ended and c.is_waiting():
            self.output.close(c)
            return
        if len(c.todo) > 0:
            self.reschedule(c)
            return
        if c.is_stuck() or c.is_closing:
            return
        if c.reader.error:
            self.output.break_off(c)
        elif c.has_ended:
            c.is_closing = True
            self.s.touch(c)

    def stop_reading(self, c: Client) -> None:
        """Stop reading from a client whose commands wait for others, or for its share of a turn.

        Those of a blocked or paused one are read on, up to its limit (B2.4, L2.10).
        """
        is_apart = c.is_blocked or self.s.paused_until_ms > self.s.n.now_ms
        if c.held == NOT_HELD and is_apart:
            return
        if c.todo_bytes > UNREAD_BYTES and not c.is_full:
            c.is_full = True
            self.output.watch(c)

    def close_all(self) -> None:
        """Close every connection and the poller; pending output is sent if possible."""
        self.output.close_all()
        self.acceptors.close()
        if self.s.bus is not None:
            if self.s.stop_requested:
                self.s.bus.settle(-1)  # for producers that left with their clients (R7.1)
            self.s.bus.close()
        self.poller.close()
