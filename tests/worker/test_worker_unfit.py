"""Steps and children whose results go nowhere: unknown tasks, misfits, what cannot be written."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tuque.errors import JobFailed
from tuque.testing import TestApp
from tuque.worker import App, Task, chain, group
from tuque.worker.groups.headers import CHAIN_HEADER

app = App("tuque://127.0.0.1:1")
ran: list[str] = []


@app.task(queue="first", attempts=3)
def one_more(number: int) -> int:
    ran.append(f"one_more {number}")
    return number + 1


@app.task(queue="first", retry_s=0)
def at_most_once(number: int) -> int:
    ran.append(f"at_most_once {number}")
    return number


@app.task(queue="second")
def twice(number: int) -> int:
    ran.append(f"twice {number}")
    return number * 2


@app.task(queue="sums")
def total(numbers: list[int]) -> int:
    ran.append(f"total {numbers}")
    return sum(numbers)


@pytest.fixture(autouse=True)
def clean() -> None:
    ran.clear()


@contextmanager
def unknown(task: Task[..., Any]) -> Iterator[None]:
    """The workers do not know the task meanwhile."""
    del app.tasks[task.name]
    try:
        yield
    finally:
        app.tasks[task.name] = task


def rest(tuque_app: TestApp, seconds: float = 0) -> None:
    """Time passes, and all that can run has run."""
    tuque_app.advance(seconds)
    tuque_app.run_until_idle()


@pytest.mark.parametrize("lacking", [twice, total])
def test_a_worker_does_not_know_what_follows(
    tuque_app: TestApp, lacking: Task[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    """U11.2 A worker that does not know the task of the next one, or of a group that follows one
    of its tasks or its callback, does not run the step. It treats it as a job of an unknown task:
    it gives it back (U2.4, U2.6).
    """
    handle = chain(one_more.call(1), group(twice, one_more), total).enqueue()
    with unknown(lacking):
        rest(tuque_app)
        rest(tuque_app, 1)
        rest(tuque_app, 2)
        (step,) = tuque_app.jobs(one_more)
        assert (step.state, step.attempt, ran) == ("back-off", 1, [])
        assert caplog.text.count(f"unknown task '{lacking.name}': its jobs, and steps of") == 1
    rest(tuque_app, 60)
    assert handle.result(1) == 4 + 3


def test_a_next_task_that_nobody_knows_for_long(tuque_app: TestApp) -> None:
    """U11.2 It treats it as a job of an unknown task: it gives it back (U2.4, U2.6)."""
    first = one_more.options(unknown_keep_s=60).call(1)
    handle, plain = chain(first, twice).enqueue(), chain(at_most_once.call(1), twice).enqueue()
    with unknown(twice):
        rest(tuque_app)
        rest(tuque_app, 61)
    assert ran == []
    reason = f"the step was not run: after it comes the unknown task '{twice.name}'"
    with pytest.raises(JobFailed, match=f"failed after 1 attempt .*: rejected: {reason}"):
        handle.result(1)
    with pytest.raises(JobFailed, match=reason):
        plain.result(1)


@pytest.mark.parametrize("header", ["{", "[]", "[1]"])
def test_a_header_of_no_chain(tuque_app: TestApp, header: str) -> None:
    """U11.1 a job whose header `tuque-chain` has the names of the tasks that follow"""
    body = f'{{"task":"{one_more.name}","args":[1]}}'.encode()
    headers = {CHAIN_HEADER: header}
    tuque_app.client.addjob("first", body, attempts=3, ttl=0, retry=30, headers=headers)
    rest(tuque_app)
    (letter,) = tuque_app.dead()
    assert "the header tuque-chain is none of a chain" in letter.reason and ran == []
