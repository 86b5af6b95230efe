"""The leader of a callback's tube is lost at each point of a chain that begins with a group."""

from __future__ import annotations

from pathlib import Path

import group_tasks as tasks
import pytest
from group_lab import did, worker
from worker_lab import Program

from lab import RealCluster
from tuque.worker import group
from until import until

pytestmark = pytest.mark.slow
POINTS = ("no child has begun", "half have ended", "called", "at work", "done")


@pytest.mark.parametrize("point", POINTS)
def test_the_leader_is_lost_when(tmp_path: Path, point: str) -> None:
    """U11.3 So of the jobs that a step adds, which runs twice, one begins, in queues and tubes,
    over failovers.

    U10.2 The callback runs once all have ended; its argument is the list of their results, in the
    order of the calls.
    """
    with RealCluster(tmp_path, 3, "--appendonly", "yes") as cluster:
        urls = [node.url for node in cluster.nodes]
        tasks.app.use(urls[0])
        until(lambda: tasks.app.client.info("tubes")["tubes_voters"] == 3)
        calls = [tasks.flaky.options(replicate=2).call(n) for n in range(20)]
        handle = group(calls).then(tasks.slowly).then(tasks.as_text).enqueue()
        home = tasks.app.client.tube("slow").info().home
        ids = [bytes(node.wire()("CLUSTER", "MYID")).decode() for node in cluster.nodes]
        at = ids.index(home)
        tasks.app.use(urls[at - 1])
        others = [url for url in urls if url != urls[at]]
        programs: list[Program] = []
        try:
            if point == "half have ended":
                programs = [worker(tmp_path, others[0], "-Q", "numbers")]
                until(lambda: len(did(tmp_path, "flaky")) > 10)
            elif point == "called":
                programs = [worker(tmp_path, others[0], "-Q", "numbers")]
                until(lambda: handle.progress().task != "group")
            elif point in ("at work", "done"):
                programs = [worker(tmp_path, others[0], "-Q", "numbers,slow")]
                until(lambda: did(tmp_path, "slowly"))
            if point == "done":
                (tmp_path / "go").touch()
                until(lambda: handle.progress().step == 3)
            cluster.nodes[at].kill()
            (tmp_path / "go").touch()
            programs += [worker(tmp_path, url) for url in others]
            assert handle.result(180) == "<190>"
            assert {line.split()[1] for line in did(tmp_path, "slowly")} == {handle.id}
            assert len(did(tmp_path, "text")) == 1
        finally:
            for program in programs:
                program.kill()
            tasks.app.close()
