"""TUBE HOME with FORCE of a tube led by votes: the last resort (SPEC T27.12)."""

from __future__ import annotations

import pytest
from votes_lab import TIMEOUT_MS, VotesLab

from refusals import said
from tuque.server.replies.errors import text_of
from tuque.tubes.election.votes import take_by_vote
from tuque.tubes.log.receive import lose_whole
from tuque.tubes.model.errors import TubeError


def force(lab: VotesLab, i: int) -> None:
    """TUBE HOME FORCE at node i."""
    n = lab.nodes[i]
    n.now_ms = lab.now_ms
    take_by_vote(n, lab.t(i), lab.tube(i), 5, 7)
    lab.run()


def refused(lab: VotesLab, i: int) -> bytes:
    """Why FORCE is refused at node i."""
    with pytest.raises(TubeError) as e:
        force(lab, i)
    return text_of(e.value)


def without_a_copy() -> VotesLab:
    """The leader is gone while both others are in a scan: no voter has all of the tube."""
    lab = VotesLab(3)
    for _ in range(3):
        lab.put(0)
    lab.live(1_000)
    for k in (1, 2):
        lose_whole(lab.nodes[k], lab.t(k), lab.tube(k))
    lab.put(0, b"only there")
    lab.die(0)
    return lab


def test_force_while_votes_may_choose() -> None:
    """T27.12 Else it is refused: `-ERR votes choose the leader of tube '<name>': FORCE is for a
    tube of which no voter has all, once a majority of the voters has been here for <n> s and has
    chosen none`."""
    lab = VotesLab(3)
    lab.put(0)
    lab.live(1_000)
    wanted = (
        b"votes choose the leader of tube 't': FORCE is for a tube of which no voter has all, once "
        b"a majority of the voters has been here for %d s and has chosen none"
    ) % (4 * TIMEOUT_MS // 1000)
    assert refused(lab, 0) == refused(lab, 1) == wanted
    lab.die(0)
    assert refused(lab, 1) == wanted
    (home,) = lab.watch(6 * TIMEOUT_MS)
    assert refused(lab, 3 - home) == refused(lab, home) == wanted
    lab.isolate(1)
    assert refused(lab, 1).startswith(b"1 of 3 voters are here and can vote")


@pytest.mark.parametrize("forced", [1, 2])
@pytest.mark.parametrize("restarts", [False, True])
def test_the_last_resort(forced: int, restarts: bool) -> None:
    """T27.12 What this node has of the tube then counts as whole and newer than all other replicas,
    on its disk too; it stands up, and a majority votes as always. The log warns.

    T27.12 Other nodes replace what they have (T18.3).
    """
    lab = without_a_copy()
    assert lab.watch(3 * TIMEOUT_MS) == []
    assert refused(lab, forced).startswith(b"votes choose the leader")
    assert lab.watch(4 * TIMEOUT_MS) == [], "no votes help"
    epoch = lab.tube(forced).epoch
    force(lab, forced)
    assert "counts as all by command" in lab.t(forced).notes[0]
    if restarts:
        lab.die(forced)
        lab.revive(forced)
        lab.isolate(0)
    assert lab.watch(3 * TIMEOUT_MS) == [forced]
    if not restarts:
        done = lab.done(forced)
        assert said(done) == b""
        told = dict(done.values)
        assert told[b"home"] == lab.nodes[forced].node_id
        assert int(told[b"epoch"]) == lab.tube(forced).epoch > epoch
        assert told[b"copy"] == b"incomplete"
        assert int(told[b"next-id"]) > 1_000_000
        assert lab.t(forced).ballots.won_by[5] == 1
    assert len(lab.picture(forced)) == 3
    lab.put(forced)
    lab.heal()
    lab.live(3 * TIMEOUT_MS)
    assert lab.runs_at() == [forced]
    assert lab.picture(0) == lab.picture(1) == lab.picture(2)
    assert len(lab.picture(0)) == 4, "what only the lost leader had is dropped"
    assert refused(lab, 3 - forced).startswith(b"votes choose the leader"), "it has a leader"


def test_an_older_whole_copy_does_not_win_by_itself() -> None:
    """T27.12 It runs on a voter that reaches a majority of the voters, once these have chosen no
    leader for four timeouts."""
    lab = VotesLab(3)
    lab.put(0)
    lab.live(1_000)
    lab.isolate(2)
    lab.put(0)
    lab.live(1_000)
    assert lab.answered(0) == lab.tube(0).seq
    lose_whole(lab.nodes[1], lab.t(1), lab.tube(1))
    lab.die(0)
    lab.link(1, 2)
    assert lab.watch(8 * TIMEOUT_MS) == [], "node 1 knows of a newer copy than node 2 has"
    force(lab, 1)
    assert lab.watch(3 * TIMEOUT_MS) == [1]
    assert len(lab.picture(1)) == len(lab.picture(2)) == 2


def test_a_reply_that_takes_too_long() -> None:
    """T27.12 The reply is that of T21.3 when the node leads the tube, or an error after twice the
    timeout; the node goes on asking for votes."""
    lab = without_a_copy()
    lab.watch(7 * TIMEOUT_MS)
    n = lab.nodes[1]
    n.now_ms = lab.now_ms
    take_by_vote(n, lab.t(1), lab.tube(1), 5, 7)
    lab.isolate(1)
    lab.watch(3 * TIMEOUT_MS)
    assert said(lab.done(1)).startswith(b"no majority has voted for this node yet")
    lab.link(1, 2)
    assert lab.watch(4 * TIMEOUT_MS) == [1]
