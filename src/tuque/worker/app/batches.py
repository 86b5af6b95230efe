"""Tasks that take the arguments of many jobs at once: `@app.task(batch=100)` (SPEC U15).

Each job is one of its own, with a run, attempts and a result. The runs that last at the same time
in a process meet here: the function is called once for all of them.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import repeat
from typing import Any, Final

from tuque.worker.app.decisions import SECONDS_MAX
from tuque.worker.app.options import Options, check_number

BATCH_MAX: Final = 10_000
WAIT_S: Final = 1.0
LISTS: Final = (list, Sequence, Iterable)
NO_TYPE: Final = inspect.Parameter.empty


class Batch:
    """The items of some runs, and what became of each."""

    def __init__(self) -> None:
        self.items: list[Any] = []
        self.ends: list[Any] = []  # a result or an exception for each
        self.is_full = threading.Event()
        self.is_over = threading.Event()

    def take(self, returned: object) -> None:
        """[U15] What the function returned: a result or an exception for each (U15.2)."""
        count = len(self.items)
        if returned is None:
            self.ends = [None] * count
        elif isinstance(returned, list | tuple) and len(returned) == count:
            self.ends = list(returned)
        else:
            given = f"{len(returned)} results" if isinstance(returned, Sequence) else repr(returned)
            self.fail(ValueError(f"a batch of {count} jobs needs a list of {count}, not {given}"))

    def fail(self, err: BaseException) -> None:
        """All have failed."""
        self.ends = [err] * len(self.items)


class Batches:
    """The batches of one task in this process; the pool sets how many runs may last at a time."""

    def __init__(self, function: Callable[..., Any], most: int, wait_s: float) -> None:
        self.function = function
        self.most = most
        self.places = 1
        self._wait_s = wait_s
        self._lock = threading.Lock()
        self._open: Batch | None = None
        # on a loop
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiting: dict[asyncio.Future[Any], Any] = {}
        self._alarm: asyncio.TimerHandle | None = None
        self._calls: set[asyncio.Task[None]] = set()

    @property
    def _full(self) -> int:
        """How many runs fill a batch: no more can come."""
        return min(self.most, self.places)

    def check(self, options: Options) -> None:
        """ValueError for a limit that ends each run before its batch is called (U15.1)."""
        for name in ("soft_limit_s", "time_limit_s"):
            limit_s = getattr(options, name)
            if limit_s is not None and limit_s <= self._wait_s:
                raise ValueError(
                    f"{name} {limit_s:g} is not more than batch_wait_s {self._wait_s:g}: a run "
                    "would be over before its batch is called"
                )

    def run(self, item: Any) -> Any:
        """The result for one job, in its thread; the first of a batch calls the function."""
        with self._lock:
            batch = self._open = self._open or Batch()
            at = len(batch.items)
            batch.items.append(item)
            if len(batch.items) >= self._full:
                self._open = None
                batch.is_full.set()
        if at == 0:
            batch.is_full.wait(self._wait_s)
            with self._lock:
                if self._open is batch:
                    self._open = None
            if not batch.is_over.is_set():  # U15.4
                self._run_now(batch)
        batch.is_over.wait()
        return _end(batch.ends[at])

    def _run_now(self, batch: Batch) -> None:
        try:
            batch.take(self.function(list(batch.items)))
        except BaseException as err:
            batch.fail(err)
        finally:
            batch.is_over.set()

    async def run_async(self, item: Any) -> Any:
        """The same on a loop, whose first job waits no longer than the others."""
        loop = self._loop = asyncio.get_running_loop()
        mine: asyncio.Future[Any] = loop.create_future()
        self._waiting = {one: it for one, it in self._waiting.items() if one.get_loop() is loop}
        self._waiting[mine] = item
        if len(self._waiting) >= self._full:
            self._begin()
        elif len(self._waiting) == 1:
            self._alarm = loop.call_later(self._wait_s, self._begin)
        try:
            return _end(await mine)
        finally:
            self._waiting.pop(mine, None)

    def _taken(self) -> dict[asyncio.Future[Any], Any]:
        """The runs that wait on the loop, which now do so no more."""
        waiting, self._waiting = self._waiting, {}
        if self._alarm is not None:
            self._alarm.cancel()
        return waiting

    def _begin(self) -> None:
        """[U15] Calls the function in a task of its own: a cancelled run ends no other (U15.3)."""
        waiting = self._taken()
        call = asyncio.ensure_future(self._call(waiting))
        self._calls.add(call)
        call.add_done_callback(self._calls.discard)

    async def _call(self, waiting: dict[asyncio.Future[Any], Any]) -> None:
        batch = Batch()
        batch.items = list(waiting.values())
        try:
            if batch.items:
                batch.take(await self.function(list(batch.items)))
        except (SystemExit, KeyboardInterrupt, asyncio.CancelledError) as err:
            batch.fail(RuntimeError(f"the call for a batch ended by {type(err).__name__}"))
            raise
        except BaseException as err:
            batch.fail(err)
        finally:
            _set(waiting, batch.ends)

    def stop(self, why: BaseException) -> None:
        """[U15] Ends the runs that wait for others with that: none is called (U15.4).

        May be called in any thread.
        """
        with self._lock:
            batch, self._open = self._open, None
            if batch is not None:
                batch.fail(why)
                batch.is_over.set()
                batch.is_full.set()
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(lambda: _set(self._taken(), repeat(why)))


def _set(waiting: Iterable[asyncio.Future[Any]], ends: Iterable[Any]) -> None:
    """Tells runs how their jobs ended."""
    for one, end in zip(waiting, ends, strict=False):
        if not one.done():
            one.set_result(end)


def _end(end: Any) -> Any:
    """The result of a job, or its exception raised."""
    if isinstance(end, BaseException):
        raise end
    return end


def batches_of(function: Callable[..., Any]) -> Batches | None:
    """Those of the function of a task, if it has any."""
    found: Batches | None = getattr(function, "tuque_batches", None)
    return found


def in_batches_of(
    function: Callable[..., Any], most: object, wait_s: object, scope: Mapping[str, Any]
) -> Callable[..., Any]:
    """[U15] The function of a task that takes one job's argument (U15.1).

    TypeError or ValueError unless `function` takes one list and the numbers are in range.
    """
    if isinstance(most, bool) or not isinstance(most, int):
        raise TypeError(f"batch is a whole number of jobs, not {most!r}")
    if not 1 <= most <= BATCH_MAX:
        raise ValueError(f"batch is from 1 to {BATCH_MAX} jobs, not {most}")
    check_number("batch_wait_s", wait_s)
    if not isinstance(wait_s, int | float) or not 0 <= wait_s <= SECONDS_MAX:
        raise ValueError(f"batch_wait_s is 0 seconds or more, not {wait_s}")
    parameters = list(inspect.signature(function).parameters.values())
    if len(parameters) != 1 or parameters[0].kind is not inspect.Parameter.POSITIONAL_OR_KEYWORD:
        raise TypeError(
            f"a task with batch= takes one argument, a list with that of each job, not those of "
            f"{function!r}"
        )
    batches = Batches(function, most, wait_s)
    if inspect.iscoroutinefunction(function):

        async def later(item: Any) -> Any:
            return await batches.run_async(item)

        return _shaped(later, function, parameters[0], scope, batches)

    def now(item: Any) -> Any:
        return batches.run(item)

    return _shaped(now, function, parameters[0], scope, batches)


def _shaped(
    made: Any,
    function: Callable[..., Any],
    parameter: inspect.Parameter,
    scope: Mapping[str, Any],
    batches: Batches,
) -> Callable[..., Any]:
    """Gives it the name of the function, and the types of one job."""
    holder = types.SimpleNamespace(__annotations__=dict(function.__annotations__))
    known = getattr(function, "__globals__", {})
    try:
        hints = typing.get_type_hints(holder, known, dict(scope), include_extras=True)
    except NameError as err:
        raise TypeError(f"a type of {function!r} cannot be resolved: {err}") from None
    types_of: dict[str, Any] = {}
    if parameter.name in hints:
        types_of[parameter.name] = _item(hints[parameter.name], parameter.name)
    if "return" in hints:
        returned = hints["return"]
        types_of["return"] = returned if returned is type(None) else _item(returned, "its result")
    annotation = types_of.get(parameter.name, NO_TYPE)
    made.__signature__ = inspect.Signature([parameter.replace(annotation=annotation)])
    made.__annotations__ = types_of
    made.__doc__, made.__name__ = function.__doc__, getattr(function, "__name__", "batch")
    made.tuque_batches = batches
    return made  # type: ignore[no-any-return]  # a function with more attributes


def _item(hint: Any, what: str) -> Any:
    """The type of what a list has; exceptions are no results. TypeError for another type."""
    if hint is Any or hint in LISTS:
        return Any
    if typing.get_origin(hint) not in LISTS:
        raise TypeError(f"a task with batch= has lists: {what} is {hint!r}")
    (item,) = typing.get_args(hint)
    if isinstance(item, types.UnionType) or typing.get_origin(item) is typing.Union:
        kinds = [one for one in typing.get_args(item) if not _is_error(one)]
        return typing.Union[tuple(kinds)]  # noqa: UP007  # of a list that is made here
    return item


def _is_error(kind: object) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseException)
