"""The columns that become jobs, and the bytes of a command per row.

Commands are built by hand: all rows of a chunk share the head, so that a row costs one formatting
and no object per word. Rows whose commands have equal word counts form a run; a chunk is several
runs. Knows nothing of sockets.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from tuque.client.api import PRI_MAX
from tuque.spark.errors import SinkError
from tuque.spark.options.sink import SinkOptions

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

TEXT: Final = ("string", "binary")
WHOLE: Final = ("byte", "tinyint", "short", "smallint", "integer", "int", "long", "bigint")
TIMES: Final = ("delay_ms", "ttl_ms", "retry_ms")
NUMBERS: Final = (*TIMES, "priority")
COLUMNS: Final = {
    "body": TEXT,
    "queue": TEXT,
    "delay_ms": WHOLE,
    "ttl_ms": WHOLE,
    "retry_ms": WHOLE,
    "priority": WHOLE,
    "dedupe_key": TEXT,
    "lease": TEXT,
}
CHUNK_BYTES: Final = 1 << 20
NAME_MAX: Final = 255
Run = tuple[int, list[bytes]]  # words of each tail, tails
Lease = tuple[bytes, int, int]  # group, epoch, seq


def check_schema(schema: StructType, options: SinkOptions) -> None:
    """In the driver: check that every column is one of a job's, of the right type."""
    seen = set()
    for field in schema.fields:
        name, kind = field.name, field.dataType.typeName()
        if name not in COLUMNS:
            raise SinkError(
                f"column {name!r} is none of a job: select {', '.join(COLUMNS)} "
                "(put other columns into the body, as with to_json(struct(...)))"
            )
        if kind not in COLUMNS[name]:
            wanted = "string or binary" if COLUMNS[name] is TEXT else "a whole number"
            raise SinkError(f"column {name!r} must be {wanted}, not {kind}")
        seen.add(name)
    if "body" not in seen:
        raise SinkError("column 'body' is missing: it is what a worker gets (string or binary)")
    if "queue" not in seen and not options.queue:
        raise SinkError("no queue: set option 'queue', or give every row a column 'queue'")
    if options.mode == "dedupe" and "dedupe_key" not in seen:
        raise SinkError(
            "mode dedupe needs a column 'dedupe_key', made from the row's own values "
            "(never from its position: rows come in another order when a task runs again)"
        )
    if options.mode != "dedupe" and "dedupe_key" in seen:
        raise SinkError(f"column 'dedupe_key' goes with mode=dedupe, not with {options.mode}")
    if options.ack_group and "lease" not in seen:
        raise SinkError("option ackGroup needs the column 'lease' of the source")
    if not options.ack_group and "lease" in seen:
        raise SinkError("column 'lease' goes with option ackGroup: drop it, or set the option")


IN_ALREADY: Final = (
    "; rows before it and of other tasks may be in the queue already: "
    "mode=staged writes all or none"
)


