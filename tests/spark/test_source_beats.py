"""Leases are renewed while a query lives, whatever becomes of its broker meanwhile."""

from __future__ import annotations

import gc
import socket
import threading
from pathlib import Path

from lab import RealServer
from tuque import Client
from tuque.spark.leases.leases import Leases
from tuque.spark.options import source
from until import until

JOURNAL = ("--appendonly", "yes", "--appendfsync", "always")


def url(node: RealServer) -> str:
    return f"tuque://127.0.0.1:{node.port}"


def beating(node: RealServer) -> Leases:
    """The leases of a query that has a batch, and renews it often."""
    with Client(url(node), discover=False) as client:
        client.addjob("beats", "1")
    given = {"url": url(node), "queue": "beats", "group": "g", "heartbeat": "100ms"}
    leases = Leases(source.parse(given, True, 6))
    leases.latest({}, 10)
    return leases


def await_touch(node: RealServer) -> None:
    """Wait until the node is asked to renew a lease."""
    monitor = node.wire()
    assert monitor("MONITOR") == b"OK"
    while b"touch" not in monitor.read().lower():
        pass


def test_a_stranger_at_the_port_does_not_end_the_heartbeats(tmp_path: Path) -> None:
    node = RealServer(tmp_path, *JOURNAL).start()
    try:
        leases = beating(node)
        await_touch(node)
        node.kill()
        with socket.create_server(("127.0.0.1", node.port)) as stranger:
            for _ in range(2):  # the second one comes after an answer that made no sense
                link, _ = stranger.accept()
                link.sendall(b"\x00\x00\x00")
                link.close()
        node.start()
        await_touch(node)
        assert leases.backlog() is not None
    finally:
        node.end()


def test_heartbeats_end_with_the_query(tmp_path: Path) -> None:
    def threads() -> list[str]:
        mine = f":{node.port}"
        return [t.name for t in threading.enumerate() if t.name.endswith(mine)]

    node = RealServer(tmp_path, *JOURNAL).start()
    try:
        leases = beating(node)
        await_touch(node)
        assert len(threads()) == 1
        del leases
        gc.collect()
        until(lambda: threads() == [], lambda: "the heartbeats go on")
    finally:
        node.end()
