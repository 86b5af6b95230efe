"""SPEC P: PAUSE."""

from __future__ import annotations

import pytest
from node_by_hand import NULL, Box, Status

from tuque.core.records.jobs import PAUSE
from tuque.core.records.read import Record, decode


def test_bad_word(box: Box) -> None:
    """P1.1 Any other word: `-ERR syntax error at '<word>': use PAUSE queue
    in|out|all|none|state|bcast ...` (C4.6), and nothing is applied."""
    assert box.run("PAUSE", "q", "in", "sideways") == (
        "ERR syntax error at 'sideways': use PAUSE queue in|out|all|none|state|bcast ..."
    )
    assert box.run("QSTAT", "q") is NULL


@pytest.mark.parametrize(
    ("words", "state"),
    [
        (["in"], "in"),
        (["out"], "out"),
        (["all"], "all"),
        (["in", "out"], "all"),
        (["IN", "none"], "none"),
        (["in", "none", "out"], "out"),
        (["none"], "none"),
        (["in", "bcast"], "in"),
        (["in", "state"], "in"),
    ],
)
def test_words_add_up(box: Box, words: list[str], state: str) -> None:
    """P1.2 each word adds to it, and `none` clears what was added so far. The result replaces the
    old state.
    """
    box.run("PAUSE", "q", "out")
    assert box.run("PAUSE", "q", *words) == state
    assert box.run("PAUSE", "q", "state") == state


def test_state_changes_nothing(box: Box) -> None:
    """P1.2 With only `state` and `bcast` the state stays."""
    box.run("PAUSE", "q", "out")
    assert box.run("PAUSE", "q", "state") == "out"
    assert box.run("PAUSE", "q", "state", "bcast") == "out"


def test_no_queue_for_nothing(box: Box) -> None:
    """P1.3 A queue that does not exist is created only if the result is not none."""
    assert box.run("PAUSE", "q", "none") == "none"
    assert box.run("PAUSE", "q", "state") == "none"
    assert box.run("QSTAT", "q") is NULL
    box.run("PAUSE", "q", "in")
    assert box.run("QSTAT", "q") is not NULL


def test_reply(box: Box) -> None:
    """P1.4 The reply is the resulting state, as a status: `none`, `in`, `out` or `all`."""
    reply = box.run("PAUSE", "q", "in", "out")
    assert isinstance(reply, Status)
    assert reply == "all"


def test_pause_is_recorded_and_kept(box: Box) -> None:
    """P1.5 The state is in the journal and survives a restart. A paused queue is never removed as
    idle.
    """
    assert box.n.records is not None
    box.run("PAUSE", "q", "in")
    record = Record()
    decode(box.n.records.take(), 0, record)
    assert (record.kind, record.queue, record.bits) == (PAUSE, b"q", 1)
    box.pass_ms(100_000_000)
    assert box.run("PAUSE", "q", "state") == "in"


def test_clearing_serves(box: Box) -> None:
    """P1.6 Clearing the output pause serves waiting clients (V3)."""
    ids = [box.add() for _ in range(3)]
    box.run("PAUSE", "q", "out")
    waiting = box.session()
    waiting("GETJOB", "COUNT", 2, "FROM", "q")
    assert waiting.take() is None
    box.run("PAUSE", "q", "in")
    assert [job[1] for job in waiting.take()] == ids[:2]


def test_what_in_stops(box: Box) -> None:
    """P2.1 A paused input stops ADDJOB (R1.7), DEADLETTER into the queue (Q10.1), the due time of
    ALO jobs (Q2.2) and schedules (T45.6). It does not stop ENQUEUE, NACK and imports in flight.
    """
    job_id = box.add(RETRY=5)
    box.run("PAUSE", "q", "in")
    assert box.run("ADDJOB", "q", "b", 0).startswith("PAUSED")
    assert box.run("DEADLETTER", job_id, "q").startswith("PAUSED")
    assert box.get() == [job_id]
    box.pass_ms(6_000)
    assert box.state(job_id) == "active"
    assert box.run("NACK", job_id) == 1
    box.get()
    assert box.run("ENQUEUE", job_id) == 1


def test_what_out_stops(box: Box) -> None:
    """P2.2 With a paused output GETJOB gets nothing from the queue, and waiting clients are not
    served. QPEEK, QLEN and SHOW are not affected.
    """
    waiting = box.session()
    waiting("GETJOB", "FROM", "q")
    box.run("PAUSE", "q", "out")
    job_id = box.add()
    assert waiting.take() is None
    assert box.get() == []
    assert box.qlen() == 1
    assert box.run("QPEEK", "q", 1) == [[b"q", job_id, b"body"]]
    assert box.state(job_id) == "queued"