class Tails:
    """Makes each row's own part of its command: queue, body and options."""

    def __init__(self, options: SinkOptions) -> None:
        self._queue = _bulk(options.queue.encode()) if options.queue else b""
        self._defaults = (options.delay_ms, options.ttl_ms, options.retry_ms, None)
        self._between = b"" if options.mode == "staged" else _bulk(b"%d" % options.timeout_ms)
        self._fixed: list[bytes] = []
        if options.replicate is not None:
            self._fixed += [b"REPLICATE", b"%d" % options.replicate]
        if options.asynchronous:
            self._fixed.append(b"ASYNC")
        self._dedupe_ttl = b"%d" % options.dedupe_ttl_ms
        self._ends: dict[tuple[int | None, ...], tuple[int, bytes]] = {}
        self._queues: dict[bytes, bytes] = {}
        self._is_staged = options.mode == "staged"
        self._row = 0  # rows seen in this task, for errors

    def chunks(self, batch: pa.RecordBatch, most: int) -> Iterator[list[Run]]:
        """The rows of a batch as runs, in chunks of up to `most` rows and about a megabyte."""
        names = batch.schema.names
        bodies = _values(batch, "body")
        if None in bodies:
            self._refuse(bodies.index(None), "column 'body' is null")
        if self._queue and not set(names) & {"queue", "dedupe_key", *NUMBERS}:
            runs = [self._plain(bodies)]
        else:
            runs = self._mixed(batch, names, bodies)
        self._row += batch.num_rows
        yield from _cut(runs, most)

    def _plain(self, bodies: list[bytes]) -> Run:
        """Rows with a body only."""
        words, end = self._end(self._defaults)
        end = b"\r\n" + self._between + end
        start = self._queue
        return 2 + words, [b"%b$%d\r\n%b%b" % (start, len(b), b, end) for b in bodies]

    def _mixed(self, batch: pa.RecordBatch, names: list[str], bodies: list[bytes]) -> list[Run]:
        """Rows with other columns."""
        nothing: list[Any] = [None] * len(bodies)
        queues = _values(batch, "queue") if "queue" in names else nothing
        keys = _values(batch, "dedupe_key") if "dedupe_key" in names else nothing
        has_keys = "dedupe_key" in names
        numbers = [batch.column(one).to_pylist() if one in names else nothing for one in NUMBERS]
        runs: list[Run] = []
        last = -1
        for at, body in enumerate(bodies):
            own = tuple(
                default if column[at] is None else column[at]
                for column, default in zip(numbers, self._defaults, strict=True)
            )
            words, end = self._ends.get(own) or self._end(own, at)
            if has_keys:
                words += 4
                end += self._dedupe(keys[at], at)
            tail = b"%b$%d\r\n%b\r\n%b%b" % (
                self._queue_of(queues[at], at),
                len(body),
                body,
                self._between,
                end,
            )
            if words != last:
                runs.append((2 + words, []))
                last = words
            runs[-1][1].append(tail)
        return runs

    def _end(self, own: tuple[int | None, ...], at: int = 0) -> tuple[int, bytes]:
        """Options of a command, and their words including the timeout; cached."""
        words = list(self._fixed)
        # The broker counts whole seconds: fractions are rounded up. RETRY 0 stays 0.
        for word, name, value, least in zip(
            (b"DELAY", b"TTL", b"RETRY"), TIMES, own[:3], (0, 1, 0), strict=True
        ):
            if value is None:
                continue
            if value < least:
                self._refuse(at, f"column {name!r} must be at least {least}, not {value}")
            words += [word, b"%d" % -(-value // 1000)]
        pri = own[3]
        if pri is not None:
            if not 0 <= pri <= PRI_MAX:
                self._refuse(at, f"column 'priority' must be 0 to {PRI_MAX} or null, not {pri}")
            words += [b"PRI", b"%d" % pri]
        found = len(words) + (1 if self._between else 0), b"".join(map(_bulk, words))
        if len(self._ends) < 10_000:
            self._ends[own] = found
        return found

    def _queue_of(self, name: bytes | None, at: int) -> bytes:
        if name is None:
            if not self._queue:
                self._refuse(at, "column 'queue' is null and option 'queue' is not set")
            return self._queue
        known = self._queues.get(name)
        if known is None:
            if not name:
                self._refuse(at, "column 'queue' is empty")
            known = _bulk(name)
            if len(self._queues) < 10_000:
                self._queues[name] = known
        return known

    def _dedupe(self, key: bytes | None, at: int) -> bytes:
        if not key or len(key) > NAME_MAX:
            shown = "null or empty" if not key else f"longer than {NAME_MAX} bytes"
            self._refuse(at, f"column 'dedupe_key' is {shown}")
        ttl = self._dedupe_ttl
        return b"$6\r\nDEDUPE\r\n$%d\r\n%b\r\n$9\r\nDEDUPETTL\r\n$%d\r\n%b\r\n" % (
            len(key or b""),
            key or b"",
            len(ttl),
            ttl,
        )

    def _refuse(self, at: int, text: str) -> None:
        rest = "" if self._is_staged else IN_ALREADY
        raise SinkError(f"row {self._row + at + 1} of this task: {text}{rest}")


def lease_of(batch: pa.RecordBatch, group: str) -> Lease | None:
    """The lease that the rows of a batch come from; None if no row names one."""
    import pyarrow.compute as pc

    found: Lease | None = None
    for text in pc.unique(batch.column("lease")).to_pylist():
        if text is None:
            continue
        value = text if isinstance(text, bytes) else text.encode()
        parts = value.rsplit(b"/", 2)
        if len(parts) != 3 or not (parts[1].isdigit() and parts[2].isdigit()):
            raise SinkError(f"column 'lease' holds {text!r}, which is not group/epoch/seq")
        if parts[0] != group.encode():
            raise SinkError(
                f"column 'lease' is of group {parts[0]!r}, option ackGroup is {group!r}"
            )
        found = latest(found, (parts[0], int(parts[1]), int(parts[2])))
    return found


def latest(one: Lease | None, other: Lease | None) -> Lease | None:
    """Of two leases of a group, the one with the later batch; they share an epoch."""
    if one is None or other is None:
        return one or other
    if one[:2] != other[:2]:
        raise SinkError(
            "rows of this batch come from several leases: ackGroup needs a stream of one node"
        )
    return max(one, other)


def count_of(chunk: list[Run]) -> int:
    """The number of rows of a chunk."""
    return sum(len(tails) for _, tails in chunk)


def _values(batch: pa.RecordBatch, name: str) -> list[Any]:
    """A column of text as bytes objects."""
    import pyarrow as pa

    column = batch.column(name)
    if pa.types.is_string(column.type):
        column = column.cast(pa.binary())
    elif pa.types.is_large_string(column.type):
        column = column.cast(pa.large_binary())
    values: list[Any] = column.to_pylist()
    return values


def _cut(runs: list[Run], most: int) -> Iterator[list[Run]]:
    """Chunks of runs, small enough for the buffers of both sides."""
    chunk: list[Run] = []
    room = most
    for words, tails in runs:
        at = 0
        while at < len(tails):
            part = tails[at : at + room]
            while len(part) > 1 and sum(map(len, part)) > CHUNK_BYTES:
                part = part[: len(part) // 2]
                room = len(part)
            chunk.append((words, part))
            at += len(part)
            room -= len(part)
            if room <= 0:
                yield chunk
                chunk, room = [], most
    if chunk:
        yield chunk


def _bulk(word: bytes) -> bytes:
    return b"$%d\r\n%b\r\n" % (len(word), word)
