"""Real nodes that leave, forget, restart, repair and are reset."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lab import RealCluster, cluster_info, info, reachable
from raw_resp import Err, Wire
from until import until

SECRET = ("--cluster-secret", "kY3vR8wQz1LmN5tXb7cD2fGh4jPs6aEu0oHi9ZyVxWq")


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[..., RealCluster]]:
    """Makes clusters that are stopped at the end."""
    made: list[RealCluster] = []

    def one(count: int, *flags: str | int) -> RealCluster:
        made.append(RealCluster(tmp_path / str(len(made)), count, *flags))
        return made[-1]

    yield one
    for cluster in made:
        cluster.end()


def node_id(wire: Wire) -> str:
    """CLUSTER MYID."""
    return str(wire("CLUSTER", "MYID").decode())


def lines(wire: Wire) -> list[str]:
    """CLUSTER NODES."""
    return [str(line) for line in wire("CLUSTER", "NODES").decode().splitlines()]


def wait_kept(cluster: RealCluster) -> None:
    """Wait until each node has written down who the others are."""
    for node in cluster.nodes:
        kept = node.directory / "nodes.conf"
        until(lambda kept=kept: kept.read_text().count("bus:") == len(cluster.nodes) - 1)


def test_nodes_find_each_other_again(make: Callable[..., RealCluster]) -> None:
    """K1.1: A node id is made at the first start and stored. The incarnation is a stored start
    counter and 64 random bits; it is stored before the bus opens."""
    cluster = make(3, *SECRET).start()
    ids = [node_id(cluster.wire(i)) for i in range(3)]
    wait_kept(cluster)
    for node in cluster.nodes:
        node.kill()
    for node in cluster.nodes:
        node.start()
    cluster.wait_formed()
    assert [node_id(cluster.wire(i)) for i in range(3)] == ids
    kept = (cluster.nodes[0].directory / "nodes.conf").read_text()
    assert "vars life 2 " in kept
    for node in cluster.nodes:
        assert SECRET[1] not in node.log() + kept


def test_leaving(make: Callable[..., RealCluster]) -> None:
    """K7.3 INFO shows how much is left. At 0 the node is safe to stop: its data may be deleted."""
    cluster = make(3).start()
    wire, other = cluster.wire(0), cluster.wire(1)
    jobs = [wire.add("q", f"{i}", "REPLICATE", 2) for i in range(50)]
    wire.add("once", "b", "RETRY", 0, "REPLICATE", 1)
    waiting = cluster.wire(0)
    waiting.send("GETJOB", "FROM", "none")
    until(lambda: info(wire, "clients")["blocked_clients"] == "1")
    assert wire("CLUSTER", "LEAVING") == b"no"
    assert info(wire, "cluster")["cluster_safe_to_stop"] == "no"
    assert wire("CLUSTER", "LEAVING", "yes") == b"OK"
    left = waiting.read()
    assert isinstance(left, Err) and left.startswith("LEAVING ")
    until(lambda: info(wire, "cluster")["cluster_safe_to_stop"] == "yes")
    assert info(wire, "cluster")["cluster_drain_left"] == "0"
    until(lambda: [row for row in other("HELLO")[2:] if row[3] == b"100"])
    assert reachable(other) == 1
    cluster.nodes[0].signal(signal.SIGTERM)
    assert cluster.nodes[0].wait() == 0
    found = [job for i in (1, 2) for job in cluster.wire(i).get("q", "once", count=100)]
    assert len(found) == 51 and set(jobs) <= set(found)


def test_forget(make: Callable[..., RealCluster]) -> None:
    """K6.1: The node is removed under a number that spreads with the heartbeats"""
    cluster = make(3).start()
    wires = [cluster.wire(i) for i in range(3)]
    ids = [node_id(wire) for wire in wires]
    assert wires[0]("CLUSTER", "FORGET", ids[0]).startswith("ERR I tried hard")
    assert wires[0]("CLUSTER", "FORGET", "f" * 40).startswith("ERR Unknown node")
    wait_kept(cluster)
    cluster.nodes[2].kill()
    assert wires[0]("CLUSTER", "FORGET", ids[2]) == b"OK"
    for wire in wires[:2]:
        until(lambda wire=wire: cluster_info(wire)["cluster_known_nodes"] == "2")
        assert not [line for line in lines(wire) if line.startswith(ids[2])]
    cluster.nodes[2].start()
    back = cluster.wire(2)
    until(lambda: "forgotten" in cluster.nodes[2].log())
    assert reachable(back) == 0
    there = cluster.nodes[2]
    assert wires[0]("CLUSTER", "MEET", "127.0.0.1", there.port, there.bus_port) == b"OK"
    cluster.wait_formed()


def test_repair(make: Callable[..., RealCluster]) -> None:
    """K5.5: `CLUSTER REPAIR` shows how many jobs wait. When all nodes say 0, the next
    node may be restarted."""
    cluster = make(3).start()
    wire = cluster.wire(0)
    jobs = [wire.add("q", f"{i}", "REPLICATE", 3) for i in range(20)]
    for number in (1, 2):
        cluster.nodes[number].kill()
        cluster.nodes[number].start()
        cluster.wait_formed()
        for i in range(3):
            there = cluster.wire(i)
            until(lambda there=there: there("CLUSTER", "REPAIR") == b"done")
    for number in (1, 2):
        there = cluster.wire(number)
        until(lambda there=there: all(there.show(job) for job in jobs))


def test_reset(make: Callable[..., RealCluster]) -> None:
    """S6.6: `RESET SOFT` drops jobs, queues and the other nodes"""
    cluster = make(2).start()
    wire, other = cluster.wire(0), cluster.wire(1)
    before = node_id(wire)
    wire.add("q", "b", "REPLICATE", 2)
    assert wire("CLUSTER", "RESET", "SOFT") == b"OK"
    assert node_id(wire) == before
    assert info(wire, "jobs")["registered_jobs"] == "0"
    assert cluster_info(wire)["cluster_known_nodes"] == "1"
    until(lambda: reachable(other) == 0)
    assert wire("CLUSTER", "RESET", "HARD") == b"OK"
    assert node_id(wire) != before and lines(wire)[0].startswith(node_id(wire))
    there = cluster.nodes[1]
    assert wire("CLUSTER", "MEET", "localhost", there.port, there.bus_port) == b"OK"
    until(lambda: reachable(wire) == 1)
    job = wire.add("q", "b", "REPLICATE", 2)
    assert job.startswith(f"D-{node_id(wire)[:8]}") and other.show(job)["body"] == b"b"


def test_a_pause_for_all_reaches_who_joins_later(make: Callable[..., RealCluster]) -> None:
    """P1.7: With `bcast` PAUSE goes to every linked node"""
    cluster = make(3)
    for node in cluster.nodes:
        node.start()
    first, second, third = (cluster.wire(i) for i in range(3))
    near = cluster.nodes[1]
    assert first("CLUSTER", "MEET", "127.0.0.1", near.port, near.bus_port) == b"OK"
    until(lambda: reachable(first) == 1 == reachable(second))
    assert first("PAUSE", "q", "out", "bcast") == b"out"
    until(lambda: second("PAUSE", "q", "state") == b"out")
    assert third("PAUSE", "q", "state") == b"none"
    late = cluster.nodes[2]
    assert second("CLUSTER", "MEET", "127.0.0.1", late.port, late.bus_port) == b"OK"
    until(lambda: third("PAUSE", "q", "state") == b"out")


def test_a_node_that_stays_alone(make: Callable[..., RealCluster]) -> None:
    cluster = make(1, "--cluster-enabled", "no")
    node = cluster.nodes[0].start()
    wire = node.wire()
    assert node.bus_port == 0 and info(wire, "bus") == {"bus_enabled": "0"}
    assert wire("CLUSTER", "MEET", "127.0.0.1", 7711).startswith("ERR this node stays alone")
    assert wire.add()


def test_journals_of_several_nodes(make: Callable[..., RealCluster]) -> None:
    """Under `always` nothing acknowledged is lost, and an acked job does not come back."""
    cluster = make(3, "--appendonly", "yes", "--appendfsync", "always").start()
    wire = cluster.wire(0)
    jobs = [wire.add("q", f"{i}") for i in range(20)]
    done = wire.get("q", count=5)
    assert wire("ACKJOB", *done) == 5
    wait_kept(cluster)
    for node in cluster.nodes:
        node.kill()
    for node in cluster.nodes:
        node.start()
    cluster.wait_formed()
    left = set(jobs) - set(done)
    wire = cluster.wire(0)
    assert {job for job in jobs if wire.show(job).get("state") == b"queued"} == left
