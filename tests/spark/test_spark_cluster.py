"""Source, sink and report on a Spark of one master and two workers; an executor is killed.

tests/e2e/spark_chaos_cluster.py kills more, for longer.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from cluster_driver import LIMIT_S, SPECULATION, Job, assert_once, drain, fill, left
from spark_cluster import SparkCluster

from lab import RealServer

pytestmark = [pytest.mark.slow, pytest.mark.spark]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    with SparkCluster(tmp_path_factory.mktemp("spark-cluster")) as running:
        yield running


def test_source_on_two_hosts_with_an_executor_killed(
    cluster: SparkCluster, broker: RealServer, tmp_path: Path
) -> None:
    """Leases into Parquet: 0 lost, 0 duplicates."""
    fill(broker, 4000)
    job = Job(cluster, "source", tmp_path / "job", port=broker.port, each_s=1.0)
    job.await_in_flight(1)
    cluster.kill_executor()
    counts = job.counts()
    assert (counts["rows"], counts["jobs"], counts["bodies"]) == (4000, 4000, 4000)
    assert {"127.0.0.2", "127.0.0.3"} <= {host.partition(":")[0] for host in counts["hosts"]}
    assert left(broker) == 0, "the last batch is acknowledged too"


def test_staged_sink_with_tasks_tried_again(
    cluster: SparkCluster, broker: RealServer, tmp_path: Path
) -> None:
    """The first attempt at a task fails after it wrote all its rows: none is there twice."""
    Job(cluster, "sink", tmp_path / "job", port=broker.port, count=3000, fails=True).counts()
    assert_once(drain(broker), 3000)


def test_a_speculative_copy(cluster: SparkCluster, broker: RealServer, tmp_path: Path) -> None:
    """The first attempt wrote its rows, too, but it is the copy that counts."""
    slow = {"first_s": 60, "conf": SPECULATION}
    Job(cluster, "sink", tmp_path / "job", port=broker.port, count=600, **slow).counts()
    assert_once(drain(broker), 600)
    assert (tmp_path / "job" / "attempt-1-1").exists(), "there was no copy"


def test_report_on_the_cluster(cluster: SparkCluster, history: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    words = ["spark", "report", "--events", str(history), "--out", str(out), "--memory", "512m"]
    done = subprocess.run(
        [sys.executable, "-m", "tuque", *words],
        env=cluster.env,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stdout.splitlines()[0].startswith("8 jobs in 6 s: 3 acked, 1 dead")
    assert "Registered app tuque report" in (cluster.directory / "master.log").read_text()
    assert (out / "report.html").exists()
