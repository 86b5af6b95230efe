"""START, FAIL, RELEASE, DONE of tasks in a tube of type `tasks` (SPEC T48)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tuque.core.dispatch.timers import tick
from world import World


@pytest.fixture
def tasks(world: World) -> World:
    assert world("TUBE CREATE t tasks TTR 30") == b"+OK\r\n"
    return world


def later(world: World, ms: int) -> None:
    world.pass_ms(ms)
    tick(world.n)
    assert world("DEBUG CHECK") == b"+OK\r\n"


def take(world: World, count: int = 1, queue: str = "t") -> list[bytes]:
    got = world.value(f"GETJOB NOHANG COUNT {count} FROM {queue}") or []
    return [job[1] for job in got]


def start(world: World, id: bytes, worker: str = "w") -> Any:
    return world.value("START", "WORKER", worker, id)[0]


def test_a_run_that_fails_and_is_done(tasks: World) -> None:
    """T48.3 START is for a task that is TAKEN, by GETJOB or by the caller's session; any other one:
    `-NOTDELIVERED`."""
    id = tasks.add("t", "body", "ATTEMPTS", "3", "BACKOFF", "10", "10", "0")
    assert str(start(tasks, id)).count("NOTDELIVERED")
    assert take(tasks) == [id]
    run, attempt, of, starts, retry_ms, limit_ms = start(tasks, id)
    assert (attempt, of, starts, retry_ms, limit_ms) == (1, 3, 1, 30_000, 0)
    assert start(tasks, id)[0] == run  # the same worker gets the same run
    assert tasks.value("FAIL", id, run.decode(), "REASON", "no luck") == [b"retry", 10_000]
    assert take(tasks) == []
    later(tasks, 10_020)
    assert take(tasks) == [id]
    run2, attempt, *_ = start(tasks, id)
    assert attempt == 2 and run2 != run
    assert tasks("FAIL", id, run.decode()).startswith(b"-STALE")
    assert tasks.value("RELEASE", id, run2.decode()) == 1
    assert take(tasks) == [id]
    run3, attempt, *_ = start(tasks, id)
    assert attempt == 2  # the release used up nothing
    assert tasks.value("DONE", id, run3.decode()) == 1
    assert tasks.value("QLEN t") == 0
    later(tasks, 0)


def test_the_attempt_of_a_task_survives_a_restart(make_world: Callable[..., World]) -> None:
    """T48.2 STARTs, and the detail of the last failure, only of a dead letter"""
    tasks = make_world()
    tasks.run("TUBE", "CREATE", "t", "tasks", "TTR", 30)
    words = ("ATTEMPTS", "3", "BACKOFF", "0", "0", "0")
    ids = [tasks.add("t", "body", *words) for _ in range(3)]
    dead, failed, _ = ids
    for _ in range(3):
        for id in take(tasks, 10):
            run = start(tasks, id)[0].decode()
            if id == dead or (id == failed and fields(tasks, id)[b"attempt"] < 3):
                tasks.value("FAIL", id, run, "DELAY", "0", "REASON", "r", "DETAIL", "d")
    later(tasks, 31_000)  # the third run of one, and the first of another, ended in silence
    states = [(fields(tasks, id)[b"state"], fields(tasks, id)[b"attempt"]) for id in ids]
    assert states == [(b"dead", 3), (b"waiting", 3), (b"waiting", 1)]
    letter = tasks.value("DEAD SHOW", dead)
    assert letter[letter.index(b"starts") + 1] == 3
    tasks.kill(0)
    tasks.start(0)
    tasks.pass_ms(1_000)
    after = [(fields(tasks, id)[b"state"], fields(tasks, id)[b"attempt"]) for id in ids]
    assert after == states
    assert tasks.value("DEAD SHOW", dead) == letter


def test_the_state_of_a_task_that_is_taken(tasks: World) -> None:
    """T48.3 A task that is TAKEN is `delivered` to RESULT until the leader knows its run"""
    id = tasks.add("t", "body", "ATTEMPTS", "3", "BACKOFF", "10", "10", "0")
    assert fields(tasks, id)[b"state"] == b"waiting"
    assert take(tasks) == [id]
    assert fields(tasks, id)[b"state"] == b"delivered"
    run = start(tasks, id)[0].decode()
    assert fields(tasks, id)[b"state"] == b"running"
    assert tasks.value("FAIL", id, run) == [b"retry", 10_000]
    assert fields(tasks, id)[b"state"] == b"back-off"
    later(tasks, 10_020)
    assert fields(tasks, id)[b"state"] == b"waiting"
    assert take(tasks) == [id]
    assert fields(tasks, id)[b"state"] == b"delivered"


def letters(world: World, queue: str = "t") -> list[list[Any]]:
    rows: list[list[Any]] = world.value(f"DEAD LIST {queue}")[1]
    return rows


def fields(world: World, id: bytes) -> dict[bytes, Any]:
    words = world.value("RESULT", id)
    return dict(zip(words[::2], words[1::2], strict=True))


def test_a_silent_run_is_no_attempt(tasks: World) -> None:
    """T48.9 If ttr, counted from START, WORKING or PROGRESS, is over while a run lasts, it fails
    with the cause `crashed` and uses up no attempt (W6.7); at its TIMELIMIT its attempt fails with
    `timeout`."""
    id = tasks.add("t", "body", "ATTEMPTS", "2", "BACKOFF", "0", "0", "0")
    assert take(tasks) == [id]
    later(tasks, 30_020)  # nobody began it
    assert take(tasks) == [id]
    (run, attempt, *_) = start(tasks, id)
    assert attempt == 1
    later(tasks, 20_000)
    assert tasks.value("WORKING", id, run) == 30
    later(tasks, 20_000)
    assert tasks.value("PROGRESS", id, run, "half") == b"OK"
    for _ in range(2):
        later(tasks, 30_020)
        assert take(tasks) == [id]
        (run, attempt, *_) = start(tasks, id)
        assert attempt == 1
    later(tasks, 30_020)
    ((_, _, _, attempts, cause, reason, *_),) = letters(tasks)
    assert (attempts, cause) == (0, b"crashed")
    assert reason == b"silent for 30 s: its worker was lost 3 times (crashes-max 3)"


def test_a_run_over_its_time_limit(tasks: World) -> None:
    """T48.9 If ttr, counted from START, WORKING or PROGRESS, is over while a run lasts, it fails
    with the cause `crashed` and uses up no attempt (W6.7); at its TIMELIMIT its attempt fails with
    `timeout`."""
    id = tasks.add("t", "body", "ATTEMPTS", "2", "TIMELIMIT", "40", "BACKOFF", "0", "0", "0")
    assert take(tasks) == [id]
    (run, *_) = start(tasks, id)
    later(tasks, 25_000)
    assert tasks.value("WORKING", id, run) == 30
    later(tasks, 15_020)
    assert tasks("WORKING", id, run).startswith(b"-TOOLATE")
    assert take(tasks) == [id]
    (run, attempt, *_) = start(tasks, id)
    assert attempt == 2
    assert tasks.value("FAIL", id, run, "CAUSE", "timeout") == [b"dead", b"t.dead"]
    assert letters(tasks)[0][4] == b"timeout"


@pytest.mark.parametrize("how", ["ttr", "release", "delay", "crashes"])
def test_work_that_was_done_is_done(tasks: World, how: str) -> None:
    """T48.6 So it does one that is READY, DELAYED or BURIED again, if it names the run of its last
    take: work that was done is done.
    """
    options = ("BACKOFF", "0", "0", "0") if how == "ttr" else ("BACKOFF", "9", "9", "0")
    id = tasks.add("t", "body", "KEEP", "600", "ATTEMPTS", "9", "UNIQUE", "u", *options)
    first = b""
    for _ in range(3 if how == "crashes" else 2):
        take(tasks)
        earlier, first = first, start(tasks, id)[0]
        if how == "release" or how == "delay":
            words = ["DELAY", "9"] if how == "delay" else []
            assert tasks.value("RELEASE", *words, id, first) == 1
        else:
            later(tasks, 30_020)
        if how == "delay" or (how == "crashes" and len(letters(tasks)) == 0):
            later(tasks, 9_020 if _ == 0 or how == "crashes" else 0)
    state = {"crashes": b"dead", "delay": b"back-off"}.get(how, b"waiting")
    assert fields(tasks, id)[b"state"] == state
    assert tasks.value("DONE", id, earlier) == 0, "the run of an earlier take"
    assert tasks.value("DONE", id, "-") == tasks.value("ACKJOB", id) == 0, "T1.4"
    assert tasks.value("DONE", id, first, "RESULT", "42") == 1
    seen = fields(tasks, id)
    assert (seen[b"state"], seen[b"result"], seen[b"worker"]) == (b"done", b"42", b"w")
    assert take(tasks) == [] and letters(tasks) == []
    assert tasks.value("DONE", id, first) == 0
    tasks.add("t", "next", "UNIQUE", "u")
    later(tasks, 0)


@pytest.mark.parametrize("keep", ["60", "0"])
def test_a_task_whose_body_goes_on_elsewhere_is_dead(tasks: World, keep: str) -> None:
    """W7.2 ACKJOB and FASTACK keep the outcome `done` without a result, DEADLETTER the outcome
    `dead` with its reason, also of a task."""
    id = tasks.add("t", "body", "KEEP", keep, "ATTEMPTS", "2")
    take(tasks)
    start(tasks, id)
    waiter = tasks.wire()
    assert waiter("WAITJOB", 5_000, id) is None
    tasks.value("DEADLETTER", id, "letters", "REASON", "no use")
    assert waiter.take() == [[id, b"dead"]]
    if keep == "60":
        seen = fields(tasks, id)
        assert (seen[b"state"], seen[b"reason"], seen[b"attempt"]) == (b"dead", b"no use", 1)
    later(tasks, 0)


def test_a_result_is_kept(tasks: World) -> None:
    """T48.6 DONE acks the task (T1.4). Its outcome and result, kept for KEEP"""
    id = tasks.add("t", "body", "KEEP", "60", "ATTEMPTS", "2")
    assert fields(tasks, id)[b"state"] == b"waiting"
    take(tasks)
    (run, *_) = start(tasks, id)
    tasks("PROGRESS", id, run, "half")
    seen = fields(tasks, id)
    assert (seen[b"state"], seen[b"progress"], seen[b"worker"]) == (b"running", b"half", b"w")
    assert tasks.value("DONE", id, run, "RESULT", "42") == 1
    seen = fields(tasks, id)
    assert (seen[b"state"], seen[b"result"], seen[b"of"]) == (b"done", b"42", 2)
    assert tasks("START", id).startswith(b"*1\r\n-ACKED")
    later(tasks, 61_000)
    assert tasks("RESULT", id).startswith(b"-NOJOB")


def test_getjob_begins_runs(tasks: World) -> None:
    """T48.3 The run token has the attempt, how often the task was taken, and a hash of the token of
    the take (T5.1)."""
    id = tasks.add("t", "body", "ATTEMPTS", "2", "HEADERS", "1", "a", "b")
    ((_, got, _, *more),) = tasks.value("GETJOB START WORKER w WITHMETA FROM t")
    named = dict(zip(more[::2], more[1::2], strict=True))
    assert got == id and named[b"run"] == start(tasks, id)[0]
    assert (named[b"attempt"], named[b"of"], named[b"headers"]) == (1, 2, [b"a", b"b"])
    assert b"-ATWORK" in tasks("START WORKER v", id)
    assert tasks.value("NACK", id) == 1  # ends the run, uncounted
    take(tasks)
    assert start(tasks, id)[1] == 1


def test_words_that_tasks_do_not_have(tasks: World) -> None:
    """T48.1 ADDJOB to a tube of type `tasks` takes ATTEMPTS, BACKOFF, DEAD, KEEP, TIMELIMIT,
    ONEXPIRY and HEADERS (W1).
    """
    tasks("TUBE CREATE f fifottl")
    assert tasks("ADDJOB f b 0 ATTEMPTS 2").startswith(b"-ERR 'f' is a tube")
    assert tasks("ADDJOB t b 0 DEAD f").startswith(b"-ERR 'f' is a tube")
