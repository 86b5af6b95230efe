"""A tube as an object: for threads, for asyncio, and inside a pipeline; made from `tubes`.

The tasks that it takes are held by the session of its client, over all of its connections: when the
client is closed, or its last connection is lost, the node gives them to others.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, Self, TypeVar

from tuque.client.api import Arg, Text, to_bytes, to_text
from tuque.client.commands import homes, rights, tubes
from tuque.client.commands.calls import Call
from tuque.client.commands.tubes import TubeChange, TubeTask
from tuque.client.transport.face import as_method
from tuque.errors import NotTaken, TubeHome

if TYPE_CHECKING:
    from tuque.client import aio, pipeline, sync
    from tuque.client.transport import streams

P = ParamSpec("P")
T = TypeVar("T")
Q = TypeVar("Q", bound="pipeline.Queued")

LOOK_S = 0.2  # between two looks for changes


def _method(build: Callable[Concatenate[Text, P], Call[T]]) -> Callable[Concatenate[Tube, P], T]:
    def method(self: Tube, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self.client.run(build(self.name, *args, **kwargs))

    as_method(build, method, "its result", skips=1)
    return method


def _async_method(
    build: Callable[Concatenate[Text, P], Call[T]],
) -> Callable[Concatenate[AsyncTube, P], Coroutine[Any, Any, T]]:
    async def method(self: AsyncTube, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self.client.run(build(self.name, *args, **kwargs))

    as_method(build, method, "its result", skips=1)
    return method


def _queued(
    build: Callable[Concatenate[Text, P], Call[Any]],
) -> Callable[Concatenate[QueuedTube[Q], P], Q]:
    def method(self: QueuedTube[Q], /, *args: P.args, **kwargs: P.kwargs) -> Q:
        self.pipeline.queue(build(self.name, *args, **kwargs))
        return self.pipeline

    as_method(build, method, "the pipeline", skips=1)
    return method


class Tube:
    """A tube of a `Client`; threads may share it."""

    def __init__(self, client: sync.Client, name: Text) -> None:
        self.client = client
        self.name = name if isinstance(name, str) else to_text(name)

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
    grant = _method(rights.grant)
    state = _method(homes.state)
    home = _method(homes.home)
    move = _method(homes.move)
    take_over = _method(homes.take_over)
    revoke = _method(rights.revoke)
    grants = _method(rights.grants)

    @contextmanager
    def taking(
        self, wait: float | None = None, *, delay: float | None = None
    ) -> Iterator[TubeTask | None]:
        """Takes a task for a `with` block: acknowledged at its end, released when it raises.

        `delay` seconds, then others may have a released one; None instead of a task as in `take`.
        """
        task = self.take(wait)
        try:
            yield task
        except BaseException:
            if task is not None:
                with suppress(NotTaken):  # the block settled it, or was too slow
                    self.release(task, delay=delay)
            raise
        if task is not None:
            self.ack(task)

    def subscribe(self) -> Changes:
        """The changes from now on, pushed by the node over a connection of their own."""
        return Changes(self)

    def watch(self, after: int | None = None, *, every: float = LOOK_S) -> Iterator[TubeChange]:
        """The changes from now on, or after number `after`, for ever; looks `every` seconds.

        A gap in their `seq` tells that more changed between two looks than the node keeps.
        """
        seen = self.info().changes - 1 if after is None else after
        while True:
            found = self.changes(seen, count=1000)
            for change in found:
                seen = change.seq
                yield change
            if not found:
                time.sleep(every)


class AsyncTube:
    """A tube of an `aio.Client`; tasks of its loop may share it."""

    def __init__(self, client: aio.Client, name: Text) -> None:
        self.client = client
        self.name = name if isinstance(name, str) else to_text(name)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r} of {self.client!r}>"

    create = _async_method(tubes.create)
    put = _async_method(tubes.put)
    take = _async_method(tubes.take)
    ack = _async_method(tubes.ack)
    release = _async_method(tubes.release)
    touch = _async_method(tubes.touch)
    bury = _async_method(tubes.bury)
    kick = _async_method(tubes.kick)
    peek = _async_method(tubes.peek)
    delete = _async_method(tubes.delete)
    tasks_by_state = _async_method(tubes.tasks_by_state)
    truncate = _async_method(tubes.truncate)
    release_all = _async_method(tubes.release_all)
    drop = _async_method(tubes.drop)
    info = _async_method(tubes.info)
    statistics = _async_method(tubes.statistics)
    changes = _async_method(tubes.changes)
    grant = _async_method(rights.grant)
    state = _async_method(homes.state)
    home = _async_method(homes.home)
    move = _async_method(homes.move)
    take_over = _async_method(homes.take_over)
    revoke = _async_method(rights.revoke)
    grants = _async_method(rights.grants)

    @asynccontextmanager
    async def taking(
        self, wait: float | None = None, *, delay: float | None = None
    ) -> AsyncIterator[TubeTask | None]:
        """Takes a task for an `async with` block: acknowledged at its end, released if it raises.

        `delay` seconds, then others may have a released one; None instead of a task as in `take`.
        """
        task = await self.take(wait)
        try:
            yield task
        except BaseException:
            if task is not None:
                with suppress(NotTaken):  # the block settled it, or was too slow
                    await self.release(task, delay=delay)
            raise
        if task is not None:
            await self.ack(task)

    def subscribe(self) -> AsyncChanges:
        """The changes from now on, pushed by the node; begins with its `async with` block."""
        return AsyncChanges(self)

    async def watch(
        self, after: int | None = None, *, every: float = LOOK_S
    ) -> AsyncIterator[TubeChange]:
        """The changes from now on, or after number `after`, for ever; looks `every` seconds.

        A gap in their `seq` tells that more changed between two looks than the node keeps.
        """
        seen = (await self.info()).changes - 1 if after is None else after
        while True:
            found = await self.changes(seen, count=1000)
            for change in found:
                seen = change.seq
                yield change
            if not found:
                await asyncio.sleep(every)


class Changes:
    """Changes of a tube as they happen; close it, or use it in a `with` block.

    Closed when the connection is lost: `Tube.changes` then tells what was missed.
    """

    def __init__(self, tube: Tube) -> None:
        client = tube.client
        self._link = client.dedicated()
        try:
            self._begin(tube)
        except TubeHome as e:
            self._link.close()
            self._link = client.dedicated(client.home_to_try(e))
            self._begin(tube)

    def _begin(self, tube: Tube) -> None:
        try:
            commands = subscribing(tube.name)
            self._link.subscribe(commands, time.monotonic() + tube.client.settings.timeout_s)
        except BaseException:
            self._link.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the subscription."""
        self._link.close()

    def get(self, wait: float | None = None) -> TubeChange:
        """The next change; Timeout when there is none within `wait` seconds."""
        ends_s = math.inf if wait is None else time.monotonic() + wait
        return tubes.pushed_change(self._link.pushed(ends_s))

    def __iter__(self) -> Iterator[TubeChange]:
        while True:
            yield self.get()


