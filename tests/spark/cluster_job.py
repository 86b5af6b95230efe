"""Programs that run on a Spark of several processes: `python cluster_job.py NAME JSON`.

The JSON has `conf`, `port` and `work`, a directory. Each prints one JSON line with its counts
as the last line of its output.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tuque.spark import session

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession


def queue_rows(spark: SparkSession, asked: dict[str, Any]) -> DataFrame:
    """The stream of a queue under a group."""
    return (
        spark.readStream.format("tuque")
        .option("port", asked["port"])
        .option("queue", "in")
        .option("group", "g")
        .option("maxJobsPerTrigger", asked.get("batch", 1000))
        .option("numPartitions", 2)
        .option("leaseTimeout", "5m")
        .load()
    )


def slowly(frame: DataFrame, asked: dict[str, Any]) -> DataFrame:
    """The rows; each task takes a while, the first attempt at partition 1 longer, or fails.

    Attempts leave their names in `work`.
    """
    first_s, each_s, fails = asked["first_s"], asked["each_s"], asked.get("fails", False)
    work = asked["work"]

    def passed(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        part, attempt = context.partitionId(), context.attemptNumber()
        yield from batches
        Path(work, f"attempt-{part}-{attempt}").touch()
        time.sleep(each_s)
        if part == 1 and attempt == 0:
            time.sleep(first_s)
            assert not fails, "the first attempt fails"

    return frame.mapInArrow(passed, frame.schema)


def source(spark: SparkSession, asked: dict[str, Any]) -> dict[str, Any]:
    """The queue `in` into Parquet until nothing is left."""
    work = Path(asked["work"])
    rows = slowly(queue_rows(spark, asked).select("id", "body"), asked)
    query = (
        rows.writeStream.format("parquet")
        .option("path", str(work / "table"))
        .option("checkpointLocation", str(work / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    found = spark.read.parquet(str(work / "table"))
    return {
        "rows": found.count(),
        "jobs": found.select("id").distinct().count(),
        "bodies": found.select("body").distinct().count(),
        "batches": len(list((work / "checkpoint" / "commits").glob("[0-9]*"))),
    }


def through(spark: SparkSession, asked: dict[str, Any]) -> dict[str, Any]:
    """The queue `in` into the queue `out`, staged, until nothing is left."""
    rows = slowly(queue_rows(spark, asked).select("body"), asked)
    query = (
        rows.writeStream.format("tuque")
        .option("port", asked["port"])
        .option("queue", "out")
        .option("mode", "staged")
        .option("checkpointLocation", str(Path(asked["work"], "checkpoint")))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return {}


def sink(spark: SparkSession, asked: dict[str, Any]) -> dict[str, Any]:
    """A table into the queue `out`, staged."""
    rows = spark.range(0, asked["count"], 1, 2).selectExpr("cast(id as string) AS body")
    rows = slowly(rows, asked)
    (
        rows.write.format("tuque")
        .mode("append")
        .option("port", asked["port"])
        .option("queue", "out")
        .option("mode", "staged")
        .save()
    )
    return {}


JOBS = {"source": source, "sink": sink, "through": through}

if __name__ == "__main__":
    asked = json.loads(sys.argv[2])
    work = Path(asked["work"])
    work.mkdir(parents=True, exist_ok=True)
    spark = session("cluster job", conf=asked["conf"], log=work / "spark.log")
    counts = JOBS[sys.argv[1]](spark, asked)
    statuses = spark.sparkContext._jsc.sc().getExecutorMemoryStatus().keys()
    counts["hosts"] = statuses.mkString(",").split(",")
    spark.stop()
    print(json.dumps(counts))
