"""SPEC M: accounting, levels, eviction, idle queues."""

from __future__ import annotations

import pytest
from node_by_hand import NULL, START_MS, Box
from test_w_away import MAKER, linked, made_there

from tuque.core.dispatch.messages import on_link_down
from tuque.core.queues.procedures import memory_level

OOM = "OOM command not allowed when used memory > 'maxmemory': let jobs end, or raise maxmemory"


def fill(box: Box, percent: int) -> None:
    """Set the limit so that what is used now is that part of it."""
    box.n.limits.memory_bytes = box.n.counted_bytes() * 100 // percent


def test_counted_as_it_changes(box: Box) -> None:
    """M1.1 It is counted as it changes, and stays within 15 % of the truth."""
    box.run("ACKJOB", box.add())  # the queue stays, and counts
    start = box.n.used_bytes()
    ids = [box.add(body="x" * 1000) for _ in range(100)]
    assert 100_000 < box.n.used_bytes() - start < 150_000
    box.get(count=50)
    box.run("ACKJOB", *ids)
    assert box.n.used_bytes() == start


def test_work_counts_as_it_changes(box: Box) -> None:
    """M1.1 It is counted as it changes, and stays within 15 % of the truth."""
    box.run("ACKJOB", box.add())
    start = box.n.used_bytes()
    kept, awaited = box.add(KEEP=60), box.add(ATTEMPTS=3)
    open_jobs = box.n.used_bytes()
    waiter = box.session()
    assert waiter("WAITJOB", 0, *[awaited] * 100) is None
    assert 5_000 < box.n.used_bytes() - open_jobs < 50_000
    waiting = box.n.used_bytes()
    assert box.run("DONE", kept, "-", "RESULT", "x" * 50_000) == 1
    assert 45_000 < box.n.used_bytes() - waiting < 57_000
    box.run("ACKJOB", awaited)
    box.pass_ms(61_000)
    assert abs(box.n.used_bytes() - start) < 1_000, "what is left are the terms of jobs"


def test_no_limit() -> None:
    """M1.2 `maxmemory` 0 means no limit: the level is always 0."""
    box = Box(maxmemory="0")
    box.n.base_bytes = 1 << 50
    assert memory_level(box.n) == 0
    box.add()
    box.close()


@pytest.mark.parametrize(
    ("percent", "level"), [(74, 0), (75, 0), (76, 1), (95, 1), (96, 2), (100, 2), (101, 3)]
)
def test_levels(box: Box, percent: int, level: int) -> None:
    """M2.1 Level 1, above 75 % of `maxmemory`: this node takes no new copies. ADDJOB replicates
    externally (R1.5), REPLJOB is refused.
    """
    box.n.limits.memory_bytes = 1_000_000
    box.n.base_bytes = percent * 10_000
    assert memory_level(box.n) == level
    if level:
        assert box.run("ADDJOB", "q", "b", 0).startswith(("NOREPL", "OOM"))


def test_level_2_evicts(box: Box) -> None:
    """M2.2 Level 2, above 95 %: also eviction before each command (M3)."""
    once = box.add(RETRY=0)
    box.get()
    fill(box, 94)
    box.run("PING")
    assert box.state(once) == "active"
    fill(box, 97)
    box.run("PING")
    assert box.state(once) == "gone"


def test_level_3_refuses(box: Box) -> None:
    """M2.3 Level 3, above 100 % after eviction: commands that add are refused (C3.5)."""
    job_id = box.add()
    box.get()
    fill(box, 101)
    assert box.run("ADDJOB", "q", "b", 0) == OOM
    assert box.run("ENQUEUE", job_id) == OOM
    assert box.run("UPDATEJOB", job_id, "TTL", 9) == OOM
    fill(box, 99)
    assert box.run("ENQUEUE", job_id) == 1


def test_always_accepted(box: Box) -> None:
    """M2.4 What takes, does or ends work is accepted at every level, since it makes room: GETJOB,
    START, WORKING, PROGRESS, DONE, FAIL, RELEASE, NACK, CANCEL, ACKJOB, FASTACK, DELJOB, DEQUEUE,
    DEADLETTER and DEAD.
    """
    ids = [box.add() for _ in range(5)]
    fill(box, 150)
    taken = box.get()
    assert box.run("WORKING", taken[0]) == 300
    assert box.run("SHOW", ids[0]) is not NULL
    assert box.qlen() == 4
    assert box.run("ACKJOB", ids[0]) == 1
    assert box.run("FASTACK", ids[1]) == 1
    assert box.run("DELJOB", ids[2]) == 1
    assert box.run("DEADLETTER", ids[3], "dead").startswith("D-")


