"""How long a micro-batch of the lease source takes when there is hardly anything to do."""

from __future__ import annotations

import statistics
import time
from typing import TYPE_CHECKING

import load
import servers

from spark import local_session

if TYPE_CHECKING:
    from run import Run

BATCHES = 40
WARM = 15  # batches until the JVM has compiled what it repeats
LIMIT_S = 120.0


def bench_floor(run: Run) -> None:
    """p50 of a trigger with ten jobs, one partition, as Spark itself tells it."""
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
