"""The parts of leased batches: which there are, how a task reads one, and batches that fail.

Reading changes nothing at the broker, so a part may be read again and twice at a time. Without
Spark; offsets and acknowledgement are leases.py's.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from tuque.client.leases import LeaseColumns
from tuque.client.sync import Client
from tuque.client.url import Address
from tuque.errors import Acked, Fenced, NoBatch, NoGroup
from tuque.spark.errors import SourceError
from tuque.spark.leases import Leases, Offset, Place, fenced
from tuque.spark.source_nodes import Node
from tuque.spark.source_options import SourceOptions

FETCH_BYTES: Final = 8 << 20
PARTS_MOST: Final = 1024  # of a batch
PAST: Final = 100_000  # no part has that many jobs
IDS_MOST: Final = 1000  # jobs put among the dead letters in one pipeline
ID_BYTES: Final = 40


@dataclass(frozen=True)
class Part:
    """One part of a batch, and where it is."""

    address: Address
    epoch: int
    seq: int
    part: int

    def lease(self, group: str) -> str:
        """As the column `lease` has it."""
        return f"{group}/{self.epoch}/{self.seq}"


def parts_of(leases: Leases, start: Offset, end: Offset) -> list[Part]:
    """The parts of all batches after `start` up to `end`.

    SourceError when a node is away for longer than retryTimeout, or is none of the given ones.
    """
    found: list[Part] = []
    for id, (epoch, last) in end.items():
        before = start.get(id, [0, 0])
        if before == [epoch, last]:
            continue
        place = leases.follow(id, epoch)
        if place is None:
            if leases.options.fail_on_loss:
                raise SourceError(
                    f"the checkpoint has a batch of node {id}, which is none of the given ones: "
                    "name it in url, or give nodes=cluster. failOnDataLoss=false goes on without "
                    "it: its jobs come when it is given again"
                )
            continue
        wanted = range(before[1] + 1 if before[0] == epoch else 1, last + 1)
        found += _of_place(leases.options, place, epoch, wanted)
    return found


def _of_place(options: SourceOptions, place: Place, epoch: int, wanted: range) -> list[Part]:
    node, over = place.node, set[int]()
    if options.max_attempts:
        info = node.ask(lambda c: c.lease_info(options.group))
        most = options.max_attempts
        over = {b.seq for b in info.batches if b.seq in wanted and b.attempts >= most}
    found: list[Part] = []
    for seq in wanted:
        parts = [
            Part(node.address, epoch, seq, part)
            for part in range(_count(options, node, epoch, seq))
        ]
        if seq in over:
            for part in parts:
                _bury(options, node, part)
        else:
            found += parts
    return found


def _count(options: SourceOptions, node: Node, epoch: int, seq: int) -> int:
    """How many parts the batch was leased in: before a restart numPartitions, or the number of
    nodes, may have been another, and a part that nobody reads would be acknowledged unread."""

    def is_there(part: int) -> bool:
        try:  # from the last position on: no beginning of a read is counted (Y3.3)
            node.ask(
                lambda c: c.lease_columns(options.group, epoch, seq, part, start=PAST, count=1)
            )
        except NoBatch:
            return False
        return True

    parts = options.partitions
    try:
        while parts < PARTS_MOST and is_there(parts):
            parts += 1
        while parts > 1 and not is_there(parts - 1):
            parts -= 1
    except (Acked, Fenced, NoGroup):
        pass  # reading says what that means
    return parts


def _bury(options: SourceOptions, node: Node, part: Part) -> None:
    """Puts the jobs of a batch that failed too often among the dead letters."""
    reason = f"batch {part.seq} of group {options.group} failed too often"
    for page in pages(options, node, part):
        rows = [
            (page.ids[ID_BYTES * i : ID_BYTES * (i + 1)].decode(), page.queues[index])
            for i, index in enumerate(memoryview(page.queue_index).cast("i"))
        ]
        for at in range(0, len(rows), IDS_MOST):
            some = rows[at : at + IDS_MOST]

            def bury(client: Client, some: list[tuple[str, str]] = some) -> None:
                pipe = client.pipeline()
                for id, queue in some:
                    pipe.deadletter(id, options.dead_letter or f"{queue}.dead", reason=reason)
                pipe.execute()

            node.ask(bury)


def read(options: SourceOptions, part: Part) -> Iterator[LeaseColumns]:
    """The replies that a part's jobs come in, for a task. SourceError when jobs are gone and
    failOnDataLoss says so, or the node stays away."""
    node = Node(options.broker, part.address, options.retry_timeout_ms)
    lease = part.lease(options.group)
    try:
        for page in pages(options, node, part):
            if page.gone and options.fail_on_loss:
                raise SourceError(
                    f"{page.gone} jobs of {lease} are gone: the lease ended and others had them. "
                    "failOnDataLoss=false goes on without them"
                )
            yield page
    except (NoGroup, NoBatch) as err:
        if options.fail_on_loss:
            raise SourceError(
                f"{part.address} does not know {lease} any more: it lost its memory, or the "
                f"lease ended long ago ({err}). failOnDataLoss=false goes on without it"
            ) from err
    except Fenced as err:
        raise fenced(options.group, err) from err
    except Acked:
        if not options.is_acked_by_sink:  # else published and acknowledged in one step
            raise
    finally:
        node.close()


def pages(options: SourceOptions, node: Node, part: Part) -> Iterator[LeaseColumns]:
    """The replies, as the node gives them."""
    position = 0
    while True:

        def fetch(client: Client, start: int = position) -> LeaseColumns:
            return client.lease_columns(
                *(options.group, part.epoch, part.seq, part.part),
                start=start,
                count=options.fetch_size,
                max_bytes=FETCH_BYTES,
            )

        page = node.ask(fetch)
        yield page
        position = page.next
        if position >= page.total:
            return
