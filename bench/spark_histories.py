"""Histories of any size for the Spark bench, and how fast they become silver and gold.

The events are like a broker's: some three rows per job, in segments, jobs of a few seconds, ids in
random order.
"""

from __future__ import annotations

import sys
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EVENTS = 5_000_000
START_US = 1_767_225_600_000_000
SEGMENT_ROWS = 100_000
JOB_US = 500  # between jobs: 2000 jobs per second
EVENTS_PER_JOB = 3.16  # 8 % of the jobs are delivered again
QUEUES = 8

# Chance is a hash of the number: the same history each time.
JOBS = """
CREATE TEMP TABLE jobs AS
SELECT j, 'queue-' || (hash(j, 1) % {queues}) AS queue,
       printf('D-%08x-%016x%08x-05a1', hash(j, 2) % 4294967296, hash(j, 3), hash(j, 4) % 4294967296)
         AS job_id,
       added, added + wait AS first, added + wait + again AS last,
       added + wait + again + work AS ended, again > 0 AS is_back,
       CASE WHEN hash(j, 5) % 100 = 0 THEN 'dead' ELSE 'acked' END AS ending
FROM (
  SELECT j, {start} + (j * {step}) // 1000 * 1000 AS added,
         CAST(30 * exp(3 * (hash(j, 6) % 10000 / 1e4)) AS BIGINT) * 1000 AS wait,
         CAST(40 * exp(3 * (hash(j, 7) % 10000 / 1e4)) AS BIGINT) * 1000 AS work,
         CASE WHEN hash(j, 8) % 100 < 8 THEN 2000000 ELSE 0 END AS again
  FROM range({jobs}) r(j)
)
"""
EVENTS = """
CREATE TEMP TABLE told AS
SELECT row_number() OVER (ORDER BY us, job_id, n) - 1 AS seq, * FROM (
  SELECT added AS us, 0 AS n, 'added' AS event, 0 AS delivery, * FROM jobs
  UNION ALL SELECT first, 1, 'delivered', 1, * FROM jobs
  UNION ALL SELECT first + 1000000, 2, 'nacked', 1, * FROM jobs WHERE is_back
  UNION ALL SELECT last, 3, 'delivered', 2, * FROM jobs WHERE is_back
  UNION ALL SELECT ended, 4, ending, CASE WHEN is_back THEN 2 ELSE 1 END, * FROM jobs
)
"""
COLUMNS = """
SELECT seq, make_timestamptz(us) AS ts, 'n1' AS node, event, queue, job_id,
       CAST(delivery AS INT) AS delivery, CAST(NULL AS VARCHAR) AS consumer,
       CAST(CASE WHEN n IN (0, 4) THEN 100 END AS INT) AS size,
       CAST(CASE WHEN n IN (0, 4) THEN 0 END AS BIGINT) AS delay_ms,
       CAST(CASE WHEN n = 0 THEN 86400000 END AS BIGINT) AS ttl_ms,
       CAST(CASE WHEN n = 0 THEN 60000 END AS BIGINT) AS retry_ms,
       CAST(NULL AS INT) AS priority,
       CASE WHEN event = 'dead' THEN 'ValueError: no' WHEN event = 'nacked' THEN '' END AS reason,
       CASE WHEN n = 4 THEN make_timestamptz(added) END AS enqueued_at,
       CASE WHEN n = 4 THEN make_timestamptz(first) END AS first_delivered_at,
       CASE WHEN n = 4 THEN make_timestamptz(last) END AS last_delivered_at,
       CAST(CASE WHEN n = 4 THEN delivery END AS INT) AS deliveries,
       CAST(CASE WHEN n = 4 THEN delivery - 1 END AS INT) AS nacks,
       CAST(CASE WHEN n = 4 THEN 0 END AS INT) AS timeouts
FROM told WHERE seq >= {first} AND seq < {end} ORDER BY seq
"""


