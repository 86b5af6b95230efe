"""The tables and the figures, against the history in spark_history.py worked out by hand."""

from __future__ import annotations

import subprocess
import sys
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hist_built import Built, quiet
from spark_history import NODE, START_MS, job_id, make_job

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from tuque.server.events.events import EventLog
from tuque.spark import schema
from tuque.spark.engines import SparkEngine
from tuque.spark.errors import SparkJobError
from tuque.spark.history import pipeline, sql
from tuque.spark.session import told

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]  # all tables by Spark first

T0 = datetime(2026, 1, 1)


def at(ms: float | None) -> datetime | None:
    return None if ms is None else T0 + timedelta(milliseconds=ms)


@pytest.fixture
def built(of_spark: Built) -> tuple[Path, pipeline.Figures]:
    return of_spark.out, of_spark.figures


def table(spark: SparkSession, path: Path, order: str) -> list[dict[str, Any]]:
    return [row.asDict() for row in spark.read.parquet(str(path)).orderBy(*order.split()).collect()]


def test_one_row_per_job(spark: SparkSession, built: tuple[Path, pipeline.Figures]) -> None:
    columns = (
        "job_id queue added_at enqueued_at first_delivered_at last_delivered_at acked_at "
        "ended_at outcome deliveries nacks timeouts size wait_ms process_ms total_ms reason"
    ).split()
    dead = "ValueError: <b>no</b>"
    # fmt: off
    expected = [
        ("A", "q", 0, 0, 100, 100, 300, 300, "acked", 1, 0, 0, 10, 100.0, 200.0, 300.0, None),
        ("B", "q", 0, 0, 400, 1500, 1700, 1700, "acked", 2, 1, 0, 10, 400.0, 200.0, 1700.0, None),
        ("C", "q", 200, 2200, 2250, 5300, None, 5400, "dead", 2, 0, 1, 10, 50.0, 100.0, 5200.0,
         dead),
        ("D", "r", 1000, 1000, None, None, None, None, "open", 0, 0, 0, 10, None, None, None, None),
        ("E", "r", 1000, 1000, 1200, 1200, None, None, "open", 1, 0, 0, 10, 200.0, None, None,
         None),
        ("F", "r", 1100, 1100, None, None, None, 5100, "expired", 0, 0, 0, 10, None, None, 4000.0,
         None),
        ("G", "q", 1000, 1000, 1020, 1020, 1080, 1080, "acked", 1, 0, 0, 10, 20.0, 60.0, 80.0,
         None),
        ("H", "r", 3000, 3000, None, None, None, 3500, "deleted", 0, 0, 0, 10, None, None, 500.0,
         "admin_deleted"),
    ]
    # fmt: on
    found = table(spark, built[0] / "jobs", "job_id")
    for values, row in zip(expected, found, strict=True):
        name, queue, *stamps = values[:8]
        want = [job_id(name), queue, *map(at, stamps), *values[8:]]
        assert {c: row[c] for c in columns} == dict(zip(columns, want, strict=True)), name
    assert {str(row["date"]) for row in found} == {"2026-01-01"}


def test_one_row_per_queue_and_second(
    spark: SparkSession, built: tuple[Path, pipeline.Figures]
) -> None:
    columns = (
        "queue second added delivered acked nacked requeued expired dead deleted cancelled "
        "redelivered backlog wait_p50_ms wait_p95_ms wait_p99_ms "
        "process_p50_ms process_p95_ms process_p99_ms"
    ).split()
    none = (None, None, None)
    # fmt: off
    expected = [
        ("q", 0, 3, 2, 1, 1, 0, 0, 0, 0, 0, 0, 2, 250.0, 385.0, 397.0, 200.0, 200.0, 200.0),
        ("q", 1, 1, 2, 2, 0, 0, 0, 0, 0, 0, 1, 1, 20.0, 20.0, 20.0, 130.0, 193.0, 198.6),
        ("q", 2, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 50.0, 50.0, 50.0, *none),
        ("q", 5, 0, 1, 0, 0, 1, 0, 1, 0, 0, 1, 0, *none, 100.0, 100.0, 100.0),
        ("r", 1, 3, 1, 0, 0, 0, 0, 0, 0, 0, 0, 3, 200.0, 200.0, 200.0, *none),
        ("r", 3, 1, 0, 0, 0, 0, 0, 0, 1, 0, 0, 3, *none, *none),
        ("r", 5, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 2, *none, *none),
    ]
    # fmt: on
    found = table(spark, built[0] / "seconds", "queue second")
    for values, row in zip(expected, found, strict=True):
        queue, second, *rest = values
        assert (row["queue"], row["second"]) == (queue, at(second * 1000))
        want = dict(zip(columns[2:], rest, strict=True))
        assert {c: row[c] for c in columns[2:]} == pytest.approx(want), values


