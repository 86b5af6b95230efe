"""The sink of `format("tuque")`: rows become jobs, in one of three modes.

append    a job per row, at least once: a repeated task writes its rows again.
dedupe    a job per value of the column dedupe_key within dedupeTtl, however often it is written.
staged    tasks stage their rows, the driver publishes those of the successful attempts, once
          per (query, batch) or (txnAppId, txnVersion): exactly once, without a key.

With ackGroup the same command also acknowledges the leased batch that the rows came from, named in
the source's column `lease`. Then reading, transforming and writing are one step in the broker, and
a query that lost its lease publishes nothing.

`writer` and `stream_writer` run in the driver and find every mistake there; `write` runs in tasks,
`commit` in the driver, for a stream on a fresh copy: its data comes in messages.
"""

from __future__ import annotations

import socket
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from tuque.client.transport.conn import pack
from tuque.errors import NoStage
from tuque.spark.errors import SinkError
from tuque.spark.options.sink import SinkOptions, parse
from tuque.spark.sink.columns import Lease, Tails, check_schema, latest, lease_of
from tuque.spark.sink.wire import Broker, Sender

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

QUERY_ID: Final = "sql.streaming.queryId"
BATCH_ID: Final = "streaming.sql.batchId"
PUBLISH_S: Final = 600.0  # a million jobs and their copies
GONE: Final = (
    " (what was staged is gone: the broker was restarted without its journal, "
    "or stageTtl passed before the batch ended)"
)
NO_OPTIONS: Final = (
    "{}. Spark gave the sink no options at all, as it does when a table USING tuque is written by "
    "INSERT INTO or CREATE TABLE ... AS SELECT: use df.write.format('tuque').mode('append') with "
    "options and .save() instead"
)
ONCE: Final = 1  # the only version of a name used once


@dataclass
class Written(WriterCommitMessage):
    """A task's report to the driver."""

    partition: int
    rows: int
    app: str = ""
    version: int = 0
    attempts: tuple[bytes, ...] = ()
    lease: Lease | None = None


def writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> BatchWriter:
    """The writer of `df.write.format("tuque").mode("append").save()`; raises SinkError."""
    return BatchWriter(_checked(options, schema, overwrite))


def stream_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> StreamWriter:
    """The writer of `df.writeStream.format("tuque")`; raises SinkError."""
    found = _checked(options, schema, overwrite)
    if found.version is not None:
        raise SinkError("option txnVersion is for batch writes: a stream's version is its batch")
    return StreamWriter(found)


def _checked(options: Mapping[str, str], schema: StructType, overwrite: bool) -> SinkOptions:
    if overwrite:
        raise SinkError(
            "a queue cannot be overwritten: use .mode('append'), or for a stream "
            ".outputMode('append'), the only one there is for Python sinks"
        )
    found = parse(options)
    try:
        check_schema(schema, found)
    except SinkError as err:
        if any(options.values()):
            raise
        raise SinkError(NO_OPTIONS.format(err)) from err
    return found


