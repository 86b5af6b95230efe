"""Groups of tasks: their callbacks and results (SPEC U10)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import group_tasks as tasks
import pytest
from lab import RealCluster, RealServer
from worker_lab import HERE, Program, wait_until

from tuque.errors import JobCancelled, JobFailed, NoResult, ResultTimeout
from tuque.worker import App, Failed, Limit, chain, group


@pytest.fixture
def place(node: RealServer, tmp_path: Path) -> Iterator[Path]:
    """Where tasks note what they did; the app uses the node."""
    tasks.app.use(node.url)
    yield tmp_path
    tasks.app.close()


def worker(place: Path, url: str, *flags: str) -> Program:
    words = ("worker", "group_tasks:app", "--app-dir", str(HERE), "--url", url, "-c", "4")
    return Program(place / f"worker-{url[-5:]}.log", *words, *flags, OUT=str(place))


def did(place: Path, word: str) -> list[str]:
    """The lines that begin with the word."""
    file = place / "did"
    lines = file.read_text().splitlines() if file.exists() else []
    return [line for line in lines if line.startswith(word)]


@pytest.mark.parametrize("pool", ["thread", "process"])
def test_the_callback_gets_the_results_in_order(node: RealServer, place: Path, pool: str) -> None:
    """U10.2 The callback runs once all have ended; its argument is the list of their results, in
    the order of the calls."""
    program = worker(place, node.url, "--pool", pool)
    try:
        handle = group(tasks.square.call(n) for n in range(30)).then(tasks.add_up).enqueue()
        wait_until(lambda: did(place, "sum"), "the callback")
        assert did(place, "sum") == [f"sum {sum(n * n for n in range(30))} {handle.id}"]
        other = group([tasks.half.call(3), tasks.half.call(4)]).then(tasks.add_halves).enqueue()
        wait_until(lambda: did(place, "halves"), "the other callback")
        assert did(place, "halves") == [f"halves 3.5 {other.id}"]
        plain = group([tasks.square.call(3), tasks.half.call(5)]).enqueue()
        assert plain.results(60) == [9, 2.5]
        assert [child.result(60) for child in plain.children] == [9, 2.5]
        assert plain.progress().state == "done" and not plain.cancel()

        async def on_a_loop() -> None:
            made = await group([tasks.square.call(7)]).enqueue_async()
            assert await made.results_async(60) == [49]
            assert (await made.progress_async()).done == 1
            assert not await made.cancel_async()
            await tasks.app.aclose()

        asyncio.run(on_a_loop())
    finally:
        program.kill()


def test_what_becomes_of_failures(node: RealServer, place: Path) -> None:
    """U10.3 It raises JobFailed if the group failed, with what its first failed child said."""
    program = worker(place, node.url)
    try:
        calls = [tasks.square.call(n, n in (2, 5)) for n in range(8)]
        handle = group(calls, on_fail="continue").then(tasks.count).enqueue()
        wait_until(lambda: did(place, "count"), "the callback")
        total = sum(n * n for n in range(8)) - 4 - 25
        assert did(place, "count") == [f"count 8 {total} 2 ['dead'] {handle.id}"]
        found = group(calls, on_fail="continue").enqueue().results(60)
        assert found[2] == Failed("dead", "ValueError: it was to fail") and found[3] == 9
        with pytest.raises(JobFailed, match="it was to fail") as caught:
            group([tasks.square.call(1, True)]).then(tasks.add_up).enqueue().results(60)
        assert caught.value.cause == "dead"
        assert did(place, "sum") == []
    finally:
        program.kill()


@pytest.mark.parametrize("pool", ["thread", "process"])
def test_a_chain_passes_each_result_on(node: RealServer, place: Path, pool: str) -> None:
    """U11.3 `result` of the handle goes from step to step, and returns what the last one
    returned."""
    program = worker(place, node.url, "--pool", pool)
    try:
        steps = chain(tasks.plus_one.call(1), tasks.plus_one, tasks.plus_one, tasks.as_text)
        assert steps.enqueue().result(60) == "<4>"
        assert did(place, "plus") == ["plus 1", "plus 2", "plus 3"]
        assert chain(tasks.half.call(3)).enqueue().result(60) == 1.5

        async def on_a_loop() -> str:
            made = await chain(tasks.plus_one.call(6), tasks.as_text).enqueue_async()
            found = await made.result_async(60)
            await tasks.app.aclose()
            return found

        assert asyncio.run(on_a_loop()) == "<7>"
        with pytest.raises(JobFailed, match="it was to fail"):
            chain(tasks.square.call(1, True), tasks.as_text).enqueue().result(60)
    finally:
        program.kill()


def test_a_step_that_runs_twice_adds_the_next_once(node: RealServer, place: Path) -> None:
    """U11.2 a step that runs twice adds the next one once"""
    program = worker(place, node.url, "--pool", "process")
    try:
        handle = chain(tasks.plus_one.call(100), tasks.as_text).enqueue()
        assert handle.result(60) == "<101>"
        assert did(place, "plus") == ["plus 100"] * 2 and len(did(place, "text")) == 1
    finally:
        program.kill()


def test_cancel_of_a_chain(place: Path) -> None:
    """U11.4 `cancel` cancels the step that is waiting or at work."""
    handle = chain(tasks.plus_one.call(1), tasks.as_text).enqueue()
    assert handle.cancel() == "ended" and handle.cancel() == "over"
    with pytest.raises(JobCancelled):
        handle.result(10)


def test_what_cannot_be_a_chain() -> None:
    """U11.1 All steps are jobs of queues"""
    app = App("tuque://127.0.0.1:1")

    @app.task(name="keyed", limit=Limit(1))
    def keyed(number: int) -> int:
        return number

    with pytest.raises(TypeError, match="keyed has keys"):
        chain(tasks.plus_one.call(1), keyed)
    with pytest.raises(TypeError, match="begins with a call"):
        chain(tasks.plus_one, tasks.as_text)  # type: ignore[call-overload]  # that is tested
    with pytest.raises(TypeError, match="has tasks, not 3"):
        chain(tasks.plus_one.call(1), 3)  # type: ignore[call-overload]  # so is this
    with pytest.raises(ValueError, match="1024 bytes"):
        chain(tasks.plus_one.call(1), *[tasks.as_text] * 100)


def test_cancel_and_timeout(place: Path) -> None:
    """U10.4 `cancel` cancels the children that are open, and the callback."""
    handle = group(tasks.square.call(n) for n in range(3)).then(tasks.add_up).enqueue()
    assert (handle.progress().state, handle.progress().added) == ("open", 3)
    with pytest.raises(ResultTimeout):
        handle.results(0.1)
    assert handle.cancel()
    with pytest.raises(JobCancelled):
        handle.results(10)
    for child in handle.children:
        with pytest.raises(JobCancelled):
            child.result(30)
    assert tasks.app.client.deljob(handle.id) == 1
    with pytest.raises(NoResult):
        handle.results(1)


def test_what_cannot_be_a_group(place: Path) -> None:
    """U10.1 The children are jobs of queues, the callback has a queue of its own"""
    with pytest.raises(ValueError, match="1 to 10000 calls"):
        group([])
    with pytest.raises(TypeError, match="call 0 is 3"):
        group([3])  # type: ignore[list-item]  # that is tested
    with pytest.raises(ValueError, match="needs a queue of its own"):
        group([tasks.half.call(1)]).then(tasks.half)  # type: ignore[arg-type]  # so is this
    with pytest.raises(ValueError, match="on_fail is"):
        group([tasks.half.call(1)], on_fail="x")  # type: ignore[arg-type]  # and this
    app = App("tuque://127.0.0.1:1")

    @app.task(name="keyed", limit=Limit(1))
    def keyed() -> int:
        return 1

    with pytest.raises(TypeError, match="keyed has keys"):
        group([keyed.call()])


@pytest.mark.slow
def test_a_hundred_children_with_failures_and_a_killed_worker(tmp_path: Path) -> None:
    """U10.2 The callback runs once all have ended"""
    with RealCluster(tmp_path, 3, "--appendonly", "yes") as cluster:
        urls = [node.url for node in cluster.nodes]
        tasks.app.use(urls[0])
        wait_until(
            lambda: tasks.app.client.info("tubes")["tubes_voters"] == 3, "votes of three nodes"
        )
        programs = [worker(tmp_path, url) for url in urls]
        try:
            calls = [tasks.square.options(replicate=2).call(n, n % 10 < 3) for n in range(100)]
            handle = group(calls, on_fail="continue").then(tasks.count).enqueue()
            wait_until(lambda: len(did(tmp_path, "square")) > 20, "some children")
            programs[0].kill()
            home = tasks.app.client.tube("sums").info().home
            ids = [bytes(node.wire()("CLUSTER", "MYID")).decode() for node in cluster.nodes]
            leader = cluster.nodes[ids.index(home)]
            leader.kill()
            wait_until(lambda: did(tmp_path, "count"), "the callback", 180)
            (line,) = did(tmp_path, "count")
            total = sum(n * n for n in range(100) if n % 10 >= 3)
            assert line == f"count 100 {total} 30 ['dead'] {handle.id}"
        finally:
            for program in programs:
                program.kill()
            tasks.app.close()
