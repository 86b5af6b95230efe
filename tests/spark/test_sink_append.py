"""Batch and streaming writes of plain jobs into a real broker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from sink_lab import bodies, journaled, once_each, rows, use_sink

from lab import RealServer

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from pyspark.errors import PySparkException

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture
def server(tmp_path: Path, spark: SparkSession) -> Iterator[RealServer]:
    use_sink(spark)
    running = journaled(tmp_path / "node")
    yield running
    running.end()


def test_every_row_is_a_job(spark: SparkSession, server: RealServer) -> None:
    write = rows(spark, 2000, 3).write.format("tuque").mode("append")
    write.option("port", server.port).option("queue", "q").option("pipeline", 300).save()
    assert bodies(server) == once_each(2000)


def test_a_row_chooses_its_queue_and_times(spark: SparkSession, server: RealServer) -> None:
    frame = spark.sql(
        "SELECT CAST('a' AS BINARY) AS body, 'q1' AS queue, NULL AS delay_ms, 5000L AS ttl_ms, "
        "0 AS retry_ms, 0 AS priority UNION ALL SELECT 'b', NULL, 60000, NULL, 7000, NULL"
    ).selectExpr("body", "queue", "CAST(delay_ms AS BIGINT) delay_ms", "ttl_ms", "retry_ms")
    write = frame.write.format("tuque").mode("append")
    write.option("url", f"tuque://127.0.0.1:{server.port}").option("queue", "q2").save()
    wire = server.wire()
    _, jobs = wire("JSCAN", 0, "COUNT", 100, "REPLY", "all")
    found = {}
    for flat in jobs:
        info = dict(zip(flat[::2], flat[1::2], strict=True))
        found[info[b"body"]] = [info[key] for key in (b"queue", b"delay", b"ttl", b"retry")]
    assert found == {b"a": [b"q1", 0, 5, 0], b"b": [b"q2", 60, 86400, 7]}


def test_a_stream_writes_every_row(spark: SparkSession, server: RealServer, tmp_path: Path) -> None:
    for part in range(3):
        frame = spark.range(part * 100, part * 100 + 100).selectExpr("CAST(id AS STRING) AS body")
        frame.coalesce(1).write.mode("append").text(str(tmp_path / "in"))
    stream = spark.readStream.option("maxFilesPerTrigger", 1).text(str(tmp_path / "in"))
    query = (
        stream.withColumnRenamed("value", "body")
        .writeStream.format("tuque")
        .option("port", server.port)
        .option("queue", "q")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(60)
    assert bodies(server) == once_each(300)


def test_what_is_wrong_is_said_by_name(spark: SparkSession, server: RealServer) -> None:
    write = spark.range(1).write.format("tuque").mode("append").option("port", server.port)
    with pytest.raises(PySparkException, match="column 'id' is none of a job"):
        write.option("queue", "q").save()
    write = rows(spark, 1).write.format("tuque").option("port", server.port).option("queue", "q")
    with pytest.raises(PySparkException, match="cannot be overwritten"):
        write.mode("overwrite").save()
    with pytest.raises(PySparkException, match="ErrorIfExists"):
        write.mode("errorifexists").save()


def test_the_refusal_of_the_broker_is_told(spark: SparkSession, server: RealServer) -> None:
    write = rows(spark, 10).write.format("tuque").mode("append").option("port", server.port)
    with pytest.raises(PySparkException, match="DELAY is greater than TTL"):
        write.option("queue", "q").option("delay", "10s").option("ttl", "5s").save()


def test_a_broker_that_is_away_is_waited_for(spark: SparkSession, server: RealServer) -> None:
    # One task: of several, those beside the one that gave up would write to the restarted broker.
    write = rows(spark, 10).coalesce(1).write.format("tuque").mode("append")
    write = write.option("port", server.port).option("queue", "q").option("retryTimeout", "3s")
    write.save()
    server.kill()
    with pytest.raises(PySparkException, match="did not take it within retryTimeout"):
        write.save()
    server.start()
    write.save()
    assert sum(bodies(server).values()) == 20
