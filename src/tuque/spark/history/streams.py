"""Silver and gold as Structured Streaming queries over the segments of events (SPEC H4).

Both read sealed segments as they appear, record in a checkpoint what they have read, and append to
a table whose own log names the valid files: after a kill a restart continues, and no event is in
the table twice. Silver keeps no state; gold keeps the minutes above its watermark.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from tuque.spark import gold, schema, silver
from tuque.spark.engines import WRITERS
from tuque.spark.errors import NoEventsError, StreamError
from tuque.spark.history.followers import announce
from tuque.spark.history.pipeline import compacted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

WATERMARK: Final = "5 minutes"  # the segments of several nodes arrive a roll (60 s) apart, or later
SEGMENTS: Final = "events-*.parquet"  # H4.6: no compact-*, which come behind a stream
LOG: Final = "_spark_metadata"  # Spark's log of the valid files of a streamed table


@dataclass
class Options:
    """The input, the output and the pace of a stream."""

    table: str  # silver or gold
    events: Path
    out: Path
    watermark: str = WATERMARK
    every_s: float = 10.0
    files: int = 64
    once: bool = False  # end when everything is read

    @property
    def checkpoint(self) -> Path:
        """The directory of the stream's checkpoint."""
        return self.out / "checkpoints" / self.table

    def check(self) -> None:
        """Raise before Spark starts: NoEventsError, StreamError."""
        if not self.events.is_dir():
            raise NoEventsError(f"{self.events}: no such directory")
        path = self.out / self.table
        has_rows = next(path.glob("date=*"), None) is not None
        if has_rows and not is_streamed(path):
            raise StreamError(
                f"{path} was written at once; a stream would double its rows: take another --out"
            )
        if is_streamed(path) and not self.checkpoint.exists():
            raise StreamError(
                f"{self.checkpoint} is gone, so a stream would read everything again and double "
                f"the rows of {path}: remove the table too, or bring the checkpoint back"
            )


@dataclass
class Figures:
    """Counts of a stream since its start."""

    batches: int = 0
    events: int = 0
    late: int = 0  # rows of partial sums that arrived after their minute was closed
    seconds: float = 0.0


def is_streamed(table: Path) -> bool:
    """Whether a stream writes to that table."""
    return (table / LOG).exists()


def events_stream(spark: SparkSession, events: Path, files: int) -> DataFrame:
    """Sealed segments as they appear, `files` per batch."""
    return (
        spark.readStream.schema(schema.EVENTS)
        .option("maxFilesPerTrigger", files)
        .option("pathGlobFilter", SEGMENTS)
        .option("recursiveFileLookup", "true")
        .parquet(str(events))
    )


def start(spark: SparkSession, options: Options) -> StreamingQuery:
    """Start the query; the caller waits for it."""
    options.check()
    spark.conf.set(WRITERS, "32")
    rows = events_stream(spark, options.events, options.files)
    if options.table == "gold":
        rows = rows.withWatermark("ts", options.watermark)
    rows.createOrReplaceTempView("counted" if options.table == "gold" else "events")
    frame = spark.sql(gold.STREAMED if options.table == "gold" else silver.ENDS)
    writer = (
        frame.writeStream.queryName(f"tuque-{options.table}")
        .outputMode("append")
        .format("parquet")
        .partitionBy("date")
        .option("compression", "zstd")
        .option("path", str(options.out / options.table))
        .option("checkpointLocation", str(options.checkpoint))
    )
    if options.once:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=f"{options.every_s} seconds").start()


def run_stream(
    spark: SparkSession, options: Options, report: Callable[[str], None], poll_s: int = 1
) -> Figures:
    """Run the query until it ends or Ctrl-C; `report` gets a line for each batch with events."""
    figures = Figures()
    began = monotonic()
    _introduce(options, report)
    query = start(spark, options)
    seen = -1
    try:
        while not query.awaitTermination(poll_s):
            seen = _follow(query, seen, figures, report)
    except KeyboardInterrupt:
        query.stop()
    _follow(query, seen, figures, report)
    figures.seconds = monotonic() - began
    return figures


def _introduce(options: Options, report: Callable[[str], None]) -> None:
    """[E5.3] Register the stream for compaction; `report` what was compacted before it."""
    options.check()
    behind = [] if options.checkpoint.exists() else compacted(options.events)
    if behind:
        report(
            f"{len(behind)} files were compacted and their segments are gone: a stream does not "
            f"read them, tuque spark {options.table} at once under another --out does (H4.6)"
        )
    options.checkpoint.mkdir(parents=True, exist_ok=True)
    try:
        announce(options.events, options.checkpoint)
    except OSError as e:
        report(f"{options.events}: {e.strerror or e}: compaction will not wait for this stream")


def _follow(
    query: StreamingQuery, seen: int, figures: Figures, report: Callable[[str], None]
) -> int:
    """Count the batches after number `seen`; returns the last one's number."""
    for progress in query.recentProgress:
        if progress["batchId"] <= seen:
            continue
        seen = progress["batchId"]
        late = sum(int(s["numRowsDroppedByWatermark"]) for s in progress["stateOperators"])
        figures.late += late
        rows = int(progress["numInputRows"])
        if not rows:
            continue
        figures.batches += 1
        figures.events += rows
        report(f"batch {seen}: {rows} events, {_rate(progress)} events/s" + _late(late))
    return seen


def _rate(progress: Any) -> int:
    return round(float(progress["processedRowsPerSecond"] or 0))


def _late(rows: int) -> str:
    return f", {rows} too late" if rows else ""
