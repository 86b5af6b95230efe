"""SPEC H1-H3: silver and gold, against histories worked out by hand, on both engines."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("duckdb")

import pyarrow as pa
import pyarrow.parquet as pq
from hist_cluster import write_cluster_history
from spark_history import START_MS, deliver, job_id, make_job

from tuque.spark import gold
from tuque.spark.engines import Engine, SparkEngine
from tuque.spark.history import pipeline
from tuque.spark.history.duck import DuckEngine
from written import Written

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
T0 = datetime(2026, 1, 1)
MIDNIGHT_MS = 86_400_000
SLOWLY = pytest.param("spark", marks=pytest.mark.slow)
AS_A_RULE_DUCKDB = pytest.mark.parametrize("engine", [SLOWLY, "duckdb"], indirect=True)


@pytest.fixture(params=["spark", "duckdb"])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    if request.param == "spark":
        spark: SparkSession = request.getfixturevalue("spark")
        yield SparkEngine(spark, tmp_path / "kept")
    else:
        with DuckEngine(threads=2) as duck:
            yield duck


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("cluster")
    write_cluster_history(directory)
    return directory


def files(events: Path) -> list[str]:
    return [str(path) for path in sorted(events.rglob("events-*.parquet"))]


def at(instant: Any) -> float | None:
    """ms after the start of the history."""
    return None if instant is None else (instant - T0) / timedelta(milliseconds=1)


def silver_rows(engine: Engine, events: Path, out: Path) -> dict[str, dict[str, Any]]:
    pipeline.build_silver(engine, files(events), out)
    found = engine.rows("SELECT * FROM silver")
    assert len({row["job_id"] for row in found}) == len(found), "a job has two rows"
    return {row["job_id"][-1]: row for row in found}


@AS_A_RULE_DUCKDB
def test_files_of_two_kinds_are_one_table(engine: Engine, tmp_path: Path) -> None:
    """Parquet and lines of JSON are read together; a table that is there is replaced."""
    one, other = tmp_path / "one.parquet", tmp_path / "other.jsonl"
    pq.write_table(pa.table({"name": ["a"], "n": [1]}), one)
    other.write_text('{"name": "b", "n": 2}\n')
    engine.read_log("mixed", [str(one), str(other)], "name STRING, n BIGINT")
    for _ in range(2):
        query = "SELECT name, n, TIMESTAMP '2026-01-01 00:00:00' AS seen FROM mixed"
        dated = f"SELECT *, to_date(seen) AS date FROM ({query}) found"
        engine.table("kept", dated, tmp_path / "kept")
    found = engine.rows("SELECT name, n FROM kept ORDER BY n")
    assert [tuple(row.values()) for row in found] == [("a", 1), ("b", 2)]


@AS_A_RULE_DUCKDB
def test_one_row_per_finished_job(engine: Engine, history: Path, tmp_path: Path) -> None:
    """H1.1 to H1.5."""
    found = silver_rows(engine, history, tmp_path)
    stamps = "added_at enqueued_at first_delivered_at last_delivered_at ended_at".split()
    rest = (
        "queue outcome deliveries nacks timeouts size wait_ms process_ms total_ms reason node"
    ).split()
    # fmt: off
    expected = {
        "A": (0, 0, 100, 100, 300, "q", "acked", 1, 0, 0, 10, 100.0, 200.0, 300.0, None),
        "B": (0, 0, 400, 1500, 1700, "q", "acked", 2, 1, 0, 10, 400.0, 200.0, 1700.0, None),
        "C": (200, 2200, 2250, 5300, 5400, "q", "dead", 2, 0, 1, 10, 50.0, 100.0, 5200.0,
              "ValueError: <b>no</b>"),
        "F": (1100, 1100, None, None, 5100, "r", "expired", 0, 0, 0, 10, None, None, 4000.0, None),
        "G": (1000, 1000, 1020, 1020, 1080, "q", "acked", 1, 0, 0, 10, 20.0, 60.0, 80.0, None),
        "H": (3000, 3000, None, None, 3500, "r", "deleted", 0, 0, 0, 10, None, None, 500.0,
              "admin_deleted"),
    }
    # fmt: on
    assert found.keys() == expected.keys(), "those without an end have no row"
    for name, values in expected.items():
        row = found[name]
        assert row["job_id"] == job_id(name)
        assert tuple(at(row[c]) for c in stamps) == values[:5], name
        assert tuple(row[c] for c in rest) == (*values[5:], "n1"), name
        assert row["date"] == date(2026, 1, 1)


@AS_A_RULE_DUCKDB
def test_one_end_counts_in_a_cluster(engine: Engine, cluster: Path, tmp_path: Path) -> None:
    """H2.1 to H2.3: hist_cluster.py tells which and why."""
    found = silver_rows(engine, cluster, tmp_path)
    assert {name: (r["outcome"], r["node"], at(r["ended_at"])) for name, r in found.items()} == {
        "A": ("acked", "n2", 300),
        "B": ("acked", "n2", 400),
        "C": ("dead", "n2", 900),
        "D": ("expired", "n1", 5000),
        "E": ("acked", "n2", 900),
        "F": ("deleted", "n3", 650),
        "G": ("acked", "n3", 4200),
        "I": ("acked", "n1", MIDNIGHT_MS + 30_000),
        "J": ("acked", "n2", 1300),
    }
    c, g, i = found["C"], found["G"], found["I"]
    assert (c["deliveries"], c["nacks"], c["reason"]) == (1, 1, "too old")
    assert (at(g["added_at"]), at(g["enqueued_at"]), g["wait_ms"]) == (1000, 4000, 100.0)
    assert (i["date"], i["total_ms"]) == (date(2026, 1, 2), 90_000.0)
    assert sorted(p.name for p in (tmp_path / "silver").glob("date=*")) == [
        "date=2026-01-01", "date=2026-01-02",
    ]  # fmt: skip


@AS_A_RULE_DUCKDB
def test_the_order_of_files_does_not_matter(engine: Engine, cluster: Path, tmp_path: Path) -> None:
    """H2.3."""
    pipeline.build_silver(engine, files(cluster), tmp_path / "one")
    one = engine.rows("SELECT job_id, node, seq FROM silver ORDER BY job_id")
    pipeline.build_silver(engine, files(cluster)[::-1], tmp_path / "other")
    assert engine.rows("SELECT job_id, node, seq FROM silver ORDER BY job_id") == one


def test_one_row_per_queue_and_minute(engine: Engine, tmp_path: Path) -> None:
    """H3.1 to H3.4."""
    log = Written(tmp_path / "events", "n1")
    events = log.start(START_MS)
    jobs = [make_job(f"{i}", b"q", i * 1000) for i in range(100)]
    for i, job in enumerate(jobs):  # a second apart, waits of i ms, work of 2 i ms
        events.added(START_MS + i * 1000, job)
        deliver(events, job, i * 1000 + i)
        if i % 10:
            events.acked(START_MS + i * 1000 + 3 * i, job)
    log.close(events, START_MS + 100_000)
    pipeline.build_gold(engine, files(tmp_path / "events"), tmp_path / "out")
    engine.view("minutes", "SELECT * FROM gold")
    found = sorted(engine.rows(gold.BACKLOG), key=lambda row: row["minute"])
    kept = "added delivered acked dead change backlog".split()
    assert [at(row["minute"]) for row in found] == [0, 60_000]
    assert [[row[c] for c in kept] for row in found] == [
        [60, 60, 54, 0, 6, 6],
        [40, 40, 36, 0, 4, 10],
    ]
    waits = [i for i in range(60) if i % 10]
    middle = (waits[26] + waits[27]) / 2
    assert found[0]["wait_p50_ms"] == pytest.approx(middle)
    assert found[0]["process_p50_ms"] == pytest.approx(2 * middle)
    assert found[0]["wait_p99_ms"] == pytest.approx(58.47)
    assert found[1]["total_max_ms"] == 3 * 99.0
    assert {row["date"] for row in found} == {date(2026, 1, 1)}


@AS_A_RULE_DUCKDB
def test_a_job_with_two_ends_counts_once(engine: Engine, cluster: Path, tmp_path: Path) -> None:
    """H3.1: gold has the ends that silver has, hist_cluster.py tells which, and no other one."""
    pipeline.build_gold(engine, files(cluster), tmp_path)
    found = sorted(engine.rows("SELECT * FROM gold"), key=lambda row: row["minute"])
    kept = "added acked dead expired deleted change".split()
    assert [[at(row["minute"]), *(row[c] for c in kept)] for row in found] == [
        [0, 9, 5, 1, 1, 1, 1],  # H is open
        [MIDNIGHT_MS - 60_000, 1, 0, 0, 0, 0, 1],
        [MIDNIGHT_MS, 0, 1, 0, 0, 0, -1],
    ]
    assert found[0]["total_max_ms"] == 5000.0
    done = sum(sum(row[c] for c in kept[1:5]) for row in found)
    pipeline.build_silver(engine, files(cluster), tmp_path)
    assert done == len(engine.rows("SELECT * FROM silver"))


@AS_A_RULE_DUCKDB
def test_the_report_gathers_jobs_of_several_nodes(
    engine: Engine, cluster: Path, tmp_path: Path
) -> None:
    """H1.5: open jobs count, and what other nodes saw of a job is in its row."""
    segments = pipeline.find_segments(cluster, tmp_path / "scratch")
    pipeline.build(engine, segments, tmp_path, lambda _: nullcontext())
    found = {row["job_id"][-1]: row for row in engine.rows("SELECT * FROM jobs")}
    assert {name: (r["outcome"], r["deliveries"]) for name, r in found.items()} == {
        "A": ("acked", 1), "B": ("acked", 1), "C": ("dead", 1), "D": ("expired", 0),
        "E": ("acked", 0), "F": ("deleted", 0), "G": ("acked", 1), "H": ("open", 1),
        "I": ("acked", 1), "J": ("acked", 2),
    }  # fmt: skip
    j = found["J"]
    assert (j["wait_ms"], j["process_ms"], j["total_ms"]) == (150.0, 100.0, 1300.0)
