"""Copies are at voters, and the list of voters keeps its size (SPEC T18.1, T28.4)."""

from __future__ import annotations

import pytest
from test_tube_voters import change, is_willing
from tubes_world import TIMEOUT_MS, VotesWorld

from tuque.core.node.peers import say
from tuque.server.replies.errors import text_of
from tuque.tubes.election.voters import voters_message
from tuque.tubes.log.leader import lag_of
from tuque.tubes.model.errors import TubeError
from tuque.tubes.model.voter_state import INVITED
from tuque.tubes.policy import tubes_of

TASKS = 5


def world_of(count: int = 5, home: int = 0) -> VotesWorld:
    """Nodes, three of which vote, and a tube with tasks."""
    world = VotesWorld(count, makes=False, tube_voters=3)
    world.pass_ms(TIMEOUT_MS + 1_000)
    world.make(home)
    for _ in range(TASKS):
        world.put(world.leads())
    world.pass_ms(2_000)
    return world


def voters_of(world: VotesWorld, i: int) -> list[int]:
    """The voters as node i knows them; others may be down."""
    voters = world.t(i).voter_state.in_force()
    assert voters is not None
    return [k for k in range(len(world.machines)) if world.id(k) in voters.rights]


def has_copies(world: VotesWorld) -> list[int]:
    """The nodes that have all tasks; no other node has one."""
    found: list[int] = []
    for i in world.numbers():
        count = len(world.picture(i))
        assert count in (0, TASKS), (i, count)
        if count > 0:
            found.append(i)
    return found


def followers_of(world: VotesWorld) -> list[int]:
    """The nodes that the leader names with their lag."""
    home = world.leads()
    rows = lag_of(world.cores[home], world.t(home), world.tube(home))
    assert all(is_complete and lag == 0 for _, lag, is_complete in rows), rows
    ids = [row[0] for row in rows]
    return [i for i in world.numbers() if world.id(i) in ids]


def be_silent_for_long(world: VotesWorld) -> None:
    """A voter that does not answer for two timeouts counts as silent for ten minutes."""
    for n in world.cores:
        b = tubes_of(n).voter_state
        assert b.silent_ms == 600_000
        b.silent_ms = 2 * TIMEOUT_MS


def test_only_voters_have_copies() -> None:
    """T18.1 Of a tube led by votes only voters have one, and a node that is invited (T28.4)."""
    world = world_of()
    assert [voters_of(world, i) for i in world.numbers()] == [[0, 1, 2]] * 5
    assert has_copies(world) == [0, 1, 2]
    assert followers_of(world) == [1, 2]
    assert [len(world.t(i).copies_by_id) for i in world.numbers()] == [0, TASKS, TASKS, 0, 0]
    with pytest.raises(TubeError) as e:
        world.put(4)
    assert b"has its leader there" in text_of(e.value)


def test_the_next_leader_is_a_voter() -> None:
    """T18.1 Of a tube led by votes only voters have one"""
    world = world_of()
    world.end(0)
    world.pass_ms(3 * TIMEOUT_MS)
    assert world.leads() in (1, 2)
    assert len(world.picture(world.leads())) == TASKS
    assert len(world.picture(3)) + len(world.picture(4)) == 0


def test_a_leader_that_reaches_few_nodes() -> None:
    """T25.2 Other nodes do not matter."""
    world = world_of()
    for i in (2, 3, 4):
        world.end(i)
    assert world.watch(4 * TIMEOUT_MS) == [0], "a majority of the voters is here"
    world.put(0)
    world.pass_ms(500)
    assert world.answered(0) == world.tube(0).seq
    world.end(1)
    assert world.watch(4 * TIMEOUT_MS) == []


def test_a_voter_that_goes_is_replaced() -> None:
    """T28.4 While it has fewer than `tube-voters`, a node with `tube-failover yes` that uses the
    list and does not leave is invited (VOTERS): it gets replicas
    """
    world = world_of()
    is_willing(world, 2, False)
    change(world, 0, 2, is_added=False)
    world.pass_ms(4_000)
    assert world.said(0) == b""
    assert voters_of(world, 0) == [0, 1, 3]
    assert has_copies(world) == [0, 1, 2, 3], "a node without a vote keeps its copies for a while"
    world.pass_ms(TIMEOUT_MS)
    assert has_copies(world) == [0, 1, 3]
    assert followers_of(world) == [1, 3]