def test_figures(built: tuple[Path, pipeline.Figures]) -> None:
    _, found = built
    total = found.total
    assert (found.first_s, found.last_s) == (START_MS // 1000, START_MS // 1000 + 5)
    names = "jobs acked dead expired deleted cancelled open".split()
    assert {k: total[k] for k in names} == {
        "jobs": 8, "acked": 3, "dead": 1, "expired": 1, "deleted": 1, "cancelled": 0, "open": 2,
    }  # fmt: skip
    assert (total["deliveries"], total["redelivered"]) == (7, 2)
    assert total["wait_ms"] == pytest.approx([100.0, 360.0, 392.0, 400.0])  # of 20 50 100 200 400
    assert total["process_ms"] == pytest.approx([150.0, 200.0, 200.0, 200.0])  # of 60 100 200 200
    assert [(q["queue"], q["jobs"], q["open"]) for q in found.queues] == [("q", 4, 0), ("r", 4, 2)]
    assert found.returns == [
        {"queue": "q", "cause": "nack", "returns": 1},
        {"queue": "q", "cause": "timeout", "returns": 1},
    ]
    assert [row["job_id"] for row in found.slowest] == [job_id(name) for name in "CFBHAG"]
    (dead,) = found.dead
    assert (dead["queue"], dead["reason"], dead["jobs"]) == ("q", "ValueError: <b>no</b>", 1)
    assert (dead["latest_at"], dead["latest_job"]) == ("2026-01-01 00:00:05.400", job_id("C"))
    assert found.nodes == [
        {"node": NODE, "first_seq": 0, "last_seq": 24, "events": 25, "missing": 0, "kills": 0,
         "added": 8, "delivered": 7, "acked": 3, "returned": 2, "dead": 1}
    ]  # fmt: skip
    assert [(r["job_id"], r["nacks"], r["redelivered"]) for r in found.failing] == [
        (job_id("B"), 1, 1), (job_id("C"), 0, 1),
    ]  # fmt: skip
    assert [(r["bucket"], r["added"], r["redelivered"]) for r in found.rates] == [
        (0, 3, 0), (1, 1, 1), (2, 0, 0), (5, 0, 1), (1, 3, 0), (3, 1, 0), (5, 0, 0),
    ]  # fmt: skip


def test_the_schema_is_the_writers(history: Path) -> None:
    import pyarrow.parquet as pq
    from pyspark.sql.types import StructType

    (segment,) = history.glob("date=*/*.parquet")
    written = pq.ParquetFile(segment).schema_arrow
    kinds = {
        "int64": "bigint",
        "int32": "int",
        "string": "string",
        "timestamp[us, tz=UTC]": "timestamp",
    }
    expected = [(field.name, kinds[str(field.type)]) for field in written]
    read = StructType.fromDDL(schema.EVENTS)
    assert [(f.name, f.dataType.simpleString()) for f in read.fields] == expected


def test_gaps_and_kills_are_reported(spark: SparkSession, tmp_path: Path) -> None:
    log = EventLog(tmp_path, NODE, buffer_rows=8)
    events = log.start(START_MS)
    for i in range(20):  # the pump does not come round: 8 events fit
        events.added(START_MS + i, make_job(str(i), b"q", i))
    log.close(events, START_MS + 20)
    kill = (
        "import os, sys; from time import sleep\n"
        "from tuque.server.events.events import EventLog\n"
        f"log = EventLog(sys.argv[1], {NODE!r}); events = log.start({START_MS} + 30)\n"
        "events.cut()\n"
        "while not log.written: log.flush(events); sleep(0.001)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    assert subprocess.run([sys.executable, "-c", kill, str(tmp_path)]).returncode == -9
    log = EventLog(tmp_path, NODE)
    log.close(log.start(START_MS + 40), START_MS + 50)
    segments = pipeline.find_segments(tmp_path, tmp_path / "scratch")
    spark.read.schema(schema.EVENTS).parquet(*segments.sealed).createOrReplaceTempView("events")
    (node,) = [row.asDict() for row in spark.sql(sql.COMPLETENESS).collect()]
    assert (node["events"], node["missing"], node["kills"]) == (8 + 1 + 1 + 2, 13, 1)


def test_a_running_nodes_segment_is_read_too(tmp_path: Path) -> None:
    log = EventLog(tmp_path, NODE)
    events = log.start(START_MS)
    events.cut()
    while not log.written:
        log.flush(events)
    found = pipeline.find_segments(tmp_path, tmp_path / "scratch")
    assert (len(found.sealed), len(found.hot)) == (0, 1)
    log.close(events, START_MS)
    found = pipeline.find_segments(tmp_path, tmp_path / "scratch")
    assert (len(found.sealed), len(found.hot)) == (1, 0)


@pytest.mark.parametrize(("span_s", "width_s"), [(1, 1), (240, 1), (241, 2), (90_000, 600)])
def test_buckets(span_s: int, width_s: int) -> None:
    assert pipeline.bucket_s(span_s) == width_s


def test_buckets_of_any_history_stay_few() -> None:
    for span_s in (10**6, 10**8, 10**10):
        assert span_s / pipeline.bucket_s(span_s) <= pipeline.BUCKETS_MAX


def test_a_damaged_segment_is_named_in_one_line(
    spark: SparkSession, history: Path, tmp_path: Path
) -> None:
    (segment,) = history.glob("date=*/*.parquet")
    (tmp_path / segment.parent.name).mkdir()
    damaged = tmp_path / segment.parent.name / segment.name
    damaged.write_bytes(segment.read_bytes()[:-100])
    segments = pipeline.find_segments(tmp_path, tmp_path / "scratch")
    with pytest.raises(SparkJobError) as caught, told(tmp_path / "spark.log"):
        pipeline.build(SparkEngine(spark, tmp_path), segments, tmp_path / "out", quiet)
    assert damaged.name in str(caught.value)
    assert "spark.log" in str(caught.value)
    assert "\n" not in str(caught.value)
