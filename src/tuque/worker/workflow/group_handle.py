"""Handles of groups that were enqueued (SPEC U10)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Generator, Iterable
from contextlib import suppress
from typing import Any, Final, Generic, TypeVar

import msgspec

from tuque.client.api import plain_id, url_id
from tuque.client.commands.groups import ChildEnd, GroupChild, GroupStatus, JobGroup
from tuque.client.commands.work import Result, State
from tuque.client.retry import own
from tuque.errors import (
    Error,
    JobCancelled,
    JobFailed,
    NoJob,
    NoJobGroup,
    NoResult,
    ReplyError,
    ResultTimeout,
)
from tuque.worker.app.app import App
from tuque.worker.app.arguments import UNTYPED, converted
from tuque.worker.app.enqueue import Call
from tuque.worker.app.handle import Handle, Patience
from tuque.worker.app.task import Task
from tuque.worker.workflow.results import Failed, in_order, plain_result

R = TypeVar("R")
T = TypeVar("T")

FIRST_LOOK_S: Final = 0.02
LOOK_S: Final = 1.0
CANCELLED_MAX: Final = 500  # children of one CANCEL
WHY: Final = "its group was cancelled"
# the group by the outcome of its callback
ENDS: Final[dict[State, GroupStatus]] = {"done": "done", "dead": "failed", "cancelled": "cancelled"}
STATES: Final[dict[GroupStatus, State]] = {group: job for job, group in ENDS.items()}


class AnyGroupHandle(Generic[R]):
    """A group that was enqueued, with a callback or without."""

    def __init__(
        self, app: App, queue: str, id: str, types: list[Any], children: dict[int, Handle[R]]
    ) -> None:
        """`types`: of the results of the children."""
        self.queue = queue
        self.id = plain_id(id)
        self.children = [children[index] for index in sorted(children)]
        self._app = app
        self._types = types

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled it is a handle of its id: `app.handle(id)` asks for it again (U11.4)."""
        return Handle, (self.id,)

    def __str__(self) -> str:
        """The id, as of the handle of a job."""
        return self.id

    @property
    def url_id(self) -> str:
        """The id in a form that needs no escapes in URLs and file names; accepted as an id."""
        return url_id(self.id)

    def progress(self) -> JobGroup:
        """How far the group is; `NoJobGroup` if nothing of it is kept."""
        return self.show()

    async def progress_async(self) -> JobGroup:
        """Like `progress`, for asyncio programs."""
        return await self.show_async()

    def show(self) -> JobGroup:
        """The group as the broker has it; `NoJobGroup` once its callback is over."""
        return self._app.client.group_show(self.queue, self.id)

    async def show_async(self) -> JobGroup:
        """Like `show`, for asyncio programs."""
        return await self._app.aio_client.group_show(self.queue, self.id)

    def cancel(self) -> bool:
        """Cancels the open children, and the callback; False if all have ended (U10.4).

        No child begins after the reply, unless the node that has it was not in reach.
        """
        client = self._app.client
        try:
            if not client.group_cancel(self.queue, self.id):
                return False
        except NoJobGroup:
            return False
        for ids in some(self._named()):
            with suppress(ReplyError):  # the broker goes on asking
                client.cancel(*ids, reason=WHY)
        return True

    async def cancel_async(self) -> bool:
        """Like `cancel`, for asyncio programs."""
        client = self._app.aio_client
        try:
            if not await client.group_cancel(self.queue, self.id):
                return False
        except NoJobGroup:
            return False
        for ids in some(await self._named_async()):
            with suppress(ReplyError):
                await client.cancel(*ids, reason=WHY)
        return True

    def _named(self) -> list[Any]:
        """The children, for CANCEL."""
        return self._own()

    async def _named_async(self) -> list[Any]:
        return self._own()

    def _own(self) -> list[Any]:
        """The children that the group itself added (U10.4)."""
        return [child for child in self.children if child.is_new is not False]

    def results(self, timeout: float | None = None) -> list[R | Failed]:
        """What the children returned, in order (U10.3); waits for all, `timeout` s at most.

        Raises `JobFailed` if the group failed, `JobCancelled`, `ResultTimeout`, or `NoResult` once
        the callback is over. With on_fail="continue" a child that failed is a `Failed`.
        """
        ends_at = ends(timeout)
        found = self.closed(timeout)
        if found is None:
            raise self._gone()
        self.check(found, self._causes(found, ends_at))
        return [self._result(one) for one in in_order(self._ends(ends_at))]

    async def results_async(self, timeout: float | None = None) -> list[R | Failed]:
        """Like `results`, for asyncio programs."""
        ends_at = ends(timeout)
        found = await self.closed_async(timeout)
        if found is None:
            raise self._gone()
        self.check(found, await self._causes_async(found, ends_at))
        return [self._result(one) for one in in_order(await self._ends_async(ends_at))]

    def closed(self, timeout: float | None = None) -> JobGroup | None:
        """Waits until no child is open; None: nothing is kept, since the callback is over."""
        client = self._app.client
        patience = Patience(client.settings, ends(timeout))
        for wait_s in waits(timeout, self._late):
            try:
                found = client.group_show(self.queue, self.id, timeout=patience.call_s())
                if found.state != "open":
                    return found
                patience.answered()
            except NoJobGroup:
                return None
            except own(Error) as err:
                if not patience.asks_again(err):
                    raise
            time.sleep(wait_s)
        raise AssertionError  # waits() raises

    async def closed_async(self, timeout: float | None = None) -> JobGroup | None:
        """Like `closed`, for asyncio programs."""
        client = self._app.aio_client
        patience = Patience(client.settings, ends(timeout))
        for wait_s in waits(timeout, self._late):
            try:
                found = await client.group_show(self.queue, self.id, timeout=patience.call_s())
                if found.state != "open":
                    return found
                patience.answered()
            except NoJobGroup:
                return None
            except own(Error) as err:
                if not patience.asks_again(err):
                    raise
            await asyncio.sleep(wait_s)
        raise AssertionError  # waits() raises

    def called(self, timeout: float | None = None) -> None:
        """Waits until the callback is there, or over; raises what `results` raises."""
        ends_at = ends(timeout)
        found = self.closed(timeout)
        if found is not None and found.state != "called":
            self.check(found, self._causes(found, ends_at))

    async def called_async(self, timeout: float | None = None) -> None:
        """Like `called`, for asyncio programs."""
        ends_at = ends(timeout)
        found = await self.closed_async(timeout)
        if found is not None and found.state != "called":
            self.check(found, await self._causes_async(found, ends_at))

    def is_failed(self) -> bool:
        """Whether it is over, and will have no callback."""
        try:
            return self.show().state in ("failed", "cancelled")
        except NoJobGroup:
            return False

    async def is_failed_async(self) -> bool:
        """Like `is_failed`, for asyncio programs."""
        try:
            return (await self.show_async()).state in ("failed", "cancelled")
        except NoJobGroup:
            return False

    def _ends(self, ends_at: float | None) -> list[ChildEnd]:
        client = self._app.client
        patience = Patience(client.settings, ends_at)
        return patience.ask(
            lambda: list(client.group_results(self.queue, self.id, timeout=patience.call_s()))
        )

    async def _ends_async(self, ends_at: float | None) -> list[ChildEnd]:
        client = self._app.aio_client
        patience = Patience(client.settings, ends_at)

        async def all_of() -> list[ChildEnd]:
            pages = client.group_results(self.queue, self.id, timeout=patience.call_s())
            return [one async for one in pages]

        return await patience.ask_async(all_of)

    def _late(self, timeout: float) -> ResultTimeout:
        return ResultTimeout(f"group {self.id} is still open after {timeout:g} s", job_id=self.id)

    def _gone(self) -> NoResult:
        return NoResult(f"group {self.id} is over, its results are not kept", job_id=self.id)

    def _causes(self, found: JobGroup, ends_at: float | None = 0) -> list[GroupChild]:
        """Of a group that failed, its failed children."""
        if found.state != "failed":
            return []
        client = self._app.client
        patience = Patience(client.settings, ends_at)
        return patience.ask(
            lambda: list(
                client.group_children(
                    self.queue, self.id, state="failed", timeout=patience.call_s()
                )
            )
        )

    async def _causes_async(self, found: JobGroup, ends_at: float | None = 0) -> list[GroupChild]:
        """Like `_causes`, on the running loop."""
        if found.state != "failed":
            return []
        client = self._app.aio_client
        patience = Patience(client.settings, ends_at)

        async def all_of() -> list[GroupChild]:
            pages = client.group_children(
                self.queue, self.id, state="failed", timeout=patience.call_s()
            )
            return [one async for one in pages]

        return await patience.ask_async(all_of)

    def over(self, found: Result, timeout: float | None) -> Result | None:
        """How it ended, or `found` when the time is over; None once its callback is there."""
        try:
            shown = self.closed(timeout)
        except ResultTimeout:
            return found
        return None if shown is None or shown.state == "called" else self.standing(found, shown)

    async def over_async(self, found: Result, timeout: float | None) -> Result | None:
        """Like `over`, for asyncio programs."""
        try:
            shown = await self.closed_async(timeout)
        except ResultTimeout:
            return found
        if shown is None or shown.state == "called":
            return None
        return await self.standing_async(found, shown)

    def standing(self, found: Result, shown: JobGroup) -> Result:
        """How a group that is over stands, as the outcome of its callback (U10.4)."""
        return stands(found, shown, self._causes(shown))

    async def standing_async(self, found: Result, shown: JobGroup) -> Result:
        """Like `standing`, for asyncio programs."""
        return stands(found, shown, await self._causes_async(shown))

    def check(self, found: JobGroup, failed: list[GroupChild]) -> None:
        """[U10] Raises if the group failed, or was cancelled (U10.3)."""
        if found.state == "cancelled":
            raise JobCancelled(f"group {self.id} was cancelled", job_id=self.id)
        if found.state == "failed":
            first = first_of(failed)
            error = JobFailed(why_failed(self.id, first), job_id=first.id)
            error.cause, error.reason = first.how, first.reason
            raise error

    def _result(self, end: ChildEnd) -> Any:
        """The result of one child in the type of its task."""
        if end.state != "done":
            return Failed(end.how, end.reason)
        value = plain_result(end, self._app.keys)
        is_known = end.index < len(self._types)  # not by an id alone
        returns = self._types[end.index] if is_known else UNTYPED
        return value if returns is UNTYPED else converted("result", value, returns)


