"""What the broker refuses for a reason of its own costs no attempt of a job (SPEC U2, U10, U11)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import group_tasks as tasks
import pytest
from group_lab import did, worker

from lab import RealCluster, RealServer, info, reachable
from tuque.errors import Error, WrongTube
from tuque.testing import job
from tuque.worker import RetryLater, Task
from tuque.worker.app.codec import Envelope
from tuque.worker.pools.execute import Job
from tuque.worker.workflow.chain_steps import goes_on, goes_on_async
from tuque.worker.workflow.create import Entry, GroupEntry, Unfit, header_of
from tuque.worker.workflow.results import GROUP_HEADER, filled, filled_async
from until import until

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
    """U11.2 While the broker takes no job of it, for a reason of its own, the worker adds it again,
    seven times in ten seconds, or as long as the time limit allows.
    """
    tasks.app.use(f"{node.url}/?timeout=60&retries=0")
    assert node.wire()(*command) in (b"OK", b"in")
    with job(headers={"tuque-chain": header_of([task.name])}, time_left=0.8) as this:
        both(this, RetryLater, f"the next step could not be added: {word}")


@pytest.mark.usefixtures("place")
def test_the_queue_of_the_next_step_is_full() -> None:
    """U11.2 a full or paused queue, a quota"""
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
    """U11.2 If the next one cannot take the result (its type is another one, it cannot be written,
    or it is too long for the broker), the step fails for good at once
    """
    assert node.wire()("CONFIG", "SET", "max-body-bytes", "2000") == b"OK"
    words = "anything: ERR .* is over max-body-bytes .*; send less"
    with job(headers={"tuque-chain": header_of([following])}, time_left=60) as this:
        both(this, Unfit, words, "x" * 3000)


def test_the_results_of_a_group_cannot_be_read() -> None:
    """U10.2 While they cannot be read, the run is given back as in U11.2."""
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
def test_a_tube_does_not_take_the_end_of_a_run(tmp_path: Path, sync: int | None, lost: int) -> None:
    """U2.16 If a tube takes no START or no end of a run now, because it has no leader (T19.2) or
    too few nodes take copies (T18.5), the worker says it again until the tube takes it, after a
    second at the latest. Other queues do not wait.
    """
    with RealCluster(tmp_path, 3, "--appendonly", "yes") as cluster:
        first, away = cluster.nodes[0], cluster.nodes[3 - lost :]
        until(lambda: info(first.wire(), "tubes")["tubes_voters"] == "3")
        tasks.app.use(first.url)
        tasks.app.client.tube("guarded").create("tasks", ttr=60, sync=sync)
        program = worker(tmp_path, first.url)
        try:
            handle = tasks.guarded.enqueue(7)
            until(lambda: did(tmp_path, "guarded"))
            for node in away:
                node.kill()
            until(lambda: reachable(first.wire()) == 2 - lost)
            (tmp_path / "go").touch()
            program.says("the broker does not accept reports of runs in queue guarded")
            assert tasks.once.options(keep_s=60).enqueue(1).result(60) == 1
            assert handle.status().state == "running"
            for node in away:
                node.start()
            assert handle.result(60) == 7
            assert (handle.status().attempt, did(tmp_path, "guarded")) == (1, ["guarded 7"])
            assert program.text.count("does not accept reports of runs") == 1
        finally:
            program.kill()
            tasks.app.close()
