"""SPEC U2.11: a run over its time limit is a timeout in all that shows it, whoever saw it first."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable

import e2e_tasks as tasks
import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from worker_lab import StartWorker

from lab import RealServer
from tuque import aio
from tuque.core.model.work import run_text
from tuque.errors import JobFailed
from tuque.testing import TestApp
from tuque.worker import App, Backoff, Failure, Job, current_job
from tuque.worker.pools.pools import ThreadPool
from tuque.worker.run.jobs import WorkerSettings
from tuque.worker.run.worker import Worker
from tuque.worker.telemetry import Telemetry
from until import until

LATER = Backoff(60, 60, 0)
REASON = "ran longer than its time limit of 0.2 s"


async def worker_first(app: TestApp) -> None:
    """Time passes for the worker, and none for the broker."""
    await asyncio.to_thread(time.sleep, 0.3)


async def broker_first(app: TestApp) -> None:
    """The broker ends the run and pushes that, before the worker's own alarm."""
    app.advance(1)
    await asyncio.sleep(0)
    raise ValueError("it went on")


def unheard(app: TestApp) -> None:
    """The broker ends the run, and no push reaches the worker, as after a start of the node."""
    app.broker.node.life.by_id[current_job().id.encode()].client = -1


async def heard_at_beat(app: TestApp) -> None:
    unheard(app)
    app.advance(1)
    await asyncio.sleep(0)
    raise ValueError("it went on")


async def heard_at_end(app: TestApp) -> None:
    unheard(app)
    app.broker.advance(app.broker.now_ms + 1_000)  # without a WORKING
    await asyncio.sleep(60)


async def both_at_once(app: TestApp) -> None:
    await asyncio.sleep(60)


async def fails_in_its_end(app: TestApp) -> None:
    try:
        await asyncio.sleep(60)
    finally:
        raise ValueError("while it ended")


@pytest.mark.parametrize(
    "order",
    [worker_first, broker_first, heard_at_beat, heard_at_end, both_at_once, fails_in_its_end],
)
@pytest.mark.parametrize("attempts", [1, 2])
def test_each_order_of_events_has_one_outcome(
    order: Callable[[TestApp], Awaitable[None]], attempts: int, tuque_app: TestApp
) -> None:
    """U2.11 A run over its time limit is a `timeout`, no matter who saw it first: in FAIL (with
    CAUSE), the log, hooks, spans, the result and the dead letter. So is one that raised because
    it was cancelled at its limit.

    U2.3 `-STALE`, `-CANCELLED`, `-ACKED`, `-DEAD` and `-TOOLATE` end the run here.
    """
    spans, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    app = App(telemetry=Telemetry(provider))
    told: list[tuple[str, str, str]] = []

    @app.on_failure
    def failed(job: Job, failure: Failure) -> None:
        told.append(("failed", failure.kind, failure.text))

    @app.on_retry
    def retry(job: Job, failure: Failure) -> None:
        told.append(("retry", failure.kind, failure.text))

    @app.on_dead
    def dead(job: Job, failure: Failure) -> None:
        told.append(("dead", failure.kind, failure.text))

    @app.task(queue="q", name="slow", time_limit_s=0.2, keep_s=60, backoff=LATER)
    async def slow() -> None:
        await order(tuque_app)

    handle = slow.options(attempts=attempts).enqueue()
    assert tuque_app.run_until_idle() == 1
    then = "dead" if attempts == 1 else "retry"
    assert told == [("failed", "timeout", REASON), (then, "timeout", REASON)]
    status = handle.status()
    assert (status.cause, status.reason) == ("timeout", REASON)
    (run,) = [span for span in spans.get_finished_spans() if span.name.startswith("run ")]
    words = run.attributes or {}
    assert (words["messaging.tuque.outcome"], words["error.type"]) == ("timeout", "timeout")
    assert run.status.description == REASON
    if attempts == 1:
        (letter,) = tuque_app.dead()
        assert (letter.cause, letter.reason, letter.attempt) == ("timeout", REASON, 1)
        with pytest.raises(JobFailed, match=REASON) as found:
            handle.result()
        assert found.value.cause == "timeout"


@pytest.mark.parametrize("is_async", [False, True])
def test_what_an_old_run_returns_late_is_not_taken(is_async: bool, tuque_app: TestApp) -> None:
    """U2.10 In all cases the attempt has failed at the limit (U2.11), the next one may begin, and
    what the old run returns or raises later goes to a line in the log only.
    """
    app = App()
    told: list[str] = []

    @app.on_success
    def succeeded(job: Job, result: object) -> None:
        told.append("success")

    @app.on_failure
    def failed(job: Job, failure: Failure) -> None:
        told.append(f"failure {failure.kind}")

    @app.task(queue="q", name="plain", time_limit_s=0.2, keep_s=60, attempts=1)
    def plain() -> int:
        tuque_app.advance(1)
        return 1

    @app.task(queue="q", name="resists", time_limit_s=0.2, keep_s=60, attempts=1)
    async def resists() -> int:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            return 1
        raise AssertionError("it was not cancelled")

    handle = resists.enqueue() if is_async else plain.enqueue()
    tuque_app.run_until_idle()
    assert (handle.status().state, handle.status().cause) == ("dead", "timeout")
    assert [letter.cause for letter in tuque_app.dead()] == ["timeout"]
    assert told == ["failure timeout"]


