"""SPEC W3.3, W5.6: the time limit of a run, and the causes of failures."""

from __future__ import annotations

from node_by_hand import Box, Err
from test_w_work import fields, start

OVER_LIMIT = b"ran longer than its time limit of %s s"


def test_time_limit(box: Box) -> None:
    """W3.3 A run that lasts longer than TIMELIMIT fails with the cause `timeout` and the reason
    `ran longer than its time limit of <n> s`, whether a timer or a late FAIL ends it.
    """
    id = box.add(RETRY=2, TIMELIMIT=5, ATTEMPTS=1)
    box.get()
    run = start(box, id)
    for _ in range(4):
        box.pass_ms(1_000)
        assert box.run("WORKING", id, run) == 2
    box.pass_ms(1_100)
    letter = fields(box.run("DEAD", "SHOW", id))
    assert (letter["cause"], letter["reason"]) == (b"timeout", OVER_LIMIT % b"5")
    late = "TOOLATE The run is over its TIMELIMIT of 5 s"
    for words in (("WORKING", id, run), ("PROGRESS", id, run, "x"), ("FAIL", id, run)):
        assert str(box.run(*words)) == late
    box.run("DEAD", "REPLAY", "q.dead", "ALL")
    assert str(box.run("FAIL", id, run)).startswith("STALE")


def test_a_late_fail_is_a_timeout(box: Box) -> None:
    """
    W3.3 From then on WORKING and PROGRESS of it get `-TOOLATE The run is over its TIMELIMIT of
    <n> s`, until another run begins; so does FAIL, once it has failed.

    W5.6 The cause of the failure is `failed`, or the word after CAUSE: `failed`, `crashed` or
    `timeout`. A worker that ends a run at its own time limit says `timeout`. Another word: `-ERR
    CAUSE must be failed, crashed or timeout, not '<word>'`.
    """
    id = box.run("ADDJOB", "q", "b", 0, *"RETRY 20 TIMELIMIT 0.25 ATTEMPTS 9".split()).encode()
    box.get()
    run = start(box, id)
    box.n.now_ms += 250  # no timer has run
    assert str(box.run("WORKING", id, run)).startswith("TOOLATE")
    words = ("REASON", "no", "DETAIL", "trace", "DELAY", 0)
    assert box.run("FAIL", id, run, *words) == [b"retry", 0]
    shown = fields(box.run("RESULT", id))
    assert (shown["cause"], shown["reason"]) == (b"timeout", OVER_LIMIT % b"0.25")
    assert shown["detail"] == b"trace"
    assert str(box.run("FAIL", id, run)) == "TOOLATE The run is over its TIMELIMIT of 0.25 s"
    box.get()
    again = start(box, id)
    assert str(box.run("WORKING", id, run)).startswith("STALE")
    for cause in ("timeout", "crashed", "failed"):
        assert box.run("FAIL", id, again, "CAUSE", cause, "DELAY", 0)[0] == b"retry"
        assert fields(box.run("RESULT", id))["cause"] == cause.encode()
        box.get()
        again = start(box, id)
    assert box.run("FAIL", id, again, "CAUSE", "expired") == Err(
        "ERR CAUSE must be failed, crashed or timeout, not 'expired'"
    )
