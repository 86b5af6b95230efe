"""Event segments on disk: the layout of a row, and how a file is made.

A segment starts as `.hot-*`, an Arrow IPC stream that grows batch by batch and survives a
kill; it is sealed into `date=YYYY-MM-DD/events-*.parquet` by writing `.tmp-*` and renaming
it, so that readers see whole files only. Spark ignores names that start with a dot. A file's
name holds its node and its range of `seq`.

Needs pyarrow; only the process server/events/writer.py imports it.
"""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import date, timedelta
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tuque.core.records import events as ev
from tuque.server.events.events import Frame, node_of

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
# A hot segment stores repeated texts as short numbers: that halves the cost, and the sealed
# file is the same.
REPEATED: Final = ("node", "event", "queue", "consumer", "reason")
HOT_SCHEMA: Final = pa.schema(
    [
        (
            field.name,
            pa.dictionary(pa.int32(), pa.string()) if field.name in REPEATED else field.type,
        )
        for field in SCHEMA
    ]
)
DAY_MS: Final = 86_400_000
FAILURES: Final = (OSError, pa.ArrowException)  # what a write may raise
_KINDS: Final = pa.array(ev.KIND_NAMES, pa.string())
_SINCE_RUNS: Final = range(ev.RUN_STARTED, len(ev.KIND_NAMES))
_HAS_REASON: Final = pa.array(
    [ev.NACKED, ev.REQUEUED, ev.DEAD, ev.DELETED, *_SINCE_RUNS], pa.int8()
)
_HAS_STAMPS: Final = pa.array([ev.ACKED, ev.EXPIRED, ev.DEAD, ev.DELETED, ev.CANCELLED], pa.int8())
_HAS_NO_JOB: Final = pa.array(ev.WITHOUT_JOB, pa.int8())
_COUNT = pa.array([], pa.int64())
_SEALED_NAME: Final = re.compile(r"(?:events|compact)-(.+)-(\d{20})-(\d{20})\.parquet")


