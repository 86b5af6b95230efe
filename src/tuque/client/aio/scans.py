"""Scans: names of queues, ids of jobs and dead letters, page by page."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from typing import Literal, TypeVar, overload

from tuque.client.aio.runner import Runner
from tuque.client.api import JobId, JobInfo, JobState, Text
from tuque.client.commands import calls, dead, operate, writes
from tuque.client.commands.calls import Call
from tuque.client.commands.dead import IDS_AT_ONCE, DeadFilters, DeadLetter, DeadPage
from tuque.client.commands.operate import KeyRow, WorkerInfo
from tuque.client.commands.topics import Subscription, topic_page
from tuque.client.commands.writes import ChildEnd, GroupChild, GroupStatus, JobGroup, Schedule
from tuque.errors import ReplyError

T = TypeVar("T")


class Scans(Runner):
    """The scans of the client for asyncio."""

    def qscan(
        self,
        *,
        count: int | None = None,
        minlen: int | None = None,
        maxlen: int | None = None,
        importrate: int | None = None,
        type: Text | None = None,
        timeout: float | None = None,
    ) -> AsyncIterator[str]:
        """The names of this node's queues; queues created or removed meanwhile may be missed.

        `type`: only tubes of that type, or with "queue" only queues that are no tubes.
        """
        return self._scan(
            lambda cursor: calls.qscan_page(
                cursor,
                count=count,
                minlen=minlen,
                maxlen=maxlen,
                importrate=importrate,
                type=type,
                timeout=timeout,
            )
        )

    @overload
    def jscan(
        self,
        *,
        queue: Text | None = None,
        states: Iterable[JobState] = (),
        full: Literal[False] = False,
        count: int | None = None,
        timeout: float | None = None,
    ) -> AsyncIterator[str]: ...

    @overload
    def jscan(
        self,
        *,
        queue: Text | None = None,
        states: Iterable[JobState] = (),
        full: Literal[True],
        count: int | None = None,
        timeout: float | None = None,
    ) -> AsyncIterator[JobInfo]: ...

    def jscan(
        self,
        *,
        queue: Text | None = None,
        states: Iterable[JobState] = (),
        full: bool = False,
        count: int | None = None,
        timeout: float | None = None,
    ) -> AsyncIterator[str] | AsyncIterator[JobInfo]:
        """The ids of this node's jobs, or with `full` all it knows about them."""
        wanted = tuple(states)
        if full:
            return self._scan(
                lambda cursor: calls.jscan_full_page(
                    cursor, queue=queue, states=wanted, count=count, timeout=timeout
                )
            )
        return self._scan(
            lambda cursor: calls.jscan_page(
                cursor, queue=queue, states=wanted, count=count, timeout=timeout
            )
        )

    def dead_letters(
        self,
        queue: Text,
        *,
        reason: Text | None = None,
        cause: Text | None = None,
        task: Text | None = None,
        since_ms: int | None = None,
        count: int | None = None,
        timeout: float | None = None,
    ) -> AsyncIterator[DeadLetter]:
        """The dead letters of this node in a queue of them, the oldest first.

        `reason` and `task` are globs, `since_ms` is an instant in unix ms; `count` is how many
        letters a page looks at.
        """
        filters = DeadFilters(reason, cause, task, since_ms)
        return self._scan(
            lambda cursor: dead.dead_page(queue, cursor, filters, count=count, timeout=timeout)
        )

    def schedules(
        self, queue: Text, *, count: int | None = None, timeout: float | None = None
    ) -> AsyncIterator[Schedule]:
        """The schedules of a tube of type tasks, in the order in which they were added."""
        return self._scan(
            lambda cursor: writes.schedule_page(queue, cursor, count=count, timeout=timeout)
        )

    def groups(
        self,
        queue: Text,
        *,
        state: GroupStatus | None = None,
        count: int | None = None,
        timeout: float | None = None,
    ) -> AsyncIterator[JobGroup]:
        """The groups of jobs of a tube of type tasks, the oldest first: those of that state, or
        all that have not become their callback.
        """
        return self._scan(
            lambda cursor: writes.group_page(
                queue, cursor, count=count, state=state, timeout=timeout
            )
        )

    def group_children(
        self,
        queue: Text,
        id: Text,
        *,
        state: Literal["open", "done", "failed", "dead"] | None = None,
        count: int | None = None,
        timeout: float | None = None,
    ) -> AsyncIterator[GroupChild]:
        """The children of a group of jobs without their results; `NoJobGroup`."""
        return self._scan(
            lambda cursor: writes.children_page(
                queue, id, cursor, count=count, state=state, timeout=timeout
            )
        )

    def group_results(
        self, queue: Text, id: Text, *, count: int | None = None, timeout: float | None = None
    ) -> AsyncIterator[ChildEnd]:
        """The children of a group of jobs in the order of their indexes; `NoJobGroup`."""
        return self._scan(
            lambda cursor: writes.ends_page(queue, id, cursor, count=count, timeout=timeout)
        )

    def limits(
        self, queue: Text, *, count: int | None = None, timeout: float | None = None
    ) -> AsyncIterator[KeyRow]:
        """The keys of a tube of type tasks for which tasks wait, then its groups.

        Limits come first, then rates, each with the longest wait first. Keys that come or go
        meanwhile may be missed, or be there twice.
        """
        return self._scan(
            lambda cursor: operate.limits_page(queue, cursor, count=count, timeout=timeout)
        )

    def topics(
        self,
        topic: Text | None = None,
        *,
        count: int | None = None,
        timeout: float | None = None,
    ) -> AsyncIterator[Subscription]:
        """The subscriptions to all topics, or to one of them."""
        return self._scan(
            lambda cursor: topic_page(cursor, topic=topic, count=count, timeout=timeout)
        )

    def workers(
        self,
        *,
        match: Text | None = None,
        count: int | None = None,
        timeout: float | None = None,
    ) -> AsyncIterator[WorkerInfo]:
        """The workers that announced themselves to this node, with what they run.

        `match` is a glob of their names, `count` the number of workers of a page.
        """
        return self._scan(
            lambda cursor: operate.worker_list_page(
                cursor, match=match, count=count, timeout=timeout
            )
        )

    async def dead_replay(
        self,
        queue: Text,
        *,
        ids: Iterable[JobId] = (),
        reason: Text | None = None,
        cause: Text | None = None,
        task: Text | None = None,
        since_ms: int | None = None,
        to: Text | None = None,
        rate: int | None = None,
        on_page: Callable[[int, int], object] | None = None,
        timeout: float | None = None,
    ) -> int:
        """Puts dead letters back into their queues, or into `to`; returns how many.

        Those with `ids`, else all that the filters mean; without filters all. They keep their ids
        and begin anew. Letters that die again meanwhile stay. `rate`: at most so many a second.
        `on_page` gets, once a page, the number of letters changed and the number of letters seen.
        """
        filters = DeadFilters(reason, cause, task, since_ms)
        return await self._change(
            queue,
            list(ids),
            lambda cursor, some: dead.dead_replay_page(
                queue, cursor, filters, ids=some, to=to, rate=rate, timeout=timeout
            ),
            on_page,
            dead.at_once(rate),
        )

    async def dead_purge(
        self,
        queue: Text,
        *,
        ids: Iterable[JobId] = (),
        reason: Text | None = None,
        cause: Text | None = None,
        task: Text | None = None,
        since_ms: int | None = None,
        on_page: Callable[[int, int], object] | None = None,
        timeout: float | None = None,
    ) -> int:
        """Removes dead letters for good; returns how many. The arguments are as in a replay."""
        filters = DeadFilters(reason, cause, task, since_ms)
        return await self._change(
            queue,
            list(ids),
            lambda cursor, some: dead.dead_purge_page(
                queue, cursor, filters, ids=some, timeout=timeout
            ),
            on_page,
        )

    async def _change(
        self,
        queue: Text,
        ids: list[JobId],
        page: Callable[[str, list[JobId]], Call[DeadPage]],
        on_page: Callable[[int, int], object] | None,
        most: int = IDS_AT_ONCE,
    ) -> int:
        """All pages of a replay or purge; ends at the number of letters there were before."""
        done = seen = 0
        cursor = "0"
        there = len(ids) or await self.run(calls.qlen(queue))
        while seen < there:
            some = ids[seen : seen + most]
            found = await self.run(page(cursor, some))
            cursor = found.cursor
            done += found.done
            seen += len(some) or found.seen
            if on_page is not None:
                on_page(done, seen)
            if cursor == "0" and not ids:
                break
        return done

    async def _scan(self, page: Callable[[str], Call[tuple[str, list[T]]]]) -> AsyncIterator[T]:
        """All items of a scan; restarts it when another node has taken over."""
        cursor, node = "0", None
        while True:
            try:
                following, items = await self.run(page(cursor))
            except ReplyError:
                if cursor == "0" or self._route.current == node:
                    raise
                following, items = "0", []
            if cursor != "0" and self._route.current != node:
                cursor = "0"  # a cursor is valid on one node only
                continue
            cursor, node = following, self._route.current
            for item in items:
                yield item
            if cursor == "0":
                return
