"""Sentry: exactly the events of failed jobs, transactions of runs, check-ins of schedules."""

from __future__ import annotations

import importlib
import json
import sys
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from worker_lab import StartWorker

from lab import RealServer
from tuque.errors import JobFailed
from tuque.testing import TestApp
from tuque.worker import App
from until import until

sentry_sdk = pytest.importorskip("sentry_sdk", reason="sentry-sdk is not installed: make setup-dev")


@pytest.fixture(scope="module")
def loaded() -> Iterator[Any]:
    """The app. Those of other tests in this process are not followed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(App, "made", weakref.WeakValueDictionary())
        patch.setattr(App, "with_each", [])
        yield importlib.import_module("sentry_tasks")


@pytest.fixture
def tasks(loaded: Any) -> Iterator[Any]:
    """The app, with a Sentry that has just begun."""
    loaded.begin()
    loaded.sent.clear()
    yield loaded
    sentry_sdk.init()


def of(kind: str) -> list[dict[str, Any]]:
    """What was sent of that kind."""
    sentry_sdk.flush()
    return [one for one in sys.modules["sentry_tasks"].sent if one["kind"] == kind]


def run_all(test_app: TestApp, seconds: float = 5.0) -> None:
    for _ in range(4):
        test_app.run_until_idle()
        test_app.advance(seconds)


def test_a_job_is_an_event_once_it_has_failed_for_good(tuque_app: TestApp, tasks: Any) -> None:
    handle = tasks.fails.enqueue("a secret")
    run_all(tuque_app)
    (event,) = of("event")
    (error,) = event["exception"]["values"]
    assert (error["type"], error["value"]) == ("OSError", "attempt 2")
    assert error["mechanism"] == {"type": "tuque", "handled": False}
    assert event["tags"] == {"task": "sentry_tasks.fails", "queue": "q", "attempt": "2"}
    assert event["extra"]["tuque-job"]["id"] == handle.id
    assert "a secret" not in json.dumps(event["extra"])


def test_the_only_attempt_of_a_job_is_its_last(tuque_app: TestApp, tasks: Any) -> None:
    tasks.fails_once.enqueue()
    run_all(tuque_app)
    (event,) = of("event")
    assert event["exception"]["values"][0]["value"] == "attempt 1 of 1"


def test_each_attempt_may_be_one(tuque_app: TestApp, tasks: Any) -> None:
    tasks.begin(every_attempt=True, send_default_pii=True)
    tasks.fails.enqueue("a secret")
    run_all(tuque_app)
    assert [one["tags"]["attempt"] for one in of("event")] == ["1", "2"]
    assert of("event")[0]["extra"]["tuque-job"]["args"] == ["a secret"]


@pytest.mark.parametrize(("how", "count"), [("reject", 0), ("later", 0), ("final", 1), ("", 0)])
def test_what_is_no_fault_is_no_event(how: str, count: int, tuque_app: TestApp, tasks: Any) -> None:
    tasks.begin(every_attempt=True)
    tasks.ends.enqueue(how)
    run_all(tuque_app)
    assert len(of("event")) == count


def test_a_coroutine_is_as_any_other_task(tuque_app: TestApp, tasks: Any) -> None:
    tasks.fails_async.enqueue()
    run_all(tuque_app)
    (event,) = of("event")
    assert event["exception"]["values"][0]["value"] == "in a coroutine"


def test_a_cancel_of_another_task_is_a_fault(tuque_app: TestApp, tasks: Any) -> None:
    tasks.awaits_what_was_cancelled.enqueue()
    run_all(tuque_app)
    (event,) = of("event")
    assert event["exception"]["values"][0]["type"] == "CancelledError"


def test_a_run_is_a_transaction_of_the_trace_of_its_enqueue(tuque_app: TestApp, tasks: Any) -> None:
    with sentry_sdk.start_transaction(op="http.server", name="request"):
        handle = tasks.works.enqueue(7)
    tuque_app.run_until_idle()
    request, run = of("transaction")
    (publish,) = request["spans"]
    assert (publish["op"], publish["data"]["messaging.message.id"]) == ("queue.publish", handle.id)
    trace = run["contexts"]["trace"]
    assert (trace["op"], trace["status"]) == ("queue.task.tuque", "ok")
    assert trace["trace_id"] == request["contexts"]["trace"]["trace_id"]
    assert trace["parent_span_id"] == publish["span_id"]
    (process,) = run["spans"]
    assert (process["op"], process["data"]["messaging.destination.name"]) == ("queue.process", "q")
    assert run["transaction"] == "sentry_tasks.works" and not of("event")


def test_the_runs_of_a_schedule_check_in(tuque_app: TestApp, tasks: Any) -> None:
    tasks.app.schedule("each hour", tasks.works.call(1), every_s=3600)
    tasks.app.schedule("each day", tasks.fails_async.call(), every_s=86_400)
    try:
        tasks.app.send_schedules()
        for name in ("each hour", "each day"):
            tuque_app.client.schedule_run("q", name)
        tuque_app.run_until_idle()
    finally:
        tasks.app.schedules.clear()
    found = [(one["monitor_slug"], one["status"], one["check_in_id"]) for one in of("check_in")]
    assert [one[:2] for one in found] == [
        ("each hour", "in_progress"),
        ("each hour", "ok"),
        ("each day", "in_progress"),
        ("each day", "error"),
    ]
    assert found[0][2] == found[1][2] != found[2][2] == found[3][2]


@pytest.mark.parametrize("pool", ["thread", "process"])
def test_a_worker_reports_failures_and_crashes(
    pool: str, node: RealServer, start_worker: StartWorker, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, tasks: Any,
) -> None:  # fmt: skip
    monkeypatch.setenv("OUT", str(tmp_path))
    tasks.app.use(node.url)
    start_worker("--pool", pool, "-c", "1", app="sentry_tasks:app")
    for task in (tasks.fails_async, tasks.crashes):
        handle = task.enqueue()
        with pytest.raises(JobFailed):
            handle.result(30)

    def events() -> list[dict[str, Any]]:
        file = tmp_path / "sentry"
        rows = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
        return [row for row in rows if row["kind"] == "event"]

    until(lambda: len(events()) == 2, lambda: str(events()))
    failed, crashed = events()
    assert failed["exception"]["values"][0]["value"] == "in a coroutine"
    assert crashed["message"].startswith("sentry_tasks.crashes crashed: ")
    assert crashed["tags"]["task"] == "sentry_tasks.crashes"
