"""The life of tasks' jobs at a real node: results, cancel, attempts, workers that stop and die."""

from __future__ import annotations

import asyncio
import logging
import re
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import e2e_tasks as tasks
import pytest
from noting import Noting
from worker_lab import Did, StartWorker

from lab import RealServer
from quick import is_quick
from tuque import Client
from tuque.errors import JobCancelled, JobFailed, Misconf, NoJob, NoNode, NoResult, ResultTimeout
from tuque.worker import App, Handle, current_job
from until import until
from world import World


@pytest.fixture(autouse=True)
def _app(node: RealServer) -> None:
    tasks.app.use(node.url)


@pytest.mark.parametrize("pool", ["thread", "async", "process"])
def test_a_result_is_read_twice_in_its_type(pool: str, start_worker: StartWorker) -> None:
    first, second = tasks.adds.enqueue(1, 2), tasks.adds_async.enqueue(3, 4)
    start_worker("--pool", pool, "-c", "2")
    for _ in range(2):
        assert first.result(30) == 3
        assert second.result(30) == tasks.Sum(7)
    again: Handle[tasks.Sum] = App(tasks.app.url).handle(second.id, tasks.Sum)
    assert asyncio.run(awaited(again)) == tasks.Sum(7)
    assert first.status().state == "done"


async def awaited(handle: Handle[tasks.Sum]) -> tasks.Sum:
    found = await handle
    assert handle._app is not None
    await handle._app.aclose()
    return found


def test_why_there_is_no_result(start_worker: StartWorker, client: Client) -> None:
    with pytest.raises(NoResult, match="annotate its result, or set keep_s"):
        tasks.record.enqueue("x").result(1)
    late = tasks.adds.options(delay_s=60).enqueue(1, 2)
    with pytest.raises(ResultTimeout, match=r"is still scheduled after 0\.1 s"):
        late.result(0.1)
    for wrong in (-1, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="timeout is 0 seconds or more, or None for ever"):
            late.result(wrong)
    assert late.cancel("user left") == "ended"
    with pytest.raises(JobCancelled, match="user left"):
        late.result(1)
    start_worker()
    failed = tasks.never.options(keep_s=60).enqueue("x")
    with pytest.raises(JobFailed, match="no, never") as found:
        failed.result(30)
    assert (found.value.attempts, found.value.cause) == (3, "failed")
    assert "Traceback" in found.value.detail
    assert client.dead_show(failed).origin == "q"
    assert client.dead_show(failed).task == "e2e_tasks.never"


@pytest.mark.parametrize(
    ("pool", "task"),
    [("async", "for_ever"), ("thread", "for_ever"), ("process", "sleeps"), ("thread", "checks")],
)
def test_a_cancel_ends_the_work_within_two_seconds(
    pool: str, task: str, start_worker: StartWorker, did: Did
) -> None:
    start_worker("--pool", pool, "-c", "1")

    def end(handle: Handle[None]) -> None:
        assert handle.cancel("user left") == "flagged"
        with pytest.raises(JobCancelled, match="user left"):
            handle.result(60)

    def at_work() -> Handle[None]:
        before = len(did())
        handle: Handle[None] = getattr(tasks, task).options(keep_s=60).enqueue("x")
        until(lambda: did()[before:] == ["begin x 1"])
        return handle

    assert is_quick(end, 2, at_work)
    tasks.record.enqueue("after")
    until(lambda: "after" in did())


@pytest.mark.parametrize("pool", ["thread", "process"])
def test_progress_is_seen_while_a_task_runs(
    pool: str, start_worker: StartWorker, tmp_path: Path
) -> None:
    handle = tasks.tells.enqueue("go")
    start_worker("--pool", pool, "-c", "2")
    until(lambda: handle.progress() == {"done": 1})
    assert handle.status().state == "running"
    (tmp_path / "go").touch()
    assert handle.result(30) == "told"


def test_progress_of_the_last_moment_is_kept(world: World) -> None:
    noting = Noting()

    @noting.app.task(queue="q", keep_s=60, name="tells_and_ends")
    def tells_and_ends() -> str:
        current_job().progress("all")
        return "told"

    world.at_work(noting.app)
    handle = tells_and_ends.enqueue()
    world.until(lambda: handle.status().state == "done")
    assert handle.progress() == "all"


