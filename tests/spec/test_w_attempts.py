"""SPEC W18: attempts of a job, and what an outcome keeps of it."""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations
from typing import Any

import pytest
from test_w_away import MAKER, made_there
from test_w_dropped import linked
from test_w_work import fields, start

from raw_resp import Err
from tuque.core.dispatch.messages import on_message
from tuque.core.life.shown import WITH_BODY
from tuque.core.model.attempts import (
    DETAIL_MAX,
    KEPT,
    ROW_MAX,
    Attempt,
    are_attempts,
    attempts_of,
    merged,
    with_attempt,
)
from tuque.core.msgs.bus import JobTold, MoreAt
from tuque.core.queues.procedures import check
from world import World

Make = Callable[..., World]
WORDS = {"ATTEMPTS": 40, "BACKOFF": "0 0 0", "RETRY": 10}
ROW = "attempt run worker began_ms ended_ms state reason detail".split()


def add(world: World, *words: str | int, queue: str = "q") -> bytes:
    """A job with its terms; it has a header."""
    terms = ["ATTEMPTS", 40, "BACKOFF", 0, 0, 0, "RETRY", 10, *words, "HEADERS", 1, "k", "v"]
    made: bytes = world.run("ADDJOB", queue, "the body", 5_000, *terms)
    assert isinstance(made, bytes), made
    return made


def fail(world: World, id: bytes, reason: str, detail: str = "", worker: str = "w1") -> bytes:
    """A run that lasts a second, and fails; its token."""
    world.until(lambda: bool(world.get("q")))
    run = start(world, id, worker)
    world.pass_ms(1_000)
    assert isinstance(world.run("FAIL", id, run, "REASON", reason, "DETAIL", detail), list)
    return run


def tried(world: World, id: bytes, i: int = 0) -> list[dict[str, Any]]:
    """The attempts that RESULT shows, oldest first."""
    shown = fields(world.at(i).ask("RESULT", id, "WITHATTEMPTS"))
    return [dict(zip(ROW, row, strict=True)) for row in shown["attempts"]]


@pytest.mark.parametrize("kind", ["queue", "tube"])
def test_each_attempt_is_shown(world: World, kind: str) -> None:
    """W18.1 The work of a job has a row of the runs that failed, were silent, over their time limit
    or cancelled. RELEASE and NACK leave none, DEAD REPLAY keeps the row.

    W18.6 WITHATTEMPTS adds `attempts`, the oldest first (W18.2): rows of attempt, run, worker,
    began-ms, ended-ms, state, reason, detail.
    """
    if kind == "tube":
        world.run("TUBE", "CREATE", "q", "tasks", "TTR", 10)
    id = add(world, "KEEP", 60, "BODY", "TIMELIMIT", 30)
    assert tried(world, id) == []
    begun_ms = world.n.now_ms
    failed = fail(world, id, "no luck", "trace")
    world.get("q")
    world.run("RELEASE", id, start(world, id, "gives it back"))
    world.get("q")
    start(world, id, "silent")
    world.pass_ms(10_200)
    world.until(lambda: bool(world.get("q")))
    slow = start(world, id, "slow")
    for _ in range(4):
        world.pass_ms(8_000)
        world.run("WORKING", id, slow)
    world.until(lambda: bool(world.get("q")))
    last = start(world, id, "w2")
    rows = tried(world, id)
    assert [(one["attempt"], one["worker"], one["state"]) for one in rows] == [
        (1, b"w1", b"failed"),
        (2, b"silent", b"crashed"),
        (2, b"slow", b"timeout"),
        (3, b"w2", b"running"),
    ]
    assert (rows[0]["run"], rows[0]["reason"], rows[0]["detail"]) == (failed, b"no luck", b"trace")
    assert rows[0]["began_ms"] == begun_ms and rows[0]["ended_ms"] == begun_ms + 1_000
    assert (rows[3]["run"], rows[3]["ended_ms"]) == (last, 0)
    world.run("DONE", id, last, "RESULT", "42")
    ended = tried(world, id)
    assert ended[:3] == rows[:3]
    assert ended[3] == {**rows[3], "state": b"done", "ended_ms": world.n.now_ms}
    world.run("DEBUG", "CHECK")


