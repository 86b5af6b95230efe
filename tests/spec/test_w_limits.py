"""SPEC W3.3, W5.6: the time limit of a run, and the causes of failures."""

from __future__ import annotations

from test_w_work import fields, start

from raw_resp import Err
from world import World

OVER_LIMIT = b"ran longer than its time limit of %s s"


def test_time_limit(world: World) -> None:
    """W3.3 A run that lasts longer than TIMELIMIT fails with the cause `timeout` and the reason
    `ran longer than its time limit of <n> s`, whether a timer or a late FAIL ends it.
    """
    id = world.add(RETRY=2, TIMELIMIT=5, ATTEMPTS=1)
    world.get()
    run = start(world, id)
    for _ in range(4):
        world.pass_ms(1_000)
        assert world.run("WORKING", id, run) == 2
    world.pass_ms(1_100)
    letter = fields(world.run("DEAD", "SHOW", id))
    assert (letter["cause"], letter["reason"]) == (b"timeout", OVER_LIMIT % b"5")
    late = "TOOLATE The run is over its TIMELIMIT of 5 s"
    for words in (("WORKING", id, run), ("PROGRESS", id, run, "x"), ("FAIL", id, run)):
        assert str(world.run(*words)) == late
    world.run("DEAD", "REPLAY", "q.dead", "ALL")
    assert str(world.run("FAIL", id, run)).startswith("STALE")


def test_a_late_fail_is_a_timeout(world: World) -> None:
    """
    W3.3 From then on WORKING and PROGRESS of it get `-TOOLATE The run is over its TIMELIMIT of
    <n> s`, until another run begins; so does FAIL, once it has failed.

    W5.6 The cause of the failure is `failed`, or the word after CAUSE: `failed`, `crashed` or
    `timeout`. A worker that ends a run at its own time limit sends `timeout`. Another word:
    `-ERR CAUSE must be failed, crashed or timeout, not '<word>'`.
    """
    id = world.run("ADDJOB", "q", "b", 0, *"RETRY 20 TIMELIMIT 0.25 ATTEMPTS 9".split())
    world.get()
    run = start(world, id)
    world.jump_ms(250)  # no timer has run
    assert str(world.run("WORKING", id, run)).startswith("TOOLATE")
    words = ("REASON", "no", "DETAIL", "trace", "DELAY", 0)
    assert world.run("FAIL", id, run, *words) == [b"retry", 0]
    shown = fields(world.run("RESULT", id))
    assert (shown["cause"], shown["reason"]) == (b"timeout", OVER_LIMIT % b"0.25")
    assert shown["detail"] == b"trace"
    assert str(world.run("FAIL", id, run)) == "TOOLATE The run is over its TIMELIMIT of 0.25 s"
    world.get()
    again = start(world, id)
    assert str(world.run("WORKING", id, run)).startswith("STALE")
    for cause in ("timeout", "crashed", "failed"):
        assert world.run("FAIL", id, again, "CAUSE", cause, "DELAY", 0)[0] == b"retry"
        assert fields(world.run("RESULT", id))["cause"] == cause.encode()
        world.get()
        again = start(world, id)
    assert world.run("FAIL", id, again, "CAUSE", "expired") == Err(
        "ERR CAUSE must be failed, crashed or timeout, not 'expired'"
    )
