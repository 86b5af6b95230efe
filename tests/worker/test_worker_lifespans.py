"""What lives as long as a process that runs tasks (SPEC U3.9), in all pools."""

from __future__ import annotations

import asyncio
import re
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import lifespan_tasks as tasks
import pytest
from worker_lab import Did, StartWorker

from lab import RealServer
from tuque.worker import App, Backoff, current_job
from tuque.worker.app.hooks import Hooks
from tuque.worker.pools import pools
from tuque.worker.pools.pools import Lifespans
from until import until

POOLS = ["thread", "process", pytest.param("async", marks=pytest.mark.slow)]


@pytest.mark.parametrize("pool", POOLS)
def test_a_process_has_it_from_before_its_first_job_to_its_end(
    pool: str, node: RealServer, start_worker: StartWorker, did: Did
) -> None:
    """U3.9 The context managers of `lifespan` are entered, in their order, in each process that
    runs tasks, before it has a job, by one task of the loop of U13.3, and left in reverse after the
    last one. `current_job().state` is the first thing yielded that is not None.
    """
    tasks.app.use(node.url)
    handles = tasks.plainly.enqueue(), tasks.on_loop.enqueue()
    worker = start_worker("--pool", pool, "-c", "1", app="lifespan_tasks:app")
    assert [one.result(30) for one in handles] == [True, True]
    worker.signal(signal.SIGTERM)
    worker.ends()
    jobs = ["job", "job"]
    assert did() == ["plain enter", "later enter", *jobs, "later leave", "plain leave"]
    worker.says("a lifespan did not end well")
    worker.says("it does not close")


@pytest.mark.parametrize("pool", POOLS)
def test_no_job_comes_to_a_process_without_it(
    pool: str, node: RealServer, start_worker: StartWorker, did: Did, tmp_path: Path
) -> None:
    """U3.9 If one raises at its beginning, that is logged, no job comes to that process, and all
    are entered anew after 1, 2, 4 .. 30 s.
    """
    tasks.app.use(node.url)
    (tmp_path / "away").touch()
    handle = tasks.on_loop.enqueue()
    worker = start_worker("--pool", pool, "-c", "1", app="lifespan_tasks:app")
    worker.says("a lifespan failed, so no job is taken: OSError: the database is away")
    assert handle.result(30)
    assert did()[:4] == ["plain enter", "plain enter", "later enter", "job"]


@pytest.mark.parametrize("pool", ["thread", "process"])
def test_a_worker_stops_that_has_never_entered_it(
    pool: str, node: RealServer, start_worker: StartWorker, tmp_path: Path
) -> None:
    """U3.9 If one raises at its beginning, that is logged, no job comes to that process, and all
    are entered anew after 1, 2, 4 .. 30 s.
    """
    tasks.app.use(node.url)
    (tmp_path / "away").write_text("for ever")
    handle = tasks.plainly.enqueue()
    worker = start_worker("--pool", pool, "-c", "1", app="lifespan_tasks:app")
    worker.says("the database is away; next try in 1.0 s")
    worker.says("next try in 2.0 s")
    worker.signal(signal.SIGTERM)
    worker.ends(limit_s=10)
    assert handle.status().state == "waiting"


@pytest.mark.parametrize("pool", ["thread", "process"])
def test_what_a_dead_process_had_does_not_wait_for_the_next_one(
    pool: str, node: RealServer, start_worker: StartWorker
) -> None:
    """U3.9 Until they are entered, no job is fetched for that process, and what was fetched before
    is RELEASE.
    """
    tasks.app.use(node.url)
    ends = tasks.ends.enqueue()
    others = [tasks.plainly.enqueue() for _ in range(3)]
    options = ("--pool", pool, "-c", "1", "--prefetch", "8")
    worker = start_worker(*options, app="lifespan_tasks:app")
    worker.says("the database is away; next try in 1.0 s")
    until(lambda: ends.status().state == "dead", "end the job that ran")
    until(lambda: all(one.status().state == "waiting" for one in others), "give back the others")
    assert tasks.app.client.qlen("q") == 3
    worker.signal(signal.SIGTERM)
    worker.ends(limit_s=10)


def test_a_job_that_runs_apart_does_not_wait_for_a_lifespan(
    node: RealServer, start_worker: StartWorker, tmp_path: Path
) -> None:
    """U3.9 Until they are entered, no job is fetched for that process, and what was fetched before
    is RELEASE.
    """
    tasks.app.use(node.url)
    handles = [tasks.ends_once.enqueue() for _ in range(2)]
    worker = start_worker("-c", "2", app="lifespan_tasks:app")
    worker.says("2 jobs ran when a process")
    for one in handles:
        until(lambda one=one: one.status().state != "running", "give back a job that runs apart")
    (tmp_path / "away").unlink()
    assert [one.result(30) for one in handles] == [1, 1]


