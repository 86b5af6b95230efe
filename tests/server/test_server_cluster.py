"""Real nodes that meet, replicate, stop and go away."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab import RealCluster, cluster_info, info, reachable
from raw_resp import NULL, Err, Wire, encode
from until import until

LONG_MS = 60_000
SECRETS = (
    "kY3vR8wQz1LmN5tXb7cD2fGh4jPs6aEu0oHi9ZyVxWq",
    "Zp0aX9sLw8dKe7fJr6gHt5yGu4iFo3pDq2zSx1cVb_M",
)


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealCluster]:
    """Three nodes that nobody harms."""
    cluster = RealCluster(tmp_path_factory.mktemp("three"), 3)
    try:
        yield cluster.start()
    finally:
        cluster.end()


@pytest.fixture
def own(tmp_path: Path) -> Iterator[list[RealCluster]]:
    """Clusters of one test; what is put in is stopped."""
    clusters: list[RealCluster] = []
    yield clusters
    for cluster in clusters:
        for node in cluster.nodes:
            if node.process is not None and node.process.poll() is None:
                node.signal(signal.SIGCONT)
        cluster.end()


def test_copies_are_on_every_node(three: RealCluster) -> None:
    """R1.1: REPLICATE: the smaller of `default-replicate` and the number of reachable nodes plus
    this one."""
    wire = three.wire(1)
    job = wire.add("everywhere", "body")
    shown = [three.wire(number).show(job) for number in range(3)]
    assert [one["repl"] for one in shown] == [3, 3, 3]
    assert [one["body"] for one in shown] == [b"body"] * 3
    assert sorted(one["state"] for one in shown) == [b"active", b"active", b"queued"]


def test_replies_of_a_pipeline_keep_their_order(three: RealCluster) -> None:
    """C3.10: Replies keep the order of the commands."""
    wire, other = three.wire(0), three.wire(0)
    count = 1000
    pipeline = b"".join(
        [
            encode("ADDJOB", "piped", f"{i}", LONG_MS, "REPLICATE", 2)
            + (encode("PING", f"{i}") if i % 7 == 0 else b"")
            for i in range(count)
        ]
    )
    wire.raw(pipeline)
    for i in range(count):
        job_id = wire.read()
        assert job_id.startswith(b"D-"), job_id
        if i % 100 == 0:
            assert other.show(job_id.decode())["body"] == b"%d" % i
        if i % 7 == 0:
            assert wire.read() == b"%d" % i
    assert wire("QLEN", "piped") == count


def test_with_new_when_copies_are_made(three: RealCluster) -> None:
    """Z4.7 With WITHNEW the reply is an array of the id and 1, or 0"""
    wire = three.wire(0)
    words = ["ADDJOB", "keys", "b", LONG_MS, "REPLICATE", 3, "WITHNEW", "DEDUPE"]
    wire.raw(b"".join(encode(*words, key) for key in ("a", "a", "b", "b")) + encode("PING"))
    first, again, other, other_again, pong = (wire.read() for _ in range(5))
    assert (first[1], again, other[1], other_again) == (1, [first[0], 0], 1, [other[0], 0])
    assert pong == b"PONG"
    wire.raw(encode("CLIENT", "REPLY", "SKIP") + encode(*words, "c") + encode(*words, "c"))
    assert wire.read()[1] == 0
    assert wire("ADDJOB", "keys", "b", LONG_MS, "REPLICATE", 3) not in (None, first[0])


def test_hello_lists_the_nodes(three: RealCluster) -> None:
    """C5.1: for each known node an array of id, address, port and priority, all bulk strings."""
    version, node_id, *nodes = three.wire(0)("HELLO")
    assert version == 1 and len(nodes) == 3
    assert {node[2] for node in nodes} == {b"%d" % one.port for one in three.nodes}
    assert {node[3] for node in nodes} == {b"1"}
    assert node_id in {node[0] for node in nodes}
    for _, address, port, _ in nodes[1:]:
        assert address == b"127.0.0.1" and port


def test_info_tells_of_links_and_messages(three: RealCluster) -> None:
    wire = three.wire(0)
    wire.add("counted")
    bus = info(wire, "bus")
    assert bus["bus_links"] == "2"
    assert int(bus["bus_out_repljob"]) >= 2 and int(bus["bus_in_gotjob"]) >= 1
    assert int(bus["bus_in_bytes"]) > 0 < int(bus["bus_out_bytes"])
    cluster = info(wire, "cluster")
    assert cluster["cluster_reachable_nodes"] == "2" and cluster["cluster_known_nodes"] == "3"


def test_a_node_that_was_killed_is_not_waited_for(tmp_path: Path, own: list[RealCluster]) -> None:
    """K4.4 A node of the cluster is expected if it is not suspected, failed or leaving: it is
    reachable, or may be so soon."""
    cluster = RealCluster(tmp_path, 3, "--cluster-node-timeout", 1_000)
    own.append(cluster)
    cluster.start()
    wire = cluster.wire(0)
    cluster.nodes[2].kill()
    until(lambda: reachable(wire) == 1)
    assert wire.show(wire.add())["repl"] == 2
    for _ in range(2):  # the first waits until the node is suspected
        refused = wire("ADDJOB", "q", "b", 0, "REPLICATE", 3)
        # R1.8, or R5.3 of one that began before
        known = ("NOREPL Not enough reachable nodes", "NOREPL Too few nodes are left")
        assert isinstance(refused, Err) and refused.startswith(known)
    cluster.nodes[2].start()
    cluster.wait_formed()
    assert wire.show(wire.add())["repl"] == 3


def test_producers_wait_while_nodes_restart(tmp_path: Path, own: list[RealCluster]) -> None:
    """K4.4 A restarting node is expected until it was silent for `cluster-node-timeout`."""
    cluster = RealCluster(tmp_path, 3)
    own.append(cluster)
    cluster.start()
    for number in (1, 2):
        wire = cluster.wire(0)
        cluster.nodes[number].kill()
        until(lambda wire=wire: reachable(wire) == 1)
        wire.send("ADDJOB", "q", "b", LONG_MS, "REPLICATE", 3)
        late = cluster.wire(0)("ADDJOB", "q", "b", 100, "REPLICATE", 3)
        assert isinstance(late, Err) and late.startswith("NOREPL Timeout reached")
        cluster.nodes[number].start()
        assert isinstance(wire.read(), bytes)


def test_a_stopped_node_holds_producers_back(tmp_path: Path, own: list[RealCluster]) -> None:
    """B2.4 If too few other nodes are left for an ADDJOB, it waits for enough of them, or for
    its timeout, with the error of R5.1.
    """
    cluster = RealCluster(
        tmp_path, 2, "--bus-buffer-limit", "8mb", "--cluster-node-timeout", 60_000
    )
    own.append(cluster)
    cluster.start()
    wire, other = cluster.wire(0), cluster.wire(0)
    cluster.nodes[1].signal(signal.SIGSTOP)
    count = 1000
    command = encode("ADDJOB", "q", "x" * 50_000, 0, "REPLICATE", 2)
    sender = threading.Thread(target=wire.raw, args=(command * count,))
    sender.start()
    bus = until(lambda: stalled(info(other, "bus")))
    assert int(bus["bus_waiting_bytes"]) < 8 << 20
    assert other("PING") == b"PONG"
    late = other("ADDJOB", "q", "late", 100, "REPLICATE", 2)
    assert isinstance(late, Err) and late.startswith("NOREPL Timeout reached")
    assert isinstance(other("ADDJOB", "q", "alone", 0, "REPLICATE", 1), bytes)
    assert sender.is_alive(), "all of it was read"
    cluster.nodes[1].signal(signal.SIGCONT)
    for _ in range(count):
        assert wire.read().startswith(b"D-")
    sender.join()
    assert info(other, "bus")["bus_closed_overfull"] == "0"


def stalled(bus: dict[str, str]) -> dict[str, str] | None:
    """The section, once a producer waits for room."""
    return bus if bus["bus_producers_without_room"] == "1" else None


def test_a_producer_that_leaves_takes_its_job_along(tmp_path: Path, own: list[RealCluster]) -> None:
    """R7.1 A client disconnects while its ADDJOB waits: as R5.2."""
    cluster = RealCluster(tmp_path, 2, "--cluster-node-timeout", 60_000)
    own.append(cluster)
    cluster.start()
    wire, other = cluster.wire(0), cluster.wire(0)
    cluster.nodes[1].signal(signal.SIGSTOP)
    wire.send("ADDJOB", "q", "body", 0, "REPLICATE", 2)
    until(lambda: info(other, "jobs")["registered_jobs"] == "1")
    wire.close()
    until(lambda: info(other, "jobs")["registered_jobs"] == "0")
    cluster.nodes[1].signal(signal.SIGCONT)
    there = cluster.wire(1)
    until(lambda: int(info(there, "bus").get("bus_in_deljob", "0")) > 0)
    assert info(there, "jobs")["registered_jobs"] == "0"
    assert there("GETJOB", "NOHANG", "FROM", "q") is NULL


def test_a_wrong_secret_lets_nobody_in(tmp_path: Path, own: list[RealCluster]) -> None:
    """B1.1 Each replies with a keyed code over both challenges under the cluster secret."""
    one = RealCluster(tmp_path / "a", 1, "--cluster-secret", SECRETS[0])
    two = RealCluster(tmp_path / "b", 1, "--cluster-secret", SECRETS[1])
    own += [one, two]
    for cluster in own:
        cluster.nodes[0].start()
    wire = one.wire(0)
    there = two.nodes[0]
    assert wire("CLUSTER", "MEET", "127.0.0.1", there.port, there.bus_port) == b"OK"
    refused = until(lambda: [line for line in nodes(wire) if "wrong secret" in line])
    assert "handshake" in refused[0]
    assert cluster_info(wire)["cluster_known_nodes"] == "1"
    assert cluster_info(two.wire(0))["cluster_known_nodes"] == "1"
    for node in (one.nodes[0], there):
        assert SECRETS[0] not in node.log() and SECRETS[1] not in node.log()
    shown = repr(wire("CONFIG", "GET", "*"))
    assert SECRETS[0] not in shown and "********" in shown


def nodes(wire: Wire) -> list[str]:
    """The lines of CLUSTER NODES."""
    lines: list[str] = wire("CLUSTER", "NODES").decode().splitlines()
    return lines


def as_user(cluster: RealCluster, number: int, user: str) -> Wire:
    wire = cluster.wire(number)
    wire("ACL", "SETUSER", user, "on", "nopass", "+@all", "~*", f"tenant:{user}s")
    assert wire("AUTH", user, "x") == b"OK"
    return wire


def test_ids_of_a_tenant_at_nodes_without_the_job(three: RealCluster) -> None:
    """N10.3 So is an id that this node does not know, unless it was made for a job of that tenant
    (G6.7).
    """
    anns = [as_user(three, number, "ann") for number in range(3)]
    bobs = [as_user(three, number, "bob") for number in range(3)]
    ids = [anns[0].add("q", "of ann", "REPLICATE", 1, "RETRY", 60) for _ in range(2)]
    unknown = Err("NOJOB Job not known in the context of this node.")
    for bob in bobs:
        assert bob("RESULT", ids[0]) == unknown
        assert bob("CANCEL", *ids) == [NULL, NULL]
        assert [bob(word, ids[0]) for word in ("ACKJOB", "FASTACK", "DELJOB")] == [0, 0, 0]
        assert bob.get("q") == []
    assert anns[0]("QLEN", "q") == 2
    assert anns[2]("RESULT", ids[0])[:2] == [b"state", b"waiting"]
    assert anns[1]("CANCEL", ids[0]) == [b"ended"]
    assert anns[2]("ACKJOB", ids[1]) == 0  # not known here: the others are told (A3.4)
    until(lambda: anns[0]("QLEN", "q") == 0)
    later = anns[0].add("q", "of ann", "REPLICATE", 1, "RETRY", 60)
    until(lambda: anns[1].get("q") == [later])  # from the other node (F1)
