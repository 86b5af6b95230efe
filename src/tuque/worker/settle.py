"""Tells the broker what became of jobs: one ACKJOB for all that are done, NACKs, dead letters.

Takes settlements from the worker and keeps each until the broker has answered it, over any outage.
While one batch is on its way the next one gathers, so that batches grow with the load and nothing
waits for a batch to fill.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import deque
from collections.abc import Callable
from typing import Final, TypeVar

from tuque import aio
from tuque.errors import Acked, ConnectionError, Error, Leaving, Loading, Misconf, NoJob
from tuque.worker.link import Link, pause
from tuque.worker.policy import Ack, Backoff, Dead, Nack, Settlement

log: Final = logging.getLogger("tuque.worker")

S = TypeVar("S", Ack, Nack)

ACKS_PER_CALL: Final = 500
NOT_NOW: Final = (Leaving, Loading, Misconf)  # the broker did nothing and will do it later
AFTER_REFUSAL: Final = Backoff(first_s=5.0, max_s=60.0)


class Settler:
    """Settlements that the broker has not confirmed yet, and the loop that tells it."""

    def __init__(
        self,
        client: aio.Client,
        link: Link,
        on_settled: Callable[[Settlement], None],
        rng: random.Random,
        queue_of: Callable[[str], str],
    ) -> None:
        self._client = client
        self._link = link
        self._on_settled = on_settled
        self._rng = rng
        self._queue_of = queue_of
        self._acks: deque[Ack] = deque()
        self._others: deque[Nack | Dead] = deque()
        self._work = asyncio.Event()
        self._empty = asyncio.Event()
        self._empty.set()
        self._never = asyncio.Event()

    def put(self, settlement: Settlement) -> None:
        """Takes over a settlement; `on_settled` is called once the broker knows."""
        if isinstance(settlement, Ack):
            self._acks.append(settlement)
        else:
            self._others.append(settlement)
        self._empty.clear()
        self._work.set()

    @property
    def pending(self) -> int:
        return len(self._acks) + len(self._others)

    async def drained(self) -> None:
        """Returns when nothing is left to tell."""
        await self._empty.wait()

    async def loop(self) -> None:
        """Tells the broker for as long as the worker lives."""
        while True:
            await self._work.wait()
            try:
                await self._acknowledge()
                await self._tell_one()
            except Error as err:
                await pause(self._link.failed("settling jobs", err), self._never)
                continue
            self._link.answered()
            if not self.pending:
                self._work.clear()
                self._empty.set()

    async def _acknowledge(self) -> None:
        """Sends the acks that have gathered. Any refusal is tried again: a done job stays done."""
        while self._acks:
            batch = self._of_one_node(
                [self._acks[i] for i in range(min(len(self._acks), ACKS_PER_CALL))]
            )
            await self._client.ackjob(*(ack.job_id for ack in batch))
            told = {ack.job_id for ack in batch}
            looked_at = [self._acks.popleft() for _ in range(min(len(self._acks), ACKS_PER_CALL))]
            self._acks.extendleft(ack for ack in reversed(looked_at) if ack.job_id not in told)
            for ack in batch:
                self._on_settled(ack)

    def _of_one_node(self, found: list[S]) -> list[S]:
        """Those that go to the same node as the first: tubes have homes at different ones."""
        queues = {one.job_id: self._queue_of(one.job_id) for one in found}
        groups = self._client.home_groups(dict.fromkeys(queues.values()))
        if len(groups) < 2:
            return found
        return [one for one in found if queues[one.job_id] in groups[0]]

    async def _tell_one(self) -> None:
        """Sends the oldest NACK with all that go with it, or the oldest dead letter."""
        if not self._others:
            return
        first = self._others[0]
        if isinstance(first, Dead):
            replacement = await self._bury(first)
            self._others.popleft()
            if replacement is None:
                self._on_settled(first)
            else:
                self._others.append(replacement)
            return
        batch = [
            other
            for other in self._others
            if isinstance(other, Nack) and other.delay_s == first.delay_s
        ]
        batch = self._of_one_node(batch)
        await self._give_back(batch, first.delay_s)
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
            log.error("NACK of %s refused: %s; its retry time brings it back", ", ".join(ids), err)

    async def _bury(self, dead: Dead) -> Nack | None:
        """Sends a dead letter; a NACK to do instead when the broker refuses it."""
        try:
            new_id = await self._client.deadletter(dead.job_id, dead.queue, dead.reason)
        except (NoJob, Acked):
            return None  # it was told before, and only the answer was lost; or somebody was faster
        except (ConnectionError, *NOT_NOW):
            raise
        except Error as err:
            log.error("job %s cannot go to %s: %s", dead.job_id, dead.queue, err)
            return Nack(dead.job_id, AFTER_REFUSAL.delay_s(1, self._rng))
        log.warning("job %s is dead, as %s in %s: %s", dead.job_id, new_id, dead.queue, dead.reason)
        return None
