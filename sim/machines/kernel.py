"""What the operating system gives to one process, in memory (server/net/system.py).

Sockets end in the simulated network, epoll reports what is ready, host names are resolved, and
time passes within a turn only where code says so.
"""

from __future__ import annotations

import errno
import os
import socket
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

import hiredis

from sim.engine.network import FLIGHT_MAX, End
from tuque.server.journal.thread import Wakeup
from tuque.server.net.resolver import Answer, Resolver
from tuque.server.net.system import IN, OUT, System

if TYPE_CHECKING:
    from sim.engine.clock import NodeClock
    from sim.engine.world import World
    from sim.machines.shell import Shell

BUS: Final = "bus"
BUS_PORT: Final = 17_711
CLIENTS: Final = "clients"
CLIENT_PORT: Final = 7_711
LOOKUP_US: Final = 1_000
MEMORY_BYTES: Final = 2 << 30  # of each machine
PEEK: Final = int(socket.MSG_PEEK)


def host_of(place: str) -> str:
    """The address of a machine."""
    return f"10.0.0.{int(place[1:]) + 1}"


def place_of(host: str) -> str:
    """The machine that has the address."""
    return f"n{int(host.rpartition('.')[2]) - 1}"


class File(Protocol):
    """The object behind a descriptor."""

    def ready(self) -> int:
        """What does not block now: IN, OUT, both or 0."""


