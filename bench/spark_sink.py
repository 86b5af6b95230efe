"""Spark's sink beside one pipelined Python producer, on the same node."""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Any

import servers

from spark import local_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS = 400_000
PIPELINE = 1000
BODY = "x" * 100


def produce(port: int, queue: str) -> float:
    """Jobs per second of redis-py with pipelines of 1000."""
    import redis

    client: Any = redis.Redis(port=port)
    start = perf_counter()
    for _ in range(ROWS // PIPELINE):
        pipe = client.pipeline(transaction=False)
        for _ in range(PIPELINE):
            pipe.execute_command("ADDJOB", queue, BODY, 5000)
        pipe.execute()
    rate = ROWS / (perf_counter() - start)
    client.close()
    return rate


def write(frame: DataFrame, port: int, queue: str, rows: int, **options: str) -> float:
    """Jobs per second of a batch write, including Spark's own time."""
    start = perf_counter()
    writer = frame.write.format("tuque").mode("append").options(port=str(port), queue=queue)
    writer.options(**options).save()
    return rows / (perf_counter() - start)


def frame_of(spark: SparkSession, rows: int) -> DataFrame:
    """Rows with a body of 100 bytes."""
    return spark.range(0, rows, 1, 2).selectExpr(
        "lpad(CAST(id AS STRING), 100, 'x') AS body", "CAST(id AS STRING) AS dedupe_key"
    )


def bench_sink(run: Any) -> None:
    """Arrow sink, append, dedupe and staged, against the producer, in turn."""
    from tuque.spark.datasource import register

    with local_session() as (spark, _):
        register(spark)
        frame = frame_of(spark, ROWS)
        with servers.tuque() as ours:
            write(frame.drop("dedupe_key"), ours.port, "warm", ROWS)

        def one(mode: str) -> float:
            with servers.tuque() as ours:  # its own: a full node behaves differently
                if mode == "producer":
                    return produce(ours.port, "q")
                rows = frame if mode == "dedupe" else frame.drop("dedupe_key")
                return write(rows, ours.port, "q", ROWS, mode=mode)

        found = run.rounds_of(
            {m: lambda m=m: one(m) for m in ("append", "dedupe", "staged", "producer")}
        )
    for mode, target in (("append", 1.5), ("dedupe", 0.0), ("staged", 0.0)):
        ratio = run.ratio(found[mode], found["producer"])
        detail = " : ".join(
            f"{sorted(found[m])[len(found[m]) // 2]:,.0f}/s" for m in (mode, "producer")
        )
        run.note(f"Spark sink {mode} / Python producer", ratio, "x", target, True, detail)
