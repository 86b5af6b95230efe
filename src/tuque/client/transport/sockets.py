"""Blocking sockets for the client for threads; `streams` has the same names for asyncio."""

from __future__ import annotations

import select
import socket
import threading
import time
from typing import TYPE_CHECKING

from tuque.client.api import Arg, Reply
from tuque.client.transport.conn import Conn
from tuque.client.transport.face import INFINITE, SHORTEST_CONNECT_S, Lineage, connect_error
from tuque.client.transport.raw_link import keep_alive
from tuque.client.url import Address
from tuque.errors import Error

if TYPE_CHECKING:
    import ssl

RECEIVE_BYTES = 65536


class Link(Conn):
    """A connected socket with its protocol state."""

    def __init__(self, address: Address, sock: socket.socket) -> None:
        super().__init__(address)
        self._sock = sock
        self._poll = select.poll()
        self._poll.register(sock, select.POLLIN)
        Lineage.links.add(self)

    @classmethod
    def open(cls, address: Address, tls: ssl.SSLContext | None, deadline_s: float) -> Link:
        """Connects to a node; ConnectionError says why it failed."""
        try:
            return cls(address, _connected(address, tls, deadline_s - time.monotonic()))
        except OSError as e:
            raise connect_error(address, e) from e

    def exchange(
        self, commands: list[tuple[Arg, ...]], replies: list[Reply], deadline_s: float
    ) -> None:
        """Sends commands and appends their replies; on an error, those that came before it."""
        due = len(replies) + len(commands)
        data = self.pack(commands)
        try:
            self._limit(deadline_s)
            self._sock.sendall(data)
            while len(replies) < due:
                replies += self.feed(self._received())
                if len(replies) < due:
                    self._limit(deadline_s)
        except Error:
            raise
        except OSError as e:
            raise self.failed(e, "no answer") from e

    def next_pushed(self, deadline_s: float) -> list[Reply]:
        """The next pushed message; Timeout if none came in time."""
        try:
            while not self.pushed:
                self._limit(deadline_s)
                self.feed(self._received())
        except Error:
            raise
        except OSError as e:
            raise self.failed(e, "nothing") from e
        return self.pushed.popleft()

    def is_stale(self) -> bool:
        """True if the idle connection was closed, or has unexpected input.

        Who hears of cancelled jobs expects input at any time: reads what there is.
        """
        if not self.hears:
            return bool(self._poll.poll(0))
        try:
            while self._poll.poll(0):
                self.feed(self._received())  # an error if it holds more than pushed messages
        except (Error, OSError):
            return True
        return False

    def close(self) -> None:
        self._sock.close()

    def leave(self) -> None:
        self._sock.close()  # TLS says nothing then

    def _received(self) -> bytes:
        received = self._sock.recv(RECEIVE_BYTES)
        if not received:
            raise self.closed("it closed the connection")
        return received

    def _limit(self, deadline_s: float) -> None:
        left_s = deadline_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError
        self._sock.settimeout(None if left_s == INFINITE else left_s)


class Waiter:
    """A thread waiting for a slot of a pool, and the connection that comes with it."""

    def __init__(self) -> None:
        self.link: Link | None = None
        self.is_granted = False
        self._granted = threading.Event()

    def grant(self, link: Link | None) -> bool:
        """Hands the slot over; False if nobody waits any more."""
        self.link, self.is_granted = link, True
        self._granted.set()
        return True

    def wait(self, deadline_s: float) -> Link | None:
        """The connection, once the slot was handed over; TimeoutError if it was not in time."""
        if not self._granted.wait(max(0.0, deadline_s - time.monotonic())):
            raise TimeoutError
        return self.link


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
        keep_alive(sock)
        if tls is not None:
            return tls.wrap_socket(sock, server_hostname=address.host)
    except BaseException:
        sock.close()
        raise
    return sock
