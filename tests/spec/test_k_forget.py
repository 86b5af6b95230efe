"""SPEC K6.2, and what leaves with a lost node beside copies: custody, adds, external jobs."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from test_k_repair import settle

from tuque.core.copies.ack import on_ackjob
from tuque.core.model.job import ACTIVE, IN_TRANSIT, QUEUED
from tuque.core.node.queue import PAUSE_IN
from tuque.core.queues.deliver import set_pause
from tuque.core.repair.node_loss import repair_left
from world import World

Make = Callable[..., World]


def test_a_forgotten_node_leaves_all_sets(make_world: Make) -> None:
    """K6.2 The node leaves the holders and confirmed sets of every job. Collection (A2) continues
    without it, and jobs that then lack copies are repaired (K5.3)."""
    world = make_world(4, journal="off")
    acked, kept = world.at(0).add(replicate=4), [world.at(0).add(replicate=3) for _ in range(20)]
    world.restart(3)
    on_ackjob(world.node(0).core, acked)
    world.pass_ms(5_000)
    assert world.holders(acked) == [0, 1, 2]
    for i in (0, 1, 2):
        world.forget(i, 3)
    world.settle()
    assert world.holders(acked) == []
    settle(world)
    for id in kept:
        assert world.copies(id) == [0, 1, 2]
        assert all(world.believed(i, id) == [0, 1, 2] for i in (0, 1, 2))


def test_a_forgotten_node_is_replaced_while_another_is_away(make_world: Make) -> None:
    """K6.2 Collection (A2) continues without it, and jobs that then lack copies are repaired
    (K5.3). The nodes that are not linked here become holders as in K5.1."""
    world = make_world(6, journal="off")
    world.isolate(3)
    ids = [world.at(0).add(replicate=3) for _ in range(30)]
    world.isolate(1)
    world.forget(0, 1)
    world.pass_ms(60_000)
    linked = {0, 2, 4, 5}
    assert all(len(linked & set(world.copies(id))) >= 3 for id in ids)


@pytest.mark.parametrize("why", ["took none", "added it for others"])
def test_holders_by_belief_are_asked_when_one_is_forgotten(make_world: Make, why: str) -> None:
    """K5.2 Holders are also asked when one of them is forgotten (K6.2) or has left (K7.5)."""
    world = make_world(4, journal="off")
    if why == "took none":
        for i in (1, 2):
            set_pause(world.node(i).core, b"q", PAUSE_IN)
        for _ in range(20):
            world.at(0).send_add("q", "body", replicate=2)
        world.pass_ms(5_000)
        ids = world.at(0).take_all()
        id = next(id for id in ids if len(world.believed(3, id)) > 2)
        for i in (1, 2):
            set_pause(world.node(i).core, b"q", 0)
    else:
        world.leave(0)
        id = world.at(0).add(replicate=2)
        world.leave(0, False)
    *_, gone = had = world.copies(id)
    assert len(had) == 2 < len(world.believed(gone, id))
    world.isolate(gone)
    stay = [i for i in range(4) if i != gone]
    for i in stay:
        world.forget(i, gone)
    settle(world)
    have = [i for i in world.copies(id) if i != gone]
    assert len(have) == 2
    assert all(world.believed(i, id) == have for i in have)
    assert sum(repair_left(world.node(i).core) for i in stay) == 0


def test_custody_given_to_a_forgotten_node_stays_there(make_world: Make) -> None:
    """K6.2 AMO jobs in transit to it stay so until they expire.

    K5.1 AMO jobs in transit to it stay so (F2.3)."""
    for is_forgotten in (True, False):
        world = make_world(3, journal="off")
        world.at(1, 7).wait()
        world.hold(1, 0)
        id = world.at(0).add(retry=0, replicate=1, ttl=100)
        assert world.node(0).core.jobs[id].flags & IN_TRANSIT
        world.restart(1)
        if is_forgotten:
            world.forget(0, 1)
            assert world.node(0).core.custody == {}
        else:
            world.link()
        world.at(2, 9).wait()
        if not is_forgotten:
            world.at(1, 9).wait()
        world.pass_ms(60_000)
        job = world.node(0).core.jobs[id]
        assert job.flags & IN_TRANSIT and job.state == ACTIVE
        assert world.at(2, 9).served() == [] and world.at(0).get() == []
        world.pass_ms(100_000)
        assert world.holders(id) == []


def test_what_came_from_a_lost_node_may_be_passed_on(make_world: Make) -> None:
    """F2.3 If it restarted without memory, AMO jobs in transit to it stay so until they expire.

    Those that came from it are this node's alone."""
    world = make_world(3, journal="off")
    world.at(1, 5).wait()
    world.hold(1, 0)
    id = world.at(0).add(retry=0, replicate=1)
    other = world.node(1).core.jobs[id]
    assert other.holders != 1
    world.restart(0)
    world.link()
    assert other.holders == 1


def test_adds_go_on_without_it(make_world: Make) -> None:
    """K6.2 The node leaves the holders and confirmed sets of every job."""
    world = make_world(5, journal="off")
    for k in (2, 3, 4):
        world.hold(k, 0)
    producer = world.at(0, 1)
    job = world.node(0).core.jobs[producer.begin_add(replicate=4, timeout_ms=60_000)]
    world.pass_ms(500)
    assert job.confirmed >> world.slot(0, 1) & 1
    world.forget(0, 1)
    world.cut(0, 1)
    world.settle()
    assert job.confirmed >> world.slot(0, 1) & 1 == 0
    assert job.holders >> world.slot(0, 1) & 1 == 0
    world.release(2, 0)
    world.release(3, 0)
    world.pass_ms(200)
    assert producer.take() is None
    world.release(4, 0)
    world.pass_ms(200)
    assert producer.take() == job.id


def test_an_external_job_finds_another_server(make_world: Make) -> None:
    """K5.1 If the node began without a journal, and another incarnation of it was known, it
    leaves the holders of every unacked job, by a scan.

    R6.2 If it is no longer linked, another one is chosen, but never for an AMO job."""
    world = make_world(4, journal="off")
    world.node(0).core.is_leaving = True
    world.hold(1, 0)
    world.hold(2, 0)
    world.hold(3, 0)
    job = world.node(0).core.jobs[world.at(0, 1).begin_add(replicate=2, retry=1_000)]
    world.settle()
    had = [k for k in (1, 2, 3) if job.id in world.node(k).core.jobs]
    for k in (1, 2, 3):
        world.hold(0, k)  # ENQUEUE does not arrive
    for k in (1, 2, 3):
        world.release(k, 0)
    server = next(
        k for k in had if world.slot(0, k) == world.node(0).core.adding[job.id].server_slot
    )
    for k in (1, 2, 3):
        if k != server:
            world.cut(0, k)
    world.restart(server)
    world.link(0, server)
    world.pass_ms(5_000)
    assert job.id not in world.node(0).core.jobs
    assert QUEUED in world.states(job.id)
