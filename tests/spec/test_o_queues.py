"""SPEC O: the queues of a node in an order, with their figures."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from raw_resp import Err
from tuque.core.model.timers import PIECE, TURN_WORK
from tuque.core.queues.procedures import get_queue
from tuque.server.commands import qlist as queues
from world import World

FIELDS = "name type ready delayed at_work dead oldest_ms in out blocked pause".split()


def qlist(world: World, *words: str | int) -> list[dict[str, Any]]:
    """The rows as dicts."""
    _, rows = world.run("QLIST", *words)
    return [dict(zip(FIELDS, row, strict=True)) for row in rows]


def names(world: World, *words: str | int) -> list[str]:
    """The names of the rows."""
    return [row["name"].decode() for row in qlist(world, *words)]


def test_a_row_has_the_figures_of_the_queue(world: World) -> None:
    """O10.2 A row: name, type, ready, delayed, at-work, dead, oldest-ms, in, out, blocked,
    pause.
    """
    id = world.add("q", RETRY=60)
    world.add("q")
    world.add("q", DELAY=50)
    world.add("q.dead")
    assert world.get("q") == [id]
    world.run("PAUSE", "q", "in")
    world.wire()("GETJOB", "FROM", "empty")
    world.pass_ms(10_000)
    rows = {row["name"]: row for row in qlist(world)}
    assert rows[b"q"] == {
        "name": b"q",
        "type": b"queue",
        "ready": 1,
        "delayed": 1,
        "at_work": 1,
        "dead": 1,
        "oldest_ms": 10_000,
        "in": b"0.300",
        "out": b"0.000",
        "blocked": 0,
        "pause": b"in",
    }
    assert rows[b"q.dead"]["type"] == b"dead"
    assert (rows[b"empty"]["blocked"], rows[b"empty"]["oldest_ms"]) == (1, 0)
    world.run("TUBE", "CREATE", "t", "fifottl")
    world.run("TUBE", "PUT", "t", "a")
    world.run("TUBE", "PUT", "t", "b", "DELAY", 9)
    world.run("TUBE", "TAKE", "t", "TIMEOUT", 0)
    (tube,) = qlist(world, "MATCH", "t")
    assert [tube[name] for name in FIELDS[1:5]] == [b"fifottl", 0, 1, 1]


def test_a_queue_without_a_ready_job_is_listed(world: World) -> None:
    """O10.1 A queue is meant if it exists here, or a job of it is known here."""
    world.add("later", DELAY=50)
    assert world.run("QSTAT", "later") is not None
    (row,) = qlist(world)
    assert (row["name"], row["delayed"]) == (b"later", 1)


def test_rates(world: World) -> None:
    """O10.3 in and out are the jobs added and the jobs acked in a second (as in O3.3), with three
    decimals, over the last 30 to 60 s
    """
    for _ in range(120):
        world.add()
        world.run("ACKJOB", *world.get())
        world.add()
        world.pass_ms(1_000)
        qlist(world)
    (row,) = qlist(world)
    assert (row["in"], row["out"]) == (b"2.000", b"1.000")
    world.pass_ms(31_000)
    qlist(world)
    world.pass_ms(31_000)
    assert [qlist(world)[0][name] for name in ("in", "out")] == [b"0.000", b"0.000"]


def test_orders(world: World) -> None:
    """O10.1 equal ones by name."""
    for name, count in (("b", 2), ("a", 3), ("d", 2), ("c", 1)):
        for _ in range(count):
            world.add(name)
            world.pass_ms(10)
    assert names(world) == ["a", "b", "c", "d"]
    assert names(world, "DESC") == ["d", "c", "b", "a"]
    assert names(world, "SORT", "ready") == ["c", "b", "d", "a"]
    assert names(world, "SORT", "READY", "DESC") == ["a", "b", "d", "c"]
    assert names(world, "SORT", "oldest", "DESC") == ["b", "a", "d", "c"]
    assert names(world, "SORT", "dead", "DESC") == ["a", "b", "c", "d"]
    world.get("d")
    assert names(world, "SORT", "at-work", "DESC", "COUNT", 1) == ["d"]
    world.add("c", DELAY=9)
    assert names(world, "SORT", "delayed", "DESC", "COUNT", 1) == ["c"]
    world.wire()("GETJOB", "FROM", "w")
    assert names(world, "SORT", "blocked", "DESC", "COUNT", 1) == ["w"]
    assert names(world, "SORT", "in", "DESC", "COUNT", 1) == ["a"]
    world.run("ACKJOB", *world.get("b"))
    assert names(world, "SORT", "out", "DESC", "COUNT", 1) == ["b"]


def test_dead_letters_are_not_late(world: World) -> None:
    """O10.2 Dead letters count as 0 for the order `oldest`."""
    world.add("a.dead")
    world.pass_ms(1_000)
    world.add("b")
    world.pass_ms(10)
    assert names(world, "SORT", "oldest", "DESC") == ["b", "a.dead"]


def test_pages_and_searches(world: World) -> None:
    """O10.1 OFFSET (0) of them are left out, COUNT (100; 1..1000) follow."""
    for i in range(250):
        world.add(f"mail-{i:03}" if i % 2 else f"web-{i:03}")
    total, rows = world.run("QLIST")
    assert (total, len(rows)) == (250, 100)
    total, rows = world.run("QLIST", "MATCH", "*ail*", "OFFSET", 120, "COUNT", 1000)
    assert total == 125
    assert [row[0] for row in rows] == [b"mail-%03d" % i for i in range(241, 250, 2)]
    assert names(world, "MATCH", "web-0[01]?", "DESC", "COUNT", 2) == ["web-018", "web-016"]
    assert names(world, "MATCH", "*a?l*", "COUNT", 1) == ["mail-001"]
    some = names(world, "SORT", "ready", "COUNT", 2, "NAMES", "web-002", "unknown", "mail-001", "x")
    assert some == ["mail-001", "web-002"]
    world.run("TUBE", "CREATE", "tube", "fifo")
    assert names(world, "TYPE", "fifo") == ["tube"]
    assert world.run("QLIST", "TYPE", "queue", "COUNT", 1)[0] == 250


def test_pages_join_whatever_is_merged(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """O10.5 sorts only what the page needs"""
    monkeypatch.setattr(queues, "GATHERED", 7)
    for i in range(300):
        for _ in range(i * 37 % 11):
            world.add(f"q{i:03}", RETRY=60)
    for words in (("SORT", "ready", "DESC"), ("SORT", "ready"), ("DESC",), ()):
        whole = names(world, *words, "COUNT", 1000)
        pages = [names(world, *words, "OFFSET", at, "COUNT", 9) for at in range(0, 300, 9)]
        assert [name for page in pages for name in page] == whole
        assert len(whole) == 300 - len(range(0, 300, 11))


QLIST = (
    b"QLIST [MATCH glob] [TYPE type] [SORT name|ready|delayed|at-work|dead|oldest|in|out|blocked] "
    b"[ASC|DESC] [OFFSET n] [COUNT n] [NAMES queue [queue ...]]"
)


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("COUNT", 0), queues.BAD_COUNT + b", not '0'"),
        (("COUNT", 1001), queues.BAD_COUNT + b", not '1001'"),
        (("COUNT", "x"), queues.BAD_COUNT + b", not 'x'"),
        (("OFFSET", -1), queues.NO_OFFSET + b", not '-1'"),
        (("OFFSET", 9_901), queues.BAD_OFFSET),
        (("SORT", "size"), queues.BAD_SORT + b", not 'size'"),
        (("SORT",), b"ERR syntax error at 'SORT': use " + QLIST),
        (("0",), b"ERR syntax error at '0': use " + QLIST),
        (("MATCH", "x" * 129), queues.LONG_GLOB),
    ],
)
def test_bad_words(world: World, words: tuple[str | int, ...], error: bytes) -> None:
    """O10.6 Errors"""
    assert world.run("QLIST", *words) == Err(error.decode())


def test_a_reply_that_is_full_ends_earlier(world: World) -> None:
    """O10.1 A full reply (L2.5) has fewer."""
    for i in range(70):
        world.add(f"{i:03}" + "x" * 65_000)
    total, rows = world.run("QLIST", "COUNT", 1000)
    assert total == 70 and 64 <= len(rows) <= 66
    total, rest = world.run("QLIST", "OFFSET", len(rows), "COUNT", 1000)
    assert total == 70 and len(rows) + len(rest) == 70


def test_a_queue_that_goes_meanwhile(world: World) -> None:
    """O10.4 Queues that come or go meanwhile may be missed"""
    world.add("a")
    long_command = queues.Listing(world.server, world.run.c, queues.list_options([b"QLIST"]))
    world.run("DEBUG", "FLUSHALL")
    assert long_command.step(100)
    long_command.tell()
    world.server.touch(world.run.c)
    world.settle()
    assert world.run.take() == [0, []]


class Worked:
    """Counts calls, of Python functions and of those in C: the work of interpreted code."""

    def __init__(self) -> None:
        self.calls = 0

    def __enter__(self) -> Worked:
        sys.setprofile(self._note)
        return self

    def __exit__(self, *ended: object) -> None:
        sys.setprofile(None)

    def _note(self, frame: object, event: str, arg: object) -> None:
        self.calls += event in ("call", "c_call")


@pytest.fixture(scope="module")
def crowd() -> World:
    """A node with 100,000 queues, in no order."""
    world = World(journal="off")
    for i in range(100_000):
        get_queue(world.n, b"many-%06d-queue" % (i * 7_919 % 100_000))
    return world


@pytest.mark.long
@pytest.mark.parametrize(
    "words",
    [
        (),
        ("DESC", "OFFSET", 9_000, "COUNT", 1_000),
        ("SORT", "oldest", "DESC"),
        ("SORT", "in", "DESC", "OFFSET", 9_000, "COUNT", 1_000),
        ("TYPE", "queue", "SORT", "blocked"),
        ("MATCH", "*ny-0*"),
        ("MATCH", "*[l-n]*[0-9]*q*", "SORT", "oldest"),
        ("MATCH", "*" + "?" * 11 + "[" + "ab-cd-ef-g" * 8 + "]z"),
        ("MATCH", "*a*n*y*-*q*u*e*e*e*e*z"),
        ("COUNT", 1_000, "NAMES", *(f"many-{i:06}-queue" for i in range(1_000))),
    ],
)
def test_no_turn_does_much_of_a_long_list(crowd: World, words: tuple[str | int, ...]) -> None:
    """O10.5 with 100,000 queues no turn does more than the bound of the table. A unit is about a
    microsecond
    """
    n = crowd.n
    spec = queues.list_options([b"QLIST", *(str(word).encode() for word in words)])
    client = crowd.run.c
    long_command = queues.Listing(crowd.server, client, spec)
    turns: list[int] = []
    is_over = False
    while not is_over and len(turns) < 12:
        n.work = 0
        with Worked() as worked:
            while not is_over and n.work < TURN_WORK:
                is_over = long_command.step(min(TURN_WORK - n.work, PIECE))
        assert n.work <= 2 * TURN_WORK
        turns.append(worked.calls)
    assert max(turns) <= 5 * TURN_WORK  # 0.2 us for a call and what is around it
    assert long_command.at * 40 > len(long_command.names)  # and it comes to an end
