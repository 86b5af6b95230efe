"""group(calls).then(callback): many jobs, and one when all of them have ended (SPEC U10)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, Final, Generic, Literal, TypeVar

from tuque.client.commands.writes import ChildEnd, JobGroup
from tuque.errors import EnqueueFailed, JobCancelled, JobFailed, NoJobGroup, NoResult, ResultTimeout
from tuque.worker.groups.results import GROUP_HEADER, Failed, in_order, plain_result
from tuque.worker.tasks.adding import Call, envelope_of
from tuque.worker.tasks.app import App
from tuque.worker.tasks.arguments import UNTYPED, converted
from tuque.worker.tasks.handle import Handle
from tuque.worker.tasks.options import RETRY_S, Options
from tuque.worker.tasks.task import KEYED, Task

R = TypeVar("R")
T = TypeVar("T")

OnFail = Literal["stop", "wait", "continue"]
CHILDREN_MAX: Final = 10_000
ADDED_MAX: Final = 500  # children of one GROUP ADD
KEEP_S: Final = 86_400.0  # of a child's outcome, at least: the broker must see it
QUEUE: Final = "groups"  # the tube of groups without a callback
FIRST_LOOK_S: Final = 0.02
LOOK_S: Final = 1.0


class Group(Generic[R]):
    """Calls to be enqueued together; `group(...)` makes it."""

    def __init__(self, calls: Iterable[Call[R]], on_fail: OnFail, keep_s: float | None) -> None:
        self.calls = list(calls)
        self.on_fail = on_fail
        self.keep_s = keep_s
        self.callback: Task[..., Any] | None = None
        if not 1 <= len(self.calls) <= CHILDREN_MAX:
            raise ValueError(f"a group has 1 to {CHILDREN_MAX} calls, not {len(self.calls)}")
        for at, call in enumerate(self.calls):
            if not isinstance(call, Call):
                raise TypeError(f"group takes calls: call {at} is {call!r}")
            if call.options.policies is not None:
                raise TypeError(
                    f"call {at} of the group: {call.task.name} has keys, so its jobs are in a "
                    "tube; the children of a group are jobs of queues"
                )
        if on_fail not in ("stop", "wait", "continue"):
            raise ValueError(f"on_fail is stop, wait or continue, not {on_fail!r}")

    def then(self, callback: Task[[list[R]], T] | Task[[list[R | Failed]], T]) -> Group[R]:
        """[U10] The task that runs once all have ended, with their results as its argument.

        Its queue is a tube of type tasks, made when it is first used; no child goes there.
        """
        queue = callback.defaults.queue
        if any(call.options.queue == queue for call in self.calls):
            raise ValueError(
                f"the callback {callback.name} needs a queue of its own: '{queue}' is that of "
                "children of the group"
            )
        callback.made_call(callback.defaults, ([],), {})
        self.callback = callback
        return self

    @property
    def app(self) -> App:
        """The app of the first call."""
        return self.calls[0].task.app

    @property
    def queue(self) -> str:
        """The tube that keeps the group."""
        return QUEUE if self.callback is None else self.callback.defaults.queue

    @property
    def tube_ttr_s(self) -> int:
        """The time to work of the tasks of a new tube."""
        return (None if self.callback is None else self.callback.defaults.retry_s) or RETRY_S

    def words(self) -> dict[str, Any]:
        """The arguments of group_create."""
        asked: dict[str, Any] = {"on_fail": self.on_fail, "keep": self.keep_s}
        callback = self.callback
        if callback is None:
            return asked
        options = callback.defaults
        headers = {**options.headers, GROUP_HEADER: "1"}
        body = envelope_of(callback, options, ([],), {}, headers)
        keys = callback.app.keys
        asked |= {
            "body": body if keys is None else keys.seal(body),
            "retry": options.retry_s,
            "pri": options.pri,
        }
        if options.policies is not None:
            if options.unique is not None:
                raise TypeError(f"the callback {callback.name} of a group cannot be unique")
            values = callback.values(([],), {})
            asked |= options.policies.keyed(callback.name, values, options.headers)
        return asked

    def by_task(self) -> list[tuple[Task[..., R], list[int], list[Call[R]]]]:
        """The calls of each task, with their indexes; their outcomes are kept."""
        found: dict[str, tuple[Task[..., R], list[int], list[Call[R]]]] = {}
        for at, call in enumerate(self.calls):
            _, indexes, calls = found.setdefault(call.task.name, (call.task, [], []))
            indexes.append(at)
            calls.append(replace(call, options=kept(call)))
        return list(found.values())

    def enqueue(self) -> GroupHandle[R]:
        """[U10] Adds the group and its children; raises what `enqueue_many` raises (U10.1)."""
        client = self.app.client
        client.tube(self.queue).create(KEYED, ttr=self.tube_ttr_s, if_not_exists=True)
        id = client.group_create(self.queue, len(self.calls), **self.words())
        children: dict[int, Handle[R]] = {}
        try:
            for task, indexes, calls in self.by_task():
                children |= dict(zip(indexes, task.enqueue_many(calls), strict=True))
        except Exception as err:
            children |= added_of(err, indexes)
            for part in parts(children):
                client.group_add(self.queue, id, part)
            client.group_cancel(self.queue, id)
            raise
        for part in parts(children):
            client.group_add(self.queue, id, part)
        return GroupHandle(self.app, self.queue, id, self.calls, children)

    async def enqueue_async(self) -> GroupHandle[R]:
        """Like `enqueue`, for asyncio programs."""
        client = self.app.aio_client
        await client.tube(self.queue).create(KEYED, ttr=self.tube_ttr_s, if_not_exists=True)
        id = await client.group_create(self.queue, len(self.calls), **self.words())
        children: dict[int, Handle[R]] = {}
        try:
            for task, indexes, calls in self.by_task():
                handles = await task.enqueue_many_async(calls)
                children |= dict(zip(indexes, handles, strict=True))
        except Exception as err:
            children |= added_of(err, indexes)
            for part in parts(children):
                await client.group_add(self.queue, id, part)
            await client.group_cancel(self.queue, id)
            raise
        for part in parts(children):
            await client.group_add(self.queue, id, part)
        return GroupHandle(self.app, self.queue, id, self.calls, children)


def group(
    calls: Iterable[Call[R]], *, on_fail: OnFail = "stop", keep_s: float | None = None
) -> Group[R]:
    """Calls that are enqueued together: `group(count.call(day) for day in days).then(add_up)`.

    When a child fails for good, the group fails and the others are cancelled ("stop"); or it waits
    for a replay ("wait"); or goes on with a `Failed` in that place ("continue"). `keep_s` is how
    long a group that is over stays (a day).
    """
    return Group(calls, on_fail, keep_s)


class GroupHandle(Generic[R]):
    """A group that was enqueued. Its id is that of its callback's job."""

    def __init__(
        self, app: App, queue: str, id: str, calls: list[Call[R]], children: dict[int, Handle[R]]
    ) -> None:
        self.queue = queue
        self.id = id
        self.children = [children[index] for index in sorted(children)]
        self._app = app
        self._types = [call.task.returns for call in calls]

    def progress(self) -> JobGroup:
        """How far the group is; `NoJobGroup` once its callback is over."""
        return self._app.client.group_show(self.queue, self.id)

    async def progress_async(self) -> JobGroup:
        """Like `progress`, for asyncio programs."""
        return await self._app.aio_client.group_show(self.queue, self.id)

    def cancel(self) -> bool:
        """Cancels the open children, and the callback; False if all have ended (U10.4)."""
        return self._app.client.group_cancel(self.queue, self.id)

    async def cancel_async(self) -> bool:
        """Like `cancel`, for asyncio programs."""
        return await self._app.aio_client.group_cancel(self.queue, self.id)

    def results(self, timeout: float | None = None) -> list[R | Failed]:
        """What the children returned, in order (U10.3); waits for all, `timeout` s at most.

        Raises `JobFailed` if the group failed, `JobCancelled`, `ResultTimeout`, or `NoResult` once
        the callback is over. With on_fail="continue" a child that failed is a `Failed`.
        """
        for wait_s in waits(timeout, self._late):
            try:
                found = self.progress()
                if found.state != "open":
                    return self._read(found, list(self._ends()))
            except NoJobGroup as err:
                raise self._gone(err) from None
            time.sleep(wait_s)
        raise AssertionError  # waits() raises

    async def results_async(self, timeout: float | None = None) -> list[R | Failed]:
        """Like `results`, for asyncio programs."""
        client = self._app.aio_client
        for wait_s in waits(timeout, self._late):
            try:
                found = await self.progress_async()
                if found.state != "open":
                    ends = [one async for one in client.group_results(self.queue, self.id)]
                    return self._read(found, ends)
            except NoJobGroup as err:
                raise self._gone(err) from None
            await asyncio.sleep(wait_s)
        raise AssertionError  # waits() raises

    def _ends(self) -> Iterable[ChildEnd]:
        return self._app.client.group_results(self.queue, self.id)

    def _late(self, timeout: float) -> ResultTimeout:
        return ResultTimeout(f"group {self.id} is still open after {timeout:g} s", job_id=self.id)

    def _gone(self, err: NoJobGroup) -> NoResult:
        return NoResult(f"group {self.id} is over and not kept: {err.message}", job_id=self.id)

    def _read(self, found: JobGroup, ends: list[ChildEnd]) -> list[R | Failed]:
        """The results, or why there are none."""
        if found.state == "cancelled":
            raise JobCancelled(f"group {self.id} was cancelled", job_id=self.id)
        if found.state == "failed":
            first = next(one for one in in_order(ends) if one.state == "failed")
            error = JobFailed(
                f"child {first.index} of group {self.id} failed ({first.how}): {first.reason}",
                job_id=first.id,
            )
            error.cause, error.reason = first.how, first.reason
            raise error
        return [self._result(one) for one in in_order(ends)]

    def _result(self, end: ChildEnd) -> Any:
        """The result of one child in the type of its task."""
        if end.state != "done":
            return Failed(end.how, end.reason)
        value = plain_result(end, self._app.keys)
        returns = self._types[end.index]
        return value if returns is UNTYPED else converted("result", value, returns)


