"""Batches that keep failing: finds the job at fault, and sets it alone aside.

With maxBatchAttempts=n a batch that failed n times is split in halves, and so on, until the job is
alone (SPEC Y11). It becomes a dead letter if it failed alone while other batches succeeded; if none
succeeded, the target of the query is down, and nothing is set aside. An attempt is a start of the
query: retries of tasks within one do not count.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tuque.client.sync import Client
from tuque.errors import Acked, Fenced, NoBatch, NoGroup, ReplyError
from tuque.spark.leases.leases import Leases, Place
from tuque.spark.leases.pages import Part, pages

ID_BYTES: Final = 40
PARTS_MOST: Final = 1024  # per batch
PROVEN: Final = 2  # other batches succeeded before the attempt that failed last
UNPROVEN: Final = 0


def begin(leases: Leases, place: Place, epoch: int, seq: int) -> bool:
    """Begin an attempt at a batch: after too many failures it is split, or others go first.

    True: its last job became a dead letter, nothing is left to read. Called once per process, that
    is, once per start of the query.
    """
    key = (place.id, epoch, seq)
    if key not in leases.begun:
        try:
            leases.begun[key] = _begin(leases, place, epoch, seq)
        except (Acked, Fenced, NoGroup, NoBatch):
            return False  # the read will say what that means
    return leases.begun[key]


def _begin(leases: Leases, place: Place, epoch: int, seq: int) -> bool:
    options, node, most = leases.options, place.node, leases.options.max_attempts
    group = options.group
    begun = node.ask(lambda c: c.lease_begin(group, epoch, seq))
    if begun.times <= most or not begun.jobs:
        return False
    if begun.half:
        half = begun.half

        def split(client: Client) -> int:
            try:
                return client.lease_split(group, epoch, seq, half, begun=most - 1)
            except ReplyError as err:
                if err.code != "ERR":
                    raise
                return 0  # too many halves: try this one as it is

        _change(leases, place, epoch, seq, split)
    elif begun.proof == PROVEN:
        _bury(leases, place, epoch, seq, begun.times - 1)
        return True
    elif begun.proof == UNPROVEN:
        count = min(options.max_jobs, place.left if place.left is not None else options.max_jobs)
        bytes_most = options.max_bytes
        _change(
            *(leases, place, epoch, seq),
            lambda c: c.lease_defer(group, epoch, seq, count=count, max_bytes=bytes_most),
        )
        node.ask(lambda c: c.lease_begin(group, epoch, seq))
    return False


def _change(
    leases: Leases, place: Place, epoch: int, seq: int, call: Callable[[Client], int]
) -> None:
    """Jobs move to other batches, which Trigger.AvailableNow must still take."""

    def size() -> int:
        found = place.node.ask(lambda c: c.lease_info(leases.options.group))
        return next((batch.jobs for batch in found.batches if batch.seq == seq), 0)

    before = size()
    place.node.ask(call)
    if place.left is not None:
        place.left += before - size()


def _bury(leases: Leases, place: Place, epoch: int, seq: int, times: int) -> None:
    """Move the one job of a batch to the dead letters."""
    options, node = leases.options, place.node
    reason = f"{times} attempts of group {options.group} failed on this job, the last on it alone"
    for number in range(PARTS_MOST):
        try:
            found = list(pages(options, node, Part(node.address, epoch, seq, number)))
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
