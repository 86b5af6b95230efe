"""chain(a.call(x), b, c): tasks one after the other, each with the result of the one before (U11).

The result of a step is the id of the next one, so that a handle can go from one to the other. What
a worker does with a step: steps.py.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from dataclasses import replace
from typing import (
    TYPE_CHECKING,
    Any,
    Final,
    Generic,
    Protocol,
    TypeVar,
    overload,
    runtime_checkable,
)

import msgspec

from tuque.client.commands.life import Cancelling, Result
from tuque.client.commands.writes import JobGroup
from tuque.errors import JobCancelled, NoJob, NoJobGroup, NoResult, ResultTimeout
from tuque.worker.groups.steps import CHAIN_HEADER, NAMES_BYTES, header_of, kept, next_of
from tuque.worker.tasks.adding import Call
from tuque.worker.tasks.app import App
from tuque.worker.tasks.arguments import UNTYPED
from tuque.worker.tasks.handle import Handle
from tuque.worker.tasks.task import Task

if TYPE_CHECKING:
    from tuque.worker.groups.group import Called, Group
    from tuque.worker.groups.results import Failed

A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
D = TypeVar("D")
E = TypeVar("E")
F = TypeVar("F")
R = TypeVar("R")
T = TypeVar("T")

CANCELLED: Final = "the chain was cancelled"
CONFIRM_S: Final = 10.0  # until the nodes agree how a step ended
GROUP: Final = "group"  # the name of the first step, if that is a group


class Opened(Protocol):
    """A group with a callback that was enqueued: what a chain begins with besides a job."""

    id: str

    def called(self, timeout: float | None = None) -> None:
        """Waits until the callback is there; raises if the group failed."""

    async def called_async(self, timeout: float | None = None) -> None:
        """Like `called`, for asyncio programs."""

    def progress(self) -> JobGroup:
        """How far the group is."""

    async def progress_async(self) -> JobGroup:
        """Like `progress`, for asyncio programs."""

    def cancel(self) -> bool:
        """Cancels the group; False if it is over, or has become its callback."""

    async def cancel_async(self) -> bool:
        """Like `cancel`, for asyncio programs."""


@runtime_checkable
class Opening(Protocol):
    """A group with a callback that was not enqueued yet."""

    callback: Task[..., Any]

    def opened(self, headers: dict[str, str]) -> Opened:
        """Enqueues it; the callback has these headers."""

    async def opened_async(self, headers: dict[str, str]) -> Opened:
        """Like `opened`, for asyncio programs."""


class ChainProgress(msgspec.Struct, frozen=True):
    """How far a chain is: at step `step` of `of`, from 1.

    `task` is the step's task, "group" of a group; `job_id` its job, the group's callback of a
    group. `state` is as in `Handle.status()`, or that of the group (`group`): "open", "failed",
    "cancelled"; "gone" if nothing of the job is kept.
    """

    step: int
    of: int
    task: str
    job_id: str
    state: str
    group: JobGroup | None = None


class Chain(Generic[R]):
    """Steps to be enqueued one after the other; `chain(...)` makes it."""

    def __init__(self, first: Call[Any] | Opening, steps: tuple[Task[..., Any], ...]) -> None:
        self.first = first
        self.steps = steps
        if not isinstance(first, Call | Opening):
            raise TypeError(f"a chain begins with a call or a group, not with {first!r}")
        tasks = self.tasks
        for at, task in enumerate(tasks):
            if not isinstance(task, Task):
                raise TypeError(f"after the first step a chain has tasks, not {task!r}")
            options = first.options if at == 0 and isinstance(first, Call) else task.defaults
            if options.utube is not None:
                raise TypeError(f"{task.name} has a utube: such jobs keep no results for a chain")
            if options.unique is not None and at < len(tasks) - 1:
                raise TypeError(
                    f"{task.name} is unique: its job may be another one, after which no step "
                    "follows; only the last step of a chain can be unique"
                )
        if len(header_of(self._names())) > NAMES_BYTES:
            raise ValueError(f"the names of the steps have more than {NAMES_BYTES} bytes")

    @property
    def tasks(self) -> tuple[Task[..., Any], ...]:
        """The tasks of all steps; of a group that of its callback."""
        first = self.first
        return (first.task if isinstance(first, Call) else first.callback, *self.steps)

    def then(self, step: Task[[R], T]) -> Chain[T]:
        """The chain with one more step."""
        return Chain(self.first, (*self.steps, step))

    def enqueue(self) -> ChainHandle[R]:
        """[U11] Adds the first step (U11.1)."""
        if isinstance(self.first, Call):
            call = self._begins(self.first)
            id: str = call.task.add_now(call.options, call.args, call.kwargs).id
            return ChainHandle(id, self, None)
        made = self.first.opened(self._headers())
        return ChainHandle(made.id, self, made)

    async def enqueue_async(self) -> ChainHandle[R]:
        """Like `enqueue`, for asyncio programs."""
        if isinstance(self.first, Call):
            call = self._begins(self.first)
            id: str = (await call.task.add_async(call.options, call.args, call.kwargs)).id
            return ChainHandle(id, self, None)
        made = await self.first.opened_async(self._headers())
        return ChainHandle(made.id, self, made)

    def _names(self) -> list[str]:
        return [step.name for step in self.steps]

    def _headers(self) -> dict[str, str]:
        """What the first job carries of the others."""
        return {CHAIN_HEADER: header_of(self._names())} if self.steps else {}

    def _begins(self, first: Call[Any]) -> Call[Any]:
        """The first call, which carries the others."""
        options = kept(first)
        options = replace(options, headers={**options.headers, **self._headers()})
        return replace(first, options=options)


@overload
def chain(first: Call[A], /) -> Chain[A]: ...


@overload
def chain(first: Call[A], second: Task[[A], B], /) -> Chain[B]: ...


@overload
def chain(first: Call[A], second: Task[[A], B], third: Task[[B], C], /) -> Chain[C]: ...


@overload
def chain(
    first: Call[A], second: Task[[A], B], third: Task[[B], C], fourth: Task[[C], D], /
) -> Chain[D]: ...


@overload
def chain(
    first: Call[A],
    second: Task[[A], B],
    third: Task[[B], C],
    fourth: Task[[C], D],
    fifth: Task[[D], E],
    /,
) -> Chain[E]: ...


@overload
def chain(
    first: Group[A], second: Task[[list[A]], B] | Task[[list[A | Failed]], B], /
) -> Called[A, B]: ...


@overload
def chain(
    first: Group[A],
    second: Task[[list[A]], B] | Task[[list[A | Failed]], B],
    third: Task[[B], C],
    /,
) -> Chain[C]: ...


@overload
def chain(
    first: Group[A],
    second: Task[[list[A]], B] | Task[[list[A | Failed]], B],
    third: Task[[B], C],
    fourth: Task[[C], D],
    /,
) -> Chain[D]: ...


@overload
def chain(
    first: Group[A],
    second: Task[[list[A]], B] | Task[[list[A | Failed]], B],
    third: Task[[B], C],
    fourth: Task[[C], D],
    fifth: Task[[D], E],
    /,
) -> Chain[E]: ...


def chain(first: Any, /, *steps: Any) -> Any:
    """Tasks one after the other: `chain(fetch.call(url), parse, store).enqueue().result()`.

    Each step gets the result of the one before as its argument; more than five are
    `chain(...).then(step)`. The first step may be a group; the next one is its callback then. A
    step that fails for good ends the chain; once its dead letter is replayed, the chain goes on.
    """
    if isinstance(first, Call):
        return Chain(first, steps)
    if not steps or not hasattr(first, "then"):
        raise TypeError(
            "a chain begins with a call, or with a group and its callback, "
            f"not with {first!r}: write chain(task.call(...), step) or chain(group(...), callback)"
        )
    made = first
    for step in steps:
        made = made.then(step)
    return made


class ChainHandle(Generic[R]):
    """A chain that was enqueued. Its id is that of the first step's job, or of the group."""

    def __init__(self, id: str, made: Chain[R], group: Opened | None) -> None:
        self.id = id
        self.group = group
        tasks = made.tasks
        self._app: App = tasks[0].app
        self._names = [task.name for task in tasks]
        self._returns = tasks[-1].returns

    def result(self, timeout: float | None = None) -> R:
        """What the last step returned; raises what `Handle.result` raises of a step (U11.4)."""
        left_s = clock(timeout)
        if self.group is not None:
            self.group.called(left_s())
        id = self.id
        for at in range(len(self._names)):
            handle = self._job(id, at)
            found = handle.outcome(left_s())
            if self._is_last(at):
                value: R = handle.read(found, timeout)
                return value
            id = self._follow(handle, found, at, timeout)
        raise AssertionError  # a chain has a step

    async def result_async(self, timeout: float | None = None) -> R:
        """Like `result`, for asyncio programs."""
        left_s = clock(timeout)
        if self.group is not None:
            await self.group.called_async(left_s())
        id = self.id
        for at in range(len(self._names)):
            handle = self._job(id, at)
            found = await handle.outcome_async(left_s())
            if self._is_last(at):
                value: R = handle.read(found, timeout)
                return value
            id = self._follow(handle, found, at, timeout)
        raise AssertionError  # a chain has a step

    def __await__(self) -> Generator[Any, None, R]:
        return self.result_async().__await__()

    def progress(self) -> ChainProgress:
        """How far the chain is now (U11.4)."""
        shown = None
        if self.group is not None:
            try:
                shown = self.group.progress()
            except NoJobGroup:
                pass  # its callback is over
            if shown is not None and shown.state != "called":
                return self._at_group(shown)
        id = self.id
        for at in range(len(self._names)):
            handle = self._job(id, at)
            try:
                found = handle.status()
            except NoJob:
                return self._shown(at, id, "gone", shown)
            if self._is_last(at) or found.state != "done" or found.reason:
                return self._shown(at, id, found.state, shown)
            id = self._follow(handle, found, at, None)
        raise AssertionError  # a chain has a step

    async def progress_async(self) -> ChainProgress:
        """Like `progress`, for asyncio programs."""
        shown = None
        if self.group is not None:
            try:
                shown = await self.group.progress_async()
            except NoJobGroup:
                pass  # its callback is over
            if shown is not None and shown.state != "called":
                return self._at_group(shown)
        id = self.id
        for at in range(len(self._names)):
            handle = self._job(id, at)
            try:
                found = await handle.status_async()
            except NoJob:
                return self._shown(at, id, "gone", shown)
            if self._is_last(at) or found.state != "done" or found.reason:
                return self._shown(at, id, found.state, shown)
            id = self._follow(handle, found, at, None)
        raise AssertionError  # a chain has a step

    def cancel(self, reason: str = "") -> Cancelling:
        """Cancels the step that waits or is at work: no step begins after the reply (U11.5).

        "ended": nothing is at work. "flagged": the step at work is asked to stop; if it ends well
        all the same, nothing follows. "over": the chain had ended.
        """
        if self.group is not None:
            if self.group.cancel():
                return "ended"
            if self._is_over(self.progress()):
                return "over"
        id = self.id
        for at in range(len(self._names)):
            handle = self._job(id, at)
            became = handle.cancel(reason or CANCELLED)
            if became != "over" or self._is_last(at):
                return became
            try:
                found = handle.outcome(CONFIRM_S)
            except NoResult:
                return "over"
            if not self._has_next(handle, found):
                return "over"
            id = self._follow(handle, found, at, CONFIRM_S)
        raise AssertionError  # a chain has a step

    async def cancel_async(self, reason: str = "") -> Cancelling:
        """Like `cancel`, for asyncio programs."""
        if self.group is not None:
            if await self.group.cancel_async():
                return "ended"
            if self._is_over(await self.progress_async()):
                return "over"
        id = self.id
        for at in range(len(self._names)):
            handle = self._job(id, at)
            became = await handle.cancel_async(reason or CANCELLED)
            if became != "over" or self._is_last(at):
                return became
            try:
                found = await handle.outcome_async(CONFIRM_S)
            except NoResult:
                return "over"
            if not self._has_next(handle, found):
                return "over"
            id = self._follow(handle, found, at, CONFIRM_S)
        raise AssertionError  # a chain has a step

    # ---- what follows from an outcome

    def _job(self, id: str, at: int) -> Handle[Any]:
        """The handle of that step's job."""
        returns = self._returns if self._is_last(at) else UNTYPED
        return Handle(id, self._app, returns, task=self._names[at])

    def _is_last(self, at: int) -> bool:
        return at == len(self._names) - 1

    def _has_next(self, handle: Handle[Any], found: Result) -> bool:
        """Whether a step may follow the one that was over."""
        if not found.is_over:
            raise ResultTimeout(
                f"job {handle.id} of chain {self.id} has ended, and the nodes do not agree yet "
                "how: cancel the chain again",
                job_id=handle.id,
            )
        return found.state == "done" and found.result is not None and not found.reason

    def _follow(self, handle: Handle[Any], found: Result, at: int, timeout: float | None) -> str:
        """The job of the next step; raises what the handle of this one would."""
        following = next_of(handle.read(found, timeout))
        if found.reason:
            raise JobCancelled(
                f"chain {self.id} was cancelled in step {at + 1}, job {handle.id}: {found.reason}",
                job_id=handle.id,
            )
        if following is None:
            raise NoResult(
                f"step {at + 1} of chain {self.id}, job {handle.id}, names no job that follows",
                job_id=handle.id,
            )
        return following

    def _at_group(self, shown: JobGroup) -> ChainProgress:
        of = len(self._names) + 1
        return ChainProgress(1, of, GROUP, self.id, shown.state, shown)

    def _shown(self, at: int, id: str, state: str, shown: JobGroup | None) -> ChainProgress:
        before = 0 if self.group is None else 1
        step, of = at + 1 + before, len(self._names) + before
        return ChainProgress(step, of, self._names[at], id, state, shown)

    def _is_over(self, progress: ChainProgress) -> bool:
        """Whether the group has failed, or was cancelled."""
        return progress.task == GROUP and progress.step == 1 and progress.state != "open"


def clock(timeout: float | None) -> Callable[[], float | None]:
    """Says how many of the seconds are left; None: there is no limit."""
    ends_at = None if timeout is None else time.monotonic() + timeout
    return lambda: None if ends_at is None else max(0.0, ends_at - time.monotonic())
