"""Blocking sockets, for the client for threads and for programs that wait for each reply.

`streams` has the same names for asyncio.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from tuque.client.api import Arg, Reply
from tuque.client.retry import own
from tuque.client.transport.conn import (
    INFINITE,
    SHORTEST_CONNECT_S,
    Conn,
    Lineage,
    connect_error,
)
from tuque.errors import Error
from tuque.platforms import Watch, unix_socket

if TYPE_CHECKING:
    import ssl

    from tuque.client.url import Address

RECEIVE_BYTES = 65536
KEEP_ALIVE_S: Final = 30  # load balancers forget a silent connection after some 4 minutes
PROBES: Final = 3
PROBE_S: Final = 15  # between two probes
CHECK_S: Final = 1.0  # a waiter checks itself: an exception may have ended who was to wake it


def dial(address: Address, tls: ssl.SSLContext | None, timeout_s: float) -> socket.socket:
    """Connects to a node; each step takes up to `timeout_s`. Raises OSError."""
    if address.port == 0:
        sock = unix_socket()
    else:
        with named_host():
            sock = connected(address, timeout_s)
    try:
        if address.port == 0:
            sock.settimeout(timeout_s)
            sock.connect(address.host)
            return sock
        prepare(sock)
        if tls is not None:
            return tls.wrap_socket(sock, server_hostname=address.host)
    except BaseException:
        sock.close()
        raise
    return sock


def connected(address: Address, timeout_s: float) -> socket.socket:
    """Connects to the first address of a host that answers.

    `socket.create_connection` would go on to the next one when a signal handler raises.
    """
    failed: OSError | None = None
    for family, kind, proto, _, place in socket.getaddrinfo(*address, type=socket.SOCK_STREAM):
        sock: socket.socket | None = None
        try:
            sock = socket.socket(family, kind, proto)
            sock.settimeout(timeout_s)
            sock.connect(place)
            return sock
        except BaseException as e:
            if sock is not None:
                sock.close()
            if not isinstance(e, own(OSError)):
                raise
            failed = failed or e
    try:
        raise failed or OSError("no address of the host")
    finally:
        failed = None  # else its traceback, which has this frame, would have it


@contextmanager
def named_host() -> Iterator[None]:
    """A host that cannot be a name is one that nobody knows: an OSError, as of any other."""
    try:
        yield
    except own(UnicodeError):
        raise socket.gaierror(socket.EAI_NONAME, "no name of a host") from None


def prepare(sock: socket.socket) -> None:
    """Sends at once, notices a node that is silent and gone, and is remembered on the way to it.

    As the node does, server/net/listen.py, which does not import the client.
    """
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    limit_ms = 1000 * (KEEP_ALIVE_S + PROBES * PROBE_S)
    for option, value in (
        ("TCP_KEEPIDLE" if hasattr(socket, "TCP_KEEPIDLE") else "TCP_KEEPALIVE", KEEP_ALIVE_S),
        ("TCP_KEEPINTVL", PROBE_S),
        ("TCP_KEEPCNT", PROBES),
        ("TCP_USER_TIMEOUT", limit_ms),
    ):
        if hasattr(socket, option):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)


class Wire:
    """A connected socket: bytes out, bytes in. Raises OSError."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._watch = Watch()
        self._watch.begin(sock.fileno())
        Lineage.hold(self)

    def fileno(self) -> int:
        """The socket's, for a loop that watches it; -1 once it is closed."""
        return self._sock.fileno()

    def send(self, data: bytes, limit_s: float | None) -> None:
        """Sends everything; `limit_s` bounds this, and each wait for bytes from now on."""
        self._sock.settimeout(limit_s)
        self._sock.sendall(data)

    def receive(self) -> bytes:
        """Some bytes; none at the end of the connection."""
        return self._sock.recv(RECEIVE_BYTES)

    def peek(self) -> bytes | None:
        """The next byte, which stays; none at the end of the connection; None: nothing came."""
        return self._sock.recv(1, socket.MSG_PEEK) if self.has_input() else None

    def has_input(self) -> bool:
        """Whether bytes came, or the connection ended: of an idle one, that it is of no use."""
        return self._watch.has_input()

    def close(self) -> None:
        self._sock.close()

    def leave(self) -> None:
        self._sock.close()  # TLS says nothing then


class Link(Wire, Conn):
    """A connected socket with its protocol state."""

    def __init__(self, address: Address, sock: socket.socket) -> None:
        Conn.__init__(self, address)
        Wire.__init__(self, sock)

    @classmethod
    def open(cls, address: Address, tls: ssl.SSLContext | None, deadline_s: float) -> Link:
        """Connects to a node; ConnectionError says why it failed."""
        timeout_s = max(SHORTEST_CONNECT_S, deadline_s - time.monotonic())
        try:
            sock = dial(address, tls, timeout_s)
        except own(OSError) as e:
            raise connect_error(address, e) from e
        try:
            return cls(address, sock)
        except BaseException:
            sock.close()
            raise

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
        except own(OSError) as e:
            raise self.failed(e, "no answer") from e

    def next_pushed(self, deadline_s: float) -> list[Reply]:
        """The next pushed message; Timeout if none came in time."""
        try:
            while not self.pushed:
                self._limit(deadline_s)
                self.feed(self._received())
        except Error:
            raise
        except own(OSError) as e:
            raise self.failed(e, "nothing") from e
        return self.pushed.popleft()

    def is_stale(self) -> bool:
        """True if the idle connection was closed, or has unexpected input.

        Who hears of cancelled jobs expects input at any time: reads what there is.
        """
        if not self.hears:
            return self.has_input()
        try:
            while self.has_input():
                self.feed(self._received())  # an error if it holds more than pushed messages
        except own(Error, OSError):
            return True
        return False

    def _received(self) -> bytes:
        received = self.receive()
        if not received:
            raise self.closed("it closed the connection")
        return received

    def _limit(self, deadline_s: float) -> None:
        left_s = deadline_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError
        self._sock.settimeout(None if left_s == INFINITE else left_s)


class Waiter:
    """A thread that waits for a slot of a pool.

    A lock, not an Event: that is Python, so a signal handler could end it halfway by raising.
    """

    def __init__(self) -> None:
        self._gate = threading.Lock()
        self._gate.acquire()

    def wake(self) -> None:
        if self._gate.locked():
            self._gate.release()

    def wait(self, deadline_s: float) -> bool:
        """Waits until woken, or it is time to check anyway; False once the time is over."""
        left_s = deadline_s - time.monotonic()
        if left_s <= 0:
            return False
        self._gate.acquire(timeout=min(left_s, CHECK_S))
        return True
