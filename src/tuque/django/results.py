"""What a job carries of a task of Django, and what the broker knows of it: `get_result`.

A header has what the task says beside its arguments. All else is what the broker keeps of the job:
its body, its attempts and its result.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import msgspec
from django.conf import settings
from django.utils import timezone
from django.utils.module_loading import import_string

from tuque.client.commands.work import Attempt, Result
from tuque.django.tasks_api import (
    Task,
    TaskError,
    TaskResult,
    TaskResultDoesNotExist,
    TaskResultStatus,
)
from tuque.errors import BadId, NoJob, NoResult
from tuque.worker.app.app import App
from tuque.worker.app.codec import BadBody, decode, opened

HEADER: Final = "django"
OUTSIDE: Final = {  # failures without an exception of the task, by their causes
    "timeout": "tuque.worker.TimeLimit",
    "crashed": "tuque.errors.JobFailed",
    "expired": "tuque.errors.JobFailed",
    "unstarted": "tuque.errors.JobFailed",
}
NAME: Final = re.compile(r"([^\W\d][\w.<>]*)(?::|$)")
BUILT_IN: Final = "builtins"
SUCCESSFUL: Final = "done"
FAILED: Final = "dead"
RUNNING: Final = "running"
CANCELLED: Final = "cancelled"
FAILURES: Final = ("failed", "timeout", "crashed")  # of an attempt


class Header(msgspec.Struct, omit_defaults=True):
    """What a job says of its task, in its header."""

    backend: str
    enqueued_at: dt.datetime
    queue_name: str = "default"
    priority: int = 0
    run_after: dt.datetime | None = None
    ticket: str = ""  # the id that the producer has, if it had to have one before the commit

    def as_headers(self) -> dict[str, str]:
        """As a header of the job."""
        return {HEADER: msgspec.json.encode(self).decode()}

    def task(self, path: str) -> Any:
        """The task that was enqueued, with what `using` had changed.

        ImportError or ValueError if the path leads to no task.
        """
        found = import_string(path)
        if not isinstance(found, Task):
            raise ValueError(f"{path} is no task of Django: {found!r}")
        changes: dict[str, Any] = {}
        for name in ("backend", "queue_name", "priority", "run_after"):
            if getattr(found, name) != getattr(self, name):
                changes[name] = getattr(self, name)
        if "run_after" in changes:
            changes["run_after"] = in_django(self.run_after)
        return replace(found, **changes) if changes else found


def header_in(headers: dict[str, str] | None) -> Header | None:
    """What the headers of a job say of a task of Django; None if nothing."""
    text = (headers or {}).get(HEADER)
    if text is None:
        return None
    try:
        return msgspec.json.decode(text, type=Header)
    except msgspec.MsgspecError:
        return None


@dataclass(slots=True)
class Fault:
    """One attempt that failed."""

    kind: str  # the path of the exception's class
    trace: str


@dataclass(slots=True)
class Record:
    """A task from its enqueue to where it stands; times of the broker or the worker, in order."""

    header: Header
    path: str
    args: list[Any]
    kwargs: dict[str, Any]
    started_at: dt.datetime | None = None
    attempted_at: dt.datetime | None = None
    finished_at: dt.datetime | None = None
    faults: list[Fault] = field(default_factory=list)
    workers: list[str] = field(default_factory=list)
    value: Any = None

    def result(self, id: str, status: TaskResultStatus) -> Any:
        """As Django has it."""
        made = TaskResult(
            task=self.header.task(self.path),
            id=id,
            status=status,
            enqueued_at=None,
            started_at=None,
            finished_at=None,
            last_attempted_at=None,
            args=self.args,
            kwargs=self.kwargs,
            backend=self.header.backend,
            errors=[],
            worker_ids=[],
        )
        self.put_into(made, status)
        return made

    def put_into(self, result: Any, status: TaskResultStatus) -> None:
        """Changes a result of Django, which is frozen for others, to where the task stands."""
        enqueued, started, attempted, finished = in_order(
            self.header.enqueued_at, self.started_at, self.attempted_at, self.finished_at
        )
        faults = [TaskError(exception_class_path=f.kind, traceback=f.trace) for f in self.faults]
        for name, value in (
            ("status", status),
            ("enqueued_at", in_django(enqueued)),
            ("started_at", in_django(started)),
            ("last_attempted_at", in_django(attempted)),
            ("finished_at", in_django(finished)),
            ("errors", faults),
            ("worker_ids", list(self.workers)),
            ("_return_value", self.value),
        ):
            object.__setattr__(result, name, value)


def in_order(*times: dt.datetime | None) -> list[dt.datetime | None]:
    """The times, each no earlier than those before it: clocks of several machines differ."""
    found: list[dt.datetime | None] = []
    latest: dt.datetime | None = None
    for one in times:
        if one is not None:
            latest = one if latest is None else max(latest, one)
        found.append(None if one is None else latest)
    return found


def in_django(when: dt.datetime | None) -> dt.datetime | None:
    """A time as the project has it: without a zone if USE_TZ is off."""
    if when is None or settings.USE_TZ:
        return when
    naive: dt.datetime = timezone.make_naive(when)
    return naive


def from_django(when: dt.datetime | None) -> dt.datetime | None:
    """A time of the project with its zone."""
    if when is None or timezone.is_aware(when):
        return when
    aware: dt.datetime = timezone.make_aware(when)
    return aware


def from_ms(unix_ms: int | None) -> dt.datetime | None:
    """A time of the broker; None for none."""
    return dt.datetime.fromtimestamp(unix_ms / 1000, dt.UTC) if unix_ms else None


def class_of(err: BaseException) -> str:
    """The path of the class of an exception."""
    return f"{type(err).__module__}.{type(err).__qualname__}"


def fault_of(cause: str, reason: str, trace: str) -> Fault:
    """A failed attempt as the broker has it: by its cause, its reason and its traceback."""
    if cause in OUTSIDE:
        return Fault(OUTSIDE[cause], trace or reason)
    name = reason.partition(":")[0].strip()
    for line in reversed(trace.splitlines()):
        found = NAME.match(line)
        if found is not None and found[1].rpartition(".")[2] == name:
            path = found[1]
            return Fault(path if "." in path else f"{BUILT_IN}.{path}", trace)
    return Fault(f"{BUILT_IN}.{name if name.isidentifier() else 'Exception'}", trace or reason)


def tried(attempts: Sequence[Attempt]) -> tuple[list[Fault], list[str]]:
    """The faults of the attempts that failed, and the workers of all."""
    faults = [
        fault_of(one.state, one.reason, one.detail.decode(errors="replace"))
        for one in attempts
        if one.state in FAILURES
    ]
    return faults, [one.worker for one in attempts]


# ---- Asked of the broker


def result_of(app: App, id: str, job_id: str) -> Any:
    """The result of a task, as Django has it, under the id by which it was asked for.

    Raises TaskResultDoesNotExist for a job that is not known, was cancelled, is of no task of
    Django, or of which not all is kept any more; what the client raises if the broker is away.
    """
    try:
        found = app.client.result(job_id, with_body=True, with_attempts=True)
        record = None if found.state == CANCELLED else record_of(app, job_id, found)
    except (NoJob, BadId, NoResult):
        record = None
    if record is None:
        raise TaskResultDoesNotExist(id)
    return record.result(id, status_of(found))


def status_of(found: Result) -> TaskResultStatus:
    """The status of a job in Django's words."""
    if found.state == SUCCESSFUL:
        return TaskResultStatus.SUCCESSFUL
    if found.state == FAILED:
        return TaskResultStatus.FAILED
    return TaskResultStatus.RUNNING if found.state == RUNNING else TaskResultStatus.READY


def record_of(app: App, id: str, found: Result) -> Record | None:
    """Where a task stands, and what it returned; None if its call is not kept. NoResult."""
    if found.body is None:
        return None
    try:
        envelope = decode(opened(found.body, app.keys))
    except BadBody:
        return None
    header = header_in(found.headers or envelope.headers)
    if header is None:
        return None
    record = Record(header, envelope.task, envelope.args, envelope.kwargs)
    record.faults, record.workers = tried(found.attempts)
    if found.cause:  # a dead letter has all of the last traceback
        detail = found.detail.decode(errors="replace")
        record.faults[-1:] = [fault_of(found.cause, found.reason, detail)]
    if found.attempts:
        first, last = found.attempts[0], found.attempts[-1]
        record.started_at = from_ms(first.began_ms or first.ended_ms)
        record.attempted_at = from_ms(last.began_ms or last.ended_ms)
    if found.state in (SUCCESSFUL, FAILED):
        record.finished_at = from_ms(found.ended_ms) or record.attempted_at
    if found.state == SUCCESSFUL:
        record.value = app.handle(id).read(found)
    return record
