"""SPEC J6.9 to J6.11: a disk that becomes full."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from iproto_raw import refused
from world import World

MB = 1 << 20
MakeWorld = Callable[..., World]
DISKFULL = (
    "DISKFULL the disk of the journal is nearly full: this node takes no more jobs until it has "
    "room; acknowledge jobs, free space, or use another node"
)


@pytest.fixture
def small(make_world: MakeWorld) -> World:
    """A node whose disk is short below 1 MB, with a reserve of 64 KB."""
    world = make_world(disk_free_min="1mb", disk_reserve="64kb")
    world.pass_ms(2_000)
    return world


def nearly_full(world: World) -> None:
    """The disk has half of what new jobs need."""
    world.disk().full(MB // 2)
    world.add()
    world.pass_ms(2_000)


def test_a_short_disk_takes_no_more_jobs(small: World) -> None:
    """J6.9 If that is less than `disk-free-min`, or than a rewrite may need (the size of the
    journal's files, or of jobs in memory if less), ADDJOB, STAGE and UPDATEJOB get `-DISKFULL
    the disk of the journal is nearly full: this node takes no more jobs until it has room;
    acknowledge jobs, free space, or use another node`.
    """
    run = small.run
    run("TUBE", "CREATE", "t", "fifo")
    run("TOPIC", "SUB", "news", "q")
    job_id = small.add(DELAY=1000)
    nearly_full(small)
    assert run("ADDJOB", "q", "b", 0) == DISKFULL
    assert run("UPDATEJOB", job_id, "BODY", "c") == DISKFULL
    assert run("STAGE", "x", 1, 1000, "q", "b") == DISKFULL
    assert run("TUBE", "PUT", "t", "b") == DISKFULL
    assert run("TUBE", "CREATE", "u", "fifo") == DISKFULL
    assert run("TOPIC", "ADD", "news", "b", 0) == DISKFULL
    small.disk().well()
    small.pass_ms(2_000)
    assert run("ADDJOB", "q", "b", 0).startswith(b"D-")
    assert any("jobs are taken again" in line for line in small.node().log)


def test_what_ends_jobs_goes_on(small: World) -> None:
    """J6.9 All other commands run: a queue can be emptied."""
    for i in range(5):
        small.add("q", f"b{i}")
    nearly_full(small)
    got = small.get("q", count=10)
    assert len(got) == 6
    assert small.run("ACKJOB", *got) == 6
    assert small.run("PING") == b"PONG"


def test_a_rewrite_needs_room(make_world: MakeWorld) -> None:
    """J6.9 (the size of the journal's files, or of jobs in memory if less)."""
    world = make_world(disk_free_min="10kb")
    for _ in range(10):
        world.add("q", "x" * 10_000)
    world.disk().full(50_000)  # more than disk-free-min, and less than the files
    world.pass_ms(1)
    world.add()
    world.pass_ms(2_000)
    assert world.run("ADDJOB", "q", "b", 0) == DISKFULL


def test_the_reserve_lets_jobs_end(small: World) -> None:
    """J6.10 When a write, or the start, finds the disk full, it is deleted and the write
    repeated: ends of jobs and one rewrite still fit.
    """
    ids = [small.add() for _ in range(3)]
    assert small.info("persistence")["journal_reserve"] == "1"
    small.disk().full()
    got = small.get("q", count=3)
    assert small.run("ACKJOB", *got) == 3
    assert small.run("ADDJOB", "q", "b", 0) == DISKFULL
    assert small.info("persistence")["journal_reserve"] == "0"
    assert any("uses its reserve" in line for line in small.node().log)
    small.disk().well()
    small.pass_ms(3_000)
    assert small.info("persistence")["journal_reserve"] == "1"
    small.kill(0)
    small.start(0)
    assert not [one for one in ids if one in small.n.jobs]


@pytest.mark.parametrize("least", ["0", "1kb"])
def test_the_reserve_is_not_for_jobs(make_world: MakeWorld, least: str) -> None:
    """J6.9 So it is, whatever `disk-free-min`, from the use of the reserve until it is written
    again (J6.10).
    """
    world = make_world(disk_free_min=least, disk_reserve="64kb")
    world.pass_ms(2_000)
    world.disk().full(30_000)
    added = [world.run("ADDJOB", "q", "b" * 10_000, 0) for _ in range(20)]
    ids = [one for one in added if one != DISKFULL]
    assert 2 <= len(ids) <= 4
    assert world.info("persistence")["journal_reserve"] == "0"
    world.pass_ms(5_000)
    assert world.run("ADDJOB", "q", "b", 0) == DISKFULL
    for id in ids:
        assert world.get("q") == [id]
        assert world.run("ACKJOB", id) == 1
    world.stop(0)
    world.start(0)
    assert world.run("QLEN", "q") == 0
    world.disk().well()
    world.pass_ms(3_000)
    assert world.info("persistence")["journal_reserve"] == "1"
    assert world.run("ADDJOB", "q", "b", 0).startswith(b"D-")


def test_a_start_after_the_use_of_the_reserve_takes_no_jobs(make_world: MakeWorld) -> None:
    """J6.9 So it is, whatever `disk-free-min`, from the use of the reserve until it is written
    again (J6.10), also over a restart.
    """
    world = make_world(disk_free_min="0", disk_reserve="64kb")
    world.pass_ms(2_000)
    world.disk().full(30_000)
    added = [world.run("ADDJOB", "q", "b" * 10_000, 0) for _ in range(10)]
    ids = [one for one in added if one != DISKFULL]
    assert 0 < len(ids) < 10 and world.info("persistence")["journal_reserve"] == "0"
    for _ in range(2):
        world.kill(0)
        world.start(0)
        assert world.run("ADDJOB", "q", "b", 0) == DISKFULL
    assert sorted(world.get("q", count=10)) == sorted(ids)
    assert world.run("ACKJOB", *ids) == len(ids)
    world.disk().well()
    world.kill(0)
    world.start(0)
    assert isinstance(world.run("ADDJOB", "q", "b", 0), bytes)
    assert world.info("persistence")["journal_reserve"] == "1"


def test_a_start_that_needs_the_reserve_takes_no_jobs(make_world: MakeWorld) -> None:
    """J6.10 When a write, or the start, finds the disk full, it is deleted and the write
    repeated: ends of jobs and one rewrite still fit.
    """
    world = make_world(disk_free_min="0", disk_reserve="64kb")
    job_id = world.add()
    world.pass_ms(2_000)
    world.stop(0)
    world.disk().full()
    world.start(0)
    assert world.run("ADDJOB", "q", "b", 0) == DISKFULL
    assert world.run("ACKJOB", job_id) == 1


def test_an_add_that_finds_the_disk_full_is_answered(small: World) -> None:
    """The write is repeated (J6.10), and the next job is refused."""
    small.disk().full()
    first = small.run("ADDJOB", "q", "b" * 1_000, 0)
    assert first.startswith(b"D-")
    assert small.run("ADDJOB", "q", "b", 0) == DISKFULL


@pytest.mark.parametrize("has_reserve", [True, False])
def test_a_start_on_a_full_disk(make_world: MakeWorld, has_reserve: bool) -> None:
    """J6.10 A start that finds the disk full and no reserve serves what it has loaded, and J6.1
    applies until there is room for a segment.
    """
    words = {"disk_reserve": "64kb"} if has_reserve else {}
    world = make_world(**words)
    job_id = world.add("q", "x" * 10_000)
    world.pass_ms(2_000)
    world.stop(0)
    world.disk().full()
    world.start(0)
    assert world.get("q") == [job_id] if has_reserve else world.run("QLEN", "q") == 1
    said = world.run("ACKJOB", job_id)
    if has_reserve:
        assert said == 1
        return
    assert said.startswith("MISCONF")
    world.disk().full(1_000)  # less than a rewrite needs
    world.pass_ms(3_000)
    assert world.info("persistence")["aof_state"] == "on"
    assert world.run("ACKJOB", job_id) == 1
    world.kill(0)
    world.start(0)
    assert world.run("QLEN", "q") == 0


def test_a_rewrite_without_room_leaves_the_reserve(small: World) -> None:
    """J6.10 A rewrite takes it only if it has room then: else it is abandoned."""
    ids = [small.add("q", "x" * 30_000) for _ in range(10)]
    small.disk().full(10_000)
    small.run("BGREWRITEAOF")
    small.pass_ms(60_000)
    assert small.info("persistence")["aof_last_bgrewrite_status"] == "err"
    assert small.info("persistence")["journal_reserve"] == "1"
    small.disk().full()
    assert small.run("ACKJOB", *ids) == 10
    assert small.run("PING") == b"PONG"


def test_an_emptied_queue_gives_room_back(make_world: MakeWorld) -> None:
    """J6.11 While J6.9 applies, a rewrite is also due when half of the jobs have ended, or a tenth
    of the files is new, if they have more than 1 MB.
    """
    world = make_world(disk_free_min="1mb", disk_reserve="64kb")
    ids = [world.add("q", "x" * 60_000) for _ in range(30)]
    world.disk().full(MB // 2)
    world.pass_ms(2_000)
    assert world.run("ADDJOB", "q", "b", 0) == DISKFULL
    assert world.run("ACKJOB", *ids) == 30
    world.pass_ms(15_000)
    assert world.run("ADDJOB", "q", "b", 0).startswith(b"D-")


def test_iproto(small: World) -> None:
    """I4.8 40 for writes while the journal cannot be written, and for put and create_tube while its
    disk is nearly full (J6.9).
    """
    nearly_full(small)
    code, text = refused(small.iproto().call("queue.create_tube", "t", "fifo"))
    assert code == 40
    assert "nearly full" in text
