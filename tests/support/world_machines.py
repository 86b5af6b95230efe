"""Nodes in one process on a clock set by hand: the simulator's machines, without chance and judges.

What a node does within a millisecond happens at the same instant, in the order in which it was
caused. Decides how a node starts from its options, and when it runs; knows no client.
"""

from __future__ import annotations

import errno
import logging
import select
import socket
import threading
from collections.abc import Callable
from copy import copy
from functools import cache, partial
from heapq import heappop, heappush
from itertools import count as numbers
from random import Random
from typing import Any, Final, cast

from sim.engine.disk import SimDisk
from sim.engine.network import End, Network, Owner
from sim.engine.plan import Plan
from sim.engine.world import Spinning
from sim.engine.world import World as Time
from sim.machines.ground import Ground
from sim.machines.kernel import (
    BUS,
    BUS_PORT,
    CLIENT_PORT,
    Epoll,
    Kernel,
    ListeningSocket,
    Names,
    Socket,
    host_of,
)
from sim.machines.machine import Machine
from sim.machines.shell import SECRET, Shell, check_alarms
from sim.machines.thread import SimThread
from tuque.core.msgs.bus import AnyMessage
from tuque.core.records.events import Events
from tuque.server.admin.registry import register
from tuque.server.app import prepare_tubes
from tuque.server.config.config import cluster_secrets, load
from tuque.server.config.options import Config
from tuque.server.journal.committer import Committer
from tuque.server.journal.thread import FRAME, Item
from tuque.server.net.resolver import Answer, Resolver
from tuque.server.net.system import IN
from tuque.server.start.bus import attach_bus, open_bus
from tuque.server.start.journal import close_journal
from tuque.store.frames import JournalError
from tuque.store.writer import Journal

NETWORK: Final = "10.0.0."  # of the nodes
HUP: Final = 16  # EPOLLHUP
UNIX: Final = "unix"  # the host of a client's address who comes by a socket of this machine
FIRST_FD: Final = 5_000  # descriptors of the operating system, which tests may add, are below
IPROTO: Final = "iproto"
IPROTO_PORT: Final = 3_301
EVENT_BYTES: Final = 1 << 16
TURNS_MAX: Final = 200_000  # events of one instant, until the world is at rest
NEVER: Final = 1 << 62


# ---- time


TURN_S: Final = 5.0  # a thread waits that long for the one that runs the world


class Mean(Random):
    """No chance: each draw between 0 and 1 is the middle one."""

    def random(self) -> float:
        return 0.5


MEAN: Final = Mean(0)
OWN: Final = ("machine", "disk")  # streams that also make ids


class HandTime(Time):
    """True time in microseconds, which stands at whole milliseconds."""

    def __init__(self, seed: str) -> None:
        super().__init__(seed)
        self.lots = float  # events of one instant run in the order in which they were made
        self._numbers = numbers(1)  # also of threads that come at once
        self._turn = threading.RLock()

    def stream(self, name: str) -> Random:
        """The stream for one purpose, without chance."""
        return Mean(f"{self.seed}/{name}") if name.startswith(OWN) else MEAN

    def instant(self, at_us: int) -> int:
        """Less than a millisecond ahead is now; later times are whole milliseconds.

        A microsecond too much is no millisecond: clocks round up.
        """
        if at_us < self.now_us + 1000:
            return self.now_us
        return (at_us + 998) // 1000 * 1000

    def at(self, at_us: int, event: Any) -> None:
        """Schedule a call at an instant; not before now."""
        heappush(self.heap, (self.instant(at_us), self.lots(), next(self._numbers), event))

    def run(self, until_us: int) -> None:
        """Run what is due up to an instant. Threads of a program come one after another."""
        has_turn = self._turn.acquire(timeout=TURN_S)  # one that waits for the other goes on
        try:
            self._run(until_us)
        finally:
            if has_turn:
                self._turn.release()

    def _run(self, until_us: int) -> None:
        heap, count = self.heap, 0
        while heap and heap[0][0] <= until_us:
            at_us, _, _, event = heappop(heap)
            if at_us > self.now_us:
                self.now_us, count = at_us, 0
            count += 1
            if count > TURNS_MAX:
                raise Spinning(f"{count} events at one instant: {event}")
            event()
        self.now_us = max(self.now_us, until_us)

    def step(self) -> bool:
        """Run the next event of this instant; False if there is none."""
        if not self.heap or self.heap[0][0] > self.now_us:
            return False
        heappop(self.heap)[3]()
        return True

    def count_now(self) -> int:
        """How many events of this instant are known."""
        return sum(1 for one in self.heap if one[0] <= self.now_us)

    def next_us(self) -> int:
        """When something is due next."""
        return self.heap[0][0] if self.heap else NEVER

    def note(self, what: str, data: bytes = b"") -> None:
        """Nothing is kept: tests look at the nodes."""