class BatchWriter(DataSourceArrowWriter):
    """One write of a DataFrame."""

    def __init__(self, options: SinkOptions) -> None:
        self.options = options
        self.app = options.app or f"spark-{uuid.uuid4().hex}"
        self.version = ONCE if options.version is None else options.version
        if options.app and options.version is None and options.mode == "staged":
            raise SinkError("option txnAppId needs txnVersion in a batch write")

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return _write(self.options, self.app, self.version, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        _commit(self.options, messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """No clean-up: staged jobs are dropped after stageTtl."""


class StreamWriter(DataSourceStreamArrowWriter):
    """All batches of a streaming query."""

    def __init__(self, options: SinkOptions) -> None:
        self.options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        context = TaskContext.get()
        query = context.getLocalProperty(QUERY_ID) if context else None
        batch = context.getLocalProperty(BATCH_ID) if context else None
        if query is None or batch is None:
            raise SinkError("Spark did not say which query and batch this is")
        return _write(self.options, self.options.app or query, int(batch), iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        _commit(self.options, messages, batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """No clean-up: staged jobs are dropped after stageTtl."""


class _Task:
    """What one attempt of a task has written."""

    def __init__(self, options: SinkOptions, app: str, version: int) -> None:
        context = TaskContext.get()
        self.partition = context.partitionId() if context else 0
        self.rows = 0
        self.attempts: list[bytes] = []
        self._name = b""
        self._number = 0
        # Not just the task's number: a restarted driver counts from 0 again.
        self._own = f"{self.partition}-{uuid.uuid4().hex}"
        self._staged = options.mode == "staged"
        words = [_txn(app, version), b"", b"%d" % options.stage_ttl_ms]
        self._txn, _, self._ttl = words
        self._reporter = Reporter(options.progress_to) if options.progress_to else None

    def head(self) -> tuple[int, bytes]:
        """The head of a command. Each send of a chunk is an attempt of its own in the broker."""
        if not self._staged:
            return 1, b"$6\r\nADDJOB\r\n"
        self._name = f"{self._own}.{self._number}".encode()
        self._number += 1
        words = pack((b"STAGE", self._txn, self._name, self._ttl))
        return 4, words[words.index(b"\n") + 1 :]

    def on_done(self, rows: int) -> None:
        """A chunk is complete."""
        self.rows += rows
        if self._staged:
            self.attempts.append(self._name)
        if self._reporter is not None:
            self._reporter.tell("rows", rows)


def _write(
    options: SinkOptions, app: str, version: int, batches: Iterator[pa.RecordBatch]
) -> Written:
    """Send the rows of a task to the broker."""
    broker = Broker(options.broker, options.retry_timeout_ms / 1000, options.timeout_ms / 1000)
    task = _Task(options, app, version)
    tails = Tails(options)
    sender = Sender(broker, task.head, task.on_done, options.mode == "staged")
    lease: Lease | None = None
    try:
        for batch in batches:
            if options.ack_group:
                lease = latest(lease, lease_of(batch, options.ack_group))
            for chunk in tails.chunks(batch, options.pipeline):
                sender.put(chunk)
        sender.settle()
    except BaseException:
        broker.close()  # replies may be in flight: no other thread may read them
        raise
    broker.keep()
    return Written(task.partition, task.rows, app, version, tuple(task.attempts), lease)


def _commit(
    options: SinkOptions,
    messages: Sequence[WriterCommitMessage | None],
    batch: int | None = None,
) -> None:
    """Publish what the successful attempts staged; once, however often it is called."""
    written = [message for message in messages if isinstance(message, Written)]
    written.sort(key=lambda message: message.partition)
    if options.mode == "staged" and any(message.attempts for message in written):
        if batch is not None and any(message.version != batch for message in written):
            raise SinkError(f"tasks of another batch than {batch} came to be committed")
        _publish(options, written)
    if options.progress_to:
        Reporter(options.progress_to).tell("total", sum(message.rows for message in written))


def _publish(options: SinkOptions, written: list[Written]) -> None:
    app, version = written[0].app, written[0].version
    lease: Lease | None = None
    for message in written:
        lease = latest(lease, message.lease)
    words = [b"PUBLISH", app.encode(), b"%d" % version]
    if lease is not None:
        words += [b"ACK", lease[0], b"%d" % lease[1], b"%d" % lease[2]]
    words.append(_txn(app, version))
    for message in written:
        words += message.attempts
    broker = Broker(options.broker, options.retry_timeout_ms / 1000, PUBLISH_S)
    try:
        # Repeated after a lost reply: then it returns -1, done before.
        refusal = broker.ask(pack(words))
    finally:
        broker.close()
    if refusal is not None:
        why = GONE if isinstance(refusal, NoStage) else ""
        raise SinkError(f"the broker published nothing of {app} {version}: {refusal}{why}")


def _txn(app: str, version: int) -> bytes:
    return f"{app}/{version}".encode()


class Reporter:
    """Reports the number of written rows to the waiting program; lost datagrams do no harm."""

    def __init__(self, to: str) -> None:
        host, _, port = to.rpartition(":")
        self._to = (host, int(port))
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.setblocking(False)

    def tell(self, what: str, rows: int) -> None:
        try:
            self._socket.sendto(f"{what} {rows}".encode(), self._to)
        except OSError:
            pass  # only a display
