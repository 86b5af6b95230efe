"""SPEC U1, U5: calls that are enqueued together, and the dead letters of an app."""

from __future__ import annotations

import asyncio
import datetime as dt
import time
from collections.abc import Iterator

import e2e_tasks as tasks
import pytest
from worker_lab import StartWorker

from lab import RealServer
from tuque import Client
from tuque.errors import EnqueueFailed, Error, MaxLen, NoJob, Paused, Withdrawn
from tuque.worker import App, Call
from tuque.worker.app.codec import decode
from tuque.worker.app.enqueue import failure
from until import until
from world import World


@pytest.fixture(autouse=True)
def _app(node: RealServer) -> None:
    tasks.app.use(node.url)


def test_many_calls_are_added_in_order(world: World) -> None:
    """
    U1.2 `enqueue_many` adds a job for each call, in one pipeline, and returns handles in the same
    order.
    """
    app = App()
    adds = app.task(queue="q", name="adds")(tasks.adds.function)
    client = world.worker(app).client
    calls = [adds.call(at, 1) for at in range(2500)]
    calls.append(adds.options(queue="other").call(2500, 1))
    handles = adds.enqueue_many(calls)
    assert len(set(handles)) == 2501
    assert (world.qlen("q"), world.qlen("other")) == (2500, 1)
    bodies = [client.show(handle).body or b"" for handle in handles]
    assert [decode(body).args for body in bodies] == [[at, 1] for at in range(2501)]
    assert adds.enqueue_many([]) == []


