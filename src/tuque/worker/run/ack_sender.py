"""Acks, NACKs and dead letters of jobs, sent to the broker: one ACKJOB for all done jobs.

Takes settlements from the worker and keeps each until the broker has confirmed it, through any
outage. While one batch is in flight the next one gathers, so that batches grow with the load and
nothing waits for a batch to fill. Settlements for a tube without a leader do not block the rest.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice
from typing import Any, Final

import msgspec

from tuque import aio
from tuque.client.api import Job
from tuque.errors import (
    Acked,
    Cancelled,
    Conflict,
    ConnectionError,
    Error,
    Leaving,
    Loading,
    Misconf,
    NoJob,
    NoQuorum,
    ReadOnly,
    ReplyError,
    TubeHome,
)
from tuque.logtext import facts
from tuque.worker.app.codec import (
    JSON_OPENS,
    BadBody,
    Codec,
    Death,
    decode,
    from_data,
    to_data,
)
from tuque.worker.app.decisions import (
    Ack,
    Backoff,
    Dead,
    Nack,
    Settlement,
    encodable,
)
from tuque.worker.run.fetch import UnavailableQueues, is_about_home
from tuque.worker.run.link import Link, pause

log: Final = logging.getLogger("tuque.worker")

ACKS_PER_CALL: Final = 500
# the broker did nothing, and will do it later
NOT_NOW: Final = (Conflict, Leaving, Loading, Misconf, TubeHome, NoQuorum, ReadOnly)
AFTER_REFUSAL: Final = Backoff(first_s=5.0, max_s=60.0)


class Settler:
    """Unconfirmed settlements, and the loop that sends them."""

    def __init__(
        self,
        client: aio.Client,
        link: Link,
        away: UnavailableQueues,
        name: str,
        on_settled: Callable[[Settlement], None],
        rng: random.Random,
        queue_of: Callable[[str], str],
    ) -> None:
        """`name` is the worker's, for the run that a dead letter needs."""
        self._name = name
        self._client = client
        self._link = link
        self._away = away
        self._on_settled = on_settled
        self._rng = rng
        self._queue_of = queue_of
        self._acks: dict[str, deque[Ack]] = {}  # by queue
        self._others: deque[Nack | Dead] = deque()
        self._work = asyncio.Event()
        self._empty = asyncio.Event()
        self._empty.set()
        self._never = asyncio.Event()

    def put(self, settlement: Ack | Nack | Dead) -> None:
        """Adds a settlement; `on_settled` is called once the broker has it."""
        if isinstance(settlement, Ack):
            queue = self._queue_of(settlement.job_id)
            self._acks.setdefault(queue, deque()).append(settlement)
        else:
            self._others.append(settlement)
        self._empty.clear()
        self._work.set()

    @property
    def pending(self) -> int:
        return sum(map(len, self._acks.values())) + len(self._others)

    async def drained(self) -> None:
        """Returns when nothing is left to send."""
        await self._empty.wait()

    async def loop(self) -> None:
        """Sends settlements as long as the worker lives."""
        while True:
            await self._work.wait()
            try:
                told = await self.tell()
            except Error as err:
                await pause(self._link.failed("settling jobs", err), self._never)
                continue
            if told:
                self._link.answered()
            elif self.pending:
                await self._wait_for_homes()
            if not self.pending:
                self._work.clear()
                self._empty.set()

    async def tell(self) -> bool:
        """Sends all acks and one of the others; True if the broker confirmed something."""
        told = await self._acknowledge()
        return await self._tell_one() or told

    async def _wait_for_homes(self) -> None:
        """Waits while all that is left is for unreachable queues; new settlements end the wait."""
        self._work.clear()
        queues = {*self._acks, *(self._queue_of(other.job_id) for other in self._others)}
        await pause(self._away.wait_s(queues), self._work)
        self._work.set()

    async def _acknowledge(self) -> bool:
        """Sends the gathered acks, node by node; True if some were taken.

        Any refusal is retried: a done job stays done.
        """
        told = False
        for queues in self._client.home_groups(self._away.here(self._acks)):
            told = await self._acknowledge_of(queues) or told
        return told

    async def _acknowledge_of(self, queues: list[str]) -> bool:
        """Sends the acks of these queues together; one by one if a tube's leader refuses that."""
        told = False
        while batch := list(islice(self._acks_of(queues), ACKS_PER_CALL)):
            try:
                await self._client.ackjob(*(ack.job_id for _, ack in batch))
            except Error as err:
                if not is_about_home(err, self._client.node):
                    raise
                if len(queues) > 1:
                    return any([await self._acknowledge_of([queue]) for queue in queues]) or told
                self._away.failed(queues[0], err, self._client.node)
                return told
            told = True
            for queue in queues:
                self._away.answered(queue)
            for queue, ack in batch:
                self._acks[queue].popleft()
                self._on_settled(ack)
            self._acks = {queue: acks for queue, acks in self._acks.items() if acks}
        return told

    def _acks_of(self, queues: list[str]) -> Iterator[tuple[str, Ack]]:
        """The acks of these queues, each with its queue, oldest first within a queue."""
        return ((queue, ack) for queue in queues for ack in self._acks.get(queue, ()))

    async def _tell_one(self) -> bool:
        """Sends the oldest NACK with all that can join it, or the oldest dead letter.

        True if the broker confirmed something.
        """
        here = self._away.here(self._queue_of(other.job_id) for other in self._others)
        first = next((one for one in self._others if self._queue_of(one.job_id) in here), None)
        if first is None:
            return False
        queue = self._queue_of(first.job_id)
        try:
            if isinstance(first, Dead):
                await self._tell_dead(first)
            else:
                await self._tell_nacks(queue, first.delay_s)
        except Error as err:
            if not self._away.failed(queue, err, self._client.node):
                raise
            return False
        self._away.answered(queue)
        return True

    async def _tell_dead(self, dead: Dead) -> None:
        replacement = await self._bury(dead)
        self._others.remove(dead)
        if replacement is None:
            self._on_settled(dead)
        else:
            self._others.append(replacement)

    async def _tell_nacks(self, queue: str, delay_s: float | None) -> None:
        """Sends all NACKs of a queue with that delay."""
        batch = [
            other
            for other in self._others
            if isinstance(other, Nack)
            and other.delay_s == delay_s
            and self._queue_of(other.job_id) == queue
        ]
        await self._give_back(batch, delay_s)
        for nack in batch:
            self._others.remove(nack)
            self._on_settled(nack)

    async def _give_back(self, batch: list[Nack], delay_s: float | None) -> None:
        ids = [nack.job_id for nack in batch]
        try:
            await self._client.nack(*ids, delay=delay_s)
        except (ConnectionError, *NOT_NOW):
            raise
        except Error as err:
            if is_about_home(err, self._client.node):
                raise
            log.error(
                "NACK of %(jobs)s refused: %(reason)s; its retry time brings it back",
                facts("nack_refused", jobs=", ".join(ids), reason=err),
            )

    async def _bury(self, dead: Dead) -> Nack | Dead | None:
        """Sends a dead letter; returns what to do instead if the broker refuses it."""
        if dead.is_failed:
            return await self._fail(dead)
        try:
            new_id = await self._client.deadletter(
                dead.job_id, dead.queue, dead.reason, body=dead.body
            )
        except (NoJob, Acked) as err:
            # done before, and the reply was lost; or another client was faster
            log.warning(
                "job %(job)s was not moved to %(queue)s: %(reason)s",
                facts("dead_letter_lost", job=dead.job_id, queue=dead.queue, reason=err),
            )
            return None
        except (ConnectionError, *NOT_NOW):
            raise
        except Error as err:
            if is_about_home(err, self._client.node):
                raise
            if dead.body is not None:
                return replace(dead, body=None)  # too long for the broker
            log.error(
                "job %(job)s cannot go to %(queue)s: %(reason)s",
                facts("dead_letter_refused", job=dead.job_id, queue=dead.queue, reason=err),
            )
            return Nack(dead.job_id, AFTER_REFUSAL.delay_s(1, self._rng))
        log.warning(
            "job %(job)s is dead, as %(letter)s in %(queue)s: %(reason)s",
            facts(
                "dead_letter_sent",
                job=dead.job_id,
                letter=new_id,
                queue=dead.queue,
                reason=dead.reason,
            ),
        )
        return None

    async def _fail(self, dead: Dead) -> Dead | None:
        """[U2] Begins a run and fails it for good: the letter has the job's id (U2.5, U2.6).

        Returns what to do instead if the broker refuses that.
        """
        try:
            (run,) = await self._client.start(dead.job_id, worker=self._name)
            if isinstance(run, NoJob | Acked | Cancelled):
                log.warning(
                    "job %(job)s was not moved to %(queue)s: %(reason)s",
                    facts("dead_letter_lost", job=dead.job_id, queue=dead.queue, reason=run),
                )
                return None
            if isinstance(run, ReplyError):
                return replace(dead, is_failed=False)
            told = await self._client.fail(
                dead.job_id,
                run.run,
                reason=dead.reason,
                detail=dead.detail or None,
                cause=None if dead.cause == "failed" else dead.cause,
                final=True,
            )
        except (ConnectionError, *NOT_NOW):
            raise
        except Error as err:
            if is_about_home(err, self._client.node):
                raise
            return replace(dead, detail="") if dead.detail else replace(dead, is_failed=False)
        log.warning(
            "job %(job)s is dead, in %(queue)s: %(reason)s",
            facts(
                "dead_letter_made",
                job=dead.job_id,
                queue=told.queue or dead.queue,
                reason=dead.reason,
            ),
        )
        return None


# ---- The body of a dead letter: the job's, and why it died


def obituary(job: Job, reason: str) -> bytes | None:
    """The body with a field `died` added. None: it stays unchanged.

    That is so for a body that is no task call, or cannot be encoded again.
    """
    try:
        decode(job.body)
    except BadBody:
        return None
    reason, queue = encodable(reason), encodable(job.queue)
    codec: Codec = "json" if job.body[:1] == JSON_OPENS else "msgpack"
    attempts = (job.nacks or 0) + (job.additional_deliveries or 0) + 1
    died = Death(reason, job.id, queue, attempts, time.time())
    fields: dict[str, Any] = from_data(job.body, codec)
    fields["died"] = msgspec.to_builtins(died)
    try:
        return to_data(fields, codec)
    except (TypeError, ValueError, OverflowError, RecursionError):
        return None  # nested too deep to encode
