"""SPEC U7: the spans of OpenTelemetry, kept by its SDK, of real jobs."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import traced_tasks as tasks
from opentelemetry import baggage, context
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.semconv._incubating.attributes import messaging_attributes
from opentelemetry.trace import SpanKind, StatusCode
from worker_lab import SOURCE, StartWorker

from lab import RealServer
from tuque import Client
from tuque.errors import ConfigError, Error, JobFailed
from tuque.testing import TestApp
from tuque.worker import App, Outgoing, telemetry
from tuque.worker.telemetry import Telemetry
from until import until

GIVEN = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture(autouse=True)
def _no_spans() -> Iterator[None]:
    tasks.kept.clear()
    yield
    tasks.app.on_enqueue.functions.clear()


def spans(*words: str) -> list[ReadableSpan]:
    """Those that ended, by the first word of their name; without words all."""
    found = tasks.kept.get_finished_spans()
    return [span for span in found if not words or span.name.split(" ")[0] in words]


def of(span: ReadableSpan) -> tuple[int, int]:
    """Trace and span."""
    found = span.get_span_context()
    assert found is not None
    return found.trace_id, found.span_id


def linked(span: ReadableSpan) -> list[tuple[int, int]]:
    return [(link.context.trace_id, link.context.span_id) for link in span.links]


def test_a_job_is_followed_from_its_enqueue_to_its_run(tuque_app: TestApp) -> None:
    """
    U7.1 `enqueue` is a span of kind producer, `enqueue <queue>`, until the broker has replied.
    Its context travels in the job's headers (`traceparent`).

    U7.3 A run is a span of kind consumer, `run <queue>`, with job, task and attempt, around the
    middleware. It links to the context in the headers of the job. It begins a trace of its own
    """
    with tasks.tracer.start_as_current_span("request") as request:
        handle = tasks.works.enqueue("x")
    (sent,) = spans("enqueue")
    assert sent.name == "enqueue q" and sent.kind == SpanKind.PRODUCER
    assert sent.parent is not None and sent.parent.span_id == request.get_span_context().span_id
    assert dict(sent.attributes or {}) == {
        "messaging.system": "tuque",
        "messaging.operation.name": "enqueue",
        "messaging.operation.type": "send",
        "messaging.destination.name": "q",
        "messaging.message.id": str(handle),
        "messaging.tuque.message.task": "traced_tasks.works",
        "server.address": "127.0.0.1",
        "server.port": 7711,
    }
    assert tuque_app.run_until_idle() == 1
    (run,) = spans("run")
    assert run.name == "run q" and run.kind == SpanKind.CONSUMER and run.parent is None
    assert linked(run) == [of(sent)] and of(run)[0] != of(sent)[0]
    assert dict(run.attributes or {}) == {
        "messaging.system": "tuque",
        "messaging.operation.name": "run",
        "messaging.operation.type": "process",
        "messaging.destination.name": "q",
        "messaging.message.id": str(handle),
        "messaging.tuque.message.task": "traced_tasks.works",
        "messaging.tuque.message.attempt": 1,
        "messaging.tuque.message.attempts_max": 2,
        "messaging.tuque.message.starts": 1,
        "messaging.tuque.outcome": "done",
    }
    assert [(one.status.status_code, one.events) for one in (sent, run)] == [
        (StatusCode.UNSET, ()),
        (StatusCode.UNSET, ()),
    ]
    (inner,) = spans("inner")
    assert inner.parent is not None and inner.parent.span_id == of(run)[1]


def test_a_run_may_be_in_the_trace_of_its_enqueue(tuque_app: TestApp) -> None:
    """U7.3 with `one_trace` it is a child of that context."""
    app = App(telemetry=Telemetry(tasks.provider, one_trace=True))

    @app.task(queue="one", name="one")
    def one() -> None:
        assert baggage.get_baggage("who") == "ann"

    token = context.attach(baggage.set_baggage("who", "ann"))
    one.enqueue()
    context.detach(token)
    assert tuque_app.run_until_idle() == 1 and not tuque_app.dead()
    (sent,), (run,) = spans("enqueue"), spans("run")
    assert run.parent is not None and (of(run)[0], run.parent.span_id) == of(sent)
    with pytest.raises(ConfigError, match="follows one App"):
        App(telemetry=app.telemetry)


def test_many_jobs_have_a_span_each(tuque_app: TestApp) -> None:
    """
    U7.2 In `enqueue_many` each job has such a span, `create <queue>`. One of kind client,
    `enqueue <queue>`, is around them, with links to all and their number.
    """
    handles = tasks.works.enqueue_many([tasks.works.call("a"), tasks.works.call("b")])
    created, (whole,) = spans("create"), spans("enqueue")
    assert [span.kind for span in created] == [SpanKind.PRODUCER] * 2
    assert [(span.attributes or {})["messaging.message.id"] for span in created] == handles
    assert whole.kind == SpanKind.CLIENT and linked(whole) == [of(span) for span in created]
    assert (whole.attributes or {})["messaging.batch.message_count"] == 2
    assert tuque_app.run_until_idle() == 2
    assert sorted(linked(run)[0] for run in spans("run")) == sorted(of(one) for one in created)
    tasks.kept.clear()
    assert tasks.works.enqueue_many([]) == [] and spans() == []


def test_what_a_task_raises_is_its_span_s_error(tuque_app: TestApp) -> None:
    """
    U7.4 What the task raises is an event and the status of the span. `RetryLater` and a cancelled
    run are its outcome, and no errors.
    """
    for text in ("fail", "reject", "later"):
        tasks.works.enqueue(text)
        tuque_app.run_until_idle()
        tuque_app.advance(60)
        tuque_app.run_until_idle()
    tasks.hangs.enqueue()
    tuque_app.run_until_idle()
    found = []
    for run in spans("run"):
        words = run.attributes or {}
        kind, attempt = (words[f"messaging.tuque.{w}"] for w in ("outcome", "message.attempt"))
        found.append((kind, attempt, run.status.status_code, words.get("error.type")))
    assert found == [
        ("failed", 1, StatusCode.ERROR, "ValueError"),
        ("failed", 2, StatusCode.ERROR, "ValueError"),
        ("rejected", 1, StatusCode.ERROR, "tuque.worker.app.task.Reject"),
        ("retry", 1, StatusCode.UNSET, None),
        ("done", 1, StatusCode.UNSET, None),
        ("timeout", 1, StatusCode.ERROR, "timeout"),
    ]
    (event,) = spans("run")[0].events
    assert event.name == "exception" and event.attributes is not None
    assert event.attributes["exception.message"] == "no\x1b good \\udc80"
    assert "raise ValueError" in str(event.attributes["exception.stacktrace"])
    assert spans("run")[3].events == ()


def test_an_enqueue_that_fails_is_an_error(tuque_app: TestApp) -> None:
    """U7.1 until the broker has replied"""
    tuque_app.client.pause("q", "in")
    with pytest.raises(Error, match="PAUSED"):
        tasks.works.enqueue("x")
    with pytest.raises(Error, match="were not added"):
        tasks.works.enqueue_many([tasks.works.call("a"), tasks.works.call("b")])
    assert len(spans()) == 4
    for span in spans():
        assert span.status.status_code == StatusCode.ERROR, span.name
        assert str((span.attributes or {})["error.type"]).startswith("tuque.errors."), span.name


def test_headers_of_the_program_stay_and_long_ones_are_left_out(tuque_app: TestApp) -> None:
    """
    U7.1 A header that the broker would refuse (W1.3) is left out. If the program has set
    `traceparent` itself, that stays, and the span links to it.
    """
    token = context.attach(baggage.set_baggage("who", "a" * 1100))
    tasks.works.enqueue("x")
    context.detach(token)
    tasks.works.options(headers={str(n): "v" * 1000 for n in range(4)}).enqueue("x")

    @tasks.app.on_enqueue
    def out(call: Outgoing) -> None:
        call.headers["traceparent"] = GIVEN

    tasks.works.enqueue("x")
    tasks.works.enqueue_many([tasks.works.call("x")])
    headers = [job.headers for job in tuque_app.jobs()]
    assert set(headers[0]) == {"traceparent"}
    assert set(headers[1]) == {"0", "1", "2", "3"}
    assert [one["traceparent"] for one in headers[2:]] == [GIVEN, GIVEN]
    there = (int(GIVEN[3:35], 16), int(GIVEN[36:52], 16))
    assert linked(spans("enqueue")[2]) == [there]
    assert linked(spans("create")[0]) == linked(spans("enqueue")[3]) == [there]
    tuque_app.run_until_idle()
    assert [linked(run) for run in spans("run")] == [
        [of(spans("enqueue")[0])],
        [],
        [there],
        [there],
    ]


def lines(folder: Path) -> list[dict[str, Any]]:
    """The spans that workers have ended."""
    path = folder / "spans"
    if not path.exists():
        return []
    whole = path.read_text().rpartition("\n")[0]  # a worker may be writing the last one
    return [json.loads(line) for line in whole.splitlines()]


@pytest.mark.parametrize("pool", ["thread", "async", "process"])
def test_workers_end_their_spans_in_every_pool(
    pool: str, node: RealServer, client: Client, start_worker: StartWorker, tmp_path: Path
) -> None:
    """U7.5 The worker makes another one, without a length, with that error."""
    tasks.app.use(node.url)
    client.tube("tube").create("fifo")
    handles = [tasks.works.enqueue("x"), tasks.works_async.enqueue("y")]
    tasks.in_a_tube.enqueue("z")
    start_worker("--pool", pool, "-c", "1", app="traced_tasks:app")
    assert [handle.result(30) for handle in handles] == ["x", "y"]
    if pool == "process":
        with pytest.raises(JobFailed):
            tasks.works.enqueue("exit").result(30)

    def runs() -> list[dict[str, Any]]:
        return [line for line in lines(tmp_path) if line["name"].startswith("run ")]

    until(lambda: len(runs()) == (5 if pool == "process" else 3))
    sent = {span.name: f"0x{of(span)[0]:032x}" for span in spans("enqueue")}
    for run in runs():
        (link,) = run["links"]
        assert link["context"]["trace_id"] in [f"0x{of(s)[0]:032x}" for s in spans("enqueue")]
        ends_well = run["status"]["status_code"] == "UNSET"
        outcome = run["attributes"]["messaging.tuque.outcome"]
        assert outcome == ("done" if ends_well else "crashed"), run
    assert len([run for run in runs() if run["status"]["status_code"] == "ERROR"]) == (
        2 if pool == "process" else 0
    )
    in_tube = [run for run in runs() if run["name"] == "run tube"]
    assert [run["links"][0]["context"]["trace_id"] for run in in_tube] == [sent["enqueue tube"]]


def test_nothing_is_imported_unless_it_is_asked_for() -> None:
    """U7 without it, nothing of OpenTelemetry is imported"""
    words = "import sys, tuque.worker; print([n for n in sys.modules if 'opentelemetry' in n])"
    ran = subprocess.run(
        [sys.executable, "-c", words],
        env={"PYTHONPATH": str(SOURCE)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout == "[]\n"


def test_names_are_those_of_the_conventions() -> None:
    """They are written out in our module: this tells when the conventions change."""
    known = {value for value in vars(messaging_attributes).values() if isinstance(value, str)}
    ours = {value for value in vars(telemetry).values() if isinstance(value, str)}
    ours = {value for value in ours if value.startswith("messaging.") and ".tuque." not in value}
    assert len(ours) == 6 and ours <= known
    kinds = {one.value for one in messaging_attributes.MessagingOperationTypeValues}
    assert {"send", "create", "process"} <= kinds
