"""Jobs as Arrow batches, with exactly the types that Spark expects for the requested columns."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from tuque.client.api import JobInfo
from tuque.client.commands.leases import LeaseColumns
from tuque.logtext import writable
from tuque.spark.errors import SourceError
from tuque.spark.options.source import COLUMNS, TEXT_COLUMNS
from tuque.spark.source.peek import deliveries

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

ID_BYTES: Final = 40
INT_MAX: Final = 2**31 - 1  # a task of a tube may have more
INSTANT: Final = pa.timestamp("us", tz="UTC")
INSTANT_MS: Final = pa.timestamp("ms", tz="UTC")
TYPES: Final[dict[str, Any]] = {
    "id": pa.string(),
    "queue": pa.string(),
    "body": pa.binary(),
    "enqueued_at": INSTANT,
    "expires_at": INSTANT,
    "deliveries": pa.int32(),
    "nacks": pa.int32(),
    "priority": pa.int32(),
    "node": pa.string(),
    "lease": pa.string(),
}


def check_schema(schema: StructType, is_text: bool = False) -> None:
    """Raises SourceError unless all columns and types are ours; `is_text`: with decode."""
    columns = TEXT_COLUMNS if is_text else COLUMNS
    kinds = dict(column.strip().split(" ") for column in columns.split(","))
    for field in schema.fields:
        if kinds.get(field.name) != field.dataType.simpleString():
            raise SourceError(
                f"column {field.name} {field.dataType.simpleString()} is none of the source's: "
                f"{columns}"
            )


def of_lease(found: LeaseColumns, names: Sequence[str], node: str, lease: str) -> pa.RecordBatch:
    """Rows of a leased batch. Buffers are used without a copy."""
    count = found.count

    def numbers(kind: Any, data: bytes) -> Any:
        return pa.Array.from_buffers(kind, count, [None, pa.py_buffer(data)])

    def ids() -> Any:
        ends = array("i", range(0, ID_BYTES * (count + 1), ID_BYTES))
        buffers = [None, pa.py_buffer(ends.tobytes()), pa.py_buffer(found.ids)]
        return pa.Array.from_buffers(pa.string(), count, buffers)

    def bodies() -> Any:
        ends = pa.py_buffer(b"\0\0\0\0" + found.body_ends)
        return pa.Array.from_buffers(pa.binary(), count, [None, ends, pa.py_buffer(found.bodies)])

    def queues() -> Any:
        index = numbers(pa.int32(), found.queue_index)
        names = pa.array(found.queues, pa.string())
        return pa.DictionaryArray.from_arrays(index, names).dictionary_decode()

    makers: dict[str, Callable[[], Any]] = {
        "id": ids,
        "queue": queues,
        "body": bodies,
        "enqueued_at": lambda: numbers(INSTANT_MS, found.enqueued_ms).cast(INSTANT),
        "expires_at": lambda: numbers(INSTANT_MS, found.expires_ms).cast(INSTANT),
        "deliveries": lambda: numbers(pa.int32(), found.deliveries),
        "nacks": lambda: numbers(pa.int32(), found.nacks),
        "priority": lambda: numbers(pa.int32(), found.priority),
        "node": lambda: pa.array([node] * count, pa.string()),
        "lease": lambda: pa.array([lease] * count, pa.string()),
    }
    return pa.RecordBatch.from_arrays([makers[name]() for name in names], names=list(names))


def as_text(rows: pa.RecordBatch) -> pa.RecordBatch:
    """The rows with `body` as a string; bytes that are not UTF-8 become U+FFFD."""
    at = rows.schema.get_field_index("body")
    if at < 0:
        return rows
    bodies = rows.column(at)
    try:
        text = bodies.cast(pa.string())
    except pa.ArrowInvalid:
        found = [None if b is None else b.decode(errors="replace") for b in bodies.to_pylist()]
        text = pa.array(found, pa.string())
    return rows.set_column(at, "body", text)


def of_jobs(jobs: Sequence[JobInfo], names: Sequence[str], node: str) -> pa.RecordBatch:
    """Rows of jobs from SHOW or QPEEK."""
    made_ms = [job.ctime_ns // 1_000_000 for job in jobs]
    values: dict[str, list[Any]] = {
        "id": [job.id for job in jobs],
        "queue": [writable(job.queue or "") for job in jobs],
        "body": [job.body for job in jobs],
        "enqueued_at": [ms * 1000 for ms in made_ms],
        "expires_at": [
            (ms + job.ttl_s * 1000) * 1000 for ms, job in zip(made_ms, jobs, strict=True)
        ],
        "deliveries": [deliveries(job) for job in jobs],
        "nacks": [job.nacks for job in jobs],
        "priority": [min(job.pri, INT_MAX) for job in jobs],
        "node": [node] * len(jobs),
        "lease": [None] * len(jobs),
    }
    return pa.RecordBatch.from_arrays(
        [pa.array(values[name], TYPES[name]) for name in names], names=list(names)
    )
