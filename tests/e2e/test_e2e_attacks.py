"""Clients that want a node's memory do not get it: its size stays near what is set (SPEC M5)."""

from __future__ import annotations

import contextlib
import select
import socket
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from lab import RealServer
from raw_resp import encode
from until import until

pytestmark = pytest.mark.slow

MB = 1 << 20
MOST = 200 * MB
ATTACKERS = 40
CROWD = 300  # that come in one turn


def names(number: int) -> bytes:
    """A GETJOB that waits for 500 long names, 30 MB of them."""
    return encode("GETJOB", "FROM", *[f"{number}_{i:059990d}" for i in range(500)])


def same_names(number: int) -> bytes:
    """The same for few names that all wait for, told again and again."""
    return encode("GETJOB", "FROM", *[f"same_{i % 10:059990d}" for i in range(500)])


def half(number: int) -> bytes:
    """Most of a body of 60 MB."""
    return b"*4\r\n$6\r\nADDJOB\r\n$1\r\nq\r\n$60000000\r\n" + 30 * MB * b"x"


def unread(number: int) -> bytes:
    """Replies of 25 MB that nobody reads."""
    return encode("ECHO", 50_000 * "e") * 500


def send(port: int, data: bytes) -> socket.socket:
    """A connection that has sent as much of it as the node took within a second."""
    sock = socket.create_connection(("127.0.0.1", port))
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    sock.setblocking(False)
    sent, until_s = 0, time.monotonic() + 1
    with contextlib.suppress(ConnectionError):
        while sent < len(data) and time.monotonic() < until_s:
            try:
                sent += sock.send(data[sent : sent + MB])
            except BlockingIOError:
                select.select([], [sock], [], 1)
    return sock


@pytest.mark.parametrize("attack", [names, same_names, half, unread])
def test_memory_of_a_node_under_attack(
    make_server: Callable[..., RealServer], attack: Callable[[int], bytes]
) -> None:
    """M5.2 bytes or a percentage of `maxmemory`, is reserved for what all clients hold together.
    The levels (M2) do not count it: whatever clients hold, jobs are taken.
    """
    server = make_server("--set", f"maxmemory={MOST}")
    wire = server.wire()
    fixed = server.rss_bytes()
    socks: list[socket.socket] = []
    most = 0
    for number in range(ATTACKERS):
        socks.append(send(server.port, attack(number)))
        assert isinstance(wire("ADDJOB", "jobs", 1_000 * "b", 0), bytes)
        most = max(most, server.rss_bytes())
    while isinstance(said := wire("ADDJOB", "jobs", MB // 2 * "b", 0), bytes):
        most = max(most, server.rss_bytes())
    for sock in socks:
        sock.close()
    print(f"{attack.__name__}: {fixed / MB:.0f} MB at the start, {most / MB:.0f} MB at most")
    assert said.startswith("OOM used memory is above 75 %")
    assert 0.7 * MOST < most < fixed + 1.25 * MOST
    assert wire("DEBUG", "CHECK") == b"OK"


def peak_bytes(server: RealServer) -> int:
    """The most memory that the process ever had."""
    rows = Path(f"/proc/{server.pid}/status").read_text().splitlines()
    (row,) = [row for row in rows if row.startswith("VmHWM:")]
    return int(row.split()[1]) << 10


@pytest.mark.parametrize("size", [60_000, 900_000])
def test_memory_of_a_node_that_a_crowd_attacks(
    make_server: Callable[..., RealServer], size: int
) -> None:
    """L2.8 Replies count as well, those of a connection when they have 1 KiB in a turn"""
    server = make_server("--set", f"maxmemory={MOST}")
    wire = server.wire()
    fixed = server.rss_bytes()
    wire.add("shown", size * "b")
    while isinstance(wire("ADDJOB", "jobs", 5_000 * "b", 0), bytes):
        pass
    socks = [send(server.port, b"") for _ in range(CROWD)]
    server.stand_still()  # all that they ask for is there when it goes on
    for sock in socks:
        sock.send(encode("QPEEK", "shown", 1) * 100)
    server.go_on()
    until(lambda: int(wire.info("clients")["evicted_clients"]) > CROWD // 4)
    for sock in socks:
        sock.close()
    most = peak_bytes(server)
    print(f"{size} bytes: {fixed / MB:.0f} MB at the start, {most / MB:.0f} MB at most")
    assert 0.7 * MOST < most < fixed + 1.25 * MOST
    assert wire("DEBUG", "CHECK") == b"OK"
