"""The dead letters that an app's broker keeps, by queue: `app.dead`.

Knows the app as a source of clients. Reads the letters of the node that the client uses.
"""

from __future__ import annotations

import builtins
import datetime as dt
from collections.abc import AsyncIterator, Iterable, Iterator
from typing import TYPE_CHECKING

from tuque.client.api import JobId
from tuque.client.commands.dead import DeadCount, DeadJob, DeadLetter

if TYPE_CHECKING:
    from tuque.worker.app.app import App


class DeadLetters:
    """[U5] Looks at dead letters, has them run again, removes them (U5.1).

    `reason` and `task` are globs; `since` is an instant, a time without a zone is local time.
    `cause` is failed, crashed, timeout, expired, unstarted or buried. Without filters all letters
    are meant.
    """

    def __init__(self, app: App) -> None:
        self._app = app

    def list(
        self,
        queue: str,
        *,
        cause: str | None = None,
        reason: str | None = None,
        task: str | None = None,
        since: dt.datetime | None = None,
    ) -> Iterator[DeadLetter]:
        """The letters in a queue of them, such as `mail.dead`, the oldest first."""
        return self._app.client.dead_letters(
            queue, cause=cause, reason=reason, task=task, since_ms=_ms(since)
        )

    def list_async(
        self,
        queue: str,
        *,
        cause: str | None = None,
        reason: str | None = None,
        task: str | None = None,
        since: dt.datetime | None = None,
    ) -> AsyncIterator[DeadLetter]:
        """Like `list`, for asyncio programs."""
        return self._app.aio_client.dead_letters(
            queue, cause=cause, reason=reason, task=task, since_ms=_ms(since)
        )

    def show(self, id: JobId) -> DeadJob:
        """All of one letter, with body and traceback; NoJob if it is none."""
        return self._app.client.dead_show(id)

    async def show_async(self, id: JobId) -> DeadJob:
        """Like `show`, for asyncio programs."""
        return await self._app.aio_client.dead_show(id)

    def stat(self, queue: str) -> builtins.list[DeadCount]:
        """The letters counted by cause and reason, the greatest count first."""
        return self._app.client.dead_stat(queue)

    async def stat_async(self, queue: str) -> builtins.list[DeadCount]:
        """Like `stat`, for asyncio programs."""
        return await self._app.aio_client.dead_stat(queue)

    def replay(
        self,
        queue: str,
        *,
        ids: Iterable[JobId] = (),
        cause: str | None = None,
        reason: str | None = None,
        task: str | None = None,
        since: dt.datetime | None = None,
        to: str | None = None,
        rate: int | None = None,
    ) -> int:
        """Has letters run again as new, in the queue they came from or in `to`; returns how many.

        Those with `ids`, else all that the filters mean; with `rate`, at most so many a second.
        """
        since_ms = _ms(since)
        return self._app.client.dead_replay(
            queue,
            ids=ids,
            cause=cause,
            reason=reason,
            task=task,
            since_ms=since_ms,
            to=to,
            rate=rate,
        )

    async def replay_async(
        self,
        queue: str,
        *,
        ids: Iterable[JobId] = (),
        cause: str | None = None,
        reason: str | None = None,
        task: str | None = None,
        since: dt.datetime | None = None,
        to: str | None = None,
        rate: int | None = None,
    ) -> int:
        """Like `replay`, for asyncio programs."""
        since_ms = _ms(since)
        return await self._app.aio_client.dead_replay(
            queue,
            ids=ids,
            cause=cause,
            reason=reason,
            task=task,
            since_ms=since_ms,
            to=to,
            rate=rate,
        )

    def purge(
        self,
        queue: str,
        *,
        ids: Iterable[JobId] = (),
        cause: str | None = None,
        reason: str | None = None,
        task: str | None = None,
        since: dt.datetime | None = None,
    ) -> int:
        """Removes letters for good; returns how many. The arguments are as for a replay."""
        return self._app.client.dead_purge(
            queue, ids=ids, cause=cause, reason=reason, task=task, since_ms=_ms(since)
        )

    async def purge_async(
        self,
        queue: str,
        *,
        ids: Iterable[JobId] = (),
        cause: str | None = None,
        reason: str | None = None,
        task: str | None = None,
        since: dt.datetime | None = None,
    ) -> int:
        """Like `purge`, for asyncio programs."""
        return await self._app.aio_client.dead_purge(
            queue, ids=ids, cause=cause, reason=reason, task=task, since_ms=_ms(since)
        )


def _ms(since: dt.datetime | None) -> int | None:
    return None if since is None else round(since.timestamp() * 1000)
