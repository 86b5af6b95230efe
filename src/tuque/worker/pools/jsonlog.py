"""The log of a worker as JSON: each line that is about a job has its facts."""

from __future__ import annotations

import logging
from typing import Any, Final

from tuque.logtext import JsonFormatter, VisibleFormatter
from tuque.worker.pools.execute import Job, running_job

TENANT: Final = "tenant"  # a header
LOG_FORMAT: Final = "%(asctime)s %(process)d %(levelname)s %(message)s"


def of_job(job: Job) -> dict[str, Any]:
    """The job of a log line, for `extra`."""
    return {"about_job": job}


class JobsAsJson(JsonFormatter):
    """[U4] A line about a job has its facts, and so has a line that a task logs (U4.5)."""

    def more(self, record: logging.LogRecord) -> dict[str, Any]:
        """The facts of the job that the line is about, or of the one that runs here."""
        job = getattr(record, "about_job", None)
        if not isinstance(job, Job):
            job = running_job()
        if job is None:
            return {}
        found = {"job": job.id, "task": job.task, "queue": job.queue, "attempt": job.attempt}
        if TENANT in job.headers:
            found["tenant"] = job.headers[TENANT]
        return found


def formatter(kind: str) -> logging.Formatter:
    """The formatter for `--log`: text or json."""
    return JobsAsJson() if kind == "json" else VisibleFormatter(LOG_FORMAT)
