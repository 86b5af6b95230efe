"""What a job carries of a task of Django, and what the broker knows of it: `get_result`.

A header has what the task says beside its arguments. The result of a job that is done has the whole
record of it, since the broker keeps no body of such a job. Of any other one the node that has it
shows body, headers and runs, so that is asked: the node of the client first.
"""

from __future__ import annotations

import datetime as dt
import re
from dataclasses import replace
from typing import Any, Final

import msgspec
from django.conf import settings
from django.utils import timezone
from django.utils.module_loading import import_string

from tuque.client.api import JobFailure, JobInfo, JobWork
from tuque.client.commands.work import Result
from tuque.client.retry import Retry
from tuque.client.sync import Client
from tuque.client.url import url_of
from tuque.django.tasks_api import (
    Task,
    TaskError,
    TaskResult,
    TaskResultDoesNotExist,
    TaskResultStatus,
)
from tuque.errors import BadId, Error, NoJob
from tuque.worker.app.app import App
from tuque.worker.app.codec import BadBody, decode, opened, unpack
from tuque.worker.app.encryption import RESULT

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
ANSWER_S: Final = 2.0  # of another node


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


class Fault(msgspec.Struct):
    """One attempt that failed."""

    kind: str  # the path of the exception's class
    trace: str


class Record(msgspec.Struct, omit_defaults=True):
    """A task from its enqueue to where it stands; times of the broker or the worker, in order."""

    header: Header
    path: str
    args: list[Any]
    kwargs: dict[str, Any]
    started_at: dt.datetime | None = None
    attempted_at: dt.datetime | None = None
    finished_at: dt.datetime | None = None
    faults: list[Fault] = []
    workers: list[str] = []
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


def earlier(work: JobWork | None, before: int) -> tuple[list[Fault], list[str]]:
    """The faults and workers of the attempts before that number, as far as the broker has them.

    It keeps the first and the last failure: others have no reason and no name.
    """
    known: dict[int, JobFailure] = {}
    for one in (work.first_failure, work.last_failure) if work is not None else ():
        if one is not None:
            known[one.attempt] = one
    faults: list[Fault] = []
    workers: list[str] = []
    for number in range(1, before):
        at = known.get(number)
        workers.append("" if at is None else at.worker)
        faults.append(
            Fault(f"{BUILT_IN}.Exception", "not kept by the broker")
            if at is None
            else fault_of(at.cause, at.reason, "")
        )
    return faults, workers


def first_start(info: JobInfo | None) -> dt.datetime | None:
    """When the first run began, or failed: the broker knows the start of the newest one alone."""
    work = None if info is None else info.work
    if work is None:
        return None
    if work.first_failure is not None and (work.run is None or work.run.attempt > 1):
        return from_ms(work.first_failure.at_ms)
    return None if work.run is None else from_ms(work.run.since_ms)


# ---- Asked of the broker


def result_of(app: App, id: str, job_id: str) -> Any:
    """The result of a task, as Django has it, under the id by which it was asked for.

    Raises TaskResultDoesNotExist for a job that is not known, is of no task of Django, or of which
    nothing is kept any more; what the client raises if the broker is away.
    """
    try:
        found = app.client.result(job_id)
    except (NoJob, BadId):
        raise TaskResultDoesNotExist(id) from None
    if found.state == SUCCESSFUL:
        record = done_record(app, found)
    else:
        record = open_record(app, job_id, found)
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


def done_record(app: App, found: Result) -> Record | None:
    """The record that the worker has sent with the result; None if it is not kept."""
    if found.result is None:
        return None
    try:
        data = found.result if app.keys is None else app.keys.open(found.result, RESULT)
        return msgspec.convert(unpack(data), Record)
    except (msgspec.MsgspecError, ValueError):
        return None


def open_record(app: App, id: str, found: Result) -> Record | None:
    """The record of a task that waits, runs or has failed; None if no node shows its job."""
    info = shown_anywhere(app, id)
    if info is None or info.body is None:
        return None
    try:
        envelope = decode(opened(info.body, app.keys))
    except BadBody:
        return None
    header = header_in(envelope.headers if info.work is None else info.work.headers)
    if header is None:
        return None
    record = Record(header, envelope.task, envelope.args, envelope.kwargs)
    ended = found.attempt - (found.state == RUNNING) if info.work is None else info.work.failed
    record.faults, record.workers = earlier(info.work, ended + 1)
    if found.cause:
        detail = found.detail.decode(errors="replace")
        record.faults[-1:] = [fault_of(found.cause, found.reason, detail)]
    if found.attempt:
        run = None if info.work is None else info.work.run
        # of a task of a tube nothing is known but its end
        record.started_at = first_start(info) or from_ms(found.ended_ms)
        record.attempted_at = record.started_at if run is None else from_ms(run.since_ms)
    if found.state == RUNNING:
        record.workers.append(found.worker)
    if found.state == FAILED:
        record.finished_at = from_ms(found.ended_ms) or record.attempted_at
    return record


def shown_anywhere(app: App, id: str) -> JobInfo | None:
    """What the node that has the job shows of it; None if none in reach has it."""
    client = app.client
    info = client.show(id)
    if info is not None and info.body is not None:
        return info
    own = client.hello()
    for node in own.nodes:
        if node.id == own.id:
            continue
        url = url_of(client.settings, node.host, node.port)
        with Client(url, discover=False, timeout=ANSWER_S, retry=Retry(attempts=1)) as other:
            try:
                info = other.show(id)
            except Error:
                continue
        if info is not None and info.body is not None:
            return info
    return None
