"""SPEC E1.7: the events of runs."""

from __future__ import annotations

import pytest
from test_w_work import start

from told_events import Told
from tuque.core.records.events import KIND_NAMES
from world import World

ONLY_RUNS = KIND_NAMES[10:]
ENDS = ("acked", "dead", "expired", "deleted", "cancelled")
NO_WAIT = ("BACKOFF", "0", "0", "0")


def told(world: World, id: bytes) -> list[tuple[str, int, str]]:
    """Kind, attempt and reason of the events of the job's runs."""
    events = world.n.events
    assert events is not None
    events.cut()
    rows: list[tuple[str, int, str]] = []
    for chunk in map(Told, events.full):
        reasons = iter(chunk.reason)
        for kind, of, delivery in zip(chunk.kinds, chunk.job_ids, chunk.delivery, strict=True):
            name = KIND_NAMES[kind]
            has_reason = name in ("nacked", "requeued", "dead", "deleted", *ONLY_RUNS)
            reason = next(reasons) if has_reason else b""
            if of == id and name in ONLY_RUNS:
                rows.append((name, delivery, reason.decode()))
    return rows


def test_events_of_runs(world: World) -> None:
    """E1.7 Runs (W) have rows in addition: run-started, run-released, run-failed, run-crashed,
    run-timed-out, run-done and replayed. Their number of the delivery is that of the attempt.

    E1.7 Their reason is the worker (started, released, done), why the run failed, or the cause
    of death of a letter that is replayed.
    """
    id = world.add(ATTEMPTS=4, RETRY=10, TIMELIMIT=15)
    world.get()
    world.run("RELEASE", id, start(world, id))
    world.get()
    world.run("FAIL", id, start(world, id, "w2"), "REASON", "no net", "DELAY", 0)
    world.get()
    start(world, id)
    world.pass_ms(10_100)  # silent
    world.pass_ms(5_000)
    world.get()
    run = start(world, id)
    world.pass_ms(9_000)
    world.run("WORKING", id, run)
    world.pass_ms(7_000)  # over its time limit
    world.pass_ms(60_000)
    world.get()
    world.run("FAIL", id, start(world, id), "FINAL", "REASON", "enough")
    world.run("DEAD", "REPLAY", "q.dead", "ALL")
    world.get()
    run = start(world, id)
    world.run("DONE", id, run, "RESULT", "x")
    assert told(world, id) == [
        ("run-started", 1, "w1"),
        ("run-released", 1, "w1"),
        ("run-started", 1, "w2"),
        ("run-failed", 1, "no net"),
        ("run-started", 2, "w1"),
        ("run-crashed", 2, "silent for 10 s"),
        ("run-started", 2, "w1"),
        ("run-timed-out", 2, "ran longer than its time limit of 15 s"),
        ("run-started", 3, "w1"),
        ("run-failed", 3, "enough"),
        ("replayed", 3, "failed"),
        ("run-started", 1, "w1"),
        ("run-done", 1, "w1"),
    ]
    assert world.node().kinds(id)[-1] == "acked", "what ends the job stays its end"


def test_events_of_runs_of_tasks(world: World) -> None:
    """E1.7, of a tube of type tasks as well."""
    world.run("TUBE", "CREATE", "t", "tasks")
    id = world.add("t", "b", *NO_WAIT, RETRY=10)
    world.get("t")
    world.run("FAIL", id, start(world, id), "DELAY", 0, "REASON", "no net")
    world.get("t")
    world.run("DONE", id, start(world, id, "w2"))
    assert told(world, id) == [
        ("run-started", 1, "w1"),
        ("run-failed", 1, "no net"),
        ("run-started", 2, "w2"),
        ("run-done", 2, "w2"),
    ]
    assert world.node().kinds(id)[-1] == "acked"


@pytest.mark.parametrize("queue", ["q", "t"])
@pytest.mark.parametrize("how", ["waiting", "RELEASE", "FAIL", "NACK", "START", "silence"])
def test_a_cancelled_job_in_the_events(world: World, queue: str, how: str) -> None:
    """E1.12 A job that CANCEL ends (W8, T48.10) has the one end cancelled, with the reason of the
    CANCEL, and no acked.
    """
    world.run("TUBE", "CREATE", "t", "tasks")
    id = world.add(queue, "b", *NO_WAIT, RETRY=10)
    if how != "waiting":
        world.get(queue)
        world.run("FAIL", id, start(world, id), "DELAY", 0)
        world.get(queue)
    run = start(world, id) if how in ("RELEASE", "FAIL", "silence") else b"-"
    world.run("CANCEL", "REASON", "changed my mind", id)
    if how == "START":
        world.run("START", "WORKER", "w1", id)
    elif how == "silence":
        world.pass_ms(12_000)
    elif how == "NACK":
        world.run("NACK", id)
    elif how != "waiting":
        world.run(how, id, run)
    assert told(world, id)[-1][::2] == ("cancelled", "changed my mind")
    assert [kind for kind in world.node().kinds(id) if kind in ENDS] == ["cancelled"]
    failed = 0 if how == "waiting" else 1
    assert returns_and_end(world, id) == (failed, [failed])


