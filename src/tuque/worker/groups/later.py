"""group(b, c): a group of tasks as a later step of a chain (SPEC U11.6).

Decides what may be such a group, and a callback. Knows no broker.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, Generic, ParamSpec, Protocol, TypeVar

from tuque.worker.groups.headers import GroupEntry, OnFail
from tuque.worker.tasks.adding import Call
from tuque.worker.tasks.options import Options
from tuque.worker.tasks.task import Step, Task

P = ParamSpec("P")
R = TypeVar("R")
A_contra = TypeVar("A_contra", contravariant=True)
R_co = TypeVar("R_co", covariant=True)

CHILDREN_MAX: Final = 10_000


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
    callback.made_call(callback.defaults, ([],), {})
