"""The parts of leased batches, and how a task reads one.

Reading changes nothing on the broker, so a part may be read again, even concurrently. Without
Spark; leases.py has offsets and acknowledgement, failures.py batches that fail.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Final

from tuque.client.commands.leases import LeaseColumns, LeaseRows
from tuque.client.sync import Client
from tuque.client.url import Address
from tuque.errors import Acked, Fenced, NoBatch, NoGroup
from tuque.spark.errors import SourceError
from tuque.spark.leases import failures
from tuque.spark.leases.failures import Piece
from tuque.spark.leases.leases import BEHIND, Leases, Offset, fenced
from tuque.spark.leases.nodes import AwayError, Node
from tuque.spark.leases.pages import Part, pages
from tuque.spark.options.source import SourceOptions

PARTS_MOST: Final = 1024  # per batch
PAST: Final = 100_000  # more jobs than any part has
SHOWN_AT_ONCE: Final = 100  # replies have the bodies


def parts_of(leases: Leases, start: Offset, end: Offset) -> list[Part]:
    """The parts of all batches after `start` up to `end`.

    SourceError if a node is down for longer than retryTimeout, or is not among the given ones.
    """
    pieces: list[Piece] = []
    for id, (epoch, last) in end.items():
        before = start.get(id, [0, 0])
        if before == [epoch, last]:
            continue
        place = leases.follow(id, epoch)
        if place is None:
            if leases.options.fail_on_loss:
                raise SourceError(
                    f"the checkpoint has a batch of node {id}, which is none of the given ones: "
                    "name it in url, or give nodes=cluster. failOnDataLoss=false continues without "
                    "it: its jobs come when it is given again"
                )
            continue
        wanted = range(before[1] + 1 if before[0] == epoch else 1, last + 1)
        pieces += [Piece(place, epoch, seq) for seq in wanted]
    if leases.options.max_attempts > 0:
        failures.begin(leases, pieces)
    return [part for piece in pieces for part in _of_piece(leases, piece)]


def _of_piece(leases: Leases, piece: Piece) -> list[Part]:
    if leases.begun.get(piece.key):
        return []  # its last job is a dead letter
    node, epoch, seq = piece.place.node, piece.epoch, piece.seq
    parts = range(_count(leases.options, node, epoch, seq))
    return [Part(node.address, epoch, seq, part) for part in parts]


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
                f"lease ended long ago ({err}). failOnDataLoss=false continues without it"
            ) from err
    except Fenced as err:
        raise fenced(options.group, err) from err
    except Acked as err:
        # With ackedBy=sink it was published and acknowledged in one step.
        if options.fail_on_loss and not options.is_acked_by_sink:
            raise SourceError(BEHIND.format(group=options.group, why=err)) from err
    finally:
        node.close()


def _check_gone(options: SourceOptions, node: Node, part: Part) -> None:
    """SourceError if others got jobs of the part."""
    gone = node.ask(lambda c: c.lease_gone(options.group, part.epoch, part.seq, part.part))
    others = gone.elsewhere
    if others:  # those in a queue, of which nobody can say why they left, are counted for it last
        others -= min(others, max(0, _queued(options, node, part) - gone.nacked))
    if not others + gone.ended:
        return
    ways = (
        (others, "handed out to others after the lease had ended"),
        (gone.ended, "acknowledged or deleted by their ids"),
    )
    raise SourceError(
        f"{others + gone.ended} jobs of {part.lease(options.group)} are gone: "
        + ", ".join(f"{count} {way}" for count, way in ways if count)
        + ". failOnDataLoss=false continues without them"
    )


def _queued(options: SourceOptions, node: Node, part: Part) -> int:
    """How many jobs that left the part wait in the queue of a node: they come in a later batch.

    After the lease has ended any node with a copy may queue a job (SPEC Q2, Q4).
    """
    left: set[str] = set()
    at, total = 0, 1
    while at < total:

        def fetch(client: Client, start: int = at) -> LeaseRows:
            return client.lease_fetch(
                options.group,
                part.epoch,
                part.seq,
                part.part,
                start=start,
                count=options.fetch_size,
            )

        rows = node.ask(fetch)
        left.update(row.id for row in rows.rows if row.is_gone)
        at, total = rows.next, rows.total
    known = node.ask(lambda c: c.hello())
    queued = node.ask(lambda c: _in_queue(c, left))
    for other in known.nodes:
        if other.id != known.id and other.host:
            peer = Node(options.broker, Address(other.host, other.port), options.retry_timeout_ms)
            with suppress(AwayError):
                queued |= peer.try_now(lambda c: _in_queue(c, left))
            peer.close()
    return len(queued)


def _in_queue(client: Client, ids: set[str]) -> set[str]:
    """Those of the jobs that are in a queue of the node."""
    asked = sorted(ids)
    found: set[str] = set()
    for first in range(0, len(asked), SHOWN_AT_ONCE):
        pipe = client.pipeline()
        for id in asked[first : first + SHOWN_AT_ONCE]:
            pipe.show(id)
        found.update(job.id for job in pipe.execute() if job and job.state == "queued")
    return found
