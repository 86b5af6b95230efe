"""Homes of tubes in a real cluster, over both doors: error 7, copies, master and replica."""

from __future__ import annotations

import signal
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from iproto_raw import Conn, Said
from lab import RealCluster, RealServer, free_port
from raw_resp import Wire
from until import until

TIMEOUT_MS = 5_000  # on a slow machine, too, nobody is taken for dead who lives
READ_ONLY = "Can't modify data because this instance is in read-only mode"


class Node:
    """One of them, with a connection at each door."""

    def __init__(self, server: RealServer, iproto_port: int) -> None:
        self.server = server
        self.iproto_port = iproto_port
        self.wire = server.wire()
        self.conn = Conn(socket.create_connection(("127.0.0.1", iproto_port)))
        self.id: str = self.wire("CLUSTER", "MYID").decode()

    def state(self, *tube: str) -> str:
        found = self.wire("TUBE", "STATE", *tube)
        return found.decode() if isinstance(found, bytes) else str(found)

    def home(self, tube: str) -> dict[str, Any]:
        flat = self.wire("TUBE", "HOME", tube)
        return {name.decode(): value for name, value in zip(flat[::2], flat[1::2], strict=True)}

    def is_copied(self, tube: str) -> bool:
        copies = self.home(tube)["copies"]
        return all(lag == 0 and complete == 1 for _, _, lag, complete in copies)


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Node]]:
    """Three nodes; each test has tubes of its own, and leaves the nodes as they were."""
    place = tmp_path_factory.mktemp("cluster")
    cluster = RealCluster(place, 3, "--cluster-node-timeout", TIMEOUT_MS)
    ports = [free_port() for _ in cluster.nodes]
    for server, port in zip(cluster.nodes, ports, strict=True):
        server.flags += ["--iproto-port", str(port)]
    try:
        cluster.start()
        yield [Node(server, port) for server, port in zip(cluster.nodes, ports, strict=True)]
        for server in cluster.nodes:
            with Wire(server.port) as wire:
                assert wire("DEBUG", "CHECK") == b"OK"
    finally:
        cluster.end()


def make(nodes: list[Node], name: str, type: str, *options: str | int) -> None:
    """A tube with its home at the first node, of which every copy is complete."""
    first = nodes[0]
    assert first.wire("TUBE", "CREATE", name, type, "ALONE", *options) == b"OK"
    until(lambda: first.is_copied(name))


def test_error_7_names_the_home(nodes: list[Node]) -> None:
    """T17.4, and the port is IPROTO's."""
    make(nodes, "seven", "fifo")
    first, second = nodes[:2]
    text = f"{READ_ONLY}: the leader of tube 'seven' is 127.0.0.1:{first.iproto_port}"
    for method in ("put", "take", "ack", "release", "bury", "peek", "kick", "truncate", "drop"):
        said = second.conn.call(f"queue.tube.seven:{method}", 1)
        assert said[1:] == (7, text), method
    assert second.conn.call("queue.tube", "seven") == [True]
    assert second.conn.call("queue.statistics", "seven")[0]["calls"]["put"] == 0
    assert first.conn.call("queue.tube.seven:put", "x") == [[0, "r", "x"]]
    again = second.conn.call("queue.create_tube", "seven", "fifo", {"if_not_exists": True})
    assert again[1:] == (7, text)


@pytest.mark.slow  # the error of the test above, for the reason of test_server_tube_homes.py
def test_a_home_that_may_not_run(nodes: list[Node]) -> None:
    """T17.4, T19.3: error 7, too, and why."""
    make(nodes, "few", "fifo")
    first, *others = nodes
    assert first.wire("CONFIG", "SET", "cluster-node-timeout", 500) == b"OK"
    try:
        for one in others:
            one.server.signal(signal.SIGSTOP)
        until(lambda: first.state("few") == "WAITING")
        text = f"{READ_ONLY}: Tube 'few': this node reaches 1 of 3 nodes"
        assert first.conn.call("queue.tube.few:put", 1)[1:] == (7, text)
        assert first.conn.call("queue.tube.few:take", 0)[1:] == (7, text)
    finally:
        for one in others:
            one.server.signal(signal.SIGCONT)
        assert first.wire("CONFIG", "SET", "cluster-node-timeout", TIMEOUT_MS) == b"OK"
    until(lambda: first.state("few") == "RUNNING")
    until(lambda: all(one.state() == "RUNNING" for one in nodes))
    until(lambda: first.is_copied("few"))
    assert first.conn.call("queue.tube.few:put", 1) == [[0, "r", 1]]