def test_what_was_cancelled_or_replayed_is_shown(world: World) -> None:
    """W18.1 cancelled. RELEASE and NACK leave none, DEAD REPLAY keeps the row."""
    id = add(world, "KEEP", 60)
    world.get("q")
    run = start(world, id)
    world.run("FAIL", id, run, "REASON", "first", "FINAL")
    assert [one["state"] for one in tried(world, id)] == [b"failed"]
    world.run("DEAD", "REPLAY", "q.dead", "ALL")
    world.until(lambda: bool(world.get("q")))
    run = start(world, id, "w2")
    world.run("CANCEL", "REASON", "no more", id)
    world.run("RELEASE", id, run)
    rows = tried(world, id)
    assert [(one["worker"], one["state"], one["reason"]) for one in rows] == [
        (b"w1", b"failed", b"first"),
        (b"w2", b"cancelled", b"no more"),
    ]
    waiting = add(world, "KEEP", 60)
    world.run("CANCEL", waiting)
    assert tried(world, waiting) == []


def test_a_job_that_is_done_after_all(world: World) -> None:
    """W18.6 The state is `failed`, `timeout`, `crashed`, `cancelled`, `done`"""
    id = add(world, "KEEP", 60)
    world.get("q")
    run = start(world, id)
    world.pass_ms(10_200)
    assert [one["state"] for one in tried(world, id)] == [b"crashed"]
    world.run("DONE", id, run)
    (row,) = tried(world, id)
    assert (row["state"], row["worker"], row["ended_ms"]) == (b"done", b"w1", world.n.now_ms)
    assert row["ended_ms"] - row["began_ms"] >= 10_000


def test_the_row_is_bounded(world: World) -> None:
    """W18.2 It has the last 16, of details the last 8192 bytes, 65536 bytes in all: above that the
    oldest details go. Without KEEP BODY there is no detail, and of a reason 160 bytes.
    """
    long, brief = add(world, "KEEP", 60, "BODY"), add(world)
    world.run("DEQUEUE", brief)
    for i in range(KEPT + 4):
        fail(world, long, f"r{i}", "begin" + "d" * (DETAIL_MAX - 3) + "end")
    rows = tried(world, long)
    assert [one["attempt"] for one in rows] == list(range(5, KEPT + 5))
    assert rows[-1]["detail"].endswith(b"dend") and rows[-1]["detail"].startswith(b"d")
    details = [len(one["detail"]) for one in rows]
    assert sorted(details) == details and set(details) == {0, DETAIL_MAX}
    assert details.count(DETAIL_MAX) == 7
    assert len(world.n.life.by_id[long].attempts) <= ROW_MAX
    world.run("DEQUEUE", long)
    world.run("ENQUEUE", brief)
    fail(world, brief, "r" * 300, "d" * 300)
    (row,) = tried(world, brief)
    assert (row["reason"], row["detail"]) == (b"r" * 160, b"")
    world.run("DEBUG", "CHECK")


def test_the_body_is_kept(world: World) -> None:
    """W18.4 The outcome keeps for KEEP the row, when the job was added, and when the run that ended
    it began; with KEEP BODY also headers and body.

    W18.6 WITHBODY adds `queue added-ms headers body`
    """
    whole, plain, none = add(world, "KEEP", 60, "BODY"), add(world, "KEEP", 60), add(world)
    added_ms = world.n.now_ms
    world.get("q", count=3)
    world.pass_ms(1_000)
    assert fields(world.run("RESULT", none, "WITHBODY"))["body"] == b"the body", "while it is open"
    for id in (whole, plain, none):
        run = start(world, id)
        world.pass_ms(1_000)
        world.run("DONE", id, run)
    told = fields(world.run("RESULT", whole, "WITHATTEMPTS", "WAIT", 5, "WITHBODY"))
    assert list(told)[-5:] == ["queue", "added-ms", "headers", "body", "attempts"]
    assert (told["queue"], told["body"], told["headers"]) == (b"q", b"the body", [b"k", b"v"])
    assert told["added-ms"] == added_ms
    assert (told["attempts"][0][3], told["attempts"][0][4]) == (added_ms + 1_000, added_ms + 2_000)
    assert "body" not in fields(world.run("RESULT", whole))
    told = fields(world.run("RESULT", plain, "WITHBODY"))
    assert (told["queue"], told["body"], told["headers"]) == (b"q", None, [])
    assert isinstance(world.run("RESULT", none, "WITHBODY"), Err)
    for bad in (["WITHBODY", "WITHBODY"], ["WAIT", 1, "WAIT", 1], ["WAIT"], ["BODY"]):
        assert world.run("RESULT", whole, *bad).startswith("ERR syntax error"), bad
    world.pass_ms(61_000)
    check(world.n)
    assert world.n.life.kept_bytes == 0


