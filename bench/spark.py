"""The sections of `make bench` that need Spark, and their common parts.

A section is a function in a module of this directory that takes the Run and adds ratios with
`run.note`; its module is imported when the section runs, so that others need no PySpark. Each
section starts and stops one session: two at a time would disturb each other.
"""

from __future__ import annotations

import importlib
import importlib.util
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Section, module of this directory, function.
SECTIONS: dict[str, tuple[str, str]] = {
    "spark-floor": ("spark_streams", "bench_floor"),
    "spark-source": ("spark_streams", "bench_source"),
    "histories": ("spark_histories", "bench_histories"),
    "spark-sink": ("spark_sink", "bench_sink"),
}


def section(name: str) -> Callable[[Any], None]:
    """The function for that section; without PySpark it only says so."""

    def run_it(run: Any) -> None:
        if importlib.util.find_spec("pyspark") is None:
            print(f"skip   {name}: PySpark is not installed")
            return
        module, function = SECTIONS[name]
        getattr(importlib.import_module(module), function)(run)

    return run_it


def sections() -> dict[str, Callable[[Any], None]]:
    """All of them by name, for the table of run.py."""
    return {name: section(name) for name in SECTIONS}


@contextmanager
def local_session(conf: Mapping[str, str] | None = None) -> Iterator[tuple[SparkSession, Path]]:
    """A session with two cores and 1 GB, and a directory for checkpoints and tables."""
    from tuque.spark import session

    settings = {"spark.driver.memory": "1g", "spark.sql.shuffle.partitions": "2", **(conf or {})}
    with tempfile.TemporaryDirectory(prefix="tuque-bench-") as scratch:
        place = Path(scratch)
        spark = session("bench", master="local[2]", conf=settings, log=place / "spark.log")
        try:
            yield spark, place
        finally:
            spark.stop()
