"""A broker without sockets and without a clock: commands in, replies out, time by hand.

It is the real core, command table and dispatcher. `pass_ms` moves the time and runs the timers
that became due, as the pump does. For tests that count the calls of one turn, run commands between
its pieces, or write, cut and load a journal within it: for others there is `world.py`.
"""

from __future__ import annotations

import socket
from typing import Any

import hiredis
import pytest

from raw_resp import NULL, Err
from told_events import Told
from tuque.core.dispatch.timers import next_timer_ms, tick
from tuque.core.model.job import Job
from tuque.core.node.node import Node
from tuque.core.queues.deliver import serve_ready
from tuque.core.queues.procedures import check, on_memory_level
from tuque.core.records.events import KIND_NAMES, Events
from tuque.core.records.jobs import Records
from tuque.server.admin.registry import register
from tuque.server.commands.dispatch import execute, tell_wakes
from tuque.server.config.config import Config, load
from tuque.server.replies.long_commands import run_chores
from tuque.server.state.client import Client
from tuque.server.state.server import Server, apply_settings

NODE_ID = b"c0ffee00" * 5
START_MS = 1_800_000_000_000


class Status(str):
    """The text of a status reply."""


class Session:
    """One connection. `self(...)` runs a command and gives its reply, None when there is none."""

    def __init__(self, box: Box, number: int) -> None:
        self.box = box
        ours, self.far_end = socket.socketpair()
        ours.setblocking(False)
        self.c = Client(number, ours, f"127.0.0.1:{40000 + number}", 64 << 20, box.n.now_ms)

    def __call__(self, *words: str | bytes | int) -> Any:
        args = [w if isinstance(w, bytes) else str(w).encode() for w in words]
        server = self.box.server
        execute(server, self.c, args)
        while server.chores:  # as many turns as a long command takes
            server.n.work = 0
            run_chores(server)
        server.n.work = 0
        return self.take()

    def raw(self) -> bytes:
        """The bytes that were answered since the last look."""
        data = b"".join(self.c.out)
        self.c.out = []
        return data

    def take(self) -> Any:
        """The next reply; None when nothing was answered, NULL for a null."""
        return parse(self.raw())

    def close(self) -> None:
        """Free both ends."""
        self.c.sock.close()
        self.far_end.close()


def parse(data: bytes) -> Any:
    """One reply as Python values; errors are Err, an empty stream is None."""
    if not data:
        return None
    reader = hiredis.Reader(replyError=Err, protocolError=Err)
    reader.feed(data)
    value = reader.gets()
    assert value is not False, data
    assert reader.gets() is False, f"more than one reply: {data!r}"
    if isinstance(value, hiredis.ReplyError | Err):
        return Err(value)
    if value is None:
        return NULL
    if data[:1] == b"+":
        return Status(value.decode())
    return value


class Box:
    """One node, its server state, and any number of sessions."""

    def __init__(self, **options: str) -> None:
        self.cfg: Config = load(None, {}, options)
        self.n = Node(NODE_ID, b"seed of a test", START_MS)
        self.n.records = Records(self.n.node_ids, self.n.lives)
        self.n.events = Events(1 << 16, 1)
        self.server = Server(self.cfg, self.n)
        apply_settings(self.server)
        register()
        self.sessions: list[Session] = []
        self.run = self.session()

    def session(self) -> Session:
        """A new connection."""
        session = Session(self, len(self.sessions) + 1)
        self.sessions.append(session)
        self.server.clients[session.c.fd] = session.c
        self.server.by_number[session.c.number] = session.c
        return session

    # shortcuts for the frequent commands, by the first session

    def add(self, queue: str = "q", body: str = "body", **options: int | bool) -> bytes:
        """ADDJOB; returns the id."""
        words: list[str | int] = ["ADDJOB", queue, body, 0]
        for name, value in options.items():
            words += [name] if value is True else [name, int(value)]
        reply = self.run(*words)
        assert isinstance(reply, Status), reply
        return reply.encode()

    def get(self, *queues: str, count: int = 1) -> list[bytes]:
        """GETJOB NOHANG; returns the ids."""
        reply = self.run("GETJOB", "NOHANG", "COUNT", count, "FROM", *(queues or ("q",)))
        return [] if reply is NULL else [job[1] for job in reply]

    def show(self, job_id: bytes) -> dict[str, Any]:
        """SHOW as a dict."""
        flat = self.run("SHOW", job_id)
        assert isinstance(flat, list), flat
        return {flat[i].decode(): flat[i + 1] for i in range(0, len(flat), 2)}

    def state(self, job_id: bytes) -> str:
        """The state SHOW tells, `gone` for an unknown job."""
        flat = self.run("SHOW", job_id)
        return "gone" if flat is NULL else flat[5].decode()

    def job(self, job_id: bytes) -> Job:
        """The record itself."""
        return self.n.jobs[job_id]

    def qlen(self, queue: str = "q") -> int:
        """QLEN."""
        return int(self.run("QLEN", queue))

    # time

    def pass_ms(self, ms: int) -> None:
        """Let time pass; every timer fires at its own instant on the way."""
        until = self.n.now_ms + ms
        while True:
            at = next_timer_ms(self.n)
            if at > until:
                break
            self.n.now_ms = max(self.n.now_ms, at)
            self.turn()
        self.n.now_ms = until
        self.turn()
        check(self.n)

    def jump_ms(self, ms: int) -> None:
        """Let time pass while the node does nothing, as after a long stall."""
        self.n.now_ms += ms

    def turn(self) -> None:
        """What the pump does between reading and writing."""
        tick(self.n)
        on_memory_level(self.n)
        if self.n.ready:
            serve_ready(self.n)
        if self.n.wakes or self.n.life.calls:
            tell_wakes(self.server)

    # what was written

    def events(self) -> list[tuple[str, bytes]]:
        """Kind and job of all events so far."""
        events = self.n.events
        assert events is not None
        events.cut()
        rows: list[tuple[str, bytes]] = []
        for told in map(Told, events.full):
            rows += [
                (KIND_NAMES[kind], job_id)
                for kind, job_id in zip(told.kinds, told.job_ids, strict=True)
            ]
        return rows

    def kinds(self, job_id: bytes) -> list[str]:
        """The kinds of one job's events, in order."""
        return [kind for kind, of in self.events() if of == job_id]

    def close(self) -> None:
        """Check that nothing is lost, and free the sockets."""
        check(self.n)
        for session in self.sessions:
            session.close()


@pytest.fixture
def box() -> Any:
    """One node with default options."""
    made = Box()
    yield made
    made.close()
