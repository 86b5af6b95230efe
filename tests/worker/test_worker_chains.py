"""Chains: tasks one after the other, with workers as processes (SPEC U11)."""

from __future__ import annotations

import asyncio
import pickle
from pathlib import Path

import group_tasks as tasks
import pytest
from group_lab import did, worker

from lab import RealCluster, RealServer
from tuque.errors import JobCancelled, JobFailed
from tuque.testing import job
from tuque.worker import RetryLater, chain, group
from tuque.worker.workflow.chain_steps import goes_on, goes_on_async
from tuque.worker.workflow.create import header_of
from until import until


@pytest.mark.parametrize("pool", ["thread", "process"])
def test_a_chain_passes_each_result_on(node: RealServer, place: Path, pool: str) -> None:
    """U11.4 `result` of the handle goes from step to step, and returns what the last one
    returned."""
    program = worker(place, node.url, "--pool", pool)
    try:
        steps = chain(tasks.plus_one.call(1), tasks.plus_one, tasks.plus_one, tasks.as_text)
        assert steps.enqueue().result(60) == "<4>"
        assert did(place, "plus") == ["plus 1", "plus 2", "plus 3"]
        assert chain(tasks.half.call(3)).enqueue().result(60) == 1.5

        async def on_a_loop() -> str:
            made = await chain(tasks.plus_one.call(6), tasks.as_text).enqueue_async()
            found = await made
            await tasks.app.aclose()
            return found

        assert asyncio.run(on_a_loop()) == "<7>"
        many = group(tasks.half.call(n) for n in range(6)).then(tasks.total).then(tasks.as_text)
        assert many.enqueue().result(60) == "<7>"
        with pytest.raises(JobFailed, match="it was to fail"):
            chain(tasks.square.call(1, True), tasks.as_text).enqueue().result(60)
    finally:
        program.kill()


def test_a_chain_is_asked_for_by_its_id(node: RealServer, place: Path) -> None:
    """U11.4 A pickled handle, of a job, a chain or a group, is its id: `app.handle` makes a handle
    of it again.
    """
    program = worker(place, node.url, "--pool", "thread")
    try:
        made = chain(tasks.plus_one.call(1), tasks.plus_one, tasks.as_text).enqueue()
        again = pickle.loads(pickle.dumps(made))
        assert again == made.id
        assert tasks.app.handle(again).result(60) == "<3>"
        many = group(tasks.half.call(n) for n in range(3)).then(tasks.total).then(tasks.as_text)
        assert tasks.app.handle(many.enqueue().id, str).result(60) == "<1>"
        last = chain(tasks.plus_one.call(1), tasks.as_text).enqueue()

        async def on_a_loop() -> str:
            found: str = await tasks.app.handle(last.id, str)
            await tasks.app.aclose()
            return found

        assert asyncio.run(on_a_loop()) == "<2>"
    finally:
        program.kill()


def test_the_last_step_of_a_chain_is_a_group(node: RealServer, place: Path) -> None:
    """U11.4 A pickled handle, of a job, a chain or a group, is its id: `app.handle` makes a handle
    of it again.
    """
    program = worker(place, node.url, "--pool", "thread")
    try:
        made = chain(tasks.plus_one.call(1), group(tasks.half, tasks.half)).enqueue()
        assert made.result(60) == [1.0, 1.0]
        again = pickle.loads(pickle.dumps(made))
        assert again == made.id
        assert tasks.app.handle(again).result(60) == [1.0, 1.0]
    finally:
        program.kill()


def test_a_step_that_runs_twice_adds_the_next_once(node: RealServer, place: Path) -> None:
    """U11.3 So of the jobs that a step adds, which runs twice, one begins"""
    program = worker(place, node.url, "--pool", "process")
    try:
        handle = chain(tasks.plus_one.call(100), tasks.as_text).enqueue()
        assert handle.result(60) == "<101>"
        assert did(place, "plus") == ["plus 100"] * 2 and len(did(place, "text")) == 1
    finally:
        program.kill()


