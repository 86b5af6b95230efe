"""Spans of OpenTelemetry around `enqueue` and around each run (SPEC U7).

Uses the API alone; the program decides where the spans go. The names are those of the semantic
conventions for messaging, which are still in development: all of them are in this module.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final

from tuque import __version__
from tuque.client.url import settings
from tuque.errors import ConfigError
from tuque.worker.app.decisions import encodable, one_line
from tuque.worker.app.hooks import Failure, Hooks, Outgoing
from tuque.worker.pools.execute import Job, came_to, describe, guarded, trace_of

try:
    from opentelemetry import context, propagate, trace
    from opentelemetry.propagators.textmap import Setter
except ImportError:
    raise ConfigError("telemetry needs OpenTelemetry: pip install 'tuque[otel]'") from None

if TYPE_CHECKING:
    from opentelemetry.trace import Span, SpanContext, Tracer, TracerProvider

SYSTEM: Final = "messaging.system"
OPERATION: Final = "messaging.operation.name"
KIND: Final = "messaging.operation.type"
QUEUE: Final = "messaging.destination.name"
JOB_ID: Final = "messaging.message.id"
COUNT: Final = "messaging.batch.message_count"
HOST: Final = "server.address"
PORT: Final = "server.port"
ERROR: Final = "error.type"
# what only Tuque has
TASK: Final = "messaging.tuque.message.task"
ATTEMPT: Final = "messaging.tuque.message.attempt"
OF: Final = "messaging.tuque.message.attempts_max"
STARTS: Final = "messaging.tuque.message.starts"
IS_NEW: Final = "messaging.tuque.message.is_new"
OUTCOME: Final = "messaging.tuque.outcome"

PARENT: Final = "traceparent"
Attributes = dict[str, str | int | bool]


class Telemetry:
    """Follows the jobs of an app: `App(url, telemetry=Telemetry())`.

    A run is a trace of its own with a link to its `enqueue`; with `one_trace` it is also a child of
    that. Without `tracer_provider` the spans go to the program's global one. One app each.
    """

    def __init__(
        self, tracer_provider: TracerProvider | None = None, *, one_trace: bool = False
    ) -> None:
        self.tracer: Tracer = trace.get_tracer("tuque", __version__, tracer_provider)
        self._is_one_trace = one_trace
        self._app: Any = None
        self._servers: dict[str, Attributes] = {}

    def attach(self, app: Hooks) -> None:
        """Called by the app; ConfigError if it follows another one already."""
        if self._app is not None:
            raise ConfigError("a Telemetry follows one App: make another one for this App")
        self._app = app
        app.follow_with(self)
        app.surrounds.insert(0, self.run)
        app.on_failure(self.lost)

    # ---- the producer

    def follow(self, jobs: list[Outgoing], is_many: bool) -> Sending:
        """[U7] Begins the spans of jobs that are about to be added (U7.1, U7.2)."""
        return Sending(self.tracer, jobs, is_many, self._server())

    def _server(self) -> Attributes:
        """Where the broker is, if the URL names one node."""
        url: str | None = self._app.url
        if url is None:
            return {}
        found = self._servers.get(url)
        if found is None:
            seeds = settings(url).seeds
            found = {}
            if len(seeds) == 1:
                found[HOST] = seeds[0].host
                if seeds[0].port:
                    found[PORT] = seeds[0].port
            self._servers[url] = found
        return found

    # ---- the worker

    @contextmanager
    def run(self, job: Job) -> Iterator[None]:
        """[U7] The span of one run (U7.3, U7.4)."""
        span = self._begun(job)
        token = context.attach(trace.set_span_in_context(span))
        try:
            yield
            span.set_attribute(OUTCOME, "done")
        except BaseException as err:
            mark_end(span, job, err, self._app.tasks.get(job.task))
            raise
        finally:
            context.detach(token)
            span.end()

    def lost(self, job: Job, failure: Failure) -> None:
        """[U7] The process of the task ended, and the span of its run with it (U7.5)."""
        if failure.error is not None:
            return
        span = self._begun(job)
        mark_failed(span, failure.kind, failure.text)
        span.set_attribute(OUTCOME, failure.kind)
        span.end()

    def _begun(self, job: Job) -> Span:
        """The span of a run, begun now."""
        came = propagate.extract(job.headers)
        sender = trace.get_current_span(came).get_span_context()
        if not self._is_one_trace:
            came = trace.set_span_in_context(trace.INVALID_SPAN, came)
        attributes: Attributes = {
            **named("run", "process", job.queue),
            JOB_ID: job.id,
            TASK: encodable(job.task),
            ATTEMPT: job.attempt,
            OF: job.of,
            STARTS: job.starts,
        }
        return self.tracer.start_span(
            f"run {encodable(job.queue)}",
            came,
            trace.SpanKind.CONSUMER,
            attributes,
            [trace.Link(sender, {JOB_ID: job.id})] if sender.is_valid else None,
        )


class Sending:
    """[U7] The spans of jobs on their way: one, or those of many and one around them."""

    def __init__(
        self, tracer: Tracer, jobs: list[Outgoing], is_many: bool, server: Attributes
    ) -> None:
        word, kind = ("create", "create") if is_many else ("enqueue", "send")
        self._jobs: list[Span] = []
        creators: list[SpanContext] = []
        for job in jobs:
            given = creator_of(job) if PARENT in job.headers else None
            span = tracer.start_span(
                f"{word} {encodable(job.queue)}",
                kind=trace.SpanKind.PRODUCER,
                attributes={**named(word, kind, job.queue), TASK: encodable(job.task), **server},
                links=None if given is None else [trace.Link(given)],
            )
            if PARENT not in job.headers:  # one that the program has set stays
                propagate.inject(job, trace.set_span_in_context(span), Fitting())
            self._jobs.append(span)
            creators.append(given or span.get_span_context())
        self._whole = self._jobs[0]
        if is_many:
            queues = {job.queue for job in jobs}
            queue = queues.pop() if len(queues) == 1 else None
            self._whole = tracer.start_span(
                "enqueue" if queue is None else f"enqueue {encodable(queue)}",
                kind=trace.SpanKind.CLIENT,
                attributes={**named("enqueue", "send", queue), COUNT: len(jobs), **server},
                links=[trace.Link(creator) for creator in creators],
            )

    def __enter__(self) -> Sending:
        self._token = context.attach(trace.set_span_in_context(self._whole))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        context.detach(self._token)
        if error is not None:
            mark_failed(self._whole, type_of(error), describe(error))
        for span in {id(one): one for one in (*self._jobs, self._whole)}.values():
            span.end()

    def added(self, at: int, job_id: str) -> None:
        """The job in that place was added, or an older one has its key."""
        span = self._jobs[at]
        span.set_attribute(JOB_ID, str.__str__(job_id))
        is_new = getattr(job_id, "is_new", None)
        if is_new is False:
            span.set_attribute(IS_NEW, False)

    def refused(self, at: int, error: BaseException) -> None:
        """The job in that place was not added, or it is not known."""
        mark_failed(self._jobs[at], type_of(error), describe(error))


class Fitting(Setter[Outgoing]):
    """Sets the headers of a job, but those that the broker would refuse (W1.3)."""

    def set(self, carrier: Outgoing, key: str, value: str) -> None:
        """Sets one; left out if it does not fit."""
        carrier.offer(key, value)


def creator_of(job: Outgoing) -> SpanContext | None:
    """The context that the program has set in the headers itself."""
    found = trace.get_current_span(propagate.extract(job.headers)).get_span_context()
    return found if found.is_valid else None


def named(operation: str, kind: str, queue: str | None) -> Attributes:
    """What each span has."""
    found: Attributes = {SYSTEM: "tuque", OPERATION: operation, KIND: kind}
    if queue is not None:
        found[QUEUE] = encodable(queue)
    return found


def mark_end(span: Span, job: Job, err: BaseException, task: Any) -> None:
    """[U7] What the end of a run by an exception means (U7.4)."""
    ended = came_to(job, err, task)
    kind = ended.kind
    if kind == "failed" and isinstance(err, asyncio.CancelledError):
        kind = "cancelled"  # the worker stops
    span.set_attribute(OUTCOME, kind)
    if kind == "timeout":
        mark_failed(span, kind, ended.text)  # U2.11
    if kind not in ("failed", "rejected"):
        return
    span.add_event(
        "exception",
        {
            "exception.type": type_of(err),
            "exception.message": one_line(guarded(str, err)),
            "exception.stacktrace": encodable(guarded(trace_of, err)),
        },
    )
    mark_failed(span, type_of(err), describe(err))


def mark_failed(span: Span, kind: str, text: str) -> None:
    """An error: its kind as an attribute, its text as the status."""
    span.set_attribute(ERROR, kind)
    span.set_status(trace.Status(trace.StatusCode.ERROR, text))


def type_of(err: BaseException) -> str:
    """A name for the kind of error, of which there are few."""
    kind = type(err)
    name = kind.__qualname__
    return name if kind.__module__ == "builtins" else f"{kind.__module__}.{name}"