def test_who_waits_over_iproto_is_told_that_the_home_moves(nodes: list[Node]) -> None:
    """T20.2: the take of one who waits ends with error 7; he takes at the new home."""
    make(nodes, "waits", "limfifottl", "CAPACITY", 1)
    first, second = nodes[:2]
    sync = first.conn.ask_call("queue.tube.waits:take")
    until(lambda: first.wire("TUBE", "INFO", "waits")[31] == 1)
    assert first.wire("TUBE", "HOME", "waits", second.id[:9]) == b"OK"
    said = first.conn.hear(sync)
    text = f"{READ_ONLY}: the leader of tube 'waits' is 127.0.0.1:{second.iproto_port}"
    assert said[1:] == (7, text)
    assert second.conn.call("queue.tube.waits:put", "x") == [[0, "r", "x"]]
    full = second.conn.ask_call("queue.tube.waits:put", "y", {"timeout": 30})
    until(lambda: second.wire("TUBE", "INFO", "waits")[33] == 1)
    assert second.wire("TUBE", "HOME", "waits", first.id) == b"OK"
    assert second.conn.hear(full).code == 7
    assert first.conn.call("queue.tube.waits:take", 0) == [[0, "t", "x"]]


def test_a_tube_is_made_when_all_have_answered(nodes: list[Node]) -> None:
    """T17.5, T15.11: over both doors; what another node has is refused."""
    first, second, third = nodes
    assert first.conn.call("queue.create_tube", "both", "fifo", {"sync": 4}).code == 32
    assert first.conn.call("queue.create_tube", "both", "fifo", {"sync": 2, "alone": True}) == []
    assert first.home("both")["sync"] == 2
    until(lambda: third.state("both") == "INIT")
    assert second.conn.call("queue.create_tube", "both", "fifo")[1] == 32
    assert second.wire("TUBE", "CREATE", "both", "fifo").startswith(
        "ERR a tube or a queue 'both' already exists: "
    )
    refused = second.wire("TUBE", "CREATE", "both", "fifo", "IFNOTEXISTS")
    at = f"127.0.0.1:{first.server.port}"
    assert refused == f"TUBEHOME {at} Tube 'both' has its leader there"
    sent = [second.wire.send("TUBE", "CREATE", f"many{n}", "fifo", "ALONE") for n in range(20)]
    assert [second.wire.read() for _ in sent] == [b"OK"] * 20  # one after the other (T15.11)


def test_answers_wait_for_copies(nodes: list[Node]) -> None:
    """T18.5, T15.11: many side by side, answered in their order."""
    make(nodes, "sync", "fifottl", "SYNC", 3)
    first = nodes[0]
    wire = first.wire
    for number in range(50):
        wire.send("TUBE", "PUT", "sync", number)
    wire.send("PING")
    assert [wire.read()[0] for _ in range(50)] == list(range(50))
    assert wire.read() == b"PONG"
    assert first.is_copied("sync"), "an answer came before the copies"
    task = wire("TUBE", "TAKE", "sync", "TIMEOUT", 0)
    assert wire("TUBE", "ACK", "sync", task[0])[1] == b"DONE"
    assert first.is_copied("sync")
    assert isinstance(wire("ADDJOB", "sync", "x", 0), bytes)
    assert first.is_copied("sync")
    assert first.conn.call("queue.tube.sync:put", "y") == [[51, "r", "y"]]
    assert first.is_copied("sync")


def test_a_copy_that_does_not_come(nodes: list[Node]) -> None:
    """T18.5: done here, but not yet on n nodes; and refused before it does anything."""
    make(nodes, "slow", "fifo", "SYNC", 3)
    first, _, third = nodes
    assert first.wire("CONFIG", "SET", "cluster-node-timeout", 1_500) == b"OK"
    third.server.signal(signal.SIGSTOP)
    try:
        sync = first.conn.ask_call("queue.tube.slow:put", "b")
        late = "done here, but not yet on 3 nodes: do not repeat it"
        assert first.wire("TUBE", "PUT", "slow", "a") == f"FEWCOPIES {late}"
        assert first.conn.hear(sync) == Said(sync, 7, late)
        refused = "NOREPL Not enough reachable nodes for the requested replication level"
        until(lambda: first.wire("CLUSTER", "INFO").find(b"reachable_nodes:1") > 0)
        assert first.wire("TUBE", "PUT", "slow", "c") == refused
        assert first.conn.call("queue.tube.slow:put", "c")[1:] == (
            7,
            refused.removeprefix("NOREPL "),
        )
        assert first.wire("TUBE", "TAKE", "slow")[0] == 0  # is not answered later for it
        assert first.wire("TUBE", "ACK", "slow", 0) == refused
    finally:
        third.server.signal(signal.SIGCONT)
        assert first.wire("CONFIG", "SET", "cluster-node-timeout", TIMEOUT_MS) == b"OK"
    until(lambda: first.is_copied("slow"), third.server.log)
    until(lambda: first.wire("CLUSTER", "INFO").find(b"reachable_nodes:2") > 0)
    assert first.wire("TUBE", "ACK", "slow", 0)[1] == b"DONE"
    assert first.wire("TUBE", "INFO", "slow")[21] == 1  # the put that was too late


