"""CANCEL of tasks in a tube of type `tasks` (SPEC T48.10)."""

from __future__ import annotations

import pytest
from test_server_task_lives import fields, later, start, take, tasks

from world import World

__all__ = ["tasks"]

SAYS = b"-ERR %s is %s\r\n"
KEPT = ("KEEP", "600", "ATTEMPTS", "3", "BACKOFF", "10", "10", "0")


def cancelled(world: World, id: bytes, reason: bytes = b"enough") -> bool:
    """Whether it has ended so, and its unique key is free."""
    row = fields(world, id)
    fresh = world.add("t", "other", "UNIQUE", "u", "ON", "reject")
    assert world.value("DELJOB", fresh) == 1
    return row[b"state"] == b"cancelled" and row[b"reason"] == reason


@pytest.mark.parametrize("state", ["ready", "delayed", "buried", "back-off"])
def test_nobody_has_it(tasks: World, state: str) -> None:
    """T48.10 CANCEL of a task that is not TAKEN ends it, and its keys are free."""
    delay = ("DELAY", "50") if state == "delayed" else ()
    id = tasks.add("t", "body", *KEPT, *delay, "UNIQUE", "u", "LIMIT", "l", "1")
    other = tasks.add("t", "next", "LIMIT", "l", "1", "PRI", "9")
    if state == "buried":
        assert tasks("TUBE BURY t 0").startswith(b"*")
    elif state == "back-off":
        take(tasks)
        run = start(tasks, id)[0].decode()
        assert tasks.value("FAIL", id, run) == [b"retry", 10_000]
    assert tasks.value("CANCEL REASON enough", id) == [b"ended"]
    assert cancelled(tasks, id)
    assert tasks.value("CANCEL", id) == [b"over"]
    assert take(tasks, 9) == [other]
    later(tasks, 60_000)


@pytest.mark.parametrize(
    "how", ["release", "delay", "nack", "fail", "final", "silence", "bury", "start", "unstarted"]
)
def test_somebody_has_it(tasks: World, how: str) -> None:
    """T48.10 One that is TAKEN is `flagged`: its worker learns of it (W8.2), and it ends as
    cancelled where it would be READY, DELAYED or BURIED again.
    """
    id = tasks.add("t", "body", *KEPT, "UNIQUE", "u")
    assert take(tasks) == [id]
    run = "" if how in ("start", "unstarted") else start(tasks, id)[0].decode()
    assert tasks.value("CANCEL REASON enough", id) == [b"flagged"]
    assert tasks.value("CANCEL REASON later", id) == [b"flagged"]
    if run:
        assert tasks("WORKING", id, run) == b"-CANCELLED Job was cancelled: enough\r\n"
    if how == "release":
        assert tasks.value("RELEASE", id, run) == 1
    elif how == "delay":
        assert tasks.value("RELEASE DELAY 5", id, run) == 1
    elif how == "nack":
        assert tasks.value("NACK", id) == 1
    elif how in ("fail", "final"):
        words = ("FINAL",) if how == "final" else ()
        assert tasks.value("FAIL", id, run, *words) == [b"cancelled", None]
    elif how == "bury":
        tasks("TUBE BURY t 0")
    elif how == "start":
        assert b"-CANCELLED Job was cancelled: enough" in tasks("START WORKER w", id)
    else:
        later(tasks, 31_000)
    assert cancelled(tasks, id)
    assert take(tasks) == []
    later(tasks, 60_000)
    assert tasks.value("DEAD LIST t.dead")[1] == []


@pytest.mark.parametrize("words", ["", " -"])
def test_who_names_no_run_hears_of_it(tasks: World, words: str) -> None:
    """T48.10 One that is TAKEN is `flagged`: its worker learns of it (W8.2), and it ends as
    cancelled where it would be READY, DELAYED or BURIED again.
    """
    id = tasks.add("t", "body", *KEPT)
    assert take(tasks) == [id]
    assert tasks.value(f"WORKING {id.decode()}{words}") == 30
    assert tasks.value("CANCEL REASON enough", id) == [b"flagged"]
    word = f"WORKING {id.decode()}{words}"
    assert tasks(word) == b"-CANCELLED Job was cancelled: enough\r\n"
    later(tasks, 31_000)
    assert cancelled(tasks, id)
    assert tasks(word) == b"-CANCELLED Job was cancelled: enough\r\n"


