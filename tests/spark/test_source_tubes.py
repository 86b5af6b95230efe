"""A stream that names a tube: one error that names it and says what to do; no Spark."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lab import RealCluster, RealServer
from tuque import Client
from tuque.spark.errors import SourceError
from tuque.spark.leases.leases import Leases
from tuque.spark.options import source
from tuque.spark.source import ids, peek

WHAT_TO_DO = "add the jobs to a plain queue, or let a worker take the tasks"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealCluster]:
    running = RealCluster(tmp_path_factory.mktemp("nodes"), 3, "--appendonly", "yes")
    try:
        running.start().create("t", "fifo")
        yield running
    finally:
        running.end()


def options(queue: str, *nodes: RealServer, **more: str) -> source.SourceOptions:
    given = {"queue": queue, "url": "tuque://" + ",".join(f"127.0.0.1:{n.port}" for n in nodes)}
    if more.get("mode", "lease") == "lease":
        more["group"] = queue
    return source.parse({**given, "retryTimeout": "5s", **more}, more.get("mode") != "peek", 2)


def others(cluster: RealCluster, tube: str) -> tuple[RealServer, RealServer]:
    """The leader of the tube, and a node that follows it."""
    leader = cluster.leader(tube)
    return leader, next(node for node in cluster.nodes if node is not leader)


def test_a_lease_of_a_tube(cluster: RealCluster) -> None:
    """T1.6 LEASE OPEN, STAGE and DEADLETTER to a tube are refused."""
    refused = rf"'t' is a tube.*{WHAT_TO_DO}"
    for node in others(cluster, "t"):
        with pytest.raises(SourceError, match=refused):
            Leases(options("t", node)).latest({}, 10)
    with pytest.raises(SourceError, match=refused):
        Leases(options("t", *cluster.nodes)).latest({}, 10)


def test_available_now_of_a_tube(cluster: RealCluster) -> None:
    """T17.3 On other nodes each command about the tube or a task of it, and a GETJOB that names
    it among others, is refused before it does anything: `-TUBEHOME <host>:<port> Tube '<name>'
    has its leader there`.
    """
    leader, _ = others(cluster, "t")
    with pytest.raises(SourceError, match=rf"'t' is a tube, led by 127.0.0.1:{leader.port}\. "):
        Leases(options("t", *cluster.nodes)).limit_to_now()


@pytest.mark.parametrize("count", [1, 3])
def test_a_queue_that_becomes_a_tube(cluster: RealCluster, count: int) -> None:
    """Y2.8 A queue of the group has become a tube since the group was opened: a new batch is
    refused as in T1.6.
    """
    queue = f"later{count}"
    leases = Leases(options(queue, *cluster.nodes[:count]))
    assert leases.latest({}, 10) == {}
    cluster.create(queue, "fifo")
    with pytest.raises(SourceError, match=rf"'{queue}' is a tube.*{WHAT_TO_DO}"):
        leases.latest({}, 10)


def test_ids_of_a_tube(cluster: RealCluster) -> None:
    """Its leader hands out its tasks, other nodes are refused; a look shows them once."""
    leader, other = others(cluster, "t")
    with Client(leader.url) as client:
        client.addjob("t", "x", retry=300)
    found = options("t", other, mode="peek")
    rows = [job for at in peek.nodes_of(found) for some in peek.read(found, at) for job in some]
    assert [job.body for job in rows] == [b"x"]
    with pytest.raises(SourceError, match=rf"'t' is a tube, led by 127.0.0.1:{leader.port}\. "):
        ids.Taken(options("t", other, mode="ids")).latest({"ids": []}, 10)
    end = ids.Taken(options("t", leader, mode="ids")).latest({"ids": []}, 10)
    assert end == {"ids": [rows[0].id]}
