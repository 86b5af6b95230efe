"""An app: the tasks of one program by name, and the clients that enqueue them.

Decides which client a caller gets; knows nothing of how jobs are fetched and run.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import os
import sys
import threading
import weakref
from collections.abc import Callable, Coroutine, Iterator, Mapping
from itertools import count
from pathlib import Path
from typing import (
    Any,
    ClassVar,
    Final,
    Literal,
    ParamSpec,
    Protocol,
    TypeAlias,
    TypeVar,
    Unpack,
    overload,
)

from tuque import aio
from tuque.client.commands.groups import JobGroup
from tuque.client.commands.work import Result
from tuque.client.sync import Client
from tuque.client.url import parse
from tuque.errors import ConfigError
from tuque.platforms import at_forks
from tuque.worker.app.arguments import UNTYPED, wanted_type
from tuque.worker.app.dead_letters import DeadLetters
from tuque.worker.app.encryption import Keys
from tuque.worker.app.enqueue import (
    Call,
    Planned,
    is_final,
    published,
    raise_first,
    send_plan,
    send_plan_async,
)
from tuque.worker.app.handle import Handle
from tuque.worker.app.hooks import Following, Hooks
from tuque.worker.app.options import (
    Options,
    TaskOptions,
    check_names,
    renamed,
)
from tuque.worker.app.task import (
    SPREAD,
    AsyncTask,
    Task,
    spread_in,
)

P = ParamSpec("P")
R = TypeVar("R")

DEFAULT_URL: Final = "tuque://127.0.0.1:7711"
SEARCH_S: Final = 1.0  # what a request of a web server can wait for
URL_VARIABLE: Final = "TUQUE_URL"


class Clients(Protocol):
    """Where apps get their clients from, in tests."""

    def client_of(self, app: App) -> Client:
        """The client for threads."""

    def aio_client_of(self, app: App) -> aio.Client:
        """The client for the running event loop."""


def search_s_of(url: str) -> float:
    """[U1] How long calls of an app look for a node while none can be reached (U1.10)."""
    given_s = parse(url).search_timeout_s
    return SEARCH_S if given_s is None else given_s


class LaterGroup(Protocol):
    """A group, as its id alone shows it."""

    def results(self, timeout: float | None) -> Any:
        """What the children returned, in order."""

    async def results_async(self, timeout: float | None) -> Any:
        """Like `results`, for asyncio programs."""

    def called(self, timeout: float | None) -> None:
        """Waits until the callback is there, or over."""

    async def called_async(self, timeout: float | None) -> None:
        """Like `called`, for asyncio programs."""

    def over(self, found: Result, timeout: float | None) -> Result | None:
        """How the group ended, or where it stands then; None once its callback is there."""

    async def over_async(self, found: Result, timeout: float | None) -> Result | None:
        """Like `over`, for asyncio programs."""

    def standing(self, found: Result, shown: JobGroup) -> Result:
        """Where the group stands as `shown`, as the outcome of a job."""

    async def standing_async(self, found: Result, shown: JobGroup) -> Result:
        """Like `standing`, for asyncio programs."""

    def cancel(self) -> bool:
        """Cancels the open children, and the callback."""

    async def cancel_async(self) -> bool:
        """Like `cancel`, for asyncio programs."""


LaterGroups: TypeAlias = Callable[["App", str, str], LaterGroup]


class Register(Protocol):
    """What `app.task(...)` returns: a decorator."""

    @overload
    def __call__(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> AsyncTask[P, R]: ...

    @overload
    def __call__(self, function: Callable[P, R], /) -> Task[P, R]: ...


class App(Hooks):
    """The tasks of a program.

    `broker` is a URL, or a client that the caller keeps; None means TUQUE_URL, else the default
    node of this machine. Nothing connects before the first job. `telemetry` follows its jobs, as
    `tuque.worker.telemetry.Telemetry` does. `version` is what workers say of the tasks: a change of
    it is a deploy, which the console marks. With `keys` bodies and results are signed or encrypted,
    and what is under none of them is refused.
    """

    clients: ClassVar[Clients | None] = None  # instead of those that apps make (tuque.testing)
    groups: ClassVar[LaterGroups | None] = None  # set by what knows of groups
    made: ClassVar[weakref.WeakValueDictionary[int, App]] = weakref.WeakValueDictionary()
    _numbers: ClassVar[Iterator[int]] = count()

    def __init__(
        self,
        broker: str | Client | None = None,
        *,
        queue: str = "default",
        version: str = "",
        telemetry: Following | None = None,
        keys: Keys | None = None,
    ) -> None:
        super().__init__()
        self.keys = keys
        self._lock = threading.RLock()  # a signal handler or `__del__` may call in again
        FORKED.add(self)
        self._given: Client | None = None
        self._client: Client | None = None
        self._aio: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, aio.Client] = (
            weakref.WeakKeyDictionary()
        )
        self._url: str | None = None
        if isinstance(broker, Client):
            self._given = broker
        elif broker is None or isinstance(broker, str):
            self._url = broker
        else:
            raise TypeError(f"App takes a URL or a tuque.Client, not {broker!r}")
        if not isinstance(version, str):
            raise TypeError(f"version must be a str, not {version!r}")
        self.queue = queue
        self.version = version
        self.tasks: dict[str, Task[..., Any]] = {}
        self.tubes: set[str] = set()  # queues known to be tubes
        self.keyed: set[str] = set()  # tubes of type tasks that were made, or found
        App.made[next(App._numbers)] = self
        self.dead = DeadLetters(self)
        self.schedules: dict[str, Planned] = {}
        if telemetry is not None:
            telemetry.attach(self)

    @property
    def url(self) -> str | None:
        """The broker's URL; None if the app was built around a client."""
        if self._given is not None:
            return None
        return self._url or os.environ.get(URL_VARIABLE) or DEFAULT_URL

    def use(self, url: str) -> None:
        """Switches to another broker; a client that the app was built around is dropped."""
        with self._lock:
            self._given = None
            self._url = url
            self.tubes.clear()
            self.keyed.clear()
            old, self._client = self._client, None
            self._aio.clear()
        if old is not None:
            old.close()

    @property
    def client(self) -> Client:
        """The client of this app, shared by its threads."""
        if App.clients is not None:
            return App.clients.client_of(self)
        with self._lock:
            if self._given is not None:
                return self._given
            if self._client is None:
                url = self.url or DEFAULT_URL
                self._client = Client(url, search_timeout=search_s_of(url))
            return self._client

    @property
    def aio_client(self) -> aio.Client:
        """The client of this app for the running event loop."""
        if App.clients is not None:
            return App.clients.aio_client_of(self)
        loop = asyncio.get_running_loop()
        with self._lock:
            client = self._aio.get(loop)
            if client is None:
                if self.url is None:
                    raise ConfigError(
                        "this app was built around a client; asyncio needs an App with a URL"
                    )
                for old in [one for one in self._aio if one.is_closed()]:
                    del self._aio[old]  # the client has the loop, so it would never go
                found_s = search_s_of(self.url)
                client = self._aio[loop] = aio.Client(self.url, search_timeout=found_s)
            return client

    @property
    def queues(self) -> list[str]:
        """The queues of the tasks, without duplicates, in the order of the tasks."""
        return list(dict.fromkeys(task.defaults.queue for task in self.tasks.values()))

    @overload
    def task(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> AsyncTask[P, R]: ...

    @overload
    def task(self, function: Callable[P, R], /) -> Task[P, R]: ...

    @overload
    def task(self, /, *, name: str | None = None, **options: Unpack[TaskOptions]) -> Register: ...

    def task(
        self,
        function: Callable[..., Any] | None = None,
        /,
        *,
        name: str | None = None,
        **options: Unpack[TaskOptions],
    ) -> Any:
        """Makes a task of a function: `@app.task` or `@app.task(queue="mail", retry_s=60)`.

        The keywords are those of `TaskOptions`. The name is that of module and function, unless
        one is given; two tasks of one name are a ValueError. An argument whose type cannot be
        resolved here and now is a TypeError.
        """
        scope = sys._getframe(1).f_locals  # for annotations that name a function's local classes

        def register(function: Callable[..., Any]) -> Task[..., Any]:
            return self._register(function, name, options, scope)

        return register if function is None else register(function)

    def _register(
        self,
        function: Callable[..., Any],
        name: str | None,
        options: TaskOptions,
        scope: Mapping[str, Any],
    ) -> Task[..., Any]:
        check_names(options)
        if not callable(function):
            raise TypeError(f"app.task takes a function, not {function!r}")
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):  # U1.12
            raise TypeError(
                f"app.task: {_module_of(function)}.{function.__qualname__} has a yield: a call of "
                "it would run nothing. Return a list, or report parts with progress()"
            )
        if name is None and not hasattr(function, "__qualname__"):
            raise TypeError(f"app.task: {function!r} has no name, give one: app.task(name='...')")
        full = name or f"{_module_of(function)}.{function.__qualname__}"
        if full in self.tasks:
            raise ValueError(f"there is a task {full} already")
        options.setdefault("queue", self.queue)
        kind = AsyncTask if inspect.iscoroutinefunction(function) else Task
        task = kind(self, function, full, Options(**renamed(options)), scope)
        self.tasks[full] = task
        if SPREAD not in self.tasks:  # a worker of the task's queue may get it
            self.tasks[SPREAD] = spread_in(self, task.defaults)
        return task

    def schedule(
        self,
        name: str,
        call: Call[Any],
        *,
        cron: str | None = None,
        every_s: float | None = None,
        tz: str | None = None,
        missed: Literal["skip", "one", "all"] = "one",
    ) -> None:
        """Declares that the broker adds the call at each instant: `task.call(...)`.

        The instants are those of a cron expression in a time zone (UTC), or each `every_s` seconds.
        `missed` says what becomes of instants that were missed. Workers of the app tell the
        broker when they start, and `send_schedules` does. One that is declared no more stays
        until it is dropped (U9.3). ValueError for a name that is taken.
        """
        if name in self.schedules:
            raise ValueError(f"there is a schedule {name} already")
        self.schedules[name] = Planned(name, call, cron, every_s, tz, missed)

    def publish(self, topic: str, call: Call[Any]) -> list[str]:
        """[U12] Add the call to each queue that is subscribed to the topic, or to none.

        Returns the ids of the jobs. Workers of those queues run the task of that name.
        """
        body, asked = published(call)
        return self.client.topic_add(topic, body, **asked)

    async def publish_async(self, topic: str, call: Call[Any]) -> list[str]:
        """The same for a coroutine."""
        body, asked = published(call)
        return await self.aio_client.topic_add(topic, body, **asked)

    def send_schedules(self) -> dict[str, str]:
        """Tells the broker all schedules: for each name "added", "unchanged" or "replaced".

        If some are refused, all others are added, and the error of the first one is raised; its
        notes name each that was refused.
        """
        found: dict[str, str] = {}
        refused: dict[str, Exception] = {}
        for one in self.schedules.values():
            try:
                found[one.name] = send_plan(self.client, one)
            except Exception as err:
                if not is_final(err):
                    raise
                refused[one.name] = err
        raise_first(refused)
        return found

    async def send_schedules_async(self, client: aio.Client | None = None) -> dict[str, str]:
        """Like `send_schedules`, for asyncio programs."""
        found: dict[str, str] = {}
        refused: dict[str, Exception] = {}
        for one in self.schedules.values():
            try:
                found[one.name] = await send_plan_async(client or self.aio_client, one)
            except Exception as err:
                if not is_final(err):
                    raise
                refused[one.name] = err
        raise_first(refused)
        return found

    @overload
    def handle(self, job_id: str, returns: type[R]) -> Handle[R]: ...

    @overload
    def handle(self, job_id: str, returns: Any = UNTYPED) -> Handle[Any]: ...

    def handle(self, job_id: str, returns: Any = UNTYPED) -> Handle[Any]:
        """A handle of a job that another program enqueued; `returns` is its task's result."""
        if not isinstance(job_id, str):
            raise TypeError(f"job_id is the id of a job as text, and not {job_id!r}")
        return Handle(job_id, self, wanted_type(returns))

    def later_group(self, tube: str, id: str) -> LaterGroup:
        """A handle of a group that another program made."""
        assert App.groups is not None  # tuque.worker has it
        return App.groups(self, tube, id)

    def close(self) -> None:
        """Closes the client that the app made; one that was passed in stays open."""
        with self._lock:
            client, self._client = self._client, None
        if client is not None:
            client.close()

    async def aclose(self) -> None:
        """Closes the client of the running event loop."""
        client = self._aio.pop(asyncio.get_running_loop(), None)
        if client is not None:
            await client.close()


