"""Decides which queues a worker asks for jobs, in which order, and where it waits for them.

It empties the first queue before it asks the second. When all are empty, it waits on one node after
the other, since tubes have different leaders.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Set
from typing import Final

from tuque import aio
from tuque.client.api import Job
from tuque.errors import Error
from tuque.worker.broker.away import Away, is_about_home
from tuque.worker.broker.link import pause

POLL_MS: Final = (
    1000  # how long one GETJOB waits; also the longest time an idle worker takes to stop
)
HELD_BACK_MS: Final = 100  # the same while a queue is held back: it may be free again at any time
REGROUP_S: Final = 0.02  # a tube moved during the wait: the next round finds its leader


class Fetcher:
    """The queues of a worker in the order of their priority; `accept` gets the jobs."""

    def __init__(
        self,
        client: aio.Client,
        queues: tuple[str, ...],
        away: Away,
        accept: Callable[[list[Job]], None],
        until: asyncio.Event,
    ) -> None:
        self._client = client
        self._queues = queues
        self._away = away
        self._accept = accept
        self._until = until
        self._waits = 0  # number of waits so far
        self._empty_waits = 0  # of the last ones in a row
        self._groups = 1  # of queues, by node

    @property
    def is_dry(self) -> bool:
        """Whether every node had nothing when it was asked last, and none is out of reach.

        A wait that skipped a queue does not count (U4.1).
        """
        return not self._away.has_any and self._empty_waits >= self._groups

    async def fetch(self, want: int, but: Set[str] = frozenset()) -> None:
        """Takes up to `want` jobs, or waits for some for a while; skips the queues in `but`.

        Raises what a node in use refuses; skips a queue without a leader.
        """
        queues = [queue for queue in self._away.here(self._queues) if queue not in but]
        if len(self._queues) > 1 and await self.take(queues, want):
            return
        queues = self._away.here(queues)
        if queues:
            await self._wait(queues, want, HELD_BACK_MS if but else POLL_MS)
            if but:
                self._empty_waits = 0
        else:
            await pause(self._away.wait_s(self._queues), self._until)

    async def take(self, queues: list[str], want: int) -> bool:
        """Takes the jobs that are there, of the first queue first; True if there were any."""
        got = 0
        for queue in queues:
            try:
                jobs = await self._client.getjob(
                    queue, count=want - got, nohang=True, withcounters=True, with_meta=True
                )
            except Error as err:
                if not self._away.failed(queue, err, self._client.node):
                    raise
                continue
            self._away.answered(queue)
            got += len(jobs)
            if jobs:
                self._empty_waits = 0
            self._accept(jobs)
            if got >= want:
                break
        return got > 0

    async def _wait(self, queues: list[str], want: int, poll_ms: int) -> None:
        """Waits for jobs of the queues of one node, the next time of another one."""
        groups = self._client.home_groups(queues)
        self._waits += 1
        group = groups[self._waits % len(groups)]
        try:
            jobs = await self._client.getjob(
                *group,
                timeout_ms=poll_ms // len(groups),
                count=want,
                withcounters=True,
                with_meta=True,
            )
        except Error as err:
            if not is_about_home(err, self._client.node):
                raise
            if len(group) == 1:
                self._empty_waits = 0
                self._away.failed(group[0], err, self._client.node)
            else:  # asking each one shows which it was
                await pause(REGROUP_S, self._until)
            return
        for queue in group:
            self._away.answered(queue)
        self._groups = len(groups)
        self._empty_waits = 0 if jobs else self._empty_waits + 1
        self._accept(jobs)
