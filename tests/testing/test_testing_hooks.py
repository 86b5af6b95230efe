"""TestApp: hooks and middleware of apps run as in a worker, each for the jobs of its own app."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import pytest

from tuque.testing import TestApp
from tuque.worker import App, Backoff, Failure, Job, Outgoing, RetryLater


class Program:
    """An app that writes down what its hooks are told."""

    def __init__(self, name: str) -> None:
        self.app = App()
        self.told: list[str] = []
        self.app.on_start(lambda job: self.told.append(f"start {job.attempt}"))
        self.app.on_success(lambda job, result: self.told.append(f"success {result}"))
        self.app.on_failure(lambda job, why: self.told.append(f"failure {why.text}"))
        self.app.on_dead(lambda job, why: self.told.append(f"dead {why.queue}"))

        @self.app.task(name=name, attempts=1)
        def work(number: int) -> int:
            if number < 0:
                raise ValueError(number)
            return number

        self.work: Any = work


def test_each_app_hears_of_its_own_jobs(tuque_app: TestApp) -> None:
    one, two = Program("one"), Program("two")
    one.work.enqueue(1)
    two.work.enqueue(-2)
    tuque_app.run_until_idle()
    assert one.told == ["start 1", "success 1"]
    assert two.told == ["start 1", "failure ValueError: -2", "dead default.dead"]


@pytest.mark.parametrize("is_in_loop", [False, True])
def test_asynchronous_ones(is_in_loop: bool, tuque_app: TestApp) -> None:
    app = App()
    told: list[str] = []

    @app.middleware
    @asynccontextmanager
    async def around(job: Job) -> AsyncIterator[None]:
        told.append("in")
        await asyncio.sleep(60)
        yield
        told.append("out")

    @app.on_retry
    async def again(job: Job, failure: Failure) -> None:
        await asyncio.sleep(0)
        told.append(f"again in {failure.delay_s:g} s")

    @app.task
    async def later(is_open: bool) -> str:
        told.append("task")
        if not is_open:
            raise RetryLater(delay_s=5)
        return "done"

    later.enqueue(True)
    later.enqueue(False)
    before = tuque_app.now

    async def program() -> None:
        tuque_app.run_until_idle()

    if is_in_loop:
        asyncio.run(program())
    else:
        tuque_app.run_until_idle()
    assert told == ["in", "task", "out", "in", "task", "again in 5 s"]
    assert (tuque_app.now - before).total_seconds() == 120


def test_a_hook_refuses_a_job(tuque_app: TestApp) -> None:
    app = App()

    @app.on_enqueue
    def refuses(call: Outgoing) -> None:
        raise PermissionError(call.task)

    @app.task(name="refused")
    def task() -> None: ...

    with pytest.raises(PermissionError, match="refused"):
        task.enqueue()
    tuque_app.assert_not_enqueued(task)


def test_a_hook_enqueues(tuque_app: TestApp) -> None:
    app = App()

    @app.task(name="alarm")
    def alarm(text: str) -> None: ...

    @app.on_dead
    def tell(job: Job, failure: Failure) -> None:
        alarm.enqueue(f"{job.task} is dead: {failure.text}")

    @app.task(name="fails", attempts=2, backoff=Backoff(0, 0))
    def fails() -> None:
        raise OSError("no")

    fails.enqueue()
    assert tuque_app.run_until_idle() == 3
    tuque_app.assert_enqueued(alarm, "fails is dead: OSError: no")


def test_headers_are_seen(tuque_app: TestApp) -> None:
    app = App()
    seen: list[str] = []

    @app.on_enqueue
    def out(call: Outgoing) -> None:
        call.headers["tenant"] = "acme"

    @app.middleware
    @contextmanager
    def span(job: Job) -> Iterator[None]:
        seen.append(job.headers["tenant"])
        yield

    @app.task(name="traced")
    def traced(number: int) -> None: ...

    handles = traced.enqueue_many(traced.call(at) for at in range(3))
    assert [job.headers for job in tuque_app.jobs(traced)] == [{"tenant": "acme"}] * 3
    assert [job.id for job in tuque_app.jobs()] == [handle.id for handle in handles]
    tuque_app.run_until_idle()
    assert seen == ["acme"] * 3