def test_a_node_that_gets_its_vote_back_keeps_its_copies() -> None:
    """T18.1 Others drop theirs after `cluster-node-timeout`, if the leader runs."""
    world = world_of(3)
    is_willing(world, 2, False)
    change(world, 0, 2, is_added=False)
    world.pass_ms(2_000)
    assert voters_of(world, 0) == [0, 1]
    seq = world.tube(2).seq
    is_willing(world, 2, True)
    world.pass_ms(2_000)
    assert voters_of(world, 0) == [0, 1, 2]
    assert has_copies(world) == [0, 1, 2] and world.tube(2).seq == seq


def test_a_silent_voter_is_replaced() -> None:
    """T28.4 If a voter answers no heartbeat for ten minutes, such a node is added, then that voter
    removed.
    """
    world = world_of()
    world.end(1)
    world.pass_ms(3 * TIMEOUT_MS)
    assert voters_of(world, 0) == [0, 1, 2], "it may come back"
    be_silent_for_long(world)
    world.pass_ms(2 * TIMEOUT_MS)
    assert voters_of(world, 0) == [0, 2, 3]
    world.begin(1)
    world.rejoin(1)
    world.pass_ms(2 * TIMEOUT_MS)
    assert voters_of(world, 1) == [0, 2, 3]
    assert has_copies(world) == [0, 2, 3]
    assert world.leads() == 0


def test_a_silent_voter_stays_if_nobody_can_replace_it() -> None:
    """T28.4 If a voter answers no heartbeat for ten minutes, such a node is added, then that voter
    removed.
    """
    world = world_of(3)
    world.end(1)
    be_silent_for_long(world)
    world.pass_ms(3 * TIMEOUT_MS)
    assert voters_of(world, 0) == [0, 1, 2]
    assert world.leads() == 0


def test_a_leader_without_a_vote_hands_over() -> None:
    """T28.4 What a node without a vote leads moves to a voter (T20)."""
    world = world_of(home=4)
    assert world.leads() in (0, 1, 2)
    world.pass_ms(2 * TIMEOUT_MS)
    assert has_copies(world) == [0, 1, 2]
    with pytest.raises(TubeError) as e:
        world.move(world.leads(), 3)
    assert b"does not vote, so it cannot lead" in text_of(e.value)


def test_sync_of_a_leader_without_a_vote() -> None:
    """T27.7 SYNC of such a tube counts only voters that may vote"""
    world = VotesWorld(5, makes=False, tube_voters=3)
    world.pass_ms(TIMEOUT_MS + 1_000)
    world.make(4)
    assert world.runs_at() == [4]
    world.hold(0, 4)
    world.hold(1, 4)
    task = world.put(4)
    world.pass_ms(100)
    assert task.number in world.tube(2).copies
    assert world.answered(4) < world.tube(4).seq, "one voter of three is no majority"
    world.release_all()
    world.settle()
    assert world.answered(world.leads()) == world.tube(world.leads()).seq


def test_more_copies_than_voters() -> None:
    """T18.1 Of a tube led by votes only voters have one"""
    world = world_of()
    with pytest.raises(TubeError) as e:
        world.claim(0, name=b"u", sync=4)
    why = b"SYNC must be from 1 to the number of nodes with copies, which is 3"
    assert text_of(e.value) == why


def test_a_node_keeps_its_copies_until_it_is_added() -> None:
    """T28.4 it gets replicas, and is added when it has all of every such tube."""
    world = world_of()
    world.stick(1, 2)  # nobody can agree
    change(world, 0, 4, is_added=True)
    world.pass_ms(TIMEOUT_MS + 2_000)
    assert voters_of(world, 0) == [0, 1, 2]
    assert has_copies(world) == [0, 1, 2, 4]
    world.stick()
    world.pass_ms(2_000)
    assert voters_of(world, 0) == [0, 1, 2, 4]


def test_a_guest_that_is_invited_no_more() -> None:
    """T18.1 Others drop theirs after `cluster-node-timeout`, if the leader runs."""
    world = world_of()
    n = world.cores[0]
    voters = world.t(0).voter_state.in_force()
    assert voters is not None
    say(n, n.slot_of[world.id(4)], voters_message(voters, INVITED))
    world.pass_ms(1_000)
    assert has_copies(world) == [0, 1, 2, 4] and followers_of(world) == [1, 2, 4]
    assert voters_of(world, 0) == [0, 1, 2], "there are enough"
    world.put(0)
    world.take(0)
    world.pass_ms(TIMEOUT_MS)
    assert len(world.picture(1)) == TASKS + 1
    assert len(world.picture(4)) == 0 and followers_of(world) == [1, 2]