def test_work_goes_on_at_every_level(box: Box) -> None:
    """M2.4 What takes, does or ends work is accepted at every level, since it makes room

    So are all views, and RESULT and WAITJOB that wait.
    """
    ids = [box.add(ATTEMPTS=3, KEEP=60) for _ in range(5)]
    plain = box.add("plain")
    fill(box, 150)
    assert sorted(box.get(count=5)) == sorted(ids) and box.get("plain") == [plain]
    waiter, other = box.session(), box.session()
    assert waiter("WAITJOB", 9_000, *ids[:2]) is None
    assert other("RESULT", ids[0], "WAIT", 9_000) is None
    runs = [row[0] for row in box.run("START", *ids)]
    assert box.run("PROGRESS", ids[0], runs[0], "half") == "OK"
    assert box.run("DONE", ids[0], runs[0], "RESULT", "r") == 1
    assert box.run("FAIL", ids[1], runs[1], "FINAL") == [b"dead", b"q.dead"]
    assert box.run("RELEASE", ids[2], runs[2]) == 1
    assert box.run("CANCEL", ids[3]) == [b"flagged"]
    assert box.run("CANCEL", ids[2]) == [b"ended"]
    assert box.run("NACK", ids[4], plain) == 2
    assert box.run("DEQUEUE", plain) == 1
    assert box.run("DEAD", "PURGE", "q.dead", "ALL")[1] == 1
    assert box.run("ADDJOB", "q", "b", 0) == OOM


def test_noeviction() -> None:
    """M3.1 Policy `noeviction`: nothing."""
    box = Box(maxmemory_policy="noeviction")
    once = box.add(RETRY=0)
    box.get()
    fill(box, 150)
    box.run("PING")
    assert box.state(once) == "active"
    box.close()


def test_order_of_eviction(box: Box) -> None:
    """M3.1 Policy `acks`, while above 95 %, evicts in this order: delivered AMO jobs, oldest
    delivery first;
    """
    ids = [box.add(f"q{i}", RETRY=0) for i in range(4)]
    for i in (2, 0, 3, 1):
        box.get(f"q{i}")
    one = box.n.used_bytes() - (box.run("DELJOB", ids.pop()) and box.n.used_bytes())
    box.n.limits.memory_bytes = (box.n.used_bytes() - one) * 100 // 95 + 1
    box.run("PING")
    assert [box.state(job_id) for job_id in ids] == ["active", "active", "gone"]


def test_what_is_owed_is_kept(box: Box) -> None:
    """M3.2 An unacked ALO job is never evicted, nor is an AMO job that was not delivered."""
    often, once = box.add(), box.add(RETRY=0)
    delivered = box.add("r")
    box.get("r")
    fill(box, 300)
    for _ in range(10):
        box.run("PING")
    assert [box.state(job) for job in (often, once, delivered)] == ["queued", "queued", "active"]


def test_one_run_is_bounded(box: Box) -> None:
    """M3.3 One run evicts a limited number of jobs; the next command continues. The cause is
    evicted.
    """
    for _ in range(2500):
        box.add(RETRY=0)
    box.get(count=2500)
    box.n.limits.memory_bytes = 1
    counts = []
    for _ in range(3):
        box.run("PING")
        counts.append(box.n.ledger.evicted)
    assert counts == [1000, 2000, 2500]


@pytest.mark.parametrize(("percent", "limit_s"), [(0, 300), (80, 10), (120, 2)])
def test_idle_queues(box: Box, percent: int, limit_s: int) -> None:
    """M4.1 A queue without jobs, waiting clients and pause is removed if no job entered or left it
    for `queue-idle-time` seconds (300), 10 s at level 1, 2 s at level 2 and above.
    """
    waiting = box.session()
    waiting("GETJOB", "FROM", "waited")
    box.run("PAUSE", "paused", "in")
    box.add("full")
    box.run("DELJOB", box.add("empty"))
    assert box.n.now_ms == START_MS
    if percent:
        fill(box, percent)
    box.turn()
    box.pass_ms(limit_s * 1000 - 1)
    assert b"empty" in box.n.queues
    box.pass_ms(2)
    assert sorted(box.n.queues) == [b"full", b"paused", b"waited"]


def test_short_idle_time_when_memory_is_short(box: Box) -> None:
    """M4.1 10 s at level 1, 2 s at level 2 and above"""
    box.add("full")
    box.run("PAUSE", "empty", "in")
    box.run("PAUSE", "empty", "none")
    fill(box, 120)
    box.turn()
    box.pass_ms(1_900)
    assert b"empty" in box.n.queues
    box.pass_ms(300)
    assert b"empty" not in box.n.queues


def test_acks_that_were_evicted_are_counted(box: Box) -> None:
    """M3.1 both are counted (`cluster_acks_evicted` of INFO)"""
    on_link_down(box.n, linked(box, MAKER))
    for i in range(3):
        assert box.run("ACKJOB", made_there(box.n, b"%d" % i)) == 0
    assert b"cluster_acks_evicted:0\r" in box.run("INFO", "cluster")
    box.n.limits.memory_bytes = 1
    box.run("PING")
    assert b"cluster_acks_evicted:3\r" in box.run("INFO", "cluster")
