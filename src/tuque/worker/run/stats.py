"""Log lines of a worker about its jobs: each result, and totals at intervals.

Jobs and attempts are counted separately: a job that fails twice and then succeeds is one done and
two failed attempts. Repeated tracebacks are shown once a minute.
"""

from __future__ import annotations

import asyncio
import logging
import time
from bisect import bisect_left
from collections import Counter, OrderedDict
from typing import Final

from tuque.logtext import facts
from tuque.worker.app.decisions import Outcome
from tuque.worker.pools.child import of_job
from tuque.worker.pools.execute import Job

log: Final = logging.getLogger("tuque.worker")

TOLD_EVERY_S: Final = 10.0
TRACES_KEPT: Final = 100
UNWELL_KEPT: Final = 10_000
TRACE_AGAIN_S: Final = 60.0  # the same traceback is shown once in this time

DONE: Final = "done"
DEAD: Final = "dead"
FAILED: Final = "failed attempts"
PUT_OFF: Final = "put off"
GIVEN_BACK: Final = "given back"
GONE: Final = "gone"
ORDER: Final = (DONE, DEAD, FAILED, PUT_OFF, GIVEN_BACK, GONE)


BOUNDS_S: Final = (0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0, 3600.0)
TASKS_KEPT: Final = 200  # tasks with figures of their own; all others are one
OTHER: Final = "other"


class TaskFigures:
    """The runs of one task: by outcome, and by the time that they took."""

    def __init__(self) -> None:
        self.outcomes: Counter[str] = Counter()
        self.buckets = [0] * (len(BOUNDS_S) + 1)
        self.spent_s = 0.0

    def add(self, outcome: str, took_s: float) -> None:
        """Count a run."""
        self.outcomes[outcome] += 1
        self.buckets[bisect_left(BOUNDS_S, took_s)] += 1
        self.spent_s += took_s


class JobLog:
    """The totals of one worker, and the tracebacks that it showed."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.unwell: set[str] = set()  # jobs that failed and were not done since
        self.tasks: dict[str, TaskFigures] = {}
        self._traces: OrderedDict[str, float] = OrderedDict()

    def summary(self, since: Counter[str] | None = None) -> str:
        """The totals on one line, or the increase since `before`."""
        counts = self.counts if since is None else self.counts - since
        return ", ".join(f"{counts[what]:,} {what}" for what in ORDER if counts[what]) or "no jobs"

    def done(self, job: Job, took_s: float) -> None:
        """Counts and logs a run that is done."""
        task = job.task or "?"
        (self.tasks.get(task) or self._figures_of(task)).add("done", took_s)
        self.counts[DONE] += 1
        self.unwell.discard(job.job_id)
        if log.isEnabledFor(logging.DEBUG):
            log.debug(
                "%(run)s done in %(seconds).3f s",
                facts("job_done", run=name_of(job), seconds=took_s),
                extra=of_job(job),
            )

    def again(self, job: Job, outcome: Outcome, wait_s: float | None, took_s: float) -> None:
        """Counts and logs a run after which the job comes again."""
        self._failed(job, outcome, f"next try in {wait_s or 0:.1f} s", took_s)

    def dead(self, job: Job, outcome: Outcome, queue: str, took_s: float) -> None:
        """Counts and logs the last run of a job, which is a dead letter in that queue."""
        self.counts[DEAD] += 1
        self._fell_ill(job.id)
        self._failed(job, outcome, f"no more tries, it goes to {queue}", took_s)

    def _failed(self, job: Job, outcome: Outcome, after: str, took_s: float) -> None:
        self._figures_of(job.task or "?").add(outcome.kind, took_s)
        what = "asked to run later" if outcome.kind == "retry" else "failed"
        self.counts[PUT_OFF if outcome.kind == "retry" else FAILED] += 1
        if outcome.kind != "retry":
            self._fell_ill(job.id)
        is_new = self._is_new(outcome.trace)
        log.warning(
            "%(run)s %(what)s (attempt %(number)d): %(reason)s; %(next)s%(remark)s",
            facts(
                "job_put_off" if outcome.kind == "retry" else "job_failed",
                run=name_of(job),
                what=what,
                number=job.number,
                reason=outcome.text,
                next=after,
                remark="" if is_new else " (traceback as before)",
            ),
            extra={"trace": outcome.trace if is_new else "", **of_job(job)},
        )

    def _fell_ill(self, job_id: str) -> None:
        if len(self.unwell) < UNWELL_KEPT:
            self.unwell.add(job_id)

    def _figures_of(self, task: str) -> TaskFigures:
        """Where the runs of that task are counted."""
        if task not in self.tasks and len(self.tasks) >= TASKS_KEPT:
            task = OTHER
        return self.tasks.setdefault(task, TaskFigures())

    def _is_new(self, trace: str) -> bool:
        """False for a traceback that was shown a short time ago."""
        if not trace:
            return True
        now = time.monotonic()
        shown_at = self._traces.get(trace)
        if shown_at is not None and now - shown_at < TRACE_AGAIN_S:
            return False
        self._traces[trace] = now
        self._traces.move_to_end(trace)
        if len(self._traces) > TRACES_KEPT:
            self._traces.popitem(last=False)
        return True

    async def loop(self) -> None:
        """Logs totals at intervals, as long as the worker lives."""
        while True:
            before = self.counts.copy()
            await asyncio.sleep(TOLD_EVERY_S)
            if self.counts != before:
                log.info(
                    "in the last %(seconds).0f s: %(text)s",
                    facts("summary", seconds=TOLD_EVERY_S, text=self.summary(before)),
                )


def name_of(job: Job) -> str:
    """The job in a line of the log."""
    return f"job {job.id} ({job.task or '?'})"
