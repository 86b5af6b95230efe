"""A server reached without sockets or a loop: words in, the exact bytes of the reply out."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from typing import Any

import hiredis
import pytest

from tuque.core.node.node import Node
from tuque.core.records.jobs import Records
from tuque.server.admin.registry import register
from tuque.server.commands.dispatch import execute
from tuque.server.config.config import load
from tuque.server.replies.long_commands import run_chores
from tuque.server.state.client import Client
from tuque.server.state.server import Server, apply_settings

NODE_ID = b"0123456789abcdef0123456789abcdef01234567"
START_MS = 1_800_000_000_000
NO_JOB = "D-12345678-123456789012345678901234-0001"


class Door:
    """One server and the connections to it."""

    def __init__(self, **options: str) -> None:
        self.cfg = load(None, {}, options)
        self.n = Node(NODE_ID, b"seed of a test", START_MS)
        self.n.records = Records()
        self.s = Server(self.cfg, self.n)
        apply_settings(self.s)
        register()
        self.sockets: list[socket.socket] = []
        self.c = self.connect()

    def connect(self, address: str = "") -> Client:
        """One more connection; every address is another one on this machine."""
        ours, theirs = socket.socketpair()
        self.sockets += [ours, theirs]
        number = len(self.sockets) // 2
        c = Client(number, ours, address or f"127.0.0.1:{5000 + number}", 1 << 20, self.n.now_ms)
        self.s.clients[c.fd] = c
        self.s.by_number[c.number] = c
        return c

    def __call__(self, line: str, *words: bytes | str, by: Client | None = None) -> bytes:
        """Run the words of `line` and then `words`; the bytes answered."""
        c = by or self.c
        args = line.encode().split() + [w if isinstance(w, bytes) else w.encode() for w in words]
        execute(self.s, c, args)
        while self.s.chores:  # as many turns as a long command takes
            self.n.work = 0
            run_chores(self.s)
        self.n.work = 0
        return taken(c)

    def value(self, line: str, *words: bytes | str) -> Any:
        """The reply as a value: bytes, int, None or a list of them."""
        reader = hiredis.Reader()
        reader.feed(self(line, *words))
        return reader.gets()

    def add(self, queue: str = "q", body: str = "body", *options: str) -> bytes:
        """ADDJOB; the id."""
        reply = self(f"ADDJOB {queue} {body} 0", *options)
        assert reply.startswith(b"+D-"), reply
        return reply[1:-2]

    def info(self, section: str) -> dict[str, str]:
        """The fields of a section of INFO."""
        lines = self.value(f"INFO {section}").decode().split("\r\n")
        return dict(line.split(":", 1) for line in lines if ":" in line)

    def close(self) -> None:
        """Free all sockets."""
        for sock in self.sockets:
            sock.close()


def taken(c: Client) -> bytes:
    """What was answered to the client since the last time."""
    data = b"".join(c.out)
    c.out = []
    c.is_dirty = False
    return data


@pytest.fixture
def make_door() -> Iterator[Callable[..., Door]]:
    """Makes servers with options; they are closed at the end."""
    made: list[Door] = []

    def make(**options: str) -> Door:
        made.append(Door(**options))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture
def door(make_door: Callable[..., Door]) -> Door:
    """A server with all options at their defaults."""
    return make_door()
