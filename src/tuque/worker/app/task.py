"""A task: a function that can be called now, or enqueued with the same arguments and types.

Decides what an envelope holds; arguments.py restores the declared types. Knows the app only as a
source of clients; nothing of pools and fetching.
"""

from __future__ import annotations

import datetime as dt
import inspect
from collections import deque
from collections.abc import (
    AsyncIterable,
    AsyncIterator,
    Callable,
    Coroutine,
    Iterable,
    Iterator,
    Mapping,
)
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Generic, ParamSpec, TypeVar, Unpack

from tuque.client.pipeline import unhurried
from tuque.client.retry import own
from tuque.errors import Cancelled, ConfigError, Error, IsTube, NoTube
from tuque.worker.app.arguments import UNTYPED, Arguments, Bound, returned_type
from tuque.worker.app.batches import batches_of
from tuque.worker.app.codec import Codec, Envelope
from tuque.worker.app.decisions import Limits, backoff_of
from tuque.worker.app.enqueue import (
    Adding,
    Batch,
    Call,
    Usual,
    check_calls,
    envelope_of,
    in_batches,
    in_batches_async,
    new_tube,
)
from tuque.worker.app.handle import Handle
from tuque.worker.app.options import (
    DELIVERIES_MAX,
    KEEP_S,
    Options,
    TaskOptions,
    check_delay,
    check_instant,
    check_names,
    check_of_job,
    renamed,
)

if TYPE_CHECKING:
    from tuque.worker.app.app import App

KEYED: Final = "tasks"  # the type of tubes with keys
UNCHANGED: Final = (None, None, None)
SPREAD: Final = "tuque.spread"  # the task between two groups of a chain

P = ParamSpec("P")
R = TypeVar("R")


class RetryLater(Exception):
    """Raised by a task: run this job again, after `delay_s` or after the task's back-off.

    That uses up no attempt. With `counted` it does: the run has failed, so the last one of
    `attempts` makes the job a dead letter. Raises TypeError or ValueError itself if the delay is
    invalid.
    """

    def __init__(
        self,
        reason: str = "asked to run later",
        *,
        delay_s: float | None = None,
        counted: bool = False,
    ) -> None:
        super().__init__(reason)
        check_delay(delay_s)
        if not isinstance(counted, bool):
            raise TypeError(f"counted is a bool, not {counted!r}")
        self.delay_s = delay_s
        self.counted = counted


class Reject(Exception):
    """Raised by a task: this job can never succeed; it becomes a dead letter at once."""


class TimeLimit(Cancelled):
    """Raised inside a task: its run is over its time limit, or over its soft limit."""


class Step(Generic[P, R]):
    """What may follow in a chain: a task, or a group of tasks; it gets the result before it."""