@pytest.mark.parametrize("then", ["returns", "raises"])
def test_a_thread_over_its_limit_is_reported_and_keeps_its_place(
    then: str, node: RealServer, caplog: pytest.LogCaptureFixture
) -> None:
    """U2.10 A plain function in a thread is reported at its limit; it runs on, and keeps its
    place.
    """
    app, gate = App(node.url), threading.Event()
    told: list[str] = []
    app.on_success(lambda job, result: told.append(f"success {job.task}"))
    app.on_failure(lambda job, failure: told.append(f"failure {failure.kind}"))
    app.on_dead(lambda job, failure: told.append(f"dead {failure.kind}"))

    @app.task(queue="q", name="slow", time_limit_s=0.2, keep_s=60, attempts=1)
    def slow() -> int:
        assert gate.wait(30)
        if then == "raises":
            raise ValueError("late")
        return 1

    @app.task(queue="q", name="next", keep_s=60)
    def after() -> int:
        return 2

    handle, other = slow.enqueue(), after.enqueue()

    async def work() -> None:
        async with aio.Client(node.url) as client:
            settings = WorkerSettings(("q",), concurrency=1, prefetch=0)
            pool = ThreadPool(app.tasks, 1, app.aclose)
            worker = Worker(app.tasks, client, pool, settings, hooks=app)
            working = asyncio.create_task(worker.run())
            with pytest.raises(JobFailed, match="ran longer than its time limit of 0.2 s"):
                await asyncio.to_thread(handle.result, timeout=30)
            assert other.status().state == "waiting"
            # the broker's clock may be over first: what returns before the worker's is done
            await asyncio.to_thread(until, lambda: "a thread cannot be ended" in caplog.text)
            gate.set()
            assert await asyncio.to_thread(other.result, timeout=30) == 2
            worker.stop()
            await working
            assert worker._there == 0, "no place is lost"

    try:
        asyncio.run(work())
        assert handle.status().state == "dead"
    finally:
        gate.set()
        app.close()
    assert sorted(told) == ["dead timeout", "failure timeout", "success next"]
    assert "has ended after its time limit (timeout), which is not taken" in caplog.text


def test_a_cancel_within_the_limit_is_no_timeout(tuque_app: TestApp) -> None:
    app = App()
    told: list[str] = []

    @app.on_failure
    def failed(job: Job, failure: Failure) -> None:
        told.append(failure.kind)

    @app.task(queue="q", name="cancelled", time_limit_s=10, keep_s=60)
    async def slow() -> None:
        tuque_app.advance(9)
        handle.cancel("user left")
        await asyncio.sleep(60)

    handle = slow.enqueue()
    tuque_app.run_until_idle()
    assert handle.status().state == "cancelled" and not told


def test_a_job_that_died_elsewhere_ends_here(tuque_app: TestApp) -> None:
    """U2.3 `-STALE`, `-CANCELLED`, `-ACKED`, `-DEAD` and `-TOOLATE` end the run here."""
    app = App()
    went_on: list[str] = []

    @app.task(queue="q", name="dies", keep_s=60)
    async def dies() -> None:
        unheard(tuque_app)
        job = tuque_app.broker.node.life.by_id[current_job().id.encode()]
        run = run_text(job.run).decode()
        tuque_app.client.fail(current_job().id, run, reason="by hand", final=True)
        tuque_app.advance(30)
        await asyncio.sleep(0)
        went_on.append("it went on")

    dies.enqueue()
    tuque_app.run_until_idle()
    assert not went_on
    (letter,) = tuque_app.dead()
    assert (letter.cause, letter.reason) == ("failed", "by hand")


@pytest.mark.parametrize("pool", ["thread", "process"])
def test_a_function_that_looks_ends_as_timeout(
    pool: str, node: RealServer, start_worker: StartWorker
) -> None:
    """U2.3 A push ends it, too; one that comes when the time limit is over asks for the reason
    first, with WORKING.
    """
    tasks.app.use(node.url)
    worker = start_worker("--pool", pool, "-c", "1")
    handle = tasks.checks.options(time_limit_s=0.2, attempts=1, keep_s=60).enqueue("x")
    with pytest.raises(JobFailed, match=REASON) as found:
        handle.result(60)
    assert found.value.cause == "timeout"
    worker.says(f"is dead, in q.dead: {REASON}")
