"""An app: the tasks of one program by name, and the clients that enqueue them.

Decides which client a caller gets; knows nothing of how jobs are fetched and run.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import importlib
import os
import sys
import threading
import weakref
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from itertools import count
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
from tuque.worker.app.batches import WAIT_S
from tuque.worker.app.dead_letters import DeadLetters
from tuque.worker.app.encryption import Keys
from tuque.worker.app.enqueue import (
    Call,
    Planned,
    Reach,
    is_final,
    published,
    raise_first,
    send_plan,
    send_plan_async,
)
from tuque.worker.app.handle import Handle
from tuque.worker.app.hooks import Following, Hooks, Middleware
from tuque.worker.app.options import (
    Options,
    TaskOptions,
    check_names,
    check_number,
    renamed,
)
from tuque.worker.app.task import (
    SPREAD,
    AsyncTask,
    Task,
    spread_in,
)
from tuque.worker.app.tasks import (
    Register,
    RegisterBatch,
    Tasks,
    batched,
    check_new,
    check_routes,
    defined,
    names_of,
    routed,
)

P = ParamSpec("P")
R = TypeVar("R")

DEFAULT_URL: Final = "tuque://127.0.0.1:7711"
SEARCH_S: Final = 1.0  # what a request of a web server can wait for
LIMIT_MAX_S: Final = 86_400.0
ENQUEUE_S: Final = 2.0  # the same, while a node is there and silent
URL_VARIABLE: Final = "TUQUE_URL"


class Clients(Protocol):
    """Where apps get their clients from, in tests."""

    def client_of(self, app: App) -> Client:
        """The client for threads."""

    def aio_client_of(self, app: App) -> aio.Client:
        """The client for the running event loop."""

    @property
    def now(self) -> dt.datetime:
        """The time, with a zone."""


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


class App(Hooks):
    """The tasks of a program.

    `broker` is a URL, or a client that the caller keeps; None means TUQUE_URL, else the default
    node of this machine. Nothing connects before the first job. `telemetry` follows its jobs, as
    `tuque.worker.telemetry.Telemetry` does. `version` is what workers say of the tasks: a change of
    it is a deploy, which the console marks. With `keys` bodies and results are signed or encrypted,
    and what is under none of them is refused. `defaults` are options of all tasks. `routes` has the
    queues of tasks by patterns of their names, the first that fits: `{"shop.mail.*": "mail"}`. What
    a task or its `Tasks` says goes before both (U1.14). `queue` is that of all others. A node that
    is silent for `enqueue_timeout_s` fails an enqueue (U1.19).
    """

    clients: ClassVar[Clients | None] = None  # instead of those that apps make (tuque.testing)
    groups: ClassVar[LaterGroups | None] = None  # set by the module of groups, once it is loaded
    made: ClassVar[weakref.WeakValueDictionary[int, App]] = weakref.WeakValueDictionary()
    _numbers: ClassVar[Iterator[int]] = count()
    with_each: ClassVar[list[Callable[[App], object]]] = []  # called with an app that is made

    def __init__(
        self,
        broker: str | Client | None = None,
        *,
        queue: str | None = None,
        defaults: Options | None = None,
        routes: Mapping[str, str] | None = None,
        version: str = "",
        telemetry: Following | None = None,
        keys: Keys | None = None,
        enqueue_timeout_s: float = ENQUEUE_S,
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
        self.defaults = defaults_of(defaults, queue)
        self.queue = self.defaults.queue
        self.routes = {} if routes is None else check_routes(routes)
        self.version = version
        self.reach = Reach(check_limit(enqueue_timeout_s))
        self.tasks: dict[str, Task[..., Any]] = {}  # by name, and by each alias
        self.serves: list[str] | None = None  # in place of the queues of the tasks
        self.tubes: set[str] = set()  # queues known to be tubes
        self.keyed: set[str] = set()  # tubes of type tasks that were made, or found
        App.made[next(App._numbers)] = self
        self.dead = DeadLetters(self)
        self.schedules: dict[str, Planned] = {}
        for extend in App.with_each:
            extend(self)
        if telemetry is not None:
            telemetry.attach(self)

    @property
    def url(self) -> str | None:
        """The broker's URL; None if the app was built around a client."""
        if self._given is not None:
            return None
        return self._url or os.environ.get(URL_VARIABLE) or DEFAULT_URL

    def use(self, what: str | Middleware, /) -> None:
        """Uses a middleware from now on, after those before it; or, by its URL, another broker.

        A client that the app was built around is dropped for a URL. ValueError for a middleware
        that is in use.
        """
        if isinstance(what, Middleware):
            self.use_middleware(what)
        elif isinstance(what, str):
            self._switch(what)
        else:
            raise TypeError(
                f"use takes a tuque.worker.Middleware that was made, or a URL: {what!r}"
            )

    def _switch(self, url: str) -> None:
        """Switches to another broker."""
        with self._lock:
            self._given = None
            self._url = url
            self.reach.is_lost = False
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
                self._client.answers_adds_within(self.reach.limit_s)
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
                client.answers_adds_within(self.reach.limit_s)
            return client

    @property
    def now(self) -> dt.datetime:
        """The time of this machine, or of a test, with a zone."""
        return dt.datetime.now(dt.UTC) if App.clients is None else App.clients.now

    @property
    def queues(self) -> list[str]:
        """The queues of the tasks, without duplicates, in the order of the tasks; or others."""
        if self.serves is not None:
            return self.serves
        return list(dict.fromkeys(task.defaults.queue for task in self.tasks.values()))

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
        """Makes a task of a function: `@app.task` or `@app.task(queue="mail", retry_s=60)`.

        The keywords are those of `TaskOptions`. The name is that of module and function, unless
        one is given; two tasks of one name are a ValueError. `aliases` are former names, under
        which jobs may still come (U1.18). An argument whose type cannot be resolved here and now is
        a TypeError. With `batch` the function gets a list of up to so many arguments, of jobs that
        come within `batch_wait_s` (1), and returns a list (U15).
        """
        scope = sys._getframe(1).f_locals  # for annotations that name a function's local classes
        check_names(options)

        def register(function: Callable[..., Any]) -> Task[..., Any]:
            names = names_of(function, name, aliases)
            function = batched(function, batch, batch_wait_s, scope)
            self.check_new(names)
            task = defined(function, names, renamed(options), scope)
            self.add(task)
            return task

        return register if function is None else register(function)

    def include(self, tasks: Tasks) -> None:
        """[U1] Takes the tasks of a group, also those that it gets later (U1.15).

        TypeError for another thing; ValueError if a name of them is taken, or they have an app.
        """
        if not isinstance(tasks, Tasks):
            raise TypeError(f"include takes a tuque.worker.Tasks, not {tasks!r}")
        tasks.join(self)

    def add(self, task: Task[..., Any]) -> None:
        """Gives a task to this app; ValueError if there is one of that name."""
        self.check_new(task.names)
        task.join(self, self.options_of(task.name, task.given))
        self.tasks.update(dict.fromkeys(task.names, task))
        if SPREAD not in self.tasks:  # a worker of the task's queue may get it
            self.tasks[SPREAD] = spread_in(self, task.defaults)

    def check_new(self, names: tuple[str, ...]) -> None:
        """ValueError if there is a task of one of these names."""
        check_new(names, self.tasks)

    def options_of(self, name: str, given: TaskOptions) -> Options:
        """[U1] All options of a task: its own, then the queue of a route, then the defaults."""
        queue = routed(name, self.routes) or self.defaults.queue
        changes: TaskOptions = {"queue": queue, **given}
        return replace(self.defaults, **changes)  # U1.14

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
        return self.client.topic_add(topic, body, timeout_ms=self.reach.copies_ms, **asked)

    async def publish_async(self, topic: str, call: Call[Any]) -> list[str]:
        """The same for a coroutine."""
        body, asked = published(call)
        ms = self.reach.copies_ms
        return await self.aio_client.topic_add(topic, body, timeout_ms=ms, **asked)

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
        if App.groups is None:
            importlib.import_module("tuque.worker.workflow.group_handle")  # it sets `groups`
        assert App.groups is not None
        return App.groups(self, tube, id)

    @asynccontextmanager
    async def connected(self) -> AsyncIterator[None]:
        """Makes the client of the running event loop, and closes all clients at the end.

        The broker is asked nothing: a web application starts also while that is away.
        """
        if self.url is not None:
            _ = self.aio_client  # an invalid URL raises here, not in the first request
        try:
            yield
        finally:
            await self.aclose()
            self.close()

    def lifespan_web(self) -> Callable[[object], AbstractAsyncContextManager[None]]:
        """The lifespan of a web application: `FastAPI(lifespan=jobs.lifespan_web())`.

        Litestar takes it in its list. An application with a lifespan of its own uses `connected`.
        """
        return lambda web: self.connected()

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


def check_limit(seconds: float) -> float:
    """`enqueue_timeout_s` of an app; TypeError or ValueError for what is none."""
    check_number("enqueue_timeout_s", seconds)
    if not 0 < seconds <= LIMIT_MAX_S:
        raise ValueError(
            f"enqueue_timeout_s is more than 0, up to {LIMIT_MAX_S:.0f} seconds, not {seconds}"
        )
    return seconds


def defaults_of(defaults: Options | None, queue: str | None) -> Options:
    """The options of all tasks; TypeError if they have another queue than the app."""
    if defaults is None:
        return Options() if queue is None else Options(queue=queue)
    if not isinstance(defaults, Options):
        raise TypeError(f"defaults is a tuque.worker.Options, not {defaults!r}")
    if queue is None or queue == defaults.queue:
        return defaults
    if defaults.queue != Options.queue:
        raise TypeError(f"give one queue: queue is {queue!r}, that of defaults {defaults.queue!r}")
    return replace(defaults, queue=queue)


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
