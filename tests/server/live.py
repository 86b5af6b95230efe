"""A real server in its own process, and raw connections to it."""

from __future__ import annotations

import signal
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import forked
import pytest

PATIENCE_S = 20.0


class Live:
    """One server process on a free port of 127.0.0.1, with its files in `here`."""

    def __init__(self, here: Path, *options: str) -> None:
        self.here = here
        self.options = options
        with socket.socket() as sock:
            sock.bind(("127.0.0.1", 0))
            self.port = int(sock.getsockname()[1])
        self.process = self.start()

    def start(self) -> forked.Process:
        """Start it (again); it listens when this returns."""
        words = ["server", "--port", str(self.port), "--dir", str(self.here), *self.options]
        with (self.here / "log").open("ab") as log:
            self.process = forked.start(words, log)
        deadline = time.monotonic() + PATIENCE_S
        while True:
            assert self.process.poll() is None, (self.here / "log").read_text()
            try:
                self.connect().close()
                return self.process
            except OSError:
                assert time.monotonic() < deadline, "the server does not listen"
                time.sleep(0.02)

    def connect(self) -> socket.socket:
        """A raw connection."""
        return socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE_S)

    def stop(self) -> int:
        """SIGTERM; the exit status."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=PATIENCE_S)


def ask(sock: socket.socket, line: str) -> bytes:
    """Send an inline command; what comes back at once, empty when the connection ended."""
    sock.sendall(line.encode() + b"\r\n")
    return sock.recv(65_536)


@pytest.fixture
def make_live(tmp_path: Path) -> Iterator[Callable[..., Live]]:
    """Makes servers that are stopped at the end."""
    made: list[Live] = []

    def make(*options: str) -> Live:
        made.append(Live(tmp_path, *options))
        return made[-1]

    yield make
    for one in made:
        one.stop()
