"""The log of a worker as JSON: one object a line, for programs that collect logs."""

from __future__ import annotations

import datetime as dt
import logging
from typing import Any, Final

import msgspec

from tuque.logtext import VisibleFormatter, visible
from tuque.worker.pools.execute import Job, running_job

TENANT: Final = "tenant"  # a header
LOG_FORMAT: Final = "%(asctime)s %(process)d %(levelname)s %(message)s"


def facts_of(job: Job, event: str) -> dict[str, Any]:
    """What a line of the log has about a job, for `extra`; `event` is what happened to it."""
    return {"job": job, "event": event}


class JsonFormatter(logging.Formatter):
    """[U4] Time, level, process, logger and message; of a job its facts and what happened (U4.5).

    A line that a task logs has the facts of its job.
    """

    def format(self, record: logging.LogRecord) -> str:
        found: dict[str, Any] = {
            "time": dt.datetime.fromtimestamp(record.created, dt.UTC).isoformat(),
            "level": record.levelname.lower(),
            "process": record.process,
            "logger": record.name,
            "message": visible(record.getMessage()),
        }
        job = getattr(record, "job", None)
        if not isinstance(job, Job):
            job = running_job()
        if job is not None:
            found |= {"job": job.id, "task": job.task, "queue": job.queue, "attempt": job.attempt}
            if TENANT in job.headers:
                found["tenant"] = job.headers[TENANT]
        if hasattr(record, "event"):
            found["event"] = record.event
        trace = str(getattr(record, "trace", ""))
        if record.exc_info:
            trace = self.formatException(record.exc_info)
        if trace:
            found["trace"] = trace
        return msgspec.json.encode(_writable(found)).decode()


def _writable(found: dict[str, Any]) -> dict[str, Any]:
    """The object with lone surrogates escaped, which JSON cannot have."""
    return {
        name: value.encode("utf-8", "backslashreplace").decode() if type(value) is str else value
        for name, value in found.items()
    }


def formatter(kind: str) -> logging.Formatter:
    """The formatter for `--log`: text or json."""
    return JsonFormatter() if kind == "json" else VisibleFormatter(LOG_FORMAT)
