"""One life of a node: the real server in a simulated process.

Real: the pump and all that it drives, the journal, the bus, the start. Simulated: the interface
of server/net/system.py (kernel.py), the disk, and when the journal's thread runs (thread.py).
Everything that leaves the process is an effect; the process may end before any effect.
"""

from __future__ import annotations

from copy import copy
from functools import partial
from socket import socket
from typing import TYPE_CHECKING, Final, cast

from sim.engine.clock import NodeClock
from sim.engine.disk import PATH
from sim.engine.network import End
from sim.engine.world import World
from sim.judges.checkers import transits_over
from sim.judges.rare import look_at_message
from sim.machines.kernel import (
    BUS,
    BUS_PORT,
    CLIENT_PORT,
    ClientSocket,
    Kernel,
    ListeningSocket,
    Socket,
)
from sim.machines.thread import SimThread
from sim.tube_judges.forces import is_outdated
from tuque.cluster.members import Members
from tuque.cluster.nodes_conf import NodesConf, parse_nodes_conf
from tuque.core.model.job import ACKED
from tuque.core.model.tombstones import OPEN, OVER
from tuque.core.msgs.bus import AnyMessage, Heartbeat, TubePulse
from tuque.core.node.node import Node
from tuque.core.node.tables import has_stood
from tuque.core.queues.procedures import check
from tuque.server.admin.registry import register
from tuque.server.bus.peers import Bus
from tuque.server.config.config import Config, load
from tuque.server.config.identity import Identity
from tuque.server.journal.committer import Committer
from tuque.server.loop.pump import Pump
from tuque.server.replies.waiting import next_sync_ms, run_link_timers
from tuque.server.start.bus import (
    attach_bus,
    id_key,
    make_card,
    open_bus,
    take_identity,
)
from tuque.server.start.journal import begin_load, end_load
from tuque.server.state.client import Connection
from tuque.server.state.server import REFUSED, SYNCED, Server, apply_settings
from tuque.store.replay import Loader
from tuque.store.writer import Journal
from tuque.tubes.leadership.switchover import run_any
from tuque.tubes.policy import tubes_of

if TYPE_CHECKING:
    from sim.machines.machine import Machine, Settings

BEATS: Final = (Heartbeat, TubePulse)  # sent whatever happens
LOAD_RECORDS: Final = 15
SLICE_JOBS: Final = 20
BUFFER_BYTES: Final = 1 << 16  # of a socket to another node; less where links are narrow
LEAST_US: Final = 200  # between a turn and the timer after it
SECRET: Final = b"of this seed"
_shared: dict[str, Config] = {}


def config_of(settings: Settings) -> Config:
    """The configuration of a server."""
    if not _shared:
        register()
        _shared["plain"] = load(None, {}, {"slowlog-log-slower-than": "-1"})
    cfg = copy(_shared["plain"])
    cfg.port = CLIENT_PORT
    cfg.appendonly = settings.policy != "off"
    cfg.bus_buffer_limit = settings.bus_limit_bytes
    cfg.cluster_node_timeout = settings.node_timeout_ms
    cfg.tube_lease_timeout = settings.lease_ms
    return cfg


class Crash(BaseException):
    """The process ends here."""


class SimIdentity(Identity):
    """nodes.conf of a machine."""

    def __init__(self, machine: Machine, cfg: Config) -> None:
        kept = parse_nodes_conf(machine.conf) if machine.conf else NodesConf()
        kept.node_id = machine.node_id
        super().__init__(kept, cfg)
        self.is_new = not machine.conf
        self.machine = machine
        self.mark = machine.chance.getrandbits(64).to_bytes(8, "big")

    def save(self, members: Members | None = None) -> None:
        """Replace the contents of the file."""
        self.machine.conf = self.text(members)

    def save_soon(self, members: Members) -> bool:
        """The same, without a thread."""
        self.save(members)
        return True


