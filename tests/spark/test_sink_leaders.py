"""The sink of rows for a tube whose leader changes in each batch; the writer without Spark."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

pytest.importorskip("pyspark")

import pyarrow as pa
from pyspark.sql.types import StringType, StructType

from lab import RealCluster
from tuque.spark.sink.writer import writer
from until import until

ROWS = 40  # of a batch
BATCHES = 6


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealCluster]:
    flags = ("--appendonly", "yes", "--cluster-node-timeout", "1500")
    with RealCluster(tmp_path_factory.mktemp("sink"), 3, *flags, voters=3) as made:
        yield made


def batch(number: int, between: Callable[[], None]) -> Iterator[pa.RecordBatch]:
    """The rows of one batch; the first half is on its way when `between` is called."""
    for half in range(2):
        if half:
            between()
        bodies = [f"{number} {half} {row}" for row in range(ROWS // 2)]
        yield pa.RecordBatch.from_pydict({"body": bodies, "dedupe_key": bodies})


def write(url: str, tube: str, mode: str, rows: Iterator[pa.RecordBatch]) -> None:
    """One batch, as Spark has a task and the driver do it."""
    schema = StructType().add("body", StringType())
    if mode == "dedupe":
        schema = schema.add("dedupe_key", StringType())
    else:
        rows = (part.drop_columns(["dedupe_key"]) for part in rows)
    options = {"url": url, "queue": tube, "mode": mode, "pipeline": "10", "retryTimeout": "20s"}
    task = writer(options, schema, False)
    task.commit([task.write(rows)])


def bodies(cluster: RealCluster, tube: str) -> Counter[bytes]:
    """How often each row is in the tube."""
    found: list[Any] = cluster.leader(tube).wire()("GETJOB", "NOHANG", "COUNT", 1000, "FROM", tube)
    return Counter(job[2] for job in found)


def rows_once() -> Counter[bytes]:
    """Each row of all batches, once."""
    halves = ((number, half) for number in range(BATCHES) for half in range(2))
    return Counter(f"{n} {h} {row}".encode() for n, h in halves for row in range(ROWS // 2))


@pytest.mark.parametrize("mode", ["append", "dedupe"])
def test_a_switchover_in_each_batch(cluster: RealCluster, mode: str) -> None:
    """T17.3 refused before it does anything: `-TUBEHOME <host>:<port> Tube '<name>' has its leader
    there`: so no row is lost, and none is there twice.
    """
    tube = f"moves-{mode}"
    cluster.create(tube, "tasks", "SYNC", 2)

    def move() -> None:
        leader = cluster.leader(tube)
        to = cluster.ids[(cluster.nodes.index(leader) + 1) % 3]
        until(lambda: leader.wire()("TUBE", "HOME", tube, to) == b"OK", cluster.logs)

    for number in range(BATCHES):
        write(cluster.nodes[0].url, tube, mode, batch(number, move))
    assert bodies(cluster, tube) == rows_once()