class Epoll:
    """The epoll of Linux, level-triggered as the poller uses it."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.masks: dict[int, int] = {}
        self.hot: dict[int, None] = {}  # what may be ready, in the order in which it became so

    def register(self, fd: int, mask: int) -> None:
        """Watch the descriptor."""
        self.masks[fd] = mask
        self.touch(fd)

    def modify(self, fd: int, mask: int) -> None:
        """Change the events to watch for."""
        self.register(fd, mask)

    def unregister(self, fd: int) -> None:
        """Stop watching the descriptor."""
        del self.masks[fd]
        self.hot.pop(fd, None)

    def touch(self, fd: int) -> None:
        """The state of the descriptor changed: wake the process if it waits for that."""
        mask = self.masks.get(fd, 0)
        if mask and fd not in self.hot and self.kernel.files[fd].ready() & mask:
            self.hot[fd] = None
            self.kernel.shell.on_ready()

    def poll(self, _timeout: float, most: int) -> list[tuple[int, int]]:
        """What is ready. Never waits: time passes between turns."""
        if not self.hot:
            return []
        found: list[tuple[int, int]] = []
        files, masks = self.kernel.files, self.masks
        for fd in list(self.hot):
            mask = files[fd].ready() & masks[fd]
            if mask:
                found.append((fd, mask))
            else:
                del self.hot[fd]
        return found[:most]

    def close(self) -> None:
        """Stop watching all descriptors."""
        self.masks = {}
        self.hot = {}


class Socket:
    """One end of a connection, as the process sees it."""

    def __init__(self, kernel: Kernel, end: End | None) -> None:
        self.kernel = kernel
        self.process: object = kernel.shell
        self.end = end
        self.family = socket.AF_INET
        self.inbox: deque[bytes] = deque()
        self.buffer_bytes = FLIGHT_MAX  # it accepts before the other end has read them
        self.error = 0  # why it is not connected
        self.is_connecting = False
        self.has_ended = False
        self.is_closed = False
        self.fd = kernel.open(self)

    # ---- what the process calls

    def fileno(self) -> int:
        """Its descriptor."""
        return self.fd

    def setblocking(self, flag: bool) -> None:
        """No socket here blocks."""

    def setsockopt(self, level: int, name: int, value: int) -> None:
        """Nothing to set."""

    def getsockname(self) -> tuple[str, int]:
        """The address at which it was reached."""
        return host_of(self.kernel.shell.machine.name), CLIENT_PORT

    def getsockopt(self, level: int, name: int) -> int:
        """SO_ERROR."""
        return self.error

    def connect_ex(self, address: tuple[str, int]) -> int:
        """Begin to connect."""
        shell = self.kernel.shell
        self.is_connecting = True
        here, there = shell.machine.name, place_of(address[0])
        shell.machine.cluster.net.connect(self, here, there, BUS, self.on_connected)
        return errno.EINPROGRESS

    def recv(self, most: int, flags: int = 0) -> bytes:
        """What came, up to `most` bytes; b"" at the end."""
        inbox = self.inbox
        if not inbox:
            if self.has_ended:
                return b""
            raise BlockingIOError
        if len(inbox) > 1:
            whole = b"".join(inbox)
            inbox.clear()
            inbox.append(whole)
        data = inbox[0]
        if not flags & PEEK:
            inbox.clear()
            if len(data) > most:
                inbox.append(data[most:])
        return data[:most]

    def send(self, data: bytes | memoryview) -> int:
        """Send bytes, as many as the buffer accepts."""
        end = self.end
        if end is None or not end.is_open or end.out is None:
            raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))
        if not data:
            return 0
        room = self.buffer_bytes - end.out.flying
        if room <= 0:
            end.out.on_room = partial(self.kernel.epoll.touch, self.fd)
            raise BlockingIOError
        taken = bytes(data[:room])
        if len(taken) < len(data):
            end.out.on_room = partial(self.kernel.epoll.touch, self.fd)
        self.give(end, taken)
        return len(taken)

    def give(self, end: End, data: bytes) -> None:
        """The bytes leave the process, which may end first."""
        self.kernel.shell.effect("frame", data)
        end.send(data)

    def shutdown(self, _how: int) -> None:
        """Send nothing more; bytes on their way arrive."""

    def close(self) -> None:
        """Close the descriptor."""
        self.is_closed = True
        del self.kernel.files[self.fd]
        if self.end is not None:
            self.end.close()

    # ---- what the network calls

    def on_connected(self, end: End | None) -> None:
        """The attempt to connect ended."""
        if self.is_closed or self.kernel.shell.is_dead:
            if end is not None:
                end.close()
            return
        self.is_connecting = False
        self.end = end
        self.error = errno.ECONNREFUSED if end is None else 0
        self.kernel.epoll.touch(self.fd)

    def on_data(self, end: End, data: bytes) -> None:
        """Bytes arrived."""
        self.inbox.append(data)
        if not self.is_closed:
            self.kernel.epoll.touch(self.fd)

    def on_lost(self, end: End) -> None:
        """The connection ended; the next read returns b""."""
        self.has_ended = True
        if not self.is_closed:
            self.kernel.epoll.touch(self.fd)

    def ready(self) -> int:
        """IN with bytes or at the end, OUT with room or without a connection."""
        mask = IN if self.inbox or self.has_ended else 0
        if self.is_connecting:
            return mask
        end = self.end
        if end is None or end.out is None or end.out.flying < self.buffer_bytes:
            mask |= OUT
        return mask


class ClientSocket(Socket):
    """A connection to a client: the judges see replies as they leave."""

    def __init__(self, kernel: Kernel, end: End) -> None:
        super().__init__(kernel, end)
        self.replies = hiredis.Reader()  # what the client will understand
        self.held_us = 0  # since when replies wait for the disk; 0: none does

    def give(self, end: End, data: bytes) -> None:
        """Pass the replies in these bytes to the judges."""
        shell = self.kernel.shell
        machine = shell.machine
        shell.effect(f"reply {self.fd}", data)
        self.replies.feed(data)
        told: list[object] = []
        while (reply := self.replies.gets()) is not False:
            told.append(reply)
        end.send(data)
        machine.cluster.on_reply(self.held_us or shell.world.now_us)
        machine.told(end.sent, end.peer, told)

    def close(self) -> None:
        """The judges of tubes see which session loses a connection."""
        shell = self.kernel.shell
        c = shell.s.clients.get(self.fd)
        if c is not None:
            shell.machine.cluster.on_closed(shell.machine, shell, int(c.number))
        super().close()


class ListeningSocket:
    """A listening socket."""

    def __init__(self, kernel: Kernel, port: int) -> None:
        self.kernel = kernel
        self.port = port
        self.backlog: deque[Socket] = deque()
        self.fd = kernel.open(self)

    def fileno(self) -> int:
        """Its descriptor."""
        return self.fd

    def getsockname(self) -> tuple[str, int]:
        """Its address and port."""
        return host_of(self.kernel.shell.machine.name), self.port

    def take(self, sock: Socket) -> None:
        """A connection arrived."""
        self.backlog.append(sock)
        self.kernel.epoll.touch(self.fd)

    def accept(self) -> tuple[Socket, tuple[str, int]]:
        """The first waiting connection."""
        if not self.backlog:
            raise BlockingIOError
        sock = self.backlog.popleft()
        assert sock.end is not None
        other = sock.end.label.partition("-")[0]
        return sock, (host_of(other) if self.port == BUS_PORT else other, 40_000 + sock.fd)

    def ready(self) -> int:
        """IN while a connection waits."""
        return IN if self.backlog else 0

    def close(self) -> None:
        """Close the descriptor."""
        del self.kernel.files[self.fd]


class SimWakeup(Wakeup):
    """A bell of the process."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.is_rung = False
        self.fd = kernel.open(self)

    def ring(self) -> None:
        """Make the descriptor readable."""
        self.is_rung = True
        self.kernel.epoll.touch(self.fd)

    def quiet(self) -> None:
        """Make it unreadable again."""
        self.is_rung = False

    def ready(self) -> int:
        """IN once it was rung."""
        return IN if self.is_rung else 0

    def close(self) -> None:
        """Close the descriptor; epoll drops it by itself."""
        self.kernel.files.pop(self.fd, None)
        self.kernel.epoll.masks.pop(self.fd, None)
        self.kernel.epoll.hot.pop(self.fd, None)


