"""Raw connections to a real server in its own process."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lab import RealServer, free_port

PATIENCE_S = 60.0


class Live(RealServer):
    """A server, and raw connections to it."""

    def connect(self) -> socket.socket:
        """A raw connection."""
        return socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE_S)


def ask(sock: socket.socket, line: str) -> bytes:
    """Send an inline command; what comes back at once, empty when the connection ended."""
    sock.sendall(line.encode() + b"\r\n")
    return sock.recv(65_536)


@pytest.fixture
def make_live(tmp_path: Path) -> Iterator[Callable[..., Live]]:
    """Makes servers that are stopped at the end."""
    made: list[Live] = []

    def make(*flags: str) -> Live:
        made.append(Live(tmp_path, *flags, port=free_port()))
        made[-1].start()
        return made[-1]

    yield make
    for one in made:
        one.end()
