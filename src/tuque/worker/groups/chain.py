"""chain(a.call(x), b, c): tasks one after the other, each with the result of the one before (U11).

A job carries the names of the steps that follow. Who has run a step adds the next one before it
says DONE, under a key made of the job's id: a step that runs twice adds it once. The result of a
step is the id of the next one, so that a handle can go from one to the other.
"""

from __future__ import annotations

import json
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar, overload

from tuque.client.commands.life import Cancelling
from tuque.errors import JobCancelled, JobFailed, NoResult, ResultTimeout
from tuque.worker.groups.group import kept
from tuque.worker.tasks.adding import Call
from tuque.worker.tasks.app import App
from tuque.worker.tasks.arguments import UNTYPED, converted
from tuque.worker.tasks.handle import Handle
from tuque.worker.tasks.task import Task

if TYPE_CHECKING:
    from tuque.worker.pools.execute import Job

A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
D = TypeVar("D")
R = TypeVar("R")

CHAIN_HEADER: Final = "tuque-chain"  # the names of the steps that follow, as JSON
NEXT: Final = "tuque-next"  # in the result of a step
NAMES_BYTES: Final = 1_024  # as a header


class Chain(Generic[R]):
    """Steps to be enqueued one after the other; `chain(...)` makes it."""

    def __init__(self, first: Call[Any], steps: tuple[Task[..., Any], ...]) -> None:
        self.first = first
        self.steps = steps
        if not isinstance(first, Call):
            raise TypeError(f"a chain begins with a call, not with {first!r}")
        for task in (first.task, *steps):
            if not isinstance(task, Task):
                raise TypeError(f"after the call a chain has tasks, not {task!r}")
            if task.defaults.policies is not None:
                raise TypeError(
                    f"{task.name} has keys, so its jobs are in a tube; the steps of a chain are "
                    "jobs of queues"
                )
        if len(header_of([task.name for task in steps])) > NAMES_BYTES:
            raise ValueError(f"the names of the steps have more than {NAMES_BYTES} bytes")

    def enqueue(self) -> ChainHandle[R]:
        """[U11] Adds the first step (U11.1)."""
        call = self._begins()
        return ChainHandle(call.task.add_now(call.options, call.args, call.kwargs), self)

    async def enqueue_async(self) -> ChainHandle[R]:
        """Like `enqueue`, for asyncio programs."""
        call = self._begins()
        return ChainHandle(await call.task.add_async(call.options, call.args, call.kwargs), self)

    def _begins(self) -> Call[Any]:
        """The first call, which carries the others."""
        options = kept(self.first)
        if self.steps:
            headers = {**options.headers, CHAIN_HEADER: header_of([s.name for s in self.steps])}
            options = replace(options, headers=headers)
        return replace(self.first, options=options)


@overload
def chain(first: Call[A], second: Task[[A], B], /) -> Chain[B]: ...


@overload
def chain(first: Call[A], second: Task[[A], B], third: Task[[B], C], /) -> Chain[C]: ...


@overload
def chain(
    first: Call[A], second: Task[[A], B], third: Task[[B], C], fourth: Task[[C], D], /
) -> Chain[D]: ...


@overload
def chain(first: Call[Any], /, *steps: Task[..., Any]) -> Chain[Any]: ...


def chain(first: Call[Any], /, *steps: Task[..., Any]) -> Chain[Any]:
    """Tasks one after the other: `chain(fetch.call(url), parse, store).enqueue().result()`.

    Each step gets the result of the one before as its argument. A step that fails for good ends the
    chain; once its dead letter is replayed, the chain goes on.
    """
    return Chain(first, steps)


class ChainHandle(Generic[R]):
    """A chain that was enqueued. Its id is that of the first step's job."""

    def __init__(self, first: Handle[Any], steps: Chain[R]) -> None:
        self.id = first.id
        self._app: App = steps.first.task.app
        self._returns = (steps.steps or (steps.first.task,))[-1].returns

    def result(self, timeout: float | None = None) -> R:
        """What the last step returned; raises what `Handle.result` raises of a step (U11.3)."""
        ends_at = None if timeout is None else time.monotonic() + timeout
        id = self.id
        while True:
            left_s = None if ends_at is None else max(0.0, ends_at - time.monotonic())
            value = Handle[Any](id, self._app, UNTYPED).result(left_s)
            following = next_of(value)
            if following is None:
                return self._read(value)
            id = following

    async def result_async(self, timeout: float | None = None) -> R:
        """Like `result`, for asyncio programs."""
        ends_at = None if timeout is None else time.monotonic() + timeout
        id = self.id
        while True:
            left_s = None if ends_at is None else max(0.0, ends_at - time.monotonic())
            value = await Handle[Any](id, self._app, UNTYPED).result_async(left_s)
            following = next_of(value)
            if following is None:
                return self._read(value)
            id = following

    def cancel(self, reason: str = "") -> Cancelling:
        """Cancels the step that is waiting or at work (U11.4); "over": the last one has ended.

        After "ended" no step begins. After "flagged" a step at work may still end well; the next
        one is then added, unless its worker has heard of the cancel.
        """
        id = self.id
        while True:
            handle = Handle[Any](id, self._app, UNTYPED)
            became = handle.cancel(reason)
            if became != "over":
                return became
            try:
                following = next_of(handle.result(0))
            except (JobFailed, JobCancelled, NoResult, ResultTimeout):
                return "over"
            if following is None:
                return "over"
            id = following

    def _read(self, value: Any) -> R:
        """The result of the last step in its type."""
        read: R = value if self._returns is UNTYPED else converted("result", value, self._returns)
        return read


def header_of(names: list[str]) -> str:
    """The names of the steps that follow, for a header."""
    return json.dumps(names, separators=(",", ":"))


def next_of(value: Any) -> str | None:
    """The id of the next step, if a step has returned that."""
    if isinstance(value, dict) and len(value) == 1:
        found = value.get(NEXT)
        return found if isinstance(found, str) else None
    return None


def is_step(job: Job) -> bool:
    """Whether another step follows the job."""
    return CHAIN_HEADER in job.headers


def step_after(app: App, job: Job, result: Any) -> Call[Any]:
    """[U11] The next step, with a key by which it is added once (U11.2)."""
    names = json.loads(job.headers[CHAIN_HEADER])
    task = app.tasks.get(names[0])
    if task is None:
        raise LookupError(f"the next step of the chain is an unknown task: {names[0]}")
    call: Call[Any] = task.made_call(task.defaults, (result,), {})
    headers = dict(call.options.headers)
    if len(names) > 1:
        headers[CHAIN_HEADER] = header_of(names[1:])
    options = replace(kept(call), headers=headers, key=f"{NEXT} {job.id}")
    return replace(call, options=options)


def goes_on(app: App, job: Job, result: Any) -> dict[str, str]:
    """Adds the next step; what is the result of this one then."""
    call = step_after(app, job, result)
    return {NEXT: call.task.add_now(call.options, call.args, call.kwargs).id}


async def goes_on_async(app: App, job: Job, result: Any) -> dict[str, str]:
    """Like `goes_on`, on the running loop."""
    call = step_after(app, job, result)
    return {NEXT: (await call.task.add_async(call.options, call.args, call.kwargs)).id}
