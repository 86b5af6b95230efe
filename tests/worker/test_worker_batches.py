"""SPEC U15: a function that takes the arguments of many jobs at once."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from test_worker_pools import MAKERS, call, ended_in, started

from tuque.worker import App, RetryLater, Tasks
from tuque.worker.app.decisions import Outcome
from tuque.worker.app.task import Task
from until import until
from world import World


class Store:
    """An app with a task for many rows; the batches that it got."""

    def __init__(self, batch: int = 3, wait_s: float = 0.2) -> None:
        self.app = App("tuque://127.0.0.1:1")
        self.got: list[list[int]] = []
        self.ended: list[tuple[int, str]] = []
        self.may_go = asyncio.Event()
        self.may_go.set()

        @self.app.task(queue="q", name="store", attempts=1, batch=batch, batch_wait_s=wait_s)
        async def store(rows: list[int]) -> list[int | Exception]:
            self.got.append(rows)
            await self.may_go.wait()
            return [ValueError(f"row {row}") if row == 13 else row * 2 for row in rows]

        self.store = store

    def add(self, *rows: int) -> list[str]:
        """Jobs, each with one row."""
        return [self.store.enqueue(row).id for row in rows]


def test_many_jobs_are_one_call_and_each_ends_by_its_place(world: World) -> None:
    """U15.2 Each job ends by its place in the list that the function returns: with that result, or
    as if it had raised, if that is an exception.
    """
    made, client = Store(), world.client()
    world.at_work(made.app, concurrency=10)
    ids = made.add(1, 13, 3)
    world.until(lambda: made.got == [[1, 13, 3]])
    world.until(lambda: [client.result(id).state for id in ids] == ["done", "dead", "done"])
    assert [client.result(id).result for id in ids if id != ids[1]] == [b"2", b"6"]
    assert client.dead_show(ids[1]).reason == "ValueError: row 13"


def test_a_batch_waits_for_others_no_longer_than_it_may(world: World) -> None:
    """U15.1 It is called once there are n, or as many as the process runs at a time (`-c`; 1 with
    `--pool process`), or `batch_wait_s` (1) after the first one.
    """
    made = Store(batch=100)
    world.at_work(made.app, concurrency=4)
    made.add(1, 2)
    world.pass_ms(100)
    assert made.got == []
    world.pass_ms(150)
    assert made.got == [[1, 2]]
    made.add(3, 4, 5, 6)
    world.pass_ms(50)
    assert made.got[1:] == [[3, 4, 5, 6]], "no more can come"


def test_a_cancelled_job_leaves_the_others_alone(world: World) -> None:
    """U15.3 A cancelled run ends no other one: the function continues for all."""
    made, client = Store(), world.client()
    made.may_go.clear()
    world.at_work(made.app, concurrency=10)
    ids = made.add(1, 2, 3)
    world.until(lambda: len(made.got) == 1)
    client.cancel(ids[0])
    world.pass_ms(100)
    made.may_go.set()
    states = ["cancelled", "done", "done"]
    world.until(lambda: [client.result(id).state for id in ids] == states)
    assert len(made.got) == 1


@pytest.mark.parametrize("kind", MAKERS)
def test_batches_in_threads_and_processes(tmp_path: Path, kind: str) -> None:
    """U15.1 With `batch=n` a task's function gets a list with the arguments of up to n jobs"""

    async def main() -> list[Outcome]:
        async with started(MAKERS[kind], 2) as pool:
            return [
                one
                for name in ("doubles", "counts_wrong", "breaks")
                for one in await asyncio.gather(*(ended_in(pool, call(name, at)) for at in (1, 2)))
            ]

    outcomes = asyncio.run(main())
    size = 1 if kind == "process" else 2
    assert [one.result for one in outcomes[:2]] == [f"[{at},{size}]".encode() for at in (1, 2)]
    text = f"ValueError: a batch of {size} jobs needs a list of {size}, not 5 results"
    assert [one.text for one in outcomes[2:]] == [text] * 2 + ["KeyError: 'no table'"] * 2