class Prepared(Generic[P, R]):
    """A task with other options for the jobs enqueued through it."""

    def __init__(self, task: Task[P, R], options: Options) -> None:
        self._task = task
        self._options = options
        self._usual: Usual[R] = Usual(task, options)

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        """Adds one job and returns its handle; raises what `tuque.Client.addjob` raises."""
        return self._task.add_now(self._options, args, kwargs, self._usual)

    async def enqueue_async(self, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        """Like `enqueue`, for asyncio programs."""
        return await self._task.add_async(self._options, args, kwargs, self._usual)

    def enqueue_at(self, when: dt.datetime, /, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        """Like `Task.enqueue_at`, with these options."""
        return self._task.add_now(self._task.later(self._options, when), args, kwargs)

    async def enqueue_at_async(
        self, when: dt.datetime, /, *args: P.args, **kwargs: P.kwargs
    ) -> Handle[R]:
        """Like `enqueue_at`, for asyncio programs."""
        return await self._task.add_async(self._task.later(self._options, when), args, kwargs)

    def call(self, *args: P.args, **kwargs: P.kwargs) -> Call[R]:
        """A call with these options, for `Task.enqueue_many`."""
        return self._task.made_call(self._options, args, kwargs)


class Task(Step[P, R]):
    """The result of `@app.task` on a function."""

    def __init__(
        self,
        function: Callable[P, R],
        name: str,
        given: TaskOptions,
        scope: Mapping[str, Any] | None = None,
        aliases: tuple[str, ...] = (),
    ) -> None:
        """`given` are its own options; `scope` has the local names where it is defined.

        `aliases`: former names of the task, whose jobs it runs as well.
        """
        self.function = function
        self.batches = batches_of(function)
        self.name = name
        self.aliases = aliases
        self.given = given
        self._app: App | None = None
        self._defaults: Options | None = None
        self._usual: Usual[R] | None = None
        self._keeps = False
        self._limits: Limits | None = None  # of a job that says nothing else
        self.is_async: bool = inspect.iscoroutinefunction(function)
        self._arguments = Arguments(function, name, scope or {})
        self.returns = returned_type(function, name, scope or {})
        self.__doc__ = function.__doc__

    def join(self, app: App, defaults: Options) -> None:
        """Gives the task its app and all its options; TypeError for a policy by no argument."""
        self.check_policies(defaults)
        self._app, self._defaults = app, defaults
        self._usual = Usual(self, defaults)
        self._keeps = self.keep_s(defaults) > 0
        self._limits = None
        self._limits = self.limits(Envelope(self.name))

    @property
    def names(self) -> tuple[str, ...]:
        """Its name, and its former ones."""
        return self.name, *self.aliases

    @property
    def app(self) -> App:
        """The app of the task; ConfigError if its `Tasks` are in none yet."""
        if self._app is None:
            raise ConfigError(f"task {self.name} is in no app yet: app.include() its Tasks first")
        return self._app

    @property
    def defaults(self) -> Options:
        """The options of the task; ConfigError before it has an app."""
        if self._defaults is None:
            raise ConfigError(f"task {self.name} is in no app yet: app.include() its Tasks first")
        return self._defaults

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Calls the function directly; enqueues nothing."""
        function = self.function if self.batches is None else self.batches.function
        return function(*args, **kwargs)

    def __repr__(self) -> str:
        queue = "?" if self._defaults is None else self._defaults.queue
        return f"<task {self.name} queue={queue}>"

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        """Adds one job and returns its handle; raises what `tuque.Client.addjob` raises."""
        return self.add_now(self.defaults, args, kwargs, self._usual)

    async def enqueue_async(self, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        """Like `enqueue`, for asyncio programs."""
        return await self.add_async(self.defaults, args, kwargs, self._usual)

    def enqueue_in(self, delay_s: float, /, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        """Like `enqueue`, but no worker gets the job before the delay is over."""
        return self.add_now(replace(self.defaults, delay_s=delay_s), args, kwargs)

    async def enqueue_in_async(
        self, delay_s: float, /, *args: P.args, **kwargs: P.kwargs
    ) -> Handle[R]:
        """Like `enqueue_in`, for asyncio programs."""
        return await self.add_async(replace(self.defaults, delay_s=delay_s), args, kwargs)

    def enqueue_at(self, when: dt.datetime, /, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        """Like `enqueue`, but no worker gets the job before that time.

        It is by the clock of this machine; one that is over is now. TypeError without a zone.
        """
        return self.add_now(self.later(self.defaults, when), args, kwargs)

    async def enqueue_at_async(
        self, when: dt.datetime, /, *args: P.args, **kwargs: P.kwargs
    ) -> Handle[R]:
        """Like `enqueue_at`, for asyncio programs."""
        return await self.add_async(self.later(self.defaults, when), args, kwargs)

    def later(self, options: Options, when: dt.datetime) -> Options:
        """[U1] The options of a job that waits until then (U1.16)."""
        check_instant("enqueue_at: the time", when)
        delay_s = (when - self.app.now).total_seconds()
        return replace(options, delay_s=max(0.0, delay_s))

    def options(self, **changes: Unpack[TaskOptions]) -> Prepared[P, R]:
        """The task with some of its `Options` changed: `add.options(delay_s=5).enqueue(1, 2)`."""
        check_names(changes)
        options = replace(self.defaults, **renamed(changes))
        check_of_job(changes)
        self.check_policies(options)
        return Prepared(self, options)

    def check_policies(self, options: Options) -> None:
        """TypeError for a policy by what is no argument and no header.

        ValueError for a limit within which no batch is called.
        """
        policies = options.policies
        if policies is not None:
            policies.check(self.name, self._arguments.signature, options.headers)
        if self.batches is not None:
            self.batches.check(options)

    def check_step(self, returned: Any) -> None:
        """TypeError unless the task can get a result of that type, and nothing else (U11.1)."""
        self._arguments.check_step(returned)

    @property
    def is_keyed(self) -> bool:
        """Whether the first job of it makes its queue a tube of type tasks (U1.8)."""
        return self.defaults.policies is not None

    def values(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """The arguments of a call by their names, also those left out."""
        bound = self._arguments.signature.bind(*args, **kwargs)
        bound.apply_defaults()
        return dict(bound.arguments)

    def call(self, *args: P.args, **kwargs: P.kwargs) -> Call[R]:
        """A call that is not enqueued yet; TypeError for arguments that would not arrive."""
        return self.made_call(self.defaults, args, kwargs)

    def enqueue_many(self, calls: Iterable[Call[R]]) -> list[Handle[R]]:
        """[U1] Adds a job for each call, together; returns their handles in the same order.

        Nothing is sent if a call is refused here. Raises `tuque.errors.EnqueueFailed` if the broker
        took some of them only: it has the handles of those, and an error for each other one.
        """
        return self._add_all(Batch(self), calls)

    async def enqueue_many_async(self, calls: Iterable[Call[R]]) -> list[Handle[R]]:
        """Like `enqueue_many`, for asyncio programs: others run in between, each 5 ms (U1.11)."""
        return await self._add_all_async(Batch(self), calls)

    def enqueue_iter(self, calls: Iterable[Call[R]]) -> Iterator[Handle[R]]:
        """[U1] Like `enqueue_many`, of any number of calls: handles come 500 at a time (U1.20).

        Calls are taken from the iterable as it goes on. `added` of `EnqueueFailed` has handles
        that were not yielded.
        """
        batches = in_batches(self, check_calls(calls))
        return (one for batch, some in batches for one in self._add_all(batch, some))

    async def enqueue_iter_async(
        self, calls: Iterable[Call[R]] | AsyncIterable[Call[R]]
    ) -> AsyncIterator[Handle[R]]:
        """Like `enqueue_iter`, for asyncio programs; takes an asynchronous iterable, too."""
        async for batch, some in in_batches_async(self, calls):
            for one in await self._add_all_async(batch, some):
                yield one

    def _add_all(self, batch: Batch[R], calls: Iterable[Call[R]]) -> list[Handle[R]]:
        """Adds the calls to an empty batch, and their jobs to the broker."""
        reach = self.app.reach
        deque(batch.add(calls), 0)
        with batch.followed() as follower:
            while batch:
                for name, one in batch.tubes().items():
                    self._make_tube(name, one)
                pipeline = self.app.client.pipeline()
                deque(batch.fill(pipeline), 0)
                try:
                    if reach.is_lost:
                        reach.prove(self.app.client)
                    answers: list[Any] | Error = pipeline.execute(raise_on_error=False)
                except own(Error) as err:
                    reach.failed(err, batch.largest)
                    answers = err
                deque(batch.take(answers), 0)
            return batch.handles(follower)

    async def _add_all_async(self, batch: Batch[R], calls: Iterable[Call[R]]) -> list[Handle[R]]:
        """Like `_add_all`, for asyncio programs."""
        reach = self.app.reach
        await unhurried(batch.add(calls))
        with batch.followed() as follower:
            while batch:
                for name, one in batch.tubes().items():
                    await self._make_tube_async(name, one)
                pipeline = self.app.aio_client.pipeline()
                await unhurried(batch.fill(pipeline))
                try:
                    if reach.is_lost:
                        await reach.prove_async(self.app.aio_client)
                    answers: list[Any] | Error = await pipeline.execute(raise_on_error=False)
                except own(Error) as err:
                    reach.failed(err, batch.largest)
                    answers = err
                await unhurried(batch.take(answers))
            return batch.handles(follower)

    def _make_tube(self, name: str, one: Adding[R]) -> None:
        """[U1] Makes the tube of a task with a policy (U1.8)."""
        client, reach = self.app.client, self.app.reach
        try:
            if reach.is_lost:
                reach.prove(client)
            client.tube(name).create(KEYED, timeout=reach.limit_s, **new_tube(one))
        except own(Error) as err:
            reach.failed(err)
            raise
        one.on_keyed()

    async def _make_tube_async(self, name: str, one: Adding[R]) -> None:
        """Like `_make_tube`, for asyncio programs."""
        client, reach = self.app.aio_client, self.app.reach
        try:
            if reach.is_lost:
                await reach.prove_async(client)
            await client.tube(name).create(KEYED, timeout=reach.limit_s, **new_tube(one))
        except own(Error) as err:
            reach.failed(err)
            raise
        one.on_keyed()

    def made_call(self, options: Options, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call[R]:
        """A call with these options."""
        self._arguments.check(args, kwargs, options.codec)
        return Call(self, options, args, kwargs)

    def check(self, args: tuple[Any, ...], kwargs: dict[str, Any], codec: Codec) -> None:
        """TypeError unless the function would receive these arguments as given here."""
        self._arguments.check(args, kwargs, codec)

    def body(
        self,
        options: Options,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        headers: dict[str, str] | None = None,
    ) -> bytes:
        """The job body for a call; TypeError if the function does not accept these arguments."""
        self._arguments.check(args, kwargs, options.codec)
        return envelope_of(self, options, args, kwargs, headers)

    def add_now(
        self,
        options: Options,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        usual: Usual[R] | None = None,
    ) -> Handle[R]:
        """Adds a job with these options through the app's client; `usual` is of the options."""
        if usual is not None and usual.serves():
            add = usual.call(args, kwargs)
            try:
                return usual.handle(self.app.client.run(add))
            except IsTube:
                usual.on_tube()
            except own(Error) as err:
                self.app.reach.failed(err, add.args[2])
                raise
        adding, reach = Adding(Call(self, options, args, kwargs)), self.app.reach
        ms = reach.copies_ms
        with adding.followed() as follower:
            while True:
                client = self.app.client
                if adding.needs_tube:
                    self._make_tube(options.queue, adding)
                is_known = adding.goes_to_tube
                queue, body, asked = adding.words()
                try:
                    if reach.is_lost:
                        reach.prove(client)
                    if adding.has_key:
                        new = client.addjob_new(queue, body, timeout_ms=ms, **asked)
                        handle = adding.handle(*new)
                    else:
                        handle = adding.handle(client.addjob(queue, body, timeout_ms=ms, **asked))
                except IsTube:
                    if is_known:
                        raise
                    adding.on_tube()
                except NoTube:
                    if not adding.on_no_tube():
                        raise
                except own(Error) as err:
                    reach.failed(err, body)
                    raise
                else:
                    follower.added(0, handle)
                    return handle

    async def add_async(
        self,
        options: Options,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        usual: Usual[R] | None = None,
    ) -> Handle[R]:
        """Adds a job with these options through the app's client for the running loop."""
        if usual is not None and usual.serves():
            add = usual.call(args, kwargs)
            try:
                return usual.handle(await self.app.aio_client.run(add))
            except IsTube:
                usual.on_tube()
            except own(Error) as err:
                self.app.reach.failed(err, add.args[2])
                raise
        adding, reach = Adding(Call(self, options, args, kwargs)), self.app.reach
        ms = reach.copies_ms
        with adding.followed() as follower:
            while True:
                client = self.app.aio_client
                if adding.needs_tube:
                    await self._make_tube_async(options.queue, adding)
                is_known = adding.goes_to_tube
                queue, body, asked = adding.words()
                try:
                    if reach.is_lost:
                        await reach.prove_async(client)
                    if adding.has_key:
                        new = await client.addjob_new(queue, body, timeout_ms=ms, **asked)
                        handle = adding.handle(*new)
                    else:
                        id = await client.addjob(queue, body, timeout_ms=ms, **asked)
                        handle = adding.handle(id)
                except IsTube:
                    if is_known:
                        raise
                    adding.on_tube()
                except NoTube:
                    if not adding.on_no_tube():
                        raise
                except own(Error) as err:
                    reach.failed(err, body)
                    raise
                else:
                    follower.added(0, handle)
                    return handle

    def keep_s(self, options: Options) -> float:
        """How long results are kept, in seconds."""
        if options.keep_s is not None:
            return options.keep_s
        return 0.0 if self.returns is UNTYPED or self.returns is type(None) else KEEP_S

    def keeps(self, envelope: Envelope) -> bool:
        """Whether the result of a job is kept."""
        return self._keeps if envelope.keep_s is None else envelope.keep_s > 0

    def limits(self, envelope: Envelope) -> Limits:
        """The limits of a job of this task."""
        changes = envelope.max_deliveries, envelope.backoff, envelope.time_limit_s
        if changes == UNCHANGED and self._limits is not None:
            return self._limits
        own = self.defaults
        time_limit_s = own.time_limit_s if envelope.time_limit_s is None else envelope.time_limit_s
        return Limits(
            max_deliveries=min(max(1, envelope.max_deliveries or own.attempts), DELIVERIES_MAX),
            backoff=backoff_of(envelope.backoff) or own.backoff,
            time_limit_s=time_limit_s if time_limit_s and time_limit_s > 0 else None,
            soft_limit_s=own.soft_limit_s,
            cancel_grace_s=own.cancel_grace_s,
        )

    def bind(self, envelope: Envelope, is_result: bool = False) -> Bound:
        """The arguments of a job in their declared types; BadArguments if they do not fit.

        `is_result`: they are results of other tasks (U2.19).
        """
        return self._arguments.bind(envelope, is_result)

    def by_name(self, envelope: Envelope) -> inspect.BoundArguments:
        """Like `bind`, by the names of the arguments."""
        return self._arguments.by_name(envelope)


class AsyncTask(Task[P, R]):
    """The result of `@app.task` on a coroutine function; `R` is what the coroutine returns."""

    def __call__(  # type: ignore[override]  # a plain call of it is not the result yet
        self, *args: P.args, **kwargs: P.kwargs
    ) -> Coroutine[Any, Any, R]:
        """Calls the function directly; enqueues nothing."""
        made: Any = super().__call__(*args, **kwargs)
        return made  # type: ignore[no-any-return]  # the function is a coroutine function


def spread(results: list[Any]) -> list[Any]:
    """[U11] The callback of a group that another one follows: hands the results on (U11.8)."""
    return results


def spread_in(app: App, options: Options) -> Task[..., Any]:
    """The task `spread`, for the queue of another one."""
    own = Options(queue=options.queue, retry_s=options.retry_s or None, codec=options.codec)
    made: Task[..., Any] = Task(spread, SPREAD, {})
    made.join(app, own)
    return made
