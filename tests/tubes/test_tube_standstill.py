"""A home whose process stood still for longer than its lease (SPEC T19.7)."""

from __future__ import annotations

import pytest
from tubes_world import TubesWorld

from refusals import refused
from tuque.core.model.task import READY
from tuque.tubes.log.leader import homeless


def stood(world: TubesWorld, span_ms: int = 6_000) -> None:
    """Node 0 stands still while the others live; its links end."""
    world.stand_still(0)
    world.isolate(0)
    world.pass_ms(span_ms)


@pytest.mark.parametrize("count", [2, 3, 4])
def test_a_home_that_stood_still_does_nothing_before_it_has_heard(count: int) -> None:
    """T19.7 After a standstill (G8.4) each tube that this node leads is WAITING."""
    world = TubesWorld(count)
    world.make(0)
    for _ in range(3):
        world.put(0)
    world.pass_ms(1_000)
    taken = world.take(0, client=3)
    assert taken is not None
    world.pass_ms(1_000)
    stood(world)
    world.force(1)
    assert world.said(1) == b""
    world.pass_ms(16_000)
    assert world.runs_at() == [1]
    again = world.take(1, client=4)
    assert again is not None and again.number == taken.number
    world.go_on(0)
    with refused("stood still for 22000 ms"):
        world.put(0, b"lost, were it answered")
    with refused("stood still"):
        world.ack(0, int(taken.number), client=3)
    with refused("stood still"):
        world.take(0)
    world.settle()
    world.pass_ms(2_000)
    assert world.runs_at() == [1]
    assert world.state_at(0) == "WAITING"
    assert homeless(world.nodes[0].core, world.t(0)) == [b"t"]
    with refused("stood still"):
        world.put(0)
    world.link()
    world.pass_ms(2_000)
    assert world.runs_at() == [1]
    assert world.picture(0) == world.picture(1)
    assert len(world.picture(0)) == 3


def test_answers_from_before_are_no_answers() -> None:
    """T19.7 WAITING until half of all nodes, itself included (of two, the other one), have sent
    their catalog and replied to heartbeats sent since.
    """
    world = TubesWorld(2)
    world.make(0)
    world.put(0)
    world.pass_ms(1_000)
    world.stand_still(0)
    world.pass_ms(6_000)
    world.hold(1, 0)
    world.go_on(0)
    world.pass_ms(10_000)
    assert world.runs_at() == []
    with refused("stood still"):
        world.put(0)
    world.release(1, 0)
    world.pass_ms(1_500)
    assert world.runs_at() == [0]
    assert world.put(0).number == 1
    world.settle()


def test_of_two_nodes_an_operator_decides() -> None:
    """T21.1 It is for a leader that cannot be reached, or for this node if it is the leader and
    waits since its start (T19.4) or a standstill (T19.7)."""
    world = TubesWorld(2)
    world.make(0)
    world.put(0)
    world.make(0, name=b"other")
    taken = world.take(0, client=3)
    assert taken is not None
    world.pass_ms(1_000)
    stood(world)
    world.restart(1)
    assert homeless(world.nodes[0].core, world.t(0)) == []
    world.go_on(0)
    world.pass_ms(20_000)
    assert world.runs_at() == []
    assert homeless(world.nodes[0].core, world.t(0)) == [b"t", b"other"]  # T11.5
    world.force(0)
    assert world.said(0) == b""
    world.pass_ms(11_000)
    assert world.runs_at() == [0]
    assert world.runs_at(b"other") == []
    assert homeless(world.nodes[0].core, world.t(0)) == [b"other"]
    assert world.ack(0, int(taken.number), client=3).number == taken.number
    assert world.put(0).number == 1_000_001


def test_a_home_that_is_about_to_run_is_not_forced() -> None:
    """T21.1 It is refused while this node can reach the leader, while it reaches no more than half
    of all nodes, and while a reachable node has a later replica;"""
    world = TubesWorld(3, has_journal=True)
    world.make(1)
    world.pass_ms(1_000)
    world.begin_move(1, 0)
    world.step_until(lambda: world.state_at(0) == "STARTUP")
    world.stick(0)
    stood(world)
    world.go_on(0)
    assert world.state_at(0) == "STARTUP"  # its epoch is on the way to the disk
    with refused("is reachable"):
        world.force(0)
    world.stick()
    world.link()
    world.pass_ms(2_000)
    assert world.runs_at() == [0]


def test_a_short_standstill_is_none() -> None:
    """G8.4 (cluster) A node stood still if more than `cluster-node-timeout` passed since it last
    set its time"""
    world = TubesWorld(2)
    world.make(0)
    world.pass_ms(1_000)
    world.stand_still(0)
    world.pass_ms(4_500)
    world.go_on(0)
    assert world.put(0).status == READY
    world.settle()


def test_what_is_asked_of_others_is_asked_again() -> None:
    """T19.7 A CREATE, switchover or failover that waits is refused, and did nothing."""
    world = TubesWorld(3)
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
    world.pass_ms(2_000)
    assert world.runs_at() == [0]
