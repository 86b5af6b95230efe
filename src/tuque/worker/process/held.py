"""One job in a worker, from its delivery until the broker knows what became of it."""

from __future__ import annotations

import time
from typing import Final

from tuque.client.api import Job
from tuque.worker.pools.execute import Call
from tuque.worker.tasks.policy import Limits, Settlement

WAITING: Final = "waiting"  # fetched, not begun
RUNNING_HERE: Final = "running"
SETTLING: Final = "settling"  # ended, the broker does not know yet


class Held:
    """One job from its delivery to its settlement."""

    __slots__ = ("call", "is_apart", "job", "limits", "settlement", "since", "state")

    def __init__(self, job: Job, call: Call | None, limits: Limits) -> None:
        self.job = job
        self.call = call
        self.limits = limits
        self.state = WAITING
        self.since = time.monotonic()
        self.settlement: Settlement | None = None
        self.is_apart = False  # runs, or must run, in the process beside the worker's

    @property
    def task(self) -> str:
        """The name of its task; "" if it has none."""
        return "" if self.call is None else self.call.envelope.task

    def __str__(self) -> str:
        return f"job {self.job.id} ({self.task or '?'})"
