"""One process of a node: the twin of the server's pump, over simulated bytes.

Real: the request reader, the dispatcher and all commands, the core and its timers, the journal
and its gate, the frames and handshake of the bus. Simulated: sockets, the clock, the disk and
the journal's thread. A turn has the pump's order: read, run, journal, bus, clients. Everything
that leaves the process is an effect, and the process may end before it.
"""

from __future__ import annotations

from functools import partial
from socket import socket
from typing import TYPE_CHECKING, Final, cast

import hiredis

from tuque.core.dispatch.restore import after_load
from tuque.core.dispatch.timers import next_timer_ms, tick
from tuque.core.jobs.deliver import serve_ready
from tuque.core.jobs.transitions import FAR, check, on_memory_level
from tuque.core.model.job import ACKED
from tuque.core.model.tombstones import OPEN, OVER
from tuque.core.node.node import Node
from tuque.core.node.standstill import set_time
from tuque.core.outbox.records import Records
from tuque.server.admin.registry import register
from tuque.server.commands.dispatch import execute, tell_wakes
from tuque.server.config.config import Config, load
from tuque.server.replies.chores import run_chores
from tuque.server.replies.producers import must_wait, next_stall_ms, tell_added, wake_stalled
from tuque.server.state.client import Client
from tuque.server.state.state import Server, apply_settings
from tuque.server.tubes.turn import end_turn, next_turn_ms
from tuque.sim.engine.clock import NodeClock
from tuque.sim.engine.disk import SimJournal
from tuque.sim.engine.network import End
from tuque.sim.judges.checkers import transits_over
from tuque.sim.machines.bus import PORT as BUS_PORT_NAME
from tuque.sim.machines.bus import Links

if TYPE_CHECKING:
    from tuque.sim.machines.machine import Machine

CLIENTS: Final = "clients"
HOUSE_US: Final = 1_000_000
TURN_COMMANDS: Final = 200
LOAD_RECORDS: Final = 15
_shared: dict[str, Config] = {}


def plain_config() -> Config:
    """The configuration that all simulated servers share; read only."""
    if not _shared:
        register()
        _shared["plain"] = load(None, {}, {})
    return _shared["plain"]


class Crash(BaseException):
    """The process ends here."""


class Plug:
    """Stands in for a client's socket."""

    def __init__(self, number: int) -> None:
        self.number = number

    def fileno(self) -> int:
        """A number unique among the process's connections."""
        return self.number


class Door:
    """A client's connection, on the process's side."""

    def __init__(self, c: Client, end: End) -> None:
        self.c = c
        self.end = end
        self.replies = hiredis.Reader()  # parses as the client will
        self.held_us = 0  # since when replies wait for the disk


