"""SPEC O5: the figures of Spark queries over HTTP."""

from __future__ import annotations

import re
import shutil
import subprocess
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from source_lab import fill, stream

from lab import RealServer
from tuque.spark import serve_metrics
from until import until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tuque.spark.gauges import Gauges

pytestmark = pytest.mark.spark


def page(gauges: Gauges) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{gauges.port}/metrics", timeout=30) as found:
        return str(found.read().decode())


def value(gauges: Gauges, name: str, query: str) -> float:
    found = re.search(rf'^{name}{{query="{query}"}} (\S+)$', page(gauges), re.M)
    return float(found[1]) if found else -1


def test_a_query_tells_of_batches_and_leases(
    spark: SparkSession, broker: RealServer, tmp_path: Path
) -> None:
    """O5.1 by query its batches and their times, rows, failures; of a lease source also the
    backlog, the leases, their jobs, failed attempts, the age of the oldest, and the nodes that
    answer.
    """
    from tuque.spark.datasource import register

    register(spark)
    fill(broker.url, 0, 250)
    gauges = serve_metrics(spark)
    writer = stream(spark, broker.url).writeStream.queryName("copies").format("parquet")
    writer = writer.option("path", str(tmp_path / "table"))
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    try:
        until(
            lambda: value(gauges, "tuque_spark_rows_total", "copies") == 250,
            lambda: page(gauges),
            most_s=120,
        )
        assert value(gauges, "tuque_spark_batches_total", "copies") >= 3  # of 100 jobs
        assert value(gauges, "tuque_spark_running", "copies") == 1
        assert value(gauges, "tuque_spark_nodes", "copies") == 1
        assert value(gauges, "tuque_spark_leases", "copies") >= 0
        assert value(gauges, "tuque_spark_oldest_lease_seconds", "copies") >= 0
        assert value(gauges, "tuque_spark_failed_attempts", "copies") == 0
        assert value(gauges, "tuque_spark_batch_seconds_count", "copies") >= 3
        query.stop()
        until(lambda: value(gauges, "tuque_spark_running", "copies") == 0)
        assert value(gauges, "tuque_spark_failures_total", "copies") == 0
        assert value(gauges, "tuque_spark_nodes", "copies") == -1  # it has no leases to tell of
        if shutil.which("promtool"):
            words = ["promtool", "check", "metrics"]
            ran = subprocess.run(words, input=page(gauges).encode(), capture_output=True)
            assert ran.returncode == 0, ran.stderr
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(f"http://127.0.0.1:{gauges.port}/jobs", timeout=30)
    finally:
        query.stop()
        gauges.close()
    with pytest.raises(OSError):
        page(gauges)
