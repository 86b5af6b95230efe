"""What the broker refuses for a reason of its own costs no attempt of a job (SPEC U2, U10, U11)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import group_tasks as tasks
import pytest
from noting import Noting

from lab import RealServer
from tuque.core.node.peers import may_reach
from tuque.errors import Error, WrongTube
from tuque.testing import job
from tuque.worker import Limit, RetryLater, Task
from tuque.worker.app.codec import Envelope
from tuque.worker.pools.execute import Job
from tuque.worker.workflow.chain_steps import goes_on, goes_on_async
from tuque.worker.workflow.create import Entry, GroupEntry, Unserializable, header_of, refused
from tuque.worker.workflow.results import GROUP_HEADER, filled, filled_async
from world import World

REFUSALS = [
    ("LEAVING", tasks.taken, ("CLUSTER", "LEAVING", "yes")),
    ("NOREPL", tasks.as_text, ("CLUSTER", "LEAVING", "yes")),
    ("PAUSED", tasks.as_text, ("PAUSE", "steps", "in")),
    ("OOM", tasks.as_text, ("CONFIG", "SET", "maxmemory", "1")),
]


def on_a_loop(call: Callable[[], Awaitable[object]]) -> None:
    """Makes the call on a loop of its own."""

    async def calls() -> None:
        try:
            await call()
        finally:
            await tasks.app.aclose()

    asyncio.run(calls())


def both(this: Job, error: type[Exception], words: str, result: object = 1) -> None:
    """Adding the next step raises that in both ways of running."""
    with pytest.raises(error, match=words):
        goes_on(tasks.app, this, result)
    with pytest.raises(error, match=words):
        on_a_loop(lambda: goes_on_async(tasks.app, this, result))


@pytest.mark.usefixtures("own_node", "place")
@pytest.mark.parametrize(("word", "task", "command"), REFUSALS)
def test_the_broker_takes_no_next_step(
    node: RealServer, word: str, task: Task[..., object], command: tuple[str, ...]
) -> None:
    """U11.2 the worker adds it again, seven times in ten seconds, or as long as the time limit
    allows.
    """
    tasks.app.use(f"{node.url}/?timeout=60&retries=0")
    assert node.wire()(*command) in (b"OK", b"in")
    with job(headers={"tuque-chain": header_of([task.name])}, time_left=0.8) as this:
        both(this, RetryLater, f"the next step could not be added: {word}")


@pytest.mark.usefixtures("place")
def test_the_queue_of_the_next_step_is_full() -> None:
    """U11.2 `-MAXLEN`, `-PAUSED`, `-QUOTA`"""
    tasks.short.enqueue(1)
    with job(headers={"tuque-chain": header_of([tasks.short.name])}, time_left=0.5) as this:
        both(this, RetryLater, "MAXLEN")


@pytest.mark.usefixtures("place")
def test_a_next_step_that_is_wrong_is_a_failure() -> None:
    """U11.2 If the next one cannot be added, the step has failed."""
    tasks.app.client.tube("odd").create("fifo")
    with job(headers={"tuque-chain": header_of([tasks.odd.name])}, time_left=60) as this:
        both(this, WrongTube, "type fifo")


@pytest.mark.usefixtures("own_node", "place")
@pytest.mark.parametrize(
    "following", ["group_tasks.anything", GroupEntry(["group_tasks.anything"])]
)
def test_the_next_step_is_too_long(node: RealServer, following: Entry) -> None:
    """U11.2 If the next one cannot take the result (its type is another one, it cannot be
    written, or it is too long for the broker), the step is FAIL FINAL at once
    """
    assert node.wire()("CONFIG", "SET", "max-body-bytes", "2000") == b"OK"
    words = "anything: ERR .* is over max-body-bytes .*; send less"
    with job(headers={"tuque-chain": header_of([following])}, time_left=60) as this:
        both(this, Unserializable, words, "x" * 3000)


def test_the_results_of_a_group_cannot_be_read() -> None:
    """U10.2 while they cannot be read, the run is given back as in U11.2."""
    tasks.app.use("tuque://127.0.0.1:1/?timeout=0.2")
    body = Envelope(task="add_up", args=[[]], kwargs={}, headers={GROUP_HEADER: "1"})
    with job(starts=3) as this:
        with pytest.raises(RetryLater, match="results of the group could not be read") as caught:
            filled(tasks.app, body, this)
        assert caught.value.delay_s == 1.0 and isinstance(caught.value.__cause__, Error)
        with pytest.raises(RetryLater, match="results of the group could not be read"):
            on_a_loop(lambda: filled_async(tasks.app, body, this))
    tasks.app.close()


@pytest.mark.parametrize(("sync", "lost"), [(3, 1), (None, 2)])
def test_a_tube_does_not_take_the_end_of_a_run(
    make_world: Callable[..., World], caplog: pytest.LogCaptureFixture, sync: int | None, lost: int
) -> None:
    """U2.16 If a tube takes no START or no end of a run now, because it has no leader (T19.2) or
    too few nodes take copies (T18.5), the worker retries until the tube takes it, after a second
    at the latest. Other queues do not wait.
    """
    world, noting = make_world(3), Noting()
    world.until(lambda: world.node(0).tubes.voter_state.voters is not None)
    world.client(0).tube("guarded").create("tasks", ttr=60, sync=sync)
    world.at_work(noting.app, queues=("guarded", "q"), concurrency=4)
    guarded = noting.until_go.options(queue="guarded", limit=Limit(8), attempts=1, keep_s=600)
    handle = world.loop.run(guarded.enqueue_async("7"))
    world.until(lambda: noting.did)
    for i in range(3 - lost, 3):
        world.kill(i)
    world.until(lambda: may_reach(world.node(0).core).bit_count() == 2 - lost)  # K4.4
    noting.go.set()
    words = "the broker does not accept reports of runs in queue guarded"
    world.until(lambda: words in caplog.text)
    assert noting.adds.options(keep_s=60).enqueue(1, 1).result(60) == 2
    if lost == 1:  # else the tube has no leader that may answer
        assert handle.status().state == "running"
    for i in range(3 - lost, 3):
        world.start(i)
    taken = len(caplog.records)
    began_ms = world.now_ms
    assert world.loop.run(handle.result_async(60)) == "7"
    assert world.now_ms - began_ms < 15_000, caplog.records[taken:]
    assert (handle.status().attempt, noting.did) == (1, ["begin 7", "end 7"])
    assert caplog.text.count("does not accept reports of runs") == 1


def test_a_refusal_of_the_next_step_names_it() -> None:
    """As of `pri` in a plain queue, which no node takes."""
    err = refused(GroupEntry(["resize", "store"]), WrongTube("WRONGTUBE no PRI here"))
    assert isinstance(err, WrongTube)
    assert str(err) == "the next step, resize, store, is refused: WRONGTUBE no PRI here"
