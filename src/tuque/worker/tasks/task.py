"""A task: a function that can be called now, or enqueued with the same arguments and types.

Decides what an envelope holds; arguments.py restores the declared types. Knows the app only as a
source of clients; nothing of pools and fetching.
"""

from __future__ import annotations

import inspect
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Generic, ParamSpec, TypedDict, TypeVar, Unpack

from tuque.worker.tasks.arguments import Arguments
from tuque.worker.tasks.codec import CODECS, Codec, Envelope, encode
from tuque.worker.tasks.policy import Backoff, Limits, backoff_of

if TYPE_CHECKING:
    from tuque.worker.tasks.app import App

P = ParamSpec("P")
R = TypeVar("R")

DEAD_SUFFIX: Final = ".dead"
DELIVERIES_MAX: Final = 2**31 - 1
TEXTS: Final = ("queue", "utube", "key", "dead_letter")
WHOLE_NUMBERS: Final = (
    *("max_deliveries", "retry_s", "ttl_s", "key_ttl_s", "replicate", "maxlen", "pri"),
)


def check_number(name: str, value: object) -> None:
    """TypeError unless the value is a number of seconds."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name} is a number of seconds, not {value!r}")


def check_delay(delay_s: float | None) -> None:
    """TypeError or ValueError unless the value is a delay."""
    if delay_s is None:
        return
    check_number("a delay", delay_s)
    if not 0 <= delay_s < math.inf:
        raise ValueError(f"a delay is 0 seconds or more, not {delay_s}")


class RetryLater(Exception):
    """Raised by a task: run this job again, after `delay_s` or after the task's back-off.

    Raises TypeError or ValueError itself if the delay is invalid.
    """

    def __init__(self, reason: str = "asked to run later", *, delay_s: float | None = None) -> None:
        super().__init__(reason)
        check_delay(delay_s)
        self.delay_s = delay_s


class Reject(Exception):
    """Raised by a task: this job can never succeed; it becomes a dead letter at once."""


@dataclass(frozen=True)
class Options:
    """How a task's jobs are added and what happens on failure.

    None leaves a choice to the broker (`retry_s`, `ttl_s`, `replicate`) or means no limit
    (`time_limit_s`, `maxlen`). `dead_letter` None is the queue's name plus `.dead`. `pri` (lower
    goes first) and `utube` (a sub-queue: one job at a time) are for queues that are tubes. `key`
    names one job: enqueuing the same key within `key_ttl_s` (a day) adds no second job, and a lost
    reply is asked for again.
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
    key: str | None = None
    key_ttl_s: int | None = None
    max_deliveries: int = 5
    time_limit_s: float | None = None
    dead_letter: str | None = None
    backoff: Backoff = field(default_factory=Backoff)

    def __post_init__(self) -> None:
        if self.codec not in CODECS:
            raise ValueError(f"codec is one of {', '.join(CODECS)}, not {self.codec!r}")
        check_texts(self)
        check_whole_numbers(self)
        check_delay(self.delay_s)
        if not 1 <= self.max_deliveries <= DELIVERIES_MAX:
            raise ValueError(
                f"max_deliveries is 1 or more, up to {DELIVERIES_MAX}, not {self.max_deliveries}"
            )
        if self.time_limit_s is not None:
            check_number("time_limit_s", self.time_limit_s)
            if not 0 < self.time_limit_s < math.inf:
                raise ValueError(f"time_limit_s is more than 0 seconds, not {self.time_limit_s}")
        if self.dead_letter == self.queue:
            raise ValueError(
                f"dead_letter is another queue than {self.queue!r}: "
                "a job that fails would come from there again for ever"
            )
        if not isinstance(self.backoff, Backoff):
            raise TypeError(f"backoff is a tuque.worker.Backoff, not {self.backoff!r}")
        if self.key_ttl_s is not None and self.key is None:
            raise ValueError("key_ttl_s needs a key")


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
    key: str | None
    key_ttl_s: int | None
    max_deliveries: int
    time_limit_s: float | None
    dead_letter: str | None
    backoff: Backoff


class Prepared(Generic[P]):
    """A task with other options for the jobs enqueued through it."""

    def __init__(self, task: Task[P, Any], options: Options) -> None:
        self._task = task
        self._options = options

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> str:
        """Adds one job and returns its id; raises what `tuque.Client.addjob` raises."""
        return self._task.add_now(self._options, args, kwargs)

    async def enqueue_async(self, *args: P.args, **kwargs: P.kwargs) -> str:
        """Like `enqueue`, for asyncio programs."""
        return await self._task.add_async(self._options, args, kwargs)


