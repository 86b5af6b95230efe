"""Names of tubes without votes: the question before CREATE, tubes of one name (SPEC T17.5, T21).

This file is about leaders by claims alone: it goes with them.
"""

from __future__ import annotations

import pytest
from tubes_world import TubesWorld

from tuque.core.msgs.bus import TubeAt, TubeClaim, TubeClaimed
from tuque.tubes.leadership.controller import on_tube_message
from tuque.tubes.leadership.create import ALIVE, KNOWN
from tuque.tubes.leadership.switchover import become_home, end_claims
from tuque.tubes.log.catalog import at_of
from tuque.tubes.tasks.admin import drop, remove_tube


def claim(world: TubesWorld, i: int, type: bytes = b"fifo") -> None:
    """CREATE at node i with IFNOTEXISTS; the other nodes are asked first."""
    world.claim(i, type, if_not_exists=True)


def two_claims(first: int) -> TubesWorld:
    """Nodes 0 and 1 claim the name, and node 0 waits for node 2."""
    world = TubesWorld(3)
    world.hold(2, 0)
    if first == 1:
        world.hold(2, 1)
    claim(world, first)
    if first == 1:
        world.settle()  # node 0 replies that it does not know the name
    claim(world, 1 - first)
    world.settle()
    world.release(2, 1)
    return world


@pytest.mark.parametrize("first", [0, 1])
def test_no_redirect_leads_to_a_node_that_has_no_tube_yet(first: int) -> None:
    """T17.5 So no `-TUBEHOME` leads to a node without the tube."""
    world = two_claims(first)
    assert b"t" not in world.t(0).by_name and world.answers(1) == []
    world.release(2, 0)
    world.settle()
    assert world.said(0) == b""
    assert world.said(1) == world.leads_elsewhere(0)
    task = world.wire(0).add("t")
    assert [one.id for one in world.tube(0).tasks.values()] == [task]
    assert world.runs_at() == [0]


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("why", ["standstill", "in use"])
def test_a_claim_goes_on_when_the_other_one_came_to_nothing(first: int, why: str) -> None:
    """T17.5 a claim to which it had replied before waits as well."""
    world = two_claims(first)
    if why == "standstill":
        end_claims(world.t(0))
    else:
        world.t(0).in_replicaset = True
        for one in world.t(0).claims.values():
            one.options.temporary = True
    world.release(2, 0)
    world.pass_ms(500)
    assert world.said(0) != b""
    assert world.said(1) == b""
    assert world.runs_at() == [1] and world.tube(0).home == world.id(1)


def test_a_claim_does_not_wait_for_a_node_that_is_cut_off() -> None:
    """T17.5 CREATE first sends TUBE-CLAIM to every reachable node, and continues once each has
    replied or become unreachable.
    """
    world = two_claims(0)
    world.isolate(0)
    world.settle()
    assert world.t(0).askers == []
    assert len(world.answers(1)) == 1


def test_three_claims_of_one_name_end() -> None:
    """T17.5 A node that claims the name itself and has the lower node id replies once its own claim
    has ended."""
    world = TubesWorld(4)
    for i in (2, 0, 1):
        claim(world, i, b"fifo" if i < 2 else b"utube")
    world.settle()
    assert world.said(0) == b""
    assert world.said(1) == world.leads_elsewhere(0)
    assert b"exists with the type fifo" in world.said(2)
    assert all(world.t(i).claims == {} and world.t(i).askers == [] for i in range(4))


def test_two_tubes_of_one_name() -> None:
    """T17.5 Nodes without a link can create tubes of one name."""
    world = TubesWorld(3)
    world.isolate(1)
    world.make(0)
    world.make(1)
    world.put(0, b"of 0")
    world.put(1, b"of 1")
    world.link()
    world.pass_ms(2000)
    assert world.tube(0).is_mine and world.tube(1).is_mine
    assert world.tube(0).conflict == world.id(1)
    assert world.tube(1).conflict == world.id(0)
    assert world.tube(2).home == world.id(0)
    assert world.put(0).number == 1 and world.put(1).number == 1