def test_who_goes_while_copies_are_made(nodes: list[Node]) -> None:
    """T15.11 If the client disconnects, what was begun continues."""
    make(nodes, "gone", "fifo", "SYNC", 3)
    first, _, third = nodes
    third.server.signal(signal.SIGSTOP)
    try:
        with Wire(first.server.port) as wire:
            for body in "abc":
                wire.send("TUBE", "PUT", "gone", body)
            until(lambda: first.wire("TUBE", "INFO", "gone")[21] == 3)
            assert wire.is_quiet(0.001), "they run side by side, not one after the other"
        assert first.wire("DEBUG", "CHECK") == b"OK"
    finally:
        third.server.signal(signal.SIGCONT)
    until(lambda: first.is_copied("gone"), third.server.log)


def test_master_and_replica(nodes: list[Node]) -> None:
    """T19.5: the switchover of the manual of Tarantool's queue, and its states."""
    master, replica, other = nodes
    for node in nodes:
        node.conn.call("queue.cfg", {"ttr": 300, "in_replicaset": True})
    assert replica.wire("CONFIG", "SET", "read-only", "yes") == b"OK"
    assert other.wire("CONFIG", "SET", "read-only", "yes") == b"OK"
    make(nodes, "sw", "fifottl")
    for number in range(3):
        master.conn.call("queue.tube.sw:put", number)
    uuid = master.wire("TUBE", "IDENTIFY")
    assert master.wire("TUBE", "TAKE", "sw")[:2] == [0, b"TAKEN"]
    assert (master.state(), master.state("sw")) == ("RUNNING", "RUNNING")
    assert replica.state() == "WAITING"  # it was no replica from its start on
    assert replica.wire("CONFIG", "SET", "read-only", "no") == b"OK"
    assert master.wire("CONFIG", "SET", "read-only", "yes") == b"OK"
    until(lambda: replica.state("sw") == "RUNNING", replica.server.log)
    assert (master.state(), master.state("sw")) == ("WAITING", "WAITING")
    assert replica.state() == "RUNNING"
    at = f"127.0.0.1:{replica.server.port}"
    refused = master.wire("TUBE", "ACK", "sw", 0)
    assert refused == f"TUBEHOME {at} Tube 'sw' has its leader there"
    assert replica.wire("TUBE", "ACK", "sw", 0) == "NOTTAKEN Task was not taken"
    assert replica.wire("TUBE", "IDENTIFY", uuid) == uuid
    assert replica.wire("TUBE", "ACK", "sw", 0)[1] == b"DONE"
    assert master.wire("TUBE", "CREATE", "new", "fifo").startswith("READONLY ")
    for node in nodes:
        assert node.wire("CONFIG", "SET", "read-only", "no") == b"OK"
        until(lambda node=node: node.state() == "RUNNING")


def test_a_node_that_leaves_gives_its_tubes_away(nodes: list[Node]) -> None:
    """T19.5, K7: it is safe to stop when they are elsewhere."""
    make(nodes, "leave", "fifo")
    first = nodes[0]
    assert first.wire("TUBE", "PUT", "leave", "x")[0] == 0
    assert first.wire("CLUSTER", "LEAVING", "yes") == b"OK"
    try:
        until(lambda: first.wire("CLUSTER", "INFO").find(b"safe_to_stop:yes") > 0)
        assert first.state("leave") == "WAITING"
        # T20.4: it runs there when the disk has the epoch
        until(lambda: [node.state("leave") for node in nodes].count("RUNNING") == 1)
        (home,) = [node for node in nodes if node.state("leave") == "RUNNING"]
        assert home.wire("TUBE", "PEEK", "leave", 0)[2] == b"x"
    finally:
        assert first.wire("CLUSTER", "LEAVING", "no") == b"OK"