# ---- connections


class HandEnd(End):
    """One end of a connection; the other one may have ended its own stream, and still read."""

    def arrived(self, data: bytes) -> None:
        if data or not self.is_open or self.owner is None:
            super().arrived(data)
        else:
            self.owner.on_lost(self)


class HandNetwork(Network):
    """All lines and connections, without delay."""

    def new_end(self, owner: Owner | None) -> End:
        return HandEnd(owner)


# ---- the log


class Ears(logging.Handler):
    """Keeps what each node logs: the lines that its turn makes."""

    def __init__(self) -> None:
        super().__init__()
        self.speaker: HandMachine | None = None

    def emit(self, record: logging.LogRecord) -> None:
        if self.speaker is not None:
            self.speaker.records.append(record)


EARS: Final = Ears()


def listen() -> None:
    """Have the log of the product heard, once."""
    log = logging.getLogger("tuque")
    if EARS not in log.handlers:
        log.addHandler(EARS)
        log.setLevel(logging.INFO)


# ---- a node


def name_of(i: int) -> bytes:
    """The id of node i; that of a later one is greater."""
    return (b"%02x" % (i + 10)) * 20


@cache
def options_of(given: tuple[tuple[str, str], ...]) -> Config:
    """The options of a node; those not given have their defaults."""
    register()
    return load(None, {}, {"port": str(CLIENT_PORT), "cluster-port": str(BUS_PORT), **dict(given)})


class HandDisk(SimDisk):
    """A disk in memory that knows when each byte came."""

    def __init__(self, chance: Random) -> None:
        super().__init__(chance)
        self.time: Time | None = None
        self.came: list[tuple[int, bytearray, int]] = []  # when, to which file, and how long it was

    def write(self, handle: int, data: bytes | memoryview) -> int:
        at = self.time.now_us if self.time is not None else 0
        contents = self.handles[handle].data
        self.came.append((at, contents, len(contents)))
        return super().write(handle, data)

    def lose_since(self, at_us: int) -> None:
        """What was written after that instant is gone."""
        for at, contents, size in reversed(self.came):
            if at > at_us:
                del contents[size:]
        for file in self.names.values():
            file.durable = bytes(file.data)
        self.durable_names = dict(self.names)

    def empty(self) -> HandDisk:
        other = HandDisk(self.chance)
        other.time = self.time
        return other


class HandThread(SimThread):
    """The thread of the journal: at once at work, and done unless the disk is slow.

    Keeps what it is handed for the test to read.
    """

    def nudge(self) -> None:
        if not self.is_well:
            super().nudge()  # after an error it sleeps
        elif self.next_step is None and not self._inbox.empty():
            self.go_on_at(self.world.now_us)

    def wait(self, took_us: int, step: Callable[[], None]) -> None:
        home = cast(HandShell, self.shell).home
        if home.is_stuck:
            self.next_step = step
        else:
            super().wait(took_us if self.sync_us else 0, step)

    def go_on_at(self, at_us: int) -> None:
        if not (cast(HandShell, self.shell).home.is_stuck and self.next_step is not None):
            super().go_on_at(at_us)

    def unstick(self) -> None:
        """The disk works again."""
        if self.next_step is not None:
            self.wait(0, self.next_step)

    def after_sync_us(self, wait_s: float) -> int:
        # what is not due yet, were it for a rounded float, is not due at this instant
        return max(super().after_sync_us(wait_s), self.world.now_us + 1000)

    def put(self, item: Item, is_binding: bool = False) -> None:
        if item.kind == FRAME:
            cast(HandShell, self.shell).recorded += b"".join(item.pieces)
        super().put(item, is_binding)


def is_stranger(label: str) -> bool:
    """Whether a connection of that label came from no node."""
    return "#" in label