def test_the_last_keep_says_whether_the_body_is_kept(world: World) -> None:
    id = world.run("ADDJOB", "q", "b", 0, "KEEP", 60, "body", "KEEP", 61, "RETRY", 9)
    assert world.n.life.by_id[id].terms.keeps_body is False
    shown = fields(world.run("SHOW", world.run("ADDJOB", "q", "b", 0, "KEEP", 60, "body")))
    assert (shown["keep"], shown["keep-body"]) == (60_000, 1)
    tube = world.run("TUBE", "CREATE", "t", "tasks")
    assert tube == b"OK"
    world.run("SCHEDULE", "ADD", "t", "s", "EVERY", 60, "KEEP", 60, "BODY", "BODY")
    shown = fields(world.run("SCHEDULE", "SHOW", "t", "s"))
    assert (shown["keep-ms"], shown["keep-body"], shown["body"]) == (60_000, 1, b"BODY")


@pytest.mark.parametrize("how", ["kill", "stop", "rewrite"])
@pytest.mark.parametrize("kind", ["queue", "tube"])
def test_they_are_in_the_journal(make_world: Make, how: str, kind: str) -> None:
    """W13.1 The records are life (the work of one job) and outcome (while KEEP lasts)."""
    world = make_world(journal="always")
    if kind == "tube":
        world.run("TUBE", "CREATE", "q", "tasks", "TTR", 10)
    ended, open = add(world, "KEEP", 600, "BODY"), add(world, "KEEP", 600, "BODY")
    world.get("q", count=2)
    for id in (ended, open):
        world.run("FAIL", id, start(world, id), "REASON", "why", "DETAIL", "trace", "DELAY", 5)
    world.pass_ms(6_000)
    world.get("q", count=2)
    world.run("DONE", ended, start(world, ended), "RESULT", "42")
    before = [world.run("RESULT", id, "WITHBODY", "WITHATTEMPTS") for id in (ended, open)]
    if how == "rewrite":
        world.rewrite()
    world.restart(how="stop" if how == "rewrite" else how)
    after = [world.run("RESULT", id, "WITHBODY", "WITHATTEMPTS") for id in (ended, open)]
    assert after[0] == before[0]
    assert fields(after[0])["body"] == b"the body"
    assert fields(after[1])["attempts"] == fields(before[1])["attempts"]
    assert fields(after[1])["attempts"][0][-3:] == [b"failed", b"why", b"trace"]
    check(world.n)


def test_the_body_goes_when_memory_is_short(world: World) -> None:
    """M3.4 Results, kept bodies and details above 256 bytes are dropped and counted"""
    terms = ["KEEP", 60, "BODY", "RETRY", 10]
    id = world.run("ADDJOB", "q", "b" * 9_000, 0, *terms)
    world.get("q")
    world.run("FAIL", id, start(world, id), "DELAY", 0, "REASON", "why", "DETAIL", "d" * 900)
    world.get("q")
    world.run("DONE", id, start(world, id), "RESULT", "42")
    assert world.n.life.fat_bytes == 9_900
    assert b"results_body_bytes:9000" in world.run("INFO", "jobs")
    world.n.limits.memory_bytes = (world.n.used_bytes() - 5_000) * 100 // 95
    world.run("PING")
    told = fields(world.run("RESULT", id, "WITHBODY", "WITHATTEMPTS"))
    assert (told["body"], told["result"], told["reason"]) == (None, b"42", b"")
    assert told["attempts"][0][-2:] == [b"why", b""]
    assert (world.n.life.fat_bytes, world.n.life.results_thinned) == (0, 1)
    assert b"results_body_bytes:0" in world.run("INFO", "jobs")
    check(world.n)


def test_the_body_goes_above_the_bound(world: World) -> None:
    """W18.5 An outcome that alone is above `results-max-bytes` goes without its body and details,
    then as in W7.4.
    """
    world.run("CONFIG", "SET", "results-max-bytes", 10_000)
    other = add(world, "KEEP", 60)
    world.get("q")
    world.run("DONE", other, "-")
    for body, result, left in (("b" * 9_999, "42", b"42"), ("b" * 9_999, "x" * 9_999, None)):
        id = world.run("ADDJOB", "q", body, 0, "KEEP", 60, "BODY")
        world.get("q")
        world.run("DONE", id, "-", "RESULT", result)
        told = fields(world.run("RESULT", id, "WITHBODY"))
        assert (told["state"], told["body"], told["result"]) == (b"done", None, left)
    assert isinstance(world.run("RESULT", other), list), "it drops no other"
    check(world.n)


# ---- Nodes


