"""A Spark session in this process, small and quick to start."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from tuque.spark import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Tables have some rows here: to compile classes for each query, and to change its plan on the way,
# would cost more than it brings.
SETTINGS = {
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.driver.memory": "1g",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.shuffle.partitions": "1",
}


def local_session(place: Path) -> Iterator[SparkSession]:
    """A session of two tasks at once, stopped at the end; its log is in `place`."""
    running = session("tests", master="local[2]", conf=SETTINGS, log=place / "spark.log")
    yield running
    running.stop()
