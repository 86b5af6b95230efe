"""Real servers that are away for longer than the RETRY of a task that a worker has."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lab import RealServer
from raw_resp import NULL, Wire, wait_for
from voting import Voting

MakeServer = Callable[..., RealServer]


def result(wire: Wire, id: bytes) -> dict[bytes, Any]:
    """RESULT as a dict."""
    told = wire("RESULT", id)
    return dict(zip(told[::2], told[1::2], strict=True))


def test_a_task_at_work_while_the_node_is_away(make_server: MakeServer) -> None:
    """T48.9 Each task that is TAKEN, begun or not, has a whole ttr after a start of the node"""
    server = make_server("--appendonly", "yes", "--appendfsync", "always")
    wire = server.wire()
    wire("TUBE", "CREATE", "t", "tasks")
    ids = [wire("ADDJOB", "t", "body", 0, "RETRY", 5, "LIMIT", "one", 1) for _ in range(2)]
    (job,) = wire("GETJOB", "FROM", "t")
    assert job[1] == ids[0]
    run = wire("START", "WORKER", "w1", ids[0])[0][0]
    server.kill()
    wire.close()
    time.sleep(5.2)  # the node is away for longer than RETRY: that is the case
    server.start()
    wire = server.wire()
    assert wire("GETJOB", "TIMEOUT", 1_000, "FROM", "t") is NULL
    found = result(wire, ids[0])  # T48.2
    assert (found[b"state"], found[b"attempt"], found[b"worker"]) == (b"running", 1, b"w1")
    assert wire("START", "WORKER", "w1", ids[0])[0][0] == run
    assert str(wire("START", "WORKER", "w2", ids[0])[0]).startswith("ATWORK")
    assert wire("WORKING", ids[0], run) == 5
    assert wire("GETJOB", "NOHANG", "FROM", "t") is NULL
    assert wire("DONE", ids[0], run) == 1
    (job,) = wire("GETJOB", "FROM", "t")
    assert job[1] == ids[1]
    assert wire("DEBUG", "CHECK") == b"OK"
    wire.close()


@pytest.mark.parametrize("type", ["tasks", "fifottl"])
def test_a_task_without_a_ttr_has_the_default_retry_time(
    make_server: MakeServer, type: str
) -> None:
    """T1.3 a task without ttr comes back after `default-retry-max`, which START, WORKING and SHOW
    say too"""
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
def test_a_run_at_the_next_leader(tmp_path: Path, how: str) -> None:
    """T48.2 after a restart and at a new leader RESULT shows them, START of another worker gets
    `-ATWORK`, and START of the same one the same run."""
    nodes = Voting(tmp_path, 1_500)
    try:
        nodes.start()
        first = nodes.leader()
        wire = first.wire()
        id = wire("ADDJOB", "t", "body", 2_000, "RETRY", 60, "ATTEMPTS", 3)
        wire("GETJOB", "FROM", "t")
        run = wire("START", "WORKER", "w1", id)[0][0]
        assert wire("WORKING", id, run) == 60  # a majority has it (T18.5)
        if how == "kill":
            nodes.kill_leader()
        else:
            other = next(i for i, one in enumerate(nodes.nodes) if one is not first)
            assert wire("TUBE", "HOME", "t", nodes.ids[other]) == b"OK"
        wire.close()
        led = [i for i, one in enumerate(nodes.nodes) if one is not first]
        wire = nodes.wire(wait_for(lambda: set(led) & set(nodes.leading()), nodes.logs).pop())
        found = result(wire, id)
        assert (found[b"state"], found[b"attempt"], found[b"worker"]) == (b"running", 1, b"w1")
        assert str(wire("START", "WORKER", "w2", id)[0]).startswith("ATWORK")
        assert wire("START", "WORKER", "w1", id)[0][0] == run
        assert wire("WORKING", id, run) == 60
        assert wire("DONE", id, run) == 1
        wire.close()
    finally:
        nodes.end()
