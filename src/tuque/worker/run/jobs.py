"""One job in a worker, from its delivery until the broker knows its outcome.

Decides what is to be done with a delivery: run it, reject it, or leave it to a worker of another
version. Has no client and no loops; `job_runner.py` carries out what is decided here.
"""

from __future__ import annotations

import datetime as dt
import heapq
import logging
import time
from collections import OrderedDict, deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from tuque.client.api import Job as Delivery
from tuque.client.commands.work import UNBEGUN, Run
from tuque.errors import Error, Stale, TooLate
from tuque.logtext import facts
from tuque.worker.app.celery_messages import (
    FOLLOWS_HEADER,
    FORM,
    FORM_HEADER,
    follows_of,
    read_message,
    unsuited,
)
from tuque.worker.app.codec import BadBody, Envelope, codec_of, decode, lost_result, opened
from tuque.worker.app.decisions import (
    AHEAD_RUNS,
    PUT_OFF_MAX_S,
    Backoff,
    Limits,
    Outcome,
    Report,
    ahead,
    is_at_most_once,
    one_line,
    put_off_s,
    spent,
)
from tuque.worker.app.encryption import Keys
from tuque.worker.app.enqueue import CHAIN_HEADER, UNKNOWN_KEEP_S
from tuque.worker.app.task import Task
from tuque.worker.pools.child import of_job
from tuque.worker.pools.execute import Call, Job, instant, over_limit_text
from tuque.worker.workflow.create import check_chain, check_queues, unknown_after

log: Final = logging.getLogger("tuque.worker")

WAITING: Final = "waiting"  # fetched, not begun
STARTING: Final = "starting"  # the broker was asked for a run
AT_WORK: Final = "running"
SETTLING: Final = "settling"  # ended, the broker does not know yet

WARNED_MAX: Final = 1_000
AHEAD_S: Final = 0.5  # without a begin, until what was fetched ahead is given back
ROUNDING_S: Final = 0.005  # the broker counts in whole ms
UNFIT_KEPT: Final = 10_000
UNFIT_S: Final = 2 * PUT_OFF_MAX_S  # after that, another worker has the job
UNKNOWN: Final = Limits(1, Backoff())  # of a task that this worker does not know
NOT_RUN: Final = "the step was not run: after it comes the unknown task"  # U11.2


@dataclass(frozen=True)
class WorkerSettings:
    """The settings of a worker. Queues are in order of priority, highest first."""

    queues: tuple[str, ...]
    concurrency: int = 8
    prefetch: int | None = None  # None: by how long jobs take, up to `concurrency`
    grace_s: float = 25.0
    max_jobs: int | None = None
    time_limit_s: float | None = None
    is_burst: bool = False
    max_memory_mb: int | None = None
    health_file: str | None = None
    metrics_port: int | None = None
    app_version: str = ""
    weights: tuple[int, ...] = ()  # of the queues, if they have any: then no order

    @property
    def most_ahead(self) -> int:
        """How many jobs may wait here for a place at most."""
        return self.concurrency if self.prefetch is None else self.prefetch


class Ahead:
    """[U2] How many jobs may wait in a worker for a place (U2.20)."""

    def __init__(self, settings: WorkerSettings) -> None:
        self._settings = settings
        self._took_s: deque[float] = deque(maxlen=AHEAD_RUNS)  # the last runs
        self._is_slow = False  # its jobs are too long to fetch others ahead
        self.jobs = 0

    def measure(self) -> int:
        """The number now, which counts until it is measured again."""
        self.jobs = 0 if self._is_slow else self._settings.most_ahead
        if self.jobs and self._settings.prefetch is None:
            self.jobs = ahead(self._took_s, self._settings.concurrency, self.jobs)
        return self.jobs

    def ran(self, took_s: float) -> None:
        """A run has ended."""
        self._took_s.append(took_s)
        if took_s < AHEAD_S:
            self._is_slow = False

    def stop(self) -> None:
        """None has begun for a while."""
        self._is_slow, self.jobs = True, 0


def log_ready(url: str, settings: WorkerSettings, tasks: int) -> None:
    """Logs what a worker does, and where; `tasks`: how many it knows."""
    log.info(
        "worker ready: broker %(broker)s, queues %(queues)s, %(concurrency)d at a time, "
        "up to %(prefetch)d more fetched ahead, tasks: %(tasks)d",
        facts(
            "worker_ready",
            broker=url,
            queues=", ".join(settings.queues),
            concurrency=settings.concurrency,
            prefetch=settings.most_ahead,
            tasks=tasks,
        ),
    )