def write_events(directory: Path, events: int) -> int:
    """Sealed segments with roughly that many events under the directory; the exact number."""
    import duckdb

    with duckdb.connect(config={"threads": 2}) as base:
        jobs = int(events / EVENTS_PER_JOB)
        base.execute(JOBS.format(queues=QUEUES, start=START_US, step=JOB_US, jobs=jobs))
        base.execute(EVENTS)
        counted = base.execute("SELECT count(*) FROM told").fetchone()
        assert counted is not None
        rows = int(counted[0])
        for first in range(0, rows, SEGMENT_ROWS):
            end = min(first + SEGMENT_ROWS, rows)
            day = base.execute(
                f"SELECT CAST(make_timestamp(us) AS DATE) FROM told WHERE seq = {first}"
            ).fetchone()
            assert day is not None
            folder = directory / f"date={day[0]}"
            folder.mkdir(parents=True, exist_ok=True)
            path = folder / f"events-n1-{first:020d}-{end - 1:020d}.parquet"
            part = COLUMNS.format(first=first, end=end)
            base.execute(f"COPY ({part}) TO '{path}' (FORMAT parquet, COMPRESSION zstd)")
    return rows


def measure(events: int) -> dict[str, float]:
    """Seconds of each step and events/s of the streams, for a history of that size.

    Each step is timed in a session that has run the same queries over a small history.
    """
    import spark
    from tuque.spark.engines import SparkEngine
    from tuque.spark.history.duck import DuckEngine
    from tuque.spark.history.pipeline import build_gold, build_silver

    figures: dict[str, float] = {}
    builds = (("silver", build_silver), ("gold", build_gold))
    with spark.local_session() as (running, place):
        write_events(place / "small", 20_000)
        rows = write_events(place / "events", events)
        figures["events"] = rows
        files = sorted(map(str, place.glob("events/date=*/*.parquet")))
        small = sorted(map(str, place.glob("small/date=*/*.parquet")))
        with DuckEngine("1g", threads=2) as duck:
            for name, build in builds:
                began = perf_counter()
                build(duck, files, place / "duck")
                figures[f"duckdb {name} s"] = perf_counter() - began
        engine = SparkEngine(running, place / "kept")
        for name, build in builds:
            build(engine, small, place / "warm")
            began = perf_counter()
            build(engine, files, place / "spark")
            figures[f"spark {name} s"] = perf_counter() - began
        figures |= measure_streams(running, place, rows)
    both = sum(figures[f"spark {name} s"] for name, _ in builds)
    figures["spark / duckdb"] = both / sum(figures[f"duckdb {name} s"] for name, _ in builds)
    return figures


def measure_streams(spark: SparkSession, place: Path, rows: int) -> dict[str, float]:
    """Events/s of both streams over all segments, including the start of the query."""
    from tuque.spark.history.streams import Options, run_stream

    figures = {}
    for table in ("silver", "gold"):
        for source, out in (("small", "warm-stream"), ("events", "stream")):
            options = Options(table, place / source, place / out, files=16, once=True)
            began = perf_counter()
            run_stream(spark, options, lambda line: None)
            took_s = perf_counter() - began
        figures[f"{table} stream events/s"] = rows / took_s
    return figures


def bench_histories(run: Any) -> None:
    """The section of `make bench`."""
    found = measure(EVENTS)
    detail = f"{found['events']:,.0f} events, local[2]"
    for table, least in (("silver", 300_000), ("gold", 200_000)):
        rate = found[f"{table} stream events/s"]
        run.note(f"{table}, streaming", rate, "ev/s", least, True, detail)
    parts = ", ".join(
        f"{engine} {found[f'{engine} silver s']:.1f} + {found[f'{engine} gold s']:.1f} s"
        for engine in ("spark", "duckdb")
    )
    ratio = found["spark / duckdb"]
    run.note("silver + gold at once / duckdb", ratio, "x", 15, False, f"{detail}: {parts}")


if __name__ == "__main__":
    asked = int(sys.argv[1]) if len(sys.argv) > 1 else EVENTS
    for name, value in measure(asked).items():
        print(f"{name:<24}{value:>14,.1f}")