def test_all_nodes_show_them(make_world: Make) -> None:
    """W18.3 SETACK to a holder has no body, since its copy has it.

    W18.6 Another node is asked for both (W15); the user must see the queue.
    """
    world = make_world(4, journal="off")
    id = add(world, "KEEP", 600, "BODY", "REPLICATE", 3)
    first, second, _ = world.holders(id)
    assert world.at(first).get("q") == [id] or world.at(second).get("q") == [id]
    (row,) = world.at(first).ask("START", "WORKER", "w1", id)
    world.pass_ms(1_000)
    world.at(first).ask("FAIL", id, row[0], "REASON", "why", "DETAIL", "trace", "DELAY", 1)
    world.settle()
    for i in range(4):
        (one,) = tried(world, id, i)
        assert (one["reason"], one["detail"], one["worker"]) == (b"why", b"trace", b"w1")
    world.pass_ms(1_100)
    (row,) = world.at(second).ask("START", "WORKER", "w2", id)
    world.settle()
    world.at(second).ask("DONE", id, row[0], "RESULT", "42")
    world.settle()
    for i in range(4):
        told = fields(world.at(i).ask("RESULT", id, "WITHBODY", "WITHATTEMPTS"))
        assert (told["body"], told["headers"]) == (b"the body", [b"k", b"v"])
        assert [one[2] for one in told["attempts"]] == [b"w1", b"w2"]
    for i in world.holders(id) or (first, second):
        assert world.node(i).core.life.kept[id].body == b"the body"
        check(world.node(i).core)


def test_who_may_not_see_the_queue_sees_no_body(make_world: Make) -> None:
    """W18.6 Another node is asked for both (W15); the user must see the queue."""
    world = make_world(2, journal="off")
    id = add(world, "KEEP", 600, "BODY", "REPLICATE", 1)
    there = world.at(1)
    there.ask("ACL", "SETUSER", "web", "on", ">pw", "+@produce", "~web.*")
    assert fields(there.ask("RESULT", id, "WITHBODY"))["body"] == b"the body"
    web = world.wire(1)
    assert web("AUTH", "web", "pw") == b"OK"
    assert str(web.ask("RESULT", id, "WITHBODY")).startswith("NOJOB")


def test_what_another_node_says_is_checked(world: World) -> None:
    """W18.6 Another node is asked for both (W15)"""
    n = world.n
    maker = linked(world, MAKER)
    id = made_there(n)
    whole = [b"done", 1, 3, b"w", b"", b"42", b"", b"", b"", n.now_ms]
    for headers, body in ((b"\x09", b"b"), (b"\x01a\0\0", b"b")):
        assert world.run("RESULT", id, "WITHBODY") is None
        assert n.life.asking[id].wanted == WITH_BODY
        more = MoreAt(b"q", 5, headers, body, [])
        on_message(n, maker, JobTold(id, True, 0, True, whole, more=more))
        world.settle()
        if headers == b"\x09":
            assert world.run.take_all() == []
            world.pass_ms(1_100)
            assert str(world.run.take()).startswith("NOREACH")
        else:
            told = fields(world.run.take())
            assert (told["body"], told["headers"]) == (b"b", [b"a", b""])


# ---- The row


def attempt(starts: int, state: bytes = b"failed", reason: bytes = b"why") -> Attempt:
    return Attempt(starts << 39 | 1 << 23, 1_000 * starts, 1_000 * starts + 1, state, b"w", reason)


def test_rows_merge_in_any_order() -> None:
    """W18.3 Two rows of attempts (W18.1) become one, by runs. Of two words about one run that of
    the worker wins over silence.
    """
    views = [b"", b"", b""]
    for i, one in enumerate([attempt(1), attempt(2, b"crashed"), attempt(2), attempt(3)]):
        views[i % 3] = with_attempt(views[i % 3], one)
    found = set()
    for order in permutations(views):
        row = b""
        for view in order:
            row = merged(row, view)
        found.add(row)
    (row,) = found
    assert are_attempts(row)
    assert [(one.run >> 39, one.state) for one in attempts_of(row)] == [
        (1, b"failed"),
        (2, b"failed"),
        (3, b"failed"),
    ]


def test_what_is_no_row_is_refused() -> None:
    row = with_attempt(with_attempt(b"", attempt(1)), attempt(2))
    assert are_attempts(row) and are_attempts(b"")
    for size in range(1, len(row)):
        assert are_attempts(row[:size]) == (size == len(row) // 2)
    for at, byte in ((0, 0xFF), (3, 0x80), (28, 4), (31, 0x80), (33, 0x80), (11, 0xFF), (19, 0xC0)):
        assert not are_attempts(row[:at] + bytes([byte]) + row[at + 1 :]), at
    assert not are_attempts(b"".join([row[: len(row) // 2]] * (KEPT + 1)))
