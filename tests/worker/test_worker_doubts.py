"""Cases in doubt: late words of an old run, "later" and back-off, tasks that kill their worker."""

from __future__ import annotations

import asyncio

import pytest
from noting import Noting

from tuque.client.commands.work import Run
from tuque.errors import JobFailed, Stale
from tuque.testing import TestApp
from tuque.worker import App, Backoff, RetryLater, current_job
from tuque.worker.app.decisions import Release, instead
from world import World


def test_a_late_done_of_an_old_run_ends_the_new_one(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """
    W5.1 a late FAIL never touches a newer run.

    W7.1 The job ends as ACKJOB would end it, whichever run is named, `-` too"""
    noting, client = Noting(), world.client()
    did = noting.did

    @noting.app.task(queue="q", keep_s=60, retry_s=1, backoff=Backoff(0, 0, 0), name="for_ever")
    async def for_ever(text: str) -> None:
        did.append(f"begin {text} {current_job().number}")
        await asyncio.sleep(3600)

    world.at_work(noting.app)
    handle = for_ever.enqueue("x")
    client.getjob("q")  # before the worker begins
    (old,) = client.start(handle.id, worker="old")
    assert isinstance(old, Run)
    world.until(lambda: client.result(handle).cause == "crashed")  # the old run was silent
    world.until(lambda: did == ["begin x 1"])
    with pytest.raises(Stale):
        client.fail(handle.id, old.run)
    assert handle.status().state == "running"
    assert client.done(handle.id, old.run) == 1
    world.until(lambda: "is cancelled here" in caplog.text)
    noting.record.enqueue("after")
    world.until(lambda: "after" in did)  # the place is free
    status = handle.status()
    assert (status.state, status.attempt, did.count("begin x 1")) == ("done", 1, 1)


def test_later_neither_counts_nor_makes_the_back_off_longer(tuque_app: TestApp) -> None:
    """U2.2 `RetryLater` is RELEASE."""
    app = App()

    @app.task(queue="q", backoff=Backoff(7, 100, 0))
    def shy() -> None:
        if current_job().starts <= 3:
            raise RetryLater("not now", delay_s=1)
        raise ValueError("no")

    shy.enqueue()
    for _ in range(3):
        assert tuque_app.run_until_idle() == 1
        assert tuque_app.jobs()[0].due_s == 1
        tuque_app.advance(1)
    assert tuque_app.run_until_idle() == 1
    (job,) = tuque_app.jobs()
    assert (job.state, job.attempt, job.due_s) == ("back-off", 1, 7)
    tuque_app.advance(7)
    tuque_app.run_until_idle()
    (job,) = tuque_app.jobs()
    assert (job.attempt, job.due_s) == (2, 14)


def test_a_task_that_kills_its_worker_is_dead_after_its_crashes(tuque_app: TestApp) -> None:
    """W6.1 A run is silent for RETRY: it fails with the cause `crashed`, as in W5, but uses up
    no attempt (W6.7).
    """
    app = App()
    runs: list[int] = []

    @app.task(queue="q", attempts=3, retry_s=10, backoff=Backoff(1, 1, 0))
    def kills() -> None:
        runs.append(current_job().attempt)
        tuque_app.kill_worker()

    kills.enqueue()
    for _ in range(5):
        tuque_app.run_until_idle()
        tuque_app.advance(11.1)
    assert runs == [1, 1, 1]
    (letter,) = tuque_app.dead()
    assert (letter.cause, letter.attempt, letter.origin) == ("crashed", 0, "q")


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"ttl_s": 5}, r"failed after 0 attempts \(expired\): its TTL was over$"),
        ({"attempts": 1}, r"failed after 1 attempt \(failed\): ValueError: no$"),
    ],
)
def test_a_job_that_was_given_up_says_why(
    tuque_app: TestApp, options: dict[str, int], text: str
) -> None:
    app = App()

    @app.task(queue="q", ttl_s=options.get("ttl_s", 0), attempts=options.get("attempts", 3))
    def fails() -> int:
        raise ValueError("no")

    handle = fails.enqueue()
    if "ttl_s" in options:
        tuque_app.advance(6)
    tuque_app.run_until_idle()
    with pytest.raises(JobFailed, match=text):
        handle.result()


class Odd(RetryLater):
    """A delay that was never checked."""

    def __init__(self, delay_s: object) -> None:
        self.delay_s = delay_s  # type: ignore[assignment]  # that is tested


@pytest.mark.parametrize("delay_s", [1e300, 2**31, -1, float("nan"), "soon", None])
def test_a_delay_that_no_broker_takes_fails_the_attempt(world: World, delay_s: object) -> None:
    """U2.17 A run always has an outcome."""
    app = App("tuque://127.0.0.1:1")

    @app.task(queue="q", retry_s=3, attempts=1, keep_s=60, name="later")
    def later() -> None:
        if delay_s is None:
            raise RetryLater(delay_s=1e10)
        raise Odd(delay_s)

    world.at_work(app)
    handle = later.enqueue()
    world.until(lambda: handle.status().state == "dead", 2_000)
    assert "delay" in handle.status().reason


def test_an_outcome_that_the_broker_refuses_is_replaced(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """U2.17 One that the broker refuses, as for a missing right, is logged, and another one sent"""
    app, client = App("tuque://127.0.0.1:1"), world.client()

    @app.task(queue="q", retry_s=3, attempts=1, keep_s=60, name="later")
    def later(delay_s: float) -> int:
        if delay_s:
            raise RetryLater(delay_s=delay_s)
        return 1

    world.at_work(app)
    client.execute("ACL", "SETUSER", "default", "on", "nopass", "+@all", "~*", "-release")
    handle = later.enqueue(5)
    world.until(lambda: handle.status().state == "dead", 2_000)
    assert "the broker refused RELEASE: NOPERM" in handle.status().reason
    assert "the broker refused its outcome" in caplog.text
    client.execute("ACL", "SETUSER", "default", "+release", "-done", "-fail")
    handle = later.enqueue(0)
    world.until(lambda: "DONE" in handle.status().reason or handle.status().state == "waiting")
    assert instead(Release(handle.id, "1.1.0"), "no") is None
    client.execute("ACL", "SETUSER", "default", "+done", "+fail")
    world.until(lambda: handle.status().state == "done")
