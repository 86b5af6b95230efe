"""A leader whose process stood still (SPEC G8.4, T19.7, T25.2)."""

from __future__ import annotations

from tubes_world import TIMEOUT_MS, voting

from refusals import refused
from tuque.core.model.task import READY
from tuque.core.queues.deliver import on_getjob
from tuque.tubes.log.leader import homeless
from tuque.tubes.tasks import operations


def test_a_leader_that_stood_still_does_nothing() -> None:
    """T25.2 A leader of a tube led by votes is RUNNING only while a majority of the voters,
    itself counted, votes for this node under its epoch and has echoed a pulse

    Others have another leader when it goes on, and it has not heard of that.
    """
    world = voting()
    world.make(0)
    for _ in range(3):
        world.put(0)
    world.pass_ms(1_000)
    taken = world.take(0, client=3)
    assert taken is not None
    world.pass_ms(1_000)
    world.stand_still(0)
    world.isolate(0)
    world.pass_ms(3 * TIMEOUT_MS)
    (home,) = world.runs_at()
    again = world.take(home, client=4)
    assert again is not None and again.number == taken.number
    world.go_on(0)
    for _ in range(2):
        with refused("NOQUORUM"):
            world.put(0, b"lost, were it answered")
        with refused("NOQUORUM"):
            world.ack(0, int(taken.number), client=3)
        with refused("NOQUORUM"):
            world.take(0)
        with refused("NOQUORUM"):
            operations.peek(world.node(0).core, world.t(0), world.tube(0), 0)
        assert on_getjob(world.node(0).core, 1, [b"t"], 1) == []
        world.pass_ms(2_000)
    assert homeless(world.nodes[0].core, world.t(0)) == [b"t"]  # T11.5
    world.link()
    world.pass_ms(2_000)
    assert world.runs_at() == [home]
    assert world.picture(0) == world.picture(home) and len(world.picture(0)) == 3


def test_a_short_standstill_is_none() -> None:
    """G8.4 (cluster) A node stood still if more than `cluster-node-timeout` passed since it last
    set its time"""
    world = voting()
    world.make(0)
    world.pass_ms(1_000)
    world.stand_still(0)
    world.pass_ms(4_500)
    world.go_on(0)
    world.pass_ms(1_000)
    assert world.put(0).status == READY and world.tube(0).epoch == 1


def test_what_is_asked_of_others_is_asked_again() -> None:
    """T19.7 A CREATE, switchover or failover that waits is refused, and did nothing."""
    world = voting()
    world.make(0)
    world.pass_ms(1_000)
    world.hold(1, 0)
    assert not world.move(0, 1)
    world.stand_still(0)
    world.pass_ms(6_000)
    world.release(1, 0)
    world.go_on(0)
    world.settle()
    assert world.said(0) == b"this node stood still meanwhile: nothing was done, try again"
