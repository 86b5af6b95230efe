"""A task: a function that can be called now, or enqueued with the same arguments and types.

Decides what an envelope holds; arguments.py restores the declared types. Knows the app only as a
source of clients; nothing of pools and fetching.
"""

from __future__ import annotations

import inspect
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import InitVar, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Generic, ParamSpec, TypedDict, TypeVar, Unpack

from tuque.errors import IsTube
from tuque.worker.tasks.arguments import UNTYPED, Arguments, returned_type
from tuque.worker.tasks.codec import CODECS, Codec, Envelope, encode
from tuque.worker.tasks.handle import Handle
from tuque.worker.tasks.policy import Backoff, Limits, backoff_of

if TYPE_CHECKING:
    from tuque.worker.tasks.app import App

P = ParamSpec("P")
R = TypeVar("R")

DEAD_SUFFIX: Final = ".dead"
ATTEMPTS_MAX: Final = 65_535
DELIVERIES_MAX: Final = 2**31 - 1
KEEP_S: Final = 600.0  # of a result that has a type
RETRY_S: Final = 30
TASK_HEADER: Final = "tuque-task"
TEXTS: Final = ("queue", "utube", "key", "dead")
WHOLE_NUMBERS: Final = (
    *("attempts", "retry_s", "ttl_s", "key_ttl_s", "replicate", "maxlen", "pri"),
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

    In queues the broker counts attempts and waits between them; `retry_s` None is 30, `ttl_s` None
    is 0: the job never expires. In tubes the worker does that, and None leaves both to the tube.
    None means no limit (`time_limit_s`, `maxlen`), or the queue's name plus `.dead` (`dead`).
    `keep_s` None keeps results for 600 s if the task's result has a type, else not. Exceptions in
    `give_up_on` are as Reject. `pri` (lower goes first) and `utube` (a sub-queue: one job at a
    time) are for tubes. `key` names one job: enqueuing the same key within `key_ttl_s` (a day)
    adds no second job, and a lost reply is asked for again. A job of a task that no worker knows
    becomes a dead letter after `unknown_keep_s`. `max_deliveries` and `dead_letter` are the former
    names of `attempts` and `dead`.
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
    attempts: int = 5
    time_limit_s: float | None = None
    dead: str | None = None
    backoff: Backoff = field(default_factory=Backoff)
    keep_s: float | None = None
    unknown_keep_s: float = 86_400.0
    give_up_on: tuple[type[Exception], ...] = ()
    headers: Mapping[str, str] = field(default_factory=dict)
    max_deliveries: InitVar[int | None] = None
    dead_letter: InitVar[str | None] = None

    def __post_init__(self, max_deliveries: int | None, dead_letter: str | None) -> None:
        if max_deliveries is not None:
            object.__setattr__(self, "attempts", max_deliveries)
        if dead_letter is not None:
            object.__setattr__(self, "dead", dead_letter)
        if self.codec not in CODECS:
            raise ValueError(f"codec is one of {', '.join(CODECS)}, not {self.codec!r}")
        check_texts(self)
        check_whole_numbers(self)
        check_delay(self.delay_s)
        if not 1 <= self.attempts <= ATTEMPTS_MAX:
            raise ValueError(f"attempts is 1 or more, up to {ATTEMPTS_MAX}, not {self.attempts}")
        for name in ("keep_s", "unknown_keep_s"):
            value = getattr(self, name)
            if value is not None:
                check_number(name, value)
                if not 0 <= value < math.inf:
                    raise ValueError(f"{name} is 0 seconds or more, not {value}")
        if self.time_limit_s is not None:
            check_number("time_limit_s", self.time_limit_s)
            if not 0 < self.time_limit_s < math.inf:
                raise ValueError(f"time_limit_s is more than 0 seconds, not {self.time_limit_s}")
        if self.dead == self.queue:
            raise ValueError(
                f"dead is another queue than {self.queue!r}: "
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
    attempts: int
    time_limit_s: float | None
    dead: str | None
    backoff: Backoff
    keep_s: float | None
    unknown_keep_s: float
    give_up_on: tuple[type[Exception], ...]
    headers: Mapping[str, str]
    max_deliveries: int
    dead_letter: str | None


class Prepared(Generic[P, R]):
    """A task with other options for the jobs enqueued through it."""

    def __init__(self, task: Task[P, R], options: Options) -> None:
        self._task = task
        self._options = options

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        """Adds one job and returns its handle; raises what `tuque.Client.addjob` raises."""
        return self._task.add_now(self._options, args, kwargs)

    async def enqueue_async(self, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
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
        self.returns = returned_type(function, scope or {})
        self.__doc__ = function.__doc__

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Calls the function directly; enqueues nothing."""
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<task {self.name} queue={self.defaults.queue}>"

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        """Adds one job and returns its handle; raises what `tuque.Client.addjob` raises."""
        return self.add_now(self.defaults, args, kwargs)

    async def enqueue_async(self, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        """Like `enqueue`, for asyncio programs."""
        return await self.add_async(self.defaults, args, kwargs)

    def enqueue_in(self, delay_s: float, /, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        """Like `enqueue`, but no worker gets the job before the delay is over."""
        return self.add_now(replace(self.defaults, delay_s=delay_s), args, kwargs)

    async def enqueue_in_async(
        self, delay_s: float, /, *args: P.args, **kwargs: P.kwargs
    ) -> Handle[R]:
        """Like `enqueue_in`, for asyncio programs."""
        return await self.add_async(replace(self.defaults, delay_s=delay_s), args, kwargs)

    def options(self, **changes: Unpack[OptionChanges]) -> Prepared[P, R]:
        """The task with some of its `Options` changed: `add.options(delay_s=5).enqueue(1, 2)`."""
        check_names(changes)
        return Prepared(self, replace(self.defaults, **renamed(changes)))

    def body(self, options: Options, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes:
        """The job body for a call; TypeError if the function does not accept these arguments."""
        self._arguments.check(args, kwargs, options.codec)
        own = self.defaults
        envelope = Envelope(
            task=self.name,
            args=list(args),
            kwargs=kwargs,
            enqueued_at=time.time(),
            max_deliveries=_changed(options.attempts, own.attempts),
            time_limit_s=_changed(options.time_limit_s or 0.0, own.time_limit_s or 0.0),
            dead_letter=_changed(options.dead or "", own.dead or ""),
            backoff=_changed(options.backoff.figures, own.backoff.figures),
            keep_s=_changed(self.keep_s(options), self.keep_s(own)),
            unknown_keep_s=options.unknown_keep_s if options.unknown_keep_s != 86_400 else None,
        )
        return encode(envelope, options.codec)

    def add_now(self, options: Options, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Handle[R]:
        """Adds a job with these options through the app's client."""
        body = self.body(options, args, kwargs)
        add = self.app.client.addjob
        if options.queue not in self.app.tubes:
            try:
                return self._handle(add(options.queue, body, **self._asked(options)), options)
            except IsTube:
                self.app.tubes.add(options.queue)
        return self._handle(add(options.queue, body, **_asked_of_tube(options)), options)

    async def add_async(
        self, options: Options, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Handle[R]:
        """Adds a job with these options through the app's client for the running loop."""
        body = self.body(options, args, kwargs)
        add = self.app.aio_client.addjob
        if options.queue not in self.app.tubes:
            try:
                return self._handle(await add(options.queue, body, **self._asked(options)), options)
            except IsTube:
                self.app.tubes.add(options.queue)
        return self._handle(await add(options.queue, body, **_asked_of_tube(options)), options)

    def _handle(self, id: str, options: Options) -> Handle[R]:
        keeps = self.keep_s(options) > 0
        return Handle(id, self.app, self.returns, task=self.name, keeps=keeps)

    def keep_s(self, options: Options) -> float:
        """How long results are kept, in seconds."""
        if options.keep_s is not None:
            return options.keep_s
        return 0.0 if self.returns is UNTYPED or self.returns is type(None) else KEEP_S

    def keeps(self, envelope: Envelope) -> bool:
        """Whether the result of a job is kept."""
        own = self.keep_s(self.defaults) if envelope.keep_s is None else envelope.keep_s
        return own > 0

    def _asked(self, options: Options) -> _Asked:
        """The arguments of addjob for a queue; of a job at most once, nothing is counted."""
        asked = _asked_of_tube(options)
        if options.retry_s == 0:
            return asked
        asked["delay"] = options.delay_s
        asked["retry"] = RETRY_S if options.retry_s is None else options.retry_s
        asked["ttl"] = options.ttl_s or 0
        asked["attempts"] = options.attempts
        asked["backoff"] = options.backoff.figures
        asked["dead"] = options.dead
        asked["keep"] = self.keep_s(options) or None
        asked["time_limit"] = options.time_limit_s
        asked["headers"] = {**options.headers, TASK_HEADER: self.name}
        return asked

    def limits(self, envelope: Envelope, queue: str) -> Limits:
        """The limits of a job of this task from `queue`."""
        own = self.defaults
        dead_letter = own.dead if envelope.dead_letter is None else envelope.dead_letter
        time_limit_s = own.time_limit_s if envelope.time_limit_s is None else envelope.time_limit_s
        return Limits(
            max_deliveries=min(max(1, envelope.max_deliveries or own.attempts), DELIVERIES_MAX),
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
            value.encode(errors="strict" if name == "dead" else "surrogateescape")
        except UnicodeEncodeError:
            raise ValueError(f"{name} cannot be written as UTF-8: {value!a}") from None


def renamed(options: OptionChanges) -> OptionChanges:
    """The options under their names of today."""
    found = options.copy()
    if "dead_letter" in found:
        found["dead"] = found.pop("dead_letter")
    if "max_deliveries" in found:
        found["attempts"] = found.pop("max_deliveries")
    return found


def check_names(options: OptionChanges) -> None:
    """TypeError for a keyword that is not a field of `Options`, naming those that are."""
    known_names = [*OptionChanges.__annotations__]
    unknown = [key for key in options if key not in known_names]
    if unknown:
        known = ", ".join(known_names)
        raise TypeError(f"no task option {', '.join(unknown)}; there are {known}")


T = TypeVar("T")


def _changed(value: T, default: T) -> T | None:
    """The value if it differs from the task's default: only these are in the envelope."""
    return None if value == default else value


class _Asked(TypedDict, total=False):
    """The arguments of addjob that follow from a task's options."""

    attempts: int
    backoff: tuple[float, float, float]
    dead: str | None
    keep: float | None
    time_limit: float | None
    headers: dict[str, str]
    delay: float | None
    retry: int | None
    ttl: int | None
    replicate: int | None
    maxlen: int | None
    pri: int | None
    utube: str | None
    dedupe: str | None
    dedupe_ttl: int | None


def _asked_of_tube(options: Options) -> _Asked:
    """The arguments of addjob for a tube, whose tasks have no limits."""
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