@pytest.mark.usefixtures("own_node")
@pytest.mark.parametrize("is_async", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_wait_for_a_result_outlasts_an_outage(
    is_async: bool, node: RealServer, start_worker: StartWorker
) -> None:
    """U1.6 A wait for a result continues while the broker is away"""
    done = tasks.adds.enqueue(1, 2)
    start_worker()
    assert done.result(30) == 3
    node.kill()
    app = App(f"{node.url}/?timeout=0.1")
    handle: Handle[int] = app.handle(done.id, int)

    async def waited(limit_s: float | None) -> int:
        try:
            return await handle.result_async(limit_s)
        finally:
            await app.aclose()

    def wait(limit_s: float | None) -> int:
        return asyncio.run(waited(limit_s)) if is_async else handle.result(limit_s)

    for limit_s in (0.5, None):
        with pytest.raises(NoNode):
            wait(limit_s)
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(wait, 60.0)
        with pytest.raises(TimeoutError):
            waiting.result(0.8)  # it does not give up
        node.start()
        assert waiting.result(60) == 3
    app.close()


def test_what_is_not_known_is_named(node: RealServer) -> None:
    handle: Handle[int] = tasks.app.handle("D-dcb833cf-8YL1NT17e9+wsA/09NqxscQI-05a1", int)
    for asks in (handle.status, handle.progress):
        with pytest.raises(NoJob, match=r"job D-dcb833cf.* is not known: nothing of it is kept"):
            asks()


def test_one_line_says_that_progress_is_not_told(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    noting = Noting()
    caplog.set_level(logging.INFO, "tuque.worker")

    @noting.app.task(queue="q", keep_s=60, retry_s=3, name="tells_much")
    async def tells_much() -> None:
        for number in range(10_000):
            current_job().progress(number)
            await asyncio.sleep(0.02)

    world.at_work(noting.app)
    handle = tells_much.enqueue()
    for outages in (1, 2):
        world.until(lambda: handle.progress() is not None)
        world.kill(0)
        world.until(partial(is_logged, caplog, "progress was not sent", outages))
        world.pass_ms(3_000)
        assert caplog.text.count("progress was not sent") == outages
        world.start(0)
        world.until(partial(is_logged, caplog, "broker is back", outages))
        world.until(partial(has_moved, handle, handle.progress()))


def is_logged(caplog: pytest.LogCaptureFixture, words: str, times: int) -> bool:
    return caplog.text.count(words) >= times


def test_a_job_that_the_node_does_not_know_is_dropped(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """U2.15 `-NOJOB` to WORKING: the job is over, or at an unreachable node; both are logged. If
    it waits here for a place it is dropped
    """
    noting, client = Noting(), world.client()
    world.at_work(noting.app)
    running, waiting = [
        noting.until_go.options(retry_s=1, keep_s=60).enqueue(name) for name in ("a", "b")
    ]
    world.until(lambda: noting.did == ["begin a"])
    world.until(lambda: client.show(waiting).state == "active")  # it is fetched
    assert client.deljob(waiting) == 1
    words = "here, and the node in use does not know it: it is over, or at an unreachable node"
    world.until(lambda: f"is waiting {words}" in caplog.text, 20_000)
    assert running.cancel() == "flagged"
    with pytest.raises(JobCancelled):
        running.result(20)
    world.pass_ms(10_000)
    assert noting.did == ["begin a"]


def has_moved(handle: Handle[None], since: object) -> bool:
    return bool(handle.progress() != since)


def test_asking_for_later_costs_no_attempt(world: World) -> None:
    noting = Noting()
    world.at_work(noting.app)
    handle = noting.later.options(keep_s=60).enqueue(3)
    world.until(lambda: handle.status().state == "done")
    assert noting.did == ["1 1", "1 2", "1 3", "1 4"]


def test_what_it_gives_up_on_is_not_tried_again(world: World) -> None:
    noting = Noting()
    world.at_work(noting.app)
    with pytest.raises(JobFailed, match="rejected: KeyError"):
        noting.gives_up.enqueue("x").result(30)
    assert noting.did == ["x"]


def test_a_job_of_an_unknown_task_waits_for_a_worker_that_knows_it(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    client = world.client()
    id = client.addjob("q", b'{"task":"new"}', attempts=1, ttl=0, retry=30)
    old = client.addjob("q", b'{"task":"new","unknown_keep_s":0}', attempts=9, ttl=0, retry=30)
    world.at_work(Noting().app)
    world.until(lambda: client.result(id).state == "back-off")  # it is given back
    world.until(lambda: client.result(old).state == "dead")
    assert client.result(id).cause == ""
    assert client.result(old).reason == "rejected: unknown task 'new'"
    world.pass_ms(60_000)
    assert client.result(id).state != "dead"
    assert caplog.text.count("unknown task 'new': its jobs") == 1


def test_ttl_shorter_than_the_work_and_two_workers_one_run(world: World) -> None:
    noting = Noting()
    for _ in range(2):
        world.at_work(noting.app)
    handle = noting.lasts.options(ttl_s=3, keep_s=60, retry_s=4).enqueue("x", 5.0)
    world.until(lambda: handle.status().state == "done")
    assert noting.did == ["begin x", "end x"]
    assert handle.status().attempt == 1


@pytest.mark.slow
def test_stops_and_kills_count_only_attempts_that_began(
    client: Client, start_worker: StartWorker, did: Did
) -> None:
    handles = [tasks.takes_a_moment.options(keep_s=300).enqueue(at) for at in range(90)]
    for how in (signal.SIGTERM, signal.SIGTERM, signal.SIGKILL, signal.SIGTERM):
        worker = start_worker("-c", "2", "--prefetch", "20", "--pool", "process", "--grace", "5")
        wanted = len(did()) + 6
        while len(did()) < wanted:
            time.sleep(0.01)
        worker.signal(how)
        worker.process.wait(30)
    start_worker("-c", "4", "--prefetch", "20")
    until(lambda: client.waitjob(*handles, wait_ms=100).keys() == {*handles})
    attempts = [handle.status().attempt for handle in handles]
    assert {handle.status().state for handle in handles} == {"done"}
    assert sum(attempts) - len(attempts) <= 2  # what ran when its worker was killed
    assert max(attempts) <= 2
    assert len(set(did())) == len(handles)


@pytest.mark.parametrize("size", [100_000, 30_000_000])
def test_a_result_that_is_too_big_costs_only_itself(
    size: int, make_world: Callable[..., World], caplog: pytest.LogCaptureFixture
) -> None:
    """U2.7 A result that is too big for the broker is lost, with a line in the log; the job is
    done.
    """
    world, noting = make_world(max_body_bytes="64kb"), Noting()
    shift = world.at_work(noting.app, is_burst=True)
    big, small = noting.long_text.enqueue(size), noting.adds.enqueue(1, 2)
    assert shift.ends(200_000)
    assert small.result(1) == 3
    assert big.status().state == "done"
    with pytest.raises(NoResult, match=r"its \d+ bytes are too many for the broker"):
        big.result(1)
    assert f"the result of job {big.id} is lost" in caplog.text
    assert caplog.text.count("is lost") == 1


def test_a_run_goes_on_while_the_disk_is_full(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """W6.1 Only silence that the node could have heard counts: none does while its journal fails
    (J6.1).
    """
    noting, client = Noting(), world.client()
    caplog.set_level(logging.INFO, "tuque.worker")
    world.at_work(noting.app)
    handle = noting.until_go.options(retry_s=1, attempts=1, keep_s=60).enqueue("x")
    world.until(lambda: noting.did)
    world.disk().full()

    def is_full() -> bool:
        try:
            client.addjob("other", "x")
        except Misconf:
            return True
        except ConnectionError:  # closed, since the journal failed (J6.7)
            pass
        return False

    world.until(is_full)
    # lost: the node closed the connection when the journal failed (J6.7)
    world.until(lambda: re.search("broker (refuses|lost)", caplog.text))
    world.pass_ms(3_500)  # three retry times
    assert is_full()
    assert handle.status().state == "running"
    assert caplog.text.count("broker is back") <= 2  # a GETJOB that waited; a new connection
    assert not [one for one in caplog.records if one.getMessage().startswith("WORKING ")]
    world.disk().well()
    world.until(lambda: not is_full())
    assert handle.status().state == "running"
    assert handle.cancel("enough") == "flagged"
    with pytest.raises(JobCancelled, match="enough"):
        handle.result(60)
