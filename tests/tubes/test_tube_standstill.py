"""A home whose process stood still for longer than its lease (SPEC T19.7)."""

from __future__ import annotations

import pytest
from homes_lab import HomesLab

from refusals import refused, said
from tuque.core.model.task import READY
from tuque.tubes.log.leader import homeless


def stood(lab: HomesLab, span_ms: int = 6_000) -> None:
    """Node 0 stands still while the others live; its links end."""
    lab.still.add(0)
    lab.isolate(0)
    lab.live(span_ms)


@pytest.mark.parametrize("count", [2, 3, 4])
def test_a_home_that_stood_still_does_nothing_before_it_has_heard(count: int) -> None:
    """T19.7 After a standstill (G8.4) each tube that this node leads is WAITING."""
    lab = HomesLab(count)
    lab.make(0)
    for _ in range(3):
        lab.put(0)
    lab.live(1_000)
    taken = lab.take(0, client=3)
    assert taken is not None
    lab.live(1_000)
    stood(lab)
    lab.force(1)
    assert said(lab.done(1)) == b""
    lab.live(16_000)
    assert lab.runs_at() == [1]
    again = lab.take(1, client=4)
    assert again is not None and again.number == taken.number
    lab.go_on(0)
    with refused("stood still for 22000 ms"):
        lab.put(0, b"lost, were it answered")
    with refused("stood still"):
        lab.ack(0, int(taken.number), client=3)
    with refused("stood still"):
        lab.take(0)
    lab.run()
    lab.live(2_000)
    assert lab.runs_at() == [1]
    assert lab.state(0) == "WAITING"
    assert homeless(lab.nodes[0], lab.t(0)) == [b"t"]
    with refused("stood still"):
        lab.put(0)
    lab.heal()
    lab.live(2_000)
    assert lab.runs_at() == [1]
    assert lab.picture(0) == lab.picture(1)
    assert len(lab.picture(0)) == 3


def test_answers_from_before_are_no_answers() -> None:
    """T19.7 It waits until half of all nodes, itself included, have sent their catalog (T17.2) and
    replied to heartbeats sent since."""
    lab = HomesLab(2)
    lab.make(0)
    lab.put(0)
    lab.live(1_000)
    lab.still.add(0)
    lab.live(6_000)
    lab.hold(1, 0)
    lab.go_on(0)
    lab.live(10_000)
    assert lab.runs_at() == []
    with refused("stood still"):
        lab.put(0)
    lab.release(1, 0)
    lab.live(1_500)
    assert lab.runs_at() == [0]
    assert lab.put(0).number == 1
    lab.run()


def test_of_two_nodes_an_operator_decides() -> None:
    """T21.1 It is for a leader that cannot be reached, or for this node if it is the leader and
    waits since its start (T19.4) or a standstill (T19.7)."""
    lab = HomesLab(2)
    lab.make(0)
    lab.put(0)
    lab.make(0, name=b"other")
    taken = lab.take(0, client=3)
    assert taken is not None
    lab.live(1_000)
    stood(lab)
    lab.die(1)
    assert homeless(lab.nodes[0], lab.t(0)) == []
    lab.go_on(0)
    lab.live(20_000)
    assert lab.runs_at() == []
    assert homeless(lab.nodes[0], lab.t(0)) == [b"t", b"other"]  # T11.5
    lab.force(0)
    assert said(lab.done(0)) == b""
    lab.live(11_000)
    assert lab.runs_at() == [0]
    assert lab.runs_at(b"other") == []
    assert homeless(lab.nodes[0], lab.t(0)) == [b"other"]
    assert lab.ack(0, int(taken.number), client=3).number == taken.number
    assert lab.put(0).number == 1_000_001


def test_a_home_that_is_about_to_run_is_not_forced() -> None:
    """T21.1 It is refused while this node can reach the leader, while it reaches no more than half
    of all nodes, and while a reachable node has a later replica;"""
    lab = HomesLab(3, has_journal=True)
    lab.make(1)
    lab.live(1_000)
    lab.slow.add(0)
    lab.begin(1, 0)
    lab.run()
    stood(lab)
    lab.go_on(0)
    assert lab.state(0) == "STARTUP"  # its epoch is on the way to the disk
    with refused("is reachable"):
        lab.force(0)
    lab.slow.clear()
    lab.heal()
    lab.live(2_000)
    assert lab.runs_at() == [0]


def test_a_short_standstill_is_none() -> None:
    """G8.4 (cluster) A node stood still if more than `cluster-node-timeout` passed since it last
    set its time"""
    lab = HomesLab(2)
    lab.make(0)
    lab.live(1_000)
    lab.still.add(0)
    lab.live(4_500)
    lab.go_on(0)
    assert lab.put(0).status == READY
    lab.run()


def test_what_is_asked_of_others_is_asked_again() -> None:
    """T19.7 A CREATE, a switchover or a failover that waits for replies is refused, and did
    nothing."""
    lab = HomesLab(3)
    lab.make(0)
    lab.live(1_000)
    lab.hold(1, 0)
    assert not lab.move(0, 1)
    lab.still.add(0)
    lab.live(6_000)
    lab.release(1, 0)
    lab.go_on(0)
    assert said(lab.done(0)) == b"this node stood still meanwhile: nothing was done, try again"
    lab.live(2_000)
    assert lab.runs_at() == [0]
