"""Children of a group that end by silence, or for good as dead letters (SPEC T50)."""

from __future__ import annotations

import pytest
from door import Door
from test_server_groups import (
    callbacks,
    counts,
    dead,
    later,
    made,
    results,
    tasks,
    turn,
)

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


@pytest.mark.parametrize("queue", ["q", "other"])
def test_why_a_child_has_failed(tasks: Door, queue: str) -> None:
    """T50.3 The reason says so of one that is gone, that the TTL of a dead one was over (its last
    failure follows), that nobody began it, or that it was buried.
    """
    assert tasks("TUBE CREATE other tasks") == b"+OK\r\n"
    group = tasks.value("GROUP CREATE t 3 ONFAIL continue THEN callback").decode()
    words = ["ATTEMPTS 2 TTL 40", "ATTEMPTS 2 TTL 40", "TTL 40"]
    ids = [
        tasks.value(f"ADDJOB {queue} c{i} 0 KEEP 9000 RETRY 3 BACKOFF 9 9 0 {words[i]}").decode()
        for i in range(3)
    ]
    tasks(f"GROUP ADD t {group} 0 {ids[0]} 1 {ids[1]} 2 {ids[2]}")
    assert tasks.value(f"GETJOB NOHANG FROM {queue}")[0][1].decode() == ids[0]
    run = tasks.value(f"START {ids[0]}")[0][0].decode()
    assert tasks.value(f"FAIL {ids[0]} {run} DELAY 30 REASON no")[0] == b"retry"
    later(tasks, 60_000)
    assert [row[4:6] for row in results(tasks, group)[1]] == [
        [b"dead", b"its TTL was over; its last failure: no"],
        [b"dead", b"its TTL was over"],
        [b"gone", b"it expired, was deleted, or ended and is not kept"],
    ]


def test_why_a_child_that_nobody_began_has_failed(tasks: Door) -> None:
    """T50.3 The reason says so of one that is gone, that the TTL of a dead one was over (its last
    failure follows), that nobody began it, or that it was buried.
    """
    assert tasks("TUBE CREATE other tasks") == b"+OK\r\n"
    assert tasks("CONFIG SET unstarted-max 1") == b"+OK\r\n"
    group = tasks.value("GROUP CREATE t 2 ONFAIL continue THEN callback").decode()
    ids = [
        tasks.value(f"ADDJOB {queue} c 0 KEEP 9000 RETRY 3 ATTEMPTS 2").decode()
        for queue in ("q", "other")
    ]
    tasks(f"GROUP ADD t {group} 0 {ids[0]} 1 {ids[1]}")
    assert tasks("TUBE BURY other 0").startswith(b"*")
    assert len(tasks.value("GETJOB NOHANG FROM q")) == 1
    later(tasks, 10_000)
    assert [row[4:6] for row in results(tasks, group)[1]] == [
        [b"dead", b"no worker began it"],
        [b"dead", b"it was buried"],
    ]


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
    gone = b"it expired, was deleted, or ended and is not kept"
    assert results(tasks, group)[1][0][4:6] == [b"gone", gone]


@pytest.mark.parametrize("how", ["fails", "is cancelled"])
@pytest.mark.parametrize("queue", ["q", "other"])
def test_ends_that_were_not_noted_when_the_group_ended(tasks: Door, queue: str, how: str) -> None:
    """T50.7 A child that has ended when the group ends, and was not noted yet, is noted as it ended
    (T50.3)."""
    assert tasks("TUBE CREATE other tasks") == b"+OK\r\n"
    group = tasks.value("GROUP CREATE t 20 THEN callback").decode()
    ids = [
        tasks.value(f"ADDJOB {queue} c{i} 0 KEEP 9000 ATTEMPTS 2 RETRY 60").decode()
        for i in range(20)
    ]
    assert tasks.value(f"GROUP ADD t {group} " + " ".join(f"{i} {id}" for i, id in enumerate(ids)))
    turn(tasks)
    assert len(tasks.value(f"GETJOB NOHANG COUNT 6 FROM {queue}")) == 6
    runs = [tasks.value(f"START {id}")[0][0].decode() for id in ids[:6]]
    assert tasks.value(f"FAIL {ids[0]} {runs[0]} FINAL REASON no")[0] == b"dead"
    for i in range(1, 5):
        assert tasks.value(f"DONE {ids[i]} {runs[i]} RESULT r{i}") == 1
    if how == "is cancelled":
        assert tasks.value(f"GROUP CANCEL t {group}") == 1
    turn(tasks)
    assert counts(tasks, group) == ("failed" if how == "fails" else "cancelled", 20, 4, 16)
    rows = results(tasks, group)[1]
    assert [row[4] for row in rows] == [b"dead", *[b"done"] * 4, *[b"cancelled"] * 15]
    assert [row[3] for row in rows] == [None, b"r1", b"r2", b"r3", b"r4", *[None] * 15]
    dead = queue if queue == "other" else "q.dead"
    assert [row[0].decode() for row in tasks.value(f"DEAD LIST {dead}")[1]] == [ids[0]]
