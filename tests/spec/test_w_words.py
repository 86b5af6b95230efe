"""SPEC W1.7: wrong words of the commands about work, and what is said about them."""

from __future__ import annotations

import pytest

from world import World

ID = "D-01234567-8YL1NT17e9+wsA/09NqxscQI-05a1"
RUN = "1.1.000000"
PAIRS = "takes an id and a run in turn"


@pytest.mark.parametrize(
    ("word", "reply"),
    [("DONE", 0), ("RELEASE", 0), ("START", []), ("CANCEL", []), ("ACKJOB", 0), ("NACK", 0)],
)
def test_commands_about_nothing(word: str, reply: object, world: World) -> None:
    """W1.8 DONE, RELEASE, START and CANCEL without a further word reply as ACKJOB does then: 0,
    or an empty array.
    """
    assert world.run(word) == reply
    assert world.run(word.lower()) == reply


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("START", "WORKER", "w"), "START WORKER needs a name, and an id"),
        (("RELEASE", ID, RUN, ID), f"RELEASE {PAIRS}"),
        (("release", "DELAY", "5"), f"RELEASE {PAIRS}"),
        (("DONE", ID, RUN, ID), f"DONE {PAIRS}"),
        (("DONE", ID, RUN, "result"), "RESULT needs a value"),
        (("FAIL", ID, RUN, "WHY", "no"), "FAIL has no option 'WHY'"),
        (("FAIL", ID, RUN, "final", "REASON"), "REASON needs a value"),
        (("FAIL", ID, RUN, "why"), "FAIL has no option 'why'"),
        (("CANCEL", "REASON", ID), "CANCEL REASON needs a text, and an id"),
        (("RESULT", ID, "WAIT"), "WAIT needs a value"),
        (("RESULT", ID, "WAIT", "5", "WAIT", "6"), "WAIT is there twice"),
        (("RESULT", ID, "FOR", "5"), "RESULT has no option 'FOR'"),
        (("UPDATEJOB", ID, "RETRY", "5"), "UPDATEJOB has no option 'RETRY'"),
        (("UPDATEJOB", ID, "BODY", "b", "headers"), "HEADERS needs a value"),
        (("UPDATEJOB", ID, "x" * 70, "5"), f"UPDATEJOB has no option '{'x' * 64}'"),
        (("UPDATEJOB", ID, "FOO"), "UPDATEJOB has no option 'FOO'"),
        (("UPDATEJOB", ID, "delay"), "DELAY needs a value"),
        (("UPDATEJOB", ID, "TTL", "5", "ttl", "6"), "TTL is there twice"),
        (("START", "WORKER", "w", "worker", "v", ID), "WORKER is there twice"),
        (("RELEASE", "DELAY", "5", "delay", "6", ID, RUN), "DELAY is there twice"),
        (("FAIL", ID, RUN, "FINAL", "REASON", "a", "reason", "b"), "REASON is there twice"),
        (("FAIL", ID, RUN, "FINAL", "final"), "FINAL is there twice"),
        (("CANCEL", "REASON", "a", "reason", "b", ID), "REASON is there twice"),
        (("DONE", ID, RUN, "RESULT", "a", "result", "b"), "RESULT is there twice"),
        (("DONE", ID, RUN, "RESULT", "a", ID, RUN), "DONE with RESULT takes one id and its run"),
        (("DONE", ID, RUN, ID, RUN, "RESULT", "a"), "DONE with RESULT takes one id and its run"),
        (("WAITJOB", "5", ID, "COUNT", "1", "count", "1"), "COUNT is there twice"),
        (("DEAD", "BURY", "q.dead"), "DEAD takes LIST, SHOW, STAT, REPLAY, PURGE or HELP"),
        (("DEAD", "SHOW", ID, ID), "DEAD SHOW takes one id"),
        (("DEAD", "LIST", "q.dead", "RATE", "5"), "DEAD LIST has no option 'RATE'"),
        (("DEAD", "LIST", "q.dead", "COUNT"), "COUNT needs a value"),
        (("DEAD", "PURGE", "q.dead"), "DEAD PURGE takes a queue, and ALL, IDS or a filter"),
        (("DEAD", "REPLAY", "q.dead", "IDS"), "IDS needs an id"),
        (("DEAD", "REPLAY", "q.dead", "COUNT", "5"), "DEAD REPLAY needs ALL, IDS or a filter"),
        (("DEAD", "REPLAY", "q.dead", "ANY", "5"), "DEAD REPLAY has no option 'ANY'"),
    ],
)
def test_a_syntax_error_says_what_is_wrong(
    words: tuple[str, ...], error: str, world: World
) -> None:
    """W1.7 Errors of the commands of W begin with `-ERR syntax error: `; then `<command> has no
    option '<word>'`, `<option> needs a value`, `<option> is there twice`, or in such a form what
    is missing.
    """
    assert world.run(*words) == f"ERR syntax error: {error}"


