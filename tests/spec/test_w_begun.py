"""SPEC W: GETJOB with START: runs that begin with the delivery."""

from __future__ import annotations

from typing import Any

import pytest
from test_w_work import TRIES, fields, start, state

from raw_resp import NULL
from tuque.core.model.work import LIVE
from world import World

SHAPES: list[tuple[list[str], list[str]]] = [
    ([], ["run"]),
    (["WITHCOUNTERS"], ["run", "nacks", "additional-deliveries"]),
    (
        ["WITHMETA"],
        ["run", "attempt", "of", "retry-ms", "time-limit-ms", "added-ms", "headers"],
    ),
]


def begin(world: World, *words: str, worker: str = "w1") -> list[list[Any]]:
    """GETJOB NOHANG START from q and q.dead; the jobs."""
    reply = world.run("GETJOB", "NOHANG", *words, "START", "WORKER", worker, "FROM", "q", "q.dead")
    return [] if reply is NULL else reply


def test_a_run_begins_with_the_delivery(world: World) -> None:
    """W17.1 A run of each job begins when the job is delivered, also after a wait, as by START
    (W2.5): for a worker that has a place for each of the COUNT jobs. The worker is that of W2.1.
    """
    ids = [world.add(**TRIES) for _ in range(3)]
    jobs = begin(world, "COUNT", "3")
    assert [job[1] for job in jobs] == ids
    for _, id, body, name, run in jobs:
        assert (body, name, state(world, id)) == (b"body", b"run", "running")
        assert start(world, id) == run
        assert world.run("START", "WORKER", "w2", id)[0].startswith("ATWORK Job is at work at")
        assert world.run("WORKING", id, run) == 10
    waiter = world.wire()
    assert waiter("GETJOB", "START", "FROM", "later") is None
    late = world.add("later")
    ((_, id, _, _, run),) = waiter.take()
    assert (id, run[:4]) == (late, b"1.1.")
    assert waiter("START", late)[0][0] == run
    assert world.run("START", late)[0].startswith("ATWORK"), "another connection, another worker"


def test_the_words_of_start(world: World) -> None:
    """W17.1 WORKER without START: `-ERR syntax error: WORKER needs START`. More than 1000 jobs are
    not taken at once.
    """
    world.add()
    for words, error in (
        (["WORKER", "w"], "WORKER needs START"),
        (["START", "WORKER"], "GETJOB has no option 'q'"),
        (["START", "w"], "GETJOB has no option 'w'"),
    ):
        assert world.run("GETJOB", "NOHANG", *words, "FROM", "q") == f"ERR syntax error: {error}"
    for name in ("", "w" * 256):
        refused = world.run("GETJOB", "NOHANG", "START", "WORKER", name, "FROM", "q")
        assert refused == "ERR WORKER takes a name of 1 to 255 bytes"
    assert world.qlen() == 1
    for _ in range(1_000):
        world.add()
    assert len(begin(world, "COUNT", "2000")) == 1_000
    assert world.qlen() == 1


@pytest.mark.parametrize(("words", "names"), SHAPES)
def test_the_run_is_told_after_the_body(world: World, words: list[str], names: list[str]) -> None:
    """W17.2 Each job has, first after its body, the name `run` and the run token; with WITHMETA,
    `attempt` is that of this run.
    """
    world.add(**TRIES)
    (job,) = begin(world)
    assert world.run("FAIL", job[1], job[4], "DELAY", 0) == [b"retry", 0]
    (job,) = begin(world, *words)
    told = fields(job[3:])
    assert list(told) == names
    assert told["run"].startswith(b"2.2.")
    assert told.get("attempt", 2) == 2
    world.add()
    (job,) = begin(world, "WITHMETA", "WITHCOUNTERS")
    assert list(fields(job[3:]))[:1] == ["run"] and len(job) == 21


def test_what_may_not_begin_has_no_run(world: World) -> None:
    """W17.3 A job that START would refuse (a task of a tube, a dead letter, one that is at work
    elsewhere) is delivered anyway, and its `run` is null.
    """
    world.run("TUBE", "CREATE", "t", "fifo")
    world.add("t")
    ((_, _, *told),) = world.run("GETJOB", "START", "FROM", "t")
    assert told == [b"body", b"run", None]
    dead = world.add(ATTEMPTS=1)
    (job,) = begin(world)
    world.run("FAIL", dead, job[4])
    ((queue, id, _, _, run),) = begin(world)
    assert (queue, id, run) == (b"q.dead", dead, None)
    assert world.run("START", dead)[0].startswith("DEAD")
    busy = world.add(**TRIES)
    (job,) = begin(world)
    assert world.run("RELEASE", busy, job[4]) == 1
    life = world.n.life.by_id[busy]
    life.run_state, life.worker = LIVE, b"elsewhere"  # as another holder tells it
    world.n.life.weigh(life)
    ((_, id, _, _, run),) = begin(world)
    assert (id, run, life.worker) == (busy, None, b"elsewhere")


def test_a_cancelled_job_ends(world: World) -> None:
    """W17.3 One that was cancelled ends as by START (W8.3), and its `run` is null."""
    id = world.add(RETRY=10, KEEP=60)
    world.get()
    assert world.run("CANCEL", id) == [b"flagged"]
    world.n.life.by_id[id].is_cancelled = False
    world.run("NACK", id)
    world.n.life.by_id[id].is_cancelled = True  # as a holder that has heard of it late
    ((_, got, _, _, run),) = begin(world)
    assert (got, run, state(world, id)) == (id, None, "cancelled")


def test_the_attempt_counts_from_the_delivery(world: World) -> None:
    """W17.4 The run counts from the delivery on: if the reply is lost, it is silent, and
    fails with the cause `crashed` after RETRY (W6.1), though no worker saw the job. RELEASE gives
    the job back uncounted (W4.1).
    """
    id = world.add(**TRIES)
    (job,) = begin(world)
    assert world.run("RELEASE", id, job[4]) == 1
    (job,) = begin(world, "WITHMETA")
    assert fields(job[3:])["attempt"] == 1
    world.pass_ms(9_900)
    assert state(world, id) == "running"
    world.pass_ms(200)
    told = fields(world.run("RESULT", id))
    assert (told["state"], told["cause"]) == (b"back-off", b"crashed")
    for _ in range(2):
        world.pass_ms(5_000)
        (job,) = begin(world)
        world.pass_ms(10_500)
    assert state(world, id) == "dead"


def test_a_flagged_job_shows_why_it_was_cancelled(world: World) -> None:
    """W9.1 Of a flagged job the reason is that of the CANCEL, without cause and detail."""
    id = world.add(**TRIES)
    world.get()
    assert world.run("FAIL", id, start(world, id), "DELAY", 0, "REASON", "oops", "DETAIL", "trace")
    world.get()
    start(world, id)
    assert fields(world.run("RESULT", id))["reason"] == b"oops"
    assert world.run("CANCEL", "REASON", "enough", id) == [b"flagged"]
    told = fields(world.run("RESULT", id))
    assert (told["state"], told["cause"]) == (b"running", b"")
    assert (told["reason"], told["detail"]) == (b"enough", b"")
