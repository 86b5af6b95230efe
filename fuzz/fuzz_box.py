"""A whole node in this process for the fuzzers: all three ports, a journal, events, a clock.

The real pump reads real sockets. What nobody may bring about: an exception out of a turn, an
internal error, tables that do not agree, a nodes.conf or a journal that cannot be read again.
"""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path
from random import Random

from tuque.cluster.nodes_conf import parse_nodes_conf
from tuque.core.dispatch.restore import after_load
from tuque.core.node.node import Node
from tuque.core.queues.procedures import check
from tuque.core.records.events import Events
from tuque.server.admin.registry import register
from tuque.server.config.config import load
from tuque.server.loop.pump import Pump
from tuque.server.net.system import steady_ms
from tuque.server.start.bus import open_bus, prepare_bus
from tuque.server.start.journal import close_journal, load_journal, open_journal
from tuque.server.state.server import Server, apply_settings
from tuque.store.disk import Disk
from tuque.store.frames import Boot
from tuque.store.replay import Loader

NODE_ID = b"c0ffee00" * 5
START_MS = 1_800_000_000_000
SECRET = "kY3vR8wQz1LmN5tXb7cD2fGh4jPs6aEu0oHi9ZyVxWq"


def listening(place: Path) -> tuple[str, socket.socket]:
    """A socket there that accepts connections, and its path."""
    sock = socket.socket(socket.AF_UNIX)
    sock.bind(str(place))
    sock.listen(64)
    sock.setblocking(False)
    return str(place), sock


class FuzzBox:
    """The node, on a socket at `path`; actors speak on sockets of theirs, then it `turns`."""

    def __init__(self, place: Path, rng: Random) -> None:
        options = {"cluster_secret": SECRET, "cluster_bind": "127.0.0.1", "dir": str(place)}
        options["cluster_node_timeout"] = rng.choice(("1000", "15000"))
        options["command_deadline"] = "30"
        options["appendonly"] = "no"
        if rng.random() < 0.4:
            options["appendonly"] = "yes"
            options["appendfsync"] = rng.choice(("no", "everysec", "always"))
        if rng.random() < 0.2:
            options["maxmemory"] = "2mb"
            options["maxmemory_policy"] = "acks"
        cfg = load(None, {}, {"port": "0", **options})  # others may have a bus on this machine
        self.n = Node(NODE_ID, b"seed of a test", START_MS)
        self.server = Server(cfg, self.n)
        apply_settings(self.server)
        register()
        self.pump = Pump(self.server)
        self.path, self.listener = listening(place / "s")
        self.pump.listen(self.listener)
        self.server.clock_offset_ms = START_MS - steady_ms()
        prepare_bus(self.pump)
        open_journal(self.pump)
        load_journal(self.pump)
        open_bus(self.pump)
        self.iproto_path, self.iproto_listener = listening(place / "i")
        self.pump.acceptors.listen_iproto(self.iproto_listener)
        self.n.events = Events(4096, 1)
        self.longest_s = 0.0  # CPU time of a turn; it proves passwords itself, 50 ms each
        self.where = ""  # what was said before it
        self.now = ""
        self.is_watched = False  # look at all tables after each turn: find what broke them

    def turns(self, count: int = 3) -> None:
        """Let the node read and answer."""
        for _ in range(count):
            begin = time.thread_time()
            self.pump.turn(0)
            spent = time.thread_time() - begin
            if spent > self.longest_s:
                self.longest_s, self.where = spent, self.now
        assert self.server.bugs.count == 0, "an internal error"
        if self.is_watched:
            self.look()
        events = self.n.events
        if events is not None:
            events.cut()
            events.wrote(len(events.take()))
            if events.lent_chunks:
                events.lent_chunks = 0

    def pass_ms(self, ms: int) -> None:
        """Time goes by."""
        self.server.clock_offset_ms += ms
        self.turns()

    def look(self) -> None:
        """Whether everything still fits together."""
        check(self.n)
        s = self.server
        again = parse_nodes_conf(s.members.kept_text(s.identity.line()).encode())
        assert again.node_id == self.n.node_id

    def free(self) -> None:
        """Close everything, whatever has happened."""
        self.pump.close_all()
        self.listener.close()
        self.iproto_listener.close()
        self.server.identity.close()

    def end(self) -> None:
        """Stop in order, and read back what is on the disk."""
        self.pass_ms(100_000)
        self.look()
        s = self.server
        if s.committer is not None:
            problem = close_journal(self.pump)
            assert not problem, problem
        path = os.path.join(s.cfg.dir, s.cfg.appenddirname)
        if os.path.isdir(path):
            n = Node(NODE_ID, b"seed of another life", int(self.n.now_ms))
            loader = Loader(Disk(), path, Boot(int(self.n.now_ms), b"fuzz", 0), False)
            while not loader.step(n, 1000):
                pass
            after_load(n)
            check(n)
