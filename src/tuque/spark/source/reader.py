"""The source of `format("tuque")`, as Spark calls it; other modules do the work.

An offset is two numbers per node (leases.py) or the ids of a batch (ids.py). Reading changes
nothing: tasks may be retried, run twice, or run after a restart of the driver. A batch is
acknowledged when Spark asks for the next one, since then its commit log has it; `commit(end)` comes
one batch late, and never for the last one.

A query without an offset takes the group over. After a restart from its checkpoint it continues
with the epochs in it, and with the batches that it had.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from tuque.client.url import Address
from tuque.spark.errors import SourceError
from tuque.spark.leases import parts
from tuque.spark.leases.leases import Leases
from tuque.spark.leases.pages import Part
from tuque.spark.source import ids as source_ids
from tuque.spark.source import peek
from tuque.spark.source.columns import as_text, of_jobs, of_lease

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from tuque.spark.leases.leases import Offset
    from tuque.spark.options.source import SourceOptions
    from tuque.spark.source.ids import IdsOffset

ONCE: Final = (
    "trigger(once=True) reads all jobs as one batch, whose size nothing bounds: "
    "use trigger(availableNow=True), which reads all that are there now in batches, and ends"
)


@dataclass
class LeasePart(InputPartition):
    """One part of a leased batch."""

    part: Part


@dataclass
class IdsPart(InputPartition):
    """Some jobs of a batch."""

    ids: list[str]


@dataclass
class NodePart(InputPartition):
    """The jobs of one node."""

    address: Address


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The common part of both modes. Spark keeps one in a driver process, and sends copies of it,
    without the driver's own state, to the tasks.
    """

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self.options = options
        self.names = schema.fieldNames()

    def __getstate__(self) -> dict[str, Any]:
        return {"options": self.options, "names": self.names}

    def getDefaultReadLimit(self) -> ReadLimit:
        """maxJobsPerTrigger."""
        return ReadMaxRows(self.options.max_jobs)

    def _rows(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        return as_text(rows) if self.options.is_text else rows

    def _most(self, limit: ReadLimit) -> int:
        """SourceError for trigger(once=True), which would leave all but one batch in silence."""
        if isinstance(limit, ReadAllAvailable):
            raise SourceError(ONCE)
        most = self.options.max_jobs
        return min(most, limit.max_rows) if isinstance(limit, ReadMaxRows) else most


class LeaseReader(StreamReader):
    """A stream of leased batches of one group."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        self.leases = Leases(options)

    def initialOffset(self) -> Offset:
        """Always the same: Spark asks again when it replays the first batch."""
        return {}

    def prepareForTriggerAvailableNow(self) -> None:
        """Sets the limit: what is there now."""
        self.leases.limit_to_now()

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        """Acknowledges up to `start`, then leases the next batch; `start` if there is none."""
        return self.leases.latest(start, self._most(limit))

    def reportLatestOffset(self) -> dict[str, int] | None:
        """Backlog and age of the oldest job, for the progress of the query."""
        return self.leases.backlog()

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        """The parts of all batches after `start` up to `end`."""
        return [LeasePart(part) for part in parts.parts_of(self.leases, start, end)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The jobs of a part, as often as Spark wants. Runs in a task."""
        assert isinstance(partition, LeasePart)
        part = partition.part
        node, lease = str(part.address), part.lease(self.options.group)
        for page in parts.read(self.options, part):
            yield self._rows(of_lease(page, self.names, node, lease))

    def commit(self, end: Offset) -> None:
        """No effect except with ackOn=commit: `latestOffset` acknowledges."""
        self.leases.acknowledge(end)


class IdsReader(StreamReader):
    """A stream of the jobs of a node that has no leases."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        self.taken = source_ids.Taken(options)

    def initialOffset(self) -> IdsOffset:
        """Always the same."""
        return {source_ids.NAME: []}

    def prepareForTriggerAvailableNow(self) -> None:
        """Sets the limit: jobs queued now."""
        self.taken.limit_to_now()

    def latestOffset(self, start: IdsOffset, limit: ReadLimit) -> IdsOffset:
        """Acknowledges the jobs of `start`, then takes others; `start` if there are none."""
        return self.taken.latest(start, self._most(limit))

    def reportLatestOffset(self) -> dict[str, int] | None:
        """The backlog, for the progress of the query."""
        return self.taken.backlog()

    def partitions(self, start: IdsOffset, end: IdsOffset) -> list[InputPartition]:
        """The jobs of `end`, split into parts."""
        ids = source_ids.check(end)
        if not ids or start == end:
            return []
        self.taken.keep(ids)
        size = -(-len(ids) // self.options.partitions)
        return [IdsPart(ids[at : at + size]) for at in range(0, len(ids), size)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The jobs of a part, as often as Spark wants. Runs in a task."""
        assert isinstance(partition, IdsPart)
        for jobs in source_ids.read(self.options, partition.ids):
            yield self._rows(of_jobs(jobs, self.names, self.options.address))

    def commit(self, end: IdsOffset) -> None:
        """No effect except with ackOn=commit: `latestOffset` acknowledges."""
        self.taken.acknowledge(end)


class PeekReader(DataSourceReader):
    """Shows the jobs of some queues on all nodes; changes nothing."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self.options = options
        self.names = schema.fieldNames()

    def partitions(self) -> list[InputPartition]:
        """One part for each node."""
        return [NodePart(address) for address in peek.nodes_of(self.options)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The jobs of a node, page by page. Runs in a task."""
        assert isinstance(partition, NodePart)
        for jobs in peek.read(self.options, partition.address):
            rows = of_jobs(jobs, self.names, str(partition.address))
            yield as_text(rows) if self.options.is_text else rows
