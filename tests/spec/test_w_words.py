"""SPEC W1.7: wrong words of the commands about work, and what is said about them."""

from __future__ import annotations

import pytest
from node_by_hand import Box

ID = "D-01234567-8YL1NT17e9+wsA/09NqxscQI-05a1"
RUN = "1.1.000000"
PAIRS = "takes an id and a run in turn"


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
        (("RESULT", ID, "FOR", "5"), "RESULT has no option 'FOR'"),
        (("UPDATEJOB", ID, "RETRY", "5"), "UPDATEJOB has no option 'RETRY'"),
        (("UPDATEJOB", ID, "BODY", "b", "headers"), "HEADERS needs a value"),
        (("UPDATEJOB", ID, "x" * 70, "5"), f"UPDATEJOB has no option '{'x' * 64}'"),
        (("DEAD", "BURY", "q.dead"), "DEAD takes LIST, SHOW, STAT, REPLAY or PURGE"),
        (("DEAD", "SHOW", ID, ID), "DEAD SHOW takes one id"),
        (("DEAD", "LIST", "q.dead", "RATE", "5"), "DEAD LIST has no option 'RATE'"),
        (("DEAD", "LIST", "q.dead", "COUNT"), "COUNT needs a value"),
        (("DEAD", "PURGE", "q.dead"), "DEAD PURGE takes a queue, and ALL, IDS or a filter"),
        (("DEAD", "REPLAY", "q.dead", "IDS"), "IDS needs an id"),
        (("DEAD", "REPLAY", "q.dead", "COUNT", "5"), "DEAD REPLAY needs ALL, IDS or a filter"),
        (("DEAD", "REPLAY", "q.dead", "ANY", "5"), "DEAD REPLAY has no option 'ANY'"),
    ],
)
def test_a_syntax_error_says_what_is_wrong(words: tuple[str, ...], error: str, box: Box) -> None:
    """W1.7 The commands of this chapter say what is wrong: `-ERR syntax error: <command> has no
    option '<word>'`, `-ERR syntax error: <option> needs a value`, or in such a form what is
    missing.
    """
    assert box.run(*words) == f"ERR syntax error: {error}"


def test_times_out_of_range_name_the_range(box: Box) -> None:
    """W1.7 KEEP, TIMELIMIT and DELAY out of range name the range."""
    keep = "ERR KEEP must be a number of seconds from 0 to 2147483647"
    limit = "ERR TIMELIMIT must be a number of seconds above 0, at most 2147483647"
    delay = "ERR DELAY time must be at most 2147483647 seconds"
    for bad in ("-1", "x", "2147483648", "9" * 12):
        assert box.run("ADDJOB", "q", "b", 0, "KEEP", bad) == keep
        assert box.run("ADDJOB", "q", "b", 0, "TIMELIMIT", bad) == limit
    for bad in ("2147483648", "9" * 12):
        for words in (
            ("ADDJOB", "q", "b", 0, "DELAY", bad),
            ("FAIL", ID, RUN, "DELAY", bad),
            ("RELEASE", "DELAY", bad, ID, RUN),
            ("UPDATEJOB", ID, "DELAY", bad),
        ):
            assert box.run(*words) == delay, words
    assert box.qlen() == 0
