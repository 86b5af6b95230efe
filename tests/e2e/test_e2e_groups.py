"""Groups whose children are tasks of tubes that other nodes lead, with real nodes (SPEC T50)."""

from __future__ import annotations

from lab import RealCluster
from tuque import Client
from tuque.client.commands.work import Run
from until import until


def test_children_are_tasks_that_another_node_leads(cluster: RealCluster) -> None:
    """T50.2 A child is a job of a queue or a task of a tube, at whatever node, also of the group's
    own tube.
    """
    here, there = (Client(node.url, timeout=60) for node in cluster.nodes[:2])
    with here, there:
        here.tube("parents").create("tasks")
        there.tube("children").create("tasks", sync=3)  # so the leader of parents has copies
        group = here.group_create("parents", 2, body="callback")
        ids = [there.addjob("children", str(i), keep=600) for i in range(2)]
        pairs = ["0", ids[0], "1", ids[1]]
        assert cluster.wire(0)("GROUP", "ADD", "parents", group, *pairs) == 2
        assert len(there.getjob("children", count=2)) == 2
        for id, run in zip(ids, there.start(*ids, worker="w"), strict=True):
            assert isinstance(run, Run)
            there.done(id, run.run, result=id)
        until(lambda: here.group_show("parents", group).state == "called", "add the callback")
        ends = list(here.group_results("parents", group))
        assert [end.result for end in ends] == [id.encode() for id in ids]
