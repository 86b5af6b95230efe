"""SPEC H4: the streams give the tables that a run at once gives, over restarts and kills."""

from __future__ import annotations

import shutil
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from hist_cluster import write_cluster_history
from hist_rows import same_rows
from spark_history import START_MS, deliver, make_job

from tuque.spark import gold, silver
from tuque.spark.engines import Engine, SparkEngine, read_events
from tuque.spark.errors import NoEventsError, StreamError
from tuque.spark.history import pipeline
from tuque.spark.history.compact import compact
from tuque.spark.history.duck import DuckEngine
from tuque.spark.history.streams import Options, is_streamed, run_stream
from tuque.spark.schema import EVENTS
from written import Written

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
MINUTE_MS = 60_000


def write_minutes(directory: Path, minutes: int) -> list[Path]:
    """A segment a minute with 30 jobs each, some of which end in the next; in order."""
    made = []
    waiting = []
    for minute in range(minutes):
        log = Written(directory, "n1")
        base = minute * MINUTE_MS
        events = log.start(START_MS + base)
        for job in waiting:
            events.acked(START_MS + base + 10, job)
        waiting = []
        for i in range(30):
            at_ms = base + 100 + i * 1000
            job = make_job(f"{minute}-{i}", b"q" if i % 2 else b"r", at_ms)
            events.added(START_MS + at_ms, job)
            if i % 5 == 0:
                waiting.append(job)
            deliver(events, job, at_ms + 7 * i)
            if i % 5:
                events.acked(START_MS + at_ms + 11 * i, job)
        before = set(directory.rglob("events-*.parquet"))
        log.close(events, START_MS + base + 59_000)
        made += sorted(set(directory.rglob("events-*.parquet")) - before)
    return made


def offer(segments: list[Path], directory: Path) -> None:
    """Let the segments appear there."""
    for path in segments:
        folder = directory / path.parent.name
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, folder / path.name)


def rows(spark: SparkSession, table: Path) -> list[dict[str, Any]]:
    return [row.asDict() for row in spark.read.parquet(str(table)).collect()]


def at_once(spark: SparkSession, events: Path, out: Path) -> dict[str, list[dict[str, Any]]]:
    """Both tables, computed at once, as test_hist_engines.py shows for either engine."""
    files = [str(path) for path in sorted(events.rglob("events-*.parquet"))]
    with DuckEngine(threads=2) as duck:
        pipeline.build_silver(duck, files, out)
        pipeline.build_gold(duck, files, out)
    return {table: rows(spark, out / table) for table in ("silver", "gold")}


def of_ends(spark: SparkSession, events: Path, out: Path) -> dict[str, list[dict[str, Any]]]:
    """The same with the instants and counts that the ends say, as in a stream (H1.6)."""
    files = [str(path) for path in sorted(events.rglob("events-*.parquet"))]
    with DuckEngine(threads=2) as duck:
        read_events(duck, files)
        duck.view("ends", silver.ENDS)
        duck.keep("twice", silver.TWICE)
        duck.table("silver", silver.ONCE, out / "silver")
        duck.keep("extra", silver.EXTRA)
        duck.view("counted", gold.COUNTED_EVENTS)
        duck.table("gold", gold.MINUTES, out / "gold")
    return {table: rows(spark, out / table) for table in ("silver", "gold")}


def minute_of(row: dict[str, Any]) -> datetime:
    value = row["minute"]
    assert isinstance(value, datetime)
    return value