class Names(Resolver):
    """server/net/resolver.py without threads: lookups take LOOKUP_US."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.bell = SimWakeup(kernel)
        self.wake_fd = self.bell.fd
        self.answers: list[Answer] = []

    def ask(self, host: str) -> None:
        """Look up a machine."""
        world = self.kernel.shell.world
        world.after(LOOKUP_US, partial(self.answer, Answer(host, host_of(host), "")))

    def answer(self, answer: Answer) -> None:
        """The lookup ended."""
        self.answers.append(answer)
        self.bell.ring()

    def take(self) -> list[Answer]:
        """The answers since the last call."""
        self.bell.quiet()
        answers, self.answers = self.answers, []
        return answers

    def close(self) -> None:
        """Close the descriptor."""
        self.bell.close()


class Kernel:
    """Descriptors, clocks and randomness of one process."""

    def __init__(self, shell: Shell) -> None:
        self.shell = shell
        self.world: World = shell.world
        self.clock: NodeClock = shell.clock
        self.files: dict[int, File] = {}
        self.last_fd = 2
        self.epoll = Epoll(self)
        self.spent_us = 0  # waiting for the disk, in the current turn

    def open(self, file: File) -> int:
        """A new descriptor, never used before in the process."""
        self.last_fd += 1
        self.files[self.last_fd] = file
        return self.last_fd

    def is_clock_right(self, now_ms: int) -> bool:
        """Nobody sets the clocks of machines."""
        return False

    def system(self) -> System:
        """The system that the server gets."""
        system = System()
        system.boot_ns = self.boot_ns
        system.work_ns = self.work_ns
        system.is_clock_right = self.is_clock_right
        system.random = self.random
        system.open_epoll = self.open_epoll
        system.open_socket = self.open_socket
        system.open_resolver = self.open_resolver
        system.memory_bytes = lambda: MEMORY_BYTES
        system.may_spin = False
        return system

    def boot_ns(self) -> int:
        """The clock of the process, in ns (set when the process started)."""
        return (self.clock.now_ms() * 1000 + self.spent_us) * 1000

    def work_ns(self) -> int:
        """True time in ns, to measure work."""
        return (self.world.now_us + self.spent_us) * 1000

    def work_s(self) -> float:
        """The same in seconds."""
        return (self.world.now_us + self.spent_us) / 1e6

    def random(self, count: int) -> bytes:
        """Random bytes of the machine."""
        return self.shell.machine.chance.getrandbits(8 * count).to_bytes(count, "big")

    def open_epoll(self) -> Any:
        """The epoll of the process."""
        return self.epoll

    def open_socket(self, _family: int) -> socket.socket:
        """A socket for a link to another node."""
        sock = Socket(self, None)
        sock.buffer_bytes = self.shell.buffer_bytes
        return cast(socket.socket, sock)

    def open_resolver(self) -> Resolver:
        """The resolver of host names."""
        return Names(self)
