"""Lists of one voter or two, and voters that cannot vote (SPEC T27, T28)."""

from __future__ import annotations

import pytest
from test_tube_voters import change, force, is_willing, names
from votes_lab import TIMEOUT_MS, VotesLab

from cluster_lab import Kept
from refusals import said
from tuque.server.replies.errors import text_of
from tuque.tubes.election.voters import may_vouch
from tuque.tubes.model.errors import TubeError


def lab_of(count: int) -> VotesLab:
    """A lab with a tube of `SYNC majority` at node 0, and a task."""
    lab = VotesLab(count, makes=False)
    lab.live(2 * TIMEOUT_MS)
    lab.make(0)
    lab.put(0)
    lab.live(1_000)
    return lab


def forget(lab: VotesLab, i: int, *gone: int) -> None:
    """CLUSTER FORGET at node i."""
    for k in gone:
        lab.nodes[i].forgotten |= 1 << lab.slot(i, k)


def tasks_at(lab: VotesLab, i: int) -> int:
    """Wait until the tube runs at node i, put one more task; how many are there."""
    assert lab.watch(4 * TIMEOUT_MS) == [i]
    lab.put(i)
    lab.live(500)
    assert lab.answered(i) == lab.tube(i).seq
    return len(lab.picture(i))


@pytest.mark.parametrize("leads", [True, False])
def test_one_voter_left_by_force(leads: bool) -> None:
    """T27.10 Of a list with one voter that one is the majority: it asks nobody, and leads when its
    own vote is on its disk."""
    lab = lab_of(3)
    i = 0 if leads else 2
    gone = [k for k in range(3) if k != i]
    for k in gone:
        lab.die(k)
    lab.live(2 * TIMEOUT_MS)
    force(lab, i, [i])
    forget(lab, i, *gone)
    assert tasks_at(lab, i) == 2
    epoch = lab.tube(i).epoch
    lab.die(i)  # it starts again, alone
    forget(lab, i, *gone)
    assert tasks_at(lab, i) == 3
    assert lab.tube(i).epoch > epoch
    lab.make(i, name=b"new")
    assert lab.runs_at(b"new") == [i]


def test_one_voter_waits_for_its_disk() -> None:
    """T27.10 leads when its own vote is on its disk."""
    lab = lab_of(3)
    lab.die(0)
    lab.die(1)
    lab.live(2 * TIMEOUT_MS)
    force(lab, 2, [2])
    forget(lab, 2, 0, 1)
    lab.slow = {2}
    assert lab.watch(4 * TIMEOUT_MS) == []
    lab.slow = set()
    assert lab.watch(2 * TIMEOUT_MS) == [2]


@pytest.mark.parametrize("stays", [0, 1])
def test_one_voter_left_by_command(stays: int) -> None:
    """T27.10 Nobody has to echo (T25.2)."""
    lab = lab_of(3)
    for i in range(3):
        is_willing(lab, i, False)
    for k in range(3):
        if k != stays:
            change(lab, stays, k, is_added=False)
            lab.live(2 * TIMEOUT_MS)
            assert said(lab.done(stays)) == b""
    assert [names(lab, i) for i in range(3)] == [[stays]] * 3
    assert tasks_at(lab, 0) == 2, "it leads still: the only voter stands with it"
    if stays != 0:
        lab.die(0)
    assert tasks_at(lab, stays) == 3
    lab.die(stays)
    lab.link(stays, 2)
    assert tasks_at(lab, stays) == 4
    change(lab, stays, 2, is_added=True)
    lab.live(2 * TIMEOUT_MS)
    assert said(lab.done(stays)) == b""
    assert names(lab, 2) == [stays, 2]
    lab.put(stays)
    lab.live(500)
    lab.die(stays)
    assert lab.watch(4 * TIMEOUT_MS) == [], "one of two is no majority"


def refused(lab: VotesLab, i: int, nodes: list[int]) -> bytes:
    """Why CLUSTER VOTERS FORCE is refused at node i."""
    with pytest.raises(TubeError) as e:
        force(lab, i, nodes)
    return bytes(text_of(e.value))


