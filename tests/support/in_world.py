"""Programs in the process of the test whose sockets lead to the nodes of a world.

`within(world)` gives what runs in it the world's clock and network: a blocking call lets time pass
until it is answered, a pause passes at once. `WorldLoop` is the same for asyncio. Knows neither
the programs nor what they say.
"""

from __future__ import annotations

import asyncio
import errno
import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import pytest

from sim.engine.network import End
from sim.machines.kernel import CLIENTS, place_of
from tuque.client.transport import sockets
from world import World
from world_wires import RawWire

AGES_MS: Final = 600_000  # what waits for longer than that waits for nobody
FULL: Final = 1 << 16


@contextmanager
def within(world: World) -> Iterator[None]:
    """Time is the world's, and addresses are those of its nodes."""

    def connect(address: Any, timeout: Any = None, *_: Any, **__: Any) -> socket.socket:
        return WorldSocket(world, number_of(address[0]), timeout)

    with pytest.MonkeyPatch.context() as patch:
        for name, here in (
            ("time", lambda: now_s(world)),
            ("time_ns", lambda: int(now_s(world) * 1e9)),
            ("monotonic", lambda: now_s(world)),
            ("sleep", lambda s: world.pass_ms(max(1, int(s * 1000)))),
        ):
            patch.setattr(time, name, in_this_thread(here, getattr(time, name)))
        patch.setattr(sockets, "connected", in_this_thread(connect, sockets.connected))
        made = in_this_thread(lambda: WorldLoop(world), asyncio.events.new_event_loop)
        patch.setattr(asyncio.events, "new_event_loop", made)
        yield


def in_this_thread(here: Callable[..., Any], elsewhere: Callable[..., Any]) -> Callable[..., Any]:
    """A function for this thread, another one for all others: those that other tests have left
    would move the world's time with each of their pauses."""
    mine = threading.get_ident()

    def chosen(*args: Any, **words: Any) -> Any:
        return (here if threading.get_ident() == mine else elsewhere)(*args, **words)

    return chosen


def now_s(world: World) -> float:
    """What the world's clocks show, in unix s."""
    return world.start_ms / 1000 + world.time.now_us / 1e6


def number_of(host: str) -> int:
    """Which node has the address."""
    return int(place_of(host)[1:])


def pass_until(world: World, fact: Callable[[], object], end_ms: int) -> bool:
    """Lets time pass until that is so; False at the end of the time."""
    world.settle()
    while not fact():
        if world.now_ms >= end_ms:
            return False
        at_ms = max(world.now_ms + 1, min(world.next_ms(), end_ms))
        world.pass_ms(at_ms - world.now_ms)
    return True


class Line(RawWire):
    """A connection that says at once what came."""

    def __init__(self, world: World, host: str, heard: Callable[[bytes], None]) -> None:
        """ConnectionRefusedError if nobody listens there."""
        self._heard = heard
        try:
            super().__init__(world, number_of(host), CLIENTS)
        except ConnectionError:
            raise ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused") from None

    def came(self, data: bytes) -> None:
        self._heard(data)

    def on_lost(self, end: End) -> None:
        super().on_lost(end)
        self._heard(b"")