def returns_of(job: Delivery) -> int:
    """How often the job was delivered before and came back, counted."""
    return (job.nacks or 0) + (job.additional_deliveries or 0)


def number_of(job: Delivery, attempt: int | None) -> int:
    """[U2] The attempt, from 1, of a run that the broker calls that attempt (U2.6)."""
    number = attempt or 1
    return number if job.of else number + job.crashes + returns_of(job)


def about(
    job: Delivery, task: str = "", enqueued_at: float = 0.0, body: bytes | None = None
) -> Job:
    """A delivery as tasks and hooks see it; `body`: without its seal."""
    return Job(
        job_id=job.id,
        queue=job.queue,
        task=task,
        number=number_of(job, job.attempt),
        max_deliveries=job.of or 0,
        nacks=job.nacks or 0,
        additional_deliveries=job.additional_deliveries or 0,
        enqueued_at=instant(enqueued_at),
        headers=job.headers or {},
        codec=codec_of(job.body if body is None else body),
    )


def is_suspect(job: Delivery) -> bool:
    """[U2] Whether a worker was lost while it had this job: it must run alone (U2.23).

    Attempt 0: it has no runs, and only the deliveries that came back by themselves tell of that.
    """
    return (job.crashes if job.attempt != 0 else job.additional_deliveries or 0) > 0


class InFlight:
    """One job from its delivery until the broker knows its outcome."""

    __slots__ = (
        "about",
        "again",
        "asked_at",
        "before",
        "call",
        "delivery",
        "has_place",
        "is_isolated",
        "job",
        "limits",
        "outcome",
        "progress",
        "report",
        "run",
        "sent",
        "since",
        "state",
        "verdict",
    )

    def __init__(self, job: Delivery, before: str = "") -> None:
        """`before`: the token of the run that it has since the previous process."""
        self.job = job
        self.delivery = returns_of(job) + 1  # its number
        self.before = before
        self.about: Job  # once it is prepared
        self.call: Call | None = None
        self.limits = UNKNOWN
        self.state = WAITING
        self.since = self.asked_at = time.monotonic()  # began, START was sent
        self.report: Report | None = None
        self.again: Delivery | None = None  # delivered while it was held
        self.has_place = False  # of those that run, while the broker is asked for a run
        self.run = UNBEGUN if job.attempt == 0 else ""  # the token, once its run has begun
        self.progress: bytes | None = None  # the latest
        self.sent: bytes | None = None  # of its progress
        self.outcome: Outcome | None = None
        self.verdict: Outcome | None = None  # how its run ends without its task
        self.is_isolated = False  # runs, or must run, in the process beside the worker's

    @property
    def known_run(self) -> str:
        """[U2] What RELEASE must name: also a run that waits to run again, apart (U2.14)."""
        before = self.before if self.again is None else ""  # else that run is over
        return self.run or before or UNBEGUN

    @property
    def task(self) -> str:
        """The name of its task; "" if it has none."""
        return "" if self.call is None else self.call.envelope.task

    @property
    def took_s(self) -> float:
        """For how long it runs, or ran."""
        return time.monotonic() - self.since

    def log_overdue(self, outcome: Outcome) -> None:
        """Such a run has ended: the broker has an outcome of it."""
        log.warning(
            "%(run)s has ended after its time limit (%(outcome)s), which is not taken",
            facts("overdue_ended", run=self, outcome=outcome.kind),
            extra=of_job(self.about),
        )

    def begins(self, run: Run) -> None:
        """The broker has given it a run."""
        self.run = run.run
        self.about.number = number_of(self.job, run.attempt)
        self.about.starts = run.starts
        if self.call is not None:
            self.about.max_deliveries = run.of or attempts_of(self.job.id, self.limits)
            self.call.time_limit_s = run.time_limit_s or self.call.time_limit_s

    def lose_result(self, outcome: Outcome, ended: str) -> None:
        """[U2] Its process ended before it could report the result (U2.14)."""
        outcome.result = lost_result(one_line(f"its process {ended} before its report"))
        log.error(
            "the result of %(run)s is lost: its process %(reason)s before its report",
            facts("job_result_lost", run=self, reason=ended),
            extra=of_job(self.about),
        )

    def is_limit_over(self, now_s: float) -> bool:
        """Whether the broker may have ended the run at its time limit: it knows since when."""
        limit_s = None if self.call is None else self.call.time_limit_s
        return limit_s is not None and now_s - self.asked_at >= limit_s - ROUNDING_S

    def cancel(self, err: Error | None, now_s: float) -> None:
        """[U2] The run is over at the broker: its task is cancelled (U2.3, U2.11)."""
        if self.state != AT_WORK or self.call is None:
            return
        why = str(err) if err is not None else "CANCELLED the job was cancelled, or the run is over"
        is_late = isinstance(err, TooLate)
        if err is None or isinstance(err, Stale):  # another run may have begun since
            is_late = self.is_limit_over(now_s)
        if is_late:
            why = over_limit_text(self.call.time_limit_s)
        if self.call.control.cancel(why, is_late):
            log.warning(
                "%(run)s is cancelled here: %(reason)s",
                facts("job_cancelled", run=self, reason=why),
                extra=of_job(self.about),
            )

    def __str__(self) -> str:
        return f"job {self.job.id} ({self.task or '?'})"


