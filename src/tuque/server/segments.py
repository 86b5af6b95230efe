"""Event segments on disk: what a row looks like, and how a file comes into being.

A segment is born as `.hot-*`, an Arrow IPC stream that grows by one compressed batch
at a time and survives a kill; it is sealed into `date=YYYY-MM-DD/events-*.parquet` by
writing `.tmp-*` and renaming it, so that a reader sees whole files only. Names starting
with a dot are invisible to Spark. A file's name tells its node and the range of `seq`.

Needs pyarrow; imported by server/eventlog.py only when events are on.
"""

from __future__ import annotations

import fcntl
import os
import re
from array import array
from bisect import bisect_left
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tuque.core import events as ev

UTC_US: Final = pa.timestamp("us", tz="UTC")
SCHEMA: Final = pa.schema(
    [
        ("seq", pa.int64()),
        ("ts", UTC_US),
        ("node", pa.string()),
        ("event", pa.string()),
        ("queue", pa.string()),
        ("job_id", pa.string()),
        ("delivery", pa.int32()),
        ("consumer", pa.string()),
        ("size", pa.int32()),
        ("delay_ms", pa.int64()),
        ("ttl_ms", pa.int64()),
        ("retry_ms", pa.int64()),
        ("priority", pa.int32()),
        ("reason", pa.string()),
        ("enqueued_at", UTC_US),
        ("first_delivered_at", UTC_US),
        ("last_delivered_at", UTC_US),
        ("deliveries", pa.int32()),
        ("nacks", pa.int32()),
        ("timeouts", pa.int32()),
    ]
)
DAY_MS: Final = 86_400_000
FAILURES: Final = (OSError, pa.ArrowException)  # what a write may raise
_KINDS: Final = pa.array(ev.KIND_NAMES, pa.string())
_DICTIONARY_COLUMNS: Final = ["node", "event", "queue", "consumer", "reason"]
_HAS_REASON: Final = pa.array([ev.NACKED, ev.REQUEUED, ev.DEAD, ev.DELETED], pa.int8())
_HAS_STAMPS: Final = pa.array([ev.ACKED, ev.EXPIRED, ev.DEAD, ev.DELETED], pa.int8())
_SEALED_NAME: Final = re.compile(r"events-(.+)-(\d{20})-(\d{20})\.parquet")


