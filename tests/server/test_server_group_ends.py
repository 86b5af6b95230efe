"""Children of a group that end by silence, or for good as dead letters (SPEC T50)."""

from __future__ import annotations

import pytest
from door import Door
from test_server_groups import callbacks, counts, dead, later, made, results, tasks

__all__ = ["tasks"]


@pytest.mark.parametrize("queue", ["q", "other"])
def test_a_child_whose_workers_are_silent(tasks: Door, queue: str) -> None:
    """T50.3 `done` is its end, or it has failed: `dead`"""
    assert tasks("TUBE CREATE other tasks") == b"+OK\r\n"
    group = tasks.value("GROUP CREATE t 1 ONFAIL continue THEN callback").decode()
    id = tasks.value(f"ADDJOB {queue} c 0 KEEP 9000 ATTEMPTS 2 RETRY 3 BACKOFF 1 1 0").decode()
    assert tasks.value(f"GROUP ADD t {group} 0 {id}") == 1
    for failed in range(2):
        assert counts(tasks, group) == ("open", 1, 0, 0), failed
        assert len(tasks.value(f"GETJOB NOHANG FROM {queue}")) == 1
        assert tasks.value(f"START {id}")[0][1] == failed + 1
        later(tasks, 6_000)
    assert callbacks(tasks) == [(group, b"callback")]
    assert results(tasks, group)[1][0][4] == b"dead"


def test_a_child_that_is_purged_while_its_replay_is_awaited(tasks: Door) -> None:
    """T50.3 or `gone` (expired, deleted, or ended and not kept)."""
    group, ids = made(tasks, 2, "ONFAIL wait THEN callback", "ATTEMPTS 3")
    tasks(f"DONE {ids[1]} - RESULT b")
    dead(tasks, ids[0])
    later(tasks, 60_000)
    assert counts(tasks, group) == ("open", 2, 1, 0)
    assert tasks.value("DEAD PURGE q.dead ALL")[1] == 1
    later(tasks, 6_000)
    assert counts(tasks, group) == ("failed", 2, 1, 1) and callbacks(tasks) == []
    assert results(tasks, group)[1][0][4] == b"gone"
