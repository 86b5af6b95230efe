"""chain(a.call(x), b, c): tasks one after the other, each with the result of the one before (U11).

Decides what may follow what, and what the first job carries of the rest. What becomes of it is in
chained.py, what a worker does with a step in steps.py and making.py.
"""

from __future__ import annotations

from dataclasses import replace
from typing import (
    TYPE_CHECKING,
    Any,
    Generic,
    Protocol,
    TypeVar,
    overload,
    runtime_checkable,
)

from tuque.worker.groups.chained import GROUP, ChainHandle, Stop
from tuque.worker.groups.handles import AnyGroupHandle
from tuque.worker.groups.headers import CHAIN_HEADER, NAMES_BYTES, Entry, header_of, kept
from tuque.worker.groups.later import Later, check_callback
from tuque.worker.groups.making import QUEUE
from tuque.worker.tasks.adding import Call
from tuque.worker.tasks.arguments import UNTYPED
from tuque.worker.tasks.options import Options
from tuque.worker.tasks.task import Step, Task, spread_in

if TYPE_CHECKING:
    from tuque.worker.groups.group import Called, Group
    from tuque.worker.groups.results import Failed

A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
D = TypeVar("D")
E = TypeVar("E")
R = TypeVar("R")
T = TypeVar("T")


@runtime_checkable
class Opening(Protocol):
    """A group with a callback that was not enqueued yet."""

    callback: Task[..., Any]
    calls: list[Call[Any]]

    def opened(self, headers: dict[str, str]) -> AnyGroupHandle[Any]:
        """Enqueues it; the callback has these headers."""

    async def opened_async(self, headers: dict[str, str]) -> AnyGroupHandle[Any]:
        """Like `opened`, for asyncio programs."""


@runtime_checkable
class Bare(Protocol):
    """A group without a callback that was not enqueued yet: another group follows it."""

    calls: list[Call[Any]]

    def called_by(self, callback: Task[..., Any]) -> Opening:
        """The group with that callback."""


class Chain(Generic[R]):
    """Steps to be enqueued one after the other; `chain(...)` makes it."""

    def __init__(
        self, first: Call[Any] | Opening | Bare, steps: tuple[Step[..., Any], ...]
    ) -> None:
        self.first = first
        self.steps = steps
        if not isinstance(first, Call | Opening | Bare):
            raise TypeError(f"a chain begins with a call or a group, not with {first!r}")
        if isinstance(first, Call):
            check_task(first.task, first.options, is_last=not steps)
        elif isinstance(first, Opening):
            check_task(first.callback, first.callback.defaults, is_last=not steps)
        for at, step in enumerate(steps):
            if isinstance(step, Task):
                check_task(step, step.defaults, is_last=at == len(steps) - 1)
                for children in self._groups_before(at):
                    check_callback(step, children)
            elif not isinstance(step, Later):
                raise TypeError(
                    "after the first step a chain has tasks, and groups of tasks as group(b, c), "
                    f"not {step!r}"
                )
        self._check_fit()
        if len(header_of(self._entries())) > NAMES_BYTES:
            raise ValueError(f"the names of the steps have more than {NAMES_BYTES} bytes")

    def _check_fit(self) -> None:
        """TypeError if it can be seen that a step does not take what the one before returns."""
        before: Any = list
        if isinstance(self.first, Call | Opening):
            one = self.first.task if isinstance(self.first, Call) else self.first.callback
            before = one.returns
        for step in self.steps:
            assert isinstance(step, Task | Later)
            for task in step.tasks if isinstance(step, Later) else (step,):
                task.check_step(before)
            before = list if isinstance(step, Later) else step.returns

    def then(self, step: Step[[R], T]) -> Chain[T]:
        """The chain with one more step."""
        return Chain(self.first, (*self.steps, step))

    def enqueue(self) -> ChainHandle[R]:
        """[U11] Adds the first step (U11.1)."""
        stops = self._stops()
        if isinstance(self.first, Call):
            call = self._begins(self.first)
            id: str = call.task.add_now(call.options, call.args, call.kwargs).id
            return ChainHandle(id, call.task.app, stops, None)
        made = self._opening(self.first)
        group = made.opened(self._headers())
        return ChainHandle(group.id, made.callback.app, stops, group)

    async def enqueue_async(self) -> ChainHandle[R]:
        """Like `enqueue`, for asyncio programs."""
        stops = self._stops()
        if isinstance(self.first, Call):
            call = self._begins(self.first)
            id: str = (await call.task.add_async(call.options, call.args, call.kwargs)).id
            return ChainHandle(id, call.task.app, stops, None)
        made = self._opening(self.first)
        group = await made.opened_async(self._headers())
        return ChainHandle(group.id, made.callback.app, stops, group)

    def _entries(self) -> list[Entry]:
        return [one.entry if isinstance(one, Later) else name_of(one) for one in self.steps]

    def _headers(self) -> dict[str, str]:
        """What the first job carries of the others."""
        return {CHAIN_HEADER: header_of(self._entries())} if self.steps else {}

    def _begins(self, first: Call[Any]) -> Call[Any]:
        """The first call, which carries the others."""
        options = kept(first)
        options = replace(options, headers={**options.headers, **self._headers()})
        return replace(first, options=options)

    def _opening(self, first: Opening | Bare) -> Opening:
        """The first group, with its callback."""
        if isinstance(first, Opening):
            return first
        task = self._callback(0)
        return first.called_by(spread_in(task.app, task.defaults))

    # ---- groups in a row

    def _groups_before(self, at: int) -> list[list[Options]]:
        """The options of the children of each group right before that step."""
        found: list[list[Options]] = []
        while at > 0:
            at -= 1
            step = self.steps[at]
            if not isinstance(step, Later):
                return found
            found.append([task.defaults for task in step.tasks])
        if isinstance(self.first, Bare) and not isinstance(self.first, Opening):
            found.append([call.options for call in self.first.calls])
        return found

    def _callback(self, at: int) -> Task[..., Any]:
        """The first task from that step on, in whose queue the groups before it are (U11.8)."""
        for step in self.steps[at:]:
            if isinstance(step, Task):
                return step
        raise TypeError(
            "the last two steps of the chain are groups: let a task follow them, which gets the "
            "list of the results; in its queue the results of the first go to the second"
        )

    def _stops(self) -> list[Stop]:
        """The way of a handle. TypeError: two groups are at the end (U11.8)."""
        first, stops = self.first, []
        if isinstance(first, Call):
            stops.append(self._job(1, first.task, 0))
        elif isinstance(first, Opening):
            queue = first.callback.defaults.queue
            stops += [Stop(1, GROUP, queue=queue, is_called=True), self._job(2, first.callback, 0)]
        else:
            stops += self._called(1, self._callback(0).defaults.queue, is_spread=True)
        before = stops[-1].step - (0 if isinstance(first, Call | Opening) else 1)
        for at, step in enumerate(self.steps, 1):
            if isinstance(step, Task):
                stops.append(self._job(before + at, step, at))
            elif isinstance(step, Later) and at == len(self.steps):
                types = tuple(task.returns for task in step.tasks)
                stops.append(Stop(before + at, GROUP, queue=QUEUE, types=types))
            else:
                is_spread = isinstance(self.steps[at], Later)
                stops += self._called(before + at, self._callback(at).defaults.queue, is_spread)
        return stops

    def _job(self, number: int, task: Task[..., Any], at: int) -> Stop:
        """The job of a step, which so many steps are before."""
        return Stop(number, task.name, task.returns if at == len(self.steps) else UNTYPED)

    def _called(self, number: int, queue: str, is_spread: bool) -> list[Stop]:
        """A group that is not the last step. `is_spread`: the next step is a group as well."""
        group = Stop(number, GROUP, queue=queue, is_called=True)
        return [group, Stop(number + 1, GROUP)] if is_spread else [group]


