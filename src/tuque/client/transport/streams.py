"""Sockets on an event loop for the client for asyncio; `sockets` has the same names for threads."""

from __future__ import annotations

import asyncio
import os
import re
import socket
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, cast

from tuque.client.api import Arg, Reply
from tuque.client.transport.conn import (
    INFINITE,
    SHORTEST_CONNECT_S,
    Conn,
    Lineage,
    Lines,
    connect_error,
)
from tuque.client.transport.sockets import named_host, prepare
from tuque.errors import Error, ProtocolError
from tuque.platforms import Watch, is_unix, peeked

if TYPE_CHECKING:
    import ssl

    from tuque.client.url import Address


CALL_FAILED = re.compile(r"\[Errno (\d+)\] Connect call failed")


def as_system_says(error: OSError) -> OSError:
    """The error of the last address: the text of asyncio has the addresses, and no reason."""
    numbers = CALL_FAILED.findall(str(error))
    return OSError(int(numbers[-1]), os.strerror(int(numbers[-1]))) if numbers else error


class Link(Conn, asyncio.Protocol):
    """A connected transport with its protocol state."""

    def __init__(self, address: Address) -> None:
        super().__init__(address)
        self._transport: asyncio.Transport | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = 0  # of the loop
        self._lost: Error | None = None
        self._watch = Watch()
        self._replies: list[Reply] = []
        self._due = 0
        self._lines: Lines | None = None  # what counts replies, instead of reading them
        self._answered: asyncio.Future[None] | None = None
        self._arrived = asyncio.Event()  # a message was pushed, or the connection has ended

    @classmethod
    async def open(cls, address: Address, tls: ssl.SSLContext | None, deadline_s: float) -> Link:
        """Connects to a node; ConnectionError says why it failed."""
        link = cls(address)
        try:
            left_s = max(SHORTEST_CONNECT_S, deadline_s - time.monotonic())
            async with asyncio.timeout(left_s):
                with named_host():
                    await link._connect(address, tls, left_s)
        except OSError as e:
            link.close()
            raise connect_error(address, as_system_says(e)) from e
        except BaseException:
            link.close()
            raise
        return link

    async def _connect(self, address: Address, tls: ssl.SSLContext | None, left_s: float) -> None:
        loop = asyncio.get_running_loop()
        if address.port == 0:
            await loop.create_unix_connection(lambda: self, address.host)
            return
        if threading.main_thread().is_alive():
            await loop.create_connection(lambda: self, *address, ssl=tls)
            return
        # U14.6 the program exits: asyncio looks up names in a thread, and none begins any more
        sock = socket.create_connection(address, left_s)
        name = None if tls is None else address.host
        await loop.create_connection(lambda: self, sock=sock, ssl=tls, server_hostname=name)

    async def exchange(
        self, commands: list[tuple[Arg, ...]], replies: list[Reply], deadline_s: float
    ) -> None:
        """Sends commands and appends their replies; on an error, those that came before it."""
        transport = self._ready()
        self._replies, self._due = replies, len(replies) + len(commands)
        await self._ask(transport, self.pack(commands), deadline_s)

    async def count(self, packed: bytes, lines: Lines, deadline_s: float) -> None:
        """Sends packed commands, whose replies of one line each `lines` counts."""
        transport = self._ready()
        self._lines = lines
        try:
            await self._ask(transport, packed, deadline_s)
        finally:
            self._lines = None

    def _ready(self) -> asyncio.Transport:
        if self._lost is not None or self._transport is None:
            raise self._lost or self.closed("it is not connected")
        return self._transport

    async def _ask(self, transport: asyncio.Transport, packed: bytes, deadline_s: float) -> None:
        """Sends the bytes, and waits until all replies have come."""
        self._answered = asyncio.get_running_loop().create_future()
        transport.write(packed)
        try:
            async with _limit(deadline_s):
                await self._answered
        except Error:
            raise
        except TimeoutError as e:
            raise self.failed(e, "no answer") from e
        finally:
            self._answered = None

    async def next_pushed(self, deadline_s: float) -> list[Reply]:
        """The next pushed message; Timeout if none came in time."""
        try:
            async with _limit(deadline_s):
                while not self.pushed:
                    if self._lost is not None:
                        raise self._lost
                    self._arrived.clear()
                    await self._arrived.wait()
        except Error:
            raise
        except TimeoutError as e:
            raise self.failed(e, "nothing") from e
        return self.pushed.popleft()

    def is_stale(self) -> bool:
        """True if the idle connection was closed, or has unexpected input.

        Also asks the socket: the loop may not have run since the node closed it. Who hears of
        cancelled jobs expects input at any time.
        """
        if self._lost is not None:
            return True
        if not self.hears:
            return self._watch.has_input()
        return self._watch.has_ended(self._peek)

    def _peek(self) -> bytes:
        sock = self._transport.get_extra_info("socket") if self._transport is not None else None
        return b"" if sock is None else peeked(sock)

    def close(self) -> None:
        """Also in another thread than that of the loop: the collector may run there."""
        if self._transport is None or self._loop is None:
            return
        with suppress(RuntimeError):  # the loop is closed already
            if threading.get_ident() == self._thread:
                self._transport.abort()
            else:
                self._loop.call_soon_threadsafe(self._transport.abort)

    def leave(self) -> None:
        """The number stays taken: the transport closes it once more, after it has taken it out of
        the selector. That is also the parent's, which must hear of its socket still.
        """
        sock = self._transport.get_extra_info("socket") if self._transport is not None else None
        if sock is not None and sock.fileno() >= 0:
            nothing = os.open(os.devnull, os.O_RDWR)
            os.dup2(nothing, sock.fileno(), inheritable=False)
            os.close(nothing)

    # Called by the loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        Lineage.hold(self)
        self._loop, self._thread = asyncio.get_running_loop(), threading.get_ident()
        sock = transport.get_extra_info("socket")
        if sock is None:
            return
        self._watch.begin(sock.fileno())
        if not is_unix(sock):
            prepare(sock)

    def data_received(self, data: bytes) -> None:
        if self._lines is not None:
            self._lines.feed(data)
            if self._lines.is_complete:
                self._wake()
            return
        try:
            self._replies += self.feed(data)
        except ProtocolError as e:
            self._end(e)
            self.close()
            return
        self._arrived.set()
        if len(self._replies) >= self._due:
            self._wake()

    def _wake(self) -> None:
        if self._answered and not self._answered.done():
            self._answered.set_result(None)

    def connection_lost(self, error: Exception | None) -> None:
        self._end(self.closed(str(error) if error else "it closed the connection"))

    def _end(self, error: Error) -> None:
        if self._lost is None:
            self._lost = error
        self._arrived.set()
        if self._answered and not self._answered.done():
            self._answered.set_exception(self._lost)


class Waiter:
    """A task that waits for a slot of a pool."""

    def __init__(self) -> None:
        self._woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def wake(self) -> None:
        if not self._woken.done():  # else it was cancelled, and gives the slot back
            self._woken.set_result(None)

    async def wait(self, deadline_s: float) -> bool:
        """Waits until woken; False once the time is over."""
        try:
            async with asyncio.timeout(max(0.0, deadline_s - time.monotonic())):
                await self._woken
        except TimeoutError:
            return False
        return True


def _limit(deadline_s: float) -> asyncio.Timeout:
    left_s = deadline_s - time.monotonic()
    return asyncio.timeout(None if left_s == INFINITE else left_s)
