"""group(calls).then(callback): many jobs, and one when all of them have ended (SPEC U10)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final, Generic, Literal, TypeVar

from tuque.errors import EnqueueFailed, Error
from tuque.worker.groups.chain import Chain
from tuque.worker.groups.handles import CalledHandle, GroupHandle
from tuque.worker.groups.results import GROUP_HEADER, Failed
from tuque.worker.groups.steps import kept
from tuque.worker.tasks.adding import KEY_HEADER, TASK_HEADER, Call, envelope_of
from tuque.worker.tasks.app import App
from tuque.worker.tasks.handle import Handle
from tuque.worker.tasks.options import RETRY_S
from tuque.worker.tasks.task import KEYED, Task

R = TypeVar("R")
T = TypeVar("T")
U = TypeVar("U")

OnFail = Literal["stop", "wait", "continue"]
CHILDREN_MAX: Final = 10_000
ADDED_MAX: Final = 500  # children of one GROUP ADD
CHILD: Final = "tuque-child"  # begins the key of a child
KEY_TTL_S: Final = 600  # longer than a client goes on sending a command
QUEUE: Final = "groups"  # the tube of groups without a callback


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
                raise TypeError(f"group takes calls: call {at} is {call!r}")
            if call.options.utube is not None:
                raise TypeError(
                    f"call {at} of the group: {call.task.name} has a utube, and such jobs keep no "
                    "results for a group"
                )
        if on_fail not in ("stop", "wait", "continue"):
            raise ValueError(f"on_fail is stop, wait or continue, not {on_fail!r}")

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
            if options.key is None and options.unique is None:  # so that it may be sent twice
                options = replace(options, key=f"{CHILD} {id} {at}", key_ttl_s=KEY_TTL_S)
            calls.append(replace(call, options=options))
        return list(found.values())

    def add(self, headers: Mapping[str, str]) -> tuple[str, dict[int, Handle[R]]]:
        """[U10] Adds the group and its children; raises what `enqueue_many` raises (U10.1)."""
        client = self.app.client
        client.tube(self.queue).create(KEYED, ttr=self.tube_ttr_s, if_not_exists=True)
        id = client.group_create(self.queue, len(self.calls), **self.words(headers))
        children: dict[int, Handle[R]] = {}
        indexes: list[int] = []
        try:
            for task, indexes, calls in self.by_task(id):
                children |= dict(zip(indexes, task.enqueue_many(calls), strict=True))
            for part in parts(children):
                client.group_add(self.queue, id, part)
        except Exception as err:
            with suppress(Error):  # then it is cancelled after an hour (T50.8)
                for part in parts(children | added_of(err, indexes)):
                    client.group_add(self.queue, id, part)
                client.group_cancel(self.queue, id)
            raise
        return id, children

    async def add_async(self, headers: Mapping[str, str]) -> tuple[str, dict[int, Handle[R]]]:
        """Like `add`, for asyncio programs."""
        client = self.app.aio_client
        await client.tube(self.queue).create(KEYED, ttr=self.tube_ttr_s, if_not_exists=True)
        id = await client.group_create(self.queue, len(self.calls), **self.words(headers))
        children: dict[int, Handle[R]] = {}
        indexes: list[int] = []
        try:
            for task, indexes, calls in self.by_task(id):
                handles = await task.enqueue_many_async(calls)
                children |= dict(zip(indexes, handles, strict=True))
            for part in parts(children):
                await client.group_add(self.queue, id, part)
        except Exception as err:
            with suppress(Error):
                for part in parts(children | added_of(err, indexes)):
                    await client.group_add(self.queue, id, part)
                await client.group_cancel(self.queue, id)
            raise
        return id, children


class Group(AnyGroup[R]):
    """Calls to be enqueued together; `group(...)` makes it."""

    def then(self, callback: Task[[list[R]], T] | Task[[list[R | Failed]], T]) -> Called[R, T]:
        """[U10] The task that runs once all have ended, with their results as its argument.

        Its queue is a tube of type tasks, made when it is first used; no plain job goes there.
        """
        return Called(self, callback)

    def enqueue(self) -> GroupHandle[R]:
        """[U10] Adds the group and its children; raises what `enqueue_many` raises (U10.1)."""
        return GroupHandle(self.app, self.queue, *self._made(self.add({})))

    async def enqueue_async(self) -> GroupHandle[R]:
        """Like `enqueue`, for asyncio programs."""
        return GroupHandle(self.app, self.queue, *self._made(await self.add_async({})))

    def _made(
        self, added: tuple[str, dict[int, Handle[R]]]
    ) -> tuple[str, list[Call[R]], dict[int, Handle[R]]]:
        return added[0], self.calls, added[1]


class Called(AnyGroup[R], Generic[R, T]):
    """A group with its callback; `group(...).then(...)` makes it."""

    def __init__(
        self, first: Group[R], callback: Task[[list[R]], T] | Task[[list[R | Failed]], T]
    ) -> None:
        super().__init__(first.calls, first.on_fail, first.keep_s)
        if not isinstance(callback, Task):
            raise TypeError(
                f"the callback of a group is a task, not {callback!r}; a group after a group is "
                "enqueued by the callback of the first"
            )
        self.callback: Task[..., T] = callback
        queue = callback.defaults.queue
        if any(c.options.queue == queue and c.options.policies is None for c in self.calls):
            raise ValueError(
                f"the callback {callback.name} needs a queue of its own: '{queue}' is that of "
                "children of the group"
            )
        if callback.defaults.unique is not None:
            raise TypeError(f"the callback {callback.name} of a group cannot be unique")
        callback.made_call(callback.defaults, ([],), {})

    @property
    def queue(self) -> str:
        return self.callback.defaults.queue

    @property
    def tube_ttr_s(self) -> int:
        return self.callback.defaults.retry_s or RETRY_S

    def then(self, step: Task[[T], U]) -> Chain[U]:
        """[U11] The task that runs after the callback, with its result (U11.6)."""
        return Chain(self, (step,))

    def words(self, headers: Mapping[str, str]) -> dict[str, Any]:
        asked = super().words(headers)
        callback = self.callback
        options = callback.defaults
        call: Call[T] = Call(callback, options, ([],), {})
        if headers:  # a step follows: it is named in the outcome
            options = kept(call)
        keys = callback.app.keys
        body = envelope_of(callback, options, ([],), {}, {GROUP_HEADER: "1"})
        own = {**options.headers, **headers, TASK_HEADER: callback.name}
        if keys is not None:
            own[KEY_HEADER] = keys.id
            body = keys.seal(body)
        asked |= {
            "body": body,
            "retry": options.retry_s,
            "pri": options.pri,
            "attempts": options.attempts,
            "backoff": options.backoff.figures,
            "dead": options.dead,
            "time_limit": options.time_limit_s,
            "headers": own,
        }
        if options.policies is not None:
            values = callback.values(([],), {})
            asked |= options.policies.keyed(callback.name, values, options.headers)
        return asked

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


def group(
    calls: Iterable[Call[R]], *, on_fail: OnFail = "stop", keep_s: float | None = None
) -> Group[R]:
    """Calls that are enqueued together: `group(count.call(day) for day in days).then(add_up)`.

    When a child fails for good, the group fails and the others are cancelled ("stop"); or it waits
    for a replay ("wait"); or goes on with a `Failed` in that place ("continue"). `keep_s` is how
    long a group that is over stays (a day).
    """
    return Group(calls, on_fail, keep_s)


def parts(children: Mapping[int, Handle[R]]) -> list[dict[int, str]]:
    """The children, as many at once as GROUP ADD takes."""
    items = [(index, handle.id) for index, handle in children.items()]
    return [dict(items[at : at + ADDED_MAX]) for at in range(0, len(items), ADDED_MAX)]


def added_of(err: Exception, indexes: list[int]) -> dict[int, Handle[Any]]:
    """The children that were added although others were not."""
    if not isinstance(err, EnqueueFailed):
        return {}
    return {indexes[at]: handle for at, handle in err.added.items()}
