"""Spark and duckdb give the same rows, for every table and every figure of the report."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("duckdb")

from hist_built import TABLES, Built, build_all
from hist_cluster import write_cluster_history
from hist_rows import same_rows

from tuque.spark import gold
from tuque.spark.engines import SparkEngine
from tuque.spark.history.duck import DuckEngine

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]  # all tables by both engines


@pytest.fixture(scope="module", params=["one node", "cluster"])
def both(
    spark: SparkSession,
    history: Path,
    tmp_path_factory: pytest.TempPathFactory,
    request: pytest.FixtureRequest,
) -> Iterator[list[Built]]:
    """Each engine after the whole pipeline."""
    place = tmp_path_factory.mktemp("both")
    one: Built
    if request.param == "one node":
        one = request.getfixturevalue("of_spark")
    else:
        history = place / "events"
        write_cluster_history(history)
        one = build_all(SparkEngine(spark, place / "kept"), history, place / "spark")
    for table in TABLES:  # other tests name theirs so, too
        one.engine.view(table, f"SELECT * FROM parquet.`{one.out / table}`")
    with DuckEngine(threads=2) as duck:
        yield [one, build_all(duck, history, place / "duckdb")]


@pytest.mark.parametrize("table", TABLES)
def test_tables(both: list[Built], table: str) -> None:
    found = [one.engine.rows(f"SELECT * FROM {table}") for one in both]
    assert found[0], "an empty table proves nothing"
    same_rows(*found)


def test_backlog(both: list[Built]) -> None:
    found = []
    for one in both:
        one.engine.view("minutes", "SELECT * FROM gold")
        found.append(one.engine.rows(gold.BACKLOG))
    same_rows(*found)
    assert all(row["backlog"] is not None for row in found[0])


def test_figures(both: list[Built]) -> None:
    one, other = (built.figures for built in both)
    for field in fields(one):
        a, b = getattr(one, field.name), getattr(other, field.name)
        if field.name in ("queues", "rates", "changes", "latencies", "returns", "dead"):
            same_rows(a, b)
        else:  # their order counts, too
            assert close(a, b), field.name


def close(a: Any, b: Any) -> bool:
    """Whether two figures are the same, up to the last bits of a double."""
    if isinstance(a, list):
        return len(a) == len(b) and all(map(close, a, b))
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(close(a[key], b[key]) for key in a)
    return bool(a == (pytest.approx(b) if isinstance(a, float) else b))


def test_files_are_read_by_the_other_engine(both: list[Built], spark: SparkSession) -> None:
    of_spark, of_duck = (built.out for built in both)
    for table in TABLES:
        one = spark.read.parquet(str(of_spark / table))
        other = spark.read.parquet(str(of_duck / table)).select(one.columns)
        assert [f.dataType for f in one.schema] == [f.dataType for f in other.schema], table
        same_rows([r.asDict() for r in one.collect()], [r.asDict() for r in other.collect()])
