"""HISTORY over the rings of a node (SPEC O3)."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from tuque.server.state.server import WATCH
from world import World

STEP_MS = 5_000


def points(world: World, line: str, *words: str) -> Any:
    return world.value(f"HISTORY {line}", *words)


def pass_ms(world: World, ms: int) -> None:
    """Time goes by, and the server looks whenever it is due."""
    world.pass_ms(ms)


def test_a_point_says_what_changed_and_what_is(world: World) -> None:
    """O3.3 The first eleven count what happened at this node in the interval; the others are as at
    its end.
    """
    for _ in range(3):
        world.add("mail")
    world.add("mail", "later", "DELAY", "60")
    pass_ms(world, 2_000)
    [job] = world.value("GETJOB FROM mail")
    pass_ms(world, 3_000)
    fields = "added delivered wait-ms acked ready delayed at-work oldest-ms".split()
    start_ms = world.n.now_ms
    step_ms, names, rows = points(world, "5s QUEUE mail", *fields)
    assert (step_ms, [name.decode() for name in names]) == (STEP_MS, fields)
    assert rows == [[start_ms // STEP_MS * STEP_MS, 4, 1, 2_000, 0, 2, 1, 1, 5_000]]
    world("ACKJOB", job[1])
    pass_ms(world, 5_000)
    assert points(world, "5s QUEUE mail COUNT 1", *fields)[2][0][1:] == [
        0,
        0,
        0,
        1,
        2,
        1,
        0,
        10_000,
    ]
    assert points(world, "5s", *fields)[2] == points(world, "5s QUEUE mail", *fields)[2]
    assert world("HISTORY 5s QUEUE nosuch") == b"*-1\r\n"
    assert world.value("HISTORY QUEUES") == [b"mail"]


def test_times_of_jobs_in_buckets(world: World) -> None:
    """O3.7 an array of the step, the bounds of O1.6 in ms, and the points of the node"""
    for wait_ms in (3, 30, 30):
        world.add("mail")
        pass_ms(world, wait_ms)
        [job] = world.value("GETJOB FROM mail")
        pass_ms(world, 700)
        world("ACKJOB", job[1])
    pass_ms(world, 2_900)
    step_ms, bounds, rows = points(world, "5s TIMES wait")
    assert step_ms == STEP_MS and bounds[:6] == [1, 2, 5, 10, 20, 50] and len(bounds) == 17
    assert rows == [[world.n.now_ms // STEP_MS * STEP_MS, 0, 0, 1, 0, 0, 2, *[0] * 12]]
    (row,) = points(world, "5s TIMES work")[2]
    assert dict(zip(bounds, row[1:], strict=False))[1_000] == sum(row[1:]) == 3
    pass_ms(world, 60_000)
    assert sum(map(sum, (row[1:] for row in points(world, "1m TIMES work")[2]))) == 3
    assert len(points(world, "5s TIMES wait COUNT 2")[2]) == 2
    for wrong in ("TIMES never", "TIMES", "TIMES wait QUEUE mail", "TIMES wait added"):
        assert world(f"HISTORY 5s {wrong}").startswith(b"-ERR syntax error")


def test_times_are_multiples_of_the_step_and_from_leaves_out(world: World) -> None:
    """O3.1 The time of a point is the end of its interval, a multiple of the step in ms since 1970

    O3.2 FROM: only points later than that instant. COUNT: only the last n of them.
    """
    pass_ms(world, 61_000)
    times = [row[0] for row in points(world, "5s added")[2]]
    assert len(times) == 12
    assert all(at % STEP_MS == 0 for at in times)
    assert times == sorted(times)
    assert [row[0] for row in points(world, f"5s FROM {times[9]} added")[2]] == times[10:]
    assert [row[0] for row in points(world, "5s COUNT 2 added")[2]] == times[10:]
    minutes = [row[0] for row in points(world, "1m added")[2]]
    assert len(minutes) == 1
    assert minutes[0] % 60_000 == 0


def test_a_ring_keeps_its_length(world: World) -> None:
    """O3.1 one each 5 s for the last 720"""
    ring = world.server.watch.points.short
    for at in range(1, 1_000):
        ring.add(at * STEP_MS, [at, *[0] * 15, at << 33])
    rows = points(world, "5s added memory")[2]
    assert len(rows) == 720
    assert rows[0] == [280 * STEP_MS, 280, 280 << 33]
    assert rows[-1] == [999 * STEP_MS, 999, 999 << 33]
    assert ring.bytes_used() == 720 * (8 + 20 * 4)


def test_a_standstill_leaves_a_gap(world: World) -> None:
    """O3.1 An interval in which the node did not run, or stood still, has no point."""
    pass_ms(world, 5_000)
    world.jump_ms(60_000)
    assert len(points(world, "5s added")[2]) == 2


def test_quiet_queues_give_their_place_to_busy_ones(world: World) -> None:
    """O3.4 with more queues, those that are longest and busiest"""
    world("CONFIG SET rings-queues 3")
    world("CONFIG SET metrics-queues 3")
    for name in "abc":
        world.add(name)
    pass_ms(world, 5_000)
    assert world.value("HISTORY QUEUES") == [b"a", b"b", b"c"]
    counts = world.server.watch.other_counts(world.n, 3)
    assert counts[0] == 0
    for _ in range(200):
        world.add("busy")
    world.add("d")
    assert world.server.watch.other_counts(world.n, 3)[0] == 201
    pass_ms(world, 5_000)
    assert len(names := world.value("HISTORY QUEUES")) == 3
    assert b"busy" in names
    assert b"d" not in names
    rest = world.server.watch.other_counts(world.n, 3)[0]
    assert rest == 201, "what `other` counted stays there"
    world.add("d")
    world.add("busy")
    assert world.server.watch.other_counts(world.n, 3)[0] == rest + 1


def test_no_tenant_has_all_places(world: World) -> None:
    """O3.4 But a queue of a tenant that has more than a quarter of the places gives way to any
    queue of others, and takes a place from its own tenant only."""
    world("CONFIG SET metrics-queues 8")
    world("CONFIG SET rings-queues 8")
    for i in range(10):
        for _ in range(5):
            world.add(f"big/{i}")
    pass_ms(world, 5_000)
    assert len(world.value("HISTORY QUEUES")) == 8
    for name in ("small/q", "plain"):
        world.add(name)
    for _ in range(500):
        world.add("big/busy")
    pass_ms(world, 5_000)
    names = world.value("HISTORY QUEUES")
    assert {b"small/q", b"plain", b"big/busy"} <= set(names) and len(names) == 8
    for i in range(3):
        for _ in range(600):
            world.add(f"big/busy-{i}")
    for _ in range(2):
        pass_ms(world, 5_000)
        names = world.value("HISTORY QUEUES")
        assert {b"small/q", b"plain", b"big/busy-2"} <= set(names) and len(names) == 8
    assert world.server.watch.shares == {b"big": 6, b"small": 1, b"": 1}


def test_a_walk_looks_at_a_bounded_number_of_queues(world: World) -> None:
    """O3.4 `rings-queues` (200) queues have points"""
    for i in range(5_000):
        world.add(f"queue-{i}")
    watch = world.server.watch
    world.jump_ms(world.server.alarms.at(WATCH) - world.now_ms)
    world.node().turn()
    assert watch.at == 3_000, "2,000 at a time"
    assert len(points(world, "5s added")[2]) == 0
    pass_ms(world, 100)
    assert points(world, "5s added ready")[2][0][1:] == [5_000, 5_000]
    assert len(world.value("HISTORY QUEUES")) == 200


def test_many_queues_get_and_lose_their_points_in_pieces(world: World) -> None:
    """O3.8 Of many queues 500 in a turn get their point, or lose their place; the others follow
    after 25 ms.
    """
    world("CONFIG SET rings-queues 3000")
    for i in range(1_800):
        world.add(f"queue-{i}")
    watch = world.server.watch
    pass_ms(world, 5_000 + 1_000)
    assert len(watch.watched) == 1_800

    def made() -> int:
        return sum(len(w.points.short.times) for w in watch.watched.values())

    before = made()
    assert before == 1_800
    counts = []
    while made() < 2 * before:
        world.jump_ms(max(world.server.alarms.at(WATCH) - world.now_ms, 0))
        last = made()
        world.node().turn()
        counts.append(made() - last)
    assert [count for count in counts if count] == [500, 500, 500, 300]
    world("CONFIG SET metrics-queues 0")
    world("CONFIG SET rings-queues 100")
    left = [1_800]
    while left[-1] > 100:
        world.jump_ms(max(world.server.alarms.at(WATCH) - world.now_ms, 0))
        world.node().turn()
        left.append(len(watch.watched))
    assert max(a - b for a, b in itertools.pairwise(left)) == 500
    assert left[-1] == 100 and sorted(watch.shares.values()) == [100]


@pytest.mark.parametrize("line", ["HISTORY", "HISTORY 5x", "HISTORY 5s QUEUE"])
def test_errors(world: World, line: str) -> None:
    """O3.6"""
    assert world(line).startswith(b"-ERR ")
