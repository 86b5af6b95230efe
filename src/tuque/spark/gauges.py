"""Figures of streaming queries over HTTP, for Prometheus (SPEC O5).

A listener of the session's queries keeps what Spark tells of each batch; the source of
`format("tuque")` adds what its nodes say of the group, in the progress of the query. Runs in the
driver's program.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from tuque.metrics.listener import TEXT_TYPE, Listener, Page, fault, open_sockets
from tuque.metrics.text import (
    COUNTER,
    GAUGE,
    HISTOGRAM,
    OPEN_TYPE,
    OTHER,
    PLAIN_TYPE,
    Family,
    render,
    shown,
    wants_open,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

QUERIES_MOST: Final = 100  # with figures of their own; all others are one
BOUNDS_S: Final = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 60, 300, 3_600)
# names in the progress of the source: metric, help, divisor
OF_GROUP: Final = {
    "backlog": ("tuque_spark_backlog_jobs", "Queued jobs of the group's queues", 1),
    "oldest_ms": ("tuque_spark_oldest_job_seconds", "Since the oldest queued job was added", 1000),
    "leases": ("tuque_spark_leases", "Batches leased and not acknowledged", 1),
    "leased": ("tuque_spark_leased_jobs", "Jobs in these", 1),
    "oldest_lease_ms": ("tuque_spark_oldest_lease_seconds", "Age of the oldest of these", 1000),
    "failed_attempts": ("tuque_spark_failed_attempts", "Attempts at these that failed", 1),
    "nodes": ("tuque_spark_nodes", "Nodes that it leases from", 1),
    "nodes_unreachable": ("tuque_spark_nodes_unreachable", "Nodes that do not answer", 1),
}


class Figures:
    """What is known of one query, or of all that have none of their own."""

    def __init__(self) -> None:
        self.runs: set[str] = set()  # that have not ended
        self.batches = 0
        self.rows = 0
        self.failures = 0
        self.spent_s = 0.0
        self.buckets = [0] * (len(BOUNDS_S) + 1)
        self.of_group: dict[str, int] = {}
        self.told_s = time.time()

    def add_batch(self, progress: Any) -> None:
        """Count a batch that has ended."""
        took_s = float(progress.durationMs.get("triggerExecution", 0)) / 1000
        self.batches += 1
        self.rows += max(int(progress.numInputRows), 0)
        self.spent_s += took_s
        at = sum(1 for bound in BOUNDS_S if took_s > bound)
        self.buckets[at] += 1

    def see(self, progress: Any) -> None:
        """Take over what the source says of its group."""
        self.told_s = time.time()
        found = [said for one in progress.sources if (said := of_group(one.latestOffset))]
        if found:
            self.of_group = {
                name: (max if name.startswith("oldest") else sum)(said[name] for said in found)
                for name in OF_GROUP
                if all(name in said for said in found)
            }


def of_group(text: str | None) -> dict[str, int] | None:
    """What a source of ours says; None for another one."""
    try:
        said = json.loads(text or "")
    except ValueError:
        return None
    if not isinstance(said, dict) or not {"backlog", "leased"} <= set(said):
        return None
    return {name: value for name, value in said.items() if isinstance(value, int)}


class Gauges(StreamingQueryListener):
    """The metrics of a session's queries, and the port that serves them."""

    def __init__(self, spark: SparkSession, port: int, bind: str) -> None:
        """Raises OSError if the port is taken."""
        self._lock = threading.Lock()
        self._by_name: dict[str, Figures] = {}
        self._names: dict[str, str] = {}  # of running queries, by the id of their run
        self._spark = spark
        self._listener = Listener(open_sockets([bind], port), self)
        self.port = self._listener.port()
        spark.streams.addListener(self)
        self._listener.start()

    def close(self) -> None:
        """Stop serving and listening."""
        self._spark.streams.removeListener(self)
        self._listener.close()

    # ---- Spark calls these, in a thread of its own

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """A query has begun."""
        with self._lock:
            name = event.name or str(event.id)
            figures = self._figures(name)
            figures.runs.add(str(event.runId))

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """A batch has ended, or Spark has looked and found none."""
        progress = event.progress
        with self._lock:
            figures = self._figures(progress.name or str(progress.id))
            figures.runs.add(str(progress.runId))
            figures.see(progress)
            if "addBatch" in progress.durationMs:
                figures.add_batch(progress)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Nothing to count."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """A query has ended, or failed."""
        run = str(event.runId)
        with self._lock:
            for figures in self._by_name.values():
                if run in figures.runs:
                    figures.runs.discard(run)
                    figures.failures += event.exception is not None

    def _figures(self, name: str) -> Figures:
        label = shown(name.encode("utf-8", "backslashreplace"))
        if label not in self._by_name and len(self._by_name) >= QUERIES_MOST:
            label = OTHER
        return self._by_name.setdefault(label, Figures())

    # ---- the listener calls these, in its own

    def page(self, path: str, accept: str) -> Page | None:
        """[O5] The page of that path."""
        path = path.partition("?")[0]
        if path == "/metrics":
            is_open = wants_open(accept)
            with self._lock:
                text = render(self.families(), is_open)
            return Page(200, OPEN_TYPE if is_open else PLAIN_TYPE, text)
        if path == "/healthz":
            return Page(200, TEXT_TYPE, b"ok\n")
        return fault(404, "there are /metrics and /healthz")

    def take(self, path: str, accept: str) -> Page | None:
        """All pages are made at once."""
        return None

    def done(self) -> None:
        """All pages are made at once."""

    def families(self) -> Iterable[Family]:
        """[O5] The metrics of all queries (O5.1)."""
        up = Family("tuque_spark_running", GAUGE, "Runs of the query that have not ended")
        batches = Family("tuque_spark_batches", COUNTER, "Batches that have ended")
        rows = Family("tuque_spark_rows", COUNTER, "Rows that these read")
        failures = Family("tuque_spark_failures", COUNTER, "Runs that ended with an error")
        times = Family("tuque_spark_batch_seconds", HISTOGRAM, "How long batches took")
        told = Family("tuque_spark_told_time_seconds", GAUGE, "When Spark told of it last")
        group = {name: Family(metric, GAUGE, help) for name, (metric, help, _) in OF_GROUP.items()}
        for name, figures in self._by_name.items():
            up.add(len(figures.runs), query=name)
            batches.add(figures.batches, query=name)
            rows.add(figures.rows, query=name)
            failures.add(figures.failures, query=name)
            times.add_histogram(figures.buckets, BOUNDS_S, figures.spent_s, query=name)
            told.add(figures.told_s, query=name)
            for word, value in figures.of_group.items() if figures.runs else ():
                divisor = OF_GROUP[word][2]
                group[word].add(value if divisor == 1 else value / divisor, query=name)
        return [up, batches, rows, failures, times, told, *group.values()]
