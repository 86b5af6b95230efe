"""A driver is killed at each point of a batch, in three batches one after the other: `make chaos`.

Queue to table and queue to queue; each ends with 0 lost and 0 duplicates, and prints it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")
sys.path.insert(0, str(Path(__file__).parents[1] / "spark"))

import dying
from cluster_driver import assert_once, drain, fill, left
from sink_lab import journaled, use_sink
from spark_here import local_session

from lab import RealServer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JOBS = 8000
BATCHES = 8


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    yield from local_session(tmp_path_factory.mktemp("spark"))


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[RealServer]:
    running = journaled(tmp_path / "node")
    yield running
    running.end()


@pytest.mark.parametrize(
    ("sink", "point"), [(sink, point) for sink, points in dying.POINTS.items() for point in points]
)
def test_killed_again_and_again(
    spark: SparkSession, broker: RealServer, tmp_path: Path, sink: str, point: str
) -> None:
    fill(broker, JOBS)
    asked = {"sink": sink, "jobs": JOBS // BATCHES}
    for batch in (0, 1, 4):
        dying.kill_at({**asked, "point": point, "batch": batch}, tmp_path, broker.port)
    use_sink(spark)
    dying.run(spark, tmp_path, broker.port, asked)
    print(f"killed three times when {point}, into a {sink}: ", end="")
    assert_once(dying.rows(spark, tmp_path) if sink == "table" else drain(broker), JOBS)
    assert left(broker) == 0, "the last batch is acknowledged too"
