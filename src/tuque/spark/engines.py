"""What a pipeline needs of its engine; Spark is one, duckdb another (duck.py).

Both run the same SQL. A view names a query, a kept result is computed once, a table is Parquet by
date. Knows nothing of what the queries mean.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from tuque.spark import schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

WRITERS: str = "spark.sql.maxConcurrentOutputFileWriters"


class Engine(Protocol):
    """Runs SQL over Parquet."""

    def read(self, view: str, files: Sequence[str], columns: str) -> None:
        """Name the files' rows; `columns` is Spark DDL; a column missing in a file is NULL."""

    def read_log(self, view: str, files: Sequence[str], columns: str) -> None:
        """The same for JSON lines (by suffix) and Parquet together."""

    def view(self, name: str, query: str) -> None:
        """Name a query."""

    def keep(self, name: str, query: str) -> int:
        """Compute the query now and name its rows; returns how many."""

    def table(self, name: str, query: str, path: Path) -> None:
        """Write the query's rows by date, replacing older ones, and name them."""

    def rows(self, query: str) -> list[dict[str, Any]]:
        """The rows of a query with a small result."""


class SparkEngine:
    """The engine for clusters, and for histories too big for one machine."""

    def __init__(self, spark: SparkSession, scratch: Path) -> None:
        self.spark = spark
        self.scratch = scratch.resolve()  # the JVM keeps the directory it was started in

    def read(self, view: str, files: Sequence[str], columns: str) -> None:
        """See Engine."""
        self.spark.read.schema(columns).parquet(*files).createOrReplaceTempView(view)

    def read_log(self, view: str, files: Sequence[str], columns: str) -> None:
        """See Engine."""
        parquet, lines = sort_by_kind(files)
        reader = self.spark.read.schema(columns)
        frames = [reader.parquet(*parquet)] if parquet else []
        frames += [reader.option("mode", "FAILFAST").json(lines)] if lines else []
        frame = frames[0] if len(frames) == 1 else frames[0].unionByName(frames[1])
        frame.createOrReplaceTempView(view)

    def view(self, name: str, query: str) -> None:
        """See Engine."""
        self.spark.sql(query).createOrReplaceTempView(name)

    def keep(self, name: str, query: str) -> int:
        """See Engine. Written as a file, so that Spark knows its size and joins it accordingly."""
        path = self.scratch / name
        frame = self.spark.sql(query)
        frame.write.mode("overwrite").parquet(str(path))
        kept = self.spark.read.schema(frame.schema).parquet(str(path))
        kept.createOrReplaceTempView(name)
        return kept.count()

    def table(self, name: str, query: str, path: Path) -> None:
        """See Engine."""
        frame = self.spark.sql(query)
        path = path.resolve()
        if path.exists():
            shutil.rmtree(path)
        by_date(frame).parquet(str(path))
        self.spark.read.schema(frame.schema).parquet(str(path)).createOrReplaceTempView(name)

    def rows(self, query: str) -> list[dict[str, Any]]:
        """See Engine."""
        return [row.asDict() for row in self.spark.sql(query).collect()]


def by_date(frame: DataFrame) -> Any:
    """A writer of the frame into directories by date; does not sort if dates are few."""
    frame.sparkSession.conf.set(WRITERS, "32")
    return frame.write.option("compression", "zstd").partitionBy("date")


def sort_by_kind(files: Sequence[str]) -> tuple[list[str], list[str]]:
    """Split into Parquet files and others."""
    parquet = [name for name in files if name.endswith(".parquet")]
    return parquet, [name for name in files if not name.endswith(".parquet")]


def read_events(engine: Engine, files: Sequence[str]) -> None:
    """Name the rows of event segments `events`."""
    engine.read("events", files, schema.EVENTS)
