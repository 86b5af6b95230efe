"""A broker in this process: the real server, without sockets, threads and journal.

Decides when its turns are and what its clock shows: time passes only in `advance`. What a job is,
and what tests want to know, are the business of others.
"""

from __future__ import annotations

import random
import threading
from collections import deque
from collections.abc import Callable
from copy import copy
from functools import cache
from typing import Any, Final, cast

from tuque.core.dispatch.timers import next_timer_ms, on_job_timer
from tuque.core.node.node import Node
from tuque.server.admin.registry import register
from tuque.server.config.config import load
from tuque.server.config.options import Config
from tuque.server.loop.housekeeping import next_turn_ms
from tuque.server.loop.pump import Pump
from tuque.server.net.system import IN, OUT, System
from tuque.server.replies.long_commands import next_long_command_ms
from tuque.server.state.server import SYNCED, Server, apply_settings

LISTENER_FD: Final = 1  # descriptors here are numbers of our own
MEMORY_BYTES: Final = 2 << 30  # of the machine
STEP_MS: Final = 3_600_000  # housekeeping is not later than that,
STEPS: Final = 500  # or than this part of the time that passes
LATE_MS: Final = 16  # of a job's timer, at most
TURNS_MAX: Final = 1_000_000  # until the broker is at rest


class Wire:
    """One connection: the server's socket, and what came out of it."""

    family = 2  # AF_INET

    def __init__(self, fd: int, on_ready: Callable[[Wire], None]) -> None:
        self.fd = fd
        self.on_ready = on_ready
        self.on_data: Callable[[], None] | None = None  # bytes for the client wait in `heard`
        self.heard = bytearray()
        self.is_closed = False
        self._inbox: deque[bytes] = deque()
        self._has_ended = False

    # Called by the client's end

    def say(self, data: bytes) -> None:
        """Bytes for the server."""
        self._inbox.append(data)
        self.on_ready(self)

    def hang_up(self) -> None:
        """The client's end is closed."""
        self._has_ended = True
        self.on_ready(self)

    # Called by the server

    def fileno(self) -> int:
        return self.fd

    def getsockname(self) -> tuple[str, int]:
        """The node's address. Raises OSError: it has none."""
        raise OSError("a broker in the process has no address")

    def setblocking(self, flag: bool) -> None:
        """Nothing here blocks."""

    def setsockopt(self, level: int, name: int, value: int) -> None:
        """Nothing to set."""

    def shutdown(self, how: int) -> None:
        """What was sent has arrived."""

    def recv(self, most: int, flags: int = 0) -> bytes:
        """What the client said, up to `most` bytes; empty at the end."""
        if not self._inbox:
            if self._has_ended:
                return b""
            raise BlockingIOError
        data = self._inbox.popleft()
        if len(data) > most:
            self._inbox.appendleft(data[most:])
        return data[:most]

    def send(self, data: bytes | memoryview) -> int:
        """Bytes for the client, which takes all of them."""
        self.heard += data
        if self.on_data is not None:
            self.on_data()
        return len(data)

    def close(self) -> None:
        """The server has closed the connection."""
        self.is_closed = True

    def ready(self) -> int:
        """What the server need not wait for."""
        return IN | OUT if self._inbox or self._has_ended else OUT


class Door:
    """The listening socket."""

    def __init__(self) -> None:
        self.waiting: deque[Wire] = deque()

    def fileno(self) -> int:
        return LISTENER_FD

    def accept(self) -> tuple[Wire, tuple[str, int]]:
        """The first connection that waits."""
        if not self.waiting:
            raise BlockingIOError
        wire = self.waiting.popleft()
        return wire, ("127.0.0.1", wire.fd)

    def close(self) -> None:
        """Nothing to free."""

    def ready(self) -> int:
        """IN while a connection waits."""
        return IN if self.waiting else 0


