"""`mode=peek`: shows the jobs of queues on all nodes, without taking any. Without Spark."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec

from tuque.client.api import JobInfo
from tuque.client.sync import Client
from tuque.client.url import Address
from tuque.errors import ConnectionError
from tuque.spark.errors import SourceError
from tuque.spark.options.source import SourceOptions, url_of

ROWS: Final = 1000  # jobs per batch of rows


def nodes_of(options: SourceOptions) -> list[Address]:
    """The nodes of the cluster; a single one keeps its given address."""
    try:
        with Client(url_of(options.broker), discover=False) as client:
            hello = client.hello()
            own = next((at for at in options.broker.seeds if str(at) == client.node), None)
    except ConnectionError as err:
        raise SourceError(f"no node answers: {err}") from err
    found = [Address(node.host, node.port) for node in hello.nodes if node.id != hello.id]
    return [own or options.broker.seeds[0], *(at for at in found if at.host)]


def deliveries(job: JobInfo) -> int:
    """The number of deliveries, derived from the number of requeues."""
    return job.nacks + job.additional_deliveries + (job.state in ("active", "acked"))


def read(options: SourceOptions, address: Address) -> Iterator[list[JobInfo]]:
    """The jobs of a node, some at a time, for a task.

    A node that does not respond is an error, unless failOnDataLoss is false.
    """
    broker = msgspec.structs.replace(options.broker, seeds=(address,))
    try:
        with Client(url_of(broker), discover=False) as client:
            yield from _read(options, client)
    except ConnectionError as err:
        if options.fail_on_loss:
            raise SourceError(
                f"{address} does not answer: {err}. failOnDataLoss=false looks at the others"
            ) from err


def _read(options: SourceOptions, client: Client) -> Iterator[list[JobInfo]]:
    is_wanted, left = _filter(options), options.limit or -1
    for queue in options.queues:
        kept: list[JobInfo] = []
        states: Any = options.states
        named = None if options.is_of_all else queue
        for job in client.jscan(queue=named, states=states, full=True, count=ROWS):
            if left == 0:
                break
            if not is_wanted(job):
                continue
            left -= 1
            kept.append(job)
            if len(kept) == ROWS:
                yield kept
                kept = []
        if kept:
            yield kept


def _filter(options: SourceOptions) -> Callable[[JobInfo], bool]:
    """Apply minAge and minDeliveries."""
    made_ns = time.time_ns() - options.least_age_ms * 1_000_000
    least = options.least_deliveries

    def is_wanted(job: JobInfo) -> bool:
        return job.ctime_ns <= made_ns and deliveries(job) >= least

    return is_wanted if options.least_age_ms or least else lambda _: True
