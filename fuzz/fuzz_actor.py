"""A client of the node under test: one connection, which may end at any time."""

from __future__ import annotations

import socket
from random import Random

from fuzz_box import FuzzBox


class Actor:
    """One connection over a unix socket; it connects when it has something to say."""

    def __init__(self, box: FuzzBox, rng: Random, path: str) -> None:
        self.box = box
        self.rng = rng
        self.path = path
        self.sock: socket.socket | None = None

    def say(self, data: bytes) -> None:
        """Send it in one write, let the node work, read what it answers."""
        if self.sock is None:
            self.sock = socket.socket(socket.AF_UNIX)
            self.sock.setblocking(False)
            self.sock.connect(self.path)
        try:
            self.sock.sendall(data)
        except OSError:
            self.leave()
        self.box.turns(2)
        self.drain()

    def drain(self) -> None:
        """Read what is answered."""
        try:
            while self.sock is not None:
                if not self.sock.recv(1 << 20):
                    self.leave()
        except BlockingIOError:
            pass
        except OSError:
            self.leave()

    def leave(self) -> None:
        """Close the connection."""
        if self.sock is not None:
            self.sock.close()
            self.sock = None
