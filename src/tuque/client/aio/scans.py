"""Scans: names of queues and ids of jobs, page by page."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from typing import Literal, TypeVar, overload

from tuque.client.aio.runner import Runner
from tuque.client.api import JobInfo, JobState, Text
from tuque.client.commands import calls
from tuque.client.commands.calls import Call
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