def test_too_few_nodes_take_the_next_step(tmp_path: Path) -> None:
    """U11.2 the worker adds it again, seven times in ten seconds, or as long as the time limit
    allows.
    """
    two = RealCluster(tmp_path, 2)
    two.nodes[0].start()
    tasks.app.use(two.nodes[0].url)
    program = worker(tmp_path, two.nodes[0].url)
    try:
        handle = chain(tasks.once.call(1), tasks.copied).enqueue()
        until(lambda: did(tmp_path, "once"))
        two.nodes[1].start()
        two.meet()
        assert handle.result(60) == "<1>"  # one attempt was enough
    finally:
        program.kill()
        tasks.app.close()
        two.end()


@pytest.mark.usefixtures("place")
def test_a_run_whose_next_step_is_not_added_is_given_back() -> None:
    """U11.2 Then it gives the run back: RELEASE DELAY 0.25, 0.5, .. 60 s. No attempt is used up;
    the step runs again.
    """
    headers = {"tuque-chain": header_of([tasks.copied.name])}

    async def on_a_loop() -> None:
        try:
            await goes_on_async(tasks.app, this, 1)
        finally:
            await tasks.app.aclose()

    for starts, delay_s in ((1, 0.25), (3, 1.0), (20, 60.0)):
        with job(headers=headers, starts=starts, time_left=0.8) as this:
            with pytest.raises(RetryLater, match="could not be added: .*") as caught:
                goes_on(tasks.app, this, 1)
            assert caught.value.delay_s == delay_s
            with pytest.raises(RetryLater) as caught:
                asyncio.run(on_a_loop())
            assert caught.value.delay_s == delay_s


def test_cancel_of_a_chain(place: Path) -> None:
    """U11.5 `cancel` cancels the step that is waiting or at work, a group as in U10.4."""
    handle = chain(tasks.plus_one.call(1), tasks.as_text).enqueue()
    assert handle.cancel() == "ended" and handle.cancel() == "over"
    with pytest.raises(JobCancelled):
        handle.result(10)


def test_what_cannot_be_a_chain() -> None:
    """U11.1 at most 1024 bytes of them"""
    with pytest.raises(TypeError, match="begins with a call"):
        chain(tasks.plus_one, tasks.as_text)  # type: ignore[call-overload]  # that is tested
    with pytest.raises(TypeError, match="with a group of calls and its callback"):
        chain(group([tasks.half.call(1)]))  # type: ignore[call-overload]  # this, too
    with pytest.raises(TypeError, match="has tasks, and groups of tasks .*, not 3"):
        chain(tasks.plus_one.call(1), 3)  # type: ignore[call-overload]  # so is this
    long = chain(tasks.plus_one.call(1))
    with pytest.raises(ValueError, match="1024 bytes"):
        for _ in range(100):
            long = long.then(tasks.plus_one)


@pytest.mark.slow
def test_chains_while_workers_and_leaders_are_killed(tmp_path: Path) -> None:
    """U11.3 So of the jobs that a step adds, which runs twice, one begins, in queues and tubes,
    over failovers.
    """
    with RealCluster(tmp_path, 3, "--appendonly", "yes") as cluster:
        urls = [node.url for node in cluster.nodes]
        tasks.app.use(urls[0])
        until(lambda: tasks.app.client.info("tubes")["tubes_voters"] == 3)
        programs = [worker(tmp_path, url) for url in urls]
        try:
            handles = [
                chain(tasks.taken.call(n * 1000), tasks.taken, tasks.taken, tasks.taken).enqueue()
                for n in range(1, 61)
            ]
            until(lambda: len(did(tmp_path, "taken")) > 40)
            programs[0].kill()
            home = tasks.app.client.tube("taken").info().home
            ids = [bytes(node.wire()("CLUSTER", "MYID")).decode() for node in cluster.nodes]
            at = ids.index(home)
            cluster.nodes[at].kill()
            tasks.app.use(urls[at - 1])
            until(lambda: len(did(tmp_path, "taken")) > 120, most_s=120)
            programs[1].kill()
            programs.append(worker(tmp_path, urls[at - 1]))
            results = [handle.result(180) for handle in handles]
            assert results == [n * 1000 + 4 for n in range(1, 61)]
            lines = {tuple(line.split()[1:]) for line in did(tmp_path, "taken")}
            assert len(lines) == len({number for number, _ in lines}) == 240
        finally:
            for program in programs:
                program.kill()
            tasks.app.close()
