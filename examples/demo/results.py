"""The Spark side of the demo: `python -m demo.results URL RUN_DIR`, controlled by lines.

A streaming query leases results from their queue and appends them to a Parquet table, each once:
jobs may come twice (a worker died after it sent its result, a node after it delivered one), so the
query keeps the ids it has seen, and the table's log names the valid files. `stop` ends the query;
`report` makes the report of the events and joins it with the table; the end of input ends the
program. Every reply is one JSON line.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from demo.tasks import FILES, RESULTS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

TABLE: Final = "results"
CHECKPOINT: Final = "results-checkpoint"
LOG: Final = "spark.log"
EVERY: Final = "500 milliseconds"
COLUMNS: Final = (
    "job_id string, path string, lines long, functions long, classes long, imports long, "
    "calls long, tries int, parse_ms double"
)
SETTINGS: Final = {
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",  # it runs for a minute only
    "spark.sql.shuffle.partitions": "1",
}

CHECKED: Final = """
SELECT count(*) AS rows, count(DISTINCT job_id) AS jobs FROM results
"""
JOINED: Final = f"""
SELECT count_if(j.outcome = 'acked' AND r.job_id IS NULL) AS acked_without_result,
       count_if(j.outcome = 'acked' AND r.job_id IS NOT NULL) AS acked_with_result
FROM (SELECT job_id, outcome FROM jobs WHERE queue = '{FILES}') j
LEFT JOIN results r ON j.job_id = r.job_id
"""
SLOWEST: Final = """
SELECT path, lines, tries, parse_ms FROM results ORDER BY parse_ms DESC, path LIMIT 3
"""


def start_query(spark: SparkSession, url: str, run_dir: Path) -> StreamingQuery:
    """From the queue of results to the table, only the first result of each job."""
    from pyspark.sql.functions import col, from_json

    queue = (
        spark.readStream.format("tuque")
        .option("url", url)
        .option("queue", RESULTS)
        .option("group", "demo")
        .option("numPartitions", 1)
        .schema("id string, body binary")
        .load()
    )
    found = from_json(col("body").cast("string"), COLUMNS).alias("found")
    return (
        queue.select(found)
        .select("found.*")
        .dropDuplicates(["job_id"])
        .writeStream.queryName("results")
        .format("parquet")
        .option("path", str(run_dir / TABLE))
        .option("checkpointLocation", str(run_dir / CHECKPOINT))
        .trigger(processingTime=EVERY)
        .start()
    )


def report(spark: SparkSession, run_dir: Path) -> dict[str, Any]:
    """The report of the events, and its figures about the rows of the table."""
    from tuque.spark.cli.report import run

    run(run_dir / "events", run_dir / "report", SETTINGS["spark.driver.memory"])
    spark.read.schema(COLUMNS).parquet(str(run_dir / TABLE)).createOrReplaceTempView("results")
    spark.read.parquet(str(run_dir / "report" / "jobs")).createOrReplaceTempView("jobs")
    said = {**spark.sql(CHECKED).collect()[0].asDict(), **spark.sql(JOINED).collect()[0].asDict()}
    return {**said, "slowest": [row.asDict() for row in spark.sql(SLOWEST).collect()]}


def answer(what: str, **more: Any) -> None:
    """Reply to the demo with one line."""
    print(json.dumps({"answer": what, **more}), flush=True)


def serve(url: str, run_dir: Path) -> None:
    """Runs the query and obeys until the input ends."""
    from tuque.spark import session

    spark = session("tuque demo", master="local[2]", conf=SETTINGS, log=run_dir / LOG)
    query = start_query(spark, url, run_dir)
    while not query.recentProgress and query.exception() is None:
        query.awaitTermination(1)
    answer("ready")
    for line in sys.stdin:
        if line.strip() == "stop":
            failed = query.exception()
            query.stop()
            if failed is not None:
                raise failed
            answer("stopped")
        elif line.strip() == "report":
            answer("report", **report(spark, run_dir))
    query.stop()
    spark.stop()


if __name__ == "__main__":
    serve(sys.argv[1], Path(sys.argv[2]))
