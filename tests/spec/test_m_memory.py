"""SPEC M: accounting, levels, eviction, idle queues."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from raw_resp import NULL
from tuque.core.queues.procedures import get_queue, idle_tick, memory_level
from world import World

Make = Callable[..., World]

ABOVE = "OOM used memory is above 75 % of 'maxmemory': let jobs end, or raise maxmemory"
OOM = "OOM command not allowed when used memory > 'maxmemory': let jobs end, or raise maxmemory"


def fill(world: World, percent: int) -> None:
    """Set the limit so that what is used now is that part of it."""
    world.n.base_bytes = 10_000_000  # what clients use changes, and is little beside it
    world.n.limits.memory_bytes = world.n.counted_bytes() * 100 // percent


def test_counted_as_it_changes(world: World) -> None:
    """M1.1 It is counted as it changes, and stays within 15 % of the truth."""
    world.run("ACKJOB", world.add())  # the queue stays, and counts
    start = world.n.used_bytes()
    ids = [world.add(body="x" * 1000) for _ in range(100)]
    assert 100_000 < world.n.used_bytes() - start < 150_000
    world.get(count=50)
    world.run("ACKJOB", *ids)
    assert world.n.used_bytes() == start


def test_work_counts_as_it_changes(world: World) -> None:
    """M1.1 It is counted as it changes, and stays within 15 % of the truth."""
    waiter = world.wire()
    world.run("ACKJOB", world.add())
    start = world.n.used_bytes() - world.n.other_bytes
    kept, awaited = world.add(KEEP=60), world.add(ATTEMPTS=3)
    open_jobs = world.n.used_bytes()
    assert waiter("WAITJOB", 0, *[awaited] * 100) is None
    assert 5_000 < world.n.used_bytes() - open_jobs < 50_000
    waiting = world.n.used_bytes()
    assert world.run("DONE", kept, "-", "RESULT", "x" * 50_000) == 1
    assert 45_000 < world.n.used_bytes() - waiting < 57_000
    world.run("ACKJOB", awaited)
    world.pass_ms(61_000)
    assert abs(world.n.used_bytes() - world.n.other_bytes - start) < 1_000, (
        "what is left are the terms of jobs"
    )


def test_no_limit(make_world: Make) -> None:
    """M1.2 `maxmemory` 0 means no limit: the level is always 0."""
    world = make_world(maxmemory="0")
    world.n.base_bytes = 1 << 50
    assert memory_level(world.n) == 0
    world.add()


@pytest.mark.parametrize(
    ("percent", "level"), [(74, 0), (75, 0), (76, 1), (95, 1), (96, 2), (100, 2), (101, 3)]
)
def test_levels(world: World, percent: int, level: int) -> None:
    """M2.1 Level 1, above 75 % of `maxmemory`: this node takes no new copies. ADDJOB replicates
    externally (R1.5), REPLJOB is refused.
    """
    world.n.limits.memory_bytes = 1_000_000
    world.n.base_bytes += percent * 10_000 - world.n.counted_bytes()
    assert memory_level(world.n) == level
    if level:
        assert world.run("ADDJOB", "q", "b", 0).startswith(("NOREPL", "OOM"))


def test_levels_are_looked_at_once_a_turn(make_world: Make) -> None:
    """M2.7 The levels are looked at once a turn while 16 MiB more would leave the node at level 0,
    and for each command otherwise.
    """
    world = make_world(maxmemory="200mb")
    n, counted = world.n, world.n.counted_bytes()
    for free_mb, after in ((20, 0), (10, 1)):
        n.base_bytes += (150 - free_mb) * (1 << 20) - n.counted_bytes()
        assert world.run("PING") == b"PONG"
        n.base_bytes += 15 << 20
        assert memory_level(n) == after
        assert world.run("PING") == b"PONG"
        assert memory_level(n) == (1 if free_mb < 15 else 0)
    assert n.counted_bytes() > counted


def test_level_2_evicts(world: World) -> None:
    """M2.2 Level 2, above 95 %: also eviction before each command (M3)."""
    once = world.add(RETRY=0)
    world.get()
    fill(world, 94)
    world.run("PING")
    assert world.state(once) == "active"
    fill(world, 97)
    world.run("PING")
    assert world.state(once) == "gone"


def test_level_3_refuses(world: World) -> None:
    """M2.3 Level 3, above 100 % after eviction: commands that add are refused (C3.5)."""
    job_id = world.add()
    world.get()
    fill(world, 101)
    assert world.run("ADDJOB", "q", "b", 0) == OOM
    assert world.run("ENQUEUE", job_id) == OOM
    assert world.run("UPDATEJOB", job_id, "TTL", 9) == OOM
    fill(world, 99)
    assert world.run("ENQUEUE", job_id) == 1


def test_jobs_stop_first(world: World) -> None:
    """M2.3 From level 1 on: what adds jobs that no other node can take, which are STAGE, TUBE PUT,
    ADDJOB to a tube, SCHEDULE ADD, SCHEDULE RUN and GROUP CREATE.

    At level 3 also ADDJOB, TOPIC ADD, ENQUEUE, UPDATEJOB, TUBE CREATE, GROUP ADD and TOPIC
    SUBSCRIBE
    """
    assert world.run("TUBE", "CREATE", "t", "tasks") == b"OK"
    assert world.run("SCHEDULE", "ADD", "t", "s", "EVERY", 3600, "b") == b"ADDED"
    jobs = [
        ("ADDJOB", "q", "b", 0),
        ("ADDJOB", "t", "b", 0),
        ("TUBE", "PUT", "t", "b"),
        ("STAGE", "x", "a", 60_000, "q", "b"),
        ("SCHEDULE", "ADD", "t", "s2", "EVERY", 3600, "b"),
        ("SCHEDULE", "RUN", "t", "s"),
        ("GROUP", "CREATE", "t", 1),
    ]
    others = [("TOPIC", "SUBSCRIBE", "to", "q"), ("TUBE", "CREATE", "u", "fifo")]
    for percent in (80, 97):
        fill(world, percent)
        assert [world.run(*words) for words in jobs] == [ABOVE] * len(jobs), percent
    assert [world.run(*words) for words in others] == [1, b"OK"]
    fill(world, 101)
    assert {world.run(*words) for words in (*jobs, *others)} == {OOM}
    fill(world, 80)
    world.pass_ms(2 * 3_600_000)
    assert world.run("QLEN", "t") == 0, "No schedule makes jobs then (T45.6)"


def test_texts_about_work_stay_short(world: World) -> None:
    """M2.8 At level 3 no text about work makes the node larger: PROGRESS of more than 64 bytes
    that is longer than the last one counts as WORKING; FAIL keeps 64 bytes of its REASON, CANCEL
    and DEADLETTER of theirs

    So what M2.4 lets through adds some 1,000 bytes for each job of the node at the most
    """
    count = 60
    ids = [world.add(body="x", ATTEMPTS=9, KEEP=600) for _ in range(count)]
    world.get(count=count)
    before = world.n.counted_bytes()
    world.n.limits.memory_bytes = before - 1
    runs = [row[0] for row in world.run("START", *ids)]
    for id, run in zip(ids, runs, strict=True):
        assert world.run("PROGRESS", id, run, "p" * 4_096) == b"OK"
        assert world.run("PROGRESS", id, run, "p" * 64) == b"OK"
    failed, cancelled, buried = ids[:20], ids[20:40], ids[40:]
    for id, run in zip(failed, runs, strict=False):
        said = world.run("FAIL", id, run, "DELAY", 0, "REASON", "r" * 2_048, "DETAIL", "d" * 60_000)
        assert said == [b"retry", 0]
    for row in world.run("START", *failed):
        assert row[1] == 2
    world.run("CANCEL", "REASON", "c" * 2_048, *cancelled)
    for id in buried:
        world.run("DEADLETTER", id, "d", "REASON", "r" * 2_048)
    assert world.n.counted_bytes() - before < 1_000 * count
    assert b"r" * 64 in world.run("RESULT", failed[0])
    kept = world.run("RESULT", cancelled[0])
    assert b"c" * 64 in kept and b"p" * 64 in kept


def test_always_accepted(world: World) -> None:
    """M2.4 What takes, does or ends work is accepted at every level: GETJOB, START, WORKING,
    PROGRESS, DONE, FAIL, RELEASE, NACK, CANCEL, ACKJOB, FASTACK, DELJOB, DEQUEUE, DEADLETTER and
    DEAD.
    """
    ids = [world.add() for _ in range(5)]
    fill(world, 150)
    taken = world.get()
    assert world.run("WORKING", taken[0]) == 300
    assert world.run("SHOW", ids[0]) is not NULL
    assert world.qlen() == 4
    assert world.run("ACKJOB", ids[0]) == 1
    assert world.run("FASTACK", ids[1]) == 1
    assert world.run("DELJOB", ids[2]) == 1
    assert world.run("DEADLETTER", ids[3], "dead").startswith(b"D-")


def test_work_goes_on_at_every_level(world: World) -> None:
    """M2.4 What takes, does or ends work is accepted at every level

    So are all views, and RESULT and WAITJOB that wait.
    """
    ids = [world.add(ATTEMPTS=3, KEEP=60) for _ in range(5)]
    plain = world.add("plain")
    fill(world, 150)
    assert sorted(world.get(count=5)) == sorted(ids) and world.get("plain") == [plain]
    waiter, other = world.wire(), world.wire()
    assert waiter("WAITJOB", 9_000, *ids[:2]) is None
    assert other("RESULT", ids[0], "WAIT", 9_000) is None
    runs = [row[0] for row in world.run("START", *ids)]
    assert world.run("PROGRESS", ids[0], runs[0], "half") == b"OK"
    assert world.run("DONE", ids[0], runs[0], "RESULT", "r") == 1
    assert world.run("FAIL", ids[1], runs[1], "FINAL") == [b"dead", b"q.dead"]
    assert world.run("RELEASE", ids[2], runs[2]) == 1
    assert world.run("CANCEL", ids[3]) == [b"flagged"]
    assert world.run("CANCEL", ids[2]) == [b"ended"]
    assert world.run("NACK", ids[4], plain) == 2
    assert world.run("DEQUEUE", plain) == 1
    assert world.run("DEAD", "PURGE", "q.dead", "ALL")[1] == 1
    assert world.run("ADDJOB", "q", "b", 0) == OOM


def test_noeviction(make_world: Make) -> None:
    """M3.1 Policy `noeviction`: nothing."""
    world = make_world(maxmemory_policy="noeviction")
    once = world.add(RETRY=0)
    world.get()
    fill(world, 150)
    world.run("PING")
    assert world.state(once) == "active"


def test_order_of_eviction(world: World) -> None:
    """M3.1 Policy `acks`, while above 95 %, evicts in this order: delivered AMO jobs, oldest
    delivery first;
    """
    ids = [world.add(f"q{i}", RETRY=0) for i in range(4)]
    for i in (2, 0, 3, 1):
        world.get(f"q{i}")
    one = world.n.used_bytes() - (world.run("DELJOB", ids.pop()) and world.n.used_bytes())
    world.n.limits.memory_bytes = (world.n.used_bytes() - one) * 100 // 95 + 1
    world.run("PING")
    assert [world.state(job_id) for job_id in ids] == ["active", "active", "gone"]


def test_what_is_owed_is_kept(world: World) -> None:
    """M3.2 An unacked ALO job is never evicted, nor is an AMO job that was not delivered."""
    often, once = world.add(), world.add(RETRY=0)
    delivered = world.add("r")
    world.get("r")
    fill(world, 300)
    for _ in range(10):
        world.run("PING")
    assert [world.state(job) for job in (often, once, delivered)] == ["queued", "queued", "active"]


def test_one_run_is_bounded(world: World) -> None:
    """M3.3 One run evicts a limited number of jobs; the next command continues. The cause is
    evicted.
    """
    for _ in range(2500):
        world.add(RETRY=0)
    world.get(count=2500)
    world.n.limits.memory_bytes = 1
    counts = []
    for _ in range(3):
        world.run("PING")
        counts.append(world.n.ledger.evicted)
    assert counts == [1000, 2000, 2500]


@pytest.mark.parametrize(("percent", "limit_s"), [(0, 300), (80, 10), (120, 2)])
def test_idle_queues(world: World, percent: int, limit_s: int) -> None:
    """M4.1 A queue without jobs, waiting clients and pause is removed if no job entered or left it
    for `queue-idle-time` seconds (300), 10 s at level 1, 2 s at level 2 and above.
    """
    waiting = world.wire()
    waiting("GETJOB", "FROM", "waited")
    world.run("PAUSE", "paused", "in")
    world.add("full")
    world.run("DELJOB", world.add("empty"))
    assert world.now_ms - world.start_ms < 100
    if percent:
        fill(world, percent)
        world.until(lambda: world.n.idle_level == memory_level(world.n))
    world.pass_ms(limit_s * 1000 - 1)
    assert b"empty" in world.n.queues
    world.pass_ms(17)  # a timer is as late as that, at most
    assert sorted(world.n.queues) == [b"full", b"paused", b"waited"]


def test_short_idle_time_when_memory_is_short(world: World) -> None:
    """M4.1 10 s at level 1, 2 s at level 2 and above"""
    world.add("full")
    world.run("PAUSE", "empty", "in")
    world.run("PAUSE", "empty", "none")
    fill(world, 120)
    world.until(lambda: world.n.idle_level == 3)
    world.pass_ms(1_900)
    assert b"empty" in world.n.queues
    world.pass_ms(300)
    assert b"empty" not in world.n.queues


def test_idle_queues_are_removed_in_slices(world: World) -> None:
    """M4.1 At most 1,000 go in a turn."""
    n = world.n
    for number in range(3_500):
        get_queue(n, b"q%d" % number)
    world.run("CONFIG", "SET", "queue-idle-time", "1")
    world.until(lambda: n.idle_level >= 0)
    world.pass_ms(20)
    assert n.idle_left == 0 and len(n.queues) == 3_500
    n.now_ms += 1_000
    left = []
    for _ in range(4):
        idle_tick(n)
        left.append(len(n.queues))
    assert left == [2_500, 1_500, 500, 0]
    world.pass_ms(2_000)
    assert n.idle_checks[0][0] > n.now_ms + 200_000, "entries that count no more"


def test_acks_that_were_evicted_are_counted(make_world: Make) -> None:
    """M3.1 The last two kinds of the cluster are counted (`cluster_acks_evicted` of INFO)"""
    world = make_world(2)
    ids = [world.at(1).add(replicate=1) for _ in range(3)]
    world.cut(0, 1)
    for id in ids:
        assert world.run("ACKJOB", id) == 0
    assert b"cluster_acks_evicted:0\r" in world.run("INFO", "cluster")
    world.n.limits.memory_bytes = 1
    world.run("PING")
    assert b"cluster_acks_evicted:3\r" in world.run("INFO", "cluster")