def waits(timeout: float | None, late: Callable[[float], Exception]) -> Iterable[float]:
    """How long to wait before the next look; raises when the time is over."""
    ends_at = None if timeout is None else time.monotonic() + timeout
    wait_s = FIRST_LOOK_S
    while True:
        left_s = wait_s if ends_at is None else ends_at - time.monotonic()
        yield max(0.0, min(wait_s, left_s))
        if ends_at is not None and timeout is not None and time.monotonic() >= ends_at:
            raise late(timeout)
        wait_s = min(LOOK_S, wait_s * 1.5)


def kept(call: Call[Any]) -> Options:
    """The options of a child: its outcome is kept until the broker has seen it."""
    keep_s = max(KEEP_S, call.task.keep_s(call.options))
    return replace(call.options, keep_s=keep_s)


def parts(children: dict[int, Handle[R]]) -> list[dict[int, str]]:
    """The children, as many at once as GROUP ADD takes."""
    items = [(index, handle.id) for index, handle in children.items()]
    return [dict(items[at : at + ADDED_MAX]) for at in range(0, len(items), ADDED_MAX)]


def added_of(err: Exception, indexes: list[int]) -> dict[int, Handle[Any]]:
    """The children that were added although others were not."""
    if not isinstance(err, EnqueueFailed):
        return {}
    return {indexes[at]: handle for at, handle in err.added.items()}
