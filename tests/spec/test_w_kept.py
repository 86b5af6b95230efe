"""SPEC M3, W6, W7: how much of results and dead letters is kept, and what goes when."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from node_by_hand import Box
from test_w_work import TRIES, fields, start

from own_log import own_lines
from tuque.core.model.work import DONE, Outcome
from tuque.core.queues.procedures import memory_level
from tuque.server.loop.housekeeping import keep_house
from world import World


def fill(box: Box, percent: int) -> None:
    """Set the limit so that what is used now is that part of it."""
    box.n.limits.memory_bytes = box.n.counted_bytes() * 100 // percent


def one_done(box: Box, result: str, keep_s: int = 60) -> bytes:
    """A job that is done with that result."""
    job_id = box.add(ATTEMPTS=1, KEEP=keep_s)
    box.get()
    box.run("DONE", job_id, "-", "RESULT", result)
    return job_id


def one_dead(box: Box, detail: str) -> bytes:
    """A dead letter with that detail."""
    job_id = box.add(body="the body", ATTEMPTS=1)
    box.get()
    box.run("FAIL", job_id, box.run("START", job_id)[0][0], "REASON", "why", "DETAIL", detail)
    return job_id


def test_results_and_details_are_dropped_last(box: Box) -> None:
    """M3.4 Results and details above 256 bytes are dropped, the oldest first, but none that a
    client waits for. The outcome stays `done`, with the reason `its result of <n> bytes was
    dropped: memory was short`; the dead letter stays with body and reason.
    """
    small, letter = one_done(box, "s" * 256), one_dead(box, "d" * 9_000)
    once = box.add("once", RETRY=0)
    box.get("once")
    results = [one_done(box, "r" * 9_000) for _ in range(3)]
    box.n.limits.memory_bytes = (box.n.used_bytes() - 10_000) * 100 // 95
    box.run("PING")
    assert box.state(once) == "gone", "what costs nothing goes first"
    told = [fields(box.run("RESULT", one)) for one in [small, *results]]
    assert [one["result"] for one in told] == [b"s" * 256, None, None, b"r" * 9_000]
    assert {one["state"] for one in told} == {b"done"}
    assert told[1]["reason"] == b"its result of 9000 bytes was dropped: memory was short"
    assert fields(box.run("DEAD", "SHOW", letter))["detail"] == b"d" * 9_000
    fill(box, 200)
    box.run("PING")
    shown = fields(box.run("DEAD", "SHOW", letter))
    assert shown["detail"] == b"(dropped: memory was short)"
    assert (shown["body"], shown["reason"]) == (b"the body", b"why")
    info = box.run("INFO", "jobs").decode()
    assert "results_emptied:3\r" in info and "dead_emptied:1\r" in info
    assert box.run("DEBUG", "CHECK") == "OK"


def test_no_detail_is_kept_at_level_3(box: Box) -> None:
    """M3.4 At level 3 a FAIL keeps no DETAIL above 256 bytes."""
    ids = [box.add(ATTEMPTS=3) for _ in range(2)]
    box.get(count=2)
    runs = [row[0] for row in box.run("START", *ids)]
    fill(box, 120)
    box.run("FAIL", ids[0], runs[0], "DETAIL", "d" * 256)
    box.run("FAIL", ids[1], runs[1], "DETAIL", "d" * 257)
    kept = [fields(box.run("RESULT", one))["detail"] for one in ids]
    assert kept == [b"d" * 256, b"(dropped: memory was short)"]


def test_a_detail_that_ends_a_wait_is_read(box: Box) -> None:
    """M3.4 At level 3 a FAIL keeps no DETAIL above 256 bytes, unless it ends a wait for the job."""
    ids = [box.add(ATTEMPTS=1), box.add(ATTEMPTS=2)]
    box.get(count=2)
    runs = [row[0] for row in box.run("START", *ids)]
    waiter, other = box.session(), box.session()
    assert waiter("RESULT", ids[0], "WAIT", 0) is None
    assert other("RESULT", ids[1], "WAIT", 0) is None
    fill(box, 120)
    for id, run in zip(ids, runs, strict=True):
        box.run("FAIL", id, run, "DETAIL", "d" * 9_000)
    assert fields(waiter.take())["detail"] == b"d" * 9_000
    dropped = b"(dropped: memory was short)"
    assert [fields(box.run("RESULT", id))["detail"] for id in ids] == [dropped, dropped]
    assert box.run("DEBUG", "CHECK") == "OK"


def test_failing_work_ends_at_the_limit(box: Box) -> None:
    """M2.4 What takes, does or ends work is accepted at every level, since it makes room"""
    ids = [box.add(ATTEMPTS=1, KEEP=60) for _ in range(200)]
    box.n.limits.memory_bytes = limit = box.n.used_bytes() + 60_000
    for at, job_id in enumerate(box.get(count=200)):
        run = box.run("START", job_id)[0][0]
        if at % 2:
            assert box.run("DONE", job_id, run, "RESULT", "r" * 5_000) == 1
        else:
            box.run("FAIL", job_id, run, "DETAIL", "d" * 5_000)
    box.run("PING")
    assert box.n.used_bytes() < limit
    states = [fields(box.run("RESULT", one))["state"] for one in ids]
    assert (states.count(b"done"), states.count(b"dead")) == (100, 100)


def test_levels_are_logged(box: Box, caplog: pytest.LogCaptureFixture) -> None:
    """M2.5 The log says when a level is reached, and when a lower one holds after 5 s, with what is
    used and by what.
    """
    caplog.set_level("INFO")
    one_done(box, "r" * 9_000)
    box.n.base_bytes = 1_000_000
    keep_house(box.server)
    for percent in (80, 900, 50, 80, 50):
        fill(box, percent)
        box.run("PING")
        keep_house(box.server)
    assert [line.split(":")[0] for line in own_lines(caplog)] == [
        "memory level 1",
        "memory level 3",
        "memory is short",
    ]
    assert "by results" in own_lines(caplog)[0] and "are used" in own_lines(caplog)[0]
    box.n.now_ms += 5_000
    keep_house(box.server)
    assert own_lines(caplog)[-1].startswith("memory level 0 again: ")
    assert "all is well" in own_lines(caplog)[-1]


def test_what_goes_for_memory_is_logged(box: Box, caplog: pytest.LogCaptureFixture) -> None:
    """M3.6 The log says when results and details begin to go, and how many they were when none has
    gone for 60 s.
    """
    caplog.set_level("INFO")
    box.n.base_bytes = 1_000_000
    keep_house(box.server)
    for _ in range(5):
        one_done(box, "r" * 9_000)
        box.n.limits.memory_bytes = (box.n.used_bytes() - 5_000) * 100 // 75
        keep_house(box.server)
        box.pass_ms(30_000)
    assert [line.split(":")[0] for line in own_lines(caplog)] == ["memory is short"]
    box.n.limits.memory_bytes = 0
    box.pass_ms(60_000)
    for _ in range(2):
        keep_house(box.server)
    said = "memory was short: 5 results and details of dead letters were dropped"
    assert own_lines(caplog)[1:] == [said]


def test_results_go_before_jobs_are_refused(box: Box) -> None:
    """M3.5 Policy `acks`, at level 1: before a job is refused, before each command and in each
    round of housekeeping results and details go as in M3.4 until the node is at level 0. If all of
    them together are too few for that, they stay until level 2. Bodies of dead letters never go for
    memory.
    """
    box.n.base_bytes = 1_000_000
    keep_house(box.server)
    letter = one_dead(box, "d" * 9_000)
    results = [one_done(box, "r" * 9_000) for _ in range(3)]
    box.n.limits.memory_bytes = (box.n.used_bytes() - 10_000) * 100 // 75
    assert box.run("ADDJOB", "q", "b", 0).startswith("D-")
    told = [fields(box.run("RESULT", one)) for one in results]
    assert [one["result"] for one in told] == [None, None, b"r" * 9_000]
    assert fields(box.run("DEAD", "SHOW", letter))["detail"] == b"d" * 9_000
    box.n.limits.memory_bytes = (box.n.used_bytes() - 12_000) * 100 // 75
    keep_house(box.server)
    assert memory_level(box.n) == 0
    shown = fields(box.run("DEAD", "SHOW", letter))
    assert (shown["body"], shown["detail"]) == (b"the body", b"(dropped: memory was short)")
    kept = one_done(box, "r" * 1_000)
    fill(box, 90)
    keep_house(box.server)
    assert box.run("ADDJOB", "q", "b", 0).startswith("OOM")
    assert fields(box.run("RESULT", kept))["result"] == b"r" * 1_000, "it would not help"
    fill(box, 98)
    box.run("PING")
    assert fields(box.run("RESULT", kept))["result"] is None
    assert box.run("DEBUG", "CHECK") == "OK"


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


def test_awaited_results_stay(box: Box) -> None:
    """M3.4 but none that a client waits for."""
    awaited, other = one_done(box, "r" * 9_000), box.add()
    waiter = box.session()
    assert waiter("WAITJOB", 0, awaited, other, "COUNT", 2) is None
    results = [one_done(box, "r" * 9_000) for _ in range(2)]
    box.n.limits.memory_bytes = (box.n.used_bytes() - 10_000) * 100 // 75
    box.run("PING")
    told = [fields(box.run("RESULT", one))["result"] for one in (awaited, *results)]
    assert told == [b"r" * 9_000, None, None]


def test_full_of_letters_is_told(box: Box, caplog: pytest.LogCaptureFixture) -> None:
    """M2.6 If the node would be at level 0 without its dead letters, the errors of R1.5 and C3.5
    end with `: <n> MB are dead letters, replay or purge them, or raise maxmemory`, and the log says
    so. If it would be without its outcomes: `: <n> MB are kept outcomes, lower results-max-bytes or
    raise maxmemory`.
    """
    big = box.add(body="x" * 3_000_000, ATTEMPTS=1)
    box.get()
    box.run("FAIL", big, box.run("START", big)[0][0])
    words = "MB are dead letters, replay or purge them, or raise maxmemory"
    fill(box, 90)
    keep_house(box.server)
    assert own_lines(caplog)[-1].endswith(
        "without its dead letters this node would take jobs, replay or purge them"
    )
    assert box.run("ADDJOB", "q", "b", 0).endswith(f"there is no other node: 3 {words}")
    fill(box, 110)
    assert box.run("ADDJOB", "q", "b", 0) == (
        f"OOM command not allowed when used memory > 'maxmemory': 3 {words}"
    )
    box.n.limits.memory_bytes = 0
    assert box.run("DEAD", "PURGE", "q.dead", "ALL")[1] == 1
    for _ in range(500):
        one_done(box, "small")
    fill(box, 90)
    assert box.run("ADDJOB", "q", "b", 0).endswith(
        "there is no other node: 1 MB are kept outcomes, lower results-max-bytes or raise maxmemory"
    )
    box.run("CONFIG", "SET", "results-max-bytes", 10_000)
    box.pass_ms(10)
    assert box.run("ADDJOB", "q", "b", 0).startswith("D-")


@pytest.mark.parametrize("room", ["either", "both"])
def test_full_of_letters_and_outcomes_is_told(box: Box, room: str) -> None:
    """M2.6 If either would do, or only both together: `: <n> MB are dead letters and <m> MB kept
    outcomes, replay or purge the letters, lower results-max-bytes, or raise maxmemory`.
    """
    box.run("CONFIG", "SET", "maxmemory-policy", "noeviction")
    big = box.add(body="x" * 3_000_000, ATTEMPTS=1)
    box.get()
    box.run("FAIL", big, box.run("START", big)[0][0])
    for _ in range(4):
        one_done(box, "r" * 1_000_000)
    n = box.n
    spare = 1_000_000 if room == "either" else 5_000_000
    n.limits.memory_bytes = (n.used_bytes() - spare) * 4 // 3
    assert memory_level(n) == (1 if room == "either" else 3)
    error = "there is no other node" if room == "either" else "OOM command not allowed"
    said = box.run("ADDJOB", "q", "b", 0)
    assert error in said and said.endswith(
        ": 3 MB are dead letters and 4 MB kept outcomes, replay or purge the letters, "
        "lower results-max-bytes, or raise maxmemory"
    )


def test_a_result_above_the_bound_drops_no_other(
    box: Box, caplog: pytest.LogCaptureFixture
) -> None:
    """W7.4 A result that alone is larger drops no other: the job is done, and its outcome is kept
    without the result, with a reason that says so. With KEEP the reply to DONE is then `-ERR the
    job is done, but its result of <n> bytes is not kept here: its outcome has <k> bytes with it,
    results-max-bytes is <m>`, and the log has a line.
    """
    box.run("CONFIG", "SET", "results-max-bytes", 10_000)
    kept = [one_done(box, "r" * 1_000) for _ in range(3)]
    large, brief = box.add(KEEP=60), box.add()
    box.get(count=2)
    assert box.run("DONE", large, "-", "RESULT", "x" * 10_000) == (
        "ERR the job is done, but its result of 10000 bytes is not kept here: its outcome has "
        "10300 bytes with it, results-max-bytes is 10000"
    )
    assert [fields(box.run("RESULT", one))["result"] for one in kept] == [b"r" * 1_000] * 3
    told = fields(box.run("RESULT", large))
    assert (told["state"], told["result"]) == (b"done", None)
    assert (
        told["reason"] == b"its result of 10000 bytes was dropped: too large for results-max-bytes"
    )
    assert box.run("DONE", large, "-", "RESULT", "x" * 10_000) == 0
    waiter = box.session()
    assert waiter("RESULT", brief, "WAIT", 0) is None
    assert box.run("DONE", brief, "-", "RESULT", "x" * 10_000) == 1
    assert fields(waiter.take())["reason"].endswith(b"too large for results-max-bytes")
    keep_house(box.server)
    assert own_lines(caplog)[-1].startswith("1 results were larger than results-max-bytes")
    assert "results_too_large:1\r" in box.run("INFO", "jobs").decode()
    assert box.run("DEBUG", "CHECK") == "OK"


def test_a_letter_above_the_bound_drops_no_other(box: Box) -> None:
    """W6.6 A letter that alone is larger drops no other and does not count with them; the next such
    one takes its place.
    """
    box.run("CONFIG", "SET", "dead-max-bytes", 20_000)
    small = [one_dead(box, "d" * 1_000) for _ in range(3)]
    giant = one_dead(box, "d" * 21_000)
    box.pass_ms(10)
    assert listed(box) == [*small, giant]
    after, other = one_dead(box, "d" * 1_000), one_dead(box, "d" * 22_000)
    assert listed(box) == [*small, after, other]
    newer = [one_dead(box, "d" * 8_000) for _ in range(2)]
    assert listed(box) == [after, other, *newer], "those below the bound keep to it"
    box.run("CONFIG", "SET", "dead-max-bytes", 30_000)
    box.pass_ms(10)
    assert listed(box) == [*newer], "it is no longer above the bound"
    assert box.run("DEBUG", "CHECK") == "OK"


def listed(box: Box) -> list[bytes]:
    """The dead letters, oldest first."""
    return [row[0] for row in box.run("DEAD", "LIST", "q.dead")[1]]


def test_a_flagged_job_that_is_done_has_the_reason(box: Box) -> None:
    """W8.3 If that result is kept, the reason of the outcome is that of the CANCEL, or `cancelled`
    if it gave none: so who follows it can stop there.
    """
    ids = [box.add(KEEP=600, **TRIES) for _ in range(4)]
    box.get(count=4)
    runs = [start(box, id) for id in ids]
    box.run("CANCEL", "REASON", "enough", *ids[:2])
    box.run("CANCEL", ids[2])
    for id, run in zip(ids, runs, strict=True):
        words = () if id == ids[1] else ("RESULT", "yes")
        assert box.run("DONE", id, run, *words) == 1
    told = [fields(box.run("RESULT", id)) for id in ids]
    assert [one["state"] for one in told] == [b"done"] * 4
    assert [one["reason"] for one in told] == [b"enough", b"", b"cancelled", b""]
    box.run("DEBUG", "CHECK")