def to_batch(frames: Sequence[Frame], node: str) -> tuple[Any, Any]:
    """Turn consecutive frames into one record batch of HOT_SCHEMA, and its ts in ms."""
    rows = sum(frame.rows for frame in frames)
    first_seq = frames[0].first_seq
    raw = {
        name: pa.py_buffer(b"".join([frame.columns[i] for frame in frames]))
        for i, name in enumerate(ev.COLUMN_NAMES)
    }
    kinds = numbers(raw["kinds"], pa.int8())
    is_added = pc.equal(kinds, ev.ADDED)
    is_end = pc.is_in(kinds, _HAS_STAMPS)
    is_either = pc.or_(is_added, is_end)

    def number(name: str, mask: Any, kind: Any) -> Any:
        return spread(mask, numbers(raw[name], kind))

    def instant(name: str) -> Any:
        return spread(is_end, instants(numbers(raw[name], pa.int64())))

    ts_ms = numbers(raw["ts"], pa.int64())
    queues = texts(numbers(raw["queue_lens"], pa.int32()), raw["queues"])
    reasons = texts(numbers(raw["reason_lens"], pa.int32()), raw["reasons"])
    columns = [
        pc.add(count_to(rows), first_seq),
        instants(ts_ms),
        pa.DictionaryArray.from_arrays(zeros(rows), pa.array([node], pa.string())),
        pa.DictionaryArray.from_arrays(kinds.cast(pa.int32()), _KINDS),
        queues.dictionary_encode(),
        ids(kinds, raw["ids"]),
        numbers(raw["delivery"], pa.int32()),
        repeated(numbers(raw["consumer"], pa.int64()), pc.equal(kinds, ev.DELIVERED)),
        number("size", is_either, pa.int32()),
        number("delay", is_either, pa.int64()),
        number("ttl", is_added, pa.int64()),
        number("retry", is_added, pa.int64()),
        pa.nulls(rows, pa.int32()),
        repeated(reasons, pc.is_in(kinds, _HAS_REASON)),
        instant("enqueued"),
        instant("first"),
        instant("last"),
        number("deliveries", is_end, pa.int32()),
        number("nacks", is_end, pa.int32()),
        number("timeouts", is_end, pa.int32()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=HOT_SCHEMA), ts_ms


def spread(mask: Any, short: Any) -> Any:
    """Expand a short column to full length: null where the mask is false."""
    return pc.replace_with_mask(pa.nulls(len(mask), short.type), mask, short)


def repeated(short: Any, mask: Any) -> Any:
    """Expand few different texts to full length: their codes, null where the mask is false."""
    coded = short.dictionary_encode()
    texts_of = coded.dictionary.cast(pa.string())
    return pa.DictionaryArray.from_arrays(spread(mask, coded.indices), texts_of)


def ids(kinds: Any, raw: Any) -> Any:
    """Job ids, which are ASCII; empty if the event is about no job."""
    is_mark = pc.is_in(kinds, _HAS_NO_JOB)
    lengths = pc.if_else(is_mark, pa.scalar(0, pa.int32()), pa.scalar(ev.ID_BYTES, pa.int32()))
    return pa.Array.from_buffers(pa.string(), len(kinds), [None, ends(lengths), raw])


def zeros(rows: int) -> Any:
    """That many zeros."""
    return pa.Array.from_buffers(pa.int32(), rows, [None, pa.py_buffer(bytes(4 * rows))])


def count_to(rows: int) -> Any:
    """0, 1, 2... up to that many, cached (Python is slow at it)."""
    global _COUNT
    if len(_COUNT) < rows:
        _COUNT = pa.array(range(max(rows, 1 << 16)), pa.int64())
    return _COUNT.slice(0, rows)


def numbers(raw: Any, kind: Any) -> Any:
    """Little-endian numbers as a column, without a copy."""
    return pa.Array.from_buffers(kind, raw.size * 8 // kind.bit_width, [None, raw])


def texts(lengths: Any, raw: Any) -> Any:
    """Concatenated bytes as a string column; what is not UTF-8 gets backslashes."""
    column = pa.Array.from_buffers(pa.binary(), len(lengths), [None, ends(lengths), raw])
    try:
        return column.cast(pa.string())
    except pa.ArrowInvalid:
        values = [v.decode("utf-8", "backslashreplace") for v in column.to_pylist()]
        return pa.array(values, pa.string())


def ends(lengths: Any) -> Any:
    """Arrow offsets of texts of these lengths."""
    zero = pa.array([0], pa.int32())
    return pa.concat_arrays([zero, pc.cumulative_sum(lengths).cast(pa.int32())]).buffers()[1]


def instants(ms: Any) -> Any:
    """Milliseconds as UTC instants; 0 means never and becomes null."""
    never = pc.equal(ms, 0)
    us = pc.multiply(pc.if_else(never, pa.scalar(None, pa.int64()), ms), 1000)
    return us.cast(UTC_US)


def by_day(ts_ms: Any, batch: Any, skip: int = 0) -> Iterator[tuple[int, Any]]:
    """The batch from row `skip` on, cut at midnight UTC: (days since 1970, rows).

    Instants never decrease.
    """
    start = skip
    while start < batch.num_rows:
        day = ts_ms[start].as_py() // DAY_MS
        if ts_ms[-1].as_py() < (day + 1) * DAY_MS:
            end = batch.num_rows
        else:
            end = pc.sum(pc.less(ts_ms, (day + 1) * DAY_MS)).as_py()
        yield day, batch.slice(start, end - start)
        start = end


class HotSegment:
    """The segment being written. Its lock tells an open file from an abandoned one."""

    def __init__(self, directory: Path, node: str, first_seq: int, day: int) -> None:
        self.path = directory / f".hot-{node}-{first_seq:020d}"
        self.day = day
        self.rows = 0
        self.is_torn = False
        self._lock = os.open(self.path, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW, 0o644)
        fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self._sink = pa.OSFile(str(self.path), "wb")
        self._writer = pa.ipc.new_stream(self._sink, HOT_SCHEMA)  # uncompressed: sealing maps it

    def write(self, batch: Any) -> None:
        """Append the rows; they survive a kill of this process.

        Raises OSError and keeps nothing of the batch; then call `close`.
        """
        whole = self._sink.tell()
        try:
            self._writer.write_batch(batch)
        except FAILURES:
            os.ftruncate(self._lock, whole)
            self.is_torn = True
            raise
        self.rows += batch.num_rows

    def close(self) -> None:
        """Close the file; call `seal` next."""
        try:
            if not self.is_torn:
                self._writer.close()
            self._sink.close()
        finally:
            os.close(self._lock)


def read_hot(path: Path) -> Any:
    """The whole batches of a hot segment as a table; a torn end is ignored."""
    batches = []
    try:
        with pa.memory_map(str(path)) as source, pa.ipc.open_stream(source) as reader:
            while True:
                batches.append(reader.read_next_batch())
    except (StopIteration, pa.ArrowInvalid):
        pass
    except OSError as e:
        if e.errno is not None:  # the disk failed; a torn batch has no errno
            raise
    return pa.Table.from_batches(batches, schema=HOT_SCHEMA).unify_dictionaries()


def seal(hot: Path, directory: Path) -> Path | None:
    """Turn a closed hot segment into a Parquet file of its day, durably; None if empty.

    Idempotent: repeated, or interrupted by a crash at any step, it ends in the same one file.
    """
    table = read_hot(hot)
    target = None
    if table.num_rows:
        first, last = table["seq"][0].as_py(), table["seq"][-1].as_py()
        node, day = table["node"][0].as_py(), table["ts"][0].as_py().date()
        folder = directory / f"date={day.isoformat()}"
        folder.mkdir(exist_ok=True)
        target = folder / f"events-{node}-{first:020d}-{last:020d}.parquet"
        write_sealed(table, folder / f".tmp-{target.name}", target)
        sync(folder)
    hot.unlink(missing_ok=True)
    del table
    pa.default_memory_pool().release_unused()
    return target


def write_sealed(table: Any, temporary: Path, target: Path) -> None:
    """Write the Parquet file under a temporary name and rename it; a failure leaves neither."""
    try:
        pq.write_table(
            table,
            str(temporary),
            compression="zstd",
            compression_level=1,
            use_dictionary=list(REPEATED),
            write_statistics=["seq", "ts"],  # readers filter by these; others cost and help little
            coerce_timestamps="us",
            store_schema=False,  # readers see plain texts, not the codes used here
        )
        sync(temporary)
        os.rename(temporary, target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def recover(directory: Path, node: str) -> list[Path]:
    """Seal what a killed writer of that node left; returns the sealed files."""
    sealed = []
    for torn in directory.glob(f"date=*/.tmp-events-{node}-*"):
        torn.unlink(missing_ok=True)  # its hot segment is still there
    for hot in sorted(directory.glob(".hot-*")):
        if node_of(hot) != node:
            continue
        target = seal(hot, directory)
        if target is not None:
            sealed.append(target)
    return sealed


def next_seq(directory: Path, node: str) -> int:
    """One more than the last number that this node has sealed; 0 if none."""
    last = -1
    for path in directory.glob("date=*/*.parquet"):
        match = _SEALED_NAME.fullmatch(path.name)
        if match and match[1] == node:
            last = max(last, int(match[3]))
    return last + 1


def prune(directory: Path, keep_bytes: int) -> int:
    """Remove the oldest sealed segments above that many bytes, never the newest; how many."""
    sizes: list[tuple[int, int, Path]] = []
    for path in directory.glob("date=*/[!.]*.parquet"):
        with suppress(FileNotFoundError):  # compaction removed it first
            found = path.stat()
            sizes.append((found.st_mtime_ns, found.st_size, path))
    sizes.sort()
    excess = sum(size for _, size, _ in sizes) - keep_bytes
    removed = 0
    for _, size, path in sizes[:-1]:
        if excess <= 0:
            break
        excess -= size
        path.unlink(missing_ok=True)
        removed += 1
    return removed


def prune_days(directory: Path, keep_days: int, now_s: float) -> int:
    """Remove sealed segments of days (UTC) that ended more than that many days ago; how many."""
    oldest = date(1970, 1, 1) + timedelta(days=int(now_s) // 86_400 - keep_days)
    removed = 0
    for folder in directory.glob("date=*"):
        if folder.name >= f"date={oldest.isoformat()}":
            continue
        for path in folder.glob("*.parquet"):
            path.unlink(missing_ok=True)
            removed += 1
        with suppress(OSError):  # not empty: it holds other files
            folder.rmdir()
    return removed


def sync(path: Path) -> None:
    """Make the file's contents, or the directory's names, durable."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
