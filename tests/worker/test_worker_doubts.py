"""Cases in doubt: late words of an old run, "later" and back-off, tasks that kill their worker."""

from __future__ import annotations

import e2e_tasks as tasks
import pytest
from worker_lab import Did, StartWorker

from lab import RealServer
from tuque import Client
from tuque.client.commands.life import Run
from tuque.errors import JobFailed, Stale
from tuque.testing import TestApp
from tuque.worker import App, Backoff, RetryLater, current_job
from until import until


def test_a_late_done_of_an_old_run_ends_the_new_one(
    node: RealServer, client: Client, start_worker: StartWorker, did: Did
) -> None:
    """
    W5.1 a late FAIL never touches a newer run.

    W7.1 The job ends as ACKJOB would end it, whichever run says so
    """
    tasks.app.use(node.url)
    now = Backoff(0, 0, 0)
    handle = tasks.for_ever.options(keep_s=60, retry_s=1, backoff=now).enqueue("x")
    client.getjob("q")
    (old,) = client.start(handle.id, worker="old")
    assert isinstance(old, Run)
    until(lambda: client.result(handle).cause == "crashed")
    worker = start_worker("--pool", "async", "-c", "1")
    until(lambda: did() == ["begin x 2"])
    with pytest.raises(Stale):
        client.fail(handle.id, old.run)
    assert handle.status().state == "running"
    assert client.done(handle.id, old.run) == 1
    worker.says("is cancelled here")
    tasks.record.enqueue("after")
    until(lambda: "after" in did())
    status = handle.status()
    assert (status.state, status.attempt, did().count("begin x 2")) == ("done", 1, 1)


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


def test_a_task_that_kills_its_worker_is_dead_after_its_attempts(tuque_app: TestApp) -> None:
    """W6.1 A run is silent for RETRY: its attempt fails with the cause `crashed`, as W5 says."""
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
    assert runs == [1, 2, 3]
    (letter,) = tuque_app.dead()
    assert (letter.cause, letter.attempt, letter.origin) == ("crashed", 3, "q")


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