class WorldSocket(socket.socket):
    """A blocking socket; what came waits in a real one, so that programs can poll it."""

    def __init__(self, world: World, number: int, timeout: float | None) -> None:
        mine, self._far = socket.socketpair()
        super().__init__(fileno=mine.detach())
        super().setblocking(False)
        self._far.setblocking(False)
        self._world = world
        self._timeout_s = timeout
        self._came: deque[bytes] = deque()
        self._has_ended = False
        try:
            self._line = Line(world, f"10.0.0.{number + 1}", self._heard)
        except OSError:
            self._far.close()
            super().close()
            raise

    def _heard(self, data: bytes) -> None:
        self._came.append(data)
        self._fill()

    def _fill(self) -> None:
        """Gives the real socket what it has room for."""
        while self._came and not self._has_ended:
            data = self._came[0]
            try:
                sent = self._far.send(data) if data else 0
            except OSError:
                return
            self._came.popleft()
            if sent < len(data):
                self._came.appendleft(data[sent:])
            elif not data:
                self._has_ended = True
                self._far.close()

    def settimeout(self, value: float | None) -> None:
        self._timeout_s = value

    def setsockopt(self, *_: Any) -> None:  # type: ignore[override]  # there is nothing to set
        """A world has no packets."""

    def sendall(self, data: Any, flags: int = 0) -> None:
        if self._line.is_closed:
            raise BrokenPipeError(errno.EPIPE, "Broken pipe")
        self._line.put(bytes(data))
        self._world.settle()

    def send(self, data: Any, flags: int = 0) -> int:
        self.sendall(data)
        return len(data)

    def recv(self, bufsize: int, flags: int = 0) -> bytes:
        wait_ms = AGES_MS if self._timeout_s is None else int(self._timeout_s * 1000)
        found: list[bytes] = []

        def has_come() -> bool:
            self._fill()
            try:
                found.append(super(WorldSocket, self).recv(bufsize, flags))
            except BlockingIOError:
                return False
            return True

        if not pass_until(self._world, has_come, self._world.now_ms + wait_ms):
            raise TimeoutError("timed out")
        self._fill()
        return found[0]

    def close(self) -> None:
        if self.fileno() >= 0:
            self._line.close()
            self._has_ended = True
            self._far.close()
            super().close()


class Way(asyncio.Transport):
    """A connection of an event loop."""

    def __init__(self, loop: WorldLoop, host: str, protocol: asyncio.Protocol) -> None:
        super().__init__()
        self._loop = loop
        self._protocol = protocol
        self._is_over = False
        self._line = Line(loop.world, host, self._heard)

    def _heard(self, data: bytes) -> None:
        self._loop.has_news = True
        if data:
            self._loop.call_soon(self._deliver, data)
        else:
            self._end()

    def _deliver(self, data: bytes) -> None:
        if not self._is_over:
            self._protocol.data_received(data)

    def _end(self) -> None:
        if not self._is_over:
            self._loop.call_soon(self._lost)

    def _lost(self) -> None:
        if not self._is_over:
            self._is_over = True
            self._protocol.connection_lost(None)

    def write(self, data: Any) -> None:
        if not self._line.is_closed:
            self._line.put(bytes(data))

    def is_closing(self) -> bool:
        return self._is_over or self._line.is_closed

    def close(self) -> None:
        if not self._line.is_closed:
            self._line.close()
            self._end()

    abort = close


class WorldSelector(selectors.DefaultSelector):
    """Lets the world's time pass where a loop would wait."""

    loop: WorldLoop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        loop = self.loop
        if loop.in_threads:
            return super().select(timeout)
        found = super().select(0)
        if found or (timeout is not None and timeout <= 0):
            return found
        wait_ms = AGES_MS if timeout is None else min(AGES_MS, int(timeout * 1000) + 1)
        loop.has_news = False
        came = pass_until(loop.world, lambda: loop.has_news, loop.world.now_ms + wait_ms)
        assert came or timeout is not None, "the program waits for what nobody will do"
        return super().select(0)


class WorldLoop(asyncio.SelectorEventLoop):
    """An event loop on the clock of a world; only for threads real time passes."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.has_news = False  # for some connection
        self.in_threads = 0
        selector = WorldSelector()
        selector.loop = self
        super().__init__(selector)

    def time(self) -> float:
        return self.world.time.now_us / 1e6

    async def create_connection(  # type: ignore[override]  # the forms that clients use
        self, protocol_factory: Any, host: str, port: int, **_: Any
    ) -> tuple[asyncio.Transport, asyncio.Protocol]:
        protocol = protocol_factory()
        way = Way(self, host, protocol)
        protocol.connection_made(way)
        return way, protocol

    def run_in_executor(  # type: ignore[override]  # its variadic type has no name in 3.11
        self, executor: Any, func: Any, *args: Any
    ) -> asyncio.Future[Any]:
        """Counts what runs in threads."""
        running = super().run_in_executor(executor, func, *args)
        self.in_threads += 1
        running.add_done_callback(self._came_back)
        return running

    def _came_back(self, _: object) -> None:
        self.in_threads -= 1
