"""A task: a function that can be called now, or enqueued with the same arguments and types.

Decides what an envelope holds and how its plain data becomes the declared arguments again. Knows
the app only as something that has clients; nothing of pools and fetching.
"""

from __future__ import annotations

import inspect
import math
import time
import typing
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Generic, ParamSpec, TypedDict, TypeVar, Unpack

import msgspec

from tuque.worker.codec import CODECS, Codec, Envelope, encode
from tuque.worker.policy import Backoff, Limits

if TYPE_CHECKING:
    from tuque.worker.app import App

P = ParamSpec("P")
R = TypeVar("R")

DEAD_SUFFIX: Final = ".dead"
VARIADIC: Final = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


class RetryLater(Exception):
    """Raised by a task: run this job again, after `delay_s` or after the task's back-off."""

    def __init__(self, reason: str = "asked to run later", *, delay_s: float | None = None) -> None:
        super().__init__(reason)
        self.delay_s = delay_s


class Reject(Exception):
    """Raised by a task: this job can never succeed; it goes to the dead-letter queue at once."""


class BadArguments(Exception):
    """The data of a job does not fit the declared arguments of its task."""


@dataclass(frozen=True)
class Options:
    """How the jobs of a task are added and what their failures cost.

    None leaves a choice to the broker (`retry_s`, `ttl_s`, `replicate`) or means that there is no
    limit (`time_limit_s`, `maxlen`). `dead_letter` None is the queue's name with `.dead` behind it.
    `pri` (less goes first) and `utube` (a sub-queue: one job at a time) are for a queue that is a
    tube.
    """

    queue: str = "default"
    codec: Codec = "json"
    delay_s: float | None = None
    retry_s: int | None = None
    ttl_s: int | None = None
    replicate: int | None = None
    maxlen: int | None = None
    pri: int | None = None
    utube: str | None = None
    max_deliveries: int = 5
    time_limit_s: float | None = None
    dead_letter: str | None = None
    backoff: Backoff = field(default_factory=Backoff)

    def __post_init__(self) -> None:
        if self.codec not in CODECS:
            raise ValueError(f"codec is one of {', '.join(CODECS)}, not {self.codec!r}")
        if self.max_deliveries < 1:
            raise ValueError(f"max_deliveries is 1 or more, not {self.max_deliveries}")
        if self.time_limit_s is not None and self.time_limit_s <= 0:
            raise ValueError(f"time_limit_s is more than 0 seconds, not {self.time_limit_s}")


class OptionChanges(TypedDict, total=False):
    """The fields of `Options` as keywords; change it together with them."""

    queue: str
    codec: Codec
    delay_s: float | None
    retry_s: int | None
    ttl_s: int | None
    replicate: int | None
    maxlen: int | None
    pri: int | None
    utube: str | None
    max_deliveries: int
    time_limit_s: float | None
    dead_letter: str | None
    backoff: Backoff


class Prepared(Generic[P]):
    """A task with options of its own for the jobs enqueued through it."""

    def __init__(self, task: Task[P, Any], options: Options) -> None:
        self._task = task
        self._options = options

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> str:
        """Adds one job and returns its id; raises what `tuque.Client.addjob` raises."""
        return self._task.add_now(self._options, args, kwargs)

    async def enqueue_async(self, *args: P.args, **kwargs: P.kwargs) -> str:
        """As `enqueue`, for asyncio programs."""
        return await self._task.add_async(self._options, args, kwargs)


