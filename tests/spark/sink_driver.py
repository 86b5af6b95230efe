"""A driver to be killed: files, or a leased queue, into a queue. Started by its path.

    sink_driver.py PLACE PORT MODE FAULT

FAULT: none; published, which kills the driver when batch 1 is published and Spark did not note it
yet; flaky, which fails each task once after its rows are written. Prints `batch N` as they begin.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tuque.spark import session
from tuque.spark.datasource import TuqueDataSource
from tuque.spark.sink.writer import StreamWriter

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def rows(
    spark: SparkSession, place: Path, port: str, mode: str
) -> tuple[DataFrame, dict[str, str]]:
    """The rows to write, and the options that go with them."""
    if mode == "lease":
        leased = {
            "port": port,
            "queue": "in",
            "group": "g",
            "maxJobsPerTrigger": "2000",
            "ackedBy": "sink",
        }
        frame = spark.readStream.format("tuque").options(**leased).load().select("body", "lease")
        return frame, {"port": port, "mode": "staged", "ackGroup": "g"}
    text = spark.readStream.option("maxFilesPerTrigger", 1).text(str(place / "in"))
    frame = text.selectExpr("value AS body").repartition(2)
    return frame, {"port": port, "mode": mode}


def fails_once(batches: Iterator[Any]) -> Iterator[Any]:
    from pyspark import TaskContext

    yield from batches
    if TaskContext.get().attemptNumber() == 0:
        time.sleep(0.2)  # the sink has sent what it has
        raise RuntimeError("this task fails once")


def main(place: Path, port: str, mode: str, fault: str) -> None:
    spark = session(
        "sink driver",
        master="local[2,4]",
        conf={"spark.driver.memory": "1g", "spark.sql.shuffle.partitions": "2"},
        log=place / f"spark-{os.getpid()}.log",
    )
    jvm = int(spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid())
    (place / "pids").write_text(f"{os.getpid()} {jvm}")
    pids = (jvm, os.getpid())
    marker = place / "died"

    class Dying(StreamWriter):
        def commit(self, messages: Any, batchId: int) -> None:
            super().commit(messages, batchId)
            if batchId == 1 and not marker.exists():
                marker.touch()
                for pid in pids:
                    os.kill(pid, signal.SIGKILL)
                time.sleep(60)

    class Format(TuqueDataSource):
        def streamWriter(self, schema: Any, overwrite: bool) -> StreamWriter:
            found = super().streamWriter(schema, overwrite)
            return Dying(found.options) if fault == "published" else found

    spark.dataSource.register(Format)
    frame, options = rows(spark, place, port, mode)
    if fault == "flaky":
        frame = frame.mapInArrow(fails_once, frame.schema)
    if mode == "dedupe":
        frame = frame.withColumn("dedupe_key", frame.body)
    options |= {"queue": "out", "pipeline": "100", "checkpointLocation": str(place / "checkpoint")}
    write = frame.writeStream.format("tuque").options(**options)
    write.trigger(availableNow=True).start().awaitTermination()
    (place / "done").touch()
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4])
