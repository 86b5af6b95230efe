"""Makes tasks of functions, and has groups of tasks with options in common (SPEC U1).

A group knows no app until `App.include`: so the modules of a program import no app.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Container, Coroutine, Iterable, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, ParamSpec, Protocol, TypeVar, Unpack, overload

from tuque.worker.app.batches import WAIT_S, in_batches_of
from tuque.worker.app.options import Options, TaskOptions, check_names, renamed
from tuque.worker.app.task import AsyncTask, Task

if TYPE_CHECKING:
    from tuque.worker.app.app import App

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

QUEUE_OF_APP: Final = "(of the app)"  # until there is one


class Register(Protocol):
    """What `app.task(...)` returns: a decorator."""

    @overload
    def __call__(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> AsyncTask[P, R]: ...

    @overload
    def __call__(self, function: Callable[P, R], /) -> Task[P, R]: ...


class RegisterBatch(Protocol):
    """What `app.task(batch=...)` returns: a decorator of a function of many jobs' arguments."""

    @overload
    def __call__(
        self, function: Callable[[list[T]], Coroutine[Any, Any, Any]], /
    ) -> AsyncTask[[T], Any]: ...

    @overload
    def __call__(self, function: Callable[[list[T]], Any], /) -> Task[[T], Any]: ...


class Tasks:
    """Tasks of one module, with options in common: `mail = Tasks(queue="mail", attempts=9)`.

    The keywords are those of `TaskOptions`. `@mail.task` is as `@app.task`, and needs no app;
    `app.include(mail)` gives the tasks to one, also those that are defined later. Before that a
    task can be called, and not enqueued: ConfigError.
    """

    def __init__(self, **options: Unpack[TaskOptions]) -> None:
        check_names(options)
        self._options = renamed(options)
        alone(self._options)
        self._app: App | None = None
        self._tasks: list[Task[..., Any]] = []

    def __repr__(self) -> str:
        return f"<Tasks of {len(self._tasks)}>"

    @overload
    def task(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> AsyncTask[P, R]: ...

    @overload
    def task(self, function: Callable[P, R], /) -> Task[P, R]: ...

    @overload
    def task(
        self,
        /,
        *,
        name: str | None = None,
        aliases: tuple[str, ...] = (),
        **options: Unpack[TaskOptions],
    ) -> Register: ...

    @overload
    def task(
        self,
        /,
        *,
        batch: int,
        batch_wait_s: float = WAIT_S,
        name: str | None = None,
        aliases: tuple[str, ...] = (),
        **options: Unpack[TaskOptions],
    ) -> RegisterBatch: ...

    def task(
        self,
        function: Callable[..., Any] | None = None,
        /,
        *,
        name: str | None = None,
        aliases: tuple[str, ...] = (),
        batch: int | None = None,
        batch_wait_s: float | None = None,
        **options: Unpack[TaskOptions],
    ) -> Any:
        """Makes a task of a function, as `App.task` does; its own options are nearer."""
        scope = sys._getframe(1).f_locals  # for annotations that name a function's local classes
        check_names(options)
        given: TaskOptions = {**self._options, **renamed(options)}
        own = alone(given)

        def register(function: Callable[..., Any]) -> Task[..., Any]:
            names = names_of(function, name, aliases)
            function = batched(function, batch, batch_wait_s, scope)
            check_new(names, [name for task in self._tasks for name in task.names])
            if self._app is not None:
                self._app.check_new(names)
            task = defined(function, names, given, scope)
            task.check_policies(own)
            if self._app is not None:
                self._app.add(task)
            self._tasks.append(task)
            return task

        return register if function is None else register(function)

    def join(self, app: App) -> None:
        """[U1] Gives the tasks to the app, all or none (U1.15); ValueError if they have one."""
        if self._app is not None:
            raise ValueError("these Tasks are in an app already: include them once")
        for task in self._tasks:
            app.check_new(task.names)
            app.options_of(task.name, task.given)
        self._app = app
        for task in self._tasks:
            app.add(task)


def names_of(function: Callable[..., Any], name: str | None, aliases: object) -> tuple[str, ...]:
    """The name of the task of a function, and its former ones; TypeError for what can be none."""
    if not callable(function):
        raise TypeError(f"app.task takes a function, not {function!r}")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):  # U1.12
        raise TypeError(
            f"app.task: {module_of(function)}.{function.__qualname__} has a yield: a call of "
            "it would run nothing. Return a list, or report parts with progress()"
        )
    if name is None and not hasattr(function, "__qualname__"):
        raise TypeError(f"app.task: {function!r} has no name, give one: app.task(name='...')")
    if not isinstance(aliases, tuple) or not all(one and isinstance(one, str) for one in aliases):
        raise TypeError(f"aliases is a tuple of names, such as ('old.name',), not {aliases!r}")
    return name or f"{module_of(function)}.{function.__qualname__}", *aliases


def check_new(names: Iterable[str], there: Container[str]) -> None:
    """ValueError for a name that another task has."""
    for name in names:
        if name in there:
            raise ValueError(f"there is a task {name} already")


def defined(
    function: Callable[..., Any],
    names: tuple[str, ...],
    given: TaskOptions,
    scope: Mapping[str, Any],
) -> Task[..., Any]:
    """A task without an app yet."""
    kind = AsyncTask if inspect.iscoroutinefunction(function) else Task
    return kind(function, names[0], given, scope, names[1:])


def batched(
    function: Callable[..., Any],
    most: int | None,
    wait_s: float | None,
    scope: Mapping[str, Any],
) -> Callable[..., Any]:
    """The function for one job; TypeError or ValueError if `batch` is given and wrong (U15.1)."""
    if most is None and wait_s is not None:
        raise TypeError("batch_wait_s needs batch: how many jobs the function takes at once")
    if most is None:
        return function
    return in_batches_of(function, most, WAIT_S if wait_s is None else wait_s, scope)


def alone(given: TaskOptions) -> Options:
    """The options without those of an app; TypeError or ValueError if they are wrong in each."""
    whole: TaskOptions = {"queue": QUEUE_OF_APP, **given}
    return Options(**whole)


def check_routes(routes: object) -> dict[str, str]:
    """The routes of an app; TypeError or ValueError unless they are queues by pattern."""
    if not isinstance(routes, Mapping):
        raise TypeError(f"routes is a mapping of patterns to queues, not {routes!r}")
    for pattern, queue in routes.items():
        if not isinstance(pattern, str) or not isinstance(queue, str):
            raise TypeError(
                f"routes is a mapping of patterns to queues, as {{'shop.mail.*': 'mail'}}, not of "
                f"{pattern!r} to {queue!r}"
            )
        if not pattern or not queue:
            raise ValueError(f"routes: {pattern!r} to {queue!r}: neither may be empty")
    return dict(routes)


def routed(name: str, routes: Mapping[str, str]) -> str | None:
    """[U1] The queue of the first pattern that fits the name of a task, if one does (U1.14)."""
    return next((to for pattern, to in routes.items() if fnmatchcase(name, pattern)), None)


def module_of(function: Callable[..., Any]) -> str:
    """The name under which a worker imports the function's module, even of a script."""
    if function.__module__ != "__main__":
        return function.__module__
    main = sys.modules["__main__"]
    spec = getattr(main, "__spec__", None)
    if spec is not None and spec.name:
        return str(spec.name)
    return Path(getattr(main, "__file__", None) or "__main__").stem