def check_task(task: Task[..., Any], options: Options, *, is_last: bool) -> None:
    """TypeError unless its jobs can be steps of a chain."""
    if options.utube is not None:
        raise TypeError(f"{task.name} has a utube: such jobs keep no results for a chain")
    if options.unique is not None and not is_last:
        raise TypeError(
            f"{task.name} is unique: its job may be another one, after which no step "
            "follows; only the last step of a chain can be unique"
        )


def name_of(step: Step[..., Any]) -> str:
    """The name of a step that is a task."""
    assert isinstance(step, Task)
    return step.name


@overload
def chain(first: Call[A], /) -> Chain[A]: ...


@overload
def chain(first: Call[A], second: Step[[A], B], /) -> Chain[B]: ...


@overload
def chain(first: Call[A], second: Step[[A], B], third: Step[[B], C], /) -> Chain[C]: ...


@overload
def chain(
    first: Call[A], second: Step[[A], B], third: Step[[B], C], fourth: Step[[C], D], /
) -> Chain[D]: ...


@overload
def chain(
    first: Call[A],
    second: Step[[A], B],
    third: Step[[B], C],
    fourth: Step[[C], D],
    fifth: Step[[D], E],
    /,
) -> Chain[E]: ...


@overload
def chain(
    first: Group[A], second: Task[[list[A]], B] | Task[[list[A | Failed]], B], /
) -> Called[A, B]: ...


@overload
def chain(
    first: Group[A], second: Later[[list[A]], B] | Later[[list[A | Failed]], B], /
) -> Chain[B]: ...


@overload
def chain(
    first: Group[A],
    second: Step[[list[A]], B] | Step[[list[A | Failed]], B],
    third: Step[[B], C],
    /,
) -> Chain[C]: ...


@overload
def chain(
    first: Group[A],
    second: Step[[list[A]], B] | Step[[list[A | Failed]], B],
    third: Step[[B], C],
    fourth: Step[[C], D],
    /,
) -> Chain[D]: ...


@overload
def chain(
    first: Group[A],
    second: Step[[list[A]], B] | Step[[list[A | Failed]], B],
    third: Step[[B], C],
    fourth: Step[[C], D],
    fifth: Step[[D], E],
    /,
) -> Chain[E]: ...


def chain(first: Any, /, *steps: Any) -> Any:
    """Tasks one after the other: `chain(fetch.call(url), parse, store).enqueue().result()`.

    Each step gets the result of the one before as its argument; more than five are
    `chain(...).then(step)`. The first step may be a group of calls, a later one a group of tasks,
    `group(b, c)`; the step after a group gets the list of its results. A step that fails for good
    ends the chain; once its dead letter is replayed, the chain goes on.
    """
    if isinstance(first, Call):
        return Chain(first, steps)
    if not steps or not hasattr(first, "then"):
        raise TypeError(
            "a chain begins with a call, or with a group of calls and its callback, not with "
            f"{first!r}: write chain(task.call(...), step) or chain(group([call, call]), callback)"
        )
    made = first
    for step in steps:
        made = made.then(step)
    return made
