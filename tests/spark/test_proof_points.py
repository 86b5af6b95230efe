"""The driver is killed at each point of a batch: nothing lost, nothing twice.

Short: one kill each. tests/e2e/spark_chaos_points.py kills again and again.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

import dying
from cluster_driver import assert_once, drain, fill, left
from sink_lab import use_sink

from lab import RealServer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
JOBS = 800


@pytest.mark.slow
@pytest.mark.parametrize(
    ("point", "sink"),
    [("leased", "table"), ("read", "table"), ("staged", "queue"), ("published", "queue")],
)
def test_the_driver_is_killed(
    spark: SparkSession, broker: RealServer, tmp_path: Path, point: str, sink: str
) -> None:
    fill(broker, JOBS)
    asked = {"sink": sink, "point": point, "batch": 1, "jobs": JOBS // 4}
    dying.kill_at(asked, tmp_path, broker.port)
    assert left(broker) >= JOBS // 2, "it died in the middle"
    use_sink(spark)
    dying.run(spark, tmp_path, broker.port, {"sink": sink, "jobs": JOBS // 4})
    print(f"killed when {point}: ", end="")
    assert_once(dying.rows(spark, tmp_path) if sink == "table" else drain(broker), JOBS)
    assert left(broker) == 0, "the last batch is acknowledged too"
