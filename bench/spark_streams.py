"""The lease source: beside a plain loop that fetches and acknowledges, and under light load."""

from __future__ import annotations

import statistics
import time
from typing import TYPE_CHECKING

import load
import servers

from spark import local_session
from tuque import Client

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession
    from run import Run

BATCHES = 40
WARM = 15  # batches until the JVM has compiled the hot code
LIMIT_S = 120.0
BATCH = 50_000
JOBS = 6 * BATCH
BODY = b"x" * 100


def bench_floor(run: Run) -> None:
    """p50 of a trigger with ten jobs, one partition, as reported by Spark."""
    with servers.tuque() as ours, local_session() as (spark, place):
        line = load.Line(ours.port)
        query = (
            spark.readStream.format("tuque")
            .option("port", ours.port)
            .option("queue", "q")
            .option("group", "floor")
            .option("numPartitions", 1)
            .load()
            .writeStream.format("noop")
            .option("checkpointLocation", str(place / "checkpoint"))
            .start()
        )
        took_ms: list[float] = []
        seen = -1
        until = time.monotonic() + LIMIT_S
        while len(took_ms) < BATCHES + WARM and time.monotonic() < until:
            line.add("q", 10, b"x" * 100)
            line_done = time.monotonic() + 10
            while time.monotonic() < line_done:
                last = query.lastProgress
                if last is not None and last.batchId > seen and last.numInputRows:
                    seen = last.batchId
                    took_ms.append(last.durationMs["triggerExecution"])
                    break
                time.sleep(0.005)
        query.stop()
        line.close()
    warm = took_ms[WARM:]
    detail = f"{len(warm)} batches of 10 jobs, p95 {sorted(warm)[int(len(warm) * 0.95)]:.0f} ms"
    run.note("micro-batch floor, p50", statistics.median(warm), "ms", 200, False, detail)


def bench_source(run: Run) -> None:
    """Jobs per second in batches of 50,000, two parts, no output, alternating with the loop."""
    with local_session() as (spark, place):

        def stream() -> float:
            with servers.tuque() as ours:
                line = load.Line(ours.port)
                line.add("q", JOBS, BODY)
                line.close()
                return stream_rate(spark, ours.port, place / f"checkpoint-{ours.port}")

        stream()  # the JVM compiles
        found = run.rounds_of({"stream": stream, "loop": loop_rate})
    ratio = run.ratio(found["stream"], found["loop"])
    detail = " : ".join(f"{statistics.median(found[name]):,.0f}/s" for name in ("stream", "loop"))
    run.note("lease source / GETJOB and FASTACK loop", ratio, "x", 0.6, True, detail)


def stream_rate(spark: SparkSession, port: int, checkpoint: Path) -> float:
    """Jobs per second of all batches but the first, by Spark's own clock."""
    query = (
        spark.readStream.format("tuque")
        .option("port", port)
        .option("queue", "q")
        .option("group", "bench")
        .option("numPartitions", 2)
        .option("maxJobsPerTrigger", BATCH)
        .option("fetchSize", 25_000)
        .load()
        .writeStream.format("noop")
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    told = [last for last in query.recentProgress if last.numInputRows][1:]
    assert sum(last.numInputRows for last in told) == JOBS - BATCH
    return (JOBS - BATCH) * 1000 / sum(last.durationMs["triggerExecution"] for last in told)


def loop_rate() -> float:
    """Jobs per second of GETJOB COUNT 1000 and FASTACK of these, in sequence."""
    with servers.tuque() as ours, Client(f"tuque://127.0.0.1:{ours.port}") as client:
        line = load.Line(ours.port)
        line.add("q", JOBS, BODY)
        line.close()
        began = time.perf_counter()
        while jobs := client.getjob("q", count=1000, nohang=True):
            client.fastack(*(job.id for job in jobs))
        return JOBS / (time.perf_counter() - began)
