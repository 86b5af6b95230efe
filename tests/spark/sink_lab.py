"""What the tests of the sink share: a broker with a journal, rows, and what is in its queues."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from lab import RealServer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def journaled(directory: Path) -> RealServer:
    """A broker that loses nothing when it is killed."""
    directory.mkdir(parents=True, exist_ok=True)
    return RealServer(directory, "--appendonly", "yes", "--appendfsync", "always").start()


def empty(server: RealServer) -> None:
    """Nothing is left of what tests before did there."""
    wire = server.wire()
    assert wire("DEBUG", "FLUSHALL") == b"OK"
    wire.close()


def rows(spark: SparkSession, count: int, parts: int = 2) -> DataFrame:
    """The bodies 0 to count - 1."""
    return spark.range(0, count, 1, parts).selectExpr("CAST(id AS STRING) AS body")


def bodies(server: RealServer, queue: str = "q") -> Counter[bytes]:
    """How often each body is queued."""
    found: Counter[bytes] = Counter()
    wire, cursor = server.wire(), b"0"
    while True:
        words = ("QUEUE", queue, "STATE", "queued", "COUNT", 1000, "REPLY", "all")
        cursor, rows = wire("JSCAN", cursor, *words)
        for row in rows:
            found[dict(zip(row[::2], row[1::2], strict=True))[b"body"]] += 1
        if cursor == b"0":
            return found


def once_each(count: int) -> Counter[bytes]:
    """What there must be when every row became one job."""
    return Counter(str(i).encode() for i in range(count))


def use_sink(spark: SparkSession) -> None:
    """Makes `format("tuque")` known to the session."""
    from tuque.spark.datasource import register

    register(spark)