def test_done_wins(tasks: World) -> None:
    """T48.10 DONE wins."""
    id = tasks.add("t", "body", *KEPT)
    take(tasks)
    run = start(tasks, id)[0].decode()
    assert tasks.value("CANCEL", id) == [b"flagged"]
    assert tasks.value("DONE", id, run, "RESULT", "42") == 1
    assert (fields(tasks, id)[b"state"], fields(tasks, id)[b"result"]) == (b"done", b"42")
    later(tasks, 60_000)


def test_many_at_once(tasks: World) -> None:
    """W8.6 An error changes nothing: a task of a tube that has no runs (T48) refuses the whole
    command.
    """
    tasks("TUBE CREATE f fifo")
    mine, plain, queued = (tasks.add(name, "b") for name in ("t", "f", "q"))
    assert tasks("CANCEL", queued, plain).startswith(b"-ERR 'f' is a tube: its tasks have no runs")
    assert tasks("CANCEL", mine, plain).startswith(b"-ERR 'f' is a tube: its tasks have no runs")
    assert tasks.value("SCHEDULE ADD t s EVERY 60 body") == b"ADDED"
    schedule = tasks.value("SCHEDULE SHOW t s")
    plan = dict(zip(schedule[::2], schedule[1::2], strict=True))[b"id"]
    assert tasks("CANCEL", mine, plan) == SAYS % (
        plan,
        b"a schedule: use SCHEDULE PAUSE or SCHEDULE DROP",
    )
    assert tasks.value("CANCEL", mine, queued) == [b"ended", b"ended"]


def test_what_is_no_job(tasks: World) -> None:
    """T1.11 A schedule, a group, the record of a child and the keeper of a UNIQUE key (T45.8,
    T50.9, T44.8) are no jobs: START, FAIL, CANCEL, UPDATEJOB and DEADLETTER of their ids are
    refused, with what to use: `-ERR <id> is a group: use GROUP CANCEL`.

    T50.2 ADD refuses the id of a group, a schedule, the record of a child or the keeper of a key
    that this node knows, before it adds any: `-ERR <id> is a group: the children of a group are
    jobs and tasks`.
    """
    assert tasks.value("SCHEDULE ADD t s EVERY 60 body") == b"ADDED"
    group = tasks.value("GROUP CREATE t 2 THEN b")
    plain = tasks.add("q", "b")
    assert tasks.value("GROUP ADD t", group, "0", plain) == 1
    kept = tasks.add("t", "b", "UNIQUE", "k", "UNTIL", "600", "KEEP", "5")
    take(tasks)
    assert tasks.value("ACKJOB", kept) == 1
    kinds = {
        b"schedule": b"a schedule: use SCHEDULE PAUSE or SCHEDULE DROP",
        b"children": b"a group: use GROUP CANCEL",
        b"child": b"the record of a child: use GROUP CANCEL of its group",
        b"key-of": b"the keeper of a UNIQUE key: DELJOB frees the key",
    }
    found = set()
    for id in tasks.value("JSCAN 0 COUNT 100 QUEUE t REPLY id")[1]:
        row = tasks.value("SHOW", id)
        kind = next(name for name in kinds if name in row[::2])
        found.add(kind)
        says = SAYS % (id, kinds[kind])
        assert says in tasks("START WORKER w", id)
        assert tasks("FAIL", id, "-", "REASON", "r") == says
        assert tasks("CANCEL", id) == says
        assert tasks("UPDATEJOB", id, "PRI", "4") == says
        assert tasks("DEADLETTER", id, "grave") == says
        what = kinds[kind].partition(b":")[0] + b": the children of a group are jobs and tasks"
        assert tasks("GROUP ADD t", group, "1", id) == SAYS % (id, what)
        assert tasks.value("SHOW", id) == row
    assert found == set(kinds)
    assert tasks.value("QLEN grave") == 0
