"""The source of `format("tuque")`: a stream leases batches of jobs, a batch read only looks.

The broker keeps a batch (group, epoch, number) until it is committed, so an offset is two
numbers and reading is a pure read: tasks may be tried again, run twice, or run after a restart
of the driver. A batch is acknowledged when Spark asks for what comes after it, since then its
commit log has it; `commit(end)` comes one batch late, and never for the last one.

A query takes the group over when it has no offset yet. Restarted from its checkpoint it goes on
with the epoch that it finds there, and with the batches that it had.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from tuque.client.sync import Client
from tuque.errors import Acked, ConnectionError, Loading, NoBatch, ReplyError
from tuque.spark.errors import SourceError
from tuque.spark.source_columns import of_jobs, of_lease
from tuque.spark.source_options import ALL_QUEUES, SourceOptions, url_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

T = TypeVar("T")
PAUSE_S: Final = 0.25  # between two tries of a node that is away
FETCH_BYTES: Final = 8 << 20
LOOK_ROWS: Final = 1000  # jobs in a batch of rows when looking
PARTS_MOST: Final = 1024  # of a batch
PAST: Final = 100_000  # no part has that many jobs
IDS_MOST: Final = 1000  # jobs put among the dead letters in one pipeline


@dataclass
class LeasePart(InputPartition):
    """One part of a leased batch."""

    epoch: int
    seq: int
    part: int


@dataclass
class NodePart(InputPartition):
    """The jobs of one node."""

    address: str


class Node:
    """A connection that tries again while the node is away, for as long as retryTimeout says."""

    def __init__(self, options: SourceOptions) -> None:
        self.options = options
        self._client: Client | None = None

    def ask(self, call: Callable[[Client], T]) -> T:
        """The answer; SourceError when the node stays away, ReplyError when it says no."""
        until = time.monotonic() + self.options.retry_timeout_ms / 1000
        while True:
            try:
                if self._client is None:
                    self._client = Client(url_of(self.options.broker), follow=False)
                return call(self._client)
            except (ConnectionError, OSError, Loading) as err:
                self.close()
                if time.monotonic() > until:
                    raise SourceError(f"{self.options.address} does not answer: {err}") from err
                time.sleep(PAUSE_S)

    def close(self) -> None:
        """Forgets the connection."""
        if self._client is not None:
            with suppress(OSError):
                self._client.close()
        self._client = None

    def __getstate__(self) -> dict[str, Any]:
        return {"options": self.options, "_client": None}


class LeaseReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A stream of leased batches of one group. Spark keeps one in a process of the driver, and
    sends copies of it to the tasks."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self.options = options
        self.names = schema.fieldNames()
        self.node = Node(options)
        self.epoch = 0  # what this process leases under; 0: not known yet
        self.left: int | None = None  # jobs that Trigger.AvailableNow may still take
        self.leased: dict[tuple[int, int], int] = {}  # of those, by epoch and batch
        self._beats = False

    def initialOffset(self) -> dict[str, int]:
        """Always the same: Spark asks again when it replays the first batch."""
        return {"epoch": 0, "seq": 0}

    def getDefaultReadLimit(self) -> ReadLimit:
        """maxJobsPerTrigger."""
        return ReadMaxRows(self.options.max_jobs)

    def prepareForTriggerAvailableNow(self) -> None:
        """Sets the end: what is queued now, and what the group has leased and not logged."""
        self.left = self.node.ask(lambda c: sum(c.qlen(name) for name in self.options.queues))
        with suppress(ReplyError):  # no such group yet
            found = self.node.ask(lambda c: c.lease_info(self.options.group))
            self.leased = {(found.epoch, batch.seq): batch.jobs for batch in found.batches}
            self.left += sum(self.leased.values())

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        """Acknowledges all up to `start`, then leases the next batch; `start` if there is none."""
        group, seq = self.options.group, start["seq"]
        if self.left is not None:  # what Spark has logged, and may do again, is no job to come
            logged = [key for key in self.leased if key[0] == start["epoch"] and key[1] <= seq]
            self.left -= sum(self.leased.pop(key) for key in logged)
        if start["epoch"]:
            self._follow(start["epoch"])
            self.node.ask(lambda c: c.lease_commit(group, start["epoch"], seq))
        elif not self.epoch:
            owner = uuid.uuid4().hex
            self._follow(self.node.ask(lambda c: c.lease_open(group, owner, *self.options.queues)))
        count = self._count(limit)
        if not count:
            return start
        taken = self.node.ask(lambda c: self._next(c, seq + 1, count))
        if not taken:
            return start
        if self.left is not None:
            self.leased.pop((self.epoch, seq + 1), None)
            self.left -= taken
        return {"epoch": self.epoch, "seq": seq + 1}

    def _next(self, client: Client, seq: int, count: int) -> int:
        options = self.options
        return client.lease_next(
            *(options.group, self.epoch, seq, count),
            ttl_ms=options.lease_timeout_ms,
            max_bytes=options.max_bytes,
            parts=options.partitions,
        )

    def _count(self, limit: ReadLimit) -> int:
        most = self.options.max_jobs
        if isinstance(limit, ReadMaxRows):
            most = min(most, limit.max_rows)
        return most if self.left is None else max(0, min(most, self.left))

    def reportLatestOffset(self) -> dict[str, int] | None:
        """Backlog and age of the oldest job, for the progress of the query."""
        try:
            found = self.node.ask(lambda c: c.lease_info(self.options.group))
        except (ReplyError, SourceError):
            return None
        leased = sum(batch.jobs for batch in found.batches)
        return {"backlog": found.queued, "leased": leased, "oldest_ms": found.oldest_ms}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        """The parts of all batches after `start` up to `end`."""
        if start == end:
            return []
        self._follow(end["epoch"])
        after = start["seq"] if start["epoch"] == end["epoch"] else 0
        wanted = set(range(after + 1, end["seq"] + 1))
        if self.options.max_attempts:
            wanted -= self._bury(end["epoch"], wanted)
        return [
            LeasePart(end["epoch"], seq, part)
            for seq in sorted(wanted)
            for part in range(self._parts(end["epoch"], seq))
        ]

    def _parts(self, epoch: int, seq: int) -> int:
        """How many parts the batch was leased in: before a restart numPartitions may have been
        another number, and a part that nobody reads would be acknowledged unread."""

        def is_there(part: int) -> bool:
            try:  # from the last position on: no beginning of a read is counted (Y3.3)
                self.node.ask(
                    lambda c: c.lease_columns(
                        self.options.group, epoch, seq, part, start=PAST, count=1
                    )
                )
            except NoBatch:
                return False
            return True

        parts = self.options.partitions
        try:
            while parts < PARTS_MOST and is_there(parts):
                parts += 1
            while parts > 1 and not is_there(parts - 1):
                parts -= 1
        except Acked:
            pass  # reading says what that means
        return parts

    def _bury(self, epoch: int, wanted: set[int]) -> set[int]:
        """Puts jobs of batches that failed too often among the dead letters; those batches."""
        found = self.node.ask(lambda c: c.lease_info(self.options.group))
        most = self.options.max_attempts
        over = {b.seq for b in found.batches if b.seq in wanted and b.attempts >= most}
        for seq in over:
            for part in range(self._parts(epoch, seq)):
                for columns in self._fetch(LeasePart(epoch, seq, part)):
                    rows = of_lease(columns, ["id", "queue"], "", "").to_pylist()
                    for at in range(0, len(rows), IDS_MOST):
                        self._bury_rows(rows[at : at + IDS_MOST], seq)
        return over

    def _bury_rows(self, rows: list[dict[str, str]], seq: int) -> None:
        reason = f"batch {seq} of group {self.options.group} failed too often"

        def bury(client: Client) -> None:
            pipe = client.pipeline()
            for row in rows:
                queue = self.options.dead_letter or f"{row['queue']}.dead"
                pipe.deadletter(row["id"], queue, reason=reason)
            pipe.execute()

        self.node.ask(bury)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The jobs of a part, as often as Spark wants them. Runs in a task."""
        assert isinstance(partition, LeasePart)
        options, at = self.options, partition
        lease = f"{options.group}/{at.epoch}/{at.seq}"
        for found in self._fetch(at):
            if found.gone and options.fail_on_loss:
                raise SourceError(
                    f"{found.gone} jobs of {lease} are gone: the lease ended and others had them. "
                    "failOnDataLoss=false goes on without them"
                )
            yield of_lease(found, self.names, options.address, lease)
        self.node.close()

    def _fetch(self, at: LeasePart) -> Iterator[Any]:
        """The replies that a part's jobs come in."""
        options, position = self.options, 0
        while True:

            def fetch(client: Client, start: int = position) -> Any:
                return client.lease_columns(
                    *(options.group, at.epoch, at.seq, at.part),
                    start=start,
                    count=options.fetch_size,
                    max_bytes=FETCH_BYTES,
                )

            try:
                found = self.node.ask(fetch)
            except Acked:
                if options.is_acked_by_sink:
                    return  # published and acknowledged in one step before Spark noted it
                raise
            yield found
            position = found.next
            if position >= found.total:
                return

    def commit(self, end: dict[str, int]) -> None:
        """Nothing: `latestOffset` acknowledges."""

    def _follow(self, epoch: int) -> None:
        """Leases under that epoch from now on, and keeps the lease alive."""
        self.epoch = epoch
        if not self._beats:
            self._beats = True
            threading.Thread(target=self._beat, daemon=True).start()

    def _beat(self) -> None:
        """Renews the lease for as long as this process of the driver lives."""
        node = Node(self.options)
        while True:
            time.sleep(self.options.heartbeat_ms / 1000)
            with suppress(ReplyError, SourceError):  # the query itself is told why
                node.ask(lambda c: c.lease_touch(self.options.group, self.epoch))


class PeekReader(DataSourceReader):
    """A look at the jobs of some queues on all nodes; changes nothing."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self.options = options
        self.names = schema.fieldNames()

    def partitions(self) -> list[InputPartition]:
        """One part for each node."""
        nodes = Node(self.options).ask(lambda c: c.hello()).nodes
        if len(nodes) <= 1:
            return [NodePart(self.options.address)]
        return [NodePart(f"{node.host}:{node.port}") for node in nodes]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The jobs of a node, page by page. Runs in a task."""
        assert isinstance(partition, NodePart)
        whole = url_of(self.options.broker)
        seeds = ",".join(map(str, self.options.broker.seeds))
        with Client(whole.replace(seeds, partition.address), follow=False) as client:
            for queue in self.options.queues:
                kept = []
                states: Any = self.options.states
                named = None if queue == ALL_QUEUES else queue
                for job in client.jscan(queue=named, states=states, full=True, count=LOOK_ROWS):
                    kept.append(job)
                    if len(kept) == LOOK_ROWS:
                        yield of_jobs(kept, self.names, partition.address)
                        kept = []
                if kept:
                    yield of_jobs(kept, self.names, partition.address)
