"""Sockets on an event loop for the asyncio client: one connection, and a pool of them."""

from __future__ import annotations

import asyncio
import select
import socket
import time
from collections import deque
from typing import TYPE_CHECKING, cast

from tuque.client.api import Arg, Reply, to_text
from tuque.client.transport.conn import Conn, joining, raise_errors
from tuque.client.transport.face import SHORTEST_CONNECT_S, connect_error
from tuque.client.transport.pool import Slots
from tuque.client.url import Address
from tuque.errors import Closed, Error, ProtocolError, Timeout

if TYPE_CHECKING:
    import ssl

INFINITE = float("inf")


class Link(asyncio.Protocol):
    """A connected transport with its protocol state."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self.session = ""  # of tubes, as far as it was asked for
        self._conn = Conn(str(address))
        self._transport: asyncio.Transport | None = None
        self._lost: Error | None = None
        self._poll = select.poll()
        self._replies: list[Reply] = []
        self._due = 0
        self._answered: asyncio.Future[None] | None = None
        self._arrived = asyncio.Event()  # something was pushed, or nothing will be any more

    @classmethod
    async def open(cls, address: Address, tls: ssl.SSLContext | None, deadline_s: float) -> Link:
        """Connects to a node; ConnectionError says why it cannot be."""
        loop = asyncio.get_running_loop()
        link = cls(address)
        try:
            async with asyncio.timeout(max(SHORTEST_CONNECT_S, deadline_s - time.monotonic())):
                if address.port == 0:
                    await loop.create_unix_connection(lambda: link, address.host)
                else:
                    await loop.create_connection(lambda: link, *address, ssl=tls)
        except OSError as e:
            link.close()
            raise connect_error(address, e) from e
        except BaseException:
            link.close()
            raise
        return link

    async def exchange(
        self, commands: list[tuple[Arg, ...]], replies: list[Reply], deadline_s: float
    ) -> None:
        """Sends commands and appends their answers; on an error, those that came before it."""
        if self._lost is not None or self._transport is None:
            raise self._lost or self._closed("it is not connected")
        left_s = deadline_s - time.monotonic()
        self._replies, self._due = replies, len(replies) + len(commands)
        self._answered = asyncio.get_running_loop().create_future()
        self._transport.write(self._conn.pack(commands))
        try:
            async with asyncio.timeout(None if left_s == INFINITE else left_s):
                await self._answered
        except TimeoutError as e:
            if isinstance(e, Error):
                raise
            raise Timeout(f"no answer from {self.address} in time", node=self._conn.node) from e
        finally:
            self._answered = None

    async def join(self, sessions: list[str], deadline_s: float) -> None:
        """Makes the connection one of the first session of tubes that the node knows.

        See `session` for which it became.
        """
        replies: list[Reply] = []
        for words in joining(sessions):
            replies.clear()
            await self.exchange([words], replies, deadline_s)
            if not isinstance(replies[0], Error):
                self.session = to_text(replies[0])
                return
        raise replies[0]

    async def subscribe(self, commands: list[tuple[Arg, ...]], deadline_s: float) -> None:
        """Sends commands after which the node pushes messages; raises an error among answers."""
        self._conn.pushed = deque()
        replies: list[Reply] = []
        await self.exchange(commands, replies, deadline_s)
        raise_errors(replies)

    async def pushed(self, deadline_s: float) -> list[Reply]:
        """The next message; Timeout when none came in time."""
        waiting = self._conn.pushed
        assert waiting is not None
        left_s = deadline_s - time.monotonic()
        try:
            async with asyncio.timeout(None if left_s == INFINITE else left_s):
                while not waiting:
                    if self._lost is not None:
                        raise self._lost
                    self._arrived.clear()
                    await self._arrived.wait()
        except TimeoutError as e:
            if isinstance(e, Error):
                raise
            raise Timeout(f"nothing from {self.address} in time", node=self._conn.node) from e
        return waiting.popleft()

    def is_stale(self) -> bool:
        """True if the idle connection was closed, or got what nobody asked for.

        Asks the socket too: the loop may not have run since the node went away.
        """
        return self._lost is not None or bool(self._poll.poll(0))

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    # What the loop calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        sock = transport.get_extra_info("socket")
        if sock is None:
            return
        self._poll.register(sock.fileno(), select.POLLIN)
        if sock.family != socket.AF_UNIX:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)

    def data_received(self, data: bytes) -> None:
        try:
            self._replies += self._conn.feed(data)
        except ProtocolError as e:
            self._end(e)
            self.close()
            return
        self._arrived.set()
        if len(self._replies) >= self._due and self._answered and not self._answered.done():
            self._answered.set_result(None)

    def connection_lost(self, error: Exception | None) -> None:
        self._end(self._closed(str(error) if error else "it closed the connection"))

    def _end(self, error: Error) -> None:
        if self._lost is None:
            self._lost = error
        self._arrived.set()
        if self._answered and not self._answered.done():
            self._answered.set_exception(self._lost)

    def _closed(self, reason: str) -> Closed:
        return Closed(f"{self.address}: {reason}", node=self._conn.node)


class Pool:
    """Slots on one loop: waits fairly, and not for ever, for a free one."""

    def __init__(self, limit: int | None) -> None:
        self._slots: Slots[Link, asyncio.Future[Link | None]] = Slots(limit)

    async def take(self, deadline_s: float) -> Link | None:
        """A slot, with an idle connection if there is one; Timeout when none gets free in time."""
        taken, link = self._slots.take()
        if taken:
            return link
        waiter: asyncio.Future[Link | None] = asyncio.get_running_loop().create_future()
        self._slots.wait(waiter)
        try:
            async with asyncio.timeout(max(0.0, deadline_s - time.monotonic())):
                return await waiter
        except BaseException as e:
            granted = not self._slots.leave(waiter)
            if granted and not waiter.cancelled():  # it came in the last moment: pass it on
                self.give(waiter.result())
            if isinstance(e, TimeoutError):
                raise Timeout("all connections of this client stayed busy", retryable=True) from e
            raise

    def give(self, link: Link | None) -> None:
        """Returns a slot, and the connection if it may be used again."""
        while (waiter := self._slots.give(link)) is not None:
            if not waiter.done():  # else it was cancelled and has not left yet
                waiter.set_result(link)
                return

    def close_idle(self) -> int:
        """Closes the idle connections; gives how many there were."""
        idle = self._slots.drain()
        for link in idle:
            link.close()
        return len(idle)

    @property
    def open_count(self) -> int:
        return self._slots.in_use + len(self._slots.idle)
