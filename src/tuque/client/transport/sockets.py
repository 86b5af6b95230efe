"""Blocking sockets for the threaded client: one connection, and a pool of them under a lock."""

from __future__ import annotations

import select
import socket
import threading
import time
from collections import deque
from typing import TYPE_CHECKING

from tuque.client.api import Arg, Reply, to_text
from tuque.client.transport.conn import Conn, joining, raise_errors
from tuque.client.transport.face import SHORTEST_CONNECT_S, connect_error
from tuque.client.transport.pool import Slots
from tuque.client.url import Address
from tuque.errors import Closed, Error, Timeout

if TYPE_CHECKING:
    import ssl

RECEIVE_BYTES = 65536
INFINITE = float("inf")


class Link:
    """A connected socket with its protocol state."""

    def __init__(self, address: Address, sock: socket.socket) -> None:
        self.address = address
        self._sock = sock
        self.session = ""  # of tubes, as far as it was asked for
        self._conn = Conn(str(address))
        self._poll = select.poll()
        self._poll.register(sock, select.POLLIN)

    @classmethod
    def open(cls, address: Address, tls: ssl.SSLContext | None, deadline_s: float) -> Link:
        """Connects to a node; ConnectionError says why it cannot be."""
        try:
            return cls(address, _connected(address, tls, deadline_s - time.monotonic()))
        except OSError as e:
            raise connect_error(address, e) from e

    def exchange(
        self, commands: list[tuple[Arg, ...]], replies: list[Reply], deadline_s: float
    ) -> None:
        """Sends commands and appends their answers; on an error, those that came before it."""
        due = len(replies) + len(commands)
        data = self._conn.pack(commands)
        try:
            self._limit(deadline_s)
            self._sock.sendall(data)
            while len(replies) < due:
                received = self._sock.recv(RECEIVE_BYTES)
                if not received:
                    raise self._closed("it closed the connection")
                replies += self._conn.feed(received)
                if len(replies) < due:
                    self._limit(deadline_s)
        except TimeoutError as e:
            if isinstance(e, Error):
                raise
            raise Timeout(f"no answer from {self.address} in time", node=self._conn.node) from e
        except OSError as e:
            if isinstance(e, Error):
                raise
            raise self._closed(e.strerror or str(e)) from e

    def join(self, sessions: list[str], deadline_s: float) -> None:
        """Makes the connection one of the first session of tubes that the node knows.

        See `session` for which it became.
        """
        replies: list[Reply] = []
        for words in joining(sessions):
            replies.clear()
            self.exchange([words], replies, deadline_s)
            if not isinstance(replies[0], Error):
                self.session = to_text(replies[0])
                return
        raise replies[0]

    def subscribe(self, commands: list[tuple[Arg, ...]], deadline_s: float) -> None:
        """Sends commands after which the node pushes messages; raises an error among answers."""
        self._conn.pushed = deque()
        replies: list[Reply] = []
        self.exchange(commands, replies, deadline_s)
        raise_errors(replies)

    def pushed(self, deadline_s: float) -> list[Reply]:
        """The next message; Timeout when none came in time."""
        waiting = self._conn.pushed
        assert waiting is not None
        try:
            while not waiting:
                self._limit(deadline_s)
                received = self._sock.recv(RECEIVE_BYTES)
                if not received:
                    raise self._closed("it closed the connection")
                self._conn.feed(received)
        except TimeoutError as e:
            raise Timeout(f"nothing from {self.address} in time", node=self._conn.node) from e
        except OSError as e:
            if isinstance(e, Error):
                raise
            raise self._closed(e.strerror or str(e)) from e
        return waiting.popleft()

    def is_stale(self) -> bool:
        """True if the idle connection was closed, or got what nobody asked for."""
        return bool(self._poll.poll(0))

    def close(self) -> None:
        self._sock.close()

    def _limit(self, deadline_s: float) -> None:
        left_s = deadline_s - time.monotonic()
        if left_s <= 0:
            raise Timeout(f"no answer from {self.address} in time", node=self._conn.node)
        self._sock.settimeout(None if left_s == INFINITE else left_s)

    def _closed(self, reason: str) -> Closed:
        return Closed(f"{self.address}: {reason}", node=self._conn.node)


class Pool:
    """Slots with a lock: waits fairly, and not for ever, for a free one."""

    def __init__(self, limit: int | None) -> None:
        self._slots: Slots[Link, _Waiter] = Slots(limit)
        self._lock = threading.Lock()

    def take(self, deadline_s: float) -> Link | None:
        """A slot, with an idle connection if there is one; Timeout when none gets free in time."""
        waiter = _Waiter()
        with self._lock:
            taken, link = self._slots.take()
            if taken:
                return link
            self._slots.wait(waiter)
        granted = False
        try:
            granted = waiter.granted.wait(max(0.0, deadline_s - time.monotonic()))
        finally:
            if not granted:
                self._leave(waiter)
        if not granted:
            raise Timeout("all connections of this client stayed busy", retryable=True)
        return waiter.link

    def give(self, link: Link | None) -> None:
        """Returns a slot, and the connection if it may be used again."""
        with self._lock:
            waiter = self._slots.give(link)
        if waiter is not None:
            waiter.link = link
            waiter.granted.set()

    def close_idle(self) -> int:
        """Closes the idle connections; gives how many there were."""
        with self._lock:
            idle = self._slots.drain()
        for link in idle:
            link.close()
        return len(idle)

    @property
    def open_count(self) -> int:
        return self._slots.in_use + len(self._slots.idle)

    def _leave(self, waiter: _Waiter) -> None:
        with self._lock:
            left = self._slots.leave(waiter)
        if not left:  # a slot came in the last moment: pass it on
            self.give(waiter.link)


class _Waiter:
    def __init__(self) -> None:
        self.granted = threading.Event()
        self.link: Link | None = None


def _connected(address: Address, tls: ssl.SSLContext | None, timeout_s: float) -> socket.socket:
    timeout_s = max(SHORTEST_CONNECT_S, timeout_s)
    if address.port == 0:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    else:
        sock = socket.create_connection(address, timeout_s)
    try:
        if address.port == 0:
            sock.settimeout(timeout_s)
            sock.connect(address.host)
            return sock
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if tls is not None:
            return tls.wrap_socket(sock, server_hostname=address.host)
    except BaseException:
        sock.close()
        raise
    return sock