def test_voters_without_their_right_are_not_here() -> None:
    """T28.8 those without their right do not count as here."""
    lab = lab_of(3)
    for i in range(3):
        lab.journals[i] = Kept(i) if i < 2 else lab.journals[i]
        lab.die(i)
    for i in (0, 1):
        lab.revive(i)
    lab.live(2 * TIMEOUT_MS)
    assert [may_vouch(lab.nodes[i], lab.t(i)) for i in range(3)] == [False, False, True]
    assert lab.watch(2 * TIMEOUT_MS) == []
    wanted = b"node %s is here and can vote: name it too" % lab.nodes[2].node_id
    assert refused(lab, 0, [0]) == refused(lab, 1, [0, 1]) == wanted
    force(lab, 2, [2])
    assert tasks_at(lab, 2) == 2
    lab.live(4 * TIMEOUT_MS)
    assert {tuple(names(lab, i)) for i in range(3)} == {(0, 1, 2)}, "they joined again"
    lab.die(2)
    (home,) = lab.watch(4 * TIMEOUT_MS)
    assert len(lab.picture(home)) == 2


def test_all_that_are_here_are_named() -> None:
    """T28.8 It names all voters that are here."""
    lab = lab_of(5)
    for k in (0, 1, 2):
        lab.die(k)
    lab.live(2 * TIMEOUT_MS)
    wanted = b"node %s is here and can vote: name it too" % lab.nodes[4].node_id
    assert refused(lab, 3, [3]) == wanted
    force(lab, 3, [3, 4])
    assert names(lab, 4) == [3, 4]


def test_no_voter_goes_that_is_needed() -> None:
    """T28.1 where the list after it would have no majority of voters that this node reaches and
    that have their right"""
    lab = lab_of(3)
    lab.die(2)
    lab.live(2 * TIMEOUT_MS)
    for i, k in ((0, 1), (0, 0), (1, 0)):
        with pytest.raises(TubeError) as e:
            change(lab, i, k, is_added=False)
        assert text_of(e.value).startswith(b"without node %s too few" % lab.nodes[k].node_id)
        assert text_of(e.value).endswith(b"use CLUSTER VOTERS FORCE")
    change(lab, 0, 2, is_added=False)
    lab.live(2 * TIMEOUT_MS)
    assert said(lab.done(0)) == b""
    assert names(lab, 0) == names(lab, 1) == [0, 1]
    assert lab.watch(TIMEOUT_MS) == [0]


def test_a_leaving_voter_that_is_needed_stays() -> None:
    """T28.4 A leaving voter is removed, unless it is the last one, or the others have no majority
    that is reached and can vote."""
    lab = lab_of(3)
    lab.die(2)
    lab.live(2 * TIMEOUT_MS)
    for leaver in (0, 1):
        lab.leave(leaver)
        lab.live(4 * TIMEOUT_MS)
        assert names(lab, 0) == [0, 1, 2]
        assert lab.t(leaver).drain_left(lab.nodes[leaver]) > 0
        lab.leave(leaver, False)
    lab.leave(1)
    lab.revive(2)
    lab.live(4 * TIMEOUT_MS)
    assert names(lab, 0) == names(lab, 2) == [0, 2]


@pytest.mark.parametrize("lost", [0, 1])
def test_two_voters_one_without_its_right(lost: int) -> None:
    """T28.1 ADD and REMOVE are refused at once without such a majority of the present list."""
    lab = lab_of(3)
    is_willing(lab, 2, False)
    change(lab, 0, 2, is_added=False)
    lab.live(2 * TIMEOUT_MS)
    assert said(lab.done(0)) == b""
    lab.die(2)
    lab.lose_journal(lost)
    other = 1 - lost
    assert lab.watch(4 * TIMEOUT_MS) == [], "one of two can vote"
    for is_added in (False, True):
        with pytest.raises(TubeError) as e:
            change(lab, other, lost, is_added)
        assert text_of(e.value).startswith(b"1 of 2 voters are here and can vote")
        assert text_of(e.value).endswith(b"use CLUSTER VOTERS FORCE")
    force(lab, other, [other])
    assert tasks_at(lab, other) == 2
    lab.live(4 * TIMEOUT_MS)
    assert names(lab, 0) == names(lab, 1) == [0, 1], "it joined again"


def test_one_of_two_leaves() -> None:
    """T28.4 A leaving voter is removed, unless it is the last one"""
    lab = lab_of(3)
    is_willing(lab, 2, False)
    change(lab, 0, 2, is_added=False)
    lab.live(2 * TIMEOUT_MS)
    assert said(lab.done(0)) == b""
    lab.leave(1)
    assert lab.t(1).drain_left(lab.nodes[1]) > 0
    lab.live(4 * TIMEOUT_MS)
    assert names(lab, 0) == [0]
    assert lab.t(1).drain_left(lab.nodes[1]) == 0
    lab.die(1)
    assert lab.watch(2 * TIMEOUT_MS) == [0]
    lab.leave(0)
    lab.live(2 * TIMEOUT_MS)
    assert names(lab, 0) == [0], "the last one stays"
