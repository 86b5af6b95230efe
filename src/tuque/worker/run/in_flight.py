"""One job in a worker, from its delivery until the broker knows its outcome."""

from __future__ import annotations

import time
from typing import Final

from tuque.client.api import Job as Delivery
from tuque.worker.app.codec import codec_of
from tuque.worker.app.decisions import Limits, Outcome, Settlement
from tuque.worker.pools.execute import Call, Job, instant

WAITING: Final = "waiting"  # fetched, not begun
STARTING: Final = "starting"  # the broker was asked for a run
AT_WORK: Final = "running"
SETTLING: Final = "settling"  # ended, the broker does not know yet


def about(
    job: Delivery, task: str = "", enqueued_at: float = 0.0, body: bytes | None = None
) -> Job:
    """A delivery as tasks and hooks see it; `body`: without its seal."""
    delivery = (job.nacks or 0) + (job.additional_deliveries or 0) + 1
    return Job(
        job_id=job.id,
        queue=job.queue,
        task=task,
        number=(job.attempt or 1) if job.of else delivery,
        max_deliveries=job.of or 0,
        nacks=job.nacks or 0,
        additional_deliveries=job.additional_deliveries or 0,
        enqueued_at=instant(enqueued_at),
        headers=job.headers or {},
        codec=codec_of(job.body if body is None else body),
    )


def is_suspect(job: Delivery) -> bool:
    """[U2] Whether a worker was lost while it had this job: it must run alone (U2.23).

    Without runs only the deliveries that came back by themselves tell of that.
    """
    return (job.crashes if job.of else job.additional_deliveries or 0) > 0


class Held:
    """One job from its delivery to its settlement."""

    __slots__ = (
        "about",
        "again",
        "asked_at",
        "call",
        "has_place",
        "is_apart",
        "job",
        "limits",
        "outcome",
        "progress",
        "run",
        "sent",
        "settlement",
        "since",
        "state",
        "verdict",
    )

    def __init__(self, job: Delivery, call: Call | None, limits: Limits) -> None:
        self.job = job
        self.about = about(job)
        self.call = call
        self.limits = limits
        self.state = WAITING
        self.since = self.asked_at = time.monotonic()  # began, START was sent
        self.settlement: Settlement | None = None
        self.again: Delivery | None = None  # delivered while it was held
        self.has_place = False  # of those that run, while the broker is asked for a run
        self.run = ""  # the token of the run, once it has begun
        self.progress: bytes | None = None  # the latest
        self.sent: bytes | None = None  # of its progress
        self.outcome: Outcome | None = None
        self.verdict: Outcome | None = None  # how its run ends without its task
        self.is_apart = False  # runs, or must run, in the process beside the worker's

    @property
    def has_runs(self) -> bool:
        """Whether the broker counts its attempts; else the worker does, by deliveries."""
        return bool(self.job.of)

    @property
    def delivery(self) -> int:
        """The number of this delivery, from 1."""
        return (self.job.nacks or 0) + (self.job.additional_deliveries or 0) + 1

    @property
    def task(self) -> str:
        """The name of its task; "" if it has none."""
        return "" if self.call is None else self.call.envelope.task

    def __str__(self) -> str:
        return f"job {self.job.id} ({self.task or '?'})"
