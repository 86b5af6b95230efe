"""The writer without Spark: what is written once although tasks and drivers write it again, and
what becomes of a broker that is away.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from sink_lab import bodies, once_each

from lab import RealServer

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

import pyarrow as pa
from pyspark.sql.types import StringType, StructField, StructType

from tuque.spark.errors import SinkError
from tuque.spark.sink.writer import BatchWriter, Written, stream_writer, writer

BODY = StructType([StructField("body", StringType())])
KEYED = StructType([StructField("body", StringType()), StructField("dedupe_key", StringType())])
LEASED = StructType([StructField("body", StringType()), StructField("lease", StringType())])


def batches(*values: list[str], **columns: list[str]) -> Iterator[pa.RecordBatch]:
    for bodies_of_one in values:
        yield pa.RecordBatch.from_pydict({"body": bodies_of_one, **columns})


def staged(broker: RealServer, **options: str) -> BatchWriter:
    given = {"port": str(broker.port), "queue": "q", "mode": "staged", **options}
    return writer(given, LEASED if "ackGroup" in options else BODY, False)


def save(broker: RealServer, queue: str, mode: str, count: int, **options: str) -> None:
    """All of a write: two tasks, and the commit."""
    given = {"port": str(broker.port), "queue": queue, "mode": mode, **options}
    batch_writer = writer(given, KEYED if mode == "dedupe" else BODY, False)
    messages = []
    for first in (0, count // 2):
        found = [str(n) for n in range(first, first + count // 2)]
        columns = {"dedupe_key": found} if mode == "dedupe" else {}
        messages.append(batch_writer.write(batches(found, **columns)))
    batch_writer.commit(messages)


def test_the_same_rows_twice(broker: RealServer) -> None:
    for _ in range(2):
        save(broker, "keyed", "dedupe", 100)
        save(broker, "staged", "staged", 100, txnappid="app", txnversion="7")
        save(broker, "appended", "append", 100)
    assert bodies(broker, "keyed") == once_each(100)
    assert bodies(broker, "staged") == once_each(100)
    assert sum(bodies(broker, "appended").values()) == 200
    save(broker, "staged", "staged", 100, txnappid="app", txnversion="8")
    assert sum(bodies(broker, "staged").values()) == 200
    save(broker, "staged", "staged", 100)
    save(broker, "staged", "staged", 100)
    assert sum(bodies(broker, "staged").values()) == 400


def test_nothing_is_seen_before_the_commit(broker: RealServer) -> None:
    batch_writer = staged(broker)
    message = batch_writer.write(batches(["1", "2"], ["0"]))
    assert isinstance(message, Written)
    assert message.rows == 3
    assert not bodies(broker)
    batch_writer.commit([message, None])
    assert bodies(broker) == once_each(3)
    batch_writer.commit([message])
    assert bodies(broker) == once_each(3)


def test_of_speculative_copies_only_the_one_that_counted_is_published(broker: RealServer) -> None:
    batch_writer = staged(broker)
    one = batch_writer.write(batches(["0", "1"]))
    copy = batch_writer.write(batches(["1", "0"]))
    other = batch_writer.write(batches(["2"]))
    batch_writer.commit([other, copy])
    assert one != copy
    assert bodies(broker) == once_each(3)


def test_a_task_that_died_leaves_nothing(broker: RealServer) -> None:
    batch_writer = staged(broker, pipeline="2")

    def dying() -> Iterator[pa.RecordBatch]:
        yield from batches(["0", "1"], ["2", "3"])
        raise RuntimeError("the disk is full")

    with pytest.raises(RuntimeError):
        batch_writer.write(dying())
    batch_writer.commit([batch_writer.write(batches(["0", "1"], ["2", "3"]))])
    assert bodies(broker) == once_each(4)


def test_a_broker_killed_between_stage_and_publish(broker: RealServer) -> None:
    batch_writer = staged(broker)
    message = batch_writer.write(batches(["0", "1"]))
    broker.kill()
    broker.start()
    batch_writer.commit([message])
    broker.kill()
    broker.start()
    batch_writer.commit([message])
    assert bodies(broker) == once_each(2)


def test_a_broker_killed_while_rows_come(broker: RealServer) -> None:
    batch_writer = staged(broker)

    def slow() -> Iterator[pa.RecordBatch]:
        yield from batches(["0", "1"])
        broker.kill()
        broker.start()
        yield from batches(["2"])

    batch_writer.commit([batch_writer.write(slow())])
    assert bodies(broker) == once_each(3)


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


def test_reading_and_writing_as_one_step(broker: RealServer) -> None:
    wire = broker.wire()
    for body in ("0", "1"):
        wire.add("in", body)
    epoch = wire("LEASE", "OPEN", "g/1", "me", "in")
    assert wire("LEASE", "NEXT", "g/1", epoch, 1, "COUNT", 10, "TTL", 60_000) == 2
    batch_writer = staged(broker, ackGroup="g/1")
    message = batch_writer.write(batches(["0", "1"], lease=[f"g/1/{epoch}/1"] * 2))
    batch_writer.commit([message])
    assert bodies(broker) == once_each(2)
    assert wire("LEASE", "COMMIT", "g/1", epoch, 1) == 0, "acked by the PUBLISH"
    assert not bodies(broker, "in")


def test_a_lease_that_was_lost_publishes_nothing(broker: RealServer) -> None:
    wire = broker.wire()
    wire.add("in", "0")
    epoch = wire("LEASE", "OPEN", "g", "me", "in")
    assert wire("LEASE", "NEXT", "g", epoch, 1, "COUNT", 10, "TTL", 60_000) == 1
    batch_writer = staged(broker, ackGroup="g")
    message = batch_writer.write(batches(["0"], lease=[f"g/{epoch}/1"]))
    wire("LEASE", "OPEN", "g", "another", "in")
    with pytest.raises(SinkError, match="FENCED"):
        batch_writer.commit([message])
    assert not bodies(broker)
    assert bodies(broker, "in") == once_each(1)


def test_a_stream_writer_outside_of_a_query(broker: RealServer) -> None:
    given = {"port": str(broker.port), "queue": "q", "mode": "staged"}
    with pytest.raises(SinkError, match="which query and batch"):
        stream_writer(given, BODY, False).write(batches(["0"]))


def test_a_batch_write_fails_with_the_reason(broker: RealServer) -> None:
    broker.wire()("PAUSE", "q", "in")
    with pytest.raises(SinkError, match="PAUSED"):
        save(broker, "q", "staged", 10, retrytimeout="200ms")
    assert not bodies(broker)


def test_a_broker_that_is_away_is_waited_for(broker: RealServer) -> None:
    save(broker, "q", "append", 10)
    broker.kill()
    with pytest.raises(SinkError, match="did not take it within retryTimeout"):
        save(broker, "q", "append", 10, retrytimeout="300ms")
    starting = threading.Timer(0.3, broker.start)
    starting.start()
    try:
        save(broker, "q", "append", 10, retrytimeout="60s")
    finally:
        starting.join()
    assert sum(bodies(broker).values()) == 20
