"""A small HTTP listener in a thread and with a loop of its own (SPEC O1, O2).

It knows GET and HEAD, closes each connection after one reply, and bounds all that a client may
use: connections, bytes of a request, time. A page is made by a `Source`, at once or later; those
who ask for it meanwhile get the same one.
"""

from __future__ import annotations

import errno
import logging
import selectors
import socket
import ssl
import threading
import time
from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

from tuque.logtext import facts
from tuque.tlsstream import TlsStream

log: Final = logging.getLogger("tuque.metrics")

CONNECTIONS_MAX: Final = 32
REQUEST_BYTES: Final = 8_192
SPARE_BYTES: Final = 65_536  # read and thrown away after a request
DEADLINE_S: Final = 10.0  # for all of a request and its reply
RETRY_S: Final = 0.5  # without a free descriptor

TEXTS: Final = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    503: "Service Unavailable",
}
TEXT_TYPE: Final = "text/plain; charset=utf-8"


class Page(NamedTuple):
    """What a request gets."""

    status: int
    type: str
    body: bytes


class Source(Protocol):
    """Makes pages. All methods are called in the listener's thread."""

    def page(self, path: str, accept: str) -> Page | None:
        """The page of that path, perhaps with `?...`; None: it will be there later."""

    def take(self, path: str, accept: str) -> Page | None:
        """The page asked for earlier, once `Listener.ring` was called; None: not yet."""

    def done(self) -> None:
        """All who asked for it have got it."""


class Visit:
    """One connection, and how far it is."""

    __slots__ = (
        "accept",
        "came",
        "is_head",
        "is_over",
        "left",
        "path",
        "shakes",
        "since",
        "sock",
        "spare",
    )

    def __init__(self, sock: socket.socket | TlsStream, since: float) -> None:
        self.sock = sock
        self.since = since
        self.came = b""  # of the request
        self.left = memoryview(b"")  # of the reply
        self.path = ""  # asked for; empty: not known yet
        self.spare = 0  # bytes that came after the request
        self.accept = ""
        self.shakes = isinstance(sock, TlsStream)  # the handshake is not over
        self.is_head = False
        self.is_over = False  # all is sent; the client is to close


