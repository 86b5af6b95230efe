"""Rows that Spark writes into a real broker: in a batch, and in a stream."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest
from sink_lab import bodies, once_each, rows, use_sink

from lab import RealServer

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tuque.spark import register, session

pytestmark = pytest.mark.spark
SLOWLY = [pytest.param(mode, marks=pytest.mark.slow) for mode in ("append", "dedupe")]


@pytest.fixture(autouse=True)
def known(spark: SparkSession) -> None:
    """The sink of this checkout."""
    use_sink(spark)


@pytest.mark.parametrize("mode", ["append", "staged"])
def test_every_row_is_a_job(spark: SparkSession, broker: RealServer, mode: str) -> None:
    write = rows(spark, 300, 3).write.format("tuque").mode("append").option("mode", mode)
    write.option("port", broker.port).option("queue", "q").option("pipeline", 40).save()
    assert bodies(broker) == once_each(300)


@pytest.mark.parametrize("name", ["session", "register"])
def test_a_thread_of_its_own(spark: SparkSession, broker: RealServer, name: str) -> None:
    """Spark looks up the sink in the session that is active in the thread: in a new one none is."""
    frame = rows(spark, 3)
    make_active: Callable[[], object] = session if name == "session" else partial(register, spark)

    def write() -> bool:
        was_active = SparkSession.getActiveSession() is not None
        assert make_active() in (None, spark)
        writer = frame.write.format("tuque").mode("append").option("port", broker.port)
        writer.option("queue", "q").save()
        return was_active

    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(write).result() is False
    assert bodies(broker) == once_each(3)


def test_a_row_chooses_its_queue_and_times(spark: SparkSession, broker: RealServer) -> None:
    frame = spark.sql(
        "SELECT CAST('a' AS BINARY) AS body, 'q1' AS queue, NULL AS delay_ms, 5000L AS ttl_ms, "
        "0 AS retry_ms, 0 AS priority UNION ALL SELECT 'b', NULL, 60000, NULL, 7000, NULL"
    ).selectExpr("body", "queue", "CAST(delay_ms AS BIGINT) delay_ms", "ttl_ms", "retry_ms")
    write = frame.write.format("tuque").mode("append")
    write.option("url", f"tuque://127.0.0.1:{broker.port}").option("queue", "q2").save()
    wire = broker.wire()
    _, jobs = wire("JSCAN", 0, "COUNT", 100, "REPLY", "all")
    found = {}
    for flat in jobs:
        info = dict(zip(flat[::2], flat[1::2], strict=True))
        found[info[b"body"]] = [info[key] for key in (b"queue", b"delay", b"ttl", b"retry")]
    assert found == {b"a": [b"q1", 0, 5, 0], b"b": [b"q2", 60, 86400, 7]}


def test_what_is_wrong_is_said_by_name(spark: SparkSession, broker: RealServer) -> None:
    write = spark.range(1).write.format("tuque").mode("append").option("port", broker.port)
    with pytest.raises(PySparkException, match="column 'id' is none of a job"):
        write.option("queue", "q").save()
    write = rows(spark, 1).write.format("tuque").option("port", broker.port).option("queue", "q")
    with pytest.raises(PySparkException, match="cannot be overwritten"):
        write.mode("overwrite").save()
    with pytest.raises(PySparkException, match="ErrorIfExists"):
        write.mode("errorifexists").save()


def test_the_refusal_of_the_broker_is_told(spark: SparkSession, broker: RealServer) -> None:
    write = rows(spark, 10, 1).write.format("tuque").mode("append").option("port", broker.port)
    with pytest.raises(PySparkException, match="DELAY is greater than TTL"):
        write.option("queue", "q").option("delay", "10s").option("ttl", "5s").save()


def stream(spark: SparkSession, broker: RealServer, at: Path, mode: str) -> None:
    """Run the query of this checkpoint until all files are read."""
    text = spark.readStream.option("maxFilesPerTrigger", 1).text(str(at / "in"))
    frame = text.selectExpr("value AS body")
    if mode == "dedupe":
        frame = frame.withColumn("dedupe_key", frame.body)
    write = frame.writeStream.format("tuque").option("port", broker.port).option("queue", "q")
    write = write.option("mode", mode).option("checkpointLocation", str(at / "checkpoint"))
    query = write.trigger(availableNow=True).start()
    assert query.awaitTermination(90)


@pytest.mark.parametrize("mode", [*SLOWLY, "staged"])
def test_a_batch_of_a_stream_that_is_replayed(
    spark: SparkSession, broker: RealServer, tmp_path: Path, mode: str
) -> None:
    """The driver died after the batch and before Spark noted it: its commit is taken away."""
    (tmp_path / "in").mkdir()
    for part in range(2):
        numbers = range(part * 50, part * 50 + 50)
        (tmp_path / "in" / f"{part}.txt").write_text("".join(f"{n}\n" for n in numbers))
    stream(spark, broker, tmp_path, mode)
    assert bodies(broker) == once_each(100)
    for name in ("1", ".1.crc"):
        (tmp_path / "checkpoint" / "commits" / name).unlink(missing_ok=True)
    stream(spark, broker, tmp_path, mode)
    assert set(bodies(broker)) == set(once_each(100))
    assert sum(bodies(broker).values()) == (150 if mode == "append" else 100)
