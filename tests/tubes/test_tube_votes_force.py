"""TUBE HOME with FORCE of a tube led by votes: the last resort (SPEC T27.12)."""

from __future__ import annotations

import pytest
from tubes_world import TIMEOUT_MS, VotesWorld

from tuque.server.replies.errors import text_of
from tuque.tubes.election.force import take_by_vote
from tuque.tubes.log.receive import lose_whole
from tuque.tubes.model.errors import TubeError


def force(world: VotesWorld, i: int) -> None:
    """TUBE HOME FORCE at node i."""
    world.ask(i, take_by_vote, world.tube(i))
    world.settle()


def refused(world: VotesWorld, i: int) -> bytes:
    """Why FORCE is refused at node i."""
    with pytest.raises(TubeError) as e:
        force(world, i)
    return text_of(e.value)


def without_a_copy() -> VotesWorld:
    """The leader is gone while both others are in a scan: no voter has all of the tube."""
    world = VotesWorld(3)
    for _ in range(3):
        world.put(0)
    world.pass_ms(1_000)
    for k in (1, 2):
        lose_whole(world.nodes[k].core, world.t(k), world.tube(k))
    world.put(0, b"only there")
    world.restart(0)
    return world


def test_force_while_votes_may_choose() -> None:
    """T27.12 Else it is refused: `-ERR votes choose the leader of tube '<name>': FORCE is for a
    tube of which no voter has all, once a majority of the voters has been here for <n> s and has
    chosen none`."""
    world = VotesWorld(3)
    world.put(0)
    world.pass_ms(1_000)
    wanted = (
        b"votes choose the leader of tube 't': FORCE is for a tube of which no voter has all, once "
        b"a majority of the voters has been here for %d s and has chosen none"
    ) % (4 * TIMEOUT_MS // 1000)
    assert refused(world, 0) == refused(world, 1) == wanted
    world.restart(0)
    assert refused(world, 1) == wanted
    (home,) = world.watch(6 * TIMEOUT_MS)
    assert refused(world, 3 - home) == refused(world, home) == wanted
    world.isolate(1)
    assert refused(world, 1).startswith(b"1 of 3 voters are here and can vote")


@pytest.mark.parametrize("forced", [1, 2])
@pytest.mark.parametrize("restarts", [False, True])
def test_the_last_resort(forced: int, restarts: bool) -> None:
    """T27.12 What this node has of the tube then counts as whole and newer than all other
    replicas, on its disk too; it is a candidate, and a majority votes as always. The log warns.

    T27.12 Other nodes replace what they have (T18.3).
    """
    world = without_a_copy()
    assert world.watch(3 * TIMEOUT_MS) == []
    assert refused(world, forced).startswith(b"votes choose the leader")
    assert world.watch(4 * TIMEOUT_MS) == [], "no votes help"
    epoch = world.tube(forced).epoch
    force(world, forced)
    assert "counts as all by command" in world.warnings(forced)[0]
    if restarts:
        world.restart(forced)
        world.rejoin(forced)
        world.isolate(0)
    assert world.watch(3 * TIMEOUT_MS) == [forced]
    if not restarts:
        told = world.told(forced)
        assert told[b"home"] == world.id(forced)
        assert int(told[b"epoch"]) == world.tube(forced).epoch > epoch
        assert told[b"copy"] == b"incomplete"
        assert int(told[b"next-id"]) > 1_000_000
        assert world.t(forced).voter_state.won_by[5] == 1
    assert len(world.picture(forced)) == 3
    world.put(forced)
    world.link()
    world.pass_ms(3 * TIMEOUT_MS)
    assert world.runs_at() == [forced]
    assert world.picture(0) == world.picture(1) == world.picture(2)
    assert len(world.picture(0)) == 4, "what only the lost leader had is dropped"
    assert refused(world, 3 - forced).startswith(b"votes choose the leader"), "it has a leader"


def test_an_older_whole_copy_does_not_win_by_itself() -> None:
    """T27.12 It runs on a voter that reaches a majority of the voters, once these have
    chosen no leader for four times `cluster-node-timeout`."""
    world = VotesWorld(3)
    world.put(0)
    world.pass_ms(1_000)
    world.isolate(2)
    world.put(0)
    world.pass_ms(1_000)
    assert world.answered(0) == world.tube(0).seq
    lose_whole(world.nodes[1].core, world.t(1), world.tube(1))
    world.restart(0)
    world.link(1, 2)
    assert world.watch(8 * TIMEOUT_MS) == [], "node 1 knows of a newer copy than node 2 has"
    force(world, 1)
    assert world.watch(3 * TIMEOUT_MS) == [1]
    assert len(world.picture(1)) == len(world.picture(2)) == 2


def test_a_reply_that_takes_too_long() -> None:
    """T27.12 The reply is that of T21.3 when the node leads the tube, or an error after twice
    `cluster-node-timeout`; the node continues to ask for votes.
    """
    world = without_a_copy()
    world.watch(7 * TIMEOUT_MS)
    world.ask(1, take_by_vote, world.tube(1))
    world.isolate(1)
    world.watch(3 * TIMEOUT_MS)
    assert world.said(1).startswith(b"no majority has voted for this node yet")
    world.link(1, 2)
    assert world.watch(4 * TIMEOUT_MS) == [1]