class GroupHandle(AnyGroupHandle[R]):
    """A group without a callback that was enqueued."""

    def __await__(self) -> Generator[Any, None, list[R | Failed]]:
        return self.results_async().__await__()


class CalledHandle(AnyGroupHandle[R], Generic[R, T]):
    """A group with a callback that was enqueued. Its id is that of the callback's job."""

    def __init__(
        self,
        app: App,
        queue: str,
        id: str,
        calls: list[Call[R]],
        children: dict[int, Handle[R]],
        callback: Task[..., T],
    ) -> None:
        super().__init__(app, queue, id, [call.task.returns for call in calls], children)
        keeps = callback.keep_s(callback.defaults) > 0
        self.callback: Handle[T] = Handle(
            id, app, callback.returns, task=callback.name, keeps=keeps, is_group=True
        )

    def progress(self) -> JobGroup:
        """How far the group is, also when its callback is over (U10.4).

        `NoJobGroup` if the outcome of the callback is not kept any more.
        """
        try:
            return self.show()
        except NoJobGroup as err:
            try:
                return self._ended(self.callback.status(), err)
            except NoJob:
                raise err from None

    async def progress_async(self) -> JobGroup:
        """Like `progress`, for asyncio programs."""
        try:
            return await self.show_async()
        except NoJobGroup as err:
            try:
                return self._ended(await self.callback.status_async(), err)
            except NoJob:
                raise err from None

    def _ended(self, found: Result, err: NoJobGroup) -> JobGroup:
        """[U10] The group by the outcome of its callback: all its children have ended (U10.4)."""
        state = ENDS.get(found.state)
        if state is None:
            raise err
        count = len(self._types)
        return JobGroup(
            self.id,
            self.queue,
            state,
            count,
            count,
            count,
            0,
            "",
            True,
            created_ms=0,
            over_ms=found.ended_ms,
        )

    def result(self, timeout: float | None = None) -> T:
        """What the callback returned (U10.5); waits for it, `timeout` seconds at most.

        Raises what `results` raises if the group failed or was cancelled, and what `Handle.result`
        raises of the callback.
        """
        ends_at = ends(timeout)
        self.called(timeout)
        return self.callback.result(left(ends_at))

    async def result_async(self, timeout: float | None = None) -> T:
        """Like `result`, for asyncio programs."""
        ends_at = ends(timeout)
        await self.called_async(timeout)
        return await self.callback.result_async(left(ends_at))

    def __await__(self) -> Generator[Any, None, T]:
        return self.result_async().__await__()


