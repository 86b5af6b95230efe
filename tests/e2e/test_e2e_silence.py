"""Real servers that are away for longer than the RETRY of a task that a worker has."""

from __future__ import annotations

import time
from collections.abc import Callable

from lab import RealServer
from raw_resp import NULL

MakeServer = Callable[..., RealServer]


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
    assert wire("WORKING", ids[0], run) == 5
    assert wire("GETJOB", "NOHANG", "FROM", "t") is NULL
    assert wire("DONE", ids[0], run) == 1
    (job,) = wire("GETJOB", "FROM", "t")
    assert job[1] == ids[1]
    assert wire("DEBUG", "CHECK") == b"OK"
    wire.close()
