"""`TuqueBackend`: the tasks of Django as jobs of a broker.

Decides what of a task goes into its job. How it runs is in running.py, what becomes of it in
results.py.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, cast

from django.conf import settings as project
from django.core import checks
from django.core.exceptions import ImproperlyConfigured
from django.db import transaction

from tuque.client.api import PRI, PRI_MAX
from tuque.django.options import (
    KEEP_S,
    NOT_HERE,
    OF_TASKS,
    Settings,
    app_of,
    no_url,
    problems,
    read,
)
from tuque.django.results import Header, Record, from_django, in_django, result_of
from tuque.django.running import own_task
from tuque.django.tasks_api import (
    BaseTaskBackend,
    InvalidTask,
    Task,
    TaskResultDoesNotExist,
    TaskResultStatus,
    normalize_json,
    signals,
    task_api,
)
from tuque.errors import Error, NoTube
from tuque.worker.app.app import App
from tuque.worker.app.enqueue import Call
from tuque.worker.app.options import RETRY_S, TaskOptions
from tuque.worker.app.task import Prepared

TICKET: Final = "t-"
TICKETS: Final = "django.tickets"
DEFAULT_QUEUE: Final = "default"
PRIORITIES: Final = PRI_MAX + 1  # of the broker: 0 goes first
PRIORITY_MAX: Final = 100
SPAN: Final = 201
WHERE: Final = "tuque.django"  # before the text of a check
PING_S: Final = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TuqueTask(Task):
    """A task with options of Tuque: `@task(attempts=5)`, from Django 6.1 on."""

    attempts: int | None = None
    backoff: Any = None
    time_limit_s: float | None = None
    soft_limit_s: float | None = None
    cancel_grace_s: float | None = None
    retry_s: int | None = None
    retry_on: Any = None
    give_up_on: Any = None
    retry_if: Any = None
    keep_s: float | None = None
    ttl_s: int | None = None
    expires_s: float | None = None
    on_expiry: str | None = None
    unknown_keep_s: float | None = None
    replicate: int | None = None
    maxlen: int | None = None
    dead: str | None = None

    def own_options(self) -> TaskOptions:
        """Those that were given."""
        found = {name: getattr(self, name, None) for name in OF_TASKS}
        given = {name: value for name, value in found.items() if value is not None}
        return cast(TaskOptions, given)


class TuqueBackend(BaseTaskBackend):
    """Adds tasks of Django to the broker, and finds their results there."""

    task_class = TuqueTask
    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    def __init__(self, alias: str, params: dict[str, Any]) -> None:
        super().__init__(alias, params)
        self._order: list[str] = list(params.get("QUEUES", [DEFAULT_QUEUE]))
        self._named: dict[str, None] = {}  # queues of tasks that were defined

    @cached_property
    def settings(self) -> Settings:
        """Its options; ImproperlyConfigured if one is wrong."""
        return read(self.alias, self.options)

    @cached_property
    def app(self) -> App:
        """The app that has its tasks and its client."""
        return app_of(self.alias, self.settings)

    def all_queues(self) -> list[str]:
        """The names of its queues at the broker; without QUEUES those of the tasks there are."""
        return [self.settings.prefix + name for name in self._order or self._named]

    def validate_task(self, task: Any) -> None:
        """InvalidTask for what cannot be enqueued here."""
        super().validate_task(task)
        self._named.setdefault(task.queue_name)
        own = getattr(task, "own_options", None)
        for name in own() if own is not None else ():
            if name in NOT_HERE:
                raise InvalidTask(f"{name} is not for tasks of Django")

    def enqueue(self, task: Any, args: Any, kwargs: Any) -> Any:
        """Adds a job for the task; what the client raises if the broker is away."""
        if self.settings.on_commit and transaction.get_connection().in_atomic_block:
            return self._enqueue_at_commit(task, args, kwargs)
        header, prepared, (args, kwargs) = self._prepared(task, args, kwargs)
        handle = prepared.enqueue(*args, **kwargs)
        return self._enqueued(task, header, handle.url_id, args, kwargs)

    async def aenqueue(self, task: Any, args: Any, kwargs: Any) -> Any:
        """Like `enqueue`, for coroutines."""
        if self.settings.on_commit:  # the transaction is one of a thread
            return await super().aenqueue(task, args, kwargs)
        header, prepared, (args, kwargs) = self._prepared(task, args, kwargs)
        handle = await prepared.enqueue_async(*args, **kwargs)
        return self._enqueued(task, header, handle.url_id, args, kwargs)

    def _enqueue_at_commit(self, task: Any, args: Any, kwargs: Any) -> Any:
        """The result has a ticket for its id, since it may be stored in the same transaction."""
        ticket = f"{TICKET}{uuid.uuid4()}"
        header, prepared, (args, kwargs) = self._prepared(task, args, kwargs, ticket)
        made = Record(header, task.module_path, args, kwargs).result(ticket, TaskResultStatus.READY)
        object.__setattr__(made, "task", task)
        object.__setattr__(made, "enqueued_at", None)

        def commit() -> None:
            handle = prepared.enqueue(*args, **kwargs)
            self._keep_ticket(ticket, handle.url_id)
            object.__setattr__(made, "enqueued_at", in_django(header.enqueued_at))
            signals.task_enqueued.send(type(self), task_result=made)

        transaction.on_commit(commit)
        return made

    @property
    def _tickets(self) -> str:
        """The tube whose values are the jobs of tickets."""
        return f"{self.settings.prefix}{TICKETS}"

    def _keep_ticket(self, ticket: str, job_id: str) -> None:
        """The broker knows from now on which job the ticket is of."""
        client, ttl = self.app.client, max(self.settings.keep_s, KEEP_S)
        try:
            client.value_set(self._tickets, ticket, job_id, ttl=ttl)
        except NoTube:
            client.tube(self._tickets).create("tasks", if_not_exists=True, ttr=RETRY_S)
            client.value_set(self._tickets, ticket, job_id, ttl=ttl)

    def call(self, task: Any, args: Any, kwargs: Any) -> Call[Any]:
        """A call that is not enqueued yet, for an outbox."""
        _, prepared, (args, kwargs) = self._prepared(task, args, kwargs)
        return prepared.call(*args, **kwargs)

    def _prepared(
        self, task: Any, args: Any, kwargs: Any, ticket: str = ""
    ) -> tuple[Header, Prepared[..., Any], tuple[list[Any], dict[str, Any]]]:
        """What the job says of the task, what adds it, and its arguments as JSON has them."""
        self.validate_task(task)
        arguments = normalize_json(args), normalize_json(kwargs)
        path, now = task.module_path, self.app.now
        run_after = from_django(task.run_after)
        header = Header(self.alias, now, task.queue_name, task.priority, run_after, ticket)
        options: TaskOptions = {**self.settings.of_task(path)}
        own = getattr(task, "own_options", None)
        if own is not None:
            options = {**options, **own()}
        options["queue"] = self.settings.prefix + task.queue_name
        options["headers"] = header.as_headers()
        if header.run_after is not None:
            options["delay_s"] = max(0.0, (header.run_after - now).total_seconds())
        pri = pri_of(task.priority)
        if pri != PRI or self.settings.exact_priorities:
            options["pri"] = pri
        if self.settings.exact_priorities:
            self._make_tube(options["queue"])
        return header, own_task(self.app, task).options(**options), arguments

    def _make_tube(self, queue: str) -> None:
        """A queue whose order holds over all nodes is a tube, which is made once."""
        if queue not in self.app.tubes:
            self.app.client.tube(queue).create(
                "tasks", if_not_exists=True, implicit=True, ttr=RETRY_S
            )
            self.app.tubes.add(queue)
            self.app.keyed.add(queue)

    def _enqueued(
        self, task: Any, header: Header, id: str, args: list[Any], kwargs: dict[str, Any]
    ) -> Any:
        """The result of a task that the broker has; sends `task_enqueued`."""
        made = Record(header, task.module_path, args, kwargs).result(id, TaskResultStatus.READY)
        object.__setattr__(made, "task", task)
        signals.task_enqueued.send(type(self), task_result=made)
        return made

    def get_result(self, result_id: str) -> Any:
        """The result of a task by its id; TaskResultDoesNotExist if there is none."""
        id = job_id = str(result_id)
        if id.startswith(TICKET):
            try:
                found = self.app.client.value_get(self._tickets, id)[id]
            except NoTube:
                found = None
            if found is None:
                raise TaskResultDoesNotExist(id)  # or its transaction is not committed yet
            job_id = found.decode()
        return result_of(self.app, id, job_id)

    def check(self, **more: Any) -> Iterator[Any]:
        """What is wrong with the settings, for `manage.py check`."""
        yield from super().check(**more)
        found = problems(self.alias, self.options)
        for number, text in found:
            yield checks.Error(text, id=f"tuque.{number}", obj=WHERE)
        if found:
            return
        if not self.settings.app and not self.settings.broker():
            yield checks.Error(no_url(self.alias), id="tuque.E001", obj=WHERE)


def pri_of(priority: int) -> int:
    """The broker's priority of one of Django: 100 is 0, the first, 0 is 5, -100 is 9."""
    return PRIORITIES - 1 - (int(priority) + PRIORITY_MAX) * PRIORITIES // SPAN


def check_brokers(app_configs: object = None, **more: Any) -> list[Any]:
    """Whether the brokers of all backends answer, for `manage.py check --deploy`."""
    found: list[Any] = []
    for alias in getattr(project, "TASKS", {}):
        backend = task_backend(alias)
        if not isinstance(backend, TuqueBackend):
            continue
        try:
            backend.app.client.ping(timeout=PING_S)
        except ImproperlyConfigured:
            continue  # `check` says it
        except Error as err:
            found.append(checks.Warning(f"TASKS[{alias!r}]: {err}", id="tuque.W001", obj=WHERE))
    return found


checks.register(check_brokers, deploy=True)


def task_backend(alias: str) -> Any:
    """The backend of that name."""
    return task_api.task_backends[alias]
