"""A Spark session in this process, small and quick to start."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from tuque.spark import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTINGS = {
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.driver.memory": "1g",
    "spark.sql.shuffle.partitions": "2",
}


def local_session(place: Path) -> Iterator[SparkSession]:
    """A session of two tasks at once, stopped at the end; its log is in `place`."""
    running = session("tests", master="local[2]", conf=SETTINGS, log=place / "spark.log")
    yield running
    running.stop()
