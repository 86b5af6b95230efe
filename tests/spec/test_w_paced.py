"""SPEC W12: dead letters that are replayed at a rate."""

from __future__ import annotations

from typing import Any

import pytest
from node_by_hand import Box, Err, Session
from test_w_work import start

from tuque.server.replies.long_commands import next_chore_ms, run_chores
from world import World


def bury(box: Box, count: int, reason: str = "a") -> list[bytes]:
    """So many dead letters in q.dead."""
    ids = [box.add(ATTEMPTS=3) for _ in range(count)]
    box.get(count=count)
    for id in ids:
        box.run("FAIL", id, start(box, id), "FINAL", "REASON", reason)
    return ids


def replayed_in(box: Box, ms: int) -> int:
    """How many letters are replayed in that time."""
    before = int(box.n.life.replayed)
    until_ms = box.n.now_ms + ms
    while next_chore_ms(box.server) <= until_ms:
        box.n.now_ms = max(box.n.now_ms, next_chore_ms(box.server))
        run_chores(box.server)
        box.n.work = 0
    box.n.now_ms = until_ms
    return int(box.n.life.replayed) - before


def told(session: Session) -> Any:
    """The reply of a command that waited, None if there is none yet."""
    return session.take() if session.c.out else None


def replay(box: Box, *words: str | bytes | int) -> Session:
    """DEAD REPLAY q.dead by a client of its own, which waits."""
    session = box.session()
    assert session("DEAD", "REPLAY", "q.dead", *words) is None
    run_chores(box.server)
    box.n.work = 0
    return session


def test_rate(box: Box) -> None:
    """W12.7 With RATE n (1..1,000,000) REPLAY queues at most n letters a second, one each 1/n s
    or some each 10 ms; a slice that is late makes up for 50 ms at most. The reply comes when it has
    queued all, and if letters are left for another call, when the next one may follow.
    """
    bury(box, 2, "b")
    ids = bury(box, 25)
    session = replay(box, "RATE", 10, "REASON", "a")
    assert box.n.life.replayed == 1, "the first one at once"
    assert [replayed_in(box, 100) for _ in range(9)] == [1] * 9
    assert replayed_in(box, 1_000) == 10 and told(session) is None
    assert replayed_in(box, 1_000) == 5
    assert told(session) == [b"0", 25, 27]
    assert box.get(count=100) == ids and box.qlen("q.dead") == 2
    fast = bury(box, 900)
    session = replay(box, "RATE", 2_000, "ALL")
    assert 200 <= replayed_in(box, 100) <= 201
    box.jump_ms(500)  # the node was stopped
    assert replayed_in(box, 10) <= 140
    assert replayed_in(box, 1_000) > 500 and told(session)[:2] == [b"0", len(fast) + 2]
    for rate in (0, 1_000_001, "x"):
        assert "RATE" in box.run("DEAD", "REPLAY", "q.dead", "RATE", rate, "ALL")
    assert box.run("DEAD", "PURGE", "q.dead", "RATE", 1, "ALL") == (
        "ERR syntax error: RATE is an option of DEAD REPLAY"
    )


def test_repeated_calls_keep_the_rate(box: Box) -> None:
    """W12.7 The reply comes when it has queued all, and if letters are left for another call, when
    the next one may follow.
    """
    bury(box, 7)
    cursor, began_ms = b"0", box.n.now_ms
    ends: list[int] = []
    for _ in range(3):
        session = box.session()
        session("DEAD", "REPLAY", "q.dead", "RATE", 3, "CURSOR", cursor, "COUNT", 3, "ALL")
        while session.c.is_blocked:
            box.n.now_ms = max(box.n.now_ms, min(next_chore_ms(box.server), box.n.now_ms + 10))
            box.n.work = 0
            run_chores(box.server)
        cursor = session.take()[0] if session.c.out else b"0"
        ends.append(int(box.n.now_ms - began_ms))
    assert box.n.life.replayed == 7
    assert 1_000 <= ends[0] <= 1_020 and 2_000 <= ends[1] == ends[2] <= 2_040


def test_what_is_not_queued_yet_stays(box: Box) -> None:
    """W12.7 If the client disconnects or stops sending (it may be half closed), what is not queued
    yet stays dead.
    """
    ids = bury(box, 5)
    session = replay(box, "RATE", 1, "IDS", *ids)
    assert replayed_in(box, 1_500) == 1
    box.server.unblock(session.c)
    session.c.is_closed = True
    assert replayed_in(box, 5_000) == 0
    assert box.qlen("q.dead") == 3 and not box.server.chores and not box.server.resting


def test_a_client_that_stops_sending_stops_it(world: World) -> None:
    """W12.7 If the client disconnects or stops sending (it may be half closed), what is not queued
    yet stays dead.
    """
    wire = world.wire()
    for _ in range(3):
        id = wire("ADDJOB", "q", "b", 0, "ATTEMPTS", 1)
        assert wire("GETJOB", "FROM", "q")[0][1] == id
        (run,) = wire("START", id)
        assert wire("FAIL", id, run[0]) == [b"dead", b"q.dead"]
    assert wire("DEAD", "REPLAY", "q.dead", "RATE", 1, "ALL") is None
    assert len(world.server.resting) == 1
    wire.stop_writing()
    assert not wire.is_open() and not world.server.clients
    assert world.n.life.replayed == 1


def test_a_letter_that_goes_meanwhile(box: Box) -> None:
    """One that was purged, or replayed and died again, is left out (W12.7)."""
    ids = bury(box, 4)
    session = replay(box, "RATE", 1, "ALL")
    box.run("DEAD", "PURGE", "q.dead", "IDS", ids[1])
    box.run("DEAD", "REPLAY", "q.dead", "IDS", ids[2])
    box.get(count=9)
    box.run("FAIL", ids[2], start(box, ids[2]), "FINAL")
    assert replayed_in(box, 900) == 0
    assert replayed_in(box, 5_000) == 1 and box.qlen("q.dead") == 1
    cursor, done, seen = told(session)
    assert (done, seen) == (2, 4) and cursor != b"0", "a later letter is there"
    assert [row[0] for row in box.run("DEAD", "LIST", "q.dead")[1]] == [ids[2]]


@pytest.mark.long
def test_costly_globs_end_a_page_early(box: Box) -> None:
    """W12.9 LIST, REPLAY and PURGE look at fewer letters than COUNT when comparing with the globs
    has taken the work of a turn (L2.2); the cursor then stands after the last one seen.
    """
    bury(box, 300, "a" * 400)
    glob = "*" + "?a" * 60 + "b*"
    cursor, pages, seen = b"0", 0, 0
    while pages == 0 or cursor != b"0":
        cursor, done, looked = box.run("DEAD", "PURGE", "q.dead", "CURSOR", cursor, "REASON", glob)
        pages, seen = pages + 1, seen + looked
        assert done == 0
    assert seen == 300 and pages > 5
    cursor, rows = box.run("DEAD", "LIST", "q.dead", 0, "COUNT", 1000, "REASON", glob)
    assert cursor != b"0" and rows == []
    cursor, rows = box.run("DEAD", "LIST", "q.dead", 0, "COUNT", 1000, "REASON", "*aaa*")
    assert cursor == b"0" and len(rows) == 300
    told = Err("ERR a pattern has at most 128 characters")
    assert box.run("DEAD", "PURGE", "q.dead", "TASK", "x" * 129) == told  # W12.8