class Place(ListeningSocket):
    """A listening socket: who is no node comes from an address and a port of his own."""

    def accept(self) -> tuple[Socket, tuple[str, int]]:
        end = self.backlog[0].end if self.backlog else None
        if end is None or not is_stranger(end.label):
            return super().accept()
        sock = self.backlog.popleft()
        host, _, port = end.label.partition("-")[0].rpartition("#")
        if host == UNIX:
            sock.family = socket.AF_UNIX
        return sock, (host, int(port))


class Half(Socket):
    """A connection whose stream may end before the other one."""

    def getsockname(self) -> tuple[str, int]:
        """The address of this end."""
        return host_of(self.kernel.shell.machine.name), CLIENT_PORT

    def connect_ex(self, address: tuple[str, int]) -> int:
        """Begin to connect; nobody is at the addresses of other networks."""
        if address[0].startswith(NETWORK):
            return super().connect_ex(address)
        return errno.ENETUNREACH

    def give(self, end: End, data: bytes) -> None:
        """The bytes leave the process; a buffer that they fill says when there is room again."""
        super().give(end, data)
        if end.out is not None and end.out.flying >= self.buffer_bytes:
            end.out.on_room = partial(self.kernel.epoll.touch, self.fd)

    def shutdown(self, _how: int) -> None:
        if self.end is not None and self.end.is_open and self.end.out is not None:
            self.end.out.put(b"")


class Caller(Half):
    """The connection of a client, who may reset it."""

    def is_reset(self) -> bool:
        return self.has_ended and self.end is not None and not self.end.is_open

    def ready(self) -> int:
        return super().ready() | (HUP if self.is_reset() else 0)

    def recv(self, most: int, flags: int = 0) -> bytes:
        if self.is_reset():
            raise ConnectionResetError(errno.ECONNRESET, "Connection reset by peer")
        return super().recv(most, flags)


class Link(Half):
    """A connection to another node; the process knows which one it reads."""

    def recv(self, most: int, flags: int = 0) -> bytes:
        shell = self.kernel.shell
        assert isinstance(shell, HandShell)
        if self.end is not None:
            shell.read_from = self.end.label
        return super().recv(most, flags)


class RealFile:
    """A descriptor of the operating system: tests of real threads have them rung."""

    def __init__(self, fd: int) -> None:
        self._poll = select.poll()
        self._poll.register(fd, select.POLLIN)

    def ready(self) -> int:
        """IN if something can be read."""
        return IN if any(mask & select.POLLIN for _, mask in self._poll.poll(0)) else 0


class HandEpoll(Epoll):
    """The epoll of Linux: a reset is told whatever is watched for.

    Also watches descriptors of the operating system, which are looked at with the node.
    """

    def __init__(self, kernel: Kernel) -> None:
        super().__init__(kernel)
        self.real: dict[int, None] = {}

    def register(self, fd: int, mask: int) -> None:
        if fd not in self.kernel.files:
            self.kernel.files[fd] = RealFile(fd)
            self.real[fd] = None
        super().register(fd, mask | HUP)

    def modify(self, fd: int, mask: int) -> None:
        super().modify(fd, mask | HUP)

    def unregister(self, fd: int) -> None:
        super().unregister(fd)
        if fd in self.real:
            del self.real[fd], self.kernel.files[fd]

    def look(self) -> None:
        """Look whether a thread has rung."""
        for fd in list(self.real):
            self.touch(fd)


class HandNames(Names):
    """The resolver: no host has a name but the nodes."""

    def ask(self, host: str) -> None:
        if host == "localhost":
            self.answer(Answer(host, "127.0.0.1", ""))
        elif host[1:].isdigit():
            super().ask(host)
        else:
            self.answer(Answer(host, "", "Name or service not known"))


class HandKernel(Kernel):
    """The operating system of one process."""

    def __init__(self, shell: Shell) -> None:
        super().__init__(shell)
        self.last_fd = FIRST_FD
        self.epoll: HandEpoll = HandEpoll(self)

    def open_socket(self, _family: int) -> socket.socket:
        sock = Link(self, None)
        sock.buffer_bytes = self.shell.buffer_bytes
        return cast(socket.socket, sock)

    def open_resolver(self) -> Resolver:
        return HandNames(self)


