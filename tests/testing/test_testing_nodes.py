"""Real nodes by fixtures: a server of a test's own, and a cluster."""

from __future__ import annotations

from pathlib import Path

import pytest

from tuque import Client
from tuque.testing import NodeError, TestCluster, TestNode


def test_a_server_of_its_own(tuque_server: TestNode) -> None:
    client = tuque_server.client()
    assert client.execute("INFO", "jobs")
    id = client.addjob("q", "x")
    assert client.getjob("q")[0].id == id
    assert tuque_server.is_running
    assert "runs" in repr(tuque_server)


def test_it_is_killed_and_comes_back(tmp_path: Path) -> None:
    with TestNode(tmp_path, "--appendonly", "yes", "--appendfsync", "always") as node:
        url = node.url
        id = node.client().addjob("q", "x")
        node.kill()
        assert not node.is_running
        node.start()
        assert node.url == url
        with Client(url) as client:
            assert client.getjob("q")[0].id == id
    assert not node.is_running


def test_one_that_does_not_start(tmp_path: Path) -> None:
    with pytest.raises(NodeError, match=r"(?s)has ended and does not serve:.*nonsense"):
        TestNode(tmp_path, "--nonsense", "1").start()


def test_nothing_is_left_of_a_cluster_that_does_not_start(tmp_path: Path) -> None:
    cluster = TestCluster(tmp_path, 2)
    (cluster[1].directory / "nodes.conf").write_text("nonsense")
    with pytest.raises(NodeError, match="nodes.conf"), cluster:
        pytest.fail("it started")
    assert cluster[0].port
    assert not cluster[0].is_running


def test_a_cluster(tuque_cluster: TestCluster) -> None:
    assert len(tuque_cluster) == 3
    with Client(tuque_cluster[0].url, discover=False) as first:
        id = first.addjob("q", "x", replicate=3)
    with Client(tuque_cluster[2].url, discover=False) as third:
        assert third.getjob("q", timeout_ms=20_000)[0].id == id
    tuque_cluster[0].kill()
    with Client(tuque_cluster.url) as client:
        assert client.ping() == "PONG"
    tuque_cluster.start()
    assert tuque_cluster[0].is_running
