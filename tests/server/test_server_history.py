"""HISTORY over the rings of a node (SPEC O3)."""

from __future__ import annotations

from typing import Any

import pytest
from door import Door

STEP_MS = 5_000


def points(door: Door, line: str, *words: str) -> Any:
    return door.value(f"HISTORY {line}", *words)


def pass_ms(door: Door, ms: int) -> None:
    """Time goes by in steps of 25 ms, and the server looks whenever it is due."""
    end_ms = door.n.now_ms + ms
    while door.n.now_ms < end_ms:
        door.n.now_ms = min(end_ms, door.n.now_ms + 25)
        if door.s.watch.next_ms <= door.n.now_ms:
            door.s.watch.look(door.n)


def test_a_point_says_what_changed_and_what_is(door: Door) -> None:
    """O3.3 The first eleven count what happened at this node in the interval; the others are as at
    its end.
    """
    for _ in range(3):
        door.add("mail")
    door.add("mail", "later", "DELAY", "60")
    pass_ms(door, 2_000)
    [job] = door.value("GETJOB FROM mail")
    pass_ms(door, 3_000)
    fields = "added delivered wait-ms acked ready delayed at-work oldest-ms".split()
    start_ms = door.n.now_ms
    step_ms, names, rows = points(door, "5s QUEUE mail", *fields)
    assert (step_ms, [name.decode() for name in names]) == (STEP_MS, fields)
    assert rows == [[start_ms // STEP_MS * STEP_MS, 4, 1, 2_000, 0, 2, 1, 1, 5_000]]
    door("ACKJOB", job[1])
    pass_ms(door, 5_000)
    assert points(door, "5s QUEUE mail COUNT 1", *fields)[2][0][1:] == [0, 0, 0, 1, 2, 1, 0, 10_000]
    assert points(door, "5s", *fields)[2] == points(door, "5s QUEUE mail", *fields)[2]
    assert door("HISTORY 5s QUEUE nosuch") == b"*-1\r\n"
    assert door.value("HISTORY QUEUES") == [b"mail"]


def test_times_of_jobs_in_buckets(door: Door) -> None:
    """O3.7 `HISTORY 5s|1m TIMES wait|work [FROM ms] [COUNT n]`: an array of the step, the bounds of
    O1.6 in ms, and the points of the node
    """
    for wait_ms in (3, 30, 30):
        door.add("mail")
        pass_ms(door, wait_ms)
        [job] = door.value("GETJOB FROM mail")
        pass_ms(door, 700)
        door("ACKJOB", job[1])
    pass_ms(door, 2_900)
    step_ms, bounds, rows = points(door, "5s TIMES wait")
    assert step_ms == STEP_MS and bounds[:6] == [1, 2, 5, 10, 20, 50] and len(bounds) == 17
    assert rows == [[door.n.now_ms // STEP_MS * STEP_MS, 0, 0, 1, 0, 0, 2, *[0] * 12]]
    (row,) = points(door, "5s TIMES work")[2]
    assert dict(zip(bounds, row[1:], strict=False))[1_000] == sum(row[1:]) == 3
    pass_ms(door, 60_000)
    assert sum(map(sum, (row[1:] for row in points(door, "1m TIMES work")[2]))) == 3
    assert len(points(door, "5s TIMES wait COUNT 2")[2]) == 2
    for wrong in ("TIMES never", "TIMES", "TIMES wait QUEUE mail", "TIMES wait added"):
        assert door(f"HISTORY 5s {wrong}").startswith(b"-ERR syntax error")


def test_times_are_multiples_of_the_step_and_from_leaves_out(door: Door) -> None:
    """O3.1 The time of a point is the end of its interval, a multiple of the step in ms since 1970

    O3.2 FROM: only points later than that instant. COUNT: only the last n of them.
    """
    pass_ms(door, 61_000)
    times = [row[0] for row in points(door, "5s added")[2]]
    assert len(times) == 12
    assert all(at % STEP_MS == 0 for at in times)
    assert times == sorted(times)
    assert [row[0] for row in points(door, f"5s FROM {times[9]} added")[2]] == times[10:]
    assert [row[0] for row in points(door, "5s COUNT 2 added")[2]] == times[10:]
    minutes = [row[0] for row in points(door, "1m added")[2]]
    assert len(minutes) == 1
    assert minutes[0] % 60_000 == 0


def test_a_ring_keeps_its_length(door: Door) -> None:
    """O3.1 one each 5 s for the last 720"""
    ring = door.s.watch.points.short
    for at in range(1, 1_000):
        ring.add(at * STEP_MS, [at, *[0] * 15, at << 33])
    rows = points(door, "5s added memory")[2]
    assert len(rows) == 720
    assert rows[0] == [280 * STEP_MS, 280, 280 << 33]
    assert rows[-1] == [999 * STEP_MS, 999, 999 << 33]
    assert ring.bytes_used() == 720 * (8 + 20 * 4)


def test_a_standstill_leaves_a_gap(door: Door) -> None:
    """O3.1 An interval in which the node did not run, or stood still, has no point."""
    pass_ms(door, 5_000)
    door.n.now_ms += 60_000
    door.s.watch.look(door.n)
    assert len(points(door, "5s added")[2]) == 2


def test_quiet_queues_give_their_place_to_busy_ones(door: Door) -> None:
    """O3.4 with more queues, those that are longest and busiest"""
    door("CONFIG SET rings-queues 3")
    door("CONFIG SET metrics-queues 3")
    for name in "abc":
        door.add(name)
    pass_ms(door, 5_000)
    assert door.value("HISTORY QUEUES") == [b"a", b"b", b"c"]
    counts = door.s.watch.other_counts(door.n, 3)
    assert counts[0] == 0
    for _ in range(200):
        door.add("busy")
    door.add("d")
    assert door.s.watch.other_counts(door.n, 3)[0] == 201
    pass_ms(door, 5_000)
    assert len(names := door.value("HISTORY QUEUES")) == 3
    assert b"busy" in names
    assert b"d" not in names
    rest = door.s.watch.other_counts(door.n, 3)[0]
    assert rest == 201, "what `other` counted stays there"
    door.add("d")
    door.add("busy")
    assert door.s.watch.other_counts(door.n, 3)[0] == rest + 1


def test_no_tenant_has_all_places(door: Door) -> None:
    """O3.4 But a queue of a tenant that has more than a quarter of the places gives way to any
    queue of others, and takes a place from its own tenant only."""
    door("CONFIG SET metrics-queues 8")
    door("CONFIG SET rings-queues 8")
    for i in range(10):
        for _ in range(5):
            door.add(f"big/{i}")
    pass_ms(door, 5_000)
    assert len(door.value("HISTORY QUEUES")) == 8
    for name in ("small/q", "plain"):
        door.add(name)
    for _ in range(500):
        door.add("big/busy")
    pass_ms(door, 5_000)
    names = door.value("HISTORY QUEUES")
    assert {b"small/q", b"plain", b"big/busy"} <= set(names) and len(names) == 8
    for i in range(3):
        for _ in range(600):
            door.add(f"big/busy-{i}")
    for _ in range(2):
        pass_ms(door, 5_000)
        names = door.value("HISTORY QUEUES")
        assert {b"small/q", b"plain", b"big/busy-2"} <= set(names) and len(names) == 8
    assert door.s.watch.shares == {b"big": 6, b"small": 1, b"": 1}


def test_a_walk_looks_at_a_bounded_number_of_queues(door: Door) -> None:
    """O3.4 `rings-queues` (200) queues have points"""
    for i in range(5_000):
        door.add(f"queue-{i}")
    watch = door.s.watch
    door.n.now_ms = watch.next_ms
    watch.look(door.n)
    assert watch.at == 3_000, "2,000 at a time"
    assert len(points(door, "5s added")[2]) == 0
    pass_ms(door, 100)
    assert points(door, "5s added ready")[2][0][1:] == [5_000, 5_000]
    assert len(door.value("HISTORY QUEUES")) == 200


@pytest.mark.parametrize("line", ["HISTORY", "HISTORY 5x", "HISTORY 5s QUEUE"])
def test_errors(door: Door, line: str) -> None:
    """O3.6"""
    assert door(line).startswith(b"-ERR ")