def test_an_option_out_of_its_range_names_range_and_value(world: World) -> None:
    """W1.7 An option out of its range names the range and the value (R1.11), also TTL, ATTEMPTS
    and PRI; BACKOFF what it takes, and its three values.
    """
    seconds = "must be a number of seconds from 0 to 2147483647"
    limit = "ERR TIMELIMIT must be a number of seconds above 0, at most 2147483647"
    for bad in ("-1", "x", "2147483648", "9" * 12):
        assert world.run("ADDJOB", "q", "b", 0, "KEEP", bad) == f"ERR KEEP {seconds}, not '{bad}'"
        assert world.run("ADDJOB", "q", "b", 0, "TIMELIMIT", bad) == f"{limit}, not '{bad}'"
        assert world.run("UPDATEJOB", ID, "TTL", bad) == f"ERR TTL {seconds}, not '{bad}'"
        for words in (
            ("ADDJOB", "q", "b", 0, "DELAY", bad),
            ("FAIL", ID, RUN, "DELAY", bad),
            ("RELEASE", "DELAY", bad, ID, RUN),
            ("UPDATEJOB", ID, "DELAY", bad),
        ):
            assert world.run(*words) == f"ERR DELAY {seconds}, not '{bad}'", words
    for words in (("ADDJOB", "q", "b", 0), ("UPDATEJOB", ID)):
        attempts = world.run(*words, "ATTEMPTS", 65_536)
        assert attempts == "ERR ATTEMPTS must be a number from 1 to 65535, not '65536'"
        pri = "ERR PRI must be a number from 0 to 4503599627370496, not '-1'"
        assert world.run(*words, "PRI", -1) == pri
    takes = "ERR BACKOFF takes first, max (seconds, first <= max) and jitter (0 to 1)"
    assert world.run("ADDJOB", "q", "b", 0, "BACKOFF", 2, 1, 0) == f"{takes}, not '2 1 0'"
    assert world.run("ADDJOB", "q", "b", 0, "BACKOFF", 1, "x", 0) == f"{takes}, not '1 x 0'"
    assert world.run("ADDJOB", "q", "b", 0, "BACKOFF", 1, 2) == takes
    assert world.qlen() == 0


def test_waitjob_takes_500_ids(world: World) -> None:
    """W9.2 At most 500 ids: `-ERR too many ids for 'waitjob': at most 500`."""
    wire = world.wire()
    for count, more in ((500, ()), (500, ("COUNT", 500)), (501, ()), (501, ("COUNT", 1))):
        ids = [f"D-c0ffee00-{'x' * 19}{number:05d}-05a1" for number in range(count)]
        reply = wire("WAITJOB", 1_000, *ids, *more)
        if count == 500:
            assert len(reply) == 500 and reply[0][1] == b"gone"
        else:
            assert str(reply).startswith("ERR too many"), more
        if count == 501 and not more:
            assert str(reply) == "ERR too many ids for 'waitjob': at most 500"
