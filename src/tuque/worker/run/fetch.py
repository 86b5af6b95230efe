"""Which queues a worker asks for jobs, in which order, where it waits, and which it skips.

It empties the first queue before it asks the second. When all are empty, it waits at their node, or
at all of them at once, since tubes have different leaders.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable, Iterable, Set
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from tuque import aio
from tuque.client.api import Job
from tuque.client.retry import SHARE
from tuque.errors import Error
from tuque.logtext import facts
from tuque.worker.app.decisions import Backoff, Want
from tuque.worker.run.link import is_about_home, pause

if TYPE_CHECKING:
    pass

T = TypeVar("T")

log: Final = logging.getLogger("tuque.worker")

AGAIN: Final = Backoff(first_s=0.02, max_s=2.0, jitter=0.5)
TELL_AFTER_S: Final = 2.0

POLL_MS: Final = (
    1000  # how long one GETJOB waits; also the longest time an idle worker takes to stop
)
HELD_BACK_MS: Final = 100  # the same while a queue is held back: it may be free again at any time
REGROUP_S: Final = 0.02  # a tube moved during the wait: the next round finds its leader
SLOW_S: Final = 0.25  # a leader that takes longer to say what it has keeps the others no longer


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
        return max(0.0, min(self._dues_s(queues), default=0.0))

    def next_s(self, queues: Iterable[str]) -> float | None:
        """Seconds until the first of those that may not be asked now may be; None: all may."""
        return min((due_s for due_s in self._dues_s(queues) if due_s > 0), default=None)

    def _dues_s(self, queues: Iterable[str]) -> list[float]:
        now = time.monotonic()
        return [story.due_at - now for name in queues if (story := self._stories.get(name))]


# ---- Fetching


class _Ask:
    """A GETJOB without a reply yet: of these queues, for so many jobs."""

    __slots__ = ("count", "queues", "task")

    def __init__(self, queues: list[str], count: int) -> None:
        self.queues = queues
        self.count = count
        self.task: asyncio.Task[Any] | None = None


class Turns:
    """[U2] In which order queues are asked: as they are named, or by weights (U2.28)."""

    def __init__(self, queues: tuple[str, ...], weights: tuple[int, ...] = ()) -> None:
        """`weights` are those of the queues, or none."""
        self.queues = queues
        self._weights = dict(zip(queues, weights, strict=False))
        self._given = dict.fromkeys(self._weights, 0.0)  # jobs, each by the weight of its queue

    def order(self) -> Iterable[str]:
        """The queues, the next one first."""
        if not self._weights:
            return self.queues
        return sorted(self.queues, key=self._given.__getitem__)

    def took(self, jobs: list[Job]) -> None:
        """Counts jobs that were delivered."""
        for job in jobs if self._weights else ():
            if job.queue in self._weights:
                self._given[job.queue] += 1 / self._weights[job.queue]

    def empty(self, queue: str) -> None:
        """The queue has nothing more: its turns do not add up."""
        if self._weights:
            self._given[queue] = max(self._given.values())


class Fetcher:
    """The queues of a worker in the order of their turns; `accept` gets the jobs."""

    def __init__(
        self,
        client: aio.Client,
        turns: Turns,
        away: UnavailableQueues,
        accept: Callable[[list[Job]], bool],
        news: asyncio.Event,
    ) -> None:
        """`news` is set when there may be more to fetch, or when the worker stops."""
        self._client = client
        self._turns = turns
        self._queues = turns.queues
        self._away = away
        self._accept = accept
        self._news = news
        self._asks: dict[str, _Ask] = {}  # by queue, of several leaders
        self._failure: Exception | None = None  # of one of them, in this round
        self._dry: set[str] = set()  # whose last wait brought nothing, since a job came

    @property
    def is_dry(self) -> bool:
        """Whether every node had nothing when it was asked last, and none is out of reach.

        A wait that skipped a queue does not count, and jobs that are put off are nothing (U4.1).
        """
        return not self._away.has_any and self._dry.issuperset(self._queues)

    async def fetch(self, want: Callable[[], Want], but: Set[str] = frozenset()) -> None:
        """Takes jobs as `want` says, or waits for some for a while; skips the queues in `but`.

        Raises what a node in use refuses; skips a queue without a leader.
        """
        order = self._turns.order()
        queues = [queue for queue in self._away.here(order) if queue not in but]
        groups = self._client.home_groups(self._queues)
        if self._asks or len(groups) > 1:
            await self._fetch_of_all(queues, want, but)
            return
        count = want().jobs
        if len(self._queues) > 1 and await self.take(queues, count):
            return
        queues = self._away.here(queues)
        if not queues:
            await pause(self._away.wait_s(self._queues), self._news)
        elif len(self._client.home_groups(queues)) == 1:  # else `take` found other leaders
            await self._wait(queues, count, HELD_BACK_MS if but else POLL_MS)
            if but:
                self._dry.clear()

    async def take(self, queues: list[str], want: int) -> bool:
        """Takes the jobs that are there, of the first queue first; True if there were any."""
        got = 0
        for queue in queues:
            got += await self._take_of(queue, want - got) or 0
            if got >= want:
                break
        return got > 0

    async def _take_of(self, queue: str, count: int) -> int | None:
        """Takes the jobs of a queue that are there; how many, None if it cannot be reached."""
        try:
            jobs = await self._client.getjob(
                queue, count=count, nohang=True, withcounters=True, with_meta=True
            )
        except Error as err:
            if not self._away.failed(queue, err, self._client.node):
                raise
            return None
        self._brought([queue], jobs)
        if len(jobs) < count:
            self._turns.empty(queue)
        return len(jobs)

    async def _wait(self, queues: list[str], count: int, poll_ms: int) -> None:
        """Waits for jobs of the queues of one node."""
        try:
            jobs = await self._client.getjob(
                *queues, timeout_ms=poll_ms, count=count, withcounters=True, with_meta=True
            )
        except Error as err:
            if not is_about_home(err, self._client.node):
                raise
            self._dry.difference_update(queues)
            if len(queues) == 1:
                self._away.failed(queues[0], err, self._client.node)
            else:  # asking each one shows which it was
                await pause(REGROUP_S, self._news)
            return
        if not self._brought(queues, jobs):
            self._dry.update(queues)

    def _brought(self, queues: list[str], jobs: list[Job]) -> bool:
        """Takes what their node has delivered; False if this version of the app runs none of it."""
        for queue in queues:
            self._away.answered(queue)
        self._turns.took(jobs)
        if is_any := self._accept(jobs):
            self._dry.clear()
        return is_any

    # Several leaders

    async def _fetch_of_all(
        self, queues: list[str], want: Callable[[], Want], but: Set[str]
    ) -> None:
        """[U2] Takes what is there, and waits at all leaders that have nothing (U2.25)."""
        self._failure = None
        got = 0
        empty: list[str] = []
        for queue in queues:
            if queue in self._asks:  # it was empty, or its leader is slow
                continue
            jobs, most = want()
            count = min(jobs, most - self._asked)  # no room is kept for what may come
            if count <= 0:
                break
            found = await self._take_soon(queue, count)
            got += found or 0
            if found is not None and found < count:
                empty.append(queue)
        for group in self._client.home_groups(empty):
            if self._asked < want().most:
                self._begin(group, 1, partial(self._wait, group, 1, POLL_MS))
        if not got and self._failure is None:
            rest = (one for one in self._queues if one not in but and one not in self._asks)
            await pause(self._away.next_s(rest), self._news)
        if self._failure is not None:
            raise self._failure

    @property
    def _asked(self) -> int:
        """The number of jobs that may come."""
        return sum(ask.count for ask in set(self._asks.values()))

    async def _take_soon(self, queue: str, count: int) -> int | None:
        """`_take_of`; None also if the leader is slow: its jobs come when they do."""
        task = self._begin([queue], count, partial(self._take_of, queue, count))
        await asyncio.wait({task}, timeout=SLOW_S)
        return task.result() if task.done() else None

    def _begin(
        self, queues: list[str], count: int, call: Callable[[], Awaitable[T]]
    ) -> asyncio.Task[T | None]:
        ask = _Ask(queues, count)
        self._asks.update(dict.fromkeys(queues, ask))
        ask.task = task = asyncio.create_task(self._ask(ask, call))
        return task

    async def _ask(self, ask: _Ask, call: Callable[[], Awaitable[T]]) -> T | None:
        """Makes the call; None if it fails, which `fetch` raises if it is there."""
        try:
            return await call()
        except Exception as err:
            self._failure = err
            return None
        finally:
            for queue in ask.queues:
                del self._asks[queue]
            self._news.set()

    async def ended(self) -> None:
        """Waits for the replies that are still to come: their jobs have no owner yet."""
        while tasks := {ask.task for ask in self._asks.values() if ask.task is not None}:
            await asyncio.wait(tasks)

    def cancel(self) -> None:
        """Waits no more: jobs in later replies are delivered again after RETRY."""
        for ask in set(self._asks.values()):
            if ask.task is not None:
                ask.task.cancel()
