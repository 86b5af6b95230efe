"""Voters whose journal does not work (SPEC T27.9)."""

from __future__ import annotations

import pytest
from votes_lab import TIMEOUT_MS, VotesLab

from tuque.core.node.peers import set_failing
from tuque.server.replies.errors import text_of
from tuque.tubes.election.membership import change_voters, force_voters
from tuque.tubes.model import errors as why
from tuque.tubes.model.errors import TubeError


@pytest.mark.parametrize("is_off", [False, True])
def test_a_voter_without_a_disk_confirms_nothing(is_off: bool) -> None:
    """T27.9 A voter whose journal is off, or cannot be written (J6), takes no changes of such a
    tube, and so confirms none

    T27.9 When its journal works again, it asks for what it lacks with the next change.
    """
    lab = VotesLab(3)
    lab.put(0)
    lab.live(1_000)
    known = lab.answered(0)
    assert known == lab.tube(0).seq
    kept = lab.nodes[1].records
    assert kept is not None
    kept.is_failing = True
    if is_off:
        lab.nodes[1].records = None
    lab.isolate(2)
    lab.put(0)
    lab.live(500)
    assert lab.answered(0) == known < lab.tube(0).seq
    assert lab.tube(1).seq == known
    kept.is_failing = False
    lab.nodes[1].records = kept
    lab.put(0)
    lab.live(500)
    assert lab.answered(0) == lab.tube(0).seq == lab.tube(1).seq
    assert lab.picture(0) == lab.picture(1)


def test_others_know_of_a_journal_that_is_off() -> None:
    """T23.3 It also says whether the journal of its sender is off"""
    lab = VotesLab(3)
    lab.live(1_000)
    b = lab.t(0).ballots
    kept = lab.nodes[1].records
    assert b.no_journal == 0
    lab.nodes[1].records = None
    lab.live(1_000)
    assert b.no_journal == 1 << lab.slot(0, 1)
    lab.nodes[1].records = kept
    lab.live(1_000)
    assert b.no_journal == 0


def test_a_tube_does_not_go_to_a_node_whose_journal_fails() -> None:
    """T20.1 Nor may a node whose journal cannot be written now (K4.5): the error says so at once,
    also during a switchover, which is then given up."""
    lab = VotesLab(3)
    kept = lab.nodes[1].records
    assert kept is not None
    kept.is_failing = True
    lab.live(1_000)
    with pytest.raises(TubeError) as refused:
        lab.move(0, 1)
    assert text_of(refused.value) == (
        b"the journal of node %s cannot be written: see journal_error in INFO there; it works "
        b"again by itself once its disk has room" % lab.nodes[1].node_id
    )
    lab.isolate(1)  # it is silent: this node still knows why
    with pytest.raises(TubeError) as refused:
        lab.move(0, 1)
    assert refused.value.code == why.JOURNAL_FAILS
    lab.heal()
    kept.is_failing = False
    lab.live(1_000)
    lab.put(0)
    lab.begin(0, 1)
    lab.hold(1, 0)
    set_failing(lab.nodes[0], lab.slot(0, 1), True)  # it goes past what waits
    lab.live(500)
    done = lab.done(0)
    assert done.error is not None
    assert done.error.code == why.JOURNAL_FAILS
    lab.live(1_000)
    assert lab.runs_at() == [0]


def test_what_was_answered_survives_a_voter_without_a_disk() -> None:
    """T27.7 with a majority no failover loses what was answered"""
    lab = VotesLab(3)
    lab.put(0)
    lab.live(1_000)
    records = lab.nodes[1].records
    assert records is not None
    records.is_failing = True
    lab.put(0, b"answered by nodes 0 and 2")
    lab.live(500)
    assert lab.answered(0) == lab.tube(0).seq
    picture = lab.picture(0)
    records.is_failing = False
    lab.die(0)
    assert lab.watch(4 * TIMEOUT_MS) == [2]
    assert {k: v[0] for k, v in lab.picture(2).items()} == {k: v[0] for k, v in picture.items()}


def test_a_node_without_a_vote_needs_no_journal() -> None:
    """T27.9 A voter whose journal is off"""
    lab = VotesLab(4, off=3)
    lab.nodes[3].records = None
    lab.put(0)
    lab.live(1_000)
    assert lab.picture(3) == lab.picture(0)


