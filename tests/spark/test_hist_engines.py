"""Spark and duckdb give the same rows, for every table and every figure of the report."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("duckdb")

from hist_cluster import write_cluster_history
from hist_rows import same_rows

from tuque.spark import gold
from tuque.spark.engines import Engine, SparkEngine
from tuque.spark.history import pipeline
from tuque.spark.history.duck import DuckEngine

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@contextmanager
def quiet(_: str) -> Iterator[None]:
    yield


@pytest.fixture(
    scope="module", params=["one node", pytest.param("cluster", marks=pytest.mark.slow)]
)
def both(
    spark: SparkSession,
    history: Path,
    tmp_path_factory: pytest.TempPathFactory,
    request: pytest.FixtureRequest,
) -> Iterator[list[tuple[Engine, pipeline.Figures, Path]]]:
    """Each engine after the whole pipeline, its figures, and where its tables are."""
    place = tmp_path_factory.mktemp("both")
    if request.param == "cluster":
        history = place / "events"
        write_cluster_history(history)
    segments = pipeline.find_segments(history, place / "scratch")
    with DuckEngine(threads=2) as duck:
        done = []
        engine: Engine
        for name, engine in (("spark", SparkEngine(spark, place / "kept")), ("duckdb", duck)):
            out = place / name
            pipeline.build(engine, segments, out, quiet)
            pipeline.build_silver(engine, segments.sealed, out)
            pipeline.build_gold(engine, segments.sealed, out)
            done.append((engine, pipeline.figures(engine, segments, quiet), out))
        yield done


@pytest.mark.parametrize("table", ["jobs", "seconds", "silver", "gold"])
def test_tables(both: list[tuple[Engine, pipeline.Figures, Path]], table: str) -> None:
    found = [engine.rows(f"SELECT * FROM {table}") for engine, _, _ in both]
    assert found[0], "an empty table proves nothing"
    same_rows(*found)


def test_backlog(both: list[tuple[Engine, pipeline.Figures, Path]]) -> None:
    found = []
    for engine, _, _ in both:
        engine.view("minutes", "SELECT * FROM gold")
        found.append(engine.rows(gold.BACKLOG))
    same_rows(*found)
    assert all(row["backlog"] is not None for row in found[0])


def test_figures(both: list[tuple[Engine, pipeline.Figures, Path]]) -> None:
    (_, one, _), (_, other, _) = both
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


def test_files_are_read_by_the_other_engine(
    both: list[tuple[Engine, pipeline.Figures, Path]], spark: SparkSession
) -> None:
    (_, _, of_spark), (_, _, of_duck) = both
    for table in ("jobs", "seconds", "silver", "gold"):
        one = spark.read.parquet(str(of_spark / table))
        other = spark.read.parquet(str(of_duck / table)).select(one.columns)
        assert [f.dataType for f in one.schema] == [f.dataType for f in other.schema], table
        same_rows([r.asDict() for r in one.collect()], [r.asDict() for r in other.collect()])