def test_a_worker_that_stops_does_not_wait_for_a_batch(world: World) -> None:
    """U15.4 A worker that stops calls no function for jobs that wait for others: when its last
    GETJOB has ended (U2.22), it gives them back, and no attempt is used up.
    """
    made, client = Store(batch=100, wait_s=60), world.client()
    shift = world.at_work(made.app, concurrency=4)
    ids = made.add(1, 2)
    world.pass_ms(500)
    assert [client.result(id).state for id in ids] == ["running"] * 2
    shift.stop()
    assert shift.ends(most_ms=2_000)
    assert made.got == []
    assert [client.result(id).state for id in ids] == ["waiting"] * 2
    assert world.qlen("q") == 2
    world.at_work(made.app, concurrency=2)
    world.until(lambda: [client.result(id).state for id in ids] == ["done"] * 2)
    assert made.got == [[1, 2]], "it has one attempt"


def test_threads_that_wait_for_a_batch_are_let_go() -> None:
    """U15.4 A worker that stops calls no function for jobs that wait for others"""
    made = App().task(name="t", batch=3, batch_wait_s=60)(takes_any)
    batches = made.batches
    assert batches is not None
    batches.places = 3
    ended: list[str] = []

    def runs(row: int) -> None:
        try:
            made.function(row)
        except RetryLater as why:
            ended.append(str(why))

    threads = [threading.Thread(target=runs, args=(at,)) for at in range(2)]
    for one in threads:
        one.start()
    until(lambda: batches._open is not None and len(batches._open.items) == 2)
    batches.stop(RetryLater("not now", delay_s=0))
    for one in threads:
        one.join(20)
    assert ended == ["not now"] * 2


def test_a_batch_is_a_list_of_one_argument() -> None:
    """U15.1 With `batch=n` a task's function gets a list with the arguments of up to n jobs, each
    enqueued with one of them
    """
    tasks = Tasks()

    @tasks.task(batch=5, name="adds")
    def adds(rows: list[int]) -> list[int | ValueError]:
        return [row + 1 for row in rows]

    App().include(tasks)
    assert (adds([1, 2]), adds.returns) == ([2, 3], int)
    with pytest.raises(TypeError, match="argument rows: Expected `int`, got `array`"):
        adds.call([1])  # type: ignore[arg-type]  # the mistake under test
    wrong: Iterable[tuple[Any, dict[str, Any], str]] = (
        (lambda a, b: [], {"batch": 5}, "takes one argument, a list"),
        (takes_one, {"batch": 5}, "a task with batch= has lists: row is <class 'int'>"),
        (takes_any, {"batch": 0}, "batch is from 1 to 10000 jobs, not 0"),
        (takes_any, {"batch": "5"}, "batch is a whole number of jobs, not '5'"),
        (takes_any, {"batch": 5, "batch_wait_s": -1}, "batch_wait_s is 0 seconds or more"),
        (takes_any, {"batch_wait_s": 1}, "batch_wait_s needs batch"),
        (takes_any, {"batch": 5, "time_limit_s": 1}, "time_limit_s 1 is not more than batch_wait"),
        (takes_any, {"batch": 5, "soft_limit_s": 0.5}, "soft_limit_s 0.5 is not more than batch_"),
    )
    for function, options, words in wrong:
        with pytest.raises((TypeError, ValueError), match=re.escape(words)):
            App().task(name="t", **options)(function)
    task: Task[..., Any] = App().task(name="t", batch=2)(takes_any)
    assert task.call({"any": 1}).args == ({"any": 1},)
    with pytest.raises(ValueError, match="its batch is called"):
        task.options(time_limit_s=0.5)


def takes_one(row: int) -> None:
    """Takes no list."""


def takes_any(rows) -> None:  # type: ignore[no-untyped-def]  # that is the case under test
    """Takes plain data."""


def test_a_function_that_empties_its_list_fails_its_jobs() -> None:
    """U15.2 If the function raises, or returns another thing, all of them have failed with that."""

    def empties(rows: list[int]) -> list[int]:
        rows.clear()
        return rows

    made: Task[..., Any] = App().task(name="t", batch=1)(empties)
    with pytest.raises(ValueError, match="a batch of 1 jobs needs a list of 1, not 0 results"):
        made.function(1)


def test_the_first_of_a_batch_waits_in_its_thread() -> None:
    """U15.1 or `batch_wait_s` (1) after the first one"""
    made = App().task(name="t", batch=3, batch_wait_s=30)(takes_any)
    assert made.batches is not None
    made.batches.places = 2
    threads = [threading.Thread(target=made.function, args=(at,)) for at in range(2)]
    for one in threads:
        one.start()
    for one in threads:
        one.join(20)
        assert not one.is_alive()
