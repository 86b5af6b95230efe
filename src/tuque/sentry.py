"""Sentry: `sentry_sdk.init(integrations=[TuqueIntegration()])`.

Decides which failures of jobs are events, and what an event shows of a job. Needs sentry-sdk.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Final

from tuque.errors import Cancelled, ConfigError
from tuque.worker.app.app import App
from tuque.worker.app.enqueue import SCHEDULE_HEADER
from tuque.worker.app.hooks import NOT_FOLLOWED, Failure, Follower, Hooks, Middleware, Outgoing
from tuque.worker.app.task import Reject, RetryLater
from tuque.worker.pools.execute import Job, came_to
from tuque.worker.pools.middleware import is_halted

try:
    import sentry_sdk
    from sentry_sdk.crons import capture_checkin
    from sentry_sdk.integrations import Integration
    from sentry_sdk.integrations.logging import ignore_logger
    from sentry_sdk.scope import should_send_default_pii
    from sentry_sdk.utils import event_from_exception
except ImportError:
    raise ConfigError("tuque.sentry needs sentry-sdk: pip install 'tuque[sentry]'") from None

ORIGIN: Final = "auto.queue.tuque"
QUEUE: Final = "messaging.destination.name"
JOB_ID: Final = "messaging.message.id"
RETRIES: Final = "messaging.message.retry.count"
WAITED: Final = "messaging.message.receive.latency"  # ms
FLUSH_S: Final = 2.0
NO_FAULT: Final = (Reject, RetryLater, Cancelled)
OUTSIDE: Final = ("timeout", "crashed", "unfit")  # no exception of the task shows these


class TuqueIntegration(Integration):
    """Reports failed jobs of all apps of the program, and measures all jobs.

    A job is an event once it has failed for good; with `every_attempt` so is each failed attempt.
    """

    identifier = "tuque"

    def __init__(self, *, every_attempt: bool = False) -> None:
        self.every_attempt = every_attempt

    @staticmethod
    def setup_once() -> None:
        """Once a process: for the apps that there are, and for each that is made later."""
        ignore_logger("tuque.worker")  # it logs each failed attempt
        App.with_each.append(extend)
        for app in list(App.made.values()):
            extend(app)


def extend(app: App) -> None:
    """Has the integration follow the jobs of an app."""
    reporter = Reporter(app)
    app.use(reporter)
    app.follow_with(reporter)


def integration() -> TuqueIntegration | None:
    """That of the present client of Sentry; None if it has none."""
    found: TuqueIntegration | None = sentry_sdk.get_client().get_integration(TuqueIntegration)
    return found


class Reporter(Middleware):
    """What is sent about the jobs of one app."""

    def __init__(self, app: Hooks) -> None:
        self._app: Any = app

    # ---- the producer

    def attach(self, app: Hooks) -> None:
        """It is attached already."""

    def follow(self, jobs: list[Outgoing], is_many: bool) -> Follower:
        """A span around the sending of jobs; their headers carry the trace."""
        return NOT_FOLLOWED if integration() is None else Publishing(jobs)

    # ---- the worker

    @contextmanager
    def lifespan(self) -> Iterator[None]:
        """A process ends when all was sent."""
        try:
            yield
        finally:
            sentry_sdk.flush(timeout=FLUSH_S)

    @contextmanager
    def around(self, job: Job) -> Iterator[None]:
        """A run: a scope and a transaction of its own, a check-in of its schedule."""
        options = integration()
        if options is None:
            yield
            return
        with scope_of(job):
            transaction = sentry_sdk.continue_trace(
                job.headers, op="queue.task.tuque", name=job.task, source="task", origin=ORIGIN
            )
            with sentry_sdk.start_transaction(transaction):
                checkin = Checkin(job.headers.get(SCHEDULE_HEADER))
                try:
                    with processing(job):
                        yield
                except BaseException as err:
                    kind = self._failed(job, err, options)
                    transaction.set_status("internal_error" if kind == "error" else "aborted")
                    checkin.end(kind)
                    raise
                transaction.set_status("ok")
                checkin.end("ok")

    def _failed(self, job: Job, err: BaseException, options: TuqueIntegration) -> str | None:
        """Reports an exception; "error" if the run has failed by it, None if it is no fault."""
        outcome = came_to(job, err, self._app.tasks.get(job.task))
        if outcome.kind == "timeout":
            return "error"  # `failure` or `dead` reports it
        if outcome.kind not in ("failed", "rejected") or isinstance(err, NO_FAULT):
            return None
        if is_halted(err):
            return None
        if options.every_attempt or outcome.kind == "rejected" or 0 < job.of <= job.attempt:
            event, hint = event_from_exception(
                err,
                client_options=sentry_sdk.get_client().options,
                mechanism={"type": "tuque", "handled": False},
            )
            sentry_sdk.capture_event(event, hint=hint)
        return "error"

    def failure(self, job: Job, failure: Failure) -> None:
        """An attempt that ended without an exception, as by the end of its process."""
        options = integration()
        if options is not None and options.every_attempt:
            report(job, failure)

    def dead(self, job: Job, failure: Failure) -> None:
        """The last one of these."""
        options = integration()
        if options is not None and (not options.every_attempt or failure.kind == "unfit"):
            report(job, failure)


def report(job: Job, failure: Failure) -> None:
    """Reports what no exception of the task shows."""
    if failure.kind in OUTSIDE:
        with scope_of(job):
            sentry_sdk.capture_message(f"{job.task} {failure.kind}: {failure.text}", level="error")


@contextmanager
def scope_of(job: Job) -> Iterator[None]:
    """A scope with the facts of the job; its arguments only if Sentry may have them."""
    with sentry_sdk.isolation_scope() as scope:
        scope.clear_breadcrumbs()
        scope.set_tag("task", job.task)
        scope.set_tag("queue", job.queue)
        scope.set_tag("attempt", str(job.attempt))
        facts: dict[str, Any] = {"id": job.id, "of": job.of, "starts": job.starts}
        if shows_arguments():
            facts["args"], facts["kwargs"] = job.arguments
        scope.set_extra("tuque-job", facts)
        yield


def shows_arguments() -> bool:
    """As Sentry's own integrations: `data_collection` if it is set, else `send_default_pii`."""
    chosen = sentry_sdk.get_client().options.get("data_collection")
    if chosen is not None and chosen.get("provided_by_user"):
        return bool(chosen["queues"])
    return bool(should_send_default_pii())


