"""A home whose process is stopped while another node takes its tube (SPEC T19.7)."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab import RealCluster, RealServer, info
from raw_resp import NULL, Err, Wire, encode
from until import until

TIMEOUT_MS = 700
# the second one, if what the other node said of the tube lay in the link
REFUSED = (b"-NOQUORUM Tube 't': this node stood still for ", b"-TUBEHOME ")


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[RealCluster]:
    """Two nodes with a short `cluster-node-timeout`; the first one goes on if it was stopped."""
    cluster = RealCluster(tmp_path / "pair", 2, "--cluster-node-timeout", TIMEOUT_MS)
    yield cluster.start()
    for node in cluster.nodes:
        if node.process is not None and node.process.poll() is None:
            os.kill(node.process.pid, signal.SIGCONT)
    cluster.end()


def stop(node: RealServer) -> int:
    """The process stands still; its number."""
    assert node.process is not None
    pid = node.process.pid
    os.kill(pid, signal.SIGSTOP)
    until(lambda: Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "T")
    return pid


def state(node: RealServer, tube: str) -> object:
    with Wire(node.port) as wire:
        return wire("TUBE", "STATE", tube)


def answer(sock: socket.socket) -> bytes:
    """What the node says, up to a line's end; nothing if it closes the connection."""
    sock.settimeout(60)
    got = b""
    while not got.endswith(b"\r\n"):
        more = sock.recv(4096)
        if not more:
            break
        got += more
    return got


def test_a_stopped_home_answers_nothing_of_before(pair: RealCluster) -> None:
    """T19.7: a put, an ack and a take that waited in its sockets are refused."""
    home, other = pair.nodes
    with Wire(home.port) as wire:
        assert wire("TUBE", "CREATE", "t", "fifottl", "ALONE") == b"OK"
        for body in ("first", "second"):
            wire("TUBE", "PUT", "t", body)
    until(lambda: tasks(other) == 2, "give the other node copies")
    putter, waiter = socket.create_connection(("127.0.0.1", home.port)), Wire(home.port)
    worker = Wire(home.port)
    taken = worker("TUBE", "TAKE", "t", "TIMEOUT", 0)
    number = str(taken[0])
    waiter("TUBE", "CREATE", "empty", "fifo", "ALONE")
    until(lambda: state(other, "empty") == b"INIT", "tell the other node of the tube")
    taker = socket.create_connection(("127.0.0.1", home.port))
    taker.sendall(encode("TUBE", "TAKE", "empty", "TIMEOUT", "60"))
    until(lambda: blocked(home) == 1, "let the take wait")

    pid = stop(home)
    putter.sendall(encode("TUBE", "PUT", "t", "third"))
    worker.sock.sendall(encode("TUBE", "ACK", "t", number))
    with Wire(other.port) as wire:
        until(lambda: forced(wire, "t"), "let FORCE through")
        until(lambda: state(other, "t") == b"RUNNING", "run at the other node")
        again = [wire("TUBE", "TAKE", "t", "TIMEOUT", 0)[0] for _ in range(2)]
        assert int(number) in again, "the task was not handed out elsewhere"
        os.kill(pid, signal.SIGCONT)
        assert answer(putter).startswith(REFUSED)
        assert answer(worker.sock).startswith(REFUSED)
        until(lambda: state(home, "t") == b"WAITING")
        until(lambda: state(home, "empty") == b"RUNNING", "hear from the other node")
        with Wire(home.port) as late:
            late("TUBE", "PUT", "empty", "for who waited")
            assert info(late, "cluster")["standstills"] == "1"
        assert b"for who waited" in answer_of_take(taker)
        for one in again:
            assert isinstance(wire("TUBE", "ACK", "t", one), list)
        assert int(info(wire, "tubes")["tubes_tasks"]) == 0, "a put that was refused is there"
    for one in (putter, taker):
        one.close()
    waiter.close()
    worker.close()


def test_a_reply_that_was_made_before_a_standstill_is_not_sent(pair: RealCluster) -> None:
    """T19.7: the connection is closed; the tube runs again when the other node has answered."""
    home, other = pair.nodes
    with Wire(home.port) as wire:
        assert wire("TUBE", "CREATE", "t", "fifo", "ALONE") == b"OK"
    until(lambda: state(other, "t") == b"INIT", "tell the other node of the tube")
    with Wire(home.port) as wire:
        wire.sock.sendall(encode("TUBE", "PUT", "t", "x") + encode("DEBUG", "SLEEP", "1.2"))
        assert answer(wire.sock) == b""
    until(lambda: state(home, "t") == b"RUNNING")
    with Wire(home.port) as wire:
        assert wire("TUBE", "TAKE", "t", "TIMEOUT", 0)[2] == b"x"
        assert wire("DEBUG", "CHECK") == b"OK"


def test_other_nodes_are_heard_before_clients(pair: RealCluster) -> None:
    """G8.4: a job that another node has handed out meanwhile is not handed out again."""
    home, other = pair.nodes
    with Wire(home.port) as wire:
        id = wire("ADDJOB", "q", "x", 5000, "REPLICATE", 2, "RETRY", 1).decode()
    client = Wire(home.port)
    client("PING")
    with Wire(other.port) as wire:  # it keeps its link, however long the delivery takes
        assert wire("CONFIG", "SET", "cluster-node-timeout", 600_000) == b"OK"
    pid = stop(home)
    client.send("GETJOB", "NOHANG", "FROM", "q")  # it lies there before what the other node says
    with Wire(other.port) as wire:
        assert wire("GETJOB", "TIMEOUT", 15_000, "FROM", "q")[0][1].decode() == id
        assert wire("ACKJOB", id) == 1
    os.kill(pid, signal.SIGCONT)
    assert client.read() in ([], NULL)
    assert info(client, "cluster")["standstills"] == "1"
    client.close()


def tasks(node: RealServer) -> int:
    """Tasks of which the node has copies."""
    with Wire(node.port) as wire:
        return int(info(wire, "tubes")["tubes_copies"])


def blocked(node: RealServer) -> int:
    with Wire(node.port) as wire:
        return int(info(wire, "clients")["blocked_clients"])


def forced(wire: Wire, tube: str) -> bool:
    """Say FORCE to the node; it refuses while it reaches the home."""
    told = wire("TUBE", "HOME", tube, wire("CLUSTER", "MYID"), "FORCE")
    assert not isinstance(told, Err) or "is reachable" in told, told
    return not isinstance(told, Err)


def answer_of_take(sock: socket.socket) -> bytes:
    """All of a task that is handed out."""
    sock.settimeout(60)
    got = b""
    while b"for who waited" not in got:
        more = sock.recv(4096)
        assert more, f"closed after {got!r}"
        got += more
    return got
