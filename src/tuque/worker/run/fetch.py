"""Which queues a worker asks for jobs, in which order, where it waits, and which it skips.

It empties the first queue before it asks the second. When all are empty, it waits on one node after
the other, since tubes have different leaders.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable, Iterable, Set
from typing import TYPE_CHECKING, Any, Final

from tuque import aio
from tuque.client.api import Job
from tuque.client.retry import SHARE
from tuque.errors import (
    ConnectionError,
    Error,
    FewCopies,
    NoQuorum,
    NoReplica,
    ReadOnly,
    TubeHome,
)
from tuque.logtext import facts
from tuque.worker.app.decisions import Backoff
from tuque.worker.run.link import pause

if TYPE_CHECKING:
    from tuque.client.aio.client import Client, Pipeline


log: Final = logging.getLogger("tuque.worker")

AGAIN: Final = Backoff(first_s=0.02, max_s=2.0, jitter=0.5)
TELL_AFTER_S: Final = 2.0

POLL_MS: Final = (
    1000  # how long one GETJOB waits; also the longest time an idle worker takes to stop
)
HELD_BACK_MS: Final = 100  # the same while a queue is held back: it may be free again at any time
REGROUP_S: Final = 0.02  # a tube moved during the wait: the next round finds its leader


# ---- Queues that are skipped for a while: tubes without a reachable leader, or copies
#
# A tube in switchover, or with its leader down, must not keep the worker from other queues. A
# switchover is short and is not logged; a longer outage is logged once at each end.


class _Story:
    """A queue without a reachable leader: since when, the attempts, the next one."""

    __slots__ = ("due_at", "failures", "is_told", "since")

    def __init__(self, now: float) -> None:
        self.since = now
        self.failures = 0
        self.due_at = 0.0
        self.is_told = False


class UnavailableQueues:
    """The skipped queues, each until its own time."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._stories: dict[str, _Story] = {}

    @property
    def has_any(self) -> bool:
        """Whether a queue could not be reached when it was asked last."""
        return bool(self._stories)

    def failed(self, queue: str, err: Error, node: str) -> bool:
        """Records a failed call about a queue; False if the failure is not about its leader.

        `node` is the node in use as "host:port", "" when there is none.
        """
        if not is_about_home(err, node):
            return False
        now = time.monotonic()
        story = self._stories.setdefault(queue, _Story(now))
        if now < story.due_at:
            return True
        story.failures += 1
        wait_s = AGAIN.delay_s(story.failures, self._rng)
        story.due_at = now + min(wait_s, max(AGAIN.first_s, (now - story.since) * SHARE))
        if not story.is_told and now - story.since >= TELL_AFTER_S:
            story.is_told = True
            log.warning(
                "queue %(queue)s cannot be reached for %(seconds).1f s: %(reason)s; "
                "the others continue",
                facts("queue_unavailable", queue=queue, seconds=now - story.since, reason=err),
            )
        return True

    def answered(self, queue: str) -> None:
        """Records a successful call about a queue."""
        story = self._stories.pop(queue, None) if self._stories else None
        if story is not None and story.is_told:
            log.warning(
                "queue %(queue)s is back after %(seconds).1f s",
                facts("queue_back", queue=queue, seconds=time.monotonic() - story.since),
            )

    def here(self, queues: Iterable[str]) -> list[str]:
        """The queues that may be asked now."""
        if not self._stories:
            return list(queues)
        now = time.monotonic()
        return [
            name
            for name in queues
            if (story := self._stories.get(name)) is None or story.due_at <= now
        ]

    def wait_s(self, queues: Iterable[str]) -> float:
        """Seconds until the first of the queues may be asked."""
        now = time.monotonic()
        dues = [story.due_at for name in queues if (story := self._stories.get(name))]
        return max(0.0, min(dues, default=now) - now)


def is_about_home(err: Error, node: str) -> bool:
    """True if other queues may work: the tube's leader refused for now, or is another node."""
    if isinstance(err, ConnectionError):
        return node != "" and err.node not in ("", node)
    if isinstance(err, NoReplica):
        return not isinstance(err, FewCopies)
    return isinstance(err, TubeHome | NoQuorum | ReadOnly)


def are_about_homes(answers: list[Any], node: str) -> bool:
    """True if no node but absent leaders of tubes had anything to say."""
    return all(isinstance(one, Error) and is_about_home(one, node) for one in answers)


async def answers_of(pipeline: Pipeline, count: int, client: Client) -> list[Any]:
    """The answers to a pipeline of `count` calls, errors among them.

    If all were for a leader that cannot be reached, each has that error. Raises what is no matter
    of a leader.
    """
    try:
        return await pipeline.execute(raise_on_error=False)
    except Error as err:
        if not is_about_home(err, client.node):
            raise
        return [err] * count


# ---- Fetching


class Fetcher:
    """The queues of a worker in the order of their priority; `accept` gets the jobs."""

    def __init__(
        self,
        client: aio.Client,
        queues: tuple[str, ...],
        away: UnavailableQueues,
        accept: Callable[[list[Job]], bool],
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

        A wait that skipped a queue does not count, and jobs that are put off are nothing (U4.1).
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
            if self._accept(jobs):
                self._empty_waits = 0
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
        self._empty_waits = 0 if self._accept(jobs) else self._empty_waits + 1