def test_done_of_a_cancelled_job_is_acked(world: World) -> None:
    """W8.3 DONE still makes it done: the result is true."""
    id = world.add()
    world.get()
    run = start(world, id)
    world.run("CANCEL", id)
    world.run("DONE", id, run)
    assert [kind for kind in world.node().kinds(id) if kind in ENDS] == ["acked"]


def test_without_runs_nothing_is_added(world: World) -> None:
    """A job that nobody begins has the rows that it had."""
    id = world.add()
    world.get()
    world.run("ACKJOB", id)
    other = world.add()
    world.run("DONE", other, "-")
    assert world.node().kinds(id) == ["added", "delivered", "acked"]
    assert world.node().kinds(other) == ["added", "acked"]


def returns_and_end(world: World, id: bytes, i: int = 0) -> tuple[int, list[int]]:
    """How many events nacked the node wrote of the job, and the nacks in those of its ends."""
    node = world.node(i)
    events = node.core.events
    assert events is not None
    count = node.kinds(id).count("nacked")
    ends: list[int] = []
    for chunk in map(Told, events.full):
        stamps = iter(chunk.nacks)
        for kind, of in zip(chunk.kinds, chunk.job_ids, strict=True):
            if KIND_NAMES[kind] in ENDS:
                nacks = next(stamps)
                ends += [nacks] if of == id else []
    return count, ends


def go_back(world: World, queue: str, id: bytes) -> None:
    """The job goes back in each way in which a client or silence gives it back: six times."""
    assert world.get(queue) == [id]
    world.run("NACK", id)
    assert world.get(queue) == [id]
    world.run("RELEASE", id, "-")
    assert world.get(queue) == [id]
    world.run("RELEASE", id, start(world, id))
    for delay in (0, 1):
        assert world.get(queue) == [id]
        world.run("FAIL", id, start(world, id), "DELAY", delay)
    world.pass_ms(1_100)
    assert world.get(queue) == [id]
    start(world, id)
    world.pass_ms(11_000)  # silent
    world.pass_ms(1_100)
    assert world.get(queue) == [id]


@pytest.mark.parametrize("queue", ["q", "t"])
@pytest.mark.parametrize("terms", [{}, {"ATTEMPTS": 9}])
@pytest.mark.parametrize("end", ["ACKJOB", "DONE", "FINAL", "DELJOB"])
def test_nacks_of_an_end_are_the_events_before_it(
    world: World, queue: str, terms: dict[str, int], end: str
) -> None:
    """E1.11 The nacks of an end are the events nacked of its job: by NACK, FAIL, RELEASE and the
    silence of a run. They last over a restart.
    """
    world.run("TUBE", "CREATE", "t", "tasks")
    id = world.add(queue, "b", *NO_WAIT, RETRY=10, **terms)
    go_back(world, queue, id)
    if end == "ACKJOB":
        world.run("ACKJOB", id)
    elif end == "DONE":
        world.run("DONE", id, start(world, id))
    elif end == "FINAL":
        world.run("FAIL", id, start(world, id), "FINAL")
    else:
        world.run("DELJOB", id)
    assert returns_and_end(world, id) == (6, [6])


@pytest.mark.parametrize("queue", ["q", "t"])
def test_nacks_last_over_a_restart(world: World, queue: str) -> None:
    """E1.11 They last over a restart."""
    world.run("TUBE", "CREATE", "t", "tasks")
    id = world.add(queue, "b", *NO_WAIT, RETRY=10)
    go_back(world, queue, id)
    world.restart(how="kill", off_ms=20_000)
    world.run("ACKJOB", id)
    assert returns_and_end(world, id) == (0, [6])


def test_a_letter_that_is_read_counts_what_came_before(world: World) -> None:
    """E1.11 The nacks of an end are the events nacked of its job."""
    id = world.add("q", "b", *NO_WAIT, RETRY=10, ATTEMPTS=2)
    for _ in range(2):
        world.get()
        world.run("FAIL", id, start(world, id))
    assert world.get("q.dead") == [id]
    world.run("NACK", id)
    assert world.get("q.dead") == [id]
    world.run("ACKJOB", id)
    assert returns_and_end(world, id) == (2, [1, 2])
