"""A Spark of several processes and a real node, both in trouble: `make chaos`.

Queue to table and queue to queue. Each ends with 0 lost and 0 duplicates, and prints it.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyspark")
sys.path.insert(0, str(Path(__file__).parents[1] / "spark"))

from cluster_driver import SPECULATION, Job, assert_once, drain, fill, left
from spark_cluster import SparkCluster

from lab import RealServer

JOBS = 10_000


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    with SparkCluster(tmp_path_factory.mktemp("spark-cluster")) as running:
        yield running


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[RealServer]:
    (tmp_path / "node").mkdir()
    server = RealServer(tmp_path / "node", "--appendonly", "yes", "--appendfsync", "always")
    server.start()
    yield server
    server.end()


def check(kind: str, job: Job, broker: RealServer, count: int) -> None:
    """Nothing lost, nothing twice, nothing left."""
    counts = job.counts()
    if kind == "source":
        print(f"{count - counts['jobs']} lost, {counts['rows'] - counts['jobs']} duplicates")
        assert (counts["rows"], counts["jobs"], counts["bodies"]) == (count, count, count)
    else:
        assert_once(drain(broker), count)
    assert left(broker) == 0


@pytest.mark.parametrize("kind", ["source", "through"])
def test_executors_are_killed(
    kind: str, cluster: SparkCluster, broker: RealServer, tmp_path: Path
) -> None:
    """In the middle of three batches."""
    fill(broker, JOBS)
    job = Job(cluster, kind, tmp_path / "job", port=broker.port, each_s=1.5)
    for batch in (0, 3, 6):
        job.await_in_flight(batch)
        cluster.kill_executor()
    check(kind, job, broker, JOBS)


@pytest.mark.parametrize("kind", ["source", "through"])
def test_the_driver_is_killed(
    kind: str, cluster: SparkCluster, broker: RealServer, tmp_path: Path
) -> None:
    """In the middle of three batches; the next driver goes on from the checkpoint."""
    fill(broker, JOBS)
    for batch in (0, 3, 6):
        job = Job(cluster, kind, tmp_path / "job", port=broker.port, each_s=1.5)
        job.await_in_flight(batch)
        job.kill()
    check(kind, Job(cluster, kind, tmp_path / "job", port=broker.port), broker, JOBS)


@pytest.mark.parametrize("kind", ["source", "through"])
def test_the_node_is_killed(
    kind: str, cluster: SparkCluster, broker: RealServer, tmp_path: Path
) -> None:
    """In the middle of two batches; it comes back with its journal, the query waits for it."""
    fill(broker, JOBS)
    job = Job(cluster, kind, tmp_path / "job", port=broker.port, each_s=1.5)
    for batch in (1, 4):
        job.await_in_flight(batch)
        broker.kill()
        broker.start()
    check(kind, job, broker, JOBS)


def test_speculative_copies(cluster: SparkCluster, broker: RealServer, tmp_path: Path) -> None:
    """A copy of a slow task of a stream, and one of a batch: neither doubles a row."""
    fill(broker, 2000)
    slow = {"port": broker.port, "first_s": 90, "conf": SPECULATION}
    began = time.monotonic()
    Job(cluster, "through", tmp_path / "through", batch=2000, **slow).counts()
    assert_once(drain(broker), 2000)
    Job(cluster, "sink", tmp_path / "sink", count=3000, **slow).counts()
    assert_once(drain(broker), 3000)
    assert time.monotonic() - began < 180, "the copies did not win"
