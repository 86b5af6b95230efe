"""dedupe and staged: what is written once although tasks and drivers write it again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from sink_lab import bodies, journaled, once_each, rows, use_sink

from lab import RealServer

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql.types import StringType, StructField, StructType

from tuque.spark.errors import SinkError
from tuque.spark.sink.writer import BatchWriter, Written, stream_writer, writer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark
BODY = StructType([StructField("body", StringType())])
LEASED = StructType([StructField("body", StringType()), StructField("lease", StringType())])


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RealServer]:
    running = journaled(tmp_path / "node")
    yield running
    running.end()


def save(frame: DataFrame, server: RealServer, mode: str, **options: Any) -> None:
    write = frame.write.format("tuque").mode("append").option("port", server.port)
    write.option("queue", "q").option("mode", mode).options(**options).save()


def batches(*values: list[str], **columns: list[str]) -> Iterator[pa.RecordBatch]:
    for bodies_of_one in values:
        yield pa.RecordBatch.from_pydict({"body": bodies_of_one, **columns})


def staged(server: RealServer, **options: str) -> BatchWriter:
    given = {"port": str(server.port), "queue": "q", "mode": "staged", **options}
    return writer(given, LEASED if "ackGroup" in options else BODY, False)


def test_the_same_rows_twice(spark: SparkSession, server: RealServer) -> None:
    use_sink(spark)
    frame = rows(spark, 1000)
    keyed = frame.withColumn("dedupe_key", frame.body)
    for _ in range(2):
        save(keyed, server, "dedupe")
        save(frame, server, "staged", queue="staged", txnAppId="app", txnVersion=7)
        save(frame, server, "append", queue="appended")
    assert bodies(server) == once_each(1000)
    assert bodies(server, "staged") == once_each(1000)
    assert sum(bodies(server, "appended").values()) == 2000
    save(frame, server, "staged", queue="staged", txnAppId="app", txnVersion=8)
    assert sum(bodies(server, "staged").values()) == 2000
    save(frame, server, "staged", queue="staged")
    save(frame, server, "staged", queue="staged")
    assert sum(bodies(server, "staged").values()) == 4000


def test_nothing_is_seen_before_the_commit(server: RealServer) -> None:
    batch_writer = staged(server)
    message = batch_writer.write(batches(["1", "2"], ["0"]))
    assert isinstance(message, Written)
    assert message.rows == 3
    assert not bodies(server)
    batch_writer.commit([message, None])
    assert bodies(server) == once_each(3)
    batch_writer.commit([message])
    assert bodies(server) == once_each(3)


def test_of_speculative_copies_only_the_one_that_counted_is_published(server: RealServer) -> None:
    batch_writer = staged(server)
    one = batch_writer.write(batches(["0", "1"]))
    copy = batch_writer.write(batches(["1", "0"]))
    other = batch_writer.write(batches(["2"]))
    batch_writer.commit([other, copy])
    assert one != copy
    assert bodies(server) == once_each(3)


def test_a_task_that_died_leaves_nothing(server: RealServer) -> None:
    batch_writer = staged(server, pipeline="2")

    def dying() -> Iterator[pa.RecordBatch]:
        yield from batches(["0", "1"], ["2", "3"])
        raise RuntimeError("the disk is full")

    with pytest.raises(RuntimeError):
        batch_writer.write(dying())
    batch_writer.commit([batch_writer.write(batches(["0", "1"], ["2", "3"]))])
    assert bodies(server) == once_each(4)


def test_a_broker_killed_between_stage_and_publish(server: RealServer) -> None:
    batch_writer = staged(server)
    message = batch_writer.write(batches(["0", "1"]))
    server.kill()
    server.start()
    batch_writer.commit([message])
    server.kill()
    server.start()
    batch_writer.commit([message])
    assert bodies(server) == once_each(2)


def test_a_broker_killed_while_rows_come(server: RealServer) -> None:
    batch_writer = staged(server)

    def slow() -> Iterator[pa.RecordBatch]:
        yield from batches(["0", "1"])
        server.kill()
        server.start()
        yield from batches(["2"])

    batch_writer.commit([batch_writer.write(slow())])
    assert bodies(server) == once_each(3)


def test_what_was_staged_is_gone(tmp_path: Path) -> None:
    server = RealServer(tmp_path).start()
    try:
        batch_writer = staged(server)
        message = batch_writer.write(batches(["0"]))
        server.kill()
        server.start()
        with pytest.raises(SinkError, match=r"published nothing.*NOSTAGE.*without its journal"):
            batch_writer.commit([message])
    finally:
        server.end()


def test_reading_and_writing_as_one_step(server: RealServer) -> None:
    wire = server.wire()
    for body in ("0", "1"):
        wire.add("in", body)
    epoch = wire("LEASE", "OPEN", "g/1", "me", "in")
    assert wire("LEASE", "NEXT", "g/1", epoch, 1, "COUNT", 10, "TTL", 60_000) == 2
    batch_writer = staged(server, ackGroup="g/1")
    message = batch_writer.write(batches(["0", "1"], lease=[f"g/1/{epoch}/1"] * 2))
    batch_writer.commit([message])
    assert bodies(server) == once_each(2)
    assert wire("LEASE", "COMMIT", "g/1", epoch, 1) == 0, "acked by the PUBLISH"
    assert not bodies(server, "in")


def test_a_lease_that_was_lost_publishes_nothing(server: RealServer) -> None:
    wire = server.wire()
    wire.add("in", "0")
    epoch = wire("LEASE", "OPEN", "g", "me", "in")
    assert wire("LEASE", "NEXT", "g", epoch, 1, "COUNT", 10, "TTL", 60_000) == 1
    batch_writer = staged(server, ackGroup="g")
    message = batch_writer.write(batches(["0"], lease=[f"g/{epoch}/1"]))
    wire("LEASE", "OPEN", "g", "another", "in")
    with pytest.raises(SinkError, match="FENCED"):
        batch_writer.commit([message])
    assert not bodies(server)
    assert bodies(server, "in") == once_each(1)


def stream(spark: SparkSession, server: RealServer, at: Path, mode: str) -> None:
    """Run the query of this checkpoint until all files are read."""
    text = spark.readStream.option("maxFilesPerTrigger", 1).text(str(at / "in"))
    frame = text.selectExpr("value AS body")
    if mode == "dedupe":
        frame = frame.withColumn("dedupe_key", frame.body)
    write = frame.writeStream.format("tuque").option("port", server.port).option("queue", mode)
    write = write.option("mode", mode).option("checkpointLocation", str(at / mode))
    query = write.trigger(availableNow=True).start()
    assert query.awaitTermination(90)


def test_a_batch_of_a_stream_that_is_replayed(
    spark: SparkSession, server: RealServer, tmp_path: Path
) -> None:
    """The driver died after PUBLISH and before Spark noted it: its commit is taken away."""
    use_sink(spark)
    for part in range(2):
        frame = spark.range(part * 50, part * 50 + 50, 1, 1)
        frame.selectExpr("CAST(id AS STRING)").write.mode("append").text(str(tmp_path / "in"))
    counts = {"append": 150, "dedupe": 100, "staged": 100}
    for mode, count in counts.items():
        stream(spark, server, tmp_path, mode)
        for name in ("1", ".1.crc"):
            (tmp_path / mode / "commits" / name).unlink(missing_ok=True)
        stream(spark, server, tmp_path, mode)
        assert sum(bodies(server, mode).values()) == count, mode
        assert set(bodies(server, mode)) == set(once_each(100))


def test_a_stream_writer_outside_of_a_query(server: RealServer) -> None:
    given = {"port": str(server.port), "queue": "q", "mode": "staged"}
    with pytest.raises(SinkError, match="which query and batch"):
        stream_writer(given, BODY, False).write(batches(["0"]))


def test_a_batch_write_fails_with_the_reason(spark: SparkSession, server: RealServer) -> None:
    use_sink(spark)
    server.wire()("PAUSE", "q", "in")
    with pytest.raises(PySparkException, match="PAUSED"):
        save(rows(spark, 10), server, "staged", retryTimeout="200ms")
    server.wire()("PAUSE", "q", "none")
    assert not bodies(server)
