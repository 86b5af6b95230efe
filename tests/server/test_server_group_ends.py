"""Children of a group that end by silence, or for good as dead letters (SPEC T50)."""

from __future__ import annotations

import pytest
from test_server_groups import (
    callbacks,
    counts,
    dead,
    later,
    made,
    results,
    shown,
    tasks,
    turn,
)

from raw_resp import encode
from world import World

__all__ = ["tasks"]


@pytest.mark.parametrize("queue", ["q", "other"])
def test_a_child_whose_workers_are_silent(tasks: World, queue: str) -> None:
    """T50.3 `done` is its end, or it has failed: `dead`"""
    assert tasks("TUBE CREATE other tasks") == b"+OK\r\n"
    group = tasks.value("GROUP CREATE t 1 ONFAIL continue THEN callback").decode()
    id = tasks.value(f"ADDJOB {queue} c 0 KEEP 9000 ATTEMPTS 2 RETRY 3 BACKOFF 1 1 0").decode()
    assert tasks.value(f"GROUP ADD t {group} 0 {id}") == 1
    for crashes in range(3):  # crashes-max
        assert counts(tasks, group) == ("open", 1, 0, 0), crashes
        assert len(tasks.value(f"GETJOB NOHANG FROM {queue}")) == 1
        assert tasks.value(f"START {id}")[0][1] == 1
        later(tasks, 6_000)
    assert callbacks(tasks) == [(group, b"callback")]
    assert results(tasks, group)[1][0][4] == b"dead"


