"""What the tests of the source with Spark share: a query into a table, and what came of it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tuque import Client

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


def fill(url: str, first: int, count: int, queue: str = "q") -> None:
    """Jobs first, first + 1 ... at one node."""
    with Client(url, discover=False) as client:
        pipe = client.pipeline()
        for number in range(first, first + count):
            pipe.addjob(queue, str(number))
        pipe.execute()


def stream(spark: SparkSession, url: str, **more: str) -> DataFrame:
    """The jobs of queue `q` as they come; `more` are options."""
    given = {"url": url, "queue": "q", "group": "g", "maxJobsPerTrigger": "100", **more}
    reader = spark.readStream.format("tuque")
    for name, value in given.items():
        if value:
            reader = reader.option(name, value)
    return reader.load()


def into_table(rows: DataFrame, place: Path, now: bool = False) -> StreamingQuery:
    """Starts the query, into `place`; with `now` it ends with what is there."""
    writer = rows.writeStream.format("parquet").option("path", str(place / "table"))
    writer = writer.option("checkpointLocation", str(place / "checkpoint"))
    return writer.trigger(
        **({"availableNow": True} if now else {"processingTime": "0 seconds"})
    ).start()


def bodies(spark: SparkSession, place: Path) -> Counter[int]:
    """How often each body is in the table."""
    if not (place / "table" / "_spark_metadata").exists():
        return Counter()
    table = spark.read.schema("body binary").parquet(str(place / "table"))  # it may have no file
    found: list[Any] = table.collect()
    return Counter(int(bytes(row.body)) for row in found)


def assert_once(found: Counter[int], count: int) -> None:
    """0 lost, 0 duplicates."""
    assert_none_lost(found, count)
    assert sum(found.values()) == count


def assert_none_lost(found: Counter[int], count: int) -> None:
    lost = [n for n in range(count) if n not in found]
    print(f"{len(lost)} lost, {sum(found.values()) - len(found)} duplicates of {count}")
    assert not lost and len(found) == count
