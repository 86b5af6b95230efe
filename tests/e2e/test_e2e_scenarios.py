"""Twelve short stories in which a Disque cluster loses, doubles or resurrects jobs; ours do not.

Each is what somebody would do by hand on real nodes. The numbers after the names are those of
the flaws in SPEC.md's table of deviations.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lab import RealCluster, info
from raw_resp import NULL, Err, Wire
from until import until

MakeCluster = Callable[..., RealCluster]


@pytest.fixture
def make_cluster(tmp_path: Path) -> Iterator[MakeCluster]:
    """Start that many nodes that have met."""
    made: list[RealCluster] = []

    def make(count: int, *flags: str | int) -> RealCluster:
        place = tmp_path / f"cluster{len(made)}"
        cluster = RealCluster(place, count, "--cluster-node-timeout", 1000, *flags)
        made.append(cluster)
        return cluster.start()

    yield make
    for cluster in made:
        for node in cluster.nodes:
            if node.process is not None and node.process.poll() is None:
                node.signal(signal.SIGCONT)
        cluster.end()


def getjob(wire: Wire, *, timeout_ms: int = 1) -> list[bytes]:
    """The ids of up to 100 jobs of q."""
    reply = wire("GETJOB", "TIMEOUT", timeout_ms, "COUNT", 100, "FROM", "q")
    return [] if reply is NULL else [job_id for _, job_id, _ in reply]


def watch(wires: list[Wire], span_s: float) -> list[bytes]:
    """All that can be had from these nodes in the time."""
    end_s = time.monotonic() + span_s
    got = []
    while time.monotonic() < end_s:
        for wire in wires:
            got += getjob(wire, timeout_ms=20)
    return got


def registered(wire: Wire) -> int:
    """Jobs that the node knows."""
    return int(info(wire, "jobs")["registered_jobs"])


def show(wire: Wire, job_id: bytes) -> dict[str, Any]:
    """SHOW as a dict, empty for an unknown job."""
    reply = wire("SHOW", job_id)
    if reply is NULL:
        return {}
    return {name.decode(): value for name, value in zip(reply[::2], reply[1::2], strict=True)}


def repaired(cluster: RealCluster) -> bool:
    """Whether every node says that no job lacks a copy."""
    return all(cluster.wire(i)("CLUSTER", "REPAIR") in (b"done", 0) for i in range(3))


def test_1_an_ack_at_the_importer_is_final(make_cluster: MakeCluster) -> None:
    """Flaw 1: a job of A is taken and acked at B; A must not deliver it again."""
    cluster = make_cluster(2)
    a, b = cluster.wire(0), cluster.wire(1)
    job_id = a("ADDJOB", "q", "x", 2000, "REPLICATE", 1, "RETRY", 2)
    assert getjob(b, timeout_ms=3000) == [job_id]
    assert b("ACKJOB", job_id) == 1
    assert watch([a, b], 3.5) == []
    until(lambda: registered(a) == registered(b) == 0)


def test_2_numbers_do_not_wrap(make_cluster: MakeCluster) -> None:
    """Flaw 14: TTL and RETRY of 2^32 are refused, not taken for 0."""
    a = make_cluster(2).wire(0)
    for option in ("TTL", "RETRY"):
        reply = a("ADDJOB", "q", "x", 1000, option, 1 << 32)
        assert isinstance(reply, Err)
        assert reply.startswith(f"ERR {option}")
    assert registered(a) == 0


def test_3_working_does_not_end_a_delay(make_cluster: MakeCluster) -> None:
    """Flaw 15: WORKING on a job with DELAY 3600 RETRY 1 is refused, and it stays delayed."""
    a = make_cluster(2).wire(0)
    job_id = a("ADDJOB", "q", "x", 1000, "DELAY", 3600, "RETRY", 1)
    reply = a("WORKING", job_id)
    assert isinstance(reply, Err)
    assert reply.startswith("NOTDELIVERED")
    assert watch([a], 1.5) == []


def test_4_a_rolling_restart_loses_no_copy(make_cluster: MakeCluster) -> None:
    """Flaw 3: three nodes without disk restart one by one; every job keeps three copies."""
    cluster = make_cluster(3)
    ids = [cluster.wire(0)("ADDJOB", "q", "x", 20_000, "REPLICATE", 3) for _ in range(20)]
    assert all(isinstance(job_id, bytes) for job_id in ids)
    for number in range(3):
        until(lambda: repaired(cluster))
        cluster.nodes[number].kill()
        cluster.nodes[number].start()
        cluster.wait_formed()
        until(lambda: repaired(cluster))
    for job_id in ids:
        copies = [i for i in range(3) if show(cluster.wire(i), job_id)]
        assert copies == [0, 1, 2], job_id
    got = watch([cluster.wire(i) for i in range(3)], 2)
    assert set(got) <= set(ids)


def test_5_a_leaving_node_takes_at_most_once_jobs(make_cluster: MakeCluster) -> None:
    """Flaw 8: ADDJOB RETRY 0 at a leaving node: the job is delivered by another one, once."""
    cluster = make_cluster(2)
    a, b = cluster.wire(0), cluster.wire(1)
    assert a("CLUSTER", "LEAVING", "yes") == b"OK"
    job_id = a("ADDJOB", "q", "x", 2000, "RETRY", 0, "REPLICATE", 1)
    assert isinstance(job_id, bytes)
    assert getjob(b, timeout_ms=3000) == [job_id]
    assert watch([b], 1) == []


def test_6_an_ack_at_a_leaving_node_is_passed_on(make_cluster: MakeCluster) -> None:
    """Flaw 9: ACKJOB at a leaving node for a job that it does not hold ends the job."""
    cluster = make_cluster(2)
    a, b = cluster.wire(0), cluster.wire(1)
    job_id = b("ADDJOB", "q", "x", 2000, "REPLICATE", 1, "RETRY", 2)
    assert getjob(b) == [job_id]
    assert a("CLUSTER", "LEAVING", "yes") == b"OK"
    a("ACKJOB", job_id)
    assert watch([b], 3.5) == []
    assert registered(b) == 0


def test_7_forged_ids_cost_nothing(make_cluster: MakeCluster) -> None:
    """Flaw 10: 20,000 invented ids in ACKJOB while a peer is stopped leave nothing behind."""
    cluster = make_cluster(2)
    a = cluster.wire(0)
    cluster.nodes[1].signal(signal.SIGSTOP)
    forged = [b"D-%08x-%024d-05a1" % (i, i) for i in range(20_000)]
    for at in range(0, len(forged), 1000):
        assert a("ACKJOB", *forged[at : at + 1000]) == 0
    assert registered(a) == 0
    cluster.nodes[1].signal(signal.SIGCONT)


def test_8_a_planned_restart_keeps_at_most_once_jobs(make_cluster: MakeCluster) -> None:
    """Flaw 8: SHUTDOWN REWRITE-AOF and a start: the queued is queued, what was out stays out."""
    cluster = make_cluster(1)
    a = cluster.wire(0)
    queued = a("ADDJOB", "q", "x", 0, "RETRY", 0, "REPLICATE", 1)
    alo = a("ADDJOB", "q", "y", 0, "RETRY", 60)
    out = a("ADDJOB", "other", "z", 0, "RETRY", 0, "REPLICATE", 1)
    assert len(a("GETJOB", "FROM", "other")) == 1
    a.send("SHUTDOWN", "REWRITE-AOF")
    cluster.nodes[0].wait()
    cluster.nodes[0].start()
    a = cluster.wire(0)
    assert getjob(a) == [queued, alo]
    assert a("GETJOB", "NOHANG", "FROM", "other") is NULL
    assert show(a, out)["state"] == b"active"


def test_9_an_ack_survives_restarts(make_cluster: MakeCluster) -> None:
    """Flaw 4: with C down a job is acked, A and B restart, C comes back: it is not delivered."""
    cluster = make_cluster(3, "--appendonly", "yes", "--appendfsync", "always")
    job_id = cluster.wire(0)("ADDJOB", "q", "x", 20_000, "REPLICATE", 3, "RETRY", 2)
    assert isinstance(job_id, bytes)
    cluster.nodes[2].kill()
    assert getjob(cluster.wire(0)) == [job_id]
    assert cluster.wire(0)("ACKJOB", job_id) == 1
    for number in (0, 1):
        cluster.nodes[number].kill()
        cluster.nodes[number].start()
    cluster.nodes[2].start()
    cluster.wait_formed()
    wires = [cluster.wire(i) for i in range(3)]
    assert watch(wires, 4) == []
    until(lambda: all(registered(wire) == 0 for wire in wires))


def test_10_a_forgotten_node_holds_nothing_up(make_cluster: MakeCluster) -> None:
    """Flaw 11: C dies and is forgotten; the ack of a job that it had is collected all the same."""
    cluster = make_cluster(3)
    job_id = cluster.wire(0)("ADDJOB", "q", "x", 20_000, "REPLICATE", 3, "RETRY", 30)
    dead_id = cluster.wire(2)("CLUSTER", "MYID")
    cluster.nodes[2].kill()
    for number in (0, 1):
        reply = cluster.wire(number)("CLUSTER", "FORGET", dead_id)
        assert reply == b"OK" or "Unknown" in reply  # the first told the second
    assert cluster.wire(0)("ACKJOB", job_id) == 1
    until(lambda: registered(cluster.wire(0)) == registered(cluster.wire(1)) == 0)


def test_11_an_ack_waits_for_a_holder_that_is_away(make_cluster: MakeCluster) -> None:
    """Flaw 1: a job of {A, C} is acked at importer B while C is stopped: C must not revive it."""
    cluster = make_cluster(3)
    a, b = cluster.wire(0), cluster.wire(1)
    while True:
        job_id = a("ADDJOB", "q", "x", 20_000, "REPLICATE", 2, "RETRY", 2)
        if show(cluster.wire(2), job_id):
            break
        assert a("FASTACK", job_id) == 1
    cluster.nodes[2].signal(signal.SIGSTOP)
    until(lambda: getjob(b, timeout_ms=500) == [job_id])
    assert b("ACKJOB", job_id) == 1
    time.sleep(1)
    assert show(a, job_id) or show(b, job_id)  # somebody remembers the ack
    cluster.nodes[2].signal(signal.SIGCONT)
    assert watch([cluster.wire(i) for i in range(3)], 4) == []
    until(lambda: all(registered(cluster.wire(i)) == 0 for i in range(3)))


def test_12_retry_counts_from_the_delivery(make_cluster: MakeCluster) -> None:
    """Flaw 2: a job that waited long comes again RETRY after its delivery, not before."""
    a = make_cluster(1).wire(0)
    job_id = a("ADDJOB", "q", "x", 0, "RETRY", 3)
    time.sleep(2.7)  # the time of which the flaw is made
    began = time.monotonic()
    assert getjob(a) == [job_id]
    assert getjob(a, timeout_ms=10_000) == [job_id]
    assert time.monotonic() - began >= 2.99
