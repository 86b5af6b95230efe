"""Two tubes of one name, on both sides of a cut: a majority confirmed one (SPEC T17.5, T27.8)."""

from __future__ import annotations

import pytest
from votes_lab import TIMEOUT_MS, VotesLab

from refusals import said
from tuque.tubes.leadership.create import claim_tube
from tuque.tubes.model.errors import HomeError
from tuque.tubes.model.options import MAJORITY, NO, TubeOptions
from tuque.tubes.tasks.admin import remove_tube


def cut_off(away: int, count: int = 3) -> VotesLab:
    """A lab whose nodes go by a list of voters, without a tube; one node has no links."""
    lab = VotesLab(count, makes=False)
    lab.live(2 * TIMEOUT_MS)
    assert all(lab.in_force(i) for i in range(count))
    lab.isolate(away)
    lab.live(2 * TIMEOUT_MS)
    return lab


def create(lab: VotesLab, i: int, **options: object) -> None:
    """CREATE at node i, under SYNC majority; the answer comes later."""
    o = TubeOptions()
    o.sync = MAJORITY
    for word, value in options.items():
        assert hasattr(o, word), word
        setattr(o, word, value)
    n = lab.nodes[i]
    n.now_ms = lab.now_ms
    claim_tube(n, lab.t(i), b"t", b"fifo", o, b"user", 1, 1)


def with_task(lab: VotesLab, i: int) -> None:
    """A majority confirms the tube that node i creates, and one task in it."""
    create(lab, i)
    lab.live(1000)
    assert said(lab.done(i)) == b"" and lab.runs_at() == [i]
    lab.put(i)
    lab.live(500)
    assert lab.answered(i) == 1


def goes_by(lab: VotesLab, i: int, *nodes: int) -> None:
    """These nodes go by the tube that node i created, and tell of no other one."""
    made = lab.tube(i)
    for j in nodes:
        tube = lab.tube(j)
        assert (tube.maker, tube.made_ns) == (lab.nodes[i].node_id, made.made_ns), j
        assert tube.conflict == b"", j


@pytest.mark.parametrize(("away", "maker"), [(0, 1), (2, 0), (2, 1)])
def test_a_tube_that_no_majority_confirmed_takes_nothing(away: int, maker: int) -> None:
    """T17.5 The creator of a tube that was never confirmed drops it when it hears of one that the
    others follow before it."""
    lab = cut_off(away)
    with_task(lab, maker)
    create(lab, away)
    lab.live(2 * TIMEOUT_MS)
    assert b"done here" in said(lab.done(away))
    lab.heal()
    lab.live(2000)
    goes_by(lab, maker, 0, 1, 2)
    assert lab.picture(0) == lab.picture(1) == lab.picture(2) != {}
    assert lab.runs_at() == [maker] and lab.put(maker).number == 1
    assert any("the one that this node created is dropped" in note for note in lab.t(away).notes)
    lab.die(away)
    lab.heal()
    lab.live(2000)
    goes_by(lab, maker, 0, 1, 2)


def test_a_follower_that_sees_the_other_tube_first_keeps_its_replica() -> None:
    """T17.5 The other nodes follow the one that was confirmed"""
    lab = cut_off(0)
    with_task(lab, 1)
    create(lab, 0)
    lab.live(500)
    lab.cut(1, 2)
    lab.link(0, 2)
    lab.live(1000)
    assert lab.tube(2).maker == lab.nodes[1].node_id == lab.tube(0).maker
    lab.heal()
    lab.live(4 * TIMEOUT_MS)
    (at,) = lab.runs_at()
    goes_by(lab, 1, 0, 1, 2)
    assert sorted(lab.tube(at).tasks) == [0]


def test_an_empty_tube_that_was_confirmed_stays() -> None:
    """T17.5 TUBES says so; so do a change, and an epoch above 1."""
    lab = cut_off(0)
    create(lab, 1)
    lab.live(1000)
    assert said(lab.done(1)) == b"" and lab.tube(1).seq == 0
    create(lab, 0)
    lab.heal()
    lab.live(2000)
    goes_by(lab, 1, 0, 1, 2)
    assert lab.runs_at() == [1]


