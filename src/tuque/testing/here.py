"""A job for tests that call a task's function themselves."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from tuque.worker.pools.execute import Control, Job, as_current

ID = "D-00000000-000000000000000000000000-05a1"


@contextmanager
def job(
    *,
    attempt: int = 1,
    of: int = 5,
    id: str = ID,
    queue: str = "default",
    task: str = "",
    headers: Mapping[str, str] | None = None,
    starts: int | None = None,
    time_left: float | None = None,
    cancelled: bool = False,
) -> Iterator[Job]:
    """Within it, `current_job()` is this job; nothing is enqueued and no broker is asked.

    `time_left` is in seconds; what the task tells by `progress` goes nowhere.
    """
    control = Control()
    made = Job(
        job_id=id,
        queue=queue,
        task=task,
        number=attempt,
        max_deliveries=of,
        nacks=0,
        additional_deliveries=0,
        enqueued_at=dt.datetime.now(dt.UTC),
        starts=attempt if starts is None else starts,
        headers=dict(headers or {}),
    )
    made.__dict__["control"] = control
    if time_left is not None:
        control.ends_at = control.clock() + time_left
    if cancelled:
        control.cancel("CANCELLED the job was cancelled")
    with as_current(made):
        yield made
