"""A worker at one of three nodes: what clients of the other two ask of its jobs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import e2e_tasks as tasks
import pytest
from noting import Noting
from worker_lab import HERE, Program

from lab import RealCluster
from quick import is_quick
from tuque import Client
from tuque.client.commands.operate import WorkerInfo
from tuque.errors import JobCancelled
from tuque.worker import Handle
from until import until
from world import World


def written(place: Path) -> str:
    """What the tasks have noted so far."""
    did = place / "did"
    return did.read_text() if did.exists() else ""


def test_cancel_and_result_from_any_of_three_nodes(tmp_path: Path) -> None:
    """A cancel ends a coroutine and a child process within two seconds, wherever it is asked.

    A result is read from two nodes after the node of its job was killed.
    """
    with RealCluster(tmp_path, 3) as cluster:
        urls = [node.url for node in cluster.nodes]
        tasks.app.use(urls[0])
        results = [tasks.adds.options(keep_s=60, replicate=3).enqueue(at, 1) for at in range(2)]
        for pool, name in (("async", "for_ever"), ("process", "sleeps")):
            flags = ("--app-dir", str(HERE), "--url", urls[0], "--pool", pool, "-c", "1")
            log = tmp_path / f"{pool}.log"
            worker = Program(log, "worker", "e2e_tasks:app", *flags, OUT=str(tmp_path))
            try:
                for at, url in enumerate(urls):
                    text = f"{pool}-{at}"

                    def at_work(name: str = name, text: str = text) -> Handle[None]:
                        line = f"begin {text} "
                        before = written(tmp_path).count(line)
                        job = getattr(tasks, name).options(keep_s=60, replicate=3)
                        handle: Handle[None] = job.enqueue(text)
                        until(lambda: written(tmp_path).count(line) > before)
                        return handle

                    def end(handle: Handle[None], url: str = url) -> None:
                        with Client(url, discover=False) as client:
                            assert client.cancel(handle.id) == ["flagged"]
                        with pytest.raises(JobCancelled):
                            handle.result(60)

                    assert is_quick(end, 2, at_work)
            finally:
                worker.kill()
        assert [handle.result(60) for handle in results] == [1, 2]
        cluster.nodes[0].kill()
        for url in urls[1:]:
            with Client(url, discover=False) as client:
                assert [client.result(handle.id).result for handle in results] == [b"1", b"2"]


def test_a_worker_that_moved_leaves_all_nodes(make_world: Callable[..., World]) -> None:
    """U6.1 It sends both also to nodes that it used before"""
    world, noting = make_world(3), Noting()
    clients = [world.client(i) for i in world.numbers()]

    def heard(name: str = "*") -> list[WorkerInfo]:
        return [one for client in clients for one in client.workers(match=name)]

    shift = world.at_work(noting.app)
    world.until(lambda: len(heard()) == 1)
    (name,) = {one.name for one in clients[0].workers()}
    clients[0].cluster_leaving(True)
    world.until(lambda: len(heard(name)) == 2)
    clients[0].cluster_leaving(False)
    noting.adds.enqueue(1, 2)
    world.until(lambda: [one.done for one in heard(name)] == [1, 1])
    assert {one.state for one in heard(name)} == {"alive"}
    for client in clients:
        client.worker_here(name)  # the third one of a process before this
    shift.stop()
    assert shift.ends()
    assert heard(name) == []
