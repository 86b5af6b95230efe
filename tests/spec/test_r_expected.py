"""SPEC R1, R5, K4: an ADDJOB waits for nodes that are away for a short time."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from test_r_cluster import LOST, NOREPL, SUSPECTED_MS, TIMEOUT, told

from tuque.core.model.job import ACTIVE, QUEUED, WAIT_REPL
from tuque.core.queues.requeue import on_enqueue, on_working
from world import World

Make = Callable[..., World]


@pytest.mark.parametrize("replicate", [2, 3])
def test_a_node_that_restarts_is_waited_for(make_world: Make, replicate: int) -> None:
    """K4.4 A node of the cluster is expected if it is not suspected, failed or leaving."""
    world = make_world(3, journal="off")
    for b in (1, 2):
        world.restart(b)
    id = world.at(0).begin_add(replicate=replicate, timeout_ms=10_000)
    world.pass_ms(9_000)
    assert told(world, 0) == []
    world.link(0, 1)
    world.pass_ms(100)
    assert told(world, 0) == ([id] if replicate == 2 else [])
    world.link(0, 2)
    world.pass_ms(100)
    assert told(world, 0) == ([id] if replicate == 3 else [])
    world.at(0).send_add("q", "body", replicate=4)
    assert told(world, 0) == [NOREPL], "there are no four nodes"
    world.restart(1)
    world.at(0).begin_add(replicate=3, timeout_ms=310)
    world.pass_ms(309)
    assert told(world, 0) == []
    world.pass_ms(1)
    assert told(world, 0) == [TIMEOUT]


def test_a_node_that_is_away_for_longer_is_not_waited_for(make_world: Make) -> None:
    """R5.3 If so few nodes are expected (K4.4) that n copies are impossible, the ADDJOB does
    this: With timeout 0 it ends: `-NOREPL Too few nodes are left for the copies: the job is
    withdrawn`.
    """
    world = make_world(2, journal="off")
    world.restart(1)
    world.at(0).begin_add(replicate=2, timeout_ms=0)
    world.pass_ms(5_000)
    assert told(world, 0) == []
    world.pass_ms(SUSPECTED_MS)
    assert told(world, 0) == [LOST]
    world.at(0).send_add("q", "body", replicate=2)
    assert told(world, 0) == [NOREPL]


def test_a_node_that_is_away_is_waited_for_until_the_timeout(make_world: Make) -> None:
    """R5.3 With a timeout it waits for that: a node that comes back meanwhile takes its copy."""
    world = make_world(2, journal="off")
    world.restart(1)
    id = world.at(0).begin_add(replicate=2, timeout_ms=90_000)
    world.pass_ms(5_000 + SUSPECTED_MS)
    assert told(world, 0) == []
    world.link(0, 1)
    world.pass_ms(2_000)
    assert told(world, 0) == [id] and world.holders(id) == [0, 1]
    world.restart(1)
    world.at(0).begin_add(replicate=2, timeout_ms=90_000)
    world.pass_ms(89_999)
    assert told(world, 0) == []
    world.pass_ms(1)
    assert told(world, 0) == [TIMEOUT]


def test_with_async_the_copy_is_made_when_the_node_is_back(make_world: Make) -> None:
    """R1.10 ASYNC sends the same messages and does not wait. Copies for which no node is reachable
    are made as soon as one is (K5.3).
    """
    world = make_world(2, journal="off")
    world.restart(1)
    id = world.at(0).add(replicate=2, ASYNC=True)
    world.pass_ms(1_000)
    assert world.holders(id) == [0]
    world.link(0, 1)
    world.pass_ms(5_000)
    assert world.holders(id) == [0, 1]


def test_one_that_takes_no_copies_waits_too(make_world: Make) -> None:
    """R1.5 It then needs n other nodes, otherwise n - 1."""
    world = make_world(3, journal="off")
    world.restart(1)
    world.restart(2)
    world.leave(0)
    world.at(0).send_add("q", "body", replicate=3)
    (refused,) = told(world, 0)
    assert refused.endswith("I'm leaving the cluster")
    id = world.at(0).begin_add(replicate=2, timeout_ms=10_000)
    world.pass_ms(1_000)
    world.link(0, 1)
    world.link(0, 2)
    world.pass_ms(500)
    assert told(world, 0) == [id]
    assert len(world.holders(id)) == 2


@pytest.mark.parametrize("is_leaving", [False, True])
def test_copies_wait_with_their_producer(make_world: Make, *, is_leaving: bool) -> None:
    """Q3.1 In wait-repl: MOVED with the time that a new copy would wait (R2.5), unless another
    node serves the job.
    """
    world = make_world(4, journal="off")
    world.node(0).core.is_leaving = is_leaving
    world.restart(2)
    world.restart(3)
    id = world.at(0).begin_add(
        replicate=2 if is_leaving else 3, retry=1, delay=2, timeout_ms=20_000
    )
    world.pass_ms(10_000)
    assert world.states(id)[:2] == [WAIT_REPL, ACTIVE]
    world.link(0, 2)
    world.link(1, 2)
    world.pass_ms(700)  # the delay was over before: the others are asked first (Q1.2)
    assert told(world, 0) == [id]
    assert world.states(id)[:3].count(QUEUED) == 1
    server = world.states(id).index(QUEUED)
    assert world.at(server).get() == [id]
    world.pass_ms(900)
    assert QUEUED not in world.states(id)


def test_copies_do_not_wait_for_an_origin_that_is_gone(make_world: Make) -> None:
    """Q3.1 In wait-repl: MOVED with the time that a new copy would wait (R2.5), unless another
    node serves the job.
    """
    world = make_world(3, journal="off")
    world.restart(2)
    id = world.at(0).begin_add(replicate=3, retry=1, timeout_ms=20_000)
    world.pass_ms(5_000)
    world.isolate(0)
    world.pass_ms(2_000)
    assert world.states(id)[1] == QUEUED


@pytest.mark.parametrize("delay_s", [0, 20])
@pytest.mark.parametrize("word", ["queued", "delivered", "working", "cut off"])
def test_what_a_copy_began_meanwhile_is_not_begun_again(
    make_world: Make, word: str, delay_s: int
) -> None:
    """R3.5 If before that another node reports that it has queued the ALO job (also with ASK) or
    that a worker has it, the job is not queued when it has its copies. Its due time is the
    reported one, or the end of its delay if that is later.
    """
    world = make_world(3, journal="off")
    world.restart(2)
    id = world.at(0).begin_add(replicate=3, retry=10, delay=delay_s, timeout_ms=60_000)
    world.settle()
    if word == "cut off":
        world.cut(0, 1)
    else:
        world.hold(0, 1)
    copy = world.node(1).core
    assert on_enqueue(copy, id)
    world.settle()
    if word in ("delivered", "working"):
        assert world.at(1).get() == [id]
        world.pass_ms(600)
    if word == "working":
        world.pass_ms(4_000)
        assert on_working(copy, id) is None
        world.settle()
    began_ms = world.now_ms
    assert world.node(0).core.jobs[id].state == WAIT_REPL
    if word == "cut off":
        world.link(0, 1)
        world.settle()
    else:
        world.release(0, 1)
    world.link(0, 2)
    world.link(1, 2)
    world.pass_ms(100)
    assert told(world, 0) == [id]
    assert world.states(id)[0] == ACTIVE
    left_ms = world.node(0).core.jobs[id].qtime_ms - began_ms
    if delay_s:
        assert 15_000 < left_ms <= 20_000
    else:
        assert 9_000 < left_ms < 11_000, "retry and, at both nodes, less than 0.5 s"
    world.pass_ms(8_000)
    assert world.states(id)[0] == ACTIVE
    world.pass_ms(20_000)
    assert world.states(id).count(QUEUED) == 1


@pytest.mark.parametrize("sync", [3, "majority"])
def test_a_leader_waits_for_links_that_are_made_anew(make_world: Make, sync: int | str) -> None:
    """T18.5 If fewer than n nodes are expected (K4.4), nothing is done: `-NOREPL Not enough
    reachable nodes for the requested replication level`.
    """
    world = make_world(3)
    world.until(lambda: world.node(0).info("tubes")["tubes_voters"] == "3")
    at = world.at(0)
    at("TUBE", "CREATE", "t", "tasks", "SYNC", sync)
    world.until(lambda: at("TUBE", "STATE", "t") == b"RUNNING")
    world.isolate(0)
    assert world.at(0, 1)("TUBE", "PUT", "t", "x") is None
    assert world.at(0, 2)("ADDJOB", "t", "y", 0) is None
    world.link()
    assert len(world.until(world.at(0, 1).take, 1_000)) == 6
    assert world.until(world.at(0, 2).take, 1_000).startswith(b"D-")


def test_a_publish_waits_for_links_that_are_made_anew(make_world: Make) -> None:
    """Z2.5 If one of the jobs would be refused under R1.6 or R1.7, or because too few nodes are
    expected (K4.4) for its copies, the reply is that error and nothing is done.
    """
    world = make_world(3, journal="off")
    words = ("RETRY", 30, "TTL", 3600, "REPLICATE", 3)
    assert world.at(0)("STAGE", "t", "a", 600_000, "q", b"body", *words) == 1
    world.isolate(0)
    assert world.at(0)("PUBLISH", "app", 1, "t", "a") is None
    world.link()
    world.until(lambda: world.at(0).take() == 1, 1_000)
    (job,) = world.n.jobs.values()
    assert job.state == QUEUED and world.holders(job.id) == [0, 1, 2]