def test_others_run_while_many_calls_are_prepared(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """U1.11 On an event loop `enqueue_many_async` lets others run each 5 ms"""
    made: list[int] = []
    seen: list[int] = []

    def calls() -> Iterator[Call[int]]:
        for at in range(60):
            monkeypatch.setattr(time, "perf_counter", lambda at=at: at / 1_000)  # 1 ms for each
            made.append(at)
            yield tasks.adds.call(at, 1)

    async def looks() -> None:
        while len(made) < 60:
            seen.append(len(made))
            await asyncio.sleep(0)

    async def both() -> None:
        looking = asyncio.create_task(looks())
        assert len(await tasks.adds.enqueue_many_async(calls())) == 60
        await looking
        await tasks.app.aclose()

    monkeypatch.setattr(time, "perf_counter", lambda: 0.0)
    asyncio.run(both())
    assert len(set(seen)) >= 10
    assert client.qlen(tasks.adds.defaults.queue) == 60


def test_nothing_is_sent_if_one_call_is_refused_here(client: Client) -> None:
    """U1.2 If the program refuses one of them, nothing is sent."""
    other = App(tasks.app.url).task(queue="q", name="o")(tasks.adds.function)
    with pytest.raises(ValueError, match=r"call 1 is of o, not of e2e_tasks\.adds"):
        tasks.adds.enqueue_many([tasks.adds.call(1, 2), other.call(1, 2)])
    with pytest.raises(TypeError, match="argument other"):
        tasks.adds.call(1, "2")  # type: ignore[arg-type]  # is refused
    late = tasks.adds.call(1, 2)
    late.kwargs["other"] = object()
    with pytest.raises(TypeError) as found:
        tasks.adds.enqueue_many([tasks.adds.call(1, 2), late])
    assert found.value.__notes__ == ["call 1 of enqueue_many: nothing was added"]
    assert client.qlen("q") == 0


@pytest.mark.parametrize("is_async", [False, True])
def test_one_error_says_which_were_added(is_async: bool, client: Client) -> None:
    """U1.3 If the broker did not take all of them, `EnqueueFailed` has the handles of the added
    ones, and an error for each other one.
    """
    client.pause("closed", "in")
    call = tasks.adds.options
    calls = [
        tasks.adds.call(0, 0),
        call(queue="closed").call(1, 1),
        call(queue="full", maxlen=1).call(2, 2),
        call(queue="full", maxlen=1).call(3, 3),
        tasks.adds.call(4, 4),
    ]

    async def many() -> None:
        try:
            await tasks.adds.enqueue_many_async(calls)
        finally:
            await tasks.app.aclose()

    words = r"2 of 5 jobs were not added \(calls 1, 3\): PAUSED"
    with pytest.raises(EnqueueFailed, match=words) as found:
        asyncio.run(many()) if is_async else tasks.adds.enqueue_many(calls)
    err = found.value
    assert list(err.added) == [0, 2, 4]
    assert {at: type(one) for at, one in err.failed.items()} == {1: Paused, 3: MaxLen}
    assert (err.retryable, err.may_be_done) == (True, False)
    assert err.added[4].cancel() == "ended"
    assert client.qlen("q") == 1


def test_jobs_whose_replies_are_lost_may_have_been_added(world: World) -> None:
    """U1.3 A job whose reply was lost may have been added."""
    app = App()
    task = app.task(queue="q", name="o")(tasks.adds.function)
    worker = world.worker(app)
    worker.lose_reply("ADDJOB")
    words = r"2 of 2 jobs may or may not have been added \(calls 0, 1\): .* it may have been done"
    with pytest.raises(EnqueueFailed, match=words) as found:
        task.enqueue_many([task.call(1, 2), task.call(3, 4)])
    assert found.value.may_be_done
    assert found.value.added == {}
    assert world.qlen() == 2


def test_jobs_that_were_not_sent_were_not_added(world: World) -> None:
    """U1.3 what was not sent was not added, and its error says so."""
    app = App()
    task = app.task(queue="q", name="o")(tasks.adds.function)
    worker = world.worker(app)
    worker.lose_reply("ADDJOB")
    words = r"1200 of 1200 jobs were not added, or of 500 it is not known"
    with pytest.raises(EnqueueFailed, match=words) as found:
        task.enqueue_many([task.call(at, 2) for at in range(1200)])
    unsure = [at for at, err in found.value.failed.items() if err.may_be_done]
    assert unsure == list(range(500))
    assert str(found.value.failed[500]).startswith("not sent: ")
    assert world.qlen() == 500
    failed = [task.call(at, 2) for at in range(500, 1200)]
    assert len(task.enqueue_many(failed)) == 700 and world.qlen() == 1200


@pytest.mark.parametrize(
    ("unsure", "words"),
    [
        ([], r"2 of 3 jobs were not added \(calls 1, 2\): no$"),
        ([2], r"2 of 3 jobs were not added, or of 1 it is not known \(calls 1, 2\): no$"),
        ([1, 2], r"2 of 3 jobs may or may not have been added .*: no \(no answer came: [^()]*\)$"),
    ],
)
def test_the_error_says_whether_it_is_known(unsure: list[int], words: str) -> None:
    failed = {at: Error("no") for at in (1, 2)}
    for at in unsure:
        failed[at].may_be_done = True
    with pytest.raises(EnqueueFailed, match=words):
        raise failure({0: "id"}, failed)
    text = "NOREPL Too few nodes are left for the copies: the job is withdrawn"
    failed = {at: Withdrawn(text) for at in (1, 2)}
    with pytest.raises(EnqueueFailed, match=f"may or may not have been added .*: {text}$"):
        raise failure({0: "id"}, failed)  # an answer came


def test_calls_for_a_tube_go_there(client: Client) -> None:
    client.tube("tube").create("fifo")
    calls = [tasks.in_a_tube.call("x", "k"), tasks.in_a_tube.options(queue="q").call("y", "k")]
    assert len(tasks.in_a_tube.enqueue_many(calls)) == 2
    assert len(tasks.in_a_tube.enqueue_many(calls)) == 2
    assert (client.qlen("tube"), client.qlen("q")) == (2, 2)
    tasks.app.tubes.clear()


def test_a_delay_beyond_the_ttl_is_refused() -> None:
    with pytest.raises(ValueError, match="delay_s 200000 is not less than ttl_s 86400"):
        tasks.adds.options(delay_s=200_000, ttl_s=86_400)


def test_the_dead_letters_of_an_app(client: Client, start_worker: StartWorker) -> None:
    """
    U5.1 `app.dead` lists, shows, counts, replays and purges the dead letters of the node in use.
    """
    dead = tasks.app.dead
    handles = [tasks.gives_up.enqueue(text) for text in "ab"]
    began = dt.datetime.now()
    worker = start_worker()
    until(lambda: len(list(dead.list("q.dead"))) == 2)
    worker.kill()
    assert [row.id for row in dead.list("q.dead", reason="*KeyError: 'b'*")] == [handles[1]]
    assert list(dead.list("q.dead", cause="crashed")) == []
    assert list(dead.list("q.dead", since=began + dt.timedelta(hours=1))) == []
    assert len(list(dead.list("q.dead", since=began - dt.timedelta(hours=1)))) == 2
    shown = dead.show(handles[0])
    assert (shown.task, shown.origin) == ("e2e_tasks.gives_up", "q")
    assert [count.count for count in dead.stat("q.dead")] == [1, 1]
    assert dead.replay("q.dead", ids=handles[:1], to="later") == 1
    assert client.qlen("later") == 1
    assert asyncio.run(purged(handles[1])) == 1
    with pytest.raises(NoJob):
        dead.show(handles[1])


async def purged(id: str) -> int:
    dead = tasks.app.dead
    try:
        assert (await dead.show_async(id)).cause == "failed"
        assert [row.id async for row in dead.list_async("q.dead")] == [id]
        assert [row.count for row in await dead.stat_async("q.dead")] == [1]
        assert await dead.replay_async("q.dead", cause="expired") == 0
        return await dead.purge_async("q.dead")
    finally:
        await tasks.app.aclose()


def test_a_task_knows_when_its_job_was_enqueued(start_worker: StartWorker) -> None:
    before = time.time()
    handle = tasks.about.enqueue()
    start_worker()
    enqueued, left, starts, headers = handle.result(30)
    assert before <= enqueued <= time.time()
    assert 50 < left <= 60
    assert (starts, headers) == (1, {"tuque-task": "e2e_tasks.about"})