@pytest.mark.parametrize(("pool", "code"), [("thread", 1), ("process", 0)])
def test_what_a_lifespan_takes_is_no_growth_of_jobs(
    pool: str, code: int, node: RealServer, start_worker: StartWorker, tmp_path: Path
) -> None:
    """U4.6 If the first process has more than `--max-memory` before its first job, the start
    fails. If a later one does, that is logged and it is not replaced.
    """
    tasks.app.use(node.url)
    (tmp_path / "fills").touch()
    handle = tasks.plainly.enqueue()
    options = ("--pool", pool, "-c", "1", "--max-memory", "300")
    worker = start_worker(*options, app="lifespan_tasks:app")
    worker.says("MB before its first job")
    if not code:
        assert handle.result(30)
        worker.signal(signal.SIGTERM)
    worker.ends(code)
    assert "another" not in worker.text


@pytest.mark.parametrize("pool", ["thread", "process"])
def test_a_worker_stops_whose_lifespan_hangs(
    pool: str, node: RealServer, start_worker: StartWorker, tmp_path: Path
) -> None:
    """U3.9 The log has how long they take, after 10, 20, 40 .. s. A stop signal does not wait for
    them.
    """
    tasks.app.use(node.url)
    (tmp_path / "hangs").touch()
    handle = tasks.plainly.enqueue()
    worker = start_worker("--pool", pool, "-c", "1", app="lifespan_tasks:app")
    worker.says("has not begun after 0 s: no job comes there until it has")
    worker.signal(signal.SIGTERM)
    worker.says("the worker stops before a lifespan has begun in 1 of its processes")
    worker.ends(limit_s=10)
    assert handle.status().state == "waiting"


def test_one_that_does_not_end_is_cancelled(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """U3.9 What one raises at its end, and that one has not ended after 5 s, is logged"""
    monkeypatch.setattr("tuque.worker.pools.pools.LEAVE_S", 0.01)

    class Endless:
        async def __aenter__(self) -> str:
            return "state"

        async def __aexit__(self, *ended: object) -> None:
            await asyncio.Event().wait()

    async def main() -> None:
        entered = asyncio.Event()
        held = Lifespans(app, entered.set)
        lasts = asyncio.create_task(held.last())
        await entered.wait()
        await held.leave()
        assert app.state == "state"
        await asyncio.wait({lasts})
        assert lasts.cancelled()

    app = Hooks()
    app.lifespan(Endless)  # type: ignore[type-var]  # mypy wants the base class
    asyncio.run(main())
    assert re.search(r"a lifespan of process \d+ did not end within 0 s", caplog.text)


@pytest.mark.parametrize("pool", POOLS)
def test_one_that_blocks_at_its_end_is_named(
    pool: str, node: RealServer, start_worker: StartWorker, tmp_path: Path
) -> None:
    """U3.9 What one raises at its end, and that one has not ended after 5 s, is logged; the process
    ends without it.
    """
    tasks.app.use(node.url)
    handle = tasks.plainly.enqueue()
    worker = start_worker("--pool", pool, "-c", "1", app="lifespan_tasks:app", SOON="1")
    assert handle.result(30)
    (tmp_path / "stays").touch()
    worker.signal(signal.SIGTERM)
    worker.says("did not end within")
    worker.process.wait(10)
    assert len(re.findall(r"a lifespan of process \d+ did not end within", worker.text)) == 1


def test_a_lifespan_that_waited_for_what_was_cancelled_has_failed(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """U3.9 If one raises at its beginning, that is logged, no job comes to that process, and all
    are entered anew after 1, 2, 4 .. 30 s.
    """
    monkeypatch.setattr(pools, "PAUSES", Backoff(first_s=0.0, max_s=0.0))
    tried: list[int] = []

    @asynccontextmanager
    async def waits() -> AsyncIterator[str]:
        tried.append(1)
        if len(tried) == 1:
            other = asyncio.create_task(asyncio.sleep(60))
            other.cancel()
            await other
        yield "state"

    async def main() -> None:
        entered = asyncio.Event()
        held = Lifespans(app, entered.set)
        lasts = asyncio.create_task(held.last())
        await asyncio.wait_for(entered.wait(), 30)
        await held.leave()
        await lasts

    app = Hooks()
    app.lifespan(waits)
    asyncio.run(main())
    assert app.state == "state"
    assert "a lifespan failed, so no job is taken: CancelledError" in caplog.text


def test_what_makes_no_context_manager_is_refused() -> None:
    app = App()

    async def awaits() -> None: ...

    def yields() -> object:
        yield

    async def yields_later() -> object:  # type: ignore[misc]  # it is an iterator
        yield

    for wrong in (awaits, yields, yields_later):
        with pytest.raises(TypeError, match="makes no context manager: put @contextmanager or"):
            app.lifespan(wrong)  # type: ignore[type-var]  # the mistake under test
    with pytest.raises(TypeError, match="lifespan is put on a function, not on 5"):
        app.lifespan(5)  # type: ignore[type-var]  # the mistake under test
    assert not app.lifespans
    with pytest.raises(LookupError):
        current_job()