def test_a_leader_whose_journal_fails_gives_up() -> None:
    """T27.11 A leader whose journal is off, or cannot be written (J6), for longer than the timeout
    gives up, and a node whose journal is off or cannot be written does not stand up"""
    lab = VotesLab(3)
    lab.put(0)
    lab.live(1_000)
    picture = lab.picture(0)
    kept = lab.nodes[0].records
    assert kept is not None
    kept.is_failing = True
    assert lab.watch(TIMEOUT_MS - 1_000) == [0], "it may work again soon"
    (home,) = lab.watch(2 * TIMEOUT_MS)
    assert home in (1, 2)
    assert any("could not be written for" in note for note in lab.t(0).notes)
    assert {k: v[0] for k, v in lab.picture(home).items()} == {k: v[0] for k, v in picture.items()}
    lab.die(home)
    assert lab.watch(4 * TIMEOUT_MS) == [3 - home], "not the one that cannot write"
    kept.is_failing = False
    lab.put(3 - home)
    lab.live(1_000)
    assert lab.answered(3 - home) == lab.tube(3 - home).seq


def test_the_only_voter_waits_for_its_journal() -> None:
    """T27.11 unless it is the only voter."""
    lab = VotesLab(3)
    for k in (1, 2):
        lab.die(k)
    n = lab.nodes[0]
    force_voters(n, lab.t(0), [n.node_id])
    for k in (1, 2):
        n.forgotten |= 1 << lab.slot(0, k)
    assert lab.watch(3 * TIMEOUT_MS) == [0]
    assert n.records is not None
    n.records.is_failing = True
    assert lab.watch(3 * TIMEOUT_MS) == [0]


def test_a_failover_that_lost_no_answer_counts_none() -> None:
    """T21.4 Those of them that were answered (T18.5) count as lost, in INFO too; of changes before
    its last start it does not know, but a tube led by votes with SYNC majority answered none of
    them."""
    lab = VotesLab(3)
    lab.put(0)
    lab.live(1_000)
    for k in (1, 2):
        lab.hold(0, k)
    lab.put(0, b"never answered")
    lab.run()
    lab.isolate(0)
    assert lab.answered(0) < lab.tube(0).seq
    (home,) = lab.watch(4 * TIMEOUT_MS)
    assert home in (1, 2)
    lab.heal()
    lab.live(1_000)
    assert lab.t(0).changes_lost == 0
    assert any("without the last 1 changes here: 0 of them" in line for line in lab.t(0).news)


def test_a_restart_of_a_leader_counts_none() -> None:
    """T21.4 a tube led by votes with SYNC majority answered none of them."""
    lab = VotesLab(3)
    lab.put(0)
    lab.live(1_000)
    lab.die(0)
    (home,) = lab.watch(4 * TIMEOUT_MS)
    lab.put(home)
    lab.revive(0)
    lab.live(1_000)
    assert lab.tube(0).home == lab.nodes[home].node_id
    assert lab.t(0).changes_lost == 0
    assert not any("without the last" in line for line in lab.t(0).notes + lab.t(0).news)


def test_a_change_of_voters_names_the_journal_that_fails() -> None:
    """T28.1 On a node whose journal cannot be written (J6), ADD, REMOVE and FORCE are refused at
    once, and a change that waits when its time is over: the error names that journal, as no other
    node is the cause."""
    lab = VotesLab(3)
    n, t, other = lab.nodes[0], lab.t(0), lab.nodes[2].node_id
    assert n.records is not None
    n.records.is_failing = True
    for is_added in (False, True):
        with pytest.raises(TubeError) as refused:
            change_voters(n, t, other, is_added, 5, 7)
        assert refused.value.code == why.OWN_JOURNAL
    with pytest.raises(TubeError) as refused:
        force_voters(n, t, [n.node_id])
    assert text_of(refused.value) == (
        b"the journal of this node cannot be written, so that other nodes may not get its "
        b"messages: see journal_error in INFO; try again when it works"
    )
    n.records.is_failing = False
    change_voters(n, t, other, False, 5, 7)
    n.records.is_failing = True
    lab.slow.add(0)
    lab.live(2 * TIMEOUT_MS + 500)
    done = lab.done(0)
    assert done.error is not None
    assert done.error.code == why.OWN_JOURNAL
