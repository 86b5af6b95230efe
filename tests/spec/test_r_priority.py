"""SPEC R1.13, G3.2: the PRI of jobs in a queue, on each way that a job can take."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from test_w_work import start

from tuque.core.model.job import QUEUED
from world import World

Make = Callable[..., World]


def mixed(world: World, i: int = 0, *, queue: str = "q", **options: int) -> list[bytes]:
    """Jobs with PRI 9, none, 0, 9, none, 0, in this order."""
    wire = world.wire(i)
    return [
        wire.add(queue, f"{pri}", **options, **({} if pri < 0 else {"PRI": pri}))
        for pri in (9, -1, 0, 9, -1, 0)
    ]


ORDER = [2, 5, 1, 4, 0, 3]  # of the jobs of `mixed`


def test_a_lower_pri_goes_first(world: World) -> None:
    """R1.13 Jobs with a lower PRI go before all others of their queue on a node, whatever their age
    (G3.2).
    """
    ids = mixed(world)
    assert [row[1] for row in world.run("QPEEK", "q", 9)] == [ids[i] for i in ORDER]
    assert [row[1] for row in world.run("QPEEK", "q", -9)] == [ids[i] for i in reversed(ORDER)]
    assert world.get(count=2) == [ids[2], ids[5]]
    first = world.add(PRI=4)
    assert world.get(count=9) == [first, ids[1], ids[4], ids[0], ids[3]]
    for pri in range(10):
        world.add("all", str(9 - pri), PRI=9 - pri)
    assert [row[2] for row in world.run("QPEEK", "all", 10)] == [b"%d" % i for i in range(10)]
    world.check()


def test_above_9_it_is_refused(world: World) -> None:
    """R1.13 PRI above 9, or UTUBE: `-ERR '<queue>' is no tube: a queue takes PRI 0 to 9 with
    ADDJOB, and no UTUBE`.
    """
    refused = b"-ERR 'q' is no tube: a queue takes PRI 0 to 9 with ADDJOB, and no UTUBE\r\n"
    assert world("ADDJOB q b 0 PRI 10") == refused
    assert world("ADDJOB q b 0 UTUBE a") == refused
    assert world("ADDJOB q b 0 PRI -1").startswith(b"-ERR PRI must be")
    assert not world.n.jobs


def test_it_stays_with_the_job(world: World) -> None:
    """R1.13 it stays: after a NACK, a failed attempt"""
    ids = mixed(world, RETRY=10, ATTEMPTS=9)
    assert world.get(count=6) == [ids[i] for i in ORDER]
    world.run("NACK", *ids[:3])
    runs = [start(world, id) for id in ids[3:]]
    for id, run in zip(ids[3:5], runs, strict=False):
        assert world.run("FAIL", id, run, "DELAY", 0)[0] == b"retry"
    world.pass_ms(10_100)  # the last one is silent, and runs again after its back-off
    world.until(lambda: world.state(ids[5]) == "queued")
    assert world.get(count=6) == [ids[i] for i in ORDER]


def test_it_stays_with_a_dead_letter(world: World) -> None:
    """R1.13 it stays: after a NACK, a failed attempt, a move to another node, a REPLAY."""
    ids = mixed(world, ATTEMPTS=1)
    world.get(count=6)
    for id in ids:
        world.run("FAIL", id, start(world, id), "FINAL")
    assert world.run("DEAD", "REPLAY", "q.dead", "ALL") == [b"0", 6, 6]
    assert world.get(count=6) == [ids[i] for i in ORDER]
    for id in ids:
        world.run("FAIL", id, start(world, id), "FINAL")
    world.run("DEAD", "REPLAY", "q.dead", "QUEUE", "other", "ALL")
    assert world.get("other", count=6) == [ids[i] for i in ORDER]
    assert world.show(ids[0])["pri"] == 9


@pytest.mark.parametrize("is_rewritten", [False, True])
def test_a_restart_keeps_it(make_world: Make, is_rewritten: bool) -> None:
    """R1.13 All copies of a job have its PRI"""
    world = make_world(1, journal="always")
    ids = mixed(world)
    taken = world.get()
    if is_rewritten:
        world.rewrite()
    world.restart(0)
    world.run("ENQUEUE", *taken)
    assert world.wire(0).get(count=6) == [ids[i] for i in ORDER]


def test_all_copies_have_it(make_world: Make) -> None:
    """R1.13 All copies of a job have its PRI"""
    world = make_world(3, journal="off")
    ids = mixed(world, REPLICATE=3, RETRY=2)
    levels = [world.node(0).core.jobs[id].level for id in ids]
    assert levels == [9, 5, 0, 9, 5, 0]
    for i in (1, 2):
        assert [world.node(i).core.jobs[id].level for id in ids] == levels
    world.kill(0)
    world.until(lambda: world.wire(1).qlen() + world.wire(2).qlen() == 6)
    for i in (1, 2):
        here = [id for id in ids if world.node(i).core.jobs[id].state == QUEUED]
        ordered = [ids[at] for at in ORDER if ids[at] in here]
        assert [row[1] for row in world.wire(i)("QPEEK", "q", 9)] == ordered


def test_a_move_to_another_node_keeps_it(make_world: Make) -> None:
    """R1.13 it stays: after a NACK, a failed attempt, a move to another node"""
    world = make_world(2, journal="off")
    ids = mixed(world, 1, REPLICATE=1) + mixed(world, 1, REPLICATE=1)
    found: list[bytes] = []

    def took() -> bool:
        found.extend(world.wire(0).get(count=1))
        return len(found) == len(ids)

    assert world.until(took)
    both = [ids[i] for i in ORDER], [ids[i + 6] for i in ORDER]
    best = {*both[0][:2], *both[1][:2]}
    assert set(found[:4]) == best  # half of the queue moved, with its order
    assert {int(world.node(0).core.jobs[id].level) for id in ids} == {0, 5, 9}


def test_show_has_it(world: World) -> None:
    """S1.5 If the PRI of a job in a queue is not 5, pri follows."""
    urgent, plain, named = world.add(PRI=0), world.add(), world.add(PRI=5)
    assert world.show(urgent)["pri"] == 0
    assert "pri" not in world.show(plain) and "pri" not in world.show(named)
    rows = world.run("JSCAN", 0, "QUEUE", "q", "REPLY", "ALL")[1]
    assert sum(b"pri" in row for row in rows) == 1


def test_the_oldest_job_of_any_pri_is_the_oldest(world: World) -> None:
    """S2.4 oldest is the age in seconds of the oldest job queued here, since its creation, delay
    included; 0 if none is queued.
    """
    world.add(PRI=9)
    world.pass_ms(5_000)
    world.add(PRI=1)
    world.add()
    world.pass_ms(2_000)
    assert world.run("QSTAT", "q")[-1] == 7


def test_a_topic_gives_it_to_queues(world: World) -> None:
    """T62.4 PRI is for queues, too: one above 9 is 9 there."""
    world.run("TUBE", "CREATE", "tube", "tasks")
    for queue in ("q", "tube"):
        world.run("TOPIC", "SUBSCRIBE", "news", queue)
    for pri in (77, 5, 2):
        world.run("TOPIC", "ADD", "news", str(pri), 0, "PRI", pri)
    jobs = world.run("GETJOB", "NOHANG", "COUNT", 3, "FROM", "q")
    assert [(row[2], int(world.job(row[1]).level)) for row in jobs] == [
        (b"2", 2), (b"5", 5), (b"77", 9)
    ]  # fmt: skip
    assert world.run("GETJOB", "FROM", "tube")[0][2] == b"2"


@pytest.mark.parametrize("is_published", [False, True])
def test_a_staged_job_has_it(make_world: Make, is_published: bool) -> None:
    """Z1.2 Options, their errors, R1.3, R1.4 and R1.13 are as in ADDJOB."""
    world = make_world(1, journal="always")
    for pri in (9, -1, 0, 5, 3):
        words = () if pri < 0 else ("PRI", pri)
        world.run("STAGE", "t", "a", 60_000, "q", str(pri), *words)
    world.run("STAGE", "t", "a", 60_000, "q", "1", "PRI", 1, "REPLICATE", 1)
    if is_published:
        assert world.run("PUBLISH", "app", 1, "t", "a") == 6
    world.restart(0)
    if not is_published:
        assert world.run("PUBLISH", "app", 1, "t", "a") == 6
    rows = world.run("GETJOB", "NOHANG", "COUNT", 9, "FROM", "q")
    assert [row[2] for row in rows] == [b"0", b"1", b"3", b"-1", b"5", b"9"]
