"""Switchovers of tubes led by votes, one after another (SPEC T27.6)."""

from __future__ import annotations

import pytest
from votes_lab import TIMEOUT_MS, VotesLab

from refusals import said
from tuque.core.node.peers import rank
from tuque.core.topics import subscribe


@pytest.mark.parametrize("step", [1, 2])
def test_the_node_that_was_named_leads(step: int) -> None:
    """T27.6 the new leader stands up at once. If nobody votes for it, others may.

    T27.6 They first wait for a quarter of the timeout, as after each leader that gives up, and the
    former leader for half of it.
    """
    lab = VotesLab(3)
    lab.put(0)
    lab.live(500)
    home = 0
    for _ in range(9):
        named = (home + step) % 3
        assert not lab.move(home, named)
        lab.run()
        lab.live(100)
        assert said(lab.done_last(home)) == b""
        lab.live(500)
        assert lab.runs_at() == [named]
        assert lab.t(named).changes_lost == 0
        home = named
    assert lab.tube(home).epoch == 10


@pytest.mark.parametrize("restarts", [False, True])
def test_a_move_right_after_a_start(restarts: bool) -> None:
    """T27.6 Within its timeout after a start (T25.5) a leader hands over no tube, since it could
    not vote for the new leader. TUBE HOME waits, and the tube keeps running.
    """
    lab = VotesLab(3, makes=restarts)
    if restarts:
        for i in range(3):
            lab.die(i)
        for i in range(3):
            lab.revive(i)
        lab.live(1_000)
    else:
        while not all(lab.in_force(i) for i in range(3)):
            lab.live(100)
        lab.make(0, sync=2)
        lab.live(100)
    (home,) = lab.runs_at()
    named = (home + 1) % 3
    left_ms = lab.t(home).ballots.bound_ms - lab.now_ms
    assert left_ms > 500
    assert not lab.move(home, named)
    lab.run()
    lab.live(left_ms - 1)
    assert lab.runs_at() == [home], "it waited somewhere, or moved"
    assert not lab.t(home).home_done
    lab.live(TIMEOUT_MS // 4)
    assert said(lab.done_last(home)) == b""
    assert lab.runs_at() == [named]


def test_a_node_that_leaves_right_after_its_start_gives_its_tubes_later() -> None:
    """T27.6 Within its timeout after a start (T25.5) a leader hands over no tube"""
    lab = VotesLab(3, makes=False)
    while not all(lab.in_force(i) for i in range(3)):
        lab.live(100)
    lab.make(0, sync=2)
    lab.live(100)
    lab.nodes[0].is_leaving = True
    lab.t(0).must_look = True
    left_ms = lab.t(0).ballots.bound_ms - lab.now_ms
    lab.live(left_ms - 1)
    assert lab.runs_at() == [0]
    lab.live(TIMEOUT_MS // 2)
    assert lab.runs_at() in ([1], [2])


def test_tubes_of_a_topic_get_one_leader() -> None:
    """T27.13 (cluster) The place of a node in the order of T27.2 comes from a hash of its id and
    the tube. For a tube that is subscribed to topics (T60) it is of the id and the first of their
    names, so that tubes of one topic get one leader if their replicas are alike.
    """
    lab = VotesLab(3)
    names = [b"tube%d" % i for i in range(4)]
    first = set()
    for name in names:
        tube = lab.make(0, name=name, sync=2)
        subscribe(lab.nodes[0], b"orders", name, [])
        ranks = [rank(tube.maker + name, lab.nodes[i].node_id) for i in (1, 2)]
        first.add(ranks[0] > ranks[1])
    assert len(first) == 2, "their own names would part them"
    subscribe(lab.nodes[0], b"other", names[2], [])
    lab.live(1_000)
    lab.die(0)
    lab.live(2 * TIMEOUT_MS)
    homes = [lab.runs_at(name) for name in names]
    assert homes in ([[1]] * 4, [[2]] * 4)
