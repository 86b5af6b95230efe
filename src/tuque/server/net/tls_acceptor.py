"""TLS connections arrive: a thread accepts them and does their handshakes (SPEC X4).

The loop gets a connection when its handshake is over. What unauthenticated connections may use up
is bounded: connections in all and of one address, and time.
"""

from __future__ import annotations

import errno
import selectors
import socket
import ssl
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple, final

from tuque.logtext import facts
from tuque.server.journal.thread import Wakeup
from tuque.server.log.log import log
from tuque.server.net.tls_keys import TlsKeys
from tuque.tlsstream import TlsStream

OPEN_MAX: Final = 1_024  # handshakes at a time
ADDRESS_MAX: Final = 256  # of them from one address
DEADLINE_S: Final = 10.0
BATCH: Final = 64  # connections taken from one socket before others have their turn
RETRY_S: Final = 0.5  # without a free descriptor
READ: Final = selectors.EVENT_READ
BOTH: Final = selectors.EVENT_READ | selectors.EVENT_WRITE


# ---- Counts of handshakes: the thread counts, INFO and the metrics read (SPEC X4)


@final
class Handshakes:
    """All since the start, but `open`."""

    def __init__(self, told: Callable[[], dict[str, object]]) -> None:
        self.told = told  # what INFO says of the certificate
        self.open = 0  # begun and not over
        self.done = 0
        self.failed = 0  # refused by either end, or closed
        self.late = 0  # not over in time
        self.crowded = 0  # closed to make room, or too many of one address


# ---- The thread


class Arrival(NamedTuple):
    """A connection whose handshake is over."""

    stream: TlsStream
    address: object  # of its peer, as `accept` gave it
    is_iproto: bool


class PendingTls:
    """A connection in its handshake."""

    __slots__ = ("address", "host", "is_iproto", "since", "stream", "watches")

    def __init__(self, stream: TlsStream, address: object, is_iproto: bool) -> None:
        self.stream = stream
        self.address = address
        self.host = host_of(address)
        self.is_iproto = is_iproto
        self.since = time.monotonic()
        self.watches = READ


def host_of(address: object) -> str:
    """The address of the peer without its port, as `accept` gave it."""
    return str(address[0]) if isinstance(address, tuple) else ""


class TlsAcceptor:
    """Accepts on bound sockets; finished connections are in `arrived`, and `bell` rings."""

    def __init__(self, keys: TlsKeys, counts: Handshakes) -> None:
        self.keys = keys
        self.counts = counts
        self.bell = Wakeup()  # rung for the loop
        self.arrived: deque[Arrival] = deque()
        self._doors: dict[int, tuple[socket.socket, bool]] = {}
        self._visitors: dict[int, PendingTls] = {}  # by descriptor, the oldest first
        self._hosts: dict[str, int] = {}
        self._poll = selectors.DefaultSelector()
        self._stop = Wakeup()
        self._is_closing = False
        self._thread = threading.Thread(target=self._run, name="tls", daemon=True)

    def listen(self, sock: socket.socket, is_iproto: bool) -> None:
        """Accept from a bound, listening, non-blocking socket; before `start`."""
        self._doors[sock.fileno()] = (sock, is_iproto)

    def start(self) -> None:
        """Begin to accept."""
        self._poll.register(self._stop.fd, READ)
        for fd in self._doors:
            self._poll.register(fd, READ)
        self._thread.start()

    def close(self) -> None:
        """Stop; returns when the thread has ended."""
        self._is_closing = True
        self._stop.ring()
        if self._thread.is_alive():
            self._thread.join(5)
        for arrival in self.arrived:
            arrival.stream.close()
        self.bell.close()

    # ---- the thread

    def _run(self) -> None:
        while not self._is_closing:
            for key, _ in self._poll.select(self._wait_s()):
                door = self._doors.get(key.fd)
                if door is not None:
                    self._accept(*door)
                elif key.fd in self._visitors:
                    self._go_on(self._visitors[key.fd])
            self._drop_late()
        for visitor in list(self._visitors.values()):
            self._end(visitor)
        for sock, _ in self._doors.values():
            sock.close()
        self._poll.close()
        self._stop.close()

    def _wait_s(self) -> float | None:
        """Until the oldest handshake is late."""
        for visitor in self._visitors.values():
            return max(visitor.since + DEADLINE_S - time.monotonic(), 0.01)
        return None

    def _accept(self, door: socket.socket, is_iproto: bool) -> None:
        for _ in range(BATCH):
            try:
                sock, address = door.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in (errno.EMFILE, errno.ENFILE):
                    time.sleep(RETRY_S)
                return
            if self._hosts.get(host_of(address), 0) >= ADDRESS_MAX:
                self.counts.crowded += 1
                sock.close()  # before it costs more than that
                continue
            try:
                sock.setblocking(False)
                visitor = PendingTls(TlsStream(sock, self.keys.context()), address, is_iproto)
            except OSError:
                sock.close()
                continue
            self._make_room()
            self._visitors[sock.fileno()] = visitor
            self._hosts[visitor.host] = self._hosts.get(visitor.host, 0) + 1
            self.counts.open = len(self._visitors)
            self._poll.register(sock.fileno(), READ)

    def _make_room(self) -> None:
        """[X4] The oldest handshake goes when there are too many (X4.2)."""
        while len(self._visitors) >= OPEN_MAX:
            self.counts.crowded += 1
            self._end(next(iter(self._visitors.values())))

    def _go_on(self, visitor: PendingTls) -> None:
        """The socket is ready: the next step."""
        stream = visitor.stream
        try:
            is_over = stream.handshake()
        except OSError as error:
            self.counts.failed += 1
            if isinstance(error, ssl.SSLError):
                log.debug(
                    "TLS with %(address)s failed: %(reason)s",
                    facts("tls_failed", address=visitor.host, reason=error.reason or error),
                )
            self._end(visitor)
            return
        if is_over and not stream.wants_write:
            self._hand_over(visitor)
            return
        wanted = BOTH if stream.wants_write else READ
        if wanted != visitor.watches:
            visitor.watches = wanted
            self._poll.modify(stream.fileno(), wanted)

    def _hand_over(self, visitor: PendingTls) -> None:
        self._forget(visitor)
        self.counts.done += 1
        self.arrived.append(Arrival(visitor.stream, visitor.address, visitor.is_iproto))
        self.bell.ring()

    def _drop_late(self) -> None:
        """[X4] Close what is not over in time (X4.1)."""
        now = time.monotonic()
        for visitor in list(self._visitors.values()):
            if visitor.since + DEADLINE_S > now:
                return
            self.counts.late += 1
            self._end(visitor)

    def _forget(self, visitor: PendingTls) -> None:
        fd = visitor.stream.fileno()
        self._poll.unregister(fd)
        del self._visitors[fd]
        self.counts.open = len(self._visitors)
        left = self._hosts[visitor.host] - 1
        if left:
            self._hosts[visitor.host] = left
        else:
            del self._hosts[visitor.host]

    def _end(self, visitor: PendingTls) -> None:
        self._forget(visitor)
        visitor.stream.close()
