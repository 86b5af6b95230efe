"""Which exceptions of a task have its job run again, and when, at a node (SPEC U2.26)."""

from __future__ import annotations

import logging
from itertools import pairwise
from typing import Any

import pytest

from tuque.errors import JobFailed
from tuque.worker import App, Failure, Job, Options, RetryLater, Tasks
from world import World


class Busy(Exception):
    """A service says when to come again."""


def patience(error: Exception, job: Job) -> bool | float:
    return 20.0 if isinstance(error, Busy) else job.attempt < 2


def test_a_task_has_its_job_run_again_after_its_own_delays(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """U2.26 `retry_if` is asked about the rest, in the process of the run: False is FAIL FINAL,
    True is FAIL, and a number is FAIL with that DELAY.
    """
    app = App("tuque://127.0.0.1:1")
    began_ms: list[int] = []
    waits: list[float | None] = []

    @app.on_retry
    def note(job: Job, failure: Failure) -> None:
        waits.append(failure.delay_s)

    @app.task(queue="q", retry_if=patience)
    def fetch() -> int:
        began_ms.append(world.time.now_us // 1000)
        raise Busy if len(began_ms) == 1 else ValueError("no")

    world.at_work(app)
    with pytest.raises(JobFailed, match="rejected: ValueError: no"):
        fetch.enqueue().result(60)
    assert len(began_ms) == 2
    assert 20_000 <= began_ms[1] - began_ms[0] < 21_500
    assert waits == [20.0]


@pytest.mark.parametrize("attempts", [1, 3])
def test_a_counted_retry_uses_up_attempts(world: World, attempts: int) -> None:
    """U2.2 `RetryLater` is RELEASE; with `counted=True` it is FAIL, with its delay as DELAY."""
    app = App("tuque://127.0.0.1:1")
    began_ms: list[int] = []

    @app.task(queue="q", attempts=attempts, keep_s=60)
    def busy() -> None:
        began_ms.append(world.time.now_us // 1000)
        raise RetryLater("not now", delay_s=9, counted=True)

    world.at_work(app)
    with pytest.raises(JobFailed, match="RetryLater: not now"):
        busy.enqueue().result(60)
    assert len(began_ms) == attempts
    assert all(9000 <= b - a < 10_500 for a, b in pairwise(began_ms))


def test_a_function_that_fails_has_the_job_run_again(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """U2.26 If it raises, or returns another thing, that is logged, and the run is FAIL."""
    app = App("tuque://127.0.0.1:1")
    answers: list[Any] = [None, "soon", -1.0, float("nan")]

    def odd(error: Exception, job: Job) -> bool | float:
        if answers:
            return answers.pop()
        raise SystemExit(3)

    @app.task(queue="q", attempts=6, retry_if=odd)
    def fetch() -> int:
        raise ValueError("no")

    world.at_work(app)
    with caplog.at_level(logging.ERROR, "tuque.worker"), pytest.raises(JobFailed, match="ValueE"):
        fetch.enqueue().result(600)
    assert not answers
    assert caplog.text.count("retry_if of task") == 6
    assert "SystemExit: 3" in caplog.text


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"retry_on": OSError}, r"retry_on is a tuple of exception classes, such as \(ValueError"),
        ({"retry_on": ("OSError",)}, "retry_on is a tuple of exception classes"),
        ({"retry_if": True}, "retry_if is a plain function of the exception and the job"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], words: str) -> None:
    for use in (Options, Tasks, App().task):
        with pytest.raises(TypeError, match=words):
            use(**options)(lambda: None)  # type: ignore[operator]  # the mistake under test


def test_one_job_has_no_function_of_its_own() -> None:
    task = App().task(name="t")(lambda: None)
    for options in ({"retry_on": ()}, {"give_up_on": ()}, {"retry_if": None}):
        with pytest.raises(TypeError, match=f"{next(iter(options))} is an option of the task"):
            task.options(**options)  # type: ignore[misc]  # the mistake under test
    with pytest.raises(TypeError, match="counted is a bool, not 'yes'"):
        RetryLater(counted="yes")  # type: ignore[arg-type]  # the mistake under test
