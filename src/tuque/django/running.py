"""How a task of Django runs in a worker of Tuque: each is a task of the app, by its path.

Decides what signals are sent when, what the broker keeps of a task that is done, and when
connections to databases are closed.
"""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    contextmanager,
)
from inspect import iscoroutinefunction
from traceback import format_exception
from typing import Any, Final

from asgiref.sync import sync_to_async
from django.apps import apps
from django.conf import settings
from django.db import close_old_connections, connections, reset_queries
from django.utils.module_loading import import_string

from tuque.client.commands.work import Attempt
from tuque.django.results import RUNNING, Fault, Header, Record, class_of, from_ms, header_in, tried
from tuque.django.tasks_api import (
    Task,
    TaskContext,
    TaskResultStatus,
    normalize_json,
    signals,
    task_api,
)
from tuque.errors import Cancelled, Error
from tuque.worker.app.app import App
from tuque.worker.app.hooks import Middleware
from tuque.worker.app.task import Reject, RetryLater
from tuque.worker.app.task import Task as OwnTask
from tuque.worker.pools.execute import Job, current_job, runs_again

NO_FAILURE: Final = (Cancelled, RetryLater, KeyboardInterrupt)  # no failure of the task
_making: Final = threading.RLock()


def own_task(app: App, task: Any) -> OwnTask[..., Any]:
    """The task of the app that runs a task of Django; made when it is first asked for."""
    path = task.module_path
    with _making:
        found = dict.get(app.tasks, path)
        if found is not None:
            return found
        body = coroutine_of(app, path) if iscoroutinefunction(task.func) else function_of(app, path)
        made: OwnTask[..., Any] = app.task(name=path, attempts=1, keep_s=0)(body)
        return made


def function_of(app: App, path: str) -> Any:
    """What a worker calls for a plain task of Django."""

    def run(*args: Any, **kwargs: Any) -> Any:
        job = current_job()
        before = earlier(app, job.id) if job.attempt > 1 else []
        running = Running(app, job, path, before, args, kwargs)
        try:
            value = running.call()
        except NO_FAILURE:
            raise
        except BaseException as err:
            running.failed(err)
            raise
        return running.done(value)

    return run


def coroutine_of(app: App, path: str) -> Any:
    """What a worker awaits for a coroutine task of Django."""

    async def run(*args: Any, **kwargs: Any) -> Any:
        job = current_job()
        before = await earlier_async(app, job.id) if job.attempt > 1 else []
        running = Running(app, job, path, before, args, kwargs)
        try:
            value = normalize_json(await running.task.func(*running.args, **kwargs))
        except NO_FAILURE:
            raise
        except BaseException as err:
            running.failed(err)
            raise
        return running.done(value)

    return run


class Running:
    """One run of a task, from its start on; sends `task_started`."""

    def __init__(
        self,
        app: App,
        job: Job,
        path: str,
        before: list[Attempt],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> None:
        """`before`: what the broker knows of earlier attempts."""
        self._app = app
        self._job = job
        header = header_in(job.headers) or Header(
            backend="default", enqueued_at=job.enqueued_at, queue_name=job.queue
        )
        faults, workers = tried(before)
        self.record = Record(header, path, list(args), kwargs, faults=faults, workers=workers)
        self.task = header.task(path)
        self.record.attempted_at = app.now
        first = from_ms(before[0].began_ms) if before else None
        self.record.started_at = first or self.record.attempted_at
        self.record.workers.append(f"{socket.gethostname()}/{os.getpid()}")
        self.result = self.record.result(header.ticket or job.url_id, TaskResultStatus.RUNNING)
        context = (TaskContext(task_result=self.result),) if self.task.takes_context else ()
        self.args = (*context, *args)
        self._sender = type(task_api.task_backends[header.backend])
        signals.task_started.send(self._sender, task_result=self.result)

    def call(self) -> Any:
        """Calls a plain task; TypeError for a return value that is no JSON."""
        return normalize_json(self.task.func(*self.args, **self.record.kwargs))

    def failed(self, err: BaseException) -> None:
        """The run has failed; `task_finished` is sent if it was the last one."""
        self.record.faults.append(Fault(class_of(err), "".join(format_exception(err))))
        if not self._is_last(err):
            return
        self.record.finished_at = self._app.now
        self.record.put_into(self.result, TaskResultStatus.FAILED)
        signals.task_finished.send(self._sender, task_result=self.result)

    def _is_last(self, err: BaseException) -> bool:
        """Whether no attempt follows."""
        own = dict.get(self._app.tasks, self.record.path)
        if isinstance(err, Reject) or self._job.attempt >= self._job.of:
            return True
        return own is not None and runs_again(err, own.defaults, self._job) is False

    def done(self, value: Any) -> Any:
        """The run has ended well; returns the value, which the broker keeps."""
        self.record.value = value
        self.record.finished_at = self._app.now
        self.record.put_into(self.result, TaskResultStatus.SUCCESSFUL)
        signals.task_finished.send(self._sender, task_result=self.result)
        return value


class ByPath(dict[str, OwnTask[..., Any]]):
    """The tasks of an app, and each task of the project that a job names by its path.

    Only of installed apps: a job must not have other modules imported.
    """

    def __init__(self, app: App) -> None:
        super().__init__(app.tasks)
        self._app = app

    def __missing__(self, path: str) -> OwnTask[..., Any]:
        if apps.get_containing_app_config(path) is None:
            raise KeyError(path)
        try:
            found = import_string(path)
        except ImportError:
            raise KeyError(path) from None
        if not isinstance(found, Task):
            raise KeyError(path)
        return own_task(self._app, found)

    def get(self, path: str, default: Any = None) -> Any:
        """The task of that path, or the default."""
        try:
            return self[path]
        except KeyError:
            return default


def earlier(app: App, id: str) -> list[Attempt]:
    """The attempts of a job before this one, as the broker has them; none if it is away."""
    try:
        return over(app.client.result(id, with_attempts=True).attempts)
    except Error:
        return []


async def earlier_async(app: App, id: str) -> list[Attempt]:
    """Like `earlier`, for a coroutine."""
    try:
        return over((await app.aio_client.result(id, with_attempts=True)).attempts)
    except Error:
        return []


def over(attempts: tuple[Attempt, ...]) -> list[Attempt]:
    """Those that are over."""
    return [one for one in attempts if one.state != RUNNING]


# ---- Connections to databases: no job gets one that the database has closed
#
# Django does this around requests; a worker has none.


class Connections(Middleware):
    """Looks after the connections of each thread that runs jobs."""

    def around(self, job: Job) -> AbstractContextManager[Any] | AbstractAsyncContextManager[Any]:
        """Those of the thread, or of the thread in which a coroutine calls the database."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return in_thread()
        return on_loop()

    @asynccontextmanager
    async def lifespan(self) -> AsyncIterator[None]:
        """What was opened while the tasks were imported is not used; nothing is left at the end."""
        await sync_to_async(connections.close_all)()
        try:
            yield
        finally:
            await sync_to_async(connections.close_all)()


def fresh() -> None:
    """Closes connections that are too old or broken, and forgets the queries of DEBUG."""
    close_old_connections()
    if settings.DEBUG:
        reset_queries()


@contextmanager
def in_thread() -> Iterator[None]:
    """Around a plain task."""
    fresh()
    try:
        yield
    finally:
        close_old_connections()


@asynccontextmanager
async def on_loop() -> AsyncIterator[None]:
    """Around a coroutine task."""
    await sync_to_async(fresh)()
    try:
        yield
    finally:
        await sync_to_async(close_old_connections)()