@contextmanager
def processing(job: Job) -> Iterator[None]:
    """The span of the task's function."""
    with sentry_sdk.start_span(op="queue.process", name=job.task, origin=ORIGIN) as span:
        span.set_data(QUEUE, job.queue)
        span.set_data(JOB_ID, job.id)
        span.set_data(RETRIES, job.attempt - 1)
        if job.enqueued_at.year > 1970:  # a schedule does not write it
            span.set_data(WAITED, max(0.0, (time.time() - job.enqueued_at.timestamp()) * 1000))
        yield


class Checkin:
    """A run of a schedule, as the monitor of that name sees it; nothing for other jobs."""

    def __init__(self, schedule: str | None) -> None:
        self._schedule = schedule
        self._began_s = time.monotonic()
        self._id = None
        if schedule is not None:
            self._id = capture_checkin(monitor_slug=schedule, status="in_progress")

    def end(self, status: str | None) -> None:
        """None: it is not known how it ends."""
        if self._schedule is not None and status is not None:
            capture_checkin(
                monitor_slug=self._schedule,
                check_in_id=self._id,
                status=status,
                duration=time.monotonic() - self._began_s,
            )


class Publishing:
    """The span of jobs that are added."""

    def __init__(self, jobs: list[Outgoing]) -> None:
        self._span = sentry_sdk.start_span(op="queue.publish", name=jobs[0].task, origin=ORIGIN)
        self._span.set_data(QUEUE, jobs[0].queue)
        if len(jobs) > 1:
            self._span.set_data("messaging.batch.message_count", len(jobs))
        scope = sentry_sdk.get_current_scope()
        for name, value in scope.iter_trace_propagation_headers(span=self._span):
            for job in jobs:
                if name not in job.headers:  # one that the program has set stays
                    job.offer(name, value)

    def __enter__(self) -> Publishing:
        self._span.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self._span.__exit__(kind, error, tb)

    def added(self, at: int, job_id: str) -> None:
        """One job has its id; many are one span."""
        if at == 0:
            self._span.set_data(JOB_ID, str.__str__(job_id))

    def refused(self, at: int, error: BaseException) -> None:
        """One job was not added."""
        self._span.set_status("internal_error")