@pytest.mark.parametrize("queue", ["q", "other"])
def test_why_a_child_has_failed(tasks: World, queue: str) -> None:
    """T50.3 The reason has that one is gone, that the TTL of a dead one was over (its last
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


def test_why_a_child_that_nobody_began_has_failed(tasks: World) -> None:
    """T50.3 The reason has that one is gone, that the TTL of a dead one was over (its last
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


@pytest.mark.parametrize("queue", ["q", "other"])
def test_a_replay_at_the_node_of_the_group_is_known_at_once(tasks: World, queue: str) -> None:
    """T50.5 With `wait` one that is dead is open, and ended as `dead`, with its reason, until the
    leader knows that it was replayed.
    """
    assert tasks("TUBE CREATE other tasks") == b"+OK\r\n"
    group = tasks.value("GROUP CREATE t 1 ONFAIL wait THEN callback").decode()
    id = tasks.value(f"ADDJOB {queue} c 0 KEEP 9000 ATTEMPTS 1").decode()
    tasks(f"GROUP ADD t {group} 0 {id}")
    letters = "other" if queue == "other" else "q.dead"

    def waits_for() -> int:
        """How many of its open children are dead."""
        shown = tasks.value(f"GROUP SHOW t {group}")
        return int(shown[shown.index(b"dead") + 1])

    for pause_ms in (0, 20_000):
        assert len(tasks.value(f"GETJOB NOHANG FROM {queue}")) == 1
        run = tasks.value(f"START {id}")[0][0].decode()
        assert tasks.value(f"FAIL {id} {run}")[0] == b"dead"
        later(tasks, pause_ms)
        turn(tasks)
        assert waits_for() == 1
        assert tasks.value(f"DEAD REPLAY {letters} IDS {id}")[1] == 1
        turn(tasks)
        assert waits_for() == 0


def test_a_child_that_is_purged_while_its_replay_is_awaited(tasks: World) -> None:
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
def test_ends_that_were_not_noted_when_the_group_ended(tasks: World, queue: str, how: str) -> None:
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
    ends = encode("FAIL", ids[0], runs[0], "FINAL", "REASON", "no")
    for i in range(1, 5):
        ends += encode("DONE", ids[i], runs[i], "RESULT", f"r{i}")
    if how == "is cancelled":
        ends += encode("GROUP", "CANCEL", "t", group)
    told = tasks.run.say(ends)  # all in one turn
    assert told.startswith(b"*2\r\n$4\r\ndead\r\n")
    assert told.endswith(b":1\r\n" * (5 if how == "is cancelled" else 4))
    assert counts(tasks, group) == ("failed" if how == "fails" else "cancelled", 20, 4, 16)
    rows = results(tasks, group)[1]
    assert [row[4] for row in rows] == [b"dead", *[b"done"] * 4, *[b"cancelled"] * 15]
    assert [row[3] for row in rows] == [None, b"r1", b"r2", b"r3", b"r4", *[None] * 15]
    dead = queue if queue == "other" else "q.dead"
    assert [row[0].decode() for row in tasks.value(f"DEAD LIST {dead}")[1]] == [ids[0]]


@pytest.mark.parametrize("how", ["fails", "is cancelled", "is deleted"])
@pytest.mark.parametrize("queue", ["q", "other"])
def test_a_job_that_another_one_added_is_not_cancelled(tasks: World, queue: str, how: str) -> None:
    """T51.2 With NOCANCEL the group waits for these, but never cancels them: another one has
    added them. One that has not ended when the group does has failed: it ended as `open`.
    """
    assert tasks("TUBE CREATE other tasks") == b"+OK\r\n"
    group = tasks.value("GROUP CREATE t 4 THEN callback").decode()
    ids = [
        tasks.value(f"ADDJOB {queue} c{i} 0 KEEP 9000 ATTEMPTS 1 RETRY 900").decode()
        for i in range(4)
    ]
    assert tasks.value(f"GROUP ADD t {group} nocancel 0 {ids[0]} 2 {ids[2]}") == 2
    assert tasks.value(f"GROUP ADD t {group} 1 {ids[1]} 3 {ids[3]}") == 2
    turn(tasks)
    assert len(tasks.value(f"GETJOB NOHANG COUNT 2 FROM {queue}")) == 2
    runs = [tasks.value(f"START {id}")[0][0].decode() for id in ids[:2]]
    assert tasks.value(f"DONE {ids[0]} {runs[0]} RESULT r") == 1
    if how == "fails":
        assert tasks.value(f"FAIL {ids[1]} {runs[1]} FINAL REASON no")[0] == b"dead"
    else:
        assert tasks.value(f"{'DELJOB' if 'deleted' in how else 'GROUP CANCEL t'} {group}") == 1
    later(tasks, 61_000)
    assert [job[1].decode() for job in tasks.value(f"QPEEK {queue} 9")] == [ids[2]]
    assert tasks.value(f"RESULT {ids[3]}")[1] == b"cancelled"
    assert tasks(f"GROUP ADD t {group} NOCANCEL 0")[:4] in (b"-ERR", b"-NOJ")
    if how == "is deleted":
        return
    rows = tasks.value(f"GROUP CHILDREN t {group}")[1]
    ended = b"dead" if how == "fails" else b"cancelled"
    assert [row[4] for row in rows] == [b"done", ended, b"open", b"cancelled"]
    why = b"its group has ended; it continues, for another one added it"
    assert rows[2][2:6] == [b"failed", 0, b"open", why]


def test_the_child_for_which_a_group_failed_is_the_first_that_ended(tasks: World) -> None:
    """T51.6 One that is noted after the group has ended is later than it."""
    group, ids = made(tasks, 5, "THEN callback", "ATTEMPTS 1")
    tasks(f"DONE {ids[1]} - RESULT r")
    dead(tasks, ids[3])
    rows = tasks.value(f"GROUP CHILDREN t {group} 0 STATE failed")[1]
    assert [row[0] for row in rows] == [0, 2, 3, 4]
    over_ms = shown(tasks, group)["over-ms"]
    assert [row[6] <= over_ms for row in rows] == [False, False, True, False]


@pytest.mark.parametrize("queue", ["q", "other"])
def test_a_dead_child_is_seen_while_its_replay_is_awaited(tasks: World, queue: str) -> None:
    """T50.5 With `wait` one that is dead is open, and ended as `dead`, with its reason, until
    the leader knows that it was replayed.

    T51.6 STATE dead means the open ones that are dead.
    """
    assert tasks("TUBE CREATE other tasks") == b"+OK\r\n"
    group = tasks.value("GROUP CREATE t 3 ONFAIL wait THEN callback").decode()
    ids = [
        tasks.value(f"ADDJOB {queue} c{i} 0 KEEP 9000 ATTEMPTS 1 RETRY 900").decode()
        for i in range(3)
    ]
    tasks(f"GROUP ADD t {group} 0 {ids[0]} 1 {ids[1]} 2 {ids[2]}")
    turn(tasks)
    assert len(tasks.value(f"GETJOB NOHANG COUNT 3 FROM {queue}")) == 3
    runs = [tasks.value(f"START {id}")[0][0].decode() for id in ids]
    assert tasks.value(f"FAIL {ids[1]} {runs[1]} FINAL REASON no")[0] == b"dead"
    later(tasks, 20_000)
    assert counts(tasks, group) == ("open", 3, 0, 0) and shown(tasks, group)["dead"] == 1
    row = [1, ids[1].encode(), b"open", 0, b"dead", b"no", 0]
    assert tasks.value(f"GROUP CHILDREN t {group} 0 STATE dead")[1] == [row]
    assert tasks.value(f"GROUP CHILDREN t {group} 0 STATE open")[1][1] == row
    assert results(tasks, group)[1][1] == [1, row[1], b"open", None, b"dead", b"no"]
    letters = "q.dead" if queue == "q" else "other"
    assert tasks.value(f"DEAD REPLAY {letters} ALL")[1] == 1
    later(tasks, 6_000)
    assert shown(tasks, group)["dead"] == 0
    assert tasks.value(f"GROUP CHILDREN t {group} 0 STATE dead")[1] == []
    assert tasks.value(f"GETJOB NOHANG FROM {queue}")[0][1].decode() == ids[1]
    runs[1] = tasks.value(f"START {ids[1]}")[0][0].decode()
    for id, run in zip(ids, runs, strict=True):
        assert tasks.value(f"DONE {id} {run} RESULT ok") == 1
    turn(tasks)
    assert callbacks(tasks) == [(group, b"callback")]
