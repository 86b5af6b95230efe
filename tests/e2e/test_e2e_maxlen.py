"""MAXLEN of a tube, with producers at all nodes of a cluster (SPEC T1)."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from lab import RealCluster, RealServer
from tuque import Client
from tuque.errors import MaxLen
from tuque.worker import App, Limit

BOUND = 40


@pytest.mark.parametrize("words", [{}, {"limit": ("shop", 1)}])
def test_producers_at_all_nodes_keep_to_the_bound(tmp_path: Path, words: dict[str, object]) -> None:
    """T1.1 MAXLEN counts READY tasks, at the leader: so the bound holds for all producers of the
    cluster, also while their tasks wait for copies (T18.5)."""
    with RealCluster(tmp_path, 3) as cluster:
        with Client(url_of(cluster.nodes[0])) as client:
            client.tube("t").create("tasks", sync=2)
        added: list[str] = []
        refused: list[MaxLen] = []
        failed: list[BaseException] = []

        def produce(node: RealServer) -> None:
            try:
                with Client(url_of(node), timeout=30) as client:
                    for _ in range(BOUND):
                        try:
                            added.append(client.addjob("t", b"b", maxlen=BOUND, **words))
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
        with Client(url_of(cluster.nodes[1])) as client:
            assert client.qlen("t") == BOUND
            (job,) = client.getjob("t", nohang=True)
            client.addjob("t", b"b", maxlen=BOUND)
            with pytest.raises(MaxLen):
                client.addjob("t", b"b", maxlen=BOUND)
            client.ackjob(job.id)


def test_a_task_with_maxlen_and_a_policy(tmp_path: Path) -> None:
    with RealServer(tmp_path) as node:
        app = App(url_of(node))

        @app.task(queue="reports", maxlen=2, limit=Limit(1))
        def report(day: str) -> None: ...

        report.enqueue("mon")
        report.enqueue("tue")
        with pytest.raises(MaxLen):
            report.enqueue("wed")
        report.options(maxlen=3).enqueue("wed")


def url_of(node: RealServer) -> str:
    return f"tuque://127.0.0.1:{node.port}"