def to_batch(chunk: ev.Chunk, node: str) -> Any:
    """The chunk as one record batch of SCHEMA."""
    rows = chunk.rows
    kinds = pa.Array.from_buffers(pa.int8(), rows, [None, pa.py_buffer(bytes(chunk.kinds))])
    is_added = pc.equal(kinds, ev.ADDED)
    is_end = pc.is_in(kinds, _HAS_STAMPS)
    is_either = pc.or_(is_added, is_end)

    def spread(values: list[int], mask: Any, kind: Any) -> Any:
        """A short column at full length: null where the mask is false."""
        return pc.replace_with_mask(pa.nulls(rows, kind), mask, pa.array(values, kind))

    consumers = pc.cast(pa.array(chunk.consumer, pa.int64()), pa.string())
    is_delivered = pc.equal(kinds, ev.DELIVERED)
    reasons = texts(chunk.reason)
    columns = [
        pa.array(array("q", range(chunk.first_seq, chunk.first_seq + rows))),
        instants(pa.array(chunk.ts_ms, pa.int64())),
        pa.repeat(pa.scalar(node, pa.string()), rows),
        _KINDS.take(kinds),
        texts(chunk.queues),
        texts(chunk.job_ids),
        pa.array(chunk.delivery, pa.int32()),
        pc.replace_with_mask(pa.nulls(rows, pa.string()), is_delivered, consumers),
        spread(chunk.size, is_either, pa.int32()),
        spread(chunk.delay_ms, is_either, pa.int64()),
        spread(chunk.ttl_ms, is_added, pa.int64()),
        spread(chunk.retry_ms, is_added, pa.int64()),
        pa.nulls(rows, pa.int32()),
        pc.replace_with_mask(pa.nulls(rows, pa.string()), pc.is_in(kinds, _HAS_REASON), reasons),
        instants(spread(chunk.enqueued_ms, is_end, pa.int64())),
        instants(spread(chunk.first_ms, is_end, pa.int64())),
        instants(spread(chunk.last_ms, is_end, pa.int64())),
        spread(chunk.deliveries, is_end, pa.int32()),
        spread(chunk.nacks, is_end, pa.int32()),
        spread(chunk.timeouts, is_end, pa.int32()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def texts(values: list[bytes]) -> Any:
    """Bytes as a string column; what is not UTF-8 is written with backslashes."""
    try:
        return pa.array(values, pa.binary()).cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([v.decode("utf-8", "backslashreplace") for v in values], pa.string())


def instants(ms: Any) -> Any:
    """Milliseconds as UTC instants; 0 means never and becomes null."""
    never = pc.equal(ms, 0)
    us = pc.multiply(pc.if_else(never, pa.scalar(None, pa.int64()), ms), 1000)
    return us.cast(UTC_US)


def by_day(chunk: ev.Chunk, batch: Any) -> Iterator[tuple[int, Any]]:
    """The batch cut at midnight UTC: (days since 1970, rows). Instants never go back."""
    start = 0
    while start < chunk.rows:
        day = chunk.ts_ms[start] // DAY_MS
        end = bisect_left(chunk.ts_ms, (day + 1) * DAY_MS, start)
        yield day, batch.slice(start, end - start)
        start = end


class HotSegment:
    """The segment being written. Its lock tells a living file from one left behind."""

    def __init__(self, directory: Path, node: str, first_seq: int, day: int) -> None:
        self.path = directory / f".hot-{node}-{first_seq:020d}"
        self.day = day
        self.rows = 0
        self._lock = os.open(self.path, os.O_CREAT | os.O_RDWR, 0o644)
        fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self._sink = pa.OSFile(str(self.path), "wb")
        options = pa.ipc.IpcWriteOptions(compression="zstd")
        self._writer = pa.ipc.new_stream(self._sink, SCHEMA, options=options)

    def write(self, batch: Any) -> None:
        """Append the rows; they survive a kill of this process. Raises OSError."""
        self._writer.write_batch(batch)
        self.rows += batch.num_rows

    def close(self) -> None:
        """Give up the file; `seal` comes next."""
        try:
            self._writer.close()
            self._sink.close()
        finally:
            os.close(self._lock)


def read_hot(path: Path) -> Any:
    """The whole batches of a hot segment as a table; a torn end is left out."""
    batches = []
    try:
        with pa.OSFile(str(path), "rb") as source, pa.ipc.open_stream(source) as reader:
            while True:
                batches.append(reader.read_next_batch())
    except (StopIteration, pa.ArrowInvalid):
        pass
    except OSError as e:
        if e.errno is not None:  # the disk failed; a torn batch has no errno
            raise
    return pa.Table.from_batches(batches, schema=SCHEMA)


def seal(hot: Path, directory: Path) -> Path | None:
    """Turn a closed hot segment into a Parquet file of its day, durably; None if empty.

    Done twice, or cut by a crash at any step, it ends in the same one file.
    """
    table = read_hot(hot)
    target = None
    if table.num_rows:
        first, last = table["seq"][0].as_py(), table["seq"][-1].as_py()
        node, day = table["node"][0].as_py(), table["ts"][0].as_py().date()
        folder = directory / f"date={day.isoformat()}"
        folder.mkdir(exist_ok=True)
        target = folder / f"events-{node}-{first:020d}-{last:020d}.parquet"
        temporary = folder / f".tmp-{target.name}"
        pq.write_table(
            table,
            str(temporary),
            compression="zstd",
            use_dictionary=_DICTIONARY_COLUMNS,
            coerce_timestamps="us",
        )
        sync(temporary)
        os.rename(temporary, target)
        sync(folder)
    hot.unlink(missing_ok=True)
    del table
    pa.default_memory_pool().release_unused()
    return target


def recover(directory: Path) -> list[Path]:
    """Seal what killed nodes left behind; the sealed files."""
    sealed = []
    for hot in sorted(directory.glob(".hot-*")):
        fd = os.open(hot, os.O_RDWR)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            target = seal(hot, directory)
        except BlockingIOError:
            continue  # a living node writes it
        finally:
            os.close(fd)
        if target is not None:
            sealed.append(target)
    return sealed


def next_seq(directory: Path, node: str) -> int:
    """The number after the last one this node has sealed; 0 if there is none."""
    last = -1
    for path in directory.glob("date=*/events-*.parquet"):
        match = _SEALED_NAME.fullmatch(path.name)
        if match and match[1] == node:
            last = max(last, int(match[3]))
    return last + 1


def prune(directory: Path, keep_bytes: int) -> int:
    """Remove the oldest sealed segments beyond that many bytes, never the newest; how many."""
    paths = sorted(directory.glob("date=*/*.parquet"), key=lambda p: p.stat().st_mtime_ns)
    excess = sum(p.stat().st_size for p in paths) - keep_bytes
    removed = 0
    for path in paths[:-1]:
        if excess <= 0:
            break
        excess -= path.stat().st_size
        path.unlink()
        removed += 1
    return removed


def sync(path: Path) -> None:
    """Make the file's content, or the directory's names, durable."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