class Listener:
    """Serves the pages of a source on bound sockets until `close`."""

    def __init__(
        self,
        sockets: list[socket.socket],
        source: Source,
        context: Callable[[], ssl.SSLContext] | None = None,
    ) -> None:
        """`context` gives that of a new connection; None: no TLS."""
        self.sockets = sockets
        self.source = source
        self._context = context
        self.visits: dict[int, Visit] = {}
        self._poll = selectors.DefaultSelector()
        self._ours, self._theirs = socket.socketpair()
        self._ours.setblocking(False)
        self._theirs.setblocking(False)
        self._is_closing = False
        self._thread = threading.Thread(target=self._run, name="metrics", daemon=True)

    def start(self) -> None:
        """Begin to serve."""
        self._poll.register(self._ours, selectors.EVENT_READ)
        for sock in self.sockets:
            sock.setblocking(False)
            self._poll.register(sock, selectors.EVENT_READ)
        self._thread.start()

    def port(self) -> int:
        """The port of the first address."""
        found: int = self.sockets[0].getsockname()[1]
        return found

    def ring(self) -> None:
        """From any thread: a page that was asked for is there."""
        try:
            self._theirs.send(b"\1")
        except OSError:
            return  # it is awake already, or closed

    def close(self) -> None:
        """Stop serving; returns when the thread has ended."""
        self._is_closing = True
        self.ring()
        if self._thread.is_alive():
            self._thread.join(5)

    # ---- the thread

    def _run(self) -> None:
        while not self._is_closing:
            for key, _ in self._poll.select(self._wait_s()):
                sock = key.fileobj
                if sock is self._ours:
                    self._on_ring()
                elif sock in self.sockets:
                    self._accept(key.fileobj)  # type: ignore[arg-type]  # it is a socket
                else:
                    visit = self.visits.get(key.fd)
                    if visit is not None and visit.sock is sock:  # it did not end in this turn
                        self._on_ready(visit)
            self._drop_late()
        for visit in list(self.visits.values()):
            self._end(visit)
        for one in (*self.sockets, self._ours, self._theirs):
            one.close()
        self._poll.close()

    def _wait_s(self) -> float | None:
        """Until the oldest connection is late."""
        if not self.visits:
            return None
        oldest = min(visit.since for visit in self.visits.values())
        return max(oldest + DEADLINE_S - time.monotonic(), 0.01)

    def _accept(self, listener: socket.socket) -> None:
        try:
            sock, _ = listener.accept()
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):
                time.sleep(RETRY_S)
            return
        if len(self.visits) >= CONNECTIONS_MAX and not self._make_room():
            sock.close()
            return
        sock.setblocking(False)
        stream = sock if self._context is None else TlsStream(sock, self._context())
        self.visits[sock.fileno()] = Visit(stream, time.monotonic())
        self._poll.register(stream, selectors.EVENT_READ)

    def _make_room(self) -> bool:
        """[O1] End the oldest connection that has sent no whole request (O1.2)."""
        for visit in self.visits.values():
            if not visit.path:
                self._end(visit)
                return True
        return False

    def _on_ready(self, visit: Visit) -> None:
        try:
            if visit.shakes:
                self._shake(visit)
            elif visit.left:
                self._send(visit)
            elif visit.path:
                came = len(visit.sock.recv(REQUEST_BYTES))  # it waits for its page, or has it
                visit.spare += came
                if not came or visit.spare > SPARE_BYTES:
                    self._end(visit)
            else:
                self._read(visit)
        except BlockingIOError:
            return
        except OSError:
            self._end(visit)

    def _shake(self, visit: Visit) -> None:
        """[X4] Go on with the handshake of TLS."""
        stream = visit.sock
        if not isinstance(stream, TlsStream):
            return
        is_over = stream.handshake()
        wanted = selectors.EVENT_WRITE if stream.wants_write else selectors.EVENT_READ
        self._poll.modify(stream, wanted)
        if is_over and not stream.wants_write:
            visit.shakes = False
            if stream.has_early:
                self._read(visit)

    def _read(self, visit: Visit) -> None:
        data = visit.sock.recv(REQUEST_BYTES)
        if not data:
            self._end(visit)
            return
        visit.came += data
        head, mark, _ = visit.came.partition(b"\r\n\r\n")
        if not mark:
            if len(visit.came) >= REQUEST_BYTES:
                self._reply(visit, fault(431))
            return
        refused = parse(visit, head)
        page = refused or made(self.source.page, visit)
        if page is not None:
            self._reply(visit, page)

    def _on_ring(self) -> None:
        try:
            while self._ours.recv(64):
                pass
        except OSError:
            pass
        for visit in list(self.visits.values()):
            if visit.path and not visit.left and not visit.is_over:
                page = made(self.source.take, visit)
                if page is not None:
                    self._reply(visit, page)
        self.source.done()

    def _reply(self, visit: Visit, page: Page) -> None:
        head = (
            f"HTTP/1.1 {page.status} {TEXTS[page.status]}\r\nContent-Type: {page.type}\r\n"
            f"Content-Length: {len(page.body)}\r\nCache-Control: no-store\r\n"
            f"X-Content-Type-Options: nosniff\r\nConnection: close\r\n"
        )
        if page.status == 405:
            head += "Allow: GET, HEAD\r\n"
        visit.path = visit.path or "?"
        visit.left = memoryview(head.encode() + b"\r\n" + (b"" if visit.is_head else page.body))
        try:
            self._poll.modify(visit.sock, selectors.EVENT_WRITE)
            self._send(visit)
        except BlockingIOError:
            return
        except OSError:
            self._end(visit)

    def _send(self, visit: Visit) -> None:
        sent = visit.sock.send(visit.left)
        visit.left = visit.left[sent:]
        if not visit.left:
            visit.is_over = True
            visit.sock.shutdown(socket.SHUT_WR)  # unread input would cut the reply off
            self._poll.modify(visit.sock, selectors.EVENT_READ)

    def _drop_late(self) -> None:
        """Close connections past their deadline; tell those whose page does not come."""
        now = time.monotonic()
        for visit in list(self.visits.values()):
            if visit.since + DEADLINE_S <= now:
                if visit.path and not visit.left and not visit.is_over:
                    self._reply(visit, fault(503))
                self._end(visit)

    def _end(self, visit: Visit) -> None:
        """Close the connection."""
        if self.visits.pop(visit.sock.fileno(), None) is None:
            return
        self._poll.unregister(visit.sock)
        visit.sock.close()


def parse(visit: Visit, head: bytes) -> Page | None:
    """Read the request; a page if it is refused."""
    lines = head.decode("latin-1").split("\r\n")
    words = lines[0].split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1."):
        return fault(400)
    if words[0] not in ("GET", "HEAD"):
        return fault(405)
    visit.is_head = words[0] == "HEAD"
    visit.path = words[1]
    for line in lines[1:]:
        name, _, value = line.partition(":")
        if name.lower() == "accept":
            visit.accept = value.strip()
    return None


def made(make: Callable[[str, str], Page | None], visit: Visit) -> Page | None:
    """What the source makes; 500 if it fails, since the listener must go on."""
    try:
        return make(visit.path, visit.accept)
    except Exception:
        log.exception("no page for %(path)s", facts("page_failed", path=visit.path))
        return fault(500)


def fault(status: int, text: str = "") -> Page:
    """A page that says what is wrong."""
    return Page(status, TEXT_TYPE, ((text or TEXTS[status]) + "\n").encode())


def open_sockets(addresses: list[str], port: int, is_shared: bool = False) -> list[socket.socket]:
    """Listening sockets on these addresses. Raises OSError.

    `is_shared`: another process of this user may listen there too, as when one takes the place of
    another.
    """
    found: list[socket.socket] = []
    for address in addresses:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if is_shared and hasattr(socket, "SO_REUSEPORT"):
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            if family == socket.AF_INET6:
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            sock.bind((address, port))
            sock.listen(CONNECTIONS_MAX)
        except OSError:
            for one in (sock, *found):
                one.close()
            raise
        port = sock.getsockname()[1]
        found.append(sock)
    return found
