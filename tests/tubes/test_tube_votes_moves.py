"""Switchovers of tubes led by votes, one after another (SPEC T27.6)."""

from __future__ import annotations

import pytest
from tubes_world import TIMEOUT_MS, VotesWorld

from tuque.core.node.peers import rank
from tuque.core.topics import subscribe


@pytest.mark.parametrize("step", [1, 2])
def test_the_node_that_was_named_leads(step: int) -> None:
    """T27.6 the new leader is a candidate at once.

    T27.6 Others wait for T/4, as after each leader that steps down, and the former leader for
    T/2, for T if it leaves.
    """
    world = VotesWorld(3)
    world.put(0)
    world.pass_ms(500)
    home = 0
    for _ in range(9):
        named = (home + step) % 3
        assert not world.move(home, named)
        world.settle()
        world.pass_ms(100)
        assert world.said(home) == b""
        world.pass_ms(500)
        assert world.runs_at() == [named]
        assert world.t(named).changes_lost == 0
        home = named
    assert world.tube(home).epoch == 10


@pytest.mark.parametrize("restarts", [False, True])
def test_a_move_right_after_a_start(restarts: bool) -> None:
    """T27.6 For T after a start a leader hands over no tube: TUBE HOME waits, and the tube keeps
    running.
    """
    world = VotesWorld(3, makes=restarts)
    if restarts:
        for i in range(3):
            world.restart(i)
        for i in range(3):
            world.rejoin(i)
        world.pass_ms(1_000)
    else:
        while not all(world.in_force(i) for i in range(3)):
            world.pass_ms(100)
        world.make(0, sync=2)
        world.pass_ms(100)
    (home,) = world.runs_at()
    named = (home + 1) % 3
    left_ms = world.t(home).voter_state.bound_ms - world.now_ms
    assert left_ms > 500
    assert not world.move(home, named)
    world.settle()
    world.pass_ms(left_ms - 1)
    assert world.runs_at() == [home], "it waited somewhere, or moved"
    assert not world.t(home).home_done
    world.pass_ms(TIMEOUT_MS // 4)
    assert world.said(home) == b""
    assert world.runs_at() == [named]


def test_a_node_that_leaves_right_after_its_start_gives_its_tubes_later() -> None:
    """T27.6 For T after a start a leader hands over no tube"""
    world = VotesWorld(3, makes=False)
    while not all(world.in_force(i) for i in range(3)):
        world.pass_ms(100)
    world.make(0, sync=2)
    world.pass_ms(100)
    world.nodes[0].core.is_leaving = True
    world.t(0).must_look = True
    left_ms = world.t(0).voter_state.bound_ms - world.now_ms
    world.pass_ms(left_ms - 1)
    assert world.runs_at() == [0]
    world.pass_ms(TIMEOUT_MS // 2)
    assert world.runs_at() in ([1], [2])


def test_tubes_of_a_topic_get_one_leader() -> None:
    """T27.13 (cluster) The order in T27.2 is by a hash of the node id and the tube; of a tube
    subscribed to topics (T60) of the id and their first name: so tubes of one topic get one
    leader if their replicas are alike.
    """
    world = VotesWorld(3)
    names = [b"tube%d" % i for i in range(4)]
    first = set()
    for name in names:
        tube = world.make(0, name=name, sync=2)
        subscribe(world.nodes[0].core, b"orders", name, [])
        ranks = [rank(tube.maker + name, world.id(i)) for i in (1, 2)]
        first.add(ranks[0] > ranks[1])
    assert len(first) == 2, "their own names would part them"
    subscribe(world.nodes[0].core, b"other", names[2], [])
    world.pass_ms(1_000)
    world.restart(0)
    world.pass_ms(2 * TIMEOUT_MS)
    homes = [world.runs_at(name) for name in names]
    assert homes in ([[1]] * 4, [[2]] * 4)