class HandShell(Shell):
    """One life of a node, with the options of the test; each turn is the pump's own."""

    def __init__(self, machine: HandMachine, number: int, cfg: Config) -> None:
        self.home = machine
        self.recorded = b""  # payloads of the journal that the test has not read
        self.read_from = ""  # the ends of the connection that was read last
        self.waited_ms = 0  # what the pump asked for
        self.is_single = False  # it stands still after its next turn
        super().__init__(machine, number, cfg)
        self.nodes: ListeningSocket = Place(self.kernel, BUS_PORT)
        if machine.has_events:
            self.n.events = Events(EVENT_BYTES, 1)

    def new_kernel(self) -> Kernel:
        return HandKernel(self)

    def start(self) -> None:
        """Open the doors, load the journal if there is one, and open the bus."""
        s, cfg = self.s, self.s.cfg
        iproto = Place(self.kernel, IPROTO_PORT)
        self.pump.acceptors.listen_iproto(cast(Any, iproto))
        self.doors = {BUS: self.nodes, IPROTO: iproto}
        prepare_tubes(s)
        if cfg.cluster_enabled:
            secrets = cluster_secrets(cfg)
            attach_bus(self.pump, secrets, [cast(socket.socket, self.nodes)])
            assert s.bus is not None
            self.bus = s.bus
            self.bus.ear = self.hear
            if not secrets:
                self.bus.filler = SECRET
        if self.machine.settings.policy == "off":
            open_bus(self.pump)
        else:
            self.begin_load(self.machine.settings)
        self.wake()

    def new_clients(self) -> ListeningSocket:
        return Place(self.kernel, CLIENT_PORT)

    def new_thread(self, journal: Journal, settings: Any) -> SimThread:
        thread = HandThread(self, journal, settings.policy, settings.sync_us)
        thread.segment_bytes = thread._roll_at = self.s.cfg.journal_segment_bytes
        thread.spare_rewrites = self.s.cfg.no_appendfsync_on_rewrite
        return thread

    def new_committer(self, thread: SimThread) -> Committer:
        committer = super().new_committer(thread)
        committer.rewrite_percentage = self.s.cfg.auto_aof_rewrite_percentage
        committer.rewrite_min_bytes = self.s.cfg.auto_aof_rewrite_min_size
        thread.room.free_min = self.s.cfg.disk_free_min
        committer.journal.reserve_bytes = self.s.cfg.disk_reserve
        return committer

    def accept(self, end: End, port: str) -> bool:
        """Somebody connects."""
        if self.is_dead:
            return False
        sock = Link(self.kernel, end) if port == BUS else Caller(self.kernel, end)
        end.owner = sock
        self.doors.get(port, self.clients).take(sock)
        return True

    def hear(self, message: AnyMessage) -> None:
        """A message of another node arrived."""
        self.home.lab.on_message(self.read_from, self.home.name, message)

    def turn(self) -> None:
        """One turn of the pump, after as long a sleep as it asked for."""
        EARS.speaker = self.home
        if self.loader is not None:
            self.load_more()
        self.pump.turn_in(self.waited_ms)
        self.home.lab.on_turn(self.home, self)
        if self.s.stop_requested and not self.is_dead:
            self.home.stop()
            return
        self.sleep()
        self.is_paused = self.is_single
        EARS.speaker = None

    def take_one(self) -> None:
        """One turn, after all that is on its way to the node; what it says arrives elsewhere."""
        self.wake()
        self.is_single = True
        self.world.run(self.world.now_us)
        self.is_single = self.is_paused = False
        self.turn_us = -1
        if self.thread is not None:
            self.thread.resume()

    def look(self) -> None:
        """Run a turn: the test may have given work to the node."""
        if self.loader is None and not self.in_turn:
            epoll = self.kernel.epoll
            assert isinstance(epoll, HandEpoll)
            epoll.look()
            self.wake()

    def sleep(self) -> None:
        """Schedule the next turn: when the pump asks for one, or earlier if input arrives."""
        check_alarms(self.pump)
        now_us = self.world.now_us
        self.busy_us = now_us + self.kernel.spent_us
        self.kernel.spent_us = 0
        self.waited_ms = 0 if self.loader is not None else int(self.pump.wait_ms(-1))
        epoll = self.kernel.epoll
        if self.waited_ms == 0 or (epoll.hot and epoll.poll(0, 1)):
            self.wake()
        elif self.waited_ms > 0:
            self.wake_at(now_us + self.waited_ms * 1000)


