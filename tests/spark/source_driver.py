"""A driver to be killed: queue `q` of several nodes into a table until nothing is left.

    source_driver.py PLACE URL

Started again with the same PLACE it goes on where it was. At the end `bodies` has what is in the
table, as JSON.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from tuque.spark import session

if TYPE_CHECKING:
    import pyarrow as pa


def slowly(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches
    time.sleep(0.5)


def main(place: Path, url: str) -> None:
    settings = {
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
        "spark.driver.memory": "1g",
        "spark.sql.shuffle.partitions": "2",
    }
    log = place / f"spark-{os.getpid()}.log"
    spark = session("source driver", master="local[2]", conf=settings, log=log)
    rows = (
        spark.readStream.format("tuque")
        .option("url", url)
        .option("queue", "q")
        .option("group", "g")
        .option("maxJobsPerTrigger", "300")
        .load()
        .select("id", "body")
    )
    query = (
        rows.mapInArrow(slowly, rows.schema)
        .writeStream.format("parquet")
        .option("path", str(place / "table"))
        .option("checkpointLocation", str(place / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    found = spark.read.parquet(str(place / "table")).select("body").collect()
    (place / "bodies").write_text(json.dumps([int(bytes(row.body)) for row in found]))
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
