"""LIMITS: the keys for which tasks wait, and the groups (SPEC T47)."""

from __future__ import annotations

from typing import Any

import pytest

from tuque.core.dispatch.timers import tick
from world import World


@pytest.fixture
def tasks(world: World) -> World:
    assert world("TUBE CREATE t tasks") == b"+OK\r\n"
    return world


def rows(world: World, words: str = "") -> list[dict[str, Any]]:
    """All rows, page by page."""
    found: list[dict[str, Any]] = []
    cursor = b"0"
    while True:
        cursor, page = world.value(f"LIMITS t CURSOR {cursor.decode()} {words}")
        for row in page:
            named = dict(zip(row[::2], row[1::2], strict=True))
            found.append({name.decode(): value for name, value in named.items()})
        if cursor == b"0":
            return found


def take(world: World, count: int) -> list[str]:
    got = world.value(f"GETJOB NOHANG COUNT {count} FROM t") or []
    return [job[1].decode() for job in got]


def test_a_limit_for_whose_places_tasks_wait(tasks: World) -> None:
    """T47.2 A limit also has places and used: its TAKEN tasks, and the places that are kept for
    tasks that wait for a token or their turn (T41.5)."""
    n = tasks.n
    for i in range(3):
        tasks.add("t", f"b{i}", "LIMIT", "shop", "2")
    tasks.add("t", "x", "LIMIT", "other", "2")
    assert rows(tasks) == []  # nobody waits for a place
    added_ms = n.now_ms
    n.now_ms += 50
    tick(n)
    ids = take(tasks, 9)
    assert len(ids) == 3
    since_ms = n.now_ms
    n.now_ms += 50
    tick(n)
    (row,) = rows(tasks)
    assert row == {
        "kind": b"limit", "key": b"shop", "waiting": 1, "since-ms": since_ms,
        "next-ms": added_ms, "places": 2, "used": 2,
    }  # fmt: skip
    tasks("ACKJOB", ids[0])
    assert rows(tasks) == []  # the last one has its place
    assert tasks("DEBUG CHECK") == b"+OK\r\n"


def test_a_rate_for_whose_tokens_tasks_wait(tasks: World) -> None:
    """T47.2 A rate also has token-us, burst, tokens (that are there) and token-ms (when the next
    one comes)."""
    n = tasks.n
    for i in range(3):
        tasks.add("t", f"b{i}", "RATE", "shop", "2/s", "2", "GROUP", f"g{i}")
    begin_ms = n.now_ms
    n.now_ms += 50
    assert [row["tokens"] for row in rows(tasks) if row["kind"] == b"rate"] == [2]
    assert len(take(tasks, 3)) == 2
    row = rows(tasks)[0]
    assert row == {
        "kind": b"rate", "key": b"shop", "waiting": 1, "since-ms": begin_ms, "next-ms": begin_ms,
        "token-us": 500_000, "burst": 2, "tokens": 0, "token-ms": begin_ms + 550,
    }  # fmt: skip
    n.now_ms += 500
    tick(n)
    assert len(take(tasks, 3)) == 1
    assert rows(tasks) == []
    assert tasks("DEBUG CHECK") == b"+OK\r\n"


def test_groups_with_their_weights(tasks: World) -> None:
    """T47.2 A group also has weight and weights, which is the sum over all groups that have READY
    tasks: their quotient is its share of the takes."""
    tasks.add("t", "a", "GROUP", "north", "WEIGHT", "3")
    tasks.add("t", "b", "GROUP", "north", "WEIGHT", "3")
    tasks.add("t", "c", "GROUP", "south", "LIMIT", "one", "1")
    tasks.add("t", "d", "GROUP", "west", "LIMIT", "one", "1")
    shown = {row["key"]: row for row in rows(tasks) if row["kind"] == b"group"}
    assert [shown[key]["weight"] for key in (b"north", b"south", b"west")] == [3, 1, 1]
    assert {row["weights"] for row in shown.values()} == {5}
    assert shown[b"north"]["waiting"] == 2
    assert shown[b"south"]["next-ms"] == tasks.n.now_ms
    assert shown[b"west"]["next-ms"] == 0  # no task of the group may go
    assert len(take(tasks, 3)) == 3
    assert [row["key"] for row in rows(tasks)] == [b"one", b"west"]
    assert rows(tasks)[1]["weights"] == 1
    assert tasks("DEBUG CHECK") == b"+OK\r\n"


def test_pages_with_the_longest_wait_first(tasks: World) -> None:
    """T47.1 It replies with the next cursor, 0 at the end, and up to n (100, at most 1000) rows:
    the limits for whose places tasks wait, then the rates for whose tokens they wait, of both the
    longest wait first, then the groups that have READY tasks."""
    for i in range(7):
        for _ in range(2):
            tasks.add("t", "b", "LIMIT", f"l{i}", "1")
            tasks.add("t", "b", "RATE", f"r{i}", "1/h", "GROUP", f"g{i}")
        tasks.pass_ms(1)
    assert len(take(tasks, 99)) == 14
    wanted = [b"%s%d" % (kind, i) for kind in (b"l", b"r", b"g") for i in range(7)]
    assert [row["key"] for row in rows(tasks)] == wanted
    for count in (1, 2, 5, 20, 1000):
        assert [row["key"] for row in rows(tasks, f"COUNT {count}")] == wanted
    assert len(tasks.value("LIMITS t COUNT 4")[1]) == 4
    assert tasks("DEBUG CHECK") == b"+OK\r\n"


def test_limits_need_a_tube_of_type_tasks(tasks: World) -> None:
    """T47.4 On a queue, or a tube of another type: `-NOTUBE '<name>' has no limits: they need a
    tube of type tasks`."""
    tasks("TUBE CREATE f fifottl")
    for name in ("f", "q"):
        wanted = f"-NOTUBE '{name}' has no limits: they need a tube of type tasks\r\n"
        assert tasks(f"LIMITS {name}") == wanted.encode()
    for wrong in ("COUNT", "COUNT 0", "COUNT 1001", "CURSOR x", "MORE 1", "COUNT 1 COUNT 1"):
        assert tasks(f"LIMITS t {wrong}").startswith(b"-ERR")
