"""A tube as an object; generated from `commands.tubes`.

The client's session holds the tasks taken, over all its connections: when the client is closed,
or its last connection is lost, the node gives them to others.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, TypeVar

from tuque.client.api import Reply, Text, to_bytes, to_text
from tuque.client.commands import tubes
from tuque.client.commands.calls import Call, number
from tuque.client.commands.tubes import TubeChange, TubeTask
from tuque.client.retry import own
from tuque.client.transport.conn import raise_errors, subscribing
from tuque.client.transport.face import as_method
from tuque.client.transport.streams import Link
from tuque.errors import NotTaken, TubeHome

if TYPE_CHECKING:
    from tuque.client.aio.client import Client

P = ParamSpec("P")
T = TypeVar("T")

LOOK_S = 0.2  # between two polls for changes


def _method(
    build: Callable[Concatenate[Text, P], Call[T]],
) -> Callable[Concatenate[Tube, P], Coroutine[Any, Any, T]]:
    async def method(self: Tube, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self.client.run(build(self.name, *args, **kwargs))

    as_method(build, method, "its result", skips=1)
    return method


class Tube:
    """A tube of an `aio.Client`; tasks of its loop may share it."""

    def __init__(self, client: Client, name: Text) -> None:
        self.client = client
        self.name = name if isinstance(name, str) else to_text(to_bytes(name, "name"))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r} of {self.client!r}>"

    create = _method(tubes.create)
    put = _method(tubes.put)
    take = _method(tubes.take)
    ack = _method(tubes.ack)
    release = _method(tubes.release)
    touch = _method(tubes.touch)
    bury = _method(tubes.bury)
    kick = _method(tubes.kick)
    peek = _method(tubes.peek)
    delete = _method(tubes.delete)
    tasks_by_state = _method(tubes.tasks_by_state)
    truncate = _method(tubes.truncate)
    release_all = _method(tubes.release_all)
    drop = _method(tubes.drop)
    info = _method(tubes.info)
    statistics = _method(tubes.statistics)
    changes = _method(tubes.changes)
    grant = _method(tubes.grant)
    state = _method(tubes.state)
    home = _method(tubes.home)
    move = _method(tubes.move)
    take_over = _method(tubes.take_over)
    revoke = _method(tubes.revoke)
    grants = _method(tubes.grants)

    @asynccontextmanager
    async def taking(
        self, wait: float | None = None, *, delay: float | None = None
    ) -> AsyncIterator[TubeTask | None]:
        """Takes a task for an `async with` block: acks it at the end, or releases it on an error.

        A released task is available after `delay` seconds; None instead of a task as in `take`.
        """
        task = await self.take(wait)
        try:
            yield task
        except BaseException:
            if task is not None:
                with suppress(NotTaken):  # the block settled the task, or took too long
                    await self.release(task, delay=delay)
            raise
        if task is not None:
            await self.ack(task)

    def subscribe(self) -> Changes:
        """The changes from now on, pushed by the node; starts with its `async with` block."""
        return Changes(self)

    async def watch(
        self, after: int | None = None, *, every: float = LOOK_S
    ) -> AsyncIterator[TubeChange]:
        """The changes from now on, or after number `after`, for ever; polls every `every` seconds.

        A gap in their `seq` means that between two polls more changed than the node keeps.
        """
        if after is None:
            known = await self.changes(count=1000)  # the leader answers: others count their own
            after = known[-1].seq if known else -1
        seen = after
        while True:
            found = await self.changes(seen, count=1000)
            for change in found:
                seen = change.seq
                yield change
            if not found:
                await asyncio.sleep(every)


class Changes:
    """Changes of a tube as they happen, inside an `async with` block.

    Closes when the connection is lost: then `Tube.changes` returns the missed ones.
    """

    def __init__(self, tube: Tube) -> None:
        self._tube = tube
        self._link: Link | None = None  # asyncio only
        # threads only: self._link = self._begun()

    async def __aenter__(self) -> Self:
        self._link = await self._begun()  # asyncio only
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Ends the subscription."""
        if self._link is not None:  # asyncio only
            self._link.close()
        # threads only: self._link.close()

    async def get(self, wait: float | None = None) -> TubeChange:
        """The next change; Timeout if none comes within `wait` seconds."""
        if self._link is None:  # asyncio only
            raise RuntimeError("a subscription begins with its `async with` block")
        ends_s = math.inf if wait is None else time.monotonic() + number("wait", wait)
        return tubes.pushed_change(await self._link.next_pushed(ends_s))

    async def __aiter__(self) -> AsyncIterator[TubeChange]:
        while True:
            yield await self.get()

    async def _begun(self) -> Link:
        """A connection to the tube's leader, with the subscription."""
        client = self._tube.client
        try:
            return await self._subscribed(await client.dedicated())
        except own(TubeHome) as e:
            return await self._subscribed(await client.dedicated(client.home_to_try(e)))

    async def _subscribed(self, link: Link) -> Link:
        replies: list[Reply] = []
        limit_s = self._tube.client.settings.timeout_s
        try:
            link.keep_pushed()
            commands = subscribing(self._tube.name)
            await link.exchange(commands, replies, time.monotonic() + limit_s)
            raise_errors(replies)
        except BaseException:
            link.close()
            raise
        return link
