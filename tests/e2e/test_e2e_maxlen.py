"""MAXLEN of a tube, with producers at all nodes of a cluster (SPEC T1)."""

from __future__ import annotations

import threading
from contextlib import closing

import pytest

from lab import RealCluster, RealServer
from tuque import Client
from tuque.errors import MaxLen
from tuque.worker import App, Limit

BOUND = 40


@pytest.mark.parametrize("words", [{}, {"limit": ("shop", 1)}])
def test_producers_at_all_nodes_keep_to_the_bound(
    cluster: RealCluster, words: dict[str, object]
) -> None:
    """T1.1 MAXLEN counts READY tasks, at the leader: so the bound holds for all producers of the
    cluster, also while their tasks wait for copies (T18.5)."""
    tube = "bound with keys" if words else "bound"
    with Client(cluster.nodes[0].url) as client:
        client.tube(tube).create("tasks", sync=2)
    added: list[str] = []
    refused: list[MaxLen] = []
    failed: list[BaseException] = []

    def produce(node: RealServer) -> None:
        try:
            with Client(node.url, timeout=30) as client:
                for _ in range(BOUND):
                    try:
                        added.append(client.addjob(tube, b"b", maxlen=BOUND, **words))
                    except MaxLen as error:
                        refused.append(error)
        except BaseException as error:
            failed.append(error)
            raise

    producers = [threading.Thread(target=produce, args=(node,)) for node in cluster.nodes]
    for one in producers:
        one.start()
    for one in producers:
        one.join(120)
    assert not failed
    assert (len(set(added)), len(refused)) == (BOUND, 2 * BOUND)
    with Client(cluster.nodes[1].url) as client:
        assert client.qlen(tube) == BOUND
        (job,) = client.getjob(tube, nohang=True)
        client.addjob(tube, b"b", maxlen=BOUND)
        with pytest.raises(MaxLen):
            client.addjob(tube, b"b", maxlen=BOUND)
        client.ackjob(job.id)


def test_a_task_with_maxlen_and_a_policy(node: RealServer) -> None:
    app = App(node.url)

    @app.task(queue="bounded reports", maxlen=2, limit=Limit(1))
    def report(day: str) -> None: ...

    with closing(app):
        report.enqueue("mon")
        report.enqueue("tue")
        with pytest.raises(MaxLen):
            report.enqueue("wed")
        report.options(maxlen=3).enqueue("wed")
