"""Groups in a chain, with workers as processes and nodes that are lost (SPEC U11)."""

from __future__ import annotations

import asyncio
from pathlib import Path

import group_tasks as tasks
import pytest
from group_lab import did, worker

from lab import RealCluster, RealServer
from tuque.worker import chain, group
from until import until

POINTS = {
    "it is made": ("open", 0),
    "a child is added": ("open", 1),
    "all are added": ("open", 2),
    "all is done": ("failed", 2),
}


@pytest.mark.parametrize("pool", ["thread", "process"])
def test_groups_as_later_steps(node: RealServer, place: Path, pool: str) -> None:
    """U11.6 each gets the result of the step before. The step after a group gets the list of its
    results, in their order; of a group that is the last step, `result` returns that list.
    """
    program = worker(place, node.url, "--pool", pool)
    try:
        parts = group(tasks.square, tasks.plus_one)
        middle = chain(tasks.plus_one.call(1), parts, tasks.pick, tasks.as_text).enqueue()
        last = chain(tasks.plus_one.call(2), group(tasks.as_text, tasks.half)).enqueue()
        row = chain(group([tasks.half.call(2)]), group(tasks.total), tasks.pick).enqueue()
        assert middle.result(60) == "<4>" and row.result(60) == 1
        assert last.result(60) == ["<3>", 1.5]

        async def on_a_loop() -> list[int]:
            made = await chain(tasks.plus_one.call(6), parts).enqueue_async()
            found = await made
            await tasks.app.aclose()
            return found

        assert asyncio.run(on_a_loop()) == [49, 8]
    finally:
        program.kill()


@pytest.mark.parametrize(
    ("point", "pool"),
    [
        ("a child is added", "thread"),
        ("all is done", "process"),
        *(
            pytest.param(point, pool, marks=pytest.mark.slow)
            for pool, left in (("thread", "a child is added"), ("process", "all is done"))
            for point in POINTS
            if point != left
        ),
    ],
)
def test_the_process_that_makes_a_group_ends_when(
    node: RealServer, place: Path, point: str, pool: str
) -> None:
    """U11.7 So of two groups of a step that runs twice, the children of one begin, and its
    callback. The children of the other one are cancelled.
    """
    programs = [worker(place, node.url, "--pool", pool) for _ in range(2)]
    try:
        handle = chain(tasks.makes.call(3, point), group(tasks.square, tasks.once), tasks.listed)
        made = handle.enqueue()
        assert made.result(60) == [9, 3]
        shown = made.progress().job_id
        assert did(place, "makes") == ["makes 3"] * 2
        assert (did(place, "square"), did(place, "once")) == (["square 3"], ["once 3"])
        assert did(place, "listed") == [f"listed {shown}"]
        state, children = POINTS[point]
        (left,) = [one for one in tasks.app.client.groups("sums") if one.id != shown]
        until(lambda: tasks.app.client.group_show("sums", left.id).state == state)
        assert len(did(place, "square")) == len(did(place, "once")) == 1
        assert children >= left.added
    finally:
        for program in programs:
            program.kill()


@pytest.mark.slow
def test_chains_with_groups_while_workers_and_leaders_are_killed(tmp_path: Path) -> None:
    """U11.3 So of the jobs that a step adds, which runs twice, one begins, in queues and tubes,
    over failovers.

    U11.7 So of two groups of a step that runs twice, the children of one begin, and its callback.
    """
    with RealCluster(tmp_path, 3, "--appendonly", "yes") as cluster:
        urls = [node.url for node in cluster.nodes]
        tasks.app.use(urls[0])
        until(lambda: tasks.app.client.info("tubes")["tubes_voters"] == 3)
        programs = [worker(tmp_path, url) for url in urls]
        try:
            two = group(tasks.taken, tasks.taken)
            handles = [
                chain(tasks.taken.call(n * 1000), two, tasks.pick, two, tasks.pick).enqueue()
                for n in range(1, 41)
            ]
            until(lambda: len(did(tmp_path, "taken")) > 40)
            programs[0].kill()
            home = tasks.app.client.tube("picked").info().home
            ids = [bytes(node.wire()("CLUSTER", "MYID")).decode() for node in cluster.nodes]
            at = ids.index(home)
            cluster.nodes[at].kill()
            tasks.app.use(urls[at - 1])
            until(lambda: len(did(tmp_path, "taken")) > 100, most_s=120)
            programs[1].kill()
            programs.append(worker(tmp_path, urls[at - 1]))
            results = [handle.result(240) for handle in handles]
            assert results == [n * 1000 + 3 for n in range(1, 41)]
            taken = {tuple(line.split()[1:]) for line in did(tmp_path, "taken")}
            assert len(taken) == 40 * 5, "each child once, and no other"
            picked = {tuple(line.split()[1:]) for line in did(tmp_path, "pick")}
            assert len(picked) == 40 * 2
        finally:
            for program in programs:
                program.kill()
            tasks.app.close()