class Shell:
    """One process, from start to end."""

    def __init__(self, machine: Machine, number: int, cfg: Config) -> None:
        self.machine = machine
        self.world: World = machine.world
        self.number: int = number  # which life of the machine
        self.born_us = machine.world.now_us
        self.clock: NodeClock = NodeClock(machine.clock)
        self.turn_us = -1  # when the next turn is
        self.busy_us = 0  # the last one took until then
        self.in_turn = False
        self.is_paused = False
        self.paused_us = 0
        self.is_dead = False
        self.died_us = 0
        self.newest_tomb = b""  # the last that the judges looked at
        self.held: list[ClientSocket] = []  # those with replies that wait for the journal
        self.buffer_bytes = min(BUFFER_BYTES, machine.settings.bus_limit_bytes)
        self.kernel: Kernel = self.new_kernel()
        seed = b"%s %d %d" % (machine.name.encode(), number, machine.chance.getrandbits(60))
        self.n: Node = Node(machine.node_id, seed, self.clock.now_ms())
        self.s = Server(cfg, self.n, self.kernel.system())
        take_identity(self.s, SimIdentity(machine, cfg))
        apply_settings(self.s)
        if machine.settings.failover:
            votes = tubes_of(self.n).voter_state
            votes.is_on = machine.settings.is_candidate
            votes.asks_all = machine.settings.asks_all
            votes.wanted = machine.settings.voters
            votes.silent_ms = machine.settings.silent_ms
        self.pump: Pump = Pump(self.s)
        self.clients = self.new_clients()
        self.nodes = ListeningSocket(self.kernel, BUS_PORT)
        self.pump.listen(cast(socket, self.clients))
        self.bus: Bus  # the links to other nodes, from the start on
        self.thread: SimThread | None = None
        self.loader: Loader | None = None  # while loading
        self.load_us = 0  # when it reads on

    def new_kernel(self) -> Kernel:
        """The operating system as the process sees it."""
        return Kernel(self)

    def new_clients(self) -> ListeningSocket:
        """Where clients arrive."""
        return ListeningSocket(self.kernel, CLIENT_PORT)

    # ---- start

    def start(self) -> None:
        """Load the journal, if there is one, and open the bus. Raises JournalError."""
        settings = self.machine.settings
        attach_bus(self.pump, [SECRET] if settings.sealed else [], [cast(socket, self.nodes)])
        assert self.s.bus is not None
        self.bus = self.s.bus
        if not settings.sealed:
            self.bus.filler = SECRET
            self.n.ids.take_keys([id_key(SECRET)])
        self.bus.ear = self.hear
        limits = self.n.limits
        limits.memory_bytes = settings.memory_bytes
        limits.may_evict = settings.may_evict
        limits.queue_idle_ms = settings.queue_idle_ms
        if settings.policy == "off":
            open_bus(self.pump)
        else:
            self.begin_load(settings)
        self.wake()

    def begin_load(self, settings: Settings) -> None:
        """Open the journal and begin to read it. Raises JournalError."""
        machine = self.machine
        journal = Journal(machine.disk, PATH, machine.node_id, machine.clock.boot_record())
        self.thread = self.new_thread(journal, settings)
        machine.disk.on_fsync = self.thread.on_fsync
        committer = self.new_committer(self.thread)
        committer.lock()
        self.s.committer = committer
        if settings.opens_early:
            self.bus.card = make_card(self.s, self.bus, not machine.disk.names)
            self.bus.open()
        self.loader = begin_load(self.s, committer)
        self.load_more()

    def new_thread(self, journal: Journal, settings: Settings) -> SimThread:
        """What writes the journal."""
        return SimThread(self, journal, settings.policy, settings.sync_us)

    def new_committer(self, thread: SimThread) -> Committer:
        """The journal as the pump sees it."""
        machine = self.machine
        now_ms = int(self.n.now_ms)
        committer = Committer(machine.disk, PATH, machine.node_id, now_ms, thread=thread)
        committer.slice_jobs = SLICE_JOBS
        return committer

    def load_more(self) -> None:
        """Go on with the load; with its end the node serves. Raises JournalError."""
        loader, committer = self.loader, self.s.committer
        assert loader is not None
        assert committer is not None
        if not loader.step(self.n, LOAD_RECORDS):
            self.load_us = self.world.now_us + self.machine.load_us
            return
        self.loader = None
        arrived = transits_over(self.n)
        end_load(self.pump, committer, loader)
        self.machine.cluster.on_loaded(self.machine, self, arrived)
        self.world.note(f"{self.machine.name} has loaded {len(self.n.jobs)} jobs")
        if self.bus.card is None:
            open_bus(self.pump)

    # ---- events

    def accept(self, end: End, port: str) -> bool:
        """Somebody connects."""
        if self.is_dead or (port != BUS and is_outdated(self.machine)):
            return False
        if port == BUS:
            link = Socket(self.kernel, end)
            link.buffer_bytes = self.buffer_bytes
            end.owner = link
            self.nodes.take(link)
        else:
            sock = ClientSocket(self.kernel, end)
            end.owner = sock
            self.clients.take(sock)
        return True

    def on_ready(self) -> None:
        """A descriptor became ready."""
        if not self.in_turn:
            self.wake()

    def wake(self, wait_us: int = 0) -> None:
        """Schedule a turn soon."""
        machine = self.machine
        cpu_us = 1 + int(machine.cpu_us * machine.lots())
        self.wake_at(self.world.now_us + wait_us + cpu_us)

    def wake_at(self, at_us: int) -> None:
        """Schedule a turn at that time or before, but after the end of the last one."""
        at_us = max(at_us, self.busy_us)
        if self.turn_us < 0 or at_us < self.turn_us:
            self.turn_us = at_us
            self.world.at(at_us, partial(self.on_wake, at_us))

    def on_wake(self, at_us: int) -> None:
        """Run the scheduled turn, unless another one ran before."""
        if self.turn_us != at_us or self.is_dead or self.is_paused:
            return
        self.turn_us = -1
        self.in_turn = True
        self.machine.guard(self.turn)
        self.in_turn = False

    def effect(self, what: str, data: bytes = b"") -> None:
        """An effect is about to leave the process, which may end first."""
        self.machine.burn(what)
        self.world.note(f"{self.machine.name} {what}", data)

    def hear(self, message: AnyMessage) -> None:
        """A message of another node arrived."""
        look_at_message(self, message)

    # ---- a turn

    def turn(self) -> None:
        """One turn of the pump; the judges check before its output leaves, and after."""
        pump = self.pump
        if self.loader is not None:
            self.world.sometimes("a turn while the journal is loaded")
            if self.world.now_us >= self.load_us:
                self.load_more()
        if self.machine.settings.memory_bytes:  # what is left for jobs
            limit = self.machine.settings.memory_bytes + int(self.n.other_bytes)
            self.n.limits.memory_bytes = limit
        n = self.n
        if has_stood(n, self.clock.now_ms()) and n.policy is not None and run_any(tubes_of(n)):
            self.world.sometimes("a home stood still")  # the turn makes it wait (T19.7)
        pump.hear(pump.poller.wait(0))
        pump.step()
        if self.loader is not None and self.machine.settings.opens_early:
            run_link_timers(self.s, self.bus)
        self.machine.cluster.on_run(self.machine, self)
        figures = self.bus.figures
        overfull = figures.overfull
        pump.settle()
        self.look_at_gates()
        if figures.overfull != overfull:
            self.world.sometimes("a link is closed for what waits")
        self.machine.watch(self)
        self.sleep()

    def look_at_gates(self) -> None:
        """Note what waits for the journal or for room, and since when."""
        bus = self.bus
        if bus.gate:
            self.world.sometimes("frames are held back")
        if bus.crowded:
            self.world.sometimes("a link has no room")
        gate: list[Connection] = self.pump.gate.held
        if not gate and not self.held:
            return
        held = [cast(ClientSocket, c.sock) for c in gate]
        for sock in self.held:
            if sock not in held:
                sock.held_us = 0
        for sock in held:
            sock.held_us = sock.held_us or self.world.now_us
        self.held = held

    def sleep(self) -> None:
        """Schedule the next turn: when the pump asks for one, or earlier if input arrives."""
        check_alarms(self.pump)
        self.busy_us = self.world.now_us + self.kernel.spent_us
        self.kernel.spent_us = 0
        if self.loader is not None:
            self.wake_at(max(self.load_us, self.world.now_us + 1))
        wait_ms = int(self.pump.wait_ms(-1)) if self.loader is None else -1
        epoll = self.kernel.epoll
        if wait_ms == 0 or (epoll.hot and epoll.poll(0, 1)):
            self.wake()
        elif wait_ms > 0:
            at_us = self.clock.true_us(self.clock.now_ms() + wait_ms)
            self.wake_at(max(at_us, self.world.now_us + LEAST_US))

    # ---- for judges and the score-card

    def linked(self) -> int:
        """The number of linked nodes."""
        return len(self.bus.by_slot)

    def said(self) -> int:
        """Messages sent to other nodes, except heartbeats."""
        counts = self.bus.figures.out_messages
        return sum(count for kind, count in counts.items() if kind not in BEATS)

    def is_rewriting(self) -> bool:
        """Whether a rewrite of the journal runs."""
        return self.s.committer is not None and self.s.committer.is_rewriting()

    def has_unsynced(self) -> bool:
        """Whether the journal has records that are not durable."""
        committer = self.s.committer
        return committer is not None and committer.durable_seq < committer.seq

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


def check_alarms(pump: Pump) -> None:
    """After a turn each alarm is what its feature would say if it were asked, none is forgotten."""
    alarms = pump.s.alarms
    assert alarms.next_ms() == min(alarms.at_ms), "the first alarm"
    assert alarms.at(REFUSED) == pump.acceptors.first_ms(), "the alarm of refused connections"
    assert alarms.at(SYNCED) == next_sync_ms(pump.s), "the alarm of replies that wait for copies"
