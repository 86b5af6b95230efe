"""Real servers that are away for longer than the RETRY of a task that a worker has."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from lab import RealCluster, RealServer, info
from raw_resp import NULL, Wire
from until import until

MakeServer = Callable[..., RealServer]


def result(wire: Wire, id: bytes) -> dict[bytes, Any]:
    """RESULT as a dict."""
    told = wire("RESULT", id)
    return dict(zip(told[::2], told[1::2], strict=True))


RETRY_S = 2


class Worked:
    """A node that has runs of jobs of a queue and of a task of a tube; more tasks wait."""

    def __init__(self, server: RealServer) -> None:
        self.server = server
        wire = server.wire()
        wire("TUBE", "CREATE", "t", "tasks")
        queued = [wire("ADDJOB", "q", "body", 0, *TERMS) for _ in range(20)]
        tasks = [wire("ADDJOB", "t", "body", 0, *TERMS, "LIMIT", "one", 1) for _ in range(2)]
        self.task, self.waiting = tasks
        ids = [job[1] for job in wire("GETJOB", "COUNT", 20, "FROM", "q")]
        assert ids == queued
        ((_, id, _),) = wire("GETJOB", "FROM", "t")
        assert id == self.task
        ids.append(id)
        rows = wire("START", "WORKER", "w1", *ids)
        self.runs = {id: row[0] for id, row in zip(ids, rows, strict=True)}

    def go_on(self) -> None:
        """Every run is still the one at work, and has a whole RETRY."""
        wire = self.server.wire()
        for id, run in self.runs.items():
            assert wire("WORKING", id, run) == RETRY_S
        assert info(wire, "jobs")["crashes"] == "0"
        found = result(wire, self.task)  # T48.2
        assert (found[b"state"], found[b"attempt"], found[b"worker"]) == (b"running", 1, b"w1")
        assert wire("START", "WORKER", "w1", self.task)[0][0] == self.runs[self.task]
        assert str(wire("START", "WORKER", "w2", self.task)[0]).startswith("ATWORK")
        assert wire("GETJOB", "TIMEOUT", 300, "FROM", "t", "q") is NULL
        assert wire("DONE", self.task, self.runs[self.task]) == 1
        ((_, id, _),) = wire("GETJOB", "FROM", "t")
        assert id == self.waiting
        assert wire("DEBUG", "CHECK") == b"OK"


TERMS = ("ATTEMPTS", 3, "RETRY", RETRY_S)


def test_work_outlasts_a_time_without_its_node(make_server: MakeServer) -> None:
    """W6.1 Only silence that the node could have heard counts: each run gets a whole RETRY after a
    start of the node (W13.3), after its process stood still for over a second

    T48.9 each TAKEN task has a whole ttr after a start"""
    flags = ("--appendonly", "yes", "--appendfsync", "always")
    servers = [make_server(*flags) for _ in range(2)]
    stopped, killed = map(Worked, servers)
    stopped.server.stand_still()
    killed.server.kill()
    time.sleep(RETRY_S + 0.2)  # the node is away for longer than RETRY: that is the case
    stopped.server.go_on()
    stopped.go_on()
    killed.server.start()
    killed.go_on()


@pytest.mark.parametrize("type", ["tasks", "fifottl"])
def test_a_task_without_a_ttr_has_the_default_retry_time(
    make_server: MakeServer, type: str
) -> None:
    """T1.3 a task without ttr comes back after `default-retry-max`, which START, WORKING and
    SHOW have too
    """
    server = make_server("--appendonly", "yes", "--default-retry-max", "40")
    wire = server.wire()
    wire("TUBE", "CREATE", "t", type)
    id = wire("ADDJOB", "t", "body", 0)
    wire("GETJOB", "FROM", "t")
    for _ in range(2):
        if type == "tasks":
            assert wire("START", "WORKER", "w1", id)[0][4] == 40_000
        assert wire("WORKING", id) == 40
        shown = wire("SHOW", id)
        fields = dict(zip(shown[::2], shown[1::2], strict=True))
        assert fields[b"retry"] == 40
        assert 35_000 < fields[b"next-requeue-within"] <= 40_000
        server.kill()
        wire.close()
        server.start()
        wire = server.wire()
    wire.close()


@pytest.mark.slow
@pytest.mark.parametrize("how", ["kill", "move"])
def test_a_run_at_the_next_leader(make_voters: Callable[..., RealCluster], how: str) -> None:
    """T48.2 after a restart and at a new leader START of another worker gets `-ATWORK`, of the
    same one the same run.
    """
    nodes = make_voters(1_500)
    first = nodes.leader("t")
    wire = first.wire()
    id = wire("ADDJOB", "t", "body", 2_000, "RETRY", 60, "ATTEMPTS", 3)
    wire("GETJOB", "FROM", "t")
    run = wire("START", "WORKER", "w1", id)[0][0]
    assert wire("WORKING", id, run) == 60  # a majority has it (T18.5)
    if how == "kill":
        nodes.kill_leader("t")
    else:
        other = next(i for i, one in enumerate(nodes.nodes) if one is not first)
        assert wire("TUBE", "HOME", "t", nodes.ids[other]) == b"OK"
    wire.close()
    led = [i for i, one in enumerate(nodes.nodes) if one is not first]
    wire = nodes.wire(until(lambda: set(led) & set(nodes.leading("t")), nodes.logs).pop())
    found = result(wire, id)
    assert (found[b"state"], found[b"attempt"], found[b"worker"]) == (b"running", 1, b"w1")
    assert str(wire("START", "WORKER", "w2", id)[0]).startswith("ATWORK")
    assert wire("START", "WORKER", "w1", id)[0][0] == run
    assert wire("WORKING", id, run) == 60
    assert wire("DONE", id, run) == 1
    wire.close()