@pytest.mark.parametrize("if_not_exists", [False, True])
def test_a_create_that_waits_hears_of_the_other_tube(if_not_exists: bool) -> None:
    """T17.5 If its CREATE still waits (T27.8), that ends as if the tube were known."""
    lab = cut_off(0)
    with_task(lab, 1)
    create(lab, 0, if_not_exists=if_not_exists)
    lab.live(500)
    lab.heal()
    lab.live(1000)
    done = lab.done(0)
    if if_not_exists:
        assert isinstance(done.error, HomeError) and done.error.node_id == lab.nodes[1].node_id
    else:
        assert said(done) == b"Space 't' already exists"
    goes_by(lab, 1, 0, 1, 2)


def test_a_creator_that_started_again_drops_its_tube() -> None:
    """T17.5 One that has started since does so only for one that was confirmed."""
    lab = cut_off(0)
    with_task(lab, 1)
    create(lab, 0)
    lab.live(500)
    lab.die(0)
    assert lab.tube(0).is_mine
    lab.heal()
    lab.live(2000)
    goes_by(lab, 1, 0, 1, 2)


def test_a_tube_that_votes_do_not_lead_takes_no_confirmed_replica() -> None:
    """T17.5 The other nodes follow the one that was confirmed; else one that is not led by votes"""
    lab = cut_off(0)
    with_task(lab, 1)
    create(lab, 0, sync=1, failover=NO)
    lab.heal()
    lab.live(2000)
    assert lab.tube(2).maker == lab.nodes[1].node_id and sorted(lab.tube(2).copies) == [0]
    assert lab.tube(0).is_mine and lab.tube(0).conflict == lab.nodes[1].node_id
    assert lab.tube(1).conflict == lab.tube(2).conflict == lab.nodes[0].node_id
    remove_tube(lab.nodes[0], lab.t(0), lab.tube(0))
    lab.live(2000)
    goes_by(lab, 1, 0, 1, 2)


def test_a_tube_that_was_never_confirmed_takes_none_that_votes_do_not_lead() -> None:
    """T17.5 The other nodes follow the one that was confirmed; else one that is not led by votes"""
    lab = cut_off(0)
    create(lab, 1, sync=1, failover=NO)
    lab.live(500)
    lab.put(1)
    create(lab, 0)
    lab.live(500)
    lab.heal()
    lab.live(2000)
    goes_by(lab, 1, 0, 1, 2)
    assert sorted(lab.tube(2).copies) == [0]


@pytest.mark.parametrize("first", range(6))
def test_nodes_agree_in_whatever_order_they_hear_of_it(first: int) -> None:
    """T17.5 The other nodes follow the one that was confirmed

    Of five nodes, three see each other and confirm a tube; each of the other two makes its own."""
    lab = cut_off(0, count=5)
    lab.isolate(4)
    lab.live(1000)
    with_task(lab, 2)
    for i in (0, 4):
        create(lab, i)
    lab.live(500)
    links = [(0, 4), (0, 1), (4, 1), (0, 3), (4, 3), (0, 2), (4, 2)]
    for a, b in links[first:] + links[:first]:
        lab.link(a, b)
        lab.live(500)
    lab.live(2000)
    goes_by(lab, 2, *range(5))
    assert all(sorted(lab.picture(i)) == [0] for i in range(5))


def test_of_tubes_that_were_never_confirmed_the_first_creators_is_confirmed() -> None:
    """T17.5 Of equal ones they follow the one whose creator has the lower node id"""
    lab = cut_off(0)
    lab.isolate(1)
    lab.live(2 * TIMEOUT_MS)
    for i in (0, 1):
        create(lab, i)
    lab.live(500)
    lab.heal()
    lab.live(4000)
    goes_by(lab, 0, 0, 1, 2)
    assert lab.runs_at() == [0]