class Epoll:
    """Says which of the connections are ready; never waits."""

    def __init__(self) -> None:
        self.files: dict[int, Wire | Door] = {}
        self.masks: dict[int, int] = {}
        self.touched: dict[int, None] = {}

    def register(self, fd: int, mask: int) -> None:
        self.masks[fd] = mask
        self.touched[fd] = None

    def modify(self, fd: int, mask: int) -> None:
        self.register(fd, mask)

    def unregister(self, fd: int) -> None:
        del self.masks[fd]
        self.touched.pop(fd, None)
        self.files.pop(fd, None)

    def touch(self, fd: int) -> None:
        """Something came for that descriptor."""
        self.touched[fd] = None

    def poll(self, _timeout: float, most: int) -> list[tuple[int, int]]:
        found: list[tuple[int, int]] = []
        for fd in list(self.touched):
            file = self.files.get(fd)
            mask = self.masks.get(fd, 0) & file.ready() if file is not None else 0
            if mask:
                found.append((fd, mask))
            else:
                del self.touched[fd]
        return found[:most]

    def close(self) -> None:
        self.files = {}
        self.masks = {}


@cache
def plain_config() -> Config:
    """The options of a node, each at its default."""
    register()
    return load(None, {}, {"port": "7711", "slowlog-log-slower-than": "-1"})


class Broker:
    """One node, alone. Any thread may talk to it, one at a time."""

    def __init__(self, seed: int, start_ms: int) -> None:
        """`start_ms` is what its clock shows at first, in unix ms."""
        self.now_ms = start_ms
        self.is_alone = True
        self.lock = threading.RLock()
        self._chance = random.Random(seed)
        self._epoll = Epoll()
        self._door = Door()
        self._epoll.files[LISTENER_FD] = self._door
        self._last_fd = 2
        node_id = self._chance.randbytes(20).hex().encode()
        self.node = Node(node_id, self._chance.randbytes(20), start_ms)
        self.server = Server(copy(plain_config()), self.node, self._system())
        apply_settings(self.server)
        self._pump = Pump(self.server)
        self._pump.listen(cast(Any, self._door))

    def _system(self) -> System:
        system = System()
        system.boot_ns = system.work_ns = lambda: self.now_ms * 1_000_000
        system.random = self._chance.randbytes
        system.open_epoll = cast(Any, lambda: self._epoll)
        system.memory_bytes = lambda: MEMORY_BYTES
        system.may_spin = False
        return system

    def connect(self) -> Wire:
        """A new connection, accepted."""
        self._last_fd += 1
        wire = Wire(self._last_fd, lambda wire: self._epoll.touch(wire.fd))
        self._epoll.files[wire.fd] = wire
        self._door.waiting.append(wire)
        self._epoll.touch(LISTENER_FD)
        self.rest()
        return wire

    def rest(self) -> None:
        """Runs turns until nothing is left to do now."""
        with self.lock:
            for _ in range(TURNS_MAX):
                self._turn()
                if not self._epoll.touched and self._pump.wait_ms(-1) != 0:
                    return
        raise RuntimeError("the broker does not come to rest")

    def _turn(self) -> None:
        """One turn, as `Pump.turn` does it, which would take `advance` for a standstill (W6.1)."""
        pump = self._pump
        pump.hear(pump.poller.wait(0))
        pump.step()
        pump.settle()

    def next_ms(self) -> int:
        """When it has something to do next, in unix ms."""
        at_ms = min(next_timer_ms(self.node), next_turn_ms(self.server))
        at_ms = min(at_ms, self.server.alarms.at(SYNCED))
        return int(min(at_ms, next_long_command_ms(self.server)))

    def advance(self, until_ms: int) -> None:
        """Lets time pass until then, and runs what becomes due, in order."""
        with self.lock:
            step_ms = max(STEP_MS, (until_ms - self.now_ms) // STEPS)
            while self.now_ms < until_ms:
                due_ms = max(self.now_ms + 1, self.next_ms())
                self.now_ms = min(until_ms, due_ms, self.now_ms + step_ms)
                self.rest()
            self._be_punctual()

    def _be_punctual(self) -> None:
        """Runs the timers of jobs that are due, as late as they may be: tests count exactly."""
        n = self.node
        for job in n.wheel.due(self.now_ms + LATE_MS, TURNS_MAX):
            if n.jobs.get(job.id) is job:
                on_job_timer(n, job)  # sets it again if it is not due
        self.rest()

    def close(self) -> None:
        """Ends all connections."""
        with self.lock:
            self._pump.close_all()