class Lab(Ground):
    """What the machines of a test stand on: it hears each message that arrives."""

    def __init__(self, seed: int) -> None:
        time = HandTime(f"world {seed}")
        super().__init__(time, HandNetwork(time, 0.0, 0))
        self.heard: list[tuple[int, int, int, AnyMessage]] = []  # when, from, to, what
        # may change a message before the core gets it: from, to, what
        self.editor: Callable[[int, int, AnyMessage], object] | None = None
        self.after_turn: Callable[[int], object] | None = None  # told which node has run one

    def on_message(self, label: str, to: str, message: AnyMessage) -> None:
        """A message arrived at a node over the connection of that label.

        What strangers say is not told.
        """
        if is_stranger(label):
            return
        a, _, b = label.partition("-")
        other = a if b == to else b
        if self.editor is not None:
            self.editor(int(other[1:]), int(to[1:]), message)
        self.heard.append((self.world.now_us // 1000, int(other[1:]), int(to[1:]), message))

    def on_turn(self, m: Machine, shell: Shell) -> None:
        if self.after_turn is not None:
            self.after_turn(m.index)

    def on_bad_journal(self, m: Machine, text: str) -> None:
        raise JournalError(text)


class HandMachine(Machine):
    """A place where a node runs."""

    def __init__(self, lab: Lab, index: int, count: int, cfg: Config, journal: str) -> None:
        timeout_ms, limit = cfg.cluster_node_timeout, cfg.bus_buffer_limit
        plan = Plan(
            seed="", nodes=count, policy=journal, sync_us=0, node_timeout_ms=timeout_ms,
            load_us=0, bus_limit_bytes=limit, cpu_us=0, split_rate=0.0,
        )  # fmt: skip
        super().__init__(lab, index, plan)
        self.node_id = name_of(index)
        self.lab = lab
        self.cfg = cfg
        self.has_events = False
        self.is_stuck = False  # the disk syncs nothing
        self.records: list[logging.LogRecord] = []
        self.disk = HandDisk(self.disk.chance)
        self.disk.time = lab.world

    def new_shell(self) -> Shell:
        cfg = copy(self.cfg)
        cfg.origin = dict(cfg.origin)
        return HandShell(self, self.lives, cfg)

    def start(self, is_empty: bool = False) -> None:
        """Start a process from the disk. Raises JournalError."""
        assert self.shell is None, f"{self.name} runs"
        EARS.speaker = self
        self.lives += 1
        shell = self.new_shell()
        try:
            shell.start()
        except JournalError:
            shell.is_dead = True
            self.disk.process_crash()
            raise
        self.shell = shell
        self.cluster.net.listeners[self.name] = shell
        EARS.speaker = None

    def stop(self) -> None:
        """The process ends in order: its journal is on disk, its clients and peers hear it."""
        shell = self.shell
        assert shell is not None
        EARS.speaker = self
        if shell.s.committer is not None:
            close_journal(shell.pump)
        shell.pump.close_all()
        shell.s.identity.save(shell.s.members)
        self.end(shell)
        EARS.speaker = None

    def end(self, shell: Shell) -> None:
        """Nothing of the process is left but its disk."""
        shell.is_dead = True
        self.shell = None
        self.cluster.net.listeners.pop(self.name, None)
        self.cluster.net.crash(shell, False)
        self.disk.process_crash()

    def kill(self) -> None:
        """The process is killed; what it wrote is in the page cache."""
        assert self.shell is not None, f"{self.name} is down"
        self.end(self.shell)

    def cut_power(self) -> None:
        """The machine loses its power: what was not synced is gone."""
        self.kill()
        self.disk.power_cut()
        self.clock.reboot()

    def die(self, **_: object) -> None:
        """The same, within a step of the disk: see `cut_at`."""
        self.cut_power()


def conf_of(machine: Machine, others: list[Machine]) -> bytes:
    """nodes.conf of a node that has met those others and was not started yet."""
    lines = [f"{machine.node_id.decode()} :0 myself 0 0 connected\n"]
    lines += [
        f"{m.node_id.decode()} {host_of(m.name)}:{CLIENT_PORT} noflags 0 0 disconnected"
        f" bus:{BUS_PORT} number:0\n"
        for m in others
    ]
    lease = f"lease {machine.cfg.tube_lease_timeout}"
    return "".join([*lines, f"vars life 0 number 0 {lease}\n"]).encode()