class AsyncChanges:
    """Changes of a tube as they happen, inside an `async with` block.

    Closed when the connection is lost: `AsyncTube.changes` then tells what was missed.
    """

    def __init__(self, tube: AsyncTube) -> None:
        self._tube = tube
        self._link: streams.Link | None = None

    async def __aenter__(self) -> Self:
        client = self._tube.client
        try:
            self._link = await self._begun(await client.dedicated())
        except TubeHome as e:
            self._link = await self._begun(await client.dedicated(client.home_to_try(e)))
        return self

    async def _begun(self, link: streams.Link) -> streams.Link:
        try:
            commands = subscribing(self._tube.name)
            limit_s = self._tube.client.settings.timeout_s
            await link.subscribe(commands, time.monotonic() + limit_s)
        except BaseException:
            link.close()
            raise
        return link

    async def __aexit__(self, *exc: object) -> None:
        if self._link is not None:
            self._link.close()

    async def get(self, wait: float | None = None) -> TubeChange:
        """The next change; Timeout when there is none within `wait` seconds."""
        if self._link is None:
            raise RuntimeError("a subscription begins with its `async with` block")
        ends_s = math.inf if wait is None else time.monotonic() + wait
        return tubes.pushed_change(await self._link.pushed(ends_s))

    async def __aiter__(self) -> AsyncIterator[TubeChange]:
        while True:
            yield await self.get()


def subscribing(name: str) -> list[tuple[Arg, ...]]:
    """The commands after which changes of the tube are pushed."""
    return [("HELLO", 3), ("TUBE", "SUBSCRIBE", to_bytes(name))]


class QueuedTube(Generic[Q]):
    """A tube of a pipeline: every method adds a call and gives the pipeline back."""

    def __init__(self, pipeline: Q, name: Text) -> None:
        self.pipeline = pipeline
        self.name = name if isinstance(name, str) else to_text(name)

    create = _queued(tubes.create)
    put = _queued(tubes.put)
    take = _queued(tubes.take)
    ack = _queued(tubes.ack)
    release = _queued(tubes.release)
    touch = _queued(tubes.touch)
    bury = _queued(tubes.bury)
    kick = _queued(tubes.kick)
    peek = _queued(tubes.peek)
    delete = _queued(tubes.delete)
    tasks_by_state = _queued(tubes.tasks_by_state)
    truncate = _queued(tubes.truncate)
    release_all = _queued(tubes.release_all)
    drop = _queued(tubes.drop)
    info = _queued(tubes.info)
    statistics = _queued(tubes.statistics)
    changes = _queued(tubes.changes)
    grant = _queued(rights.grant)
    state = _queued(homes.state)
    home = _queued(homes.home)
    move = _queued(homes.move)
    take_over = _queued(homes.take_over)
    revoke = _queued(rights.revoke)
    grants = _queued(rights.grants)
