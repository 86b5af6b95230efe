"""chain(a.call(x), b, c): one task after the other, each with the result before it (SPEC U11).

Decides what may follow what, and what the first job carries of the rest. Its result is in
chain_handle.py, what a worker does with a step in chain_steps.py and create.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import (
    TYPE_CHECKING,
    Any,
    Final,
    Generic,
    ParamSpec,
    Protocol,
    TypeVar,
    overload,
    runtime_checkable,
)

from tuque.client.api import PRI_MAX
from tuque.errors import NoTube, ReplyError
from tuque.worker.app.arguments import UNTYPED
from tuque.worker.app.enqueue import CHAIN_HEADER, QUEUES_HEADER, Call
from tuque.worker.app.options import POLICIES, Options
from tuque.worker.app.task import KEYED, Step, Task, spread_in
from tuque.worker.workflow.chain_handle import GROUP, ChainHandle, Stop
from tuque.worker.workflow.create import (
    NAMES_BYTES,
    QUEUE,
    Entry,
    GroupEntry,
    OnFail,
    header_of,
    kept,
)
from tuque.worker.workflow.group_handle import AnyGroupHandle

if TYPE_CHECKING:
    from tuque.worker.workflow.group import Called, Group
    from tuque.worker.workflow.results import Failed


P = ParamSpec("P")
R = TypeVar("R")
A_contra = TypeVar("A_contra", contravariant=True)
R_co = TypeVar("R_co", covariant=True)

CHILDREN_MAX: Final = 10_000
NOT_OF_CALLBACKS: Final = (
    "delay_s",
    "ttl_s",
    "expires_s",
    "expires",
    "replicate",
    "maxlen",
    "utube",
    "key",
)


# ---- group(b, c): a group as a later step, and its callback (SPEC U11.6)
#
# Decides what may be such a group, and a callback. Knows no broker.


class Takes(Protocol[A_contra, R_co]):
    """What type checkers know of a task of such a group: what it takes, and what it returns."""

    def call(self, value: A_contra, /) -> Call[R_co]:
        """As `Task.call`."""


class Later(Step[P, R], Generic[P, R]):
    """Tasks that get the result of the step before, all together; `group(b, c)` makes it."""

    def __init__(
        self, tasks: Sequence[Task[..., Any]], on_fail: OnFail, keep_s: float | None
    ) -> None:
        self.tasks = tuple(tasks)
        self.on_fail = on_fail
        self.keep_s = keep_s
        if not 1 <= len(self.tasks) <= CHILDREN_MAX:
            raise ValueError(f"a group has 1 to {CHILDREN_MAX} tasks, not {len(self.tasks)}")
        for at, task in enumerate(self.tasks):
            if not isinstance(task, Task):
                raise TypeError(_no_task(at, task))
            if task.defaults.utube is not None:
                raise TypeError(
                    f"task {at} of the group: {task.name} has a utube, and such jobs keep no "
                    "results for a group"
                )
            check_later(task)
            if task.defaults.unique is not None:
                raise TypeError(
                    f"task {at} of the group: {task.name} is unique: its job may be that of "
                    "another group; only the last step of a chain can be unique, if it is no group"
                )
        check_on_fail(on_fail)

    @property
    def entry(self) -> GroupEntry:
        """The group as a step that follows."""
        return GroupEntry([task.name for task in self.tasks], self.on_fail, self.keep_s)

    def __repr__(self) -> str:
        return f"<group of {', '.join(task.name for task in self.tasks)}>"


def _no_task(at: int, found: object) -> str:
    """What is wrong with it as a task of a later group, and what to do."""
    if isinstance(found, Call):
        return (
            f"task {at} of the group is a call of {found.task.name}: group([call, call]) takes "
            "calls, as the first step; group(task, task) is a later step, whose tasks get the "
            "result of the step before"
        )
    return (
        f"task {at} of the group is {found!r}: a group in a chain has tasks, and no group and no "
        "chain in it; a task of it may enqueue one"
    )


def check_on_fail(on_fail: str) -> None:
    """ValueError for another word."""
    if on_fail not in ("stop", "wait", "continue"):
        raise ValueError(f"on_fail is stop, wait or continue, not {on_fail!r}")


def check_callback(callback: Task[..., Any], children: Iterable[Options]) -> None:
    """TypeError or ValueError unless the task can be the callback of a group of these."""
    queue = callback.defaults.queue
    if any(one.queue == queue and one.policies is None for one in children):
        raise ValueError(
            f"the callback {callback.name} needs a queue of its own: '{queue}' is that of "
            "children of the group"
        )
    if callback.defaults.unique is not None:
        raise TypeError(f"the callback {callback.name} of a group cannot be unique")
    if callback.defaults.retry_s == 0:
        raise ValueError(f"the callback {callback.name} comes back: retry_s is 1 or more, not 0")
    for word in NOT_OF_CALLBACKS:  # GROUP CREATE has no such options (T51.1)
        if getattr(callback.defaults, word):
            raise TypeError(f"the callback {callback.name} of a group cannot have {word}")
    callback.made_call(callback.defaults, ([],), {})


# ---- Chains (SPEC U11)


A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
D = TypeVar("D")
E = TypeVar("E")
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
                check_later(step)
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
        queues = self._queues()
        if len(" ".join(queues).encode()) > NAMES_BYTES or any(" " in name for name in queues):
            raise ValueError(
                f"the queues of the steps have more than {NAMES_BYTES} bytes, or a space"
            )

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
        for task in self._to_tubes():
            try:
                found = task.app.client.tube(task.defaults.queue).info().type
            except ReplyError as err:
                found = of_refusal(task, err)
            note_type(task, found)
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
        for task in self._to_tubes():
            try:
                found = (await task.app.aio_client.tube(task.defaults.queue).info()).type
            except ReplyError as err:
                found = of_refusal(task, err)
            note_type(task, found)
        if isinstance(self.first, Call):
            call = self._begins(self.first)
            id: str = (await call.task.add_async(call.options, call.args, call.kwargs)).id
            return ChainHandle(id, call.task.app, stops, None)
        made = self._opening(self.first)
        group = await made.opened_async(self._headers())
        return ChainHandle(group.id, made.callback.app, stops, group)

    def _to_tubes(self) -> list[Task[..., Any]]:
        """[U11] The later steps that only a tube takes, which nobody here makes (U11.1)."""
        found: list[Task[..., Any]] = []
        made: set[str] = set()
        for at, step in enumerate(self.steps):
            assert isinstance(step, Task | Later)
            for task in step.tasks if isinstance(step, Later) else (step,):
                own = task.app.tasks.values()
                made |= {one.defaults.queue for one in own if one.is_keyed}
                made |= task.app.keyed | task.app.tubes
                if isinstance(step, Task) and self._groups_before(at):
                    made.add(task.defaults.queue)  # of a callback
                if needs_tube(task.defaults):
                    found.append(task)
        return [task for task in found if task.defaults.queue not in made]

    def _entries(self) -> list[Entry]:
        return [one.entry if isinstance(one, Later) else name_of(one) for one in self.steps]

    def _headers(self) -> dict[str, str]:
        """What the first job carries of the others."""
        if not self.steps:
            return {}
        named = {CHAIN_HEADER: header_of(self._entries())}
        queues = self._queues()
        return {**named, QUEUES_HEADER: " ".join(queues)} if queues else named

    def _queues(self) -> list[str]:
        """[U11] The queues of the steps, if there are others than that of the first (U11.9)."""
        found: dict[str, None] = {}
        for step in self.steps:
            assert isinstance(step, Task | Later)
            for task in step.tasks if isinstance(step, Later) else (step,):
                found[task.defaults.queue] = None
        own = self.first.options.queue if isinstance(self.first, Call) else None
        return [] if list(found) == [own] else list(found)

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


def check_later(task: Task[..., Any]) -> None:
    """TypeError for a later step that cannot be added.

    Neither one with a key: the worker that adds it gives it another (U11.2).
    """
    options = task.defaults
    if options.key is not None:
        raise TypeError(f"{task.name} has a key: only the first step of a chain can have one")
    of_tubes = [word for word in POLICIES if getattr(options, word) is not None]
    if needs_tube(options):
        of_tubes.insert(0, f"pri={options.pri}")
    of_queues = "retry_s=0" if options.retry_s == 0 else ""
    if options.replicate is not None and options.replicate > 1:
        of_queues = f"replicate={options.replicate}"
    if of_tubes and of_queues:
        raise TypeError(
            f"{task.name} has {of_tubes[0]}, which is for tubes, and no tube takes {of_queues}"
        )


def needs_tube(options: Options) -> bool:
    """Whether its `pri` is one that no queue has."""
    return options.pri is not None and options.pri > PRI_MAX


def of_refusal(task: Task[..., Any], err: ReplyError) -> str:
    """The type of the queue of a step for tubes, if that is not told; NoTube if it is none."""
    if isinstance(err, NoTube):
        own = task.defaults
        text = f"the step {task.name} has pri={own.pri}, and its queue {own.queue!r} is no tube"
        err.args = (f"{text}: pri is 0 to {PRI_MAX} there, or create the tube first",)
        raise err
    return ""  # this user may not know; the broker may still take the step


def note_type(task: Task[..., Any], found: str) -> None:
    """Remembers that the queue is a tube, if steps can be in it."""
    if found == KEYED:
        task.app.keyed.add(task.defaults.queue)


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
