"""Batches that keep failing: finds the job at fault, and sets it alone aside.

With maxBatchAttempts=n a batch that failed n times is split in halves, and so on, until the job is
alone (SPEC Y11). It becomes a dead letter if it failed alone while other batches succeeded. If none
succeeded, the target of the query may be down, and no job becomes one but the last job there is,
which nothing could go before: after 2 n attempts, at least n of them alone. An attempt is a start
of the query: retries of tasks within one do not count.

A batch of the query has a batch of each node, its pieces. It fails as a whole, so a piece may be
blamed only while all others are empty.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from tuque.client.commands.leases import LeaseBegun
from tuque.client.sync import Client
from tuque.errors import Acked, Fenced, NoBatch, NoGroup, ReplyError
from tuque.spark.leases.leases import Leases, Place
from tuque.spark.leases.pages import Part, pages

ID_BYTES: Final = 40
PARTS_MOST: Final = 1024  # per batch
PROVEN: Final = 2  # other batches succeeded before the attempt that failed last
UNPROVEN: Final = 0


class Piece(NamedTuple):
    """What one node gave to a batch of the query: a batch of its own."""

    place: Place
    epoch: int
    seq: int

    @property
    def key(self) -> tuple[str, int, int]:
        """Its name in `Leases.begun`."""
        return self.place.id, self.epoch, self.seq


def begin(leases: Leases, pieces: Sequence[Piece]) -> None:
    """Begin an attempt at a batch of the query: after too many failures it gets smaller.

    A piece whose last job became a dead letter is then True in `leases.begun`: nothing is left to
    read. Each piece begins once per process, that is, once per start of the query.
    """
    new = [piece for piece in pieces if piece.key not in leases.begun]
    begun: dict[Piece, LeaseBegun] = {}
    for piece in new:
        leases.begun[piece.key] = False
        with suppress(Acked, Fenced, NoGroup, NoBatch):  # the read will say what that means
            begun[piece] = _ask_begin(leases, piece)
    live = [piece for piece in begun if begun[piece].jobs]
    if any(begun[piece].times > leases.options.max_attempts for piece in live):
        with suppress(Acked, Fenced, NoGroup, NoBatch):
            _shrink(leases, live, [piece for piece in begun if piece not in live], begun)


def _ask_begin(leases: Leases, piece: Piece) -> LeaseBegun:
    _, epoch, seq = piece
    return piece.place.node.ask(lambda c: c.lease_begin(leases.options.group, epoch, seq))


def _shrink(
    leases: Leases, live: list[Piece], empty: list[Piece], begun: dict[Piece, LeaseBegun]
) -> None:
    """Halve the query's batch; if it is one job, set it aside, or let others go first.

    A job is alone only if no node has another one in the batch. So the nodes are halved first.
    """
    most = leases.options.max_attempts
    if len(live) > 1:
        # Those that failed while others succeeded come first: they wait for that.
        live.sort(key=lambda piece: (-begun[piece].proof, begun[piece].jobs, piece.place.id))
        kept = len(live) // 2
        moved = [
            _split(leases, piece, 0, min(begun[piece].times, most) - 1) for piece in live[kept:]
        ]
        if not all(moved):  # too many batches on a node: others of it go first
            for piece in live:
                _defer(leases, piece, 0)
        return
    piece = live[0]
    found = begun[piece]
    if found.half:
        _split(leases, piece, found.half, most - 1)
    elif found.before > 1 or any(begun[other].before for other in empty):
        return  # others were in the batch when it failed last: now this one is alone
    elif found.proof == PROVEN:
        leases.begun[piece.key] = True
        _bury(leases, piece, found.times - 1)
    elif found.proof == UNPROVEN and _is_last(leases):
        if found.times > 2 * most:
            leases.begun[piece.key] = True
            _bury(leases, piece, found.times - 1)
    elif found.proof == UNPROVEN:
        # Those of another node, or else of this one, may prove that some succeed.
        for other in empty:
            if _defer(leases, other, leases.options.max_jobs):
                _split(leases, piece, 0, found.times)
                return
        _defer(leases, piece, leases.options.max_jobs)


def _is_last(leases: Leases) -> bool:
    """Whether no other job of the query is there, queued or leased, at any node."""
    jobs = 0
    for place in leases.places.values():
        found = place.node.ask(lambda c: c.lease_info(leases.options.group))
        jobs += found.queued + sum(batch.jobs for batch in found.batches)
    return jobs <= 1 and not leases.unmet


def _split(leases: Leases, piece: Piece, keep: int, begun: int) -> bool:
    """The piece keeps its first positions; False if its node has too many batches for that."""
    _, epoch, seq = piece

    def split(client: Client) -> int:
        try:
            return client.lease_split(leases.options.group, epoch, seq, keep, begun=begun)
        except ReplyError as err:
            if err.code != "ERR":
                raise
            return -1  # tried as it is

    return _change(leases, piece, split) >= 0


def _defer(leases: Leases, piece: Piece, most: int) -> int:
    """Other jobs of the node take the piece's place: how many."""
    options, place = leases.options, piece.place
    _, epoch, seq = piece
    count = min(most, place.left if place.left is not None else most)

    def defer(client: Client) -> int:
        return client.lease_defer(
            options.group, epoch, seq, count=count, max_bytes=options.max_bytes
        )

    jobs = _change(leases, piece, defer)
    if jobs:
        _ask_begin(leases, piece)
    return jobs


def _change(leases: Leases, piece: Piece, call: Callable[[Client], int]) -> int:
    """The reply; jobs move to other batches, which Trigger.AvailableNow must still take."""
    place, _, seq = piece

    def size() -> int:
        found = place.node.ask(lambda c: c.lease_info(leases.options.group))
        return next((batch.jobs for batch in found.batches if batch.seq == seq), 0)

    before = size()
    reply = place.node.ask(call)
    if place.left is not None:
        place.left += before - size()
    return reply


def _bury(leases: Leases, piece: Piece, times: int) -> None:
    """Move the one job of a batch to the dead letters."""
    options, node = leases.options, piece.place.node
    reason = f"{times} attempts of group {options.group} failed on this job, the last on it alone"
    for number in range(PARTS_MOST):
        try:
            found = list(pages(options, node, Part(node.address, piece.epoch, piece.seq, number)))
        except NoBatch:
            return
        for page in found:
            if page.count:
                id, queue = page.ids[:ID_BYTES].decode(), page.queues[0]
                target = options.dead_letter or f"{queue}.dead"

                def bury(client: Client, id: str = id, target: str = target) -> str:
                    return client.deadletter(id, target, reason=reason)

                node.ask(bury)
                return
