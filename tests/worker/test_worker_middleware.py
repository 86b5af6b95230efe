"""A feature around all jobs in one class (SPEC U3.7, U3.8), in all pools."""

from __future__ import annotations

import contextlib

import middleware_tasks as tasks
import pytest
from worker_lab import Did, StartWorker

from lab import RealServer
from tuque.errors import JobCancelled, JobFailed
from tuque.testing import TestApp
from tuque.worker import App, Middleware
from until import until

POOLS = ["thread", "process", pytest.param("async", marks=pytest.mark.slow)]


def of(did: Did, task: str) -> list[str]:
    """What was done for one task, without its name."""
    words = [line.split() for line in did()]
    return [" ".join(one[:2] + one[3:]) for one in words if len(one) > 2 and one[2] == task]


def until_did(did: Did, task: str, line: str) -> None:
    """Waits until that was done for the task."""
    until(lambda: line in of(did, task))


@pytest.mark.parametrize("pool", POOLS)
def test_each_method_is_called_in_its_turn(
    pool: str, node: RealServer, start_worker: StartWorker, did: Did
) -> None:
    """U3.7 `App.use` of a `Middleware` puts each method that its class overrides on the decorator
    of that method, in the order of the calls of `use` and of the decorators.

    U3.8 `on_cancelled` runs in the worker when a run has ended that the broker had ended before
    (U2.3): not if the task returned, if its time limit was over, or if the worker stops. The text
    has what the broker said.
    """
    tasks.app.use(node.url)
    start_worker("--pool", pool, "-c", "1", app="middleware_tasks:app")
    handles = tasks.adds.enqueue(1, 2), tasks.adds_async.enqueue(1, 2)
    assert [one.result(30) for one in handles] == [3, 3]
    again, fails = tasks.once_more.enqueue(), tasks.breaks.enqueue()
    with pytest.raises(JobFailed):
        fails.result(30)
    again.result(30)
    for task in ("adds", "adds_async"):
        until_did(did, task, "later success 3")
        assert of(did, task) == [
            "plain start plain",
            "plain enter",
            "later enter",
            "later leave",
            "plain leave",
            "plain success 3",
            "between success 3",
            "later success 3",
        ]
    until_did(did, "breaks", "plain dead q.dead")
    assert of(did, "breaks")[-2:] == ["plain failure failed", "plain dead q.dead"]
    assert "plain retry retry" in of(did, "once_more")
    for waits in (tasks.waits, tasks.waits_plain):
        name = waits.name.rpartition(".")[2]
        handle = waits.enqueue()
        until_did(did, name, "task waits")
        handle.cancel("user left")
        with pytest.raises(JobCancelled):
            handle.result(30)
        until_did(did, name, "later cancelled")
        lines = of(did, name)
        assert lines[-2].startswith("plain cancelled cancelled CANCELLED")
        assert not [line for line in lines if "failure" in line or "success" in line]


def test_a_middleware_is_used_once_and_as_an_instance() -> None:
    """U3.7 One that is in use is a ValueError."""
    app, one = App(), Middleware()
    app.use(one)
    assert not app.surrounds and not app.on_success.functions
    with pytest.raises(ValueError, match="is in use already: it would run twice"):
        app.use(one)
    with pytest.raises(TypeError, match=r"use takes a tuque.worker.Middleware that was made, or a"):
        app.use(Middleware)  # type: ignore[arg-type]  # the mistake under test

    class Awaits(Middleware):
        async def enqueue(self, call: object) -> None: ...

    with pytest.raises(TypeError, match="on_enqueue takes plain functions"):
        app.use(Awaits())


def test_a_base_that_does_nothing_does_nothing() -> None:
    app, did = App("tuque://127.0.0.1:1"), list[str]()

    class Own(Middleware):
        def around(self, job: object) -> contextlib.AbstractContextManager[None]:
            did.append("around")
            return super().around(job)  # type: ignore[arg-type]  # the base takes no part of it

    app.use(Own())
    app.task(name="t")(lambda: did.append("task"))
    with TestApp() as tuque:
        app.tasks["t"].enqueue()
        tuque.run_until_idle()
    assert did == ["around", "task"]
