"""SPEC P: PAUSE."""

from __future__ import annotations

import pytest

from raw_resp import NULL
from tuque.core.msgs.records import PauseRow
from world import World
from world_wires import Status


def test_bad_word(world: World) -> None:
    """P1.1 Any other word: `-ERR syntax error at '<word>': use PAUSE queue
    in|out|all|none|state|bcast ...` (C4.6), and nothing is applied."""
    assert world.run("PAUSE", "q", "in", "sideways") == (
        "ERR syntax error at 'sideways': use PAUSE queue in|out|all|none|state|bcast ..."
    )
    assert world.run("QSTAT", "q") is NULL


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
def test_words_add_up(world: World, words: list[str], state: str) -> None:
    """P1.2 each word adds to it, and `none` clears what was added so far. The result replaces the
    old state.
    """
    world.run("PAUSE", "q", "out")
    assert world.run("PAUSE", "q", *words) == state.encode()
    assert world.run("PAUSE", "q", "state") == state.encode()


def test_state_changes_nothing(world: World) -> None:
    """P1.2 With only `state` and `bcast` the state stays."""
    world.run("PAUSE", "q", "out")
    assert world.run("PAUSE", "q", "state") == b"out"
    assert world.run("PAUSE", "q", "state", "bcast") == b"out"


def test_no_queue_for_nothing(world: World) -> None:
    """P1.3 A queue that does not exist is created only if the result is not none."""
    assert world.run("PAUSE", "q", "none") == b"none"
    assert world.run("PAUSE", "q", "state") == b"none"
    assert world.run("QSTAT", "q") is NULL
    world.run("PAUSE", "q", "in")
    assert world.run("QSTAT", "q") is not NULL


def test_reply(world: World) -> None:
    """P1.4 The reply is the resulting state, as a status: `none`, `in`, `out` or `all`."""
    reply = world.run("PAUSE", "q", "in", "out")
    assert isinstance(reply, Status)
    assert reply == b"all"


def test_pause_is_recorded_and_kept(world: World) -> None:
    """P1.5 The state is in the journal and survives a restart. A paused queue is never removed as
    idle.
    """
    world.node().records()
    world.run("PAUSE", "q", "in")
    (record,) = world.node().records()
    assert isinstance(record.row, PauseRow)
    assert (record.row.queue, record.row.bits) == (b"q", 1)
    assert world.qlen("other") == 0
    world.run("PAUSE", "other", "in")
    world.run("PAUSE", "other", "none")
    world.pass_ms(1_000_000)  # queue-idle-time is 300 s
    assert set(world.n.queues) == {b"q"}
    assert world.run("PAUSE", "q", "state") == b"in"


def test_clearing_serves(world: World) -> None:
    """P1.6 Clearing the output pause serves waiting clients (V3)."""
    ids = [world.add() for _ in range(3)]
    world.run("PAUSE", "q", "out")
    waiting = world.wire()
    waiting("GETJOB", "COUNT", 2, "FROM", "q")
    assert waiting.take() is None
    world.run("PAUSE", "q", "in")
    assert [job[1] for job in waiting.take()] == ids[:2]


def test_what_in_stops(world: World) -> None:
    """P2.1 A paused input stops ADDJOB (R1.7), DEADLETTER into the queue (Q10.1), the due time of
    ALO jobs (Q2.2) and schedules (T45.6). It does not stop ENQUEUE, NACK and imports in flight.
    """
    job_id = world.add(RETRY=5)
    world.run("PAUSE", "q", "in")
    assert world.run("ADDJOB", "q", "b", 0).startswith("PAUSED")
    assert world.run("DEADLETTER", job_id, "q").startswith("PAUSED")
    assert world.get() == [job_id]
    world.pass_ms(6_000)
    assert world.state(job_id) == "active"
    assert world.run("NACK", job_id) == 1
    world.get()
    assert world.run("ENQUEUE", job_id) == 1


def test_what_out_stops(world: World) -> None:
    """P2.2 With a paused output GETJOB gets nothing from the queue, and waiting clients are not
    served. QPEEK, QLEN and SHOW are not affected.
    """
    waiting = world.wire()
    waiting("GETJOB", "FROM", "q")
    world.run("PAUSE", "q", "out")
    job_id = world.add()
    assert waiting.take() is None
    assert world.get() == []
    assert world.qlen() == 1
    assert world.run("QPEEK", "q", 1) == [[b"q", job_id, b"body"]]
    assert world.state(job_id) == "queued"
