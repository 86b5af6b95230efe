"""The HTTP listener (SPEC O1.1, O1.2)."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Iterator

import pytest

from tuque.metrics import listener as module
from tuque.metrics.listener import TEXT_TYPE, Listener, Page, fault, open_sockets
from until import until

LARGE = b"x" * (64 << 20)


class Shelf:
    """Pages of a test: `/now` at once, `/later` once `shot` is there."""

    def __init__(self) -> None:
        self.shot: bytes | None = None
        self.asked = threading.Event()
        self.count = 0
        self.holds, self.go = threading.Event(), threading.Event()

    def page(self, path: str, accept: str) -> Page | None:
        path = path.partition("?")[0]
        if path == "/later":
            self.count += 1
            self.asked.set()
            return None
        if path == "/held":
            self.holds.set()
            assert self.go.wait(20)
        if path == "/broken":
            raise ValueError("a bug")
        if path == "/large":
            return Page(200, TEXT_TYPE, LARGE)
        return Page(200, TEXT_TYPE, accept.encode()) if path == "/now" else fault(404)

    def take(self, path: str, accept: str) -> Page | None:
        if self.shot == b"broken":
            raise ValueError("a bug")
        return None if self.shot is None else Page(200, TEXT_TYPE, self.shot)

    def done(self) -> None:
        self.shot = None


@pytest.fixture
def shelf() -> Shelf:
    return Shelf()


@pytest.fixture
def served(shelf: Shelf) -> Iterator[Listener]:
    served = Listener(open_sockets(["127.0.0.1"], 0), shelf)
    served.start()
    yield served
    served.close()


def connect(served: Listener) -> socket.socket:
    return socket.create_connection(("127.0.0.1", served.port()), timeout=20)


def all_of(sock: socket.socket) -> bytes:
    found = b""
    while data := sock.recv(1 << 20):
        found += data
    return found


def ask(served: Listener, request: bytes) -> tuple[bytes, bytes]:
    with connect(served) as sock:
        sock.sendall(request)
        head, _, body = all_of(sock).partition(b"\r\n\r\n")
        return head, body


@pytest.mark.parametrize(
    ("request_line", "status"),
    [
        (b"GET /now HTTP/1.1", b"200"),
        (b"GET /now?x=1 HTTP/1.0", b"200"),
        (b"GET /nosuch HTTP/1.1", b"404"),
        (b"POST /now HTTP/1.1", b"405"),
        (b"GET /now HTTP/2", b"400"),
        (b"what", b"400"),
    ],
)
def test_replies(served: Listener, request_line: bytes, status: bytes) -> None:
    """O1.1 another path 404, another method 405."""
    head, _ = ask(served, request_line + b"\r\nHost: x\r\n\r\n")
    assert head.split(b" ")[1] == status
    assert b"\r\nConnection: close" in head, "O1.2 Every reply closes its connection."


def test_head_has_no_body(served: Listener) -> None:
    """O1.1 GET and HEAD"""
    head, body = ask(served, b"HEAD /now HTTP/1.1\r\naccept: abc\r\n\r\n")
    assert b"Content-Length: 3" in head
    assert body == b""


def test_a_request_has_a_bound(served: Listener) -> None:
    """O1.2 8 KiB of a request"""
    head, _ = ask(served, b"GET /now HTTP/1.1\r\nX: " + b"x" * 9_000)
    assert head.split(b" ")[1] == b"431"


def test_connections_have_a_bound(served: Listener, shelf: Shelf) -> None:
    """O1.2 At most 32 connections: a further one replaces the oldest that has sent no whole
    request, else it is closed.
    """
    held = [connect(served) for _ in range(module.CONNECTIONS_MAX)]
    for sock in held:
        sock.sendall(b"GET /l")
    for _ in range(3):  # who only holds a place does not keep others out
        assert b"200 OK" in ask(served, b"GET /now HTTP/1.1\r\n\r\n")[0]
    assert held[0].recv(1) == b""
    assert len(served.visits) <= module.CONNECTIONS_MAX
    held[31].sendall(b"ater HTTP/1.1\r\n\r\n")
    until(lambda: shelf.count == 1, "be asked")
    for sock in held:
        sock.close()


def test_those_who_wait_for_their_page_keep_their_places(served: Listener, shelf: Shelf) -> None:
    """O1.2 else it is closed."""
    held = [connect(served) for _ in range(module.CONNECTIONS_MAX)]
    for sock in held:
        sock.sendall(b"GET /later HTTP/1.1\r\n\r\n")
    until(lambda: shelf.count == module.CONNECTIONS_MAX, "be asked by all")
    with connect(served) as beyond:
        assert beyond.recv(1) == b""
    shelf.shot = b"the page"
    served.ring()
    assert all(b"the page" in all_of(sock) for sock in held)
    for sock in held:
        sock.close()


def test_slow_ones_are_closed_and_hold_up_nobody(
    served: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """O1.2 or 10 s for all of it, the connection is closed."""
    monkeypatch.setattr(module, "DEADLINE_S", 1.0)
    with connect(served) as silent, connect(served) as slow:
        slow.sendall(b"GET /large HTTP/1.1\r\n\r\n")  # and reads nothing
        assert b"200 OK" in ask(served, b"GET /now HTTP/1.1\r\n\r\n")[0]
        assert silent.recv(1) == b""
        until(lambda: not served.visits, "close both")


def test_all_who_wait_get_the_same_page(served: Listener, shelf: Shelf) -> None:
    """O1.3 one snapshot of numbers for all who ask meanwhile"""
    waiting = [connect(served) for _ in range(3)]
    for sock in waiting:
        sock.sendall(b"GET /later HTTP/1.1\r\n\r\n")
    while shelf.count < 3:
        assert shelf.asked.wait(20)
    assert b"200 OK" in ask(served, b"GET /now HTTP/1.1\r\n\r\n")[0], "others are not held up"
    shelf.shot = b"the page"
    served.ring()
    assert [all_of(sock).rpartition(b"\r\n")[2] for sock in waiting] == [b"the page"] * 3
    for sock in waiting:
        sock.close()


def test_a_page_that_does_not_come_is_503(
    served: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "DEADLINE_S", 0.3)
    assert b" 503 " in ask(served, b"GET /later HTTP/1.1\r\n\r\n")[0]


def test_those_who_leave_before_their_page_harm_nobody(served: Listener, shelf: Shelf) -> None:
    """O1.3 Clients reset their connections while the page is handed over, in the same turn."""
    waiting = [connect(served) for _ in range(8)]
    for sock in waiting:
        sock.sendall(b"GET /later HTTP/1.1\r\n\r\n")
    until(lambda: shelf.count == 8, "be asked by all")
    with connect(served) as held:
        held.sendall(b"GET /held HTTP/1.1\r\n\r\n")
        assert shelf.holds.wait(20)  # the listener stands in there
        shelf.shot = b"the page"
        served.ring()
        for sock in waiting:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            sock.close()
        shelf.go.set()
        assert b"404" in all_of(held)
    assert b"200 OK" in ask(served, b"GET /now HTTP/1.1\r\n\r\n")[0]


def test_a_page_that_cannot_be_made_is_500(
    served: Listener, shelf: Shelf, caplog: pytest.LogCaptureFixture
) -> None:
    """O1.2 A page that fails is a 500."""
    assert b" 500 " in ask(served, b"GET /broken HTTP/1.1\r\n\r\n")[0]
    with connect(served) as sock:
        sock.sendall(b"GET /later HTTP/1.1\r\n\r\n")
        assert shelf.asked.wait(20)
        shelf.shot = b"broken"
        served.ring()
        assert b" 500 " in all_of(sock)
    assert b"200 OK" in ask(served, b"GET /now HTTP/1.1\r\n\r\n")[0]
    assert "no page for /broken" in caplog.text


def test_who_sends_without_end_is_closed(served: Listener) -> None:
    """O1.2 8 KiB of a request; what comes after it is not read for long."""
    with connect(served) as sock:
        sock.sendall(b"GET /now HTTP/1.1\r\n\r\n")
        sent = 0
        with pytest.raises(OSError):
            while sent < 512 << 20:
                sent += sock.send(b"x" * 65_536)
                time.sleep(0)
    assert sent < 64 << 20  # what the sockets of the system hold
