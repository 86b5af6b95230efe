"""The parts of leased batches, and how a task reads one.

Reading changes nothing on the broker, so a part may be read again, even concurrently. Without
Spark; leases.py has offsets and acknowledgement, failures.py batches that fail.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tuque.client.commands.leases import LeaseColumns
from tuque.errors import Acked, Fenced, NoBatch, NoGroup
from tuque.spark.errors import SourceError
from tuque.spark.leases import failures
from tuque.spark.leases.leases import Leases, Offset, Place, fenced
from tuque.spark.leases.nodes import Node
from tuque.spark.leases.pages import Part, pages
from tuque.spark.options.source import SourceOptions

PARTS_MOST: Final = 1024  # per batch
PAST: Final = 100_000  # more jobs than any part has


def parts_of(leases: Leases, start: Offset, end: Offset) -> list[Part]:
    """The parts of all batches after `start` up to `end`.

    SourceError if a node is down for longer than retryTimeout, or is not among the given ones.
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
        found += _of_place(leases, place, epoch, wanted)
    return found


def _of_place(leases: Leases, place: Place, epoch: int, wanted: range) -> list[Part]:
    options, node = leases.options, place.node
    found: list[Part] = []
    for seq in wanted:
        is_buried = options.max_attempts > 0 and failures.begin(leases, place, epoch, seq)
        if not is_buried:
            parts = range(_count(options, node, epoch, seq))
            found += [Part(node.address, epoch, seq, part) for part in parts]
    return found


def _count(options: SourceOptions, node: Node, epoch: int, seq: int) -> int:
    """The number of parts that the batch was leased in: before a restart numPartitions, or the
    number of nodes, may have differed, and a part that nobody reads would be acknowledged unread.
    """

    def is_there(part: int) -> bool:
        try:  # from the last position on: this does not count as the beginning of a read (Y3.3)
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
        pass  # the read will say what that means
    return parts


def read(options: SourceOptions, part: Part) -> Iterator[LeaseColumns]:
    """The replies with a part's jobs, for a task.

    Without jobs that were requeued, expired or became dead letters. SourceError if others got some
    and failOnDataLoss is set, or the node stays down.
    """
    node = Node(options.broker, part.address, options.retry_timeout_ms)
    lease = part.lease(options.group)
    has_gone = False
    try:
        for page in pages(options, node, part):
            has_gone = has_gone or page.gone > 0
            yield page
        if has_gone and options.fail_on_loss:
            _check_gone(options, node, part)
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


def _check_gone(options: SourceOptions, node: Node, part: Part) -> None:
    """SourceError if others got jobs of the part."""
    gone = node.ask(lambda c: c.lease_gone(options.group, part.epoch, part.seq, part.part))
    if not gone.lost:
        return
    ways = (
        (gone.elsewhere, "handed out to others after the lease had ended"),
        (gone.ended, "acknowledged or deleted by their ids"),
    )
    raise SourceError(
        f"{gone.lost} jobs of {part.lease(options.group)} are gone: "
        + ", ".join(f"{count} {way}" for count, way in ways if count)
        + ". failOnDataLoss=false goes on without them"
    )