class Buffer:
    """Jobs that wait for a place here: by their queue's priority, then in order of arrival."""

    def __init__(self, queues: tuple[str, ...]) -> None:
        """`queues`: the highest priority first."""
        self._priority = {queue: at for at, queue in enumerate(queues)}
        self._jobs: list[tuple[int, int, InFlight]] = []
        self._pushed = 0

    def __len__(self) -> int:
        return len(self._jobs)

    def push(self, held: InFlight) -> None:
        """Adds a job."""
        self._pushed += 1
        place = self._priority.get(held.job.queue, len(self._priority))
        heapq.heappush(self._jobs, (place, self._pushed, held))

    def pop(self) -> InFlight | None:
        """Takes the next job, if there is one."""
        return heapq.heappop(self._jobs)[2] if self._jobs else None

    def take(self, most: int) -> list[InFlight]:
        """Takes up to `most` jobs out for other workers, the last ones, in their order.

        Leaves what may not come twice; drops what no longer waits.
        """
        taken: list[InFlight] = []
        kept: list[tuple[int, int, InFlight]] = []
        for place in sorted(self._jobs, reverse=True):
            held = place[2]
            if is_at_most_once(held.job.id) or len(taken) >= most:
                kept.append(place)
            elif held.state == WAITING:
                taken.append(held)
        self._jobs = kept[::-1]  # sorted: a heap
        return taken[::-1]

    def clear(self) -> None:
        """Forgets all jobs."""
        self._jobs.clear()


def log_jobs(running: Collection[InFlight], waiting: int, text: str) -> None:
    """Logs the running jobs and their times."""
    for held in running:
        log.info(
            "runs for %(seconds).1f s: %(run)s",
            facts("job_running", seconds=held.took_s, run=held),
        )
    log.info(
        "%(running)d run, %(waiting)d wait, %(text)s",
        facts("worker_dump", running=len(running), waiting=waiting, text=text),
    )


# ---- What is to be done with a delivery


def attempts_of(job_id: str, limits: Limits) -> int:
    """How many attempts a job has that the broker does not count."""
    return 1 if is_at_most_once(job_id) else limits.max_deliveries


class Unknown(NamedTuple):
    """A task that a job needs and this worker does not know; how long the job may wait for it."""

    why: str
    task: str
    keep_s: float | None


def prepare(
    held: InFlight,
    tasks: Mapping[str, Task[..., Any]],
    keys: Keys | None,
    time_limit_s: float | None,
) -> Unknown | None:
    """[U2] Gives the job its call and limits, or a verdict if it cannot run (U2.4, U2.6, U8.2)."""
    follows = ""
    try:
        body = held.job.body if keys is None else opened(held.job.body, keys)
        if held.job.headers is not None and held.job.headers.get(FORM_HEADER) == FORM:  # U16.1
            envelope, follows = read_message(body, held.job.queue, dt.datetime.now(dt.UTC))
        else:
            envelope = decode(body)
    except BadBody as err:
        held.about = about(held.job)
        held.verdict = Outcome("rejected", str(err))
        return None
    held.about = about(held.job, envelope.task, made_at(envelope, held.job), body)
    held.about.headers = _headers_of(held.job, envelope, follows)
    try:
        return _fit(held, envelope, tasks, keys, time_limit_s)
    except BadBody as err:
        held.verdict = Outcome("rejected", str(err))
        return None


def _headers_of(job: Delivery, envelope: Envelope, follows: str) -> dict[str, str]:
    """What a task sees; what follows a call of Celery is from its message alone (U16.4)."""
    headers = job.headers or envelope.headers or {}
    if follows or FOLLOWS_HEADER in headers:
        headers = {name: text for name, text in headers.items() if name != FOLLOWS_HEADER}
    return {**headers, FOLLOWS_HEADER: follows} if follows else headers


