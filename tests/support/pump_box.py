"""The real pump in the test's own process, turned by hand, with sockets of the system.

For tests of what `world.py` has not: threads of the server, its files, real time, and peers that
the test plays on a socket.
"""

from __future__ import annotations

import socket
from pathlib import Path

from raw_resp import Wire
from tuque.core.node.node import Node
from tuque.core.queues.procedures import check
from tuque.server.admin.registry import register
from tuque.server.config.config import load
from tuque.server.loop.pump import Pump
from tuque.server.state.server import Server, apply_settings

NODE_ID = b"c0ffee00" * 5
START_MS = 1_800_000_000_000


class PumpBox:
    """A server without a process: `turn` until all input is handled."""

    def __init__(self, directory: Path, node_id: bytes = NODE_ID, **options: str) -> None:
        self.path = str(directory / "s")
        cfg = load(None, {}, {"port": "0", **options})  # others may have a bus on this machine
        self.n = Node(node_id, b"seed of a test", START_MS)
        self.server = Server(cfg, self.n)
        apply_settings(self.server)
        register()
        self.pump = Pump(self.server)
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(self.path)
        self.listener.listen(64)
        self.listener.setblocking(False)
        self.pump.listen(self.listener)

    def connect(self) -> Wire:
        """A new client, accepted."""
        before = self.server.figures.connections
        wire = Wire(0, self.path)
        while self.server.figures.connections == before:
            self.pump.turn(0)
        return wire

    def say(self, wire: Wire, *pieces: bytes) -> bytes:
        """Send the pieces one read apart; returns the output until it is quiet or closes."""
        heard = b""
        for piece in pieces:
            sent = 0
            while sent < len(piece):
                try:
                    sent += wire.sock.send(piece[sent : sent + (1 << 16)])
                except OSError:  # closed, rightly or not: the caller checks the reply
                    break
                heard += self.hear(wire)
        return heard + self.hear(wire)

    def hear(self, wire: Wire) -> bytes:
        """Turn until nothing more is read or written; returns the output for the client."""
        heard = b""
        figures = self.server.figures
        wire.sock.setblocking(False)
        while True:
            before = (figures.in_bytes, figures.out_bytes, len(self.server.clients), len(heard))
            self.pump.turn(0)
            try:
                heard += wire.sock.recv(1 << 20)
            except OSError:
                pass
            now = (figures.in_bytes, figures.out_bytes, len(self.server.clients), len(heard))
            if now == before and not self.server.chores:
                return heard

    def is_open(self, wire: Wire) -> bool:
        """Whether the server still has the connection open."""
        wire.sock.setblocking(False)
        try:
            return wire.sock.recv(1) != b""
        except BlockingIOError:
            return True
        except OSError:
            return False

    def check(self) -> None:
        """Every invariant of the node."""
        check(self.n)

    def close(self) -> None:
        """Free the sockets."""
        self.pump.close_all()