def test_a_tube_made_again_by_a_node_that_forgot_it_takes_nothing_from_its_home() -> None:
    """T17.5 Each continues as leader of its tube.

    T17.6 A leader that has lost its memory drops nothing"""
    world = TubesWorld(3)
    world.make(0)
    world.put(0)
    world.move(0, 1)
    world.pass_ms(1000)
    assert world.runs_at() == [1]
    world.restart(0)
    world.make(0)
    world.link()
    world.pass_ms(2000)
    assert world.tube(0).is_mine and world.tube(1).is_mine
    assert world.tube(1).conflict == world.id(0)
    assert sorted(world.tube(1).tasks) == [0]


def test_a_home_that_was_away_hears_of_its_end_though_others_go_by_another_tube() -> None:
    """T17.5 Of the other one they remember epoch and leader until they stop"""
    world = TubesWorld(5, has_journal=True)
    world.isolate(0)
    world.make(3)
    world.pass_ms(1000)
    world.restart(3)
    world.force(4)
    world.pass_ms(12_000)
    assert world.tube(4).is_mine and world.tube(4).epoch == 2
    world.make(0)
    for other in (1, 2):
        world.link(0, other)
    world.pass_ms(2000)
    assert world.tube(1).home == world.tube(2).home == world.id(0)
    world.link(3, 1)
    world.link(3, 2)
    world.pass_ms(3000)
    assert not world.tube(3).is_mine


def test_the_home_of_another_tube_of_that_name_does_not_stop_a_force() -> None:
    """T21.1 The leader of another tube of that name (T17.5) does not count."""
    world = TubesWorld(4)
    world.isolate(3)
    world.make(0)
    world.make(3)
    world.put(0)
    world.pass_ms(1000)
    world.restart(0)  # it has no journal: of its tube it is the home no more (T22.2)
    world.link()
    world.pass_ms(1000)
    assert world.tube(3).is_mine and world.tube(1).conflict == world.id(3)
    world.force(1)
    world.pass_ms(12_000)
    assert world.said(1) == b""
    assert world.tube(1).is_mine and sorted(world.tube(1).tasks) == [0]
    assert world.tube(0).home == world.tube(2).home == world.id(1)
    assert world.tube(3).is_mine, "each goes on at its home"
    world.force(2)
    assert b"is reachable" in world.said(2)


def test_of_two_nodes_one_goes_by_another_tube_and_the_other_one_is_forced() -> None:
    """T21.2 The next epoch is recorded and sent as in T20.4. The tube stays STARTUP until all
    nodes know the epoch, except those that follow another tube of its name.
    """
    world = TubesWorld(2, has_journal=True)
    world.make(0)
    world.put(0)
    world.move(0, 1)
    world.pass_ms(1000)
    world.end(1)
    world.disk(1).lose()
    world.begin(1)  # the home, and its disk is lost
    world.make(1)
    world.link()
    world.pass_ms(1000)
    assert world.tube(1).is_mine and not world.tube(0).is_mine
    assert world.tube(0).maker == world.id(0) != world.tube(1).maker
    world.force(0)
    world.pass_ms(1000)
    assert world.said_last(0) == b"" and world.state_at(0) == "RUNNING"
    assert world.tube(1).is_mine and sorted(world.tube(0).tasks) == [0]


def test_what_a_node_remembers_of_a_tube_is_not_what_it_goes_by() -> None:
    """T21.2 until all nodes know the epoch, except those that follow another tube of its name.

    A node that set this tube aside counts as such, although it reports what it knows of it."""
    world = TubesWorld(3)
    world.make(2)
    world.pass_ms(1000)
    world.isolate(0)
    world.restart(2)  # it had no journal
    world.make(2)
    world.link(1, 2)
    world.pass_ms(1000)
    old, new = world.tube(0), world.tube(1)
    assert old.maker == new.maker and old.made_ns < new.made_ns
    assert len(world.t(1).aside) == 1
    n = world.nodes[0].core
    become_home(n, world.t(0), old, 2, b"by hand")
    old.run_ms = -1  # as by force (T21.2)
    world.link(0, 1)
    world.pass_ms(500)
    assert old.apart == 1 << world.slot(0, 1)
    world.link(0, 2)
    world.pass_ms(1000)
    assert world.tube(0) is old and world.state_at(0) == "RUNNING"


