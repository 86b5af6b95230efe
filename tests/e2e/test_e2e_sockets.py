"""A real server: its sockets, big bodies, every cut of a stream on the way, many at once."""

from __future__ import annotations

import os
import socket
import stat
import threading
from collections.abc import Callable

import pytest

from lab import RealServer, run_server
from raw_resp import Wire, encode
from until import until

MakeServer = Callable[..., RealServer]
MB = 1 << 20


def test_unix_socket(make_server: MakeServer) -> None:
    """Instead of a port; a stale file of a crash is replaced, a live one is respected."""
    server = make_server("--unixsocket", "s.sock", "--set", "unixsocketperm=700")
    path = server.directory / "s.sock"
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o700
    with Wire(0, str(path)) as wire:
        job_id = wire.add("q")
        assert b"addr=unix:" in wire("CLIENT", "LIST")
    with Wire(0, str(path)) as wire:
        assert wire.get("q") == [job_id]
    other = path.parent.parent / "other"
    other.mkdir()
    status, text = run_server(other, "--port", 0, "--unixsocket", str(path))
    assert status == 1
    assert "another server answers there" in text
    server.kill()
    server.start()
    with Wire(0, str(path)) as wire:
        assert wire("PING") == b"PONG"


def test_protected_without_a_password(make_server: MakeServer) -> None:
    """C1.3 Without a password only loopback is listened on, unless one says otherwise."""
    server = make_server()
    assert server.wire()("PING") == b"PONG"
    addresses = {info[4][0] for info in socket.getaddrinfo(socket.gethostname(), server.port)}
    for address in addresses - {"127.0.0.1", "127.0.1.1", "::1"}:
        with pytest.raises(OSError):
            socket.create_connection((str(address), server.port), 2)


@pytest.mark.parametrize("size", [0, 1, 65_535, 65_536, 65_537, 5 * MB])
def test_bodies_of_all_sizes(node: RealServer, size: int) -> None:
    body = os.urandom(size)
    with Wire(node.port) as wire:
        job_id = wire.add(f"size{size}", body)
        assert wire("GETJOB", "FROM", f"size{size}") == [
            [b"size%d" % size, job_id.encode(), body],
        ]
        assert wire.show(job_id)["body"] == body
        assert wire("ACKJOB", job_id) == 1


def test_byte_by_byte(node: RealServer) -> None:
    """C2.3 The commands do not depend on how the stream is split into reads."""
    data = encode("ADDJOB", "bytes", "a\r\nb", 0) + b"QLEN bytes\r\n" + encode("PING", "")
    with Wire(node.port) as wire:
        for i in range(len(data)):
            wire.raw(data[i : i + 1])
        assert len(wire.read()) == 40
        assert wire.read() == 1
        assert wire.read() == b""


def test_all_at_once(node: RealServer) -> None:
    """One client's deep pipeline while it does not read yet; others are served."""
    deep, other = Wire(node.port), Wire(node.port)
    count = 20_000
    data = b"".join(encode("ADDJOB", "deep", str(i), 0) for i in range(count))
    sender = threading.Thread(target=deep.raw, args=(data,))
    sender.start()
    until(lambda: other("QLEN", "deep") > 10)
    assert other("PING") == b"PONG"
    ids = [deep.read() for _ in range(count)]
    sender.join()
    assert len(set(ids)) == count
    assert other("QLEN", "deep") == count
    jobs = []
    while len(jobs) < count:  # 5,000 in one reply (L2)
        jobs += other("GETJOB", "COUNT", count, "FROM", "deep")
    assert [int(job[2]) for job in jobs] == list(range(count))
    assert other("ACKJOB", *[job[1] for job in jobs]) == count
    deep.close()
    other.close()