@pytest.fixture(scope="module")
def segments(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return write_minutes(tmp_path_factory.mktemp("minutes"), 6)


IN_STREAMS = pytest.param("in streams", marks=pytest.mark.slow)


@pytest.fixture(scope="module", params=["in one batch", IN_STREAMS])
def streamed(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Path:
    """`events` of several nodes, and `tables` of the rows that streams write, which keep every end.

    In streams silver is a file at a time, and the minutes that the watermark has not passed are
    still to come.
    """
    place = tmp_path_factory.mktemp("streamed")
    write_cluster_history(place / "events")
    for table, files, view, query in (
        ("silver", 1, "events", silver.ENDS),
        ("gold", 64, "counted", gold.STREAMED),
    ):
        out = place / "tables"
        if request.param == "in streams":
            options = Options(table, place / "events", out, "10 seconds", files=files, once=True)
            run_stream(spark, options, lambda _: None)
        else:
            read = spark.read.schema(EVENTS).option("recursiveFileLookup", "true")
            read.parquet(str(place / "events")).createOrReplaceTempView(view)
            spark.sql(query).write.partitionBy("date").parquet(str(out / table))
    return place


@pytest.mark.slow
@pytest.mark.parametrize("table", ["silver", pytest.param("gold", marks=pytest.mark.slow)])
def test_a_restart_midway_gives_the_table_of_a_run_at_once(
    spark: SparkSession, segments: list[Path], tmp_path: Path, table: str
) -> None:
    """H4.1, H4.3: stopped after half of the segments, started anew from the checkpoint."""
    events = tmp_path / "events"
    said: list[str] = []
    options = Options(table, events, tmp_path / "out", "10 seconds", files=1, once=True)
    offer(segments[:3], events)
    first = run_stream(spark, options, said.append)
    offer(segments[3:], events)
    second = run_stream(spark, options, said.append)
    assert (first.batches, second.batches) == (3, 3), said
    assert first.late + second.late == 0
    again = run_stream(spark, options, said.append)
    assert again.events == 0, "nothing is read twice"
    found = rows(spark, tmp_path / "out" / table)
    want = at_once(spark, events, tmp_path / "whole")[table]
    if table == "gold":  # the minutes that the watermark has not passed are still to come
        last = max(map(minute_of, want))
        assert max(map(minute_of, found)) == last - timedelta(minutes=1)
        want = [row for row in want if minute_of(row) < last]
    assert len(found) == (6 * 30 - 6 if table == "silver" else 10)
    same_rows(found, want)


@pytest.mark.slow  # the compaction below sees the same in passing
def test_a_batch_that_was_cut_off_is_done_again(
    spark: SparkSession, segments: list[Path], tmp_path: Path
) -> None:
    """H4.1: the rows were written, and the driver died before it noted so."""
    options = Options("silver", tmp_path / "events", tmp_path / "out", files=1, once=True)
    offer(segments[:2], options.events)
    run_stream(spark, options, lambda _: None)
    want = rows(spark, tmp_path / "out" / "silver")
    (options.checkpoint / "commits" / "1").unlink()
    (options.checkpoint / "commits" / ".1.crc").unlink(missing_ok=True)
    run_stream(spark, options, lambda _: None)
    assert (options.checkpoint / "commits" / "1").exists(), "nothing was done again"
    same_rows(rows(spark, tmp_path / "out" / "silver"), want)


@pytest.mark.slow  # tests/events/test_events_compact.py waits for streams without Spark
def test_compaction_waits_for_a_stream(
    spark: SparkSession, segments: list[Path], tmp_path: Path
) -> None:
    """E5.2, E5.3, H4.6: merged behind a stream, before it, and below a batch that was cut off."""
    options = Options("silver", tmp_path / "events", tmp_path / "out", files=1, once=True)
    said: list[str] = []
    offer(segments[:2], options.events)
    run_stream(spark, options, said.append)
    (options.checkpoint / "commits" / "1").unlink()  # its driver died
    offer(segments[2:4], options.events)
    done = compact(options.events, "2027-01-01", 0.0)
    assert (done.merged, done.made, done.removed) == (4, 1, 0)
    for _ in range(2):
        done = compact(options.events, "2027-01-01", 1e12, grace_s=0)
        assert sum(done.waiting.values()) == 3
        assert sorted(options.events.rglob("events-*.parquet")) == sorted(
            options.events / path.parent.name / path.name for path in segments[1:4]
        )
    run_stream(spark, options, said.append)
    found = rows(spark, tmp_path / "out" / "silver")
    compacted = [str(path) for path in options.events.rglob("compact-*.parquet")]
    with DuckEngine(threads=2) as duck:
        pipeline.build_silver(duck, compacted, tmp_path / "whole")
    same_rows(found, rows(spark, tmp_path / "whole" / "silver"))
    done = compact(options.events, "2027-01-01", 1e12, grace_s=0)
    assert (done.removed, done.waiting) == (3, {})
    run_stream(spark, options, said.append)
    assert not [line for line in said if "compacted" in line], "it goes on"
    late = Options("silver", tmp_path / "events", tmp_path / "later", once=True)
    run_stream(spark, late, said.append)
    assert "1 files were compacted" in said[-1]


def test_late_events_are_counted(spark: SparkSession, segments: list[Path], tmp_path: Path) -> None:
    """H4.4: events of a minute that is closed are left out and told."""
    said: list[str] = []
    options = Options("gold", tmp_path / "events", tmp_path / "out", "10 seconds", once=True)
    offer(segments[1:4], options.events)
    run_stream(spark, options, said.append)
    offer(segments[:1], options.events)
    late = run_stream(spark, options, said.append)
    assert late.late == 2, "the two queues of the first minute"
    assert "2 too late" in said[-1]


def test_a_stream_of_silver_and_the_query_that_picks_one_end(
    spark: SparkSession, streamed: Path, tmp_path: Path
) -> None:
    """H2.4: the stream keeps every end; the query over it gives the rows of a run at once, with
    what their ends say."""
    engine = SparkEngine(spark, tmp_path / "kept")
    engine.view("ends", f"SELECT * FROM parquet.`{streamed / 'tables' / 'silver'}`")
    assert engine.keep("twice", silver.TWICE) == 5
    want = of_ends(spark, streamed / "events", tmp_path / "whole")["silver"]
    picked = engine.rows(silver.ONCE)
    same_rows(picked, want)
    assert len(engine.rows("SELECT * FROM ends")) == len(picked) + 5


def test_streamed_gold_and_the_query_that_counts_each_job_once(
    spark: SparkSession, streamed: Path, tmp_path: Path
) -> None:
    """H4.7: over both tables it gives the rows of a run at once, on either engine, with the
    instants that the ends say."""
    out = streamed / "tables"
    want = of_ends(spark, streamed / "events", tmp_path / "whole")["gold"]
    last = max(map(minute_of, want))
    want = [row for row in want if minute_of(row) < last]  # of streams the others are to come
    engine: Engine
    with DuckEngine(threads=2) as duck:
        for engine in (SparkEngine(spark, tmp_path / "kept"), duck):
            is_spark = engine is not duck
            for view, table in (("ends", "silver"), ("minutes", "gold")):
                place = f"parquet.`{out / table}`" if is_spark else f"'{out / table}/*/*.parquet'"
                engine.view(view, f"SELECT * FROM {place}")
            assert engine.keep("twice", silver.TWICE) == 5
            assert engine.keep("extra", silver.EXTRA) == 5
            found = [row for row in engine.rows(gold.ONCE) if plain(row)["minute"] < last]
            same_rows([plain(row) for row in found], [plain(row) for row in want])
            both = [plain(row) for row in engine.rows("SELECT minute, change FROM minutes")]
            change = sum(row["change"] for row in both if row["minute"] < last)
            assert change == sum(row["change"] for row in want) - 5, "as it is written"


def plain(row: dict[str, Any]) -> dict[str, Any]:
    """Without zones, which engines tell in their own ways."""
    return {k: v.replace(tzinfo=None) if isinstance(v, datetime) else v for k, v in row.items()}


def test_tables_and_checkpoints_are_not_mixed(
    spark: SparkSession, segments: list[Path], tmp_path: Path
) -> None:
    """H4.5, and H4.2: a file that no finished batch wrote is no part of the table."""
    events = tmp_path / "events"
    options = Options("silver", events, tmp_path / "out", once=True)
    with pytest.raises(NoEventsError, match="no such directory"):
        options.check()
    offer(segments[:1], events)
    at_once(spark, events, tmp_path / "out")
    with pytest.raises(StreamError, match="was written at once"):
        options.check()
    shutil.rmtree(tmp_path / "out")
    run_stream(spark, options, lambda _: None)
    assert is_streamed(tmp_path / "out" / "silver")
    (written,) = (tmp_path / "out" / "silver").glob("date=*/*.parquet")
    shutil.copy(written, written.with_name("part-of-a-killed-attempt.parquet"))
    assert len(rows(spark, tmp_path / "out" / "silver")) == 24
    shutil.rmtree(options.checkpoint)
    with pytest.raises(StreamError, match="double"):
        options.check()


@pytest.mark.slow
def test_the_page_about_it(
    streamed: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Any,
    request: pytest.FixtureRequest,
) -> None:
    """docs/histories.md: the queries that pick one end, as they stand there.

    The last minute, with one end, is not there yet if the tables were written by streams.
    """
    page = Path(__file__).parents[2] / "docs" / "histories.md"
    blocks = page.read_text().split("```python\n")[1:3]
    code = "".join(block.split("```")[0] for block in blocks)
    monkeypatch.chdir(tmp_path)
    code = code.replace("`tables/", f"`{streamed}/tables/")  # the JVM stays
    exec(compile(code, str(page), "exec"), {})
    shown = capsys.readouterr().out
    assert "|  acked|" in shown and "|       6|" in shown, shown
    is_whole = "in one batch" in request.node.name
    sums = "|    q|         6|          1|" if is_whole else "|    q|         5|          2|"
    assert sums in shown, shown
