"""A chain that was enqueued: its result, its progress, and its cancel (SPEC U11).

The result of a step is the id of the next one: a handle goes from one to the other.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

import msgspec

from tuque.client.api import plain_id, url_id
from tuque.client.commands.groups import JobGroup
from tuque.client.commands.work import Cancelling, Result
from tuque.errors import JobCancelled, NoJob, NoJobGroup, NoResult, ResultTimeout
from tuque.worker.app.app import App
from tuque.worker.app.arguments import UNTYPED
from tuque.worker.app.handle import Handle, next_of
from tuque.worker.workflow.group_handle import AnyGroupHandle, GroupStepHandle

R = TypeVar("R")

CANCELLED: Final = "the chain was cancelled"
CONFIRM_S: Final = 10.0  # until the nodes agree how a step ended
GROUP: Final = "group"  # the name of a step that is a group


class ChainProgress(msgspec.Struct, frozen=True):
    """How far a chain is: at step `step` of `of`, from 1.

    `task` is the step's task, "group" of a group; `job_id` its job, or its group, which becomes the
    callback. `state` is as in `Handle.status()`, or that of the group (`group`): "open", "failed",
    "cancelled"; "gone" if nothing of the job is kept.
    """

    step: int
    of: int
    task: str
    job_id: str
    state: str
    group: JobGroup | None = None


@dataclass(frozen=True)
class Stop:
    """A job or a group that a handle reads along the chain. `queue` is its queue or tube.

    Between two groups runs a job that does not count as a step: `spread` (U11.8).
    """

    step: int  # from 1
    task: str  # as progress shows it
    returns: Any = UNTYPED
    queue: str = ""
    types: tuple[Any, ...] = ()  # of the results of a group
    is_called: bool = False  # a group becomes the job of the next stop

    @property
    def is_group(self) -> bool:
        return self.queue != ""


class ChainHandle(Generic[R]):
    """A chain that was enqueued. Its id is that of the first step's job, or of the group."""

    def __init__(
        self, id: str, app: App, stops: list[Stop], group: AnyGroupHandle[Any] | None
    ) -> None:
        """`group`: the first step, if that is one."""
        self.id = plain_id(id)
        self.group = group
        self._app = app
        self._stops = stops

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled it is a handle of its id: `app.handle(id)` asks for it again."""
        return Handle, (self.id,)

    def __str__(self) -> str:
        """The id, as of the handle of a job."""
        return self.id

    @property
    def url_id(self) -> str:
        """The id in a form that needs no escapes in URLs and file names; accepted as an id."""
        return url_id(self.id)

    def result(self, timeout: float | None = None) -> R:
        """What the last step returned; raises what `Handle.result` raises of a step (U11.4).

        Of a group that is the last step it is the list of the results (U11.6).
        """
        left_s = clock(timeout)
        id, value = self.id, None
        for stop in self._stops:
            if stop.is_called:
                self._group(id, stop).called(left_s())
            elif stop.is_group:
                value = self._group(id, stop).results(left_s())
            else:
                handle = self._job(id, stop)
                found = handle.outcome(left_s())
                if stop is self._stops[-1]:
                    value = handle.read(found, timeout)
                else:
                    id = self._follow(handle, found, stop, timeout)
        return value  # type: ignore[return-value]  # a chain has a step

    async def result_async(self, timeout: float | None = None) -> R:
        """Like `result`, for asyncio programs."""
        left_s = clock(timeout)
        id, value = self.id, None
        for stop in self._stops:
            if stop.is_called:
                await self._group(id, stop).called_async(left_s())
            elif stop.is_group:
                value = await self._group(id, stop).results_async(left_s())
            else:
                handle = self._job(id, stop)
                found = await handle.outcome_async(left_s())
                if stop is self._stops[-1]:
                    value = handle.read(found, timeout)
                else:
                    id = self._follow(handle, found, stop, timeout)
        return value  # type: ignore[return-value]  # a chain has a step

    def __await__(self) -> Generator[Any, None, R]:
        return self.result_async().__await__()

    def progress(self) -> ChainProgress:
        """How far the chain is now (U11.4)."""
        id, shown = self.id, None
        for stop in self._stops:
            try:
                if stop.is_group:
                    shown = self._group(id, stop).show()
                    if shown.state != "called":
                        return self._shown(stop, id, shown.state, shown)
                    continue
                handle = self._job(id, stop)
                found = handle.status()
            except NoJobGroup:
                if stop.is_called:  # its callback is over
                    continue
                return self._shown(stop, id, "gone", shown)
            except NoJob:
                return self._shown(stop, id, "gone", shown)
            if stop is self._stops[-1] or found.state != "done" or found.reason:
                return self._shown(stop, id, found.state, shown)
            id = self._follow(handle, found, stop, None)
        raise AssertionError  # a chain has a step

    async def progress_async(self) -> ChainProgress:
        """Like `progress`, for asyncio programs."""
        id, shown = self.id, None
        for stop in self._stops:
            try:
                if stop.is_group:
                    shown = await self._group(id, stop).show_async()
                    if shown.state != "called":
                        return self._shown(stop, id, shown.state, shown)
                    continue
                handle = self._job(id, stop)
                found = await handle.status_async()
            except NoJobGroup:
                if stop.is_called:  # its callback is over
                    continue
                return self._shown(stop, id, "gone", shown)
            except NoJob:
                return self._shown(stop, id, "gone", shown)
            if stop is self._stops[-1] or found.state != "done" or found.reason:
                return self._shown(stop, id, found.state, shown)
            id = self._follow(handle, found, stop, None)
        raise AssertionError  # a chain has a step

    def cancel(self, reason: str = "") -> Cancelling:
        """Cancels the step that waits or is at work: no step begins after the reply (U11.5).

        "ended": nothing is at work. "flagged": the step at work is asked to stop; if it ends well
        all the same, nothing follows. "over": the chain had ended. Of a group it cancels all
        children that are open (U10.4): "ended".
        """
        id = self.id
        for stop in self._stops:
            if stop.is_group:
                group = self._group(id, stop)
                if group.cancel():
                    return "ended"
                if not stop.is_called or group.is_failed():
                    return "over"
                continue
            handle = self._job(id, stop)
            became = handle.cancel(reason or CANCELLED)
            if became != "over" or stop is self._stops[-1]:
                return became
            try:
                found = handle.outcome(CONFIRM_S)
            except NoResult:
                return "over"
            if not self._has_next(handle, found):
                return "over"
            id = self._follow(handle, found, stop, CONFIRM_S)
        raise AssertionError  # a chain has a step

    async def cancel_async(self, reason: str = "") -> Cancelling:
        """Like `cancel`, for asyncio programs."""
        id = self.id
        for stop in self._stops:
            if stop.is_group:
                group = self._group(id, stop)
                if await group.cancel_async():
                    return "ended"
                if not stop.is_called or await group.is_failed_async():
                    return "over"
                continue
            handle = self._job(id, stop)
            became = await handle.cancel_async(reason or CANCELLED)
            if became != "over" or stop is self._stops[-1]:
                return became
            try:
                found = await handle.outcome_async(CONFIRM_S)
            except NoResult:
                return "over"
            if not self._has_next(handle, found):
                return "over"
            id = self._follow(handle, found, stop, CONFIRM_S)
        raise AssertionError  # a chain has a step

    # ---- what follows from an outcome

    def _job(self, id: str, stop: Stop) -> Handle[Any]:
        """The handle of the job there."""
        return Handle(id, self._app, stop.returns, task=stop.task)

    def _group(self, id: str, stop: Stop) -> AnyGroupHandle[Any]:
        """The handle of the group there."""
        if self.group is not None and stop is self._stops[0]:
            return self.group
        return GroupStepHandle(self._app, stop.queue, id, list(stop.types))

    def _has_next(self, handle: Handle[Any], found: Result) -> bool:
        """Whether a step may follow the one that was over."""
        if not found.is_over:
            raise ResultTimeout(
                f"job {handle.id} of chain {self.id} has ended, and the nodes do not agree yet "
                "how: cancel the chain again",
                job_id=handle.id,
            )
        return found.state == "done" and found.result is not None and not found.reason

    def _follow(self, handle: Handle[Any], found: Result, stop: Stop, timeout: float | None) -> str:
        """The job or group of the next step; raises what the handle of this one would."""
        following = next_of(handle.read(found, timeout))
        if found.reason:
            raise JobCancelled(
                f"chain {self.id} was cancelled in step {stop.step}, job {handle.id}: "
                f"{found.reason}",
                job_id=handle.id,
            )
        if following is None:
            raise NoResult(
                f"step {stop.step} of chain {self.id}, job {handle.id}, names no job that follows",
                job_id=handle.id,
            )
        return following

    def _shown(self, stop: Stop, id: str, state: str, shown: JobGroup | None) -> ChainProgress:
        return ChainProgress(stop.step, self._stops[-1].step, stop.task, id, state, shown)


def clock(timeout: float | None) -> Callable[[], float | None]:
    """Says how many of the seconds are left; None: there is no limit."""
    ends_at = None if timeout is None else time.monotonic() + timeout
    return lambda: None if ends_at is None else max(0.0, ends_at - time.monotonic())