def _module_of(function: Callable[..., Any]) -> str:
    """The name under which a worker imports the function's module, even of a script."""
    if function.__module__ != "__main__":
        return function.__module__
    main = sys.modules["__main__"]
    spec = getattr(main, "__spec__", None)
    if spec is not None and spec.name:
        return str(spec.name)
    return Path(getattr(main, "__file__", None) or "__main__").stem


def load_app(target: str, app_dir: str = ".") -> App:
    """The app named `module:attribute` (default attribute: `app`).

    `app_dir` goes in front of the import path. ConfigError says what was not found; an error inside
    the module is raised unchanged.
    """
    module_name, _, attribute = target.partition(":")
    if not module_name:
        raise ConfigError(f"'{target}': name the app as module:app")
    directory = os.path.abspath(app_dir)
    if directory not in sys.path:
        sys.path.insert(0, directory)
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as err:
        if err.name is None or not f"{module_name}.".startswith(f"{err.name}."):
            raise
        raise ConfigError(
            f"there is no module '{module_name}' in {directory} or on the import path; "
            "--app-dir says where to look"
        ) from None
    app: Any = module
    for part in (attribute or "app").split("."):
        app = getattr(app, part, None)
    if not isinstance(app, App):
        raise ConfigError(
            f"module '{module_name}' has no tuque.worker.App named '{attribute or 'app'}'"
        )
    return app


def _unlock() -> None:
    """[U14] Another thread of the parent may have held the lock at the fork (U14.4)."""
    for app in list(FORKED):
        app._lock = threading.RLock()


FORKED: Final[weakref.WeakSet[App]] = weakref.WeakSet()  # the apps of this process
at_forks(_unlock)
