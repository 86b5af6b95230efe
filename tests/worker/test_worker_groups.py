"""Groups of tasks: their callbacks and results (SPEC U10)."""

from __future__ import annotations

import asyncio
import pickle
from functools import partial
from pathlib import Path
from typing import Any

import group_tasks as tasks
import pytest
from group_lab import did, worker

from lab import RealCluster, RealServer
from tuque.errors import JobCancelled, JobFailed, NoResult, ResultTimeout
from tuque.worker import App, Failed, TaskOptions, Unique, chain, group
from tuque.worker.workflow.group_handle import AnyGroupHandle, CalledHandle, GroupHandle
from until import until


@pytest.mark.parametrize("pool", ["thread", "process"])
def test_the_callback_gets_the_results_in_order(node: RealServer, place: Path, pool: str) -> None:
    """U10.2 The callback runs once all have ended; its argument is the list of their results, in
    the order of the calls."""
    program = worker(place, node.url, "--pool", pool)
    try:
        handle = group(tasks.square.call(n) for n in range(30)).then(tasks.add_up).enqueue()
        until(lambda: did(place, "sum"))
        assert did(place, "sum") == [f"sum {sum(n * n for n in range(30))} {handle.id}"]
        other = group([tasks.half.call(3), tasks.half.call(4)]).then(tasks.add_halves).enqueue()
        until(lambda: did(place, "halves"))
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


def names_child_1(handle: AnyGroupHandle[int]) -> None:
    with pytest.raises(JobFailed, match="child 1 .* failed .dead.: ValueError") as caught:
        handle.results(60)
    assert caught.value.job_id == handle.children[1].id


def all_failed(handle: AnyGroupHandle[int]) -> bool:
    return handle.progress().failed == 3


def test_what_becomes_of_failures(node: RealServer, place: Path) -> None:
    """U10.3 It raises JobFailed if the group failed, with the error of the child that failed
    first: the one for which the group failed.
    """
    program = worker(place, node.url)
    try:
        calls = [tasks.square.call(n, n in (2, 5)) for n in range(8)]
        handle = group(calls, on_fail="continue").then(tasks.count).enqueue()
        until(lambda: did(place, "count"))
        total = sum(n * n for n in range(8)) - 4 - 25
        assert did(place, "count") == [f"count 8 {total} 2 ['dead'] {handle.id}"]
        found = group(calls, on_fail="continue").enqueue().results(60)
        assert found[2] == Failed("dead", "ValueError: it was to fail") and found[3] == 9
        with pytest.raises(JobFailed, match="it was to fail") as caught:
            group([tasks.square.call(1, True)]).then(tasks.add_up).enqueue().results(60)
        assert caught.value.cause == "dead"
        late = tasks.square.options(delay_s=600)
        calls = [late.call(0), tasks.square.call(2, True), late.call(4)]
        for handle in (group(calls).enqueue(), group(calls).then(tasks.add_up).enqueue()):
            names_child_1(handle)
            until(partial(all_failed, handle))
            names_child_1(handle)
        assert did(place, "sum") == []
    finally:
        program.kill()


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


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("has_callback", [False, True])
def test_a_group_is_asked_for_by_its_id(place: Path, has_callback: bool, is_async: bool) -> None:
    """U11.4 `app.handle(id)` of a chain, or of a group, returns and raises the same; so does its
    `status`."""

    def ask(id: str, word: str, *args: Any) -> Any:
        async def on_a_loop() -> Any:
            try:
                return await getattr(tasks.app.handle(id), f"{word}_async")(*args)
            finally:
                await tasks.app.aclose()

        return asyncio.run(on_a_loop()) if is_async else getattr(tasks.app.handle(id), word)(*args)

    def opened() -> AnyGroupHandle[int]:
        made = group(tasks.square.call(n) for n in range(2))
        return made.then(tasks.add_up).enqueue() if has_callback else made.enqueue()

    failed = opened()
    assert pickle.loads(pickle.dumps(failed)) == failed.id
    assert ask(failed.id, "status").state == "scheduled"
    assert ask(failed.id, "outcome", 0.1).state == "scheduled"
    with pytest.raises(ResultTimeout):
        ask(failed.id, "result", 0.1)
    failed.children[1].cancel()
    with pytest.raises(JobFailed, match="child 1 .* failed .cancelled."):
        ask(failed.id, "result", 30)
    for found in (ask(failed.id, "status"), ask(failed.id, "outcome", 30)):
        assert found.state == "dead" and "child 1 of group" in found.reason and found.ended_ms
    assert ask(failed.id, "cancel") == "over"
    gone = opened()
    assert ask(gone.id, "cancel") == "ended"
    with pytest.raises(JobCancelled):
        ask(gone.id, "result", 30)
    assert ask(gone.id, "status").state == "cancelled"
    if isinstance(gone, CalledHandle):
        assert gone.callback.outcome(30).state == gone.callback.status().state == "cancelled"


@pytest.mark.parametrize("words", [{"key": "one"}, {"unique": Unique("number")}])
@pytest.mark.parametrize("is_async", [False, True])
def test_a_job_that_another_one_added(place: Path, words: dict[str, Any], is_async: bool) -> None:
    """U10.1 A call with `unique` or a `key` of its own may meet a job that another one added: if
    that is certain (`is_new` is False) it is added with NOCANCEL (T51.2).

    U10.4 Jobs that another one had added (U10.1) continue."""
    app = App(tasks.app.url)

    @app.task(queue="orders", **words)
    def order(number: int) -> int: ...

    def opened(*numbers: int) -> GroupHandle[int]:
        made = group([order.call(number) for number in numbers])

        async def on_a_loop() -> GroupHandle[int]:
            handle = await made.enqueue_async()
            await app.aclose()
            return handle

        return asyncio.run(on_a_loop()) if is_async else made.enqueue()

    first = order.enqueue(1)
    met, own = opened(1), opened(2) if "unique" in words else None
    assert met.children == [first] and met.cancel()
    states = met.progress().state, app.client.result(first.id).state
    assert states == ("cancelled", "waiting")
    if own is not None:
        other = opened(1, 2)
        assert own.cancel()
        with pytest.raises(JobCancelled):
            own.children[0].result(60)
        with pytest.raises(JobFailed, match="child 1 .* failed .cancelled.: its group"):
            other.results(60)
        (row, _) = app.client.group_children(other.queue, other.id)
        assert (row.state, row.how) == ("failed", "open")
        assert row.reason == "its group has ended; it continues, for another one added it"
    assert app.client.result(first.id).state == "waiting"
    app.close()