class GroupStepHandle(AnyGroupHandle[Any]):
    """A group that a worker made as a later step of a chain: the broker knows its children."""

    def __init__(self, app: App, queue: str, id: str, types: list[Any]) -> None:
        super().__init__(app, queue, id, types, {})

    def _named(self) -> list[Any]:
        found: list[Any] = []
        with suppress(ReplyError):
            found = [one.id for one in self._app.client.group_children(self.queue, self.id)]
        return found

    async def _named_async(self) -> list[Any]:
        found: list[Any] = []
        with suppress(ReplyError):
            pages = self._app.aio_client.group_children(self.queue, self.id)
            found = [one.id async for one in pages]
        return found


class KnownHandle(AnyGroupHandle[Any]):
    """A group of which nothing but its id is known.

    Which children it only met is not known either (U10.1): `cancel` leaves all to the broker.
    """


def _later(app: App, tube: str, id: str) -> KnownHandle:
    return KnownHandle(app, tube, id, [], {})


App.groups = _later


def first_of(failed: list[GroupChild]) -> GroupChild:
    """The child for which its group failed; those that ended because it did are later (T51.6)."""
    return min(failed, key=lambda one: (one.over_ms, one.index))


def why_failed(id: str, first: GroupChild) -> str:
    """The text about a group that failed."""
    text = f"child {first.index} of group {id} failed ({first.how})"
    return f"{text}: {first.reason}" if first.reason else text


