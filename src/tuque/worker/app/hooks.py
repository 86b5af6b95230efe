"""What a program attaches to its app: hooks and middleware, and what they get (SPEC U3).

Holds functions only; pools/middleware.py and enqueue.py call them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    ExitStack,
    nullcontext,
)
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar

from tuque.worker.app.decisions import OutcomeKind, encodable
from tuque.worker.app.encryption import Keys

if TYPE_CHECKING:
    from tuque.worker.pools.execute import Job

F = TypeVar("F", bound=Callable[..., object])

TASK_HEADER: Final = "tuque-task"
HEADERS_MAX: Final = 32  # what the broker takes (W1.3)
VALUE_BYTES: Final = 1_024
ALL_BYTES: Final = 4_096


@dataclass
class Outgoing:
    """A job that is about to be added. `headers` may be changed, nothing else."""

    task: str
    queue: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    headers: dict[str, str] = field(default_factory=dict)

    def offer(self, name: str, value: str) -> None:
        """Sets a header, unless the broker would refuse the job for it."""
        name, taken = name.lower(), size_of(TASK_HEADER, self.task)
        taken += sum(size_of(*pair) for pair in self.headers.items())
        size = size_of(name, value)
        if len(self.headers) + 2 > HEADERS_MAX or size > VALUE_BYTES or taken + size > ALL_BYTES:
            return
        self.headers[name] = value


def size_of(name: str, value: str) -> int:
    """Bytes of a header."""
    return len(name.encode()) + len(encodable(value).encode())


@dataclass(frozen=True)
class Failure:
    """Why a run did not end well.

    `kind` is failed, rejected, timeout, crashed, cancelled, or retry for `RetryLater`. `text` is
    one line, `trace` the traceback. `error` is the exception; None where that was in another
    process. `delay_s` is for `on_retry`: the wait before the next run, if it is known; `queue` is
    for `on_dead`.
    """

    kind: OutcomeKind
    text: str
    trace: str = ""
    error: BaseException | None = None
    delay_s: float | None = None
    queue: str = ""


class Follower(Protocol):
    """Follows jobs from `enqueue` to the reply of the broker; entered while they are sent."""

    def __enter__(self) -> Follower: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None: ...

    def added(self, at: int, job_id: str) -> None:
        """The job in that place was added."""

    def refused(self, at: int, error: BaseException) -> None:
        """The job in that place was not added, or it is not known."""


class Following(Protocol):
    """What follows the jobs of an app; `tuque.worker.telemetry.Telemetry` does."""

    def attach(self, app: Hooks) -> None:
        """The app is made: hang on to its runs."""

    def follow(self, jobs: list[Outgoing], is_many: bool) -> Follower:
        """[U7] Jobs are about to be added; sets their headers. `is_many`: of `enqueue_many`."""


class Together:
    """Several that follow the jobs of one app, in their order."""

    def __init__(self, parts: list[Following]) -> None:
        self._parts = parts

    def attach(self, app: Hooks) -> None:
        """Each of them is attached already."""

    def follow(self, jobs: list[Outgoing], is_many: bool) -> Follower:
        return AllOf([part.follow(jobs, is_many) for part in self._parts])


class AllOf:
    """What they follow of the same jobs."""

    def __init__(self, parts: list[Follower]) -> None:
        self._parts = parts
        self._entered = ExitStack()

    def __enter__(self) -> AllOf:
        for part in self._parts:
            self._entered.enter_context(part)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self._entered.__exit__(kind, error, tb)

    def added(self, at: int, job_id: str) -> None:
        for part in self._parts:
            part.added(at, job_id)

    def refused(self, at: int, error: BaseException) -> None:
        for part in self._parts:
            part.refused(at, error)


class NotFollowed:
    """Follows nothing."""

    def __enter__(self) -> NotFollowed:
        return self

    def __exit__(self, *ended: object) -> None:
        pass

    def added(self, at: int, job_id: str) -> None:
        pass

    def refused(self, at: int, error: BaseException) -> None:
        pass


NOT_FOLLOWED: Final = NotFollowed()


class Hook(Generic[F]):
    """A decorator: the functions that it was put on are called in the order of their definition."""

    def __init__(self, name: str, *, may_await: bool = True) -> None:
        self.name = name
        self.functions: list[F] = []
        self._may_await = may_await

    def __call__(self, function: F) -> F:
        if not callable(function):
            raise TypeError(f"{self.name} is put on a function, not on {function!r}")
        if not self._may_await and inspect.iscoroutinefunction(function):
            raise TypeError(f"{self.name} takes plain functions: enqueue() cannot await")
        self.functions.append(function)
        return function


Lifespan = Callable[[], AbstractContextManager[Any] | AbstractAsyncContextManager[Any]]
L = TypeVar("L", bound=Lifespan)
Surrounds = Callable[["Job"], AbstractContextManager[Any] | AbstractAsyncContextManager[Any]]
M = TypeVar("M", bound=Callable[..., Any])


class Middleware:
    """One feature around all jobs of an app, in one class: `app.use(Feature())`.

    Override what it needs. Each method is as the function of the decorator in `DECORATORS`, and may
    be a coroutine function where that may.
    """

    def enqueue(self, call: Outgoing) -> object:
        """Before a job is added, in the producer; no coroutine function."""

    def start(self, job: Job) -> object:
        """Before the task."""

    def around(self, job: Job) -> AbstractContextManager[Any] | AbstractAsyncContextManager[Any]:
        """Makes a context manager, plain or asynchronous, for one run of a task."""
        return nullcontext()

    def lifespan(self) -> AbstractContextManager[Any] | AbstractAsyncContextManager[Any]:
        """Makes a context manager for a process that runs tasks, from before the first job on."""
        return nullcontext()

    def success(self, job: Job, result: Any) -> object:
        """After the task."""

    def failure(self, job: Job, failure: Failure) -> object:
        """After a run that failed."""

    def retry(self, job: Job, failure: Failure) -> object:
        """The job runs again."""

    def dead(self, job: Job, failure: Failure) -> object:
        """The job is a dead letter."""

    def cancelled(self, job: Job, failure: Failure) -> object:
        """After a run that the broker ended, as CANCEL does."""


NO_CONTEXTS: Final = (
    inspect.isgeneratorfunction,
    inspect.isasyncgenfunction,
    inspect.iscoroutinefunction,
)

# by the method of Middleware, what it is the long form of
DECORATORS: Final = {
    "enqueue": "on_enqueue",
    "start": "on_start",
    "around": "middleware",
    "lifespan": "lifespan",
    "success": "on_success",
    "failure": "on_failure",
    "retry": "on_retry",
    "dead": "on_dead",
    "cancelled": "on_cancelled",
}


class Hooks:
    """The hooks of an app; `tuque.worker.App` is one."""

    def __init__(self) -> None:
        self.telemetry: Following | None = None
        self.keys: Keys | None = None  # bodies and results are under them (U8)
        self.on_enqueue: Hook[Callable[[Outgoing], object]] = Hook("on_enqueue", may_await=False)
        self.on_start: Hook[Callable[[Job], object]] = Hook("on_start")
        self.on_success: Hook[Callable[[Job, Any], object]] = Hook("on_success")
        self.on_failure: Hook[Callable[[Job, Failure], object]] = Hook("on_failure")
        self.on_retry: Hook[Callable[[Job, Failure], object]] = Hook("on_retry")
        self.on_dead: Hook[Callable[[Job, Failure], object]] = Hook("on_dead")
        self.on_cancelled: Hook[Callable[[Job, Failure], object]] = Hook("on_cancelled")
        self.surrounds: list[Surrounds] = []
        self.lifespans: list[Lifespan] = []
        self.state: Any = None  # what the first of them has yielded that yields something
        self._used: list[Middleware] = []

    def middleware(self, function: Surrounds) -> Surrounds:
        """Has each run of a task surrounded by the context manager that the function makes.

        The first one is the outermost. Plain ones and asynchronous ones work with all tasks.
        """
        if not callable(function):
            raise TypeError(f"middleware is put on a function, not on {function!r}")
        self.surrounds.append(function)
        return function

    def lifespan(self, function: L) -> L:
        """[U3] Has each process that runs tasks within the context manager that this makes (U3.9).

        It is entered before the first job, on the loop of coroutine tasks, and left after the last
        one. What it yields is `current_job().state`.
        """
        if not callable(function):
            raise TypeError(f"lifespan is put on a function, not on {function!r}")
        if any(is_other(function) for is_other in NO_CONTEXTS):
            raise TypeError(
                f"lifespan: {function!r} makes no context manager: put @contextmanager or "
                "@asynccontextmanager between"
            )
        self.lifespans.append(function)
        return function

    def use_middleware(self, one: Middleware) -> None:
        """[U3] Puts each method that it overrides on its decorator (U3.7)."""
        if one in self._used:
            raise ValueError(f"{one!r} is in use already: it would run twice")
        for name, decorator in DECORATORS.items():
            method = getattr(one, name)
            if getattr(method, "__func__", method) is not getattr(Middleware, name):
                getattr(self, decorator)(method)
        self._used.append(one)

    def follow_with(self, one: Following) -> None:
        """Has it follow the jobs of this app, after those before it."""
        self.telemetry = one if self.telemetry is None else Together([self.telemetry, one])

    async def aclose(self) -> None:
        """Closes what belongs to the running event loop."""