class Task(Generic[P, R]):
    """What `@app.task` makes of a function."""

    def __init__(self, app: App, function: Callable[P, R], name: str, defaults: Options) -> None:
        self.app = app
        self.function = function
        self.name = name
        self.defaults = defaults
        self.is_async: bool = inspect.iscoroutinefunction(function)
        self._signature = inspect.signature(function)
        self._hints: dict[str, Any] | None = None
        self.__doc__ = function.__doc__

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Calls the function here and now; nothing is enqueued."""
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<task {self.name} queue={self.defaults.queue}>"

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> str:
        """Adds one job and returns its id; raises what `tuque.Client.addjob` raises."""
        return self.add_now(self.defaults, args, kwargs)

    async def enqueue_async(self, *args: P.args, **kwargs: P.kwargs) -> str:
        """As `enqueue`, for asyncio programs."""
        return await self.add_async(self.defaults, args, kwargs)

    def enqueue_in(self, delay_s: float, /, *args: P.args, **kwargs: P.kwargs) -> str:
        """As `enqueue`, but no worker gets the job before the delay has passed."""
        return self.add_now(replace(self.defaults, delay_s=delay_s), args, kwargs)

    async def enqueue_in_async(self, delay_s: float, /, *args: P.args, **kwargs: P.kwargs) -> str:
        """As `enqueue_in`, for asyncio programs."""
        return await self.add_async(replace(self.defaults, delay_s=delay_s), args, kwargs)

    def options(self, **changes: Unpack[OptionChanges]) -> Prepared[P]:
        """The task with some of its `Options` changed: `add.options(delay_s=5).enqueue(1, 2)`."""
        check_names(changes)
        return Prepared(self, replace(self.defaults, **changes))

    def body(self, options: Options, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes:
        """The job body for a call; TypeError when the function could not be called so."""
        try:
            self._signature.bind(*args, **kwargs)
        except TypeError as err:
            raise TypeError(f"task {self.name}: {err}") from None
        own = self.defaults
        envelope = Envelope(
            task=self.name,
            args=list(args),
            kwargs=kwargs,
            enqueued_at=time.time(),
            max_deliveries=_changed(options.max_deliveries, own.max_deliveries),
            time_limit_s=_changed(options.time_limit_s, own.time_limit_s),
            dead_letter=_changed(options.dead_letter, own.dead_letter),
        )
        return encode(envelope, options.codec)

    def add_now(self, options: Options, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        """Adds a job with these options through the app's client."""
        body = self.body(options, args, kwargs)
        return self.app.client.addjob(options.queue, body, **_asked(options))

    async def add_async(
        self, options: Options, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> str:
        """Adds a job with these options through the app's client for the running loop."""
        body = self.body(options, args, kwargs)
        return await self.app.aio_client.addjob(options.queue, body, **_asked(options))

    def limits(self, envelope: Envelope, queue: str) -> Limits:
        """What applies to a job of this task that came out of `queue`."""
        own = self.defaults
        return Limits(
            max_deliveries=max(1, envelope.max_deliveries or own.max_deliveries),
            dead_letter=envelope.dead_letter or own.dead_letter or queue + DEAD_SUFFIX,
            backoff=own.backoff,
            time_limit_s=envelope.time_limit_s or own.time_limit_s,
        )

    def bind(self, envelope: Envelope) -> inspect.BoundArguments:
        """The arguments of a job in their declared types; BadArguments when they do not fit."""
        try:
            bound = self._signature.bind(*envelope.args, **envelope.kwargs)
        except TypeError as err:
            raise BadArguments(str(err)) from None
        hints = self._type_hints()
        for name, value in bound.arguments.items():
            hint = hints.get(name, Any)
            if hint is Any or self._signature.parameters[name].kind in VARIADIC:
                continue
            bound.arguments[name] = _converted(name, value, hint)
        return bound

    def _type_hints(self) -> dict[str, Any]:
        """The declared types, looked up at the first run: names may be defined after the task."""
        if self._hints is None:
            try:
                self._hints = typing.get_type_hints(self.function)
            except (NameError, TypeError, AttributeError):
                self._hints = {}  # imported for type checking only: the plain data is passed on
        return self._hints


def check_names(options: OptionChanges) -> None:
    """TypeError for a keyword that is no field of `Options`, naming those that are."""
    unknown = [key for key in options if key not in Options.__dataclass_fields__]
    if unknown:
        known = ", ".join(Options.__dataclass_fields__)
        raise TypeError(f"no task option {', '.join(unknown)}; there are {known}")


def _converted(name: str, value: Any, hint: Any) -> Any:
    """A value in its declared type; as it is when the type is none that data can be made into."""
    if isinstance(hint, type) and type(value) is hint:
        return value
    try:
        return msgspec.convert(value, hint, strict=True)
    except msgspec.ValidationError as err:
        raise BadArguments(f"argument {name}: {err}") from None
    except TypeError:
        return value


T = TypeVar("T")


def _changed(value: T, default: T) -> T | None:
    """The value if it is not the task's default: the envelope carries only what differs."""
    return None if value == default else value


class _Asked(TypedDict):
    """What addjob is told of a task's options."""

    delay: int | None
    retry: int | None
    ttl: int | None
    replicate: int | None
    maxlen: int | None
    pri: int | None
    utube: str | None


def _asked(options: Options) -> _Asked:
    return {
        "delay": _whole_seconds(options.delay_s),
        "retry": options.retry_s,
        "ttl": options.ttl_s,
        "replicate": options.replicate,
        "maxlen": options.maxlen,
        "pri": options.pri,
        "utube": options.utube,
    }


def _whole_seconds(delay_s: float | None) -> int | None:
    """A delay as the broker takes it; rounded up, because no job may come too early."""
    if delay_s is None:
        return None
    if delay_s < 0:
        raise ValueError(f"a delay is 0 seconds or more, not {delay_s}")
    return math.ceil(delay_s)
