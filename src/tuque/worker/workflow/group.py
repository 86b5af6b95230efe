"""group(calls).then(callback): many jobs, and one when all of them have ended (SPEC U10)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, Generic, Literal, TypeVar, overload

from tuque.errors import EnqueueFailed, Error
from tuque.worker.app.app import App
from tuque.worker.app.enqueue import Call
from tuque.worker.app.handle import Handle
from tuque.worker.app.options import RETRY_S
from tuque.worker.app.task import KEYED, Step, Task
from tuque.worker.workflow.chain import (
    CHILDREN_MAX,
    Chain,
    Later,
    Takes,
    check_callback,
    check_on_fail,
)
from tuque.worker.workflow.create import (
    CHILD,
    CHILD_HEADER,
    KEY_TTL_S,
    QUEUE,
    OnFail,
    adds,
    callback_words,
    kept,
)
from tuque.worker.workflow.group_handle import CalledHandle, GroupHandle
from tuque.worker.workflow.results import Failed

A = TypeVar("A")
R = TypeVar("R")
T = TypeVar("T")
U = TypeVar("U")


class AnyGroup(Generic[R]):
    """Calls to be enqueued together, with a callback or without."""

    def __init__(self, calls: Iterable[Call[R]], on_fail: OnFail, keep_s: float | None) -> None:
        self.calls = list(calls)
        self.on_fail = on_fail
        self.keep_s = keep_s
        if not 1 <= len(self.calls) <= CHILDREN_MAX:
            raise ValueError(f"a group has 1 to {CHILDREN_MAX} calls, not {len(self.calls)}")
        for at, call in enumerate(self.calls):
            if not isinstance(call, Call):
                raise TypeError(
                    f"group takes calls: call {at} is {call!r}; a later step of a chain is "
                    "group(task, task), which get the result of the step before"
                )
            if call.options.utube is not None:
                raise TypeError(
                    f"call {at} of the group: {call.task.name} has a utube, and such jobs keep no "
                    "results for a group"
                )
        check_on_fail(on_fail)

    @property
    def app(self) -> App:
        """The app of the first call."""
        return self.calls[0].task.app

    @property
    def queue(self) -> str:
        """The tube that keeps the group."""
        return QUEUE

    @property
    def tube_ttr_s(self) -> int:
        """The time to work of the tasks of a new tube."""
        return RETRY_S

    def words(self, headers: Mapping[str, str]) -> dict[str, Any]:
        """The arguments of group_create; a callback has these headers."""
        return {"on_fail": self.on_fail, "keep": self.keep_s}

    def by_task(self, id: str) -> list[tuple[Task[..., R], list[int], list[Call[R]]]]:
        """The calls of each task, with their indexes, as children of the group of that id."""
        found: dict[str, tuple[Task[..., R], list[int], list[Call[R]]]] = {}
        for at, call in enumerate(self.calls):
            _, indexes, calls = found.setdefault(call.task.name, (call.task, [], []))
            indexes.append(at)
            options = kept(call)
            options = replace(options, headers={**options.headers, CHILD_HEADER: id})
            if options.key is None and options.unique is None:  # so that it may be sent twice
                options = replace(options, key=f"{CHILD} {id} {at}", key_ttl_s=KEY_TTL_S)
            calls.append(replace(call, options=options))
        return list(found.values())

    def add(self, headers: Mapping[str, str]) -> tuple[str, dict[int, Handle[R]]]:
        """[U10] Adds the group and its children; raises what `enqueue_many` raises (U10.1)."""
        client = self.app.client
        client.tube(self.queue).create(
            KEYED, ttr=self.tube_ttr_s, if_not_exists=True, implicit=True
        )
        id = client.group_create(self.queue, len(self.calls), **self.words(headers))
        children: dict[int, Handle[R]] = {}
        indexes: list[int] = []
        try:
            for task, indexes, calls in self.by_task(id):
                children |= dict(zip(indexes, task.enqueue_many(calls), strict=True))
            for part, is_met in adds(children):
                client.group_add(self.queue, id, part, no_cancel=is_met)
        except Exception as err:
            with suppress(Error):  # then it is cancelled after an hour (T50.8)
                for part, is_met in adds(children | added_of(err, indexes)):
                    client.group_add(self.queue, id, part, no_cancel=is_met)
                client.group_cancel(self.queue, id)
            raise
        return id, children

    async def add_async(self, headers: Mapping[str, str]) -> tuple[str, dict[int, Handle[R]]]:
        """Like `add`, for asyncio programs."""
        client = self.app.aio_client
        await client.tube(self.queue).create(
            KEYED, ttr=self.tube_ttr_s, if_not_exists=True, implicit=True
        )
        id = await client.group_create(self.queue, len(self.calls), **self.words(headers))
        children: dict[int, Handle[R]] = {}
        indexes: list[int] = []
        try:
            for task, indexes, calls in self.by_task(id):
                handles = await task.enqueue_many_async(calls)
                children |= dict(zip(indexes, handles, strict=True))
            for part, is_met in adds(children):
                await client.group_add(self.queue, id, part, no_cancel=is_met)
        except Exception as err:
            with suppress(Error):
                for part, is_met in adds(children | added_of(err, indexes)):
                    await client.group_add(self.queue, id, part, no_cancel=is_met)
                await client.group_cancel(self.queue, id)
            raise
        return id, children


class Group(AnyGroup[R]):
    """Calls to be enqueued together; `group(...)` makes it."""

    @overload
    def then(self, callback: Later[[list[R]], T] | Later[[list[R | Failed]], T]) -> Chain[T]: ...

    @overload
    def then(self, callback: Task[[list[R]], T] | Task[[list[R | Failed]], T]) -> Called[R, T]: ...

    def then(self, callback: Any) -> Any:
        """[U10] The task that runs once all have ended, with their results as its argument.

        Its queue is a tube of type tasks, made when it is first used; no plain job goes there.
        A group of tasks, each of which gets the results, makes a chain (U11.6).
        """
        if isinstance(callback, Later):
            return Chain(self, (callback,))
        return Called(self, callback)

    def called_by(self, callback: Task[..., Any]) -> Called[R, Any]:
        """The group with that callback."""
        return Called(self, callback)

    def enqueue(self) -> GroupHandle[R]:
        """[U10] Adds the group and its children; raises what `enqueue_many` raises (U10.1)."""
        return GroupHandle(self.app, self.queue, *self._made(self.add({})))

    async def enqueue_async(self) -> GroupHandle[R]:
        """Like `enqueue`, for asyncio programs."""
        return GroupHandle(self.app, self.queue, *self._made(await self.add_async({})))

    def _made(
        self, added: tuple[str, dict[int, Handle[R]]]
    ) -> tuple[str, list[Any], dict[int, Handle[R]]]:
        return added[0], [call.task.returns for call in self.calls], added[1]


class Called(AnyGroup[R], Generic[R, T]):
    """A group with its callback; `group(...).then(...)` makes it."""

    def __init__(
        self, first: Group[R], callback: Task[[list[R]], T] | Task[[list[R | Failed]], T]
    ) -> None:
        super().__init__(first.calls, first.on_fail, first.keep_s)
        if not isinstance(callback, Task):
            raise TypeError(
                f"the callback of a group is a task, not {callback!r}; a group that follows is "
                "group(task, task)"
            )
        self.callback: Task[..., T] = callback
        check_callback(callback, [call.options for call in self.calls])

    @property
    def queue(self) -> str:
        return self.callback.defaults.queue

    @property
    def tube_ttr_s(self) -> int:
        return self.callback.defaults.retry_s or RETRY_S

    def then(self, step: Step[[T], U]) -> Chain[U]:
        """[U11] The task or group that runs after the callback, with its result (U11.6)."""
        return Chain(self, (step,))

    def words(self, headers: Mapping[str, str]) -> dict[str, Any]:
        return super().words(headers) | callback_words(self.callback, headers)

    def enqueue(self) -> CalledHandle[R, T]:
        """[U10] Adds the group and its children; raises what `enqueue_many` raises (U10.1)."""
        return self.opened({})

    async def enqueue_async(self) -> CalledHandle[R, T]:
        """Like `enqueue`, for asyncio programs."""
        return await self.opened_async({})

    def opened(self, headers: dict[str, str]) -> CalledHandle[R, T]:
        """Enqueues it; the callback has these headers."""
        id, children = self.add(headers)
        return CalledHandle(self.app, self.queue, id, self.calls, children, self.callback)

    async def opened_async(self, headers: dict[str, str]) -> CalledHandle[R, T]:
        """Like `opened`, for asyncio programs."""
        id, children = await self.add_async(headers)
        return CalledHandle(self.app, self.queue, id, self.calls, children, self.callback)


@overload
def group(
    calls: Iterable[Call[R]], /, *, on_fail: OnFail = "stop", keep_s: float | None = None
) -> Group[R]: ...


@overload
def group(
    first: Takes[A, R],
    second: Takes[A, T],
    /,
    *,
    on_fail: Literal["stop", "wait"] = "stop",
    keep_s: float | None = None,
) -> Later[[A], list[R | T]]: ...


@overload
def group(
    first: Takes[A, R],
    second: Takes[A, T],
    /,
    *,
    on_fail: Literal["continue"],
    keep_s: float | None = None,
) -> Later[[A], list[R | T | Failed]]: ...


@overload
def group(
    first: Takes[A, R],
    second: Takes[A, T],
    third: Takes[A, U],
    /,
    *,
    on_fail: Literal["stop", "wait"] = "stop",
    keep_s: float | None = None,
) -> Later[[A], list[R | T | U]]: ...


@overload
def group(
    first: Takes[A, R],
    second: Takes[A, T],
    third: Takes[A, U],
    /,
    *,
    on_fail: Literal["continue"],
    keep_s: float | None = None,
) -> Later[[A], list[R | T | U | Failed]]: ...


@overload
def group(
    first: Takes[A, R],
    /,
    *more: Takes[A, R],
    on_fail: Literal["stop", "wait"] = "stop",
    keep_s: float | None = None,
) -> Later[[A], list[R]]: ...


@overload
def group(
    first: Takes[A, R],
    /,
    *more: Takes[A, R],
    on_fail: Literal["continue"],
    keep_s: float | None = None,
) -> Later[[A], list[R | Failed]]: ...


def group(*calls: Any, on_fail: OnFail = "stop", keep_s: float | None = None) -> Any:
    """Calls that are enqueued together: `group(count.call(day) for day in days).then(add_up)`.

    `group(b, c)`, of tasks, is a later step of a chain: each gets the result of the step before.
    When a child fails for good, the group fails and the others are cancelled ("stop"); or it waits
    for a replay ("wait"); or goes on with a `Failed` in that place ("continue"). `keep_s` is how
    long a group that is over stays (a day).
    """
    if len(calls) == 1 and not isinstance(calls[0], Task | Call) and isinstance(calls[0], Iterable):
        return Group(calls[0], on_fail, keep_s)
    return Later(calls, on_fail, keep_s)


def added_of(err: Exception, indexes: list[int]) -> dict[int, Handle[Any]]:
    """The children that were added although others were not."""
    if not isinstance(err, EnqueueFailed):
        return {}
    return {indexes[at]: handle for at, handle in err.added.items()}
