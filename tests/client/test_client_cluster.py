"""Clients of a cluster of real nodes: they follow their jobs, and outlive their node."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from client_nodes import Connect

from lab import RealCluster
from tuque import Client
from until import until


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealCluster]:
    """Three nodes that are left as they are."""
    made = RealCluster(tmp_path_factory.mktemp("cluster"), 3)
    try:
        yield made.start()
    finally:
        made.end()


def url(cluster: RealCluster, *numbers: int) -> str:
    return "tuque://" + ",".join(f"127.0.0.1:{cluster.nodes[i].port}" for i in numbers)


def test_a_consumer_goes_to_the_node_that_makes_its_jobs(
    cluster: RealCluster, connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    client = connect(url(cluster, 0))
    queue = f"follow-{client.kind}"
    near, far = (f"127.0.0.1:{cluster.nodes[i].port}" for i in (0, 2))
    with Client(url(cluster, 2), follow=False) as producer:
        pipe = producer.pipeline()
        for number in range(400):
            pipe.addjob(queue, str(number), replicate=2)
        ids = set(pipe.execute())
    seen: list[str] = []
    taken: set[str] = set()
    with caplog.at_level(logging.INFO, "tuque.client"):
        while len(taken) < 400:
            jobs = client.getjob(queue, count=20, timeout_ms=5000)
            assert jobs, f"{len(taken)} of 400 came, over {seen}"
            taken |= {job.id for job in jobs}
            client.ackjob(*jobs)
            if client.node not in seen:
                seen.append(client.node)
    assert taken == ids
    assert seen == [near, far]
    assert f"most jobs come from node {far}: fetching there from now on" in caplog.messages
    until(lambda: all(client.show(id) is None for id in ids))


def test_follow_no_has_the_jobs_brought(cluster: RealCluster, connect: Connect) -> None:
    client = connect(url(cluster, 0), follow=False)
    queue = f"stay-{client.kind}"
    with Client(url(cluster, 2)) as producer:
        for number in range(150):
            producer.addjob(queue, str(number), replicate=1)
    taken = 0
    while taken < 150:
        jobs = client.getjob(queue, count=20, timeout_ms=5000)
        assert jobs
        taken += len(jobs)
        client.ackjob(*jobs)
    assert client.node == f"127.0.0.1:{cluster.nodes[0].port}"


def test_calls_about_the_cluster(cluster: RealCluster, connect: Connect) -> None:
    client = connect(url(cluster, 0))
    hello = client.hello()
    assert len(hello.nodes) == 3
    assert {node.priority for node in hello.nodes} == {1}
    assert {node.port for node in hello.nodes} == {node.port for node in cluster.nodes}
    nodes = client.cluster_nodes()
    assert {node.id for node in nodes} == {node.id for node in hello.nodes}
    assert all(node.connected for node in nodes)
    assert client.cluster_info()["cluster_reachable_nodes"] == 2
    assert client.cluster_repair() == 0
    other = cluster.nodes[1]
    assert client.cluster_meet("localhost", other.port, other.bus_port)  # linked already
    until(lambda: {node.id for node in client.cluster_nodes()} == {n.id for n in nodes})
    assert client.pause(f"paused-{client.kind}", "out", "bcast") == "out"
    with Client(url(cluster, 1), follow=False) as elsewhere:
        until(lambda: elsewhere.pause(f"paused-{client.kind}") == "out")


def test_a_client_outlives_its_node(tmp_path: Path, connect: Connect) -> None:
    cluster = RealCluster(tmp_path, 3)
    try:
        cluster.start()
        client = connect(url(cluster, 0, 1, 2))
        ids = {client.addjob("q", str(n), retry=1, replicate=2) for n in range(30)}
        first = next(n for n in cluster.nodes if client.node.endswith(f":{n.port}"))
        first.kill()
        taken = set()
        while taken < ids:
            jobs = client.getjob("q", count=30, timeout_ms=10_000)
            assert jobs, f"{len(ids - taken)} of 30 did not come"
            taken |= {job.id for job in jobs}
            client.ackjob(*jobs)
        assert not client.node.endswith(f":{first.port}")
    finally:
        cluster.end()


def test_a_client_leaves_a_node_that_leaves(tmp_path: Path, connect: Connect) -> None:
    cluster = RealCluster(tmp_path, 2)
    try:
        cluster.start()
        client = connect(url(cluster, 0))
        kept = client.addjob("q", "kept", replicate=1)
        client.cluster_leaving(True)
        (job,) = client.getjob("q", timeout_ms=10_000)
        assert job.id == kept
        assert client.getjob("q", timeout_ms=200) == []
        assert client.node == f"127.0.0.1:{cluster.nodes[1].port}"
    finally:
        cluster.end()
