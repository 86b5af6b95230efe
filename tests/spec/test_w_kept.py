"""SPEC M3, W6, W7: how much of results and dead letters is kept, and what goes when."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from test_w_work import TRIES, fields, start

from own_log import own_lines
from tuque.core.model.work import DONE, Outcome
from tuque.core.queues.procedures import memory_level
from tuque.server.loop.housekeeping import run_housekeeping
from world import World


def fill(world: World, percent: int) -> None:
    """Set the limit so that what is used now is that part of it."""
    world.n.limits.memory_bytes = world.n.counted_bytes() * 100 // percent


def one_done(world: World, result: str, keep_s: int = 60) -> bytes:
    """A job that is done with that result."""
    job_id = world.add(ATTEMPTS=1, KEEP=keep_s)
    world.get()
    world.run("DONE", job_id, "-", "RESULT", result)
    return job_id


def one_dead(world: World, detail: str) -> bytes:
    """A dead letter with that detail."""
    job_id = world.add(body="the body", ATTEMPTS=1)
    world.get()
    world.run("FAIL", job_id, world.run("START", job_id)[0][0], "REASON", "why", "DETAIL", detail)
    return job_id


def test_results_and_details_are_dropped_last(world: World) -> None:
    """M3.4 Results, kept bodies and details above 256 bytes are dropped and counted, the oldest
    first, but none that a client waits for. The outcome stays `done`, with the reason `its result
    of <n> bytes was dropped: memory was short`; the dead letter stays with body and reason.
    """
    small, letter = one_done(world, "s" * 256), one_dead(world, "d" * 9_000)
    once = world.add("once", RETRY=0)
    world.get("once")
    results = [one_done(world, "r" * 9_000) for _ in range(3)]
    world.n.limits.memory_bytes = (world.n.used_bytes() - 10_000) * 100 // 95
    world.run("PING")
    assert world.state(once) == "gone", "what costs nothing goes first"
    told = [fields(world.run("RESULT", one)) for one in [small, *results]]
    assert [one["result"] for one in told] == [b"s" * 256, None, None, b"r" * 9_000]
    assert {one["state"] for one in told} == {b"done"}
    assert told[1]["reason"] == b"its result of 9000 bytes was dropped: memory was short"
    assert fields(world.run("DEAD", "SHOW", letter))["detail"] == b"d" * 9_000
    fill(world, 200)
    world.run("PING")
    shown = fields(world.run("DEAD", "SHOW", letter))
    assert shown["detail"] == b"(dropped: memory was short)"
    assert (shown["body"], shown["reason"]) == (b"the body", b"why")
    info = world.run("INFO", "jobs").decode()
    assert "results_emptied:3\r" in info and "dead_emptied:1\r" in info
    assert world.run("DEBUG", "CHECK") == b"OK"


def test_no_detail_is_kept_at_level_3(world: World) -> None:
    """M3.4 At level 3 a FAIL keeps no DETAIL above 64 bytes."""
    ids = [world.add(ATTEMPTS=3) for _ in range(2)]
    world.get(count=2)
    runs = [row[0] for row in world.run("START", *ids)]
    fill(world, 120)
    world.run("FAIL", ids[0], runs[0], "DETAIL", "d" * 64)
    world.run("FAIL", ids[1], runs[1], "DETAIL", "d" * 65)
    kept = [fields(world.run("RESULT", one))["detail"] for one in ids]
    assert kept == [b"d" * 64, b"(dropped: memory was short)"]


def test_a_detail_that_ends_a_wait_is_read(world: World) -> None:
    """M3.4 At level 3 a FAIL keeps no DETAIL above 64 bytes, unless it ends a wait for the job."""
    ids = [world.add(ATTEMPTS=1), world.add(ATTEMPTS=2)]
    world.get(count=2)
    runs = [row[0] for row in world.run("START", *ids)]
    waiter, other = world.wire(), world.wire()
    assert waiter("RESULT", ids[0], "WAIT", 0) is None
    assert other("RESULT", ids[1], "WAIT", 0) is None
    fill(world, 120)
    for id, run in zip(ids, runs, strict=True):
        world.run("FAIL", id, run, "DETAIL", "d" * 9_000)
    assert fields(waiter.take())["detail"] == b"d" * 9_000
    dropped = b"(dropped: memory was short)"
    assert [fields(world.run("RESULT", id))["detail"] for id in ids] == [dropped, dropped]
    assert world.run("DEBUG", "CHECK") == b"OK"


def test_failing_work_ends_at_the_limit(world: World) -> None:
    """M2.4 What takes, does or ends work is accepted at every level"""
    ids = [world.add(ATTEMPTS=1, KEEP=60) for _ in range(200)]
    world.n.limits.memory_bytes = limit = world.n.used_bytes() + 60_000
    for at, job_id in enumerate(world.get(count=200)):
        run = world.run("START", job_id)[0][0]
        if at % 2:
            assert world.run("DONE", job_id, run, "RESULT", "r" * 5_000) == 1
        else:
            world.run("FAIL", job_id, run, "DETAIL", "d" * 5_000)
    world.run("PING")
    assert world.n.used_bytes() < limit
    states = [fields(world.run("RESULT", one))["state"] for one in ids]
    assert (states.count(b"done"), states.count(b"dead")) == (100, 100)


def test_levels_are_logged(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """M2.5 The log shows when a level is reached, and when a lower one holds after 5 s, with
    what is used and by what.
    """
    caplog.set_level("INFO")
    one_done(world, "r" * 9_000)
    world.n.base_bytes = 1_000_000
    world.run("PING")  # its connection counts from now on
    run_housekeeping(world.server)
    for percent in (80, 900, 50, 80, 50):
        fill(world, percent)
        world.run("PING")
        run_housekeeping(world.server)
    assert [line.split(":")[0] for line in own_lines(caplog)] == [
        "memory level 1",
        "memory level 3",
        "memory is short",
    ]
    assert "by results" in own_lines(caplog)[0] and "are used" in own_lines(caplog)[0]
    world.n.now_ms += 5_000
    run_housekeeping(world.server)
    assert own_lines(caplog)[-1].startswith("memory level 0 again: ")
    assert "all is well" in own_lines(caplog)[-1]


def test_what_goes_for_memory_is_logged(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """M3.6 The log shows when results and details begin to go, and how many they were when none
    has gone for 60 s.
    """
    caplog.set_level("INFO")
    world.n.base_bytes = 1_000_000
    world.run("PING")  # its connection counts from now on
    run_housekeeping(world.server)
    for _ in range(5):
        one_done(world, "r" * 9_000)
        world.n.limits.memory_bytes = (world.n.used_bytes() - 5_000) * 100 // 75
        run_housekeeping(world.server)
        world.pass_ms(30_000)
    assert [line.split(":")[0] for line in own_lines(caplog)] == ["memory is short"]
    world.n.limits.memory_bytes = 0
    world.pass_ms(60_000)
    for _ in range(2):
        run_housekeeping(world.server)
    said = "memory was short: 5 results and details of dead letters were dropped"
    assert own_lines(caplog)[1:] == [said]


def test_results_go_before_jobs_are_refused(world: World) -> None:
    """M3.5 Policy `acks`, at level 1: before a job is refused, before each command and in each
    round of housekeeping results and details go as in M3.4 until the node is at level 0. If all of
    them together are too few for that, they stay until level 2. Bodies of dead letters never go for
    memory.
    """
    world.n.base_bytes = 1_000_000
    world.run("PING")  # its connection counts from now on
    run_housekeeping(world.server)
    letter = one_dead(world, "d" * 9_000)
    results = [one_done(world, "r" * 9_000) for _ in range(3)]
    world.n.limits.memory_bytes = (world.n.used_bytes() - 10_000) * 100 // 75
    assert world.run("ADDJOB", "q", "b", 0).startswith(b"D-")
    told = [fields(world.run("RESULT", one)) for one in results]
    assert [one["result"] for one in told] == [None, None, b"r" * 9_000]
    assert fields(world.run("DEAD", "SHOW", letter))["detail"] == b"d" * 9_000
    world.n.limits.memory_bytes = (world.n.used_bytes() - 12_000) * 100 // 75
    run_housekeeping(world.server)
    assert memory_level(world.n) == 0
    shown = fields(world.run("DEAD", "SHOW", letter))
    assert (shown["body"], shown["detail"]) == (b"the body", b"(dropped: memory was short)")
    kept = one_done(world, "r" * 1_000)
    fill(world, 90)
    run_housekeeping(world.server)
    assert world.run("ADDJOB", "q", "b", 0).startswith("OOM")
    assert fields(world.run("RESULT", kept))["result"] == b"r" * 1_000, "it would not help"
    fill(world, 98)
    world.run("PING")
    assert fields(world.run("RESULT", kept))["result"] is None
    assert world.run("DEBUG", "CHECK") == b"OK"


def test_results_go_before_a_copy_is_refused(make_world: Callable[..., World]) -> None:
    """M3.5 before a job is refused, before each command and in each round of housekeeping results
    and details go as in M3.4
    """
    world = make_world(2, journal="off")
    other = world.node(1).core
    kept = Outcome(b"x", DONE, 0, other.now_ms + 600_000)
    kept.result = b"r" * 9_000
    other.life.keep(kept, other.limits.results_bytes)
    other.limits.memory_bytes = (other.used_bytes() - 5_000) * 100 // 75
    id = world.at(0).add(replicate=2, timeout_ms=1000)
    assert id in other.jobs and kept.result is None


def test_awaited_results_stay(world: World) -> None:
    """M3.4 but none that a client waits for."""
    awaited, other = one_done(world, "r" * 9_000), world.add()
    waiter = world.wire()
    assert waiter("WAITJOB", 0, awaited, other, "COUNT", 2) is None
    results = [one_done(world, "r" * 9_000) for _ in range(2)]
    world.n.limits.memory_bytes = (world.n.used_bytes() - 10_000) * 100 // 75
    world.run("PING")
    told = [fields(world.run("RESULT", one))["result"] for one in (awaited, *results)]
    assert told == [b"r" * 9_000, None, None]


def test_full_of_letters_is_told(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """M2.6 If the node would be at level 0 without its dead letters, the errors of R1.5 and C3.5
    end with `: <n> MB are dead letters, replay or purge them, or raise maxmemory`, and so does
    the line of the log. If without its outcomes: `: <n> MB are kept outcomes, lower
    results-max-bytes or raise maxmemory`.
    """
    big = world.add(body="x" * 3_000_000, ATTEMPTS=1)
    world.get()
    world.run("FAIL", big, world.run("START", big)[0][0])
    words = "MB are dead letters, replay or purge them, or raise maxmemory"
    fill(world, 90)
    run_housekeeping(world.server)
    assert own_lines(caplog)[-1].endswith(
        "without its dead letters this node would take jobs, replay or purge them"
    )
    assert world.run("ADDJOB", "q", "b", 0).endswith(f"75 % of 'maxmemory': 3 {words}")
    fill(world, 110)
    assert world.run("ADDJOB", "q", "b", 0) == (
        f"OOM command not allowed when used memory > 'maxmemory': 3 {words}"
    )
    world.n.limits.memory_bytes = 0
    assert world.run("DEAD", "PURGE", "q.dead", "ALL")[1] == 1
    for _ in range(500):
        one_done(world, "small")
    fill(world, 90)
    assert world.run("ADDJOB", "q", "b", 0).endswith(
        "75 % of 'maxmemory': 1 MB are kept outcomes, lower results-max-bytes or raise maxmemory"
    )
    world.run("CONFIG", "SET", "results-max-bytes", 10_000)
    world.pass_ms(10)
    assert world.run("ADDJOB", "q", "b", 0).startswith(b"D-")


@pytest.mark.parametrize("room", ["either", "both"])
def test_full_of_letters_and_outcomes_is_told(world: World, room: str) -> None:
    """M2.6 If either would do, or only both together: `: <n> MB are dead letters and <m> MB kept
    outcomes, replay or purge the letters, lower results-max-bytes, or raise maxmemory`.
    """
    world.run("CONFIG", "SET", "maxmemory-policy", "noeviction")
    big = world.add(body="x" * 3_000_000, ATTEMPTS=1)
    world.get()
    world.run("FAIL", big, world.run("START", big)[0][0])
    for _ in range(4):
        one_done(world, "r" * 1_000_000)
    n = world.n
    spare = 1_000_000 if room == "either" else 5_000_000
    n.limits.memory_bytes = (n.used_bytes() - spare) * 4 // 3
    assert memory_level(n) == (1 if room == "either" else 3)
    error = "above 75 % of" if room == "either" else "OOM command not allowed"
    said = world.run("ADDJOB", "q", "b", 0)
    assert error in said and said.endswith(
        ": 3 MB are dead letters and 4 MB kept outcomes, replay or purge the letters, "
        "lower results-max-bytes, or raise maxmemory"
    )


def test_a_result_above_the_bound_drops_no_other(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """W7.4 A result that alone is larger drops no other: the job is done, and its outcome is
    kept without the result, with a reason about that. With KEEP the reply to DONE is then `-ERR
    the job is done, but its result of <n> bytes is not kept here: its outcome has <k> bytes with
    it, results-max-bytes is <m>`, and the log has a line.
    """
    world.run("CONFIG", "SET", "results-max-bytes", 10_000)
    kept = [one_done(world, "r" * 1_000) for _ in range(3)]
    large, brief = world.add(KEEP=60), world.add()
    world.get(count=2)
    assert world.run("DONE", large, "-", "RESULT", "x" * 10_000) == (
        "ERR the job is done, but its result of 10000 bytes is not kept here: its outcome has "
        "10340 bytes with it, results-max-bytes is 10000"
    )
    assert [fields(world.run("RESULT", one))["result"] for one in kept] == [b"r" * 1_000] * 3
    told = fields(world.run("RESULT", large))
    assert (told["state"], told["result"]) == (b"done", None)
    assert (
        told["reason"] == b"its result of 10000 bytes was dropped: too large for results-max-bytes"
    )
    assert world.run("DONE", large, "-", "RESULT", "x" * 10_000) == 0
    waiter = world.wire()
    assert waiter("RESULT", brief, "WAIT", 0) is None
    assert world.run("DONE", brief, "-", "RESULT", "x" * 10_000) == 1
    assert fields(waiter.take())["reason"].endswith(b"too large for results-max-bytes")
    run_housekeeping(world.server)
    assert own_lines(caplog)[-1].startswith("1 results were larger than results-max-bytes")
    assert "results_too_large:1\r" in world.run("INFO", "jobs").decode()
    assert world.run("DEBUG", "CHECK") == b"OK"


def test_a_letter_above_the_bound_drops_no_other(world: World) -> None:
    """W6.6 A letter that alone is larger drops no other and does not count with them; the next such
    one takes its place.
    """
    world.run("CONFIG", "SET", "dead-max-bytes", 20_000)
    small = [one_dead(world, "d" * 1_000) for _ in range(3)]
    giant = one_dead(world, "d" * 21_000)
    world.pass_ms(10)
    assert listed(world) == [*small, giant]
    after, other = one_dead(world, "d" * 1_000), one_dead(world, "d" * 22_000)
    assert listed(world) == [*small, after, other]
    newer = [one_dead(world, "d" * 8_000) for _ in range(2)]
    assert listed(world) == [after, other, *newer], "those below the bound keep to it"
    world.run("CONFIG", "SET", "dead-max-bytes", 30_000)
    world.pass_ms(10)
    assert listed(world) == [*newer], "it is no longer above the bound"
    assert world.run("DEBUG", "CHECK") == b"OK"


def listed(world: World) -> list[bytes]:
    """The dead letters, oldest first."""
    return [row[0] for row in world.run("DEAD", "LIST", "q.dead")[1]]


def test_a_flagged_job_that_is_done_has_the_reason(world: World) -> None:
    """W8.3 If that result is kept, the reason of the outcome is that of the CANCEL, or `cancelled`
    if it gave none: so who follows it can stop there.
    """
    ids = [world.add(KEEP=600, **TRIES) for _ in range(4)]
    world.get(count=4)
    runs = [start(world, id) for id in ids]
    world.run("CANCEL", "REASON", "enough", *ids[:2])
    world.run("CANCEL", ids[2])
    for id, run in zip(ids, runs, strict=True):
        words = () if id == ids[1] else ("RESULT", "yes")
        assert world.run("DONE", id, run, *words) == 1
    told = [fields(world.run("RESULT", id)) for id in ids]
    assert [one["state"] for one in told] == [b"done"] * 4
    assert [one["reason"] for one in told] == [b"enough", b"", b"cancelled", b""]
    world.run("DEBUG", "CHECK")