def _fit(
    held: InFlight,
    envelope: Envelope,
    tasks: Mapping[str, Task[..., Any]],
    keys: Keys | None,
    time_limit_s: float | None,
) -> Unknown | None:
    job, task = held.job, tasks.get(envelope.task)
    if task is None:
        what = f"unknown task '{envelope.task}'"
        return Unknown(what, envelope.task, envelope.unknown_keep_s)
    held.limits = task.limits(envelope)
    headers = held.about.headers
    follows = follows_of(headers) if FOLLOWS_HEADER in headers else None
    if follows is not None and (why := unsuited(follows)) is not None:
        return Unknown(why, envelope.task, envelope.unknown_keep_s)
    if follows is not None and follows.expired:
        held.verdict = Outcome("rejected", follows.expired)
        return None
    if keys is not None:
        check_chain(headers, envelope)
    steps = headers.get(CHAIN_HEADER)
    following = None if steps is None else _following(held, tasks, steps)
    if following is not None:
        return Unknown(f"{NOT_RUN} '{following}'", following, envelope.unknown_keep_s)
    held.about.max_deliveries = job.of or attempts_of(job.id, held.limits)
    reason = None if job.of else spent(held.about.number, held.limits)
    if reason is not None:
        held.verdict = Outcome("rejected", reason)
    else:
        of = held.limits
        limit_s = of.time_limit_s or time_limit_s
        held.call = Call(envelope, held.about, limit_s, of.soft_limit_s, of.cancel_grace_s)
    return None


def _following(held: InFlight, tasks: Mapping[str, Task[..., Any]], steps: str) -> str | None:
    """A task of a later step that this worker does not know (U11.2)."""
    try:
        following = unknown_after(tasks, steps)
        if following is None:
            check_queues(tasks, held.job.queue, held.job.headers or {}, steps)
        return following
    except ValueError as err:
        raise BadBody(str(err)) from None


def made_at(envelope: Envelope, job: Delivery) -> float:
    """When the job was enqueued, in unix seconds; a schedule does not say (U9.2)."""
    if envelope.enqueued_at or job.added_at is None:
        return envelope.enqueued_at or time.time()
    return job.added_at.timestamp()


class PutOff:
    """[U2] Jobs that this version of the app cannot run wait for workers of another one (U2.4)."""

    def __init__(self) -> None:
        self._times: OrderedDict[str, tuple[int, float]] = OrderedDict()  # how often, when last
        self._warned: set[tuple[str, str]] = set()

    def __contains__(self, job_id: str) -> bool:
        """Whether the job was given back lately."""
        return job_id in self._times

    def verdict(
        self, held: InFlight, why: str, keep_s: float | None, wall_s: float, now_s: float
    ) -> Outcome:
        """The job waits, or is rejected if it has waited for `keep_s`."""
        added_at = held.job.added_at or held.about.enqueued_at
        waited_s = wall_s - added_at.timestamp()
        keep_s = UNKNOWN_KEEP_S if keep_s is None else keep_s
        if is_at_most_once(held.job.id) or waited_s >= keep_s:
            return Outcome("rejected", why)
        return Outcome("retry", why, delay_s=self._wait_s(held.job.id, now_s))

    def _wait_s(self, job_id: str, now_s: float) -> float:
        """Counts another time; how long the job waits."""
        times, _ = self._times.pop(job_id, (0, now_s))
        self._times[job_id] = times + 1, now_s
        oldest = next(iter(self._times))
        while len(self._times) > UNFIT_KEPT or now_s - self._times[oldest][1] > UNFIT_S:
            del self._times[oldest]
            oldest = next(iter(self._times))
        return put_off_s(times, len(self._times))

    def warn_unknown(self, task: str) -> None:
        """Logs once that jobs of a task go to workers of another version."""
        if self._is_new("", task):
            log.warning(
                "unknown task '%(task)s': its jobs, and steps of chains before it, are given back "
                "for workers that know it",
                facts("task_unknown", task=task),
            )

    def warn_unfit(self, task: str, why: str) -> None:
        """Logs once why calls of a task go to workers of another version."""
        if self._is_new(task, why):
            log.warning(
                "task %(task)s does not take a call, which is given back for workers of another "
                "version: %(reason)s",
                facts("call_unfit", task=task, reason=why),
            )

    def _is_new(self, task: str, what: str) -> bool:
        if (task, what) in self._warned or len(self._warned) >= WARNED_MAX:
            return False
        self._warned.add((task, what))
        return True
