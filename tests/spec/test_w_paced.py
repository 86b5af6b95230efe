"""SPEC W12: dead letters that are replayed at a rate."""

from __future__ import annotations

import pytest
from test_w_work import start

from raw_resp import Err
from world import World
from world_wires import Wire


def bury(world: World, count: int, reason: str = "a") -> list[bytes]:
    """So many dead letters in q.dead."""
    ids = [world.add(ATTEMPTS=3) for _ in range(count)]
    world.get(count=count)
    for id in ids:
        world.run("FAIL", id, start(world, id), "FINAL", "REASON", reason)
    return ids


def replayed_in(world: World, ms: int) -> int:
    """How many letters are replayed in that time."""
    before = int(world.n.life.replayed)
    world.pass_ms(ms)
    return int(world.n.life.replayed) - before


def replay(world: World, *words: str | bytes | int) -> Wire:
    """DEAD REPLAY q.dead by a client of its own, which waits."""
    wire = world.wire()
    assert wire("DEAD", "REPLAY", "q.dead", *words) is None
    return wire


def test_rate(world: World) -> None:
    """W12.7 With RATE n (1..1,000,000) REPLAY queues at most n letters a second, one each 1/n s
    or some each 10 ms; a slice that is late makes up for 50 ms at most. The reply comes when it has
    queued all, and if letters are left for another call, when the next one may follow.
    """
    bury(world, 2, "b")
    ids = bury(world, 25)
    wire = replay(world, "RATE", 10, "REASON", "a")
    assert world.n.life.replayed == 1, "the first one at once"
    assert [replayed_in(world, 100) for _ in range(9)] == [1] * 9
    assert replayed_in(world, 1_000) == 10 and wire.take() is None
    assert replayed_in(world, 1_000) == 5
    assert wire.take() == [b"0", 25, 27]
    assert world.get(count=100) == ids and world.qlen("q.dead") == 2
    fast = bury(world, 900)
    wire = replay(world, "RATE", 2_000, "ALL")
    assert 200 <= replayed_in(world, 100) <= 201
    world.jump_ms(500)  # the node was stopped
    assert replayed_in(world, 10) <= 140
    assert replayed_in(world, 1_000) > 500 and wire.take()[:2] == [b"0", len(fast) + 2]
    for rate in (0, 1_000_001, "x"):
        assert "RATE" in world.run("DEAD", "REPLAY", "q.dead", "RATE", rate, "ALL")
    assert world.run("DEAD", "PURGE", "q.dead", "RATE", 1, "ALL") == (
        "ERR syntax error: RATE is an option of DEAD REPLAY"
    )


def test_repeated_calls_keep_the_rate(world: World) -> None:
    """W12.7 The reply comes when it has queued all, and if letters are left for another call, when
    the next one may follow.
    """
    bury(world, 7)
    cursor, began_ms = b"0", world.now_ms
    ends: list[int] = []
    for _ in range(3):
        wire = world.wire()
        wire.send("DEAD", "REPLAY", "q.dead", "RATE", 3, "CURSOR", cursor, "COUNT", 3, "ALL")
        cursor = wire.read()[0]
        ends.append(world.now_ms - began_ms)
    assert world.n.life.replayed == 7
    assert 1_000 <= ends[0] <= 1_020 and 2_000 <= ends[1] == ends[2] <= 2_040


def test_what_is_not_queued_yet_stays(world: World) -> None:
    """W12.7 If the client disconnects or stops sending (it may be half closed), what is not queued
    yet stays dead.
    """
    ids = bury(world, 5)
    wire = replay(world, "RATE", 1, "IDS", *ids)
    assert replayed_in(world, 1_500) == 1
    wire.close()
    assert replayed_in(world, 5_000) == 0
    assert world.qlen("q.dead") == 3 and not world.server.long_commands and not world.server.resting


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


def test_a_letter_that_goes_meanwhile(world: World) -> None:
    """One that was purged, or replayed and died again, is left out (W12.7)."""
    ids = bury(world, 4)
    wire = replay(world, "RATE", 1, "ALL")
    world.run("DEAD", "PURGE", "q.dead", "IDS", ids[1])
    world.run("DEAD", "REPLAY", "q.dead", "IDS", ids[2])
    world.get(count=9)
    world.run("FAIL", ids[2], start(world, ids[2]), "FINAL")
    assert replayed_in(world, 900) == 0
    assert replayed_in(world, 5_000) == 1 and world.qlen("q.dead") == 1
    cursor, done, seen = wire.take()
    assert (done, seen) == (2, 4) and cursor != b"0", "a later letter is there"
    assert [row[0] for row in world.run("DEAD", "LIST", "q.dead")[1]] == [ids[2]]


@pytest.mark.long
def test_costly_globs_end_a_page_early(world: World) -> None:
    """W12.9 LIST, REPLAY and PURGE look at fewer letters than COUNT when comparing with the
    globs has taken the work of a turn (L2.2); the cursor is then after the last one seen.
    """
    bury(world, 300, "a" * 400)
    glob = "*" + "?a" * 60 + "b*"
    cursor, pages, seen = b"0", 0, 0
    while pages == 0 or cursor != b"0":
        cursor, done, looked = world.run(
            "DEAD", "PURGE", "q.dead", "CURSOR", cursor, "REASON", glob
        )
        pages, seen = pages + 1, seen + looked
        assert done == 0
    assert seen == 300 and pages > 5
    cursor, rows = world.run("DEAD", "LIST", "q.dead", 0, "COUNT", 1000, "REASON", glob)
    assert cursor != b"0" and rows == []
    cursor, rows = world.run("DEAD", "LIST", "q.dead", 0, "COUNT", 1000, "REASON", "*aaa*")
    assert cursor == b"0" and len(rows) == 300
    told = Err("ERR a pattern has at most 128 characters")
    assert world.run("DEAD", "PURGE", "q.dead", "TASK", "x" * 129) == told  # W12.8
