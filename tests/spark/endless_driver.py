"""A driver to be killed: a queue into Parquet and one into Delta, until a file `stop` is there.

    endless_driver.py PLACE URL

Started again with the same PLACE it goes on where it was. At its end `rows` has the id and the body
of each row of each table, as JSON. Queues, groups and tables are named after the sinks.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from spark_here import local_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

LOOK_S = 0.2
SINKS = ("parquet", "delta")


def append(path: str, batch: DataFrame, number: int) -> None:
    """Append a batch to a table of Delta, once: its number is in the same commit."""
    from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

    if DeltaTable.is_deltatable(path):
        last = DeltaTable(path).transaction_version("stream")
        if last is not None and last >= number:
            return
    done = CommitProperties(app_transactions=[Transaction("stream", number)])
    write_deltalake(path, batch.toArrow(), mode="append", commit_properties=done)


def start(spark: SparkSession, place: Path, url: str, sink: str) -> StreamingQuery:
    """A query, with a batch as soon as there are jobs."""
    given = {"url": url, "queue": sink, "group": sink, "maxJobsPerTrigger": "600"}
    rows = spark.readStream.format("tuque").options(**given).load().select("id", "body")
    write = rows.writeStream.option("checkpointLocation", str(place / sink / "checkpoint"))
    table = str(place / sink / "table")
    if sink == "delta":
        return write.foreachBatch(lambda batch, number: append(table, batch, number)).start()
    return write.format("parquet").option("path", table).start()


def found(spark: SparkSession, place: Path, sink: str) -> list[tuple[str, str]]:
    """The rows of a table."""
    table = str(place / sink / "table")
    if sink == "delta":
        from deltalake import DeltaTable

        read = DeltaTable(table).to_pyarrow_table().to_pylist()
        return [(row["id"], row["body"].decode()) for row in read]
    return [(row.id, bytes(row.body).decode()) for row in spark.read.parquet(table).collect()]


def main(place: Path, url: str) -> None:
    for spark in local_session(place):
        queries = [start(spark, place, url, sink) for sink in SINKS]
        while not (place / "stop").exists():
            for query in queries:
                if not query.isActive:
                    query.awaitTermination()  # raises what ended it
            time.sleep(LOOK_S)
        for query in queries:
            query.stop()
        rows = {sink: found(spark, place, sink) for sink in SINKS}
        (place / "rows").write_text(json.dumps(rows))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