class Shell:
    """One process, from start to end."""

    def __init__(self, machine: Machine, number: int) -> None:
        self.machine = machine
        self.world = machine.world
        self.number = number  # number of the process on this machine
        self.born_us = machine.world.now_us
        self.clock = NodeClock(machine.clock)
        settings = machine.settings
        seed = b"%s %d %d" % (machine.name.encode(), number, machine.chance.getrandbits(60))
        self.n: Node = Node(machine.node_id, seed, self.clock.now_ms())
        self.s = Server(plain_config(), self.n)
        self.s.slow_ns = -1
        apply_settings(self.s)
        self.s.slow_ns = -1
        limits = self.n.limits
        limits.memory_bytes = settings.memory_bytes
        limits.may_evict = settings.may_evict
        limits.queue_idle_ms = settings.queue_idle_ms
        self.journal: SimJournal | None = None
        self.doors: dict[int, Door] = {}
        self.by_end: dict[End, Door] = {}
        self.gate: list[Door] = []
        self.inbox: list[tuple[End, bytes]] = []
        self.turn_us = -1
        self.binding = 0
        self.binding_seq = 0
        self.house_us = 0
        self.is_paused = False
        self.paused_us = 0
        self.is_dead = False
        self.wants_rewrite = False
        self.began_empty = True  # nothing came from the disk; unknown while loading
        self.newest_tomb = b""  # the latest that the judges checked
        self.links = Links(self)
        self.s.members = self.links.members

    # ---- events

    def on_data(self, end: End, data: bytes) -> None:
        """Bytes arrived in a socket's buffer."""
        if not self.is_dead:
            self.inbox.append((end, data))
            self.wake()

    def on_lost(self, end: End) -> None:
        """A connection ended; a read will notice."""
        self.on_data(end, b"")

    def accept(self, end: End, port: str) -> bool:
        """Accept a connection."""
        if self.is_dead:
            return False
        end.owner = self
        if port == BUS_PORT_NAME:
            self.links.accept(end)
            return True
        s = self.s
        number = int(s.next_number)
        plug = Plug(number)
        c = Client(number, cast(socket, plug), end.label, s.max_bulk, self.n.now_ms)
        s.next_number += 1
        s.clients[c.fd] = c
        s.by_number[c.number] = c
        door = Door(c, end)
        self.doors[number] = door
        self.by_end[end] = door
        return True

    def wake(self, wait_us: int = 0) -> None:
        """Schedule a turn soon."""
        machine = self.machine
        cpu_us = 1 + int(machine.cpu_us * machine.lots())
        self.wake_at(self.world.now_us + wait_us + cpu_us)

    def wake_at(self, at_us: int) -> None:
        """Schedule a turn at that instant or earlier."""
        if self.turn_us < 0 or at_us < self.turn_us:
            self.turn_us = at_us
            self.world.at(at_us, partial(self.on_wake, at_us))

    def on_wake(self, at_us: int) -> None:
        """Run the scheduled turn, unless another one ran before."""
        if self.turn_us != at_us or self.is_dead or self.is_paused:
            return
        self.turn_us = -1
        self.machine.guard(self.turn)

    def effect(self, what: str, data: bytes = b"") -> None:
        """An effect is about to leave the process, which may end first."""
        self.machine.burn(what)
        self.world.note(f"{self.machine.name} {what}", data)

    # ---- a turn

    def turn(self) -> None:
        """One turn, as in the pump."""
        n = self.n
        stood = int(n.standstills)
        self.tick_clock()
        inbox = self.inbox
        self.inbox = []
        if n.standstills != stood:
            inbox.sort(key=lambda one: one[0] in self.by_end)  # G8.4: other nodes first
        for end, data in inbox:
            door = self.by_end.get(end)
            if door is not None:
                self.read(door, data)
            else:
                self.links.read(end, data)
        self.step()
        self.machine.cluster.tubing.on_turn(self.machine, self)
        self.settle()
        self.machine.watch(self)
        next_ms = min(int(next_timer_ms(n)), self.links.next_ms(), int(next_stall_ms(self.s)))
        next_ms = min(next_ms, int(next_turn_ms(self.s)))
        if next_ms != FAR:
            self.wake_at(max(self.clock.true_us(next_ms), self.world.now_us + 200))
        if self.s.resumed or self.s.dirty or (n.policy is not None and self.has_left()):
            self.wake()
        if self.journal is not None and self.journal.snapshot is not None:
            self.wake(1000)

    def has_left(self) -> bool:
        """Whether a connection closed at the end of a turn left work (T8.2)."""
        records = self.n.records
        return bool(self.n.ready) or (records is not None and records.count > 0)

    def tick_clock(self) -> None:
        """[G8] The node's time never goes back."""
        if set_time(self.n, self.clock.now_ms()):
            self.world.sometimes("a home stood still")
            for door in list(self.doors.values()):
                if door.c.gated or any(hole is not None for hole in door.c.holes):
                    self.close(door)  # T19.7

    def read(self, door: Door, data: bytes) -> None:
        """Run a client's requests."""
        c = door.c
        if c.is_closed:
            return
        if not data:
            self.close(door)
            return
        c.last_ms = self.n.now_ms
        commands = c.reader.read(data)
        if c.is_blocked or c.todo:
            c.put_off(commands, False)
        else:
            c.came_ms = c.last_ms
            self.run_commands(c, commands)
        if c.reader.error and not c.is_stuck() and not c.todo:
            self.break_off(c)

    def break_off(self, c: Client) -> None:
        """Reply with the protocol error and close."""
        c.error(b"ERR Protocol error: " + c.reader.error.encode())
        c.is_closing = True
        self.s.touch(c)

    def run_commands(self, c: Client, commands: list[list[bytes]]) -> None:
        """Run commands until the client blocks or closes."""
        for i, command in enumerate(commands):
            if c.is_blocked or c.is_closing:
                if not c.is_closing:
                    c.put_off(commands[i:], True)
                return
            if (c.holes or self.s.is_crowded) and must_wait(self.s, c, command):
                c.put_off(commands[i:], True)
                return
            execute(self.s, c, command)

    def step(self) -> None:
        """Run timers, serve waiting clients and continue postponed commands."""
        s, n = self.s, self.n
        self.load_more()
        self.links.look()
        self.links.step()
        if s.is_loading:
            return
        if next_timer_ms(n) <= n.now_ms:
            tick(n)
        n.work = 0
        run_chores(s)
        if n.ready:
            serve_ready(n)
        if n.wakes:
            tell_wakes(s)
        if n.added:
            tell_added(s)
        if s.stalled:
            wake_stalled(s)
        resumed = s.resumed
        s.resumed = []
        for c in resumed:
            if c.is_closed:
                continue
            self.run_commands(c, c.take_up())
            if c.may_run():
                s.resumed.append(c)
            elif c.reader.error and not c.todo and not c.is_stuck():
                self.break_off(c)
        if n.added:
            tell_added(s)
        end_turn(s)
        if self.house_us <= self.world.now_us:
            self.house_us = self.world.now_us + HOUSE_US
            on_memory_level(n)

    def settle(self) -> None:
        """Let the results out: journal, then other nodes, then clients."""
        s = self.s
        if self.n.policy is not None:
            self.n.policy.turn_end(self.n)
        seq = self.write_journal()
        journal = self.journal
        if seq < 0 and journal is not None and journal.must_hold(self.binding_seq):
            self.links.settle(self.binding_seq)  # J6.6
        else:
            self.links.settle(seq)
        dirty = s.dirty
        s.dirty = []
        for c in dirty:
            c.is_dirty = False
            self.let_out(self.doors.get(int(c.number)), seq)
        if self.gate and (seq < 0 or s.journal_error):
            self.open_gate()

    def write_journal(self) -> int:
        """Hand over the turn's records; returns the record that replies wait for, -1: none."""
        journal, records, s = self.journal, self.n.records, self.s
        if journal is None or records is None:
            return -1
        if records.count > 0:
            journal.commit(records, self.n.now_ms)
        is_binding = records.binding_count != self.binding
        if is_binding:
            self.binding = int(records.binding_count)
            self.binding_seq = journal.seq
        journal.grant(records)
        journal.on_turn(self.n, self.wants_rewrite)
        self.wants_rewrite = False
        s.journal_error = journal.error
        if s.journal_error and not is_binding:
            return -1
        return self.binding_seq if journal.must_hold(self.binding_seq) else -1

    def on_journal(self) -> None:
        """Records became durable, or the disk failed."""
        if self.is_dead or self.is_paused or self.journal is None:
            return
        self.s.journal_error = self.journal.error
        self.links.on_durable()
        self.open_gate()
        self.wake()

    def durable(self) -> int:
        """Everything up to this record may be sent."""
        journal = self.journal
        if journal is None or not journal.must_hold(journal.seq):
            return FAR
        return journal.durable_seq

    def open_gate(self) -> None:
        """Send replies that need not wait any more; after a failure they are never sent."""
        durable = self.durable()
        gate = self.gate
        self.gate = []
        for door in gate:
            c = door.c
            if c.is_closed:
                continue
            if c.release(durable):
                self.send(door, c.wire, door.held_us)
                c.wire = []
            if c.gated:
                if self.journal is not None and self.journal.error:
                    self.close(door)
                else:
                    self.gate.append(door)

    def let_out(self, door: Door | None, seq: int) -> None:
        """Send the client's output of the turn, or hold it back."""
        if door is None or door.c.is_closed:
            return
        c = door.c
        if seq >= 0 or c.gated:
            if not c.gated:
                self.gate.append(door)
                door.held_us = self.world.now_us
            c.hold(seq)
            return
        out = c.out
        c.out = []
        self.send(door, out, self.world.now_us)

    def send(self, door: Door, pieces: list[bytes], made_us: int) -> None:
        """Write to a client; the checkers see the replies in it."""
        data = b"".join(pieces)
        if data:
            self.effect(f"reply {door.c.number}", data)
            door.replies.feed(data)
            told: list[object] = []
            while (reply := door.replies.gets()) is not False:
                told.append(reply)
            door.end.send(data)
            self.machine.cluster.history.made_us = made_us
            self.machine.told(door.end.sent, door.end.peer, told)
        if door.c.is_closing and not door.c.gated:
            self.close(door)

    def close(self, door: Door) -> None:
        """Drop a client."""
        c = door.c
        if c.is_closed:
            return
        c.is_closed = True
        self.machine.cluster.tubing.on_closed(self.machine, self, int(c.number))
        self.s.unblock(c)
        del self.s.clients[c.fd]
        del self.s.by_number[c.number]
        del self.doors[int(c.number)]
        del self.by_end[door.end]
        self.s.leave_tubes(c.number)
        c.forget()
        door.end.close()

    # ---- start and end

    def start(self) -> None:
        """Load the journal, if any, and open the bus. Raises JournalError."""
        machine, settings = self.machine, self.machine.settings
        if settings.policy != "off":
            self.journal = SimJournal(
                self.world,
                machine.disk,
                self.n.node_id,
                machine.clock.boot_record(),
                settings.policy,
                settings.sync_us,
            )
            self.journal.guard = machine.guard
            self.n.is_loading = True
            self.s.is_loading = True
            # A server opens its bus after the load; here it opens earlier, and must report
            # truthfully whether the disk is new.
            self.began_empty = not machine.disk.names
            self.journal.begin_load()
            if self.journal.load_some(self.n, LOAD_RECORDS):
                self.on_loaded()
        self.links.start()
        self.wake()

    def on_loaded(self) -> None:
        """The load is done: the node serves."""
        assert self.journal is not None
        self.n.is_loading = False
        self.s.is_loading = False
        self.began_empty = not self.n.remembers
        self.n.records = Records(self.n.node_ids, self.n.lives)
        arrived = transits_over(self.n)
        after_load(self.n)
        self.machine.cluster.watcher.on_loaded(self.machine, self, arrived)
        self.journal.on_change = self.on_journal
        self.world.note(f"{self.machine.name} has loaded {len(self.n.jobs)} jobs")

    def load_more(self) -> None:
        """Continue the load."""
        journal = self.journal
        if journal is None or journal.loader is None:
            return
        self.world.sometimes("a turn while the journal is loaded")
        if journal.load_some(self.n, LOAD_RECORDS):
            self.on_loaded()
        self.wake(self.machine.load_us)

    def knows_ack(self, id: bytes) -> bool:
        """Whether the node knows that the job is acked."""
        job = self.n.jobs.get(id)
        if job is not None:
            return job.state == ACKED
        bucket = self.n.tombs.ids.get(id)
        return bucket is not None and bucket.kind in (OVER, OPEN)

    def check(self) -> None:
        """Check all invariants of the node's tables. Raises AssertionError."""
        check(self.n)
        assert self.n.ledger.balance(len(self.n.jobs)) == 0, "ledger"
