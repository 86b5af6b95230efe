"""Groups whose children are tasks of tubes that other nodes lead, with real nodes (SPEC T50)."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from lab import RealCluster
from tuque import Client
from tuque.client.commands.work import Run


def until(condition: Callable[[], object], what: str) -> None:
    """Returns when the condition holds."""
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, f"not within 60 s: {what}"
        time.sleep(0.02)


def test_children_are_tasks_that_another_node_leads(tmp_path: Path) -> None:
    """T50.2 A child is a job of a queue or a task of a tube, at whatever node, also of the group's
    own tube.
    """
    with RealCluster(tmp_path, 3, "--appendonly", "yes") as cluster:
        here, there = (Client(node.url, timeout=60) for node in cluster.nodes[:2])
        with here, there:
            until(lambda: here.info("tubes")["tubes_voters"] == 3, "votes of three nodes")
            here.tube("t").create("tasks")
            there.tube("u").create("tasks", sync=3)  # so the leader of t has copies
            group = here.group_create("t", 2, body="callback")
            ids = [there.addjob("u", str(i), keep=600) for i in range(2)]
            pairs = ["0", ids[0], "1", ids[1]]
            assert cluster.nodes[0].wire()("GROUP", "ADD", "t", group, *pairs) == 2
            assert len(there.getjob("u", count=2)) == 2
            for id, run in zip(ids, there.start(*ids, worker="w"), strict=True):
                assert isinstance(run, Run)
                there.done(id, run.run, result=id)
            until(lambda: here.group_show("t", group).state == "called", "the callback is there")
            ends = list(here.group_results("t", group))
            assert [end.result for end in ends] == [id.encode() for id in ids]
