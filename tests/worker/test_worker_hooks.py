"""SPEC U3: hooks and middleware, when they are called, and what follows if they raise."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import hook_tasks as tasks
import pytest
from worker_lab import Did, StartWorker

from lab import RealServer
from tuque import Client
from tuque.errors import JobFailed
from tuque.worker import App, Job
from tuque.worker.app.codec import Envelope
from tuque.worker.pools.execute import Call, await_call
from until import until
from world import World

POOLS = ["thread", pytest.param("async", marks=pytest.mark.slow), "process"]
UntilFact = Callable[[Callable[[], object]], object]
Begin = Callable[[str], tuple[UntilFact, Callable[[], str]]]


@pytest.fixture(autouse=True)
def _app(node: RealServer) -> None:
    tasks.app.use(node.url)


@pytest.fixture
def begin(
    request: pytest.FixtureRequest,
    start_worker: StartWorker,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> Begin:
    """Starts a worker of the app: a process with that pool, or one in a world.

    Returns how a test waits for it, and what it logged. In a world, coroutines run as in the pool
    `async` and functions as in `thread`.
    """

    def start(pool: str) -> tuple[UntilFact, Callable[[], str]]:
        if pool != "world":
            worker = start_worker("--pool", pool, "-c", "1", app="hook_tasks:app")
            return until, lambda: worker.text
        monkeypatch.setenv("OUT", str(tmp_path))
        world: World = request.getfixturevalue("world")
        world.at_work(tasks.app)
        return world.until, lambda: caplog.text

    return start


def of(did: Did, task: str) -> list[str]:
    """What was done for one task, without its name."""
    return [line.replace(f" {task}", "", 1) for line in did() if f" {task}" in line]


def test_a_function_of_on_enqueue_sets_headers_or_refuses(client: Client) -> None:
    """
    U3.1 The functions of `on_enqueue` run before a job is added, and may set its headers.
    If one raises, `enqueue` raises that, and nothing is added.
    """
    tasks.adds.options(headers={"own": "1"}).enqueue(1, 2)
    (job,) = client.getjob("q", with_meta=True)
    assert job.headers == {"own": "1", "trace": "t-2", "tuque-task": "hook_tasks.adds"}
    with pytest.raises(PermissionError, match="no adds today"):
        tasks.adds.enqueue(1, 2, refuse=True)
    with pytest.raises(PermissionError):
        tasks.adds.enqueue_many([tasks.adds.call(1, 2), tasks.adds.call(1, 2, refuse=True)])
    assert client.qlen("q") == 0
    with pytest.raises(TypeError, match=r"on_enqueue takes plain functions"):
        App().on_enqueue(tasks.starts)  # type: ignore[arg-type]  # is refused


@pytest.mark.parametrize(
    "pool", [pytest.param("thread", marks=pytest.mark.slow), "process", "world"]
)
def test_all_of_them_run_around_a_job_that_is_done(pool: str, begin: Begin, did: Did) -> None:
    """
    U3.2 `on_start` runs before the task, `on_success` and `on_failure` after it, each with
    `current_job()`.

    U3.4 If one of these functions raises, that is logged; the outcome of the job stays.

    U3.5 Middleware is entered after `on_start`, the first one outermost, and left before what
    follows. Plain and asynchronous ones work with all tasks.
    """
    until_fact, said = begin(pool)
    handle, other = tasks.adds.enqueue(1, 2), tasks.adds_async.enqueue(3, 4)
    assert (handle.result(30), other.result(30)) == (3, 7)
    for task, result in (("adds", 3), ("adds_async", 7)):
        assert [line for line in of(did, task) if "_async" not in line] == [
            "start 1",
            "enter t-2",
            "run middleware",
            "leave",
            f"success {result}",
        ]
    until_fact(lambda: "on_success: succeeds raised" in said())


def test_a_hook_that_raises_cancelled_error_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """U3.4 If one of these functions raises, that is logged; the outcome of the job stays."""
    app = App()

    @app.on_start
    @app.on_success
    async def awaits_what_was_cancelled(job: Job, *more: Any) -> None:
        other = asyncio.create_task(asyncio.sleep(60))
        other.cancel()
        await other

    @app.task(name="t")
    async def task() -> int:
        return 5

    job = Job("D-1", "q", "t", 1, 5, 1, 0, datetime.now(UTC))
    outcome = asyncio.run(await_call(task, Call(Envelope("t", [], {}), job)))
    assert outcome.kind == "done"
    for hook in ("on_start", "on_success"):
        assert f"{hook}: test_a_hook_that_raises" in caplog.text


@pytest.mark.parametrize("pool", ["process", "world"])
def test_a_failure_is_told_once_and_then_what_follows(pool: str, begin: Begin, did: Did) -> None:
    """U3.3 `on_retry` runs when the broker has replied that the job comes again, `on_dead` when
    that it is a dead letter.
    """
    until_fact, _ = begin(pool)
    handle = tasks.breaks.enqueue("oh")
    again = tasks.once_more.enqueue("x")
    with pytest.raises(JobFailed, match="oh"):
        handle.result(30)
    until_fact(lambda: "dead breaks failed q.dead" in did())
    until_fact(lambda: again.status().state == "done")
    once = ["start", "enter t-1", "leave", "failure failed ValueError"]
    assert [line.removesuffix(" 1").removesuffix(" 2") for line in of(did, "breaks")] == [
        *once,
        "retry failed",
        *once,
        "dead failed q.dead",
    ]
    assert did().count("saw oh") == 2
    until_fact(lambda: "retry once_more retry 1" in did())
    assert "failure once_more" not in "".join(did())


@pytest.mark.parametrize("pool", POOLS)
def test_a_hook_that_blocks_does_not_outlast_the_grace(
    pool: str, start_worker: StartWorker, did: Did
) -> None:
    """The job is not done before its hook has returned, so it is given back."""
    handle = tasks.hook_blocks.enqueue("x")
    worker = start_worker("--pool", pool, "-c", "1", "--grace", "0.4", app="hook_tasks:app")
    until(lambda: "success hook_blocks None" in did())
    worker.signal(signal.SIGTERM)
    worker.ends(0, limit_s=30)
    worker.says("is cut off")
    assert (handle.status().state, handle.status().attempt) == ("waiting", 1)


@pytest.mark.parametrize("pool", ["process", "world"])
def test_what_middleware_raises_is_the_jobs(pool: str, begin: Begin, did: Did) -> None:
    """
    U3.6 An exception of middleware is the job's, as if its task had raised it. If middleware takes
    the exception of the task away, the job is done, with the result None.
    """
    begin(pool)
    handle = tasks.three.enqueue(1, 2, 3)
    with pytest.raises(JobFailed, match="RuntimeError: middleware says no"):
        handle.result(30)
    assert "failure three failed RuntimeError" in did()
    assert "never" not in did()
    taken = tasks.breaks.enqueue("take it away")
    assert taken.result(30) is None
    assert "success breaks None" in did()


@pytest.mark.parametrize(
    ("pool", "task", "kind"),
    [
        ("process", "ends_its_process", "crashed"),
        ("thread", "ends_its_process", "crashed"),
        ("process", "hangs", "timeout"),
    ],
)
def test_the_worker_tells_what_a_process_cannot(
    pool: str, task: str, kind: str, start_worker: StartWorker, did: Did
) -> None:
    """
    U3.2 If the process of the task ended, the worker runs `on_failure`.
    """
    handle = getattr(tasks, task).enqueue("x")
    start_worker("--pool", pool, "-c", "1", app="hook_tasks:app")
    with pytest.raises(JobFailed):
        handle.result(30)
    until(lambda: f"failure {task} {kind} NoneType" in did())
    until(lambda: f"dead {task} {kind} q.dead" in did())


def test_a_job_that_is_no_call_dies_with_its_hook(world: World, begin: Begin, did: Did) -> None:
    until_fact, _ = begin("world")
    client = world.client()
    client.addjob("q", b"nonsense", attempts=3, ttl=0, retry=30)
    client.addjob("once", b"nonsense", retry=0)
    until_fact(lambda: len(did()) == 2)
    assert sorted(did()) == ["dead  rejected once.dead", "dead  rejected q.dead"]


def test_a_job_at_most_once_has_a_result_headers_and_hooks(
    world: World, begin: Begin, did: Did
) -> None:
    """U2.5 A job with RETRY 0 ends with DONE or FAIL FINAL"""
    until_fact, _ = begin("world")
    done, failed = tasks.at_most_once.enqueue("x"), tasks.at_most_once.enqueue("fail")
    assert done.result(30) == "x t-1"
    with pytest.raises(JobFailed, match="the only try"):
        failed.result(30)
    until_fact(lambda: "dead at_most_once failed once.dead" in did())


def test_headers_of_hooks_travel_through_a_tube(world: World, begin: Begin, did: Did) -> None:
    until_fact, _ = begin("world")
    world.client().tube("tube").create("fifo")
    tasks.in_a_tube.enqueue("x")
    until_fact(lambda: "run in_a_tube t-1" in did())
