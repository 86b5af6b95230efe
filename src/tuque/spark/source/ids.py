"""`mode=ids`: jobs of any Disque node, without leases; the checkpoint has their ids.

The driver takes jobs with GETJOB and prevents redelivery with WORKING; tasks read them with SHOW;
they are acknowledged when Spark asks for the next batch. It needs no command that Disque lacks, and
has no further guarantee: a job is delivered again when its retry time is over, e.g. when a driver
is down for that long, or died between GETJOB and writing its offset. Without Spark.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Final

from tuque.client.api import JobInfo
from tuque.client.sync import Client
from tuque.errors import ReplyError
from tuque.spark.errors import SourceError
from tuque.spark.leases.nodes import IDLE_S, AwayError, Node
from tuque.spark.options.source import SourceOptions

IdsOffset = dict[str, list[str]]
NAME: Final = "ids"
ACKS: Final = 1000  # jobs per command, or per pipeline
SHORTEST_BEAT_S: Final = 0.2


class Taken:
    """The jobs of one query, in the driver process that plans it."""

    def __init__(self, options: SourceOptions) -> None:
        self.options = options
        self.node = node_of(options)
        self.acked: list[str] = []
        self.kept: list[str] = []  # kept by WORKING
        self.end: IdsOffset | None = None  # the latest result; Spark may ask again
        self.left: int | None = None  # jobs that Trigger.AvailableNow may still take
        self._wake = threading.Event()
        self._has_beats = False

    def limit_to_now(self) -> None:
        """Sets the limit: jobs queued now."""
        self.left = self._queued()

    def _queued(self) -> int:
        return self.node.ask(lambda c: sum(c.qlen(name) for name in self.options.queues))

    def latest(self, start: IdsOffset, most: int) -> IdsOffset:
        """Acknowledges the jobs of `start`, then takes others; `start` if there are none."""
        ids = check(start)
        if self.end is not None and self.end[NAME] != ids:
            return self.end
        if self.options.is_acked_on_next:
            self._ack(ids)
        count = most if self.left is None else min(most, self.left)
        found = self._take(count) if count > 0 else []
        if not found:
            if self.left is None:
                time.sleep(IDLE_S)
            return start
        if self.left is not None:
            self.left -= len(found)
        self.keep(found)
        self.end = {NAME: found}
        return self.end

    def _take(self, count: int) -> list[str]:
        """Takes jobs; if the node fails meanwhile they come again after their retry time."""
        jobs = self.node.ask(lambda c: c.getjob(*self.options.queues, count=count, nohang=True))
        return [job.id for job in jobs]

    def _ack(self, ids: list[str]) -> None:
        if ids == self.acked:
            return
        for at in range(0, len(ids), ACKS):
            self.node.ask(partial(acknowledge, ids=ids[at : at + ACKS]))
        self.acked = ids
        self.kept = []

    def acknowledge(self, end: IdsOffset) -> None:
        """With ackOn=commit: Spark reports that everything up to there is done."""
        if not self.options.is_acked_on_next:
            self._ack(check(end))

    def keep(self, ids: list[str]) -> None:
        """Prevents redelivery of these jobs as long as this process lives."""
        self.kept = ids
        self._wake.set()
        if not self._has_beats:
            self._has_beats = True
            threading.Thread(target=self._beats, daemon=True).start()

    def _beats(self) -> None:
        node, pause_s = node_of(self.options), self.options.heartbeat_ms / 1000
        while True:
            self._wake.wait(pause_s)
            self._wake.clear()
            pause_s = self.options.heartbeat_ms / 1000
            with suppress(AwayError):
                told_s = [s for s in node.try_now(lambda c: working(c, self.kept)) if s > 0]
                pause_s = max(SHORTEST_BEAT_S, min([pause_s, *(s / 2 for s in told_s)]))

    def backlog(self) -> dict[str, int] | None:
        """For the progress of the query."""
        try:
            return {"backlog": self._queued(), "leased": len(self.kept)}
        except SourceError:
            return None


def working(client: Client, ids: Sequence[str]) -> list[int]:
    """WORKING of each: for how many seconds we keep it; 0: refused."""
    found: list[int] = []
    for at in range(0, len(ids), ACKS):
        pipe = client.pipeline()
        for id in ids[at : at + ACKS]:
            pipe.working(id)
        answers = pipe.execute(raise_on_error=False)
        found += [0 if isinstance(answer, ReplyError) else int(answer) for answer in answers]
    return found


def read(options: SourceOptions, ids: Sequence[str]) -> Iterator[list[JobInfo]]:
    """The jobs, some at a time, for a task. SourceError if jobs are gone and failOnDataLoss is set,
    or the node stays down.
    """
    node = node_of(options)
    try:
        for at in range(0, len(ids), options.fetch_size):
            some = ids[at : at + options.fetch_size]
            jobs = node.ask(partial(show, ids=some))
            if len(jobs) < len(some) and options.fail_on_loss:
                raise SourceError(
                    f"{len(some) - len(jobs)} jobs of the batch are gone: they expired, were "
                    "acknowledged by others, or the node forgot them. failOnDataLoss=false goes "
                    "on without them"
                )
            yield jobs
    finally:
        node.close()


def acknowledge(client: Client, ids: Sequence[str]) -> int:
    """ACKJOB of all."""
    return client.ackjob(*ids)


def show(client: Client, ids: Sequence[str]) -> list[JobInfo]:
    """SHOW of each; returns those not done yet."""
    pipe = client.pipeline()
    for id in ids:
        pipe.show(id)
    found: list[JobInfo | None] = pipe.execute()
    return [job for job in found if job and job.body is not None and job.state != "acked"]


def node_of(options: SourceOptions) -> Node:
    """A connection to the one node."""
    return Node(options.broker, options.broker.seeds[0], options.retry_timeout_ms)


def check(offset: IdsOffset) -> list[str]:
    """The ids in an offset; SourceError if it is not one of ours."""
    ids = offset.get(NAME)
    if ids is None:
        raise SourceError("the checkpoint was written by another source, or with another mode")
    return ids