def test_what_cannot_be_a_group(place: Path) -> None:
    """U10.1 The callback has a queue of its own: no child is a job of it"""
    with pytest.raises(ValueError, match="1 to 10000 calls"):
        group([])
    with pytest.raises(TypeError, match="call 0 is 3"):
        group([3])  # type: ignore[list-item]  # that is tested
    with pytest.raises(ValueError, match="needs a queue of its own"):
        group([tasks.half.call(1)]).then(tasks.half)  # type: ignore[arg-type]  # so is this
    with pytest.raises(ValueError, match="on_fail is"):
        group([tasks.half.call(1)], on_fail="x")  # type: ignore[arg-type]  # and this
    with pytest.raises(TypeError, match="has a utube"):
        group([tasks.half.options(utube="u").call(1)])
    app = App("tuque://127.0.0.1:1")

    @app.task(name="only", queue="only", unique=Unique("numbers"))
    def only(numbers: list[float]) -> int:
        return 1

    with pytest.raises(TypeError, match="only of a group cannot be unique"):
        group([tasks.half.call(1)]).then(only)

    @app.task(name="once", queue="once", retry_s=0)
    def once(numbers: list[float]) -> int:
        return 1

    with pytest.raises(ValueError, match="once comes back: retry_s is 1 or more, not 0"):
        group([tasks.half.call(1)]).then(once)
    wrong: TaskOptions
    for wrong in ({"delay_s": 1}, {"ttl_s": 1}, {"replicate": 2}, {"maxlen": 1}, {"key": "k"}):
        (word,) = wrong
        named = App("tuque://127.0.0.1:1").task(name="named", queue="named", **wrong)(only.function)
        with pytest.raises(TypeError, match=f"callback named of a group cannot have {word}"):
            group([tasks.half.call(1)]).then(named)
    with pytest.raises(TypeError, match="named has a key: only the first step"):
        chain(tasks.half.call(1), named)  # type: ignore[arg-type]  # and this
    with pytest.raises(TypeError, match="named has a key: only the first step"):
        group(named, named)
    many = group([tasks.half.call(1)])
    with pytest.raises(TypeError, match="callback of a group is a task"):
        many.then(many)  # type: ignore[arg-type]  # this, too


def test_many_children_fail_and_are_tried_again(node: RealServer, place: Path) -> None:
    """U10.2 The callback runs once all have ended; its argument is the list of their results, in
    the order of the calls."""
    programs = [worker(place, node.url), worker(place, node.url)]
    try:
        calls = [tasks.flaky.call(n) for n in range(100)]
        handle = group(calls).then(tasks.listed).enqueue()
        until(lambda: len(did(place, "flaky")) > 20)
        programs[0].kill()
        assert handle.result(120) == list(range(100))
        assert did(place, "listed") == [f"listed {handle.id}"]
        assert len(did(place, "flaky")) > 110  # a run that was killed did not fail
    finally:
        for program in programs:
            program.kill()


@pytest.mark.slow
def test_a_hundred_children_with_failures_and_a_killed_worker(tmp_path: Path) -> None:
    """U10.2 The callback runs once all have ended"""
    with RealCluster(tmp_path, 3, "--appendonly", "yes") as cluster:
        urls = [node.url for node in cluster.nodes]
        tasks.app.use(urls[0])
        until(lambda: tasks.app.client.info("tubes")["tubes_voters"] == 3)
        programs = [worker(tmp_path, url) for url in urls]
        try:
            calls = [tasks.square.options(replicate=2).call(n, n % 10 < 3) for n in range(100)]
            handle = group(calls, on_fail="continue").then(tasks.count).enqueue()
            tried = [tasks.flaky.options(replicate=2).call(n) for n in range(100)]
            other = group(tried).then(tasks.listed).enqueue()
            until(lambda: len(did(tmp_path, "square")) > 20)
            programs[0].kill()
            home = tasks.app.client.tube("sums").info().home
            ids = [bytes(node.wire()("CLUSTER", "MYID")).decode() for node in cluster.nodes]
            leader = cluster.nodes[ids.index(home)]
            leader.kill()
            until(lambda: did(tmp_path, "count"), most_s=180)
            (line,) = did(tmp_path, "count")
            total = sum(n * n for n in range(100) if n % 10 >= 3)
            assert line == f"count 100 {total} 30 ['dead'] {handle.id}"
            tasks.app.use(urls[ids.index(home) - 1])
            assert other.result(180) == list(range(100))
            assert len(set(did(tmp_path, "listed"))) == 1
        finally:
            for program in programs:
                program.kill()
            tasks.app.close()


@pytest.mark.slow
def test_ten_thousand_children(node: RealServer, place: Path) -> None:
    """U10.2 its argument is the list of their results, in the order of the calls"""
    handle = group(tasks.half.call(n) for n in range(10_000)).then(tasks.total).enqueue()
    program = worker(place, node.url)
    try:
        assert handle.result(300) == 24_997_500
    finally:
        program.kill()