class Task(Generic[P, R]):
    """The result of `@app.task` on a function."""

    def __init__(
        self,
        app: App,
        function: Callable[P, R],
        name: str,
        defaults: Options,
        scope: Mapping[str, Any] | None = None,
    ) -> None:
        """`scope` has the local names where the function is defined."""
        self.app = app
        self.function = function
        self.name = name
        self.defaults = defaults
        self.is_async: bool = inspect.iscoroutinefunction(function)
        self._arguments = Arguments(function, name, scope or {})
        self.__doc__ = function.__doc__

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Calls the function directly; enqueues nothing."""
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<task {self.name} queue={self.defaults.queue}>"

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> str:
        """Adds one job and returns its id; raises what `tuque.Client.addjob` raises."""
        return self.add_now(self.defaults, args, kwargs)

    async def enqueue_async(self, *args: P.args, **kwargs: P.kwargs) -> str:
        """Like `enqueue`, for asyncio programs."""
        return await self.add_async(self.defaults, args, kwargs)

    def enqueue_in(self, delay_s: float, /, *args: P.args, **kwargs: P.kwargs) -> str:
        """Like `enqueue`, but no worker gets the job before the delay is over."""
        return self.add_now(replace(self.defaults, delay_s=delay_s), args, kwargs)

    async def enqueue_in_async(self, delay_s: float, /, *args: P.args, **kwargs: P.kwargs) -> str:
        """Like `enqueue_in`, for asyncio programs."""
        return await self.add_async(replace(self.defaults, delay_s=delay_s), args, kwargs)

    def options(self, **changes: Unpack[OptionChanges]) -> Prepared[P]:
        """The task with some of its `Options` changed: `add.options(delay_s=5).enqueue(1, 2)`."""
        check_names(changes)
        return Prepared(self, replace(self.defaults, **changes))

    def body(self, options: Options, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes:
        """The job body for a call; TypeError if the function does not accept these arguments."""
        self._arguments.check(args, kwargs, options.codec)
        own = self.defaults
        envelope = Envelope(
            task=self.name,
            args=list(args),
            kwargs=kwargs,
            enqueued_at=time.time(),
            max_deliveries=_changed(options.max_deliveries, own.max_deliveries),
            time_limit_s=_changed(options.time_limit_s or 0.0, own.time_limit_s or 0.0),
            dead_letter=_changed(options.dead_letter or "", own.dead_letter or ""),
            backoff=_changed(options.backoff.figures, own.backoff.figures),
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
        """The limits of a job of this task from `queue`."""
        own = self.defaults
        dead_letter = own.dead_letter if envelope.dead_letter is None else envelope.dead_letter
        time_limit_s = own.time_limit_s if envelope.time_limit_s is None else envelope.time_limit_s
        return Limits(
            max_deliveries=min(
                max(1, envelope.max_deliveries or own.max_deliveries), DELIVERIES_MAX
            ),
            dead_letter=dead_letter or queue + DEAD_SUFFIX,
            backoff=backoff_of(envelope.backoff) or own.backoff,
            time_limit_s=time_limit_s if time_limit_s and time_limit_s > 0 else None,
        )

    def bind(self, envelope: Envelope) -> inspect.BoundArguments:
        """The arguments of a job in their declared types; BadArguments if they do not fit."""
        return self._arguments.bind(envelope)


def check_whole_numbers(options: Options) -> None:
    """TypeError for an option that must be a whole number and is not."""
    for name in WHOLE_NUMBERS:
        value: object = getattr(options, name)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
            raise TypeError(f"{name} is a whole number, not {value!r}")


def check_texts(options: Options) -> None:
    """TypeError for a name that is not text, ValueError for one that cannot be encoded."""
    for name in TEXTS:
        value: object = getattr(options, name)
        if value is None:
            continue
        if not isinstance(value, str):
            raise TypeError(f"{name} is a str, not {value!r}")
        try:
            value.encode(errors="strict" if name == "dead_letter" else "surrogateescape")
        except UnicodeEncodeError:
            raise ValueError(f"{name} cannot be written as UTF-8: {value!a}") from None


def check_names(options: OptionChanges) -> None:
    """TypeError for a keyword that is not a field of `Options`, naming those that are."""
    unknown = [key for key in options if key not in Options.__dataclass_fields__]
    if unknown:
        known = ", ".join(Options.__dataclass_fields__)
        raise TypeError(f"no task option {', '.join(unknown)}; there are {known}")


T = TypeVar("T")


def _changed(value: T, default: T) -> T | None:
    """The value if it differs from the task's default: only these are in the envelope."""
    return None if value == default else value


class _Asked(TypedDict):
    """The arguments of addjob that follow from a task's options."""

    delay: int | None
    retry: int | None
    ttl: int | None
    replicate: int | None
    maxlen: int | None
    pri: int | None
    utube: str | None
    dedupe: str | None
    dedupe_ttl: int | None


def _asked(options: Options) -> _Asked:
    return {
        "delay": _whole_seconds(options.delay_s),
        "retry": options.retry_s,
        "ttl": options.ttl_s,
        "replicate": options.replicate,
        "maxlen": options.maxlen,
        "pri": options.pri,
        "utube": options.utube,
        "dedupe": options.key,
        "dedupe_ttl": options.key_ttl_s,
    }


def _whole_seconds(delay_s: float | None) -> int | None:
    """A delay for the broker, rounded up, because no job may come too early."""
    return None if delay_s is None else math.ceil(delay_s)
