"""Queries that Spark runs over the source: several nodes, leases that end, takeovers, ids."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from source_lab import assert_none_lost, assert_once, bodies, fill, into_table, stream

from lab import RealCluster, RealServer
from tuque import Client
from until import until

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

JOURNAL = ("--appendonly", "yes", "--appendfsync", "always")


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[RealCluster]:
    running = RealCluster(tmp_path / "nodes", 3, *JOURNAL)
    try:
        yield running.start()
    finally:
        running.end()


@pytest.fixture(autouse=True)
def known(spark: SparkSession) -> None:
    """The source of this checkout."""
    from tuque.spark.datasource import register

    register(spark)


def url(*nodes: RealServer) -> str:
    return "tuque://" + ",".join(f"127.0.0.1:{node.port}" for node in nodes)


def left(*nodes: RealServer) -> int:
    """Jobs that are not acknowledged."""
    ids: set[str] = set()
    for node in nodes:
        with Client(url(node), discover=False) as client:
            ids |= {job.id for job in client.jscan(full=True) if job.state != "acked"}
    return len(ids)


def await_none_left(*nodes: RealServer, deadline_s: float = 60.0) -> None:
    """The last batch, too, is acknowledged while a query idles."""
    until(lambda: left(*nodes) == 0, lambda: f"{left(*nodes)} are left", most_s=deadline_s)


def slowly(rows: DataFrame, wait_s: float, only: str = "") -> DataFrame:
    """Each task takes a while; with `only` the first that finds that file missing, which makes
    it."""

    def passed(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches
        if not only:
            time.sleep(wait_s)
        elif not Path(only).exists():
            Path(only).touch()
            time.sleep(wait_s)

    return rows.mapInArrow(passed, rows.schema)


@pytest.mark.slow
def test_a_node_is_killed_in_the_middle(
    spark: SparkSession, cluster: RealCluster, tmp_path: Path
) -> None:
    """Three nodes, one killed -9 while the query runs, and started again."""
    for number, node in enumerate(cluster.nodes):
        fill(url(node), number * 1000, 1000)
    rows = slowly(stream(spark, url(*cluster.nodes), maxJobsPerTrigger="300"), 0.3)
    query = into_table(rows, tmp_path)
    try:
        until(lambda: len(query.recentProgress) >= 2, lambda: str(query.status), most_s=90)
        cluster.nodes[1].kill()
        time.sleep(3)  # some batches without it
        cluster.nodes[1].start()
        await_none_left(*cluster.nodes, deadline_s=90)
        assert query.exception() is None
    finally:
        query.stop()
    assert_once(bodies(spark, tmp_path), 3000)


@pytest.mark.slow
def test_a_batch_takes_longer_than_the_lease(
    spark: SparkSession, broker: RealServer, tmp_path: Path
) -> None:
    """Heartbeats keep it: no job comes again, a rival gets none."""
    fill(url(broker), 0, 200)
    rows = slowly(stream(spark, url(broker), leaseTimeout="4s"), 9, str(tmp_path / "slow"))
    query = into_table(rows, tmp_path)
    try:
        until((tmp_path / "slow").exists, lambda: str(query.status), most_s=90)
        with Client(url(broker)) as rival:
            got = rival.getjob("q", count=200, nohang=True)
            assert {int(job.body) for job in got} == set(range(100, 200))
            assert rival.getjob("q", count=100, timeout_ms=5000) == []
            rival.nack(*(job.id for job in got))
        await_none_left(broker)
        with Client(url(broker)) as client:
            assert client.info("leases")["lease_batches_expired"] == 0
    finally:
        query.stop()
    assert_once(bodies(spark, tmp_path), 200)


@pytest.mark.slow
def test_a_lease_ends_in_a_running_query(
    spark: SparkSession, broker: RealServer, tmp_path: Path
) -> None:
    """The node stands still for longer than the lease, its jobs go to another consumer: the query
    goes on, what it has read is acknowledged (Y7.5), and nothing is lost."""
    fill(url(broker), 0, 300)
    leased = stream(spark, url(broker), leaseTimeout="3s", numPartitions="1")
    rows = slowly(leased, 12, str(tmp_path / "slow"))
    query = into_table(rows, tmp_path)
    try:
        until((tmp_path / "slow").exists, lambda: str(query.status), most_s=90)
        broker.signal(signal.SIGSTOP)
        time.sleep(3.5)
        broker.signal(signal.SIGCONT)
        with Client(url(broker)) as rival:
            until(lambda: rival.info("leases")["lease_batches_expired"] >= 1)
            got = rival.getjob("q", count=300, nohang=True)
            assert set(range(100)) <= {int(job.body) for job in got}
            until(lambda: rival.show(got[0].id) is None, lambda: str(query.exception()), most_s=60)
            rival.nack(*(job.id for job in got))
        await_none_left(broker)
        assert query.exception() is None
    finally:
        query.stop()
    assert_once(bodies(spark, tmp_path), 300)


@pytest.mark.slow
def test_another_query_takes_the_group_over(
    spark: SparkSession, broker: RealServer, tmp_path: Path
) -> None:
    """The first one is told, in the middle of a batch; none is lost, that batch may be twice."""
    fill(url(broker), 0, 300)
    first = into_table(
        slowly(stream(spark, url(broker)), 3, str(tmp_path / "slow")), tmp_path / "first"
    )
    until((tmp_path / "slow").exists, lambda: str(first.status), most_s=90)
    second = into_table(stream(spark, url(broker), takeover="true"), tmp_path / "second")
    try:
        until(lambda: first.exception() is not None, lambda: str(first.status), most_s=90)
        assert "FENCED" in str(first.exception())
        await_none_left(broker)
    finally:
        first.stop()
        second.stop()
    both = bodies(spark, tmp_path / "first") + bodies(spark, tmp_path / "second")
    assert_none_lost(both, 300)
    assert sum(both.values()) <= 400, "one batch at most is in both"


@pytest.mark.slow  # test_source_ids.py reads and commits without Spark
def test_ids_of_a_node_without_leases(
    spark: SparkSession, broker: RealServer, tmp_path: Path
) -> None:
    fill(url(broker), 0, 120)
    rows = stream(spark, url(broker), mode="ids", group="")
    into_table(rows, tmp_path, now=True).awaitTermination()
    assert left(broker) == 0
    assert_once(bodies(spark, tmp_path), 120)


def test_a_look(spark: SparkSession, broker: RealServer) -> None:
    """Rows of a batch read: what stands in them, and nothing is taken."""
    fill(url(broker), 0, 10)
    look = spark.read.format("tuque").option("url", url(broker)).option("queue", "q")
    rows = look.load()
    assert rows.count() == 10
    found = rows.where("body = CAST('7' AS BINARY)").select("queue", "deliveries", "lease")
    assert [tuple(row) for row in found.collect()] == [("q", 0, None)]
    assert look.option("limit", "2").load().count() == 2
    assert left(broker) == 10


@pytest.mark.slow  # test_source_nodes.py sees a part for each node
def test_a_look_at_several_nodes(spark: SparkSession, cluster: RealCluster) -> None:
    for number, node in enumerate(cluster.nodes):
        fill(url(node), number * 10, 10)
    look = spark.read.format("tuque").option("url", url(cluster.nodes[0])).option("queue", "q")
    rows = look.load()
    assert rows.rdd.getNumPartitions() == 3
    assert rows.count() == 30 and rows.select("node").distinct().count() == 3
    assert look.option("limit", "2").load().count() == 6
