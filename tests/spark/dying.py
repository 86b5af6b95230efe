"""A query from the queue `in` that dies at a point of a batch, and the same one whole.

    dying.py JSON    with place, port, sink, point, batch, jobs

It kills itself, Python and JVM at once, as when the machine goes away; a file `died` in the
place says that it came so far. Points, in their order:

    leased     the batch is leased, and is not in the offset log
    read       a task has read its part
    staged     all tasks have written, nothing is published
    published  it is published, and not in the commit log
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tuque

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SOURCE = Path(tuque.__file__).parents[1]
POINTS = {"table": ("leased", "read"), "queue": ("leased", "read", "staged", "published")}
LIMIT_S = 240.0


def kill_at(asked: dict[str, Any], place: Path, port: int) -> None:
    """Runs the query in a process of its own until it has killed itself where it was asked to."""
    words = json.dumps({**asked, "place": str(place), "port": port})
    marker = place / "died"
    marker.unlink(missing_ok=True)
    with (place / "driver.log").open("wb") as log:
        done = subprocess.run(
            [sys.executable, __file__, words],
            env={**os.environ, "PYTHONPATH": str(SOURCE)},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            timeout=LIMIT_S,
        )
    assert done.returncode == -signal.SIGKILL, (place / "driver.log").read_text()[-3000:]
    assert marker.read_text() == asked["point"]


def run(spark: SparkSession, place: Path, port: int, asked: dict[str, Any]) -> None:
    """The query until all is done, from its checkpoint."""
    frame = spark.readStream.format("tuque").option("port", port).option("queue", "in")
    frame = frame.option("group", "g").option("maxJobsPerTrigger", asked["jobs"])
    leased = frame.option("numPartitions", 2).load().select("id", "body")
    if asked.get("point") == "read":
        leased = leased.mapInArrow(reading(asked), leased.schema)
    if asked["sink"] == "table":
        write = leased.writeStream.format("parquet").option("path", str(place / "table"))
    else:
        write = leased.select("body").writeStream.format("tuque").option("port", port)
        write = write.option("queue", "out").option("mode", "staged")
    write = write.option("checkpointLocation", str(place / "checkpoint"))
    query = write.trigger(availableNow=True).start()
    assert query.awaitTermination(LIMIT_S), "the query does not end"


def rows(spark: SparkSession, place: Path) -> Counter[str]:
    """How often each body is in the table."""
    found: list[Any] = spark.read.parquet(str(place / "table")).select("body").collect()
    return Counter(bytes(row.body).decode() for row in found)


def reading(asked: dict[str, Any]) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """Rows as they are; the driver dies when the task has them all."""
    die = death(asked)
    batch = str(asked["batch"])

    def passed(batches: Iterator[Any]) -> Iterator[Any]:
        from pyspark import TaskContext

        yield from list(batches)
        if TaskContext.get().getLocalProperty("streaming.sql.batchId") == batch:
            die()

    return passed


def death(asked: dict[str, Any]) -> Callable[[], None]:
    """What kills the driver. Local to here, so that it comes along to every process."""
    pids, marker, point = asked["pids"], str(Path(asked["place"], "died")), asked["point"]

    def die() -> None:
        import os
        import time

        with open(marker, "w") as file:
            file.write(point)
        for pid in pids:
            os.kill(pid, 9)
        time.sleep(60)

    return die


def dying_format(asked: dict[str, Any]) -> type[Any]:
    """`tuque` whose source or sink dies at the point."""
    from tuque.spark.datasource import TuqueDataSource

    die, point, last = death(asked), asked["point"], asked["batch"]

    class Format(TuqueDataSource):
        def streamReader(self, schema: Any) -> Any:
            found = super().streamReader(schema)
            if point != "leased":
                return found
            kind = type(found)

            class Dying(kind):  # type: ignore[misc, valid-type] # found as it runs
                leased = 0

                def latestOffset(self, start: Any, limit: Any) -> Any:
                    end = super().latestOffset(start, limit)
                    if end != start:
                        self.leased += 1
                    if self.leased > last:
                        die()
                    return end

            found.__class__ = Dying
            return found

        def streamWriter(self, schema: Any, overwrite: bool) -> Any:
            found = super().streamWriter(schema, overwrite)
            if point not in ("staged", "published"):
                return found
            kind = type(found)

            class Dying(kind):  # type: ignore[misc, valid-type] # found as it runs
                def commit(self, messages: Any, batchId: int) -> None:
                    if batchId == last and point == "staged":
                        die()
                    super().commit(messages, batchId)
                    if batchId == last:
                        die()

            found.__class__ = Dying
            return found

    return Format


def main(asked: dict[str, Any]) -> None:
    from spark_here import SETTINGS

    from tuque.spark import session

    place = Path(asked["place"])
    spark = session("dying", master="local[2]", conf=SETTINGS, log=place / "spark.log")
    jvm = int(spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid())
    asked["pids"] = [jvm, os.getpid()]
    spark.dataSource.register(dying_format(asked))
    run(spark, place, asked["port"], asked)
    time.sleep(5)  # it was to die


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