def stands(found: Result, shown: JobGroup, failed: list[GroupChild]) -> Result:
    """The outcome of a group; as the job stood if the group is not over."""
    if shown.state not in STATES:
        return found
    reason = why_failed(shown.id, first_of(failed)) if failed else ""
    return msgspec.structs.replace(
        found, state=STATES[shown.state], reason=reason, ended_ms=shown.over_ms
    )


def some(children: list[Any]) -> Iterable[list[Any]]:
    """The children, as many at once as one CANCEL takes."""
    return (children[at : at + CANCELLED_MAX] for at in range(0, len(children), CANCELLED_MAX))


def waits(timeout: float | None, late: Callable[[float], Exception]) -> Iterable[float]:
    """How long to wait before the next look; raises when the time is over."""
    ends_at = ends(timeout)
    wait_s = FIRST_LOOK_S
    while True:
        left_s = wait_s if ends_at is None else ends_at - time.monotonic()
        yield max(0.0, min(wait_s, left_s))
        if ends_at is not None and timeout is not None and time.monotonic() >= ends_at:
            raise late(timeout)
        wait_s = min(LOOK_S, wait_s * 1.5)


def ends(timeout: float | None) -> float | None:
    """When a wait is over, by time.monotonic(); None: never."""
    return None if timeout is None else time.monotonic() + timeout


def left(ends_at: float | None) -> float | None:
    """How many seconds are left until then."""
    return None if ends_at is None else max(0.0, ends_at - time.monotonic())