def test_a_force_hears_of_a_later_home_where_the_tube_was_set_aside() -> None:
    """T17.5 Of the other one they remember epoch and leader until they stop

    T21.1 It is refused while this node can reach the leader"""
    world = TubesWorld(3)
    tube = world.make(1)
    world.pass_ms(1000)
    told = TubeClaim(b"t", 1, 3, tube.maker, tube.made_ns + 1, False)
    for epoch, answer in ((2, KNOWN), (3, ALIVE)):
        world.t(0).aside[tube.maker, tube.made_ns + 1] = set_epoch(world, epoch)
        on_tube_message(world.nodes[0].core, world.t(0), world.slot(0, 2), told)
        world.settle()
        told_back = [
            m for a, b, m in world.heard() if (a, b) == (0, 2) and isinstance(m, TubeClaimed)
        ]
        assert told_back[-1] == TubeClaimed(b"t", 1, answer, 0, 0, False)


def set_epoch(world: TubesWorld, epoch: int) -> TubeAt:
    """The tube as node 0 would tell of it under that epoch."""
    at = at_of(world.nodes[0].core, world.tube(0))
    at.epoch = epoch
    return at


def test_a_tube_that_was_set_aside_for_another_one_was_not_dropped() -> None:
    """T17.5 Each continues as leader of its tube.

    T17.6 drop is sent to the other nodes, at once or when they are linked again

    Nothing else is, not even a journal in which the tube ends."""
    world = TubesWorld(3, has_journal=True)
    world.isolate(0)
    world.make(0)
    world.make(1)
    world.pass_ms(1000)
    assert world.tube(2).maker == world.id(1)
    world.cut(1, 2)
    world.link(0, 2)
    world.pass_ms(1000)
    assert world.tube(2).maker == world.id(0), "2 goes by the other one"
    world.restart(2)
    world.link(1, 2)
    world.pass_ms(2000)
    assert world.tube(1).is_mine


def test_no_conflict_of_names_drops_a_replica_with_tasks() -> None:
    """K3.5 No conflict of names drops tasks: a node that has a replica with tasks of one tube does
    not follow another one of that name (T17.5) before the first one is dropped.
    """
    world = TubesWorld(3, has_journal=True)
    world.isolate(0)
    world.make(0)
    world.make(1)
    world.put(1)
    world.pass_ms(1000)
    world.link(0, 1)
    world.link(0, 2)
    world.pass_ms(2000)
    tube = world.tube(2)
    assert (tube.maker, list(tube.copies)) == (world.id(1), [0])
    assert tube.conflict == world.tube(1).conflict == world.id(0)
    remove_tube(world.nodes[1].core, world.t(1), world.tube(1))
    world.pass_ms(2000)
    assert world.tube(2).maker == world.tube(1).maker == world.id(0)


def test_a_drop_says_nothing_of_a_tube_that_was_made_apart() -> None:
    """T17.6 It says nothing of a tube that was made apart (T17.5), whichever was first: the clocks
    of two nodes do not tell.

    Node 1 is by a minute behind node 0, whose tube is dropped."""
    world = TubesWorld(3)
    world.isolate(1)
    other = world.make(1)
    world.put(1)
    world.pass_ms(60_000)
    mine = world.make(0)
    world.pass_ms(1_000)
    assert other.made_ns < mine.made_ns
    drop(world.node(0).core, world.t(0), mine)
    world.link()
    world.pass_ms(2_000)
    assert [world.tube(i).maker for i in world.numbers()] == [world.id(1)] * 3
    assert world.runs_at() == [1] and list(world.tube(1).tasks) == [0]
