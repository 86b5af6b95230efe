"""Voters whose journal does not work (SPEC T27.9)."""

from __future__ import annotations

import pytest
from tubes_world import TIMEOUT_MS, VotesWorld

from tuque.core.model import errors as why
from tuque.core.node.peers import set_failing
from tuque.server.replies.errors import text_of
from tuque.tubes.election.force import force_voters
from tuque.tubes.election.membership import change_voters
from tuque.tubes.model.errors import TubeError


@pytest.mark.parametrize("is_off", [False, True])
def test_a_voter_without_a_disk_confirms_nothing(is_off: bool) -> None:
    """T27.9 A voter whose journal is off, or cannot be written (J6), takes and confirms no
    changes of such a tube

    T27.9 when it works again, it asks for what it lacks with the next change."""
    world = VotesWorld(3)
    world.put(0)
    world.pass_ms(1_000)
    known = world.answered(0)
    assert known == world.tube(0).seq
    kept = world.nodes[1].core.records
    assert kept is not None
    if is_off:
        world.nodes[1].core.records = None
    else:
        world.break_disk(1)
    world.isolate(2)
    world.put(0)
    world.pass_ms(500)
    assert world.answered(0) == known < world.tube(0).seq
    assert world.tube(1).seq == known
    if is_off:
        world.nodes[1].core.records = kept
    else:
        world.mend_disk(1)
    world.put(0)
    world.pass_ms(500)
    assert world.answered(0) == world.tube(0).seq == world.tube(1).seq
    assert world.picture(0) == world.picture(1)


def test_others_know_of_a_journal_that_is_off() -> None:
    """T23.3 It has whether the journal is off, changes with the next heartbeats"""
    world = VotesWorld(3)
    world.pass_ms(1_000)
    b = world.t(0).voter_state
    kept = world.nodes[1].core.records
    assert b.no_journal == 0
    world.nodes[1].core.records = None
    world.pass_ms(1_000)
    assert b.no_journal == 1 << world.slot(0, 1)
    world.nodes[1].core.records = kept
    world.pass_ms(1_000)
    assert b.no_journal == 0


def test_a_tube_does_not_go_to_a_node_whose_journal_fails() -> None:
    """T20.1 Nor may a node whose journal cannot be written now (K4.5), with an error at once,
    also during a switchover, which then ends.
    """
    world = VotesWorld(3)
    world.break_disk(1)
    world.pass_ms(1_000)
    with pytest.raises(TubeError) as refused:
        world.move(0, 1)
    assert text_of(refused.value) == (
        b"the journal of node %s cannot be written: see journal_error in INFO there; it works "
        b"again by itself once its disk has room" % world.id(1)
    )
    world.isolate(1)  # it is silent: this node still knows why
    with pytest.raises(TubeError) as refused:
        world.move(0, 1)
    assert refused.value.code == why.JOURNAL_FAILS
    world.link()
    world.mend_disk(1)
    world.pass_ms(1_000)
    world.put(0)
    world.begin_move(0, 1)
    world.hold(1, 0)
    set_failing(world.nodes[0].core, world.slot(0, 1), True)  # it goes past what waits
    world.pass_ms(500)
    assert world.said(0).startswith(b"the journal of node ")
    world.pass_ms(1_000)
    assert world.runs_at() == [0]


def test_what_was_answered_survives_a_voter_without_a_disk() -> None:
    """T27.7 with a majority no failover loses what was answered"""
    world = VotesWorld(3)
    world.put(0)
    world.pass_ms(1_000)
    world.break_disk(1)
    world.put(0, b"answered by nodes 0 and 2")
    world.pass_ms(500)
    assert world.answered(0) == world.tube(0).seq
    picture = world.picture(0)
    world.mend_disk(1)
    world.restart(0)
    assert world.watch(4 * TIMEOUT_MS) == [2]
    assert {k: v[0] for k, v in world.picture(2).items()} == {k: v[0] for k, v in picture.items()}


def test_a_leader_whose_journal_fails_gives_up() -> None:
    """T27.11 A leader whose journal is off, or cannot be written, for longer than T steps down,
    and such a node is no candidate
    """
    world = VotesWorld(3)
    world.put(0)
    world.pass_ms(1_000)
    picture = world.picture(0)
    kept = world.nodes[0].core.records
    assert kept is not None

    def fail(i: int) -> None:  # with a disk that fails, others hear nothing of node 0 (J6.6)
        if i == 0:
            kept.is_failing = True

    world.lab.after_turn = fail
    fail(0)
    assert world.watch(TIMEOUT_MS - 1_000) == [0], "it may work again soon"
    (home,) = world.watch(2 * TIMEOUT_MS)
    assert home in (1, 2)
    assert any("could not be written for" in note for note in world.warnings(0))
    assert {k: v[0] for k, v in world.picture(home).items()} == {
        k: v[0] for k, v in picture.items()
    }
    world.restart(home)
    third = 3 - home
    assert world.watch(4 * TIMEOUT_MS) == [third], "not the one that cannot write"
    world.lab.after_turn = None
    world.put(third)
    world.pass_ms(1_000)
    assert world.answered(third) == world.tube(third).seq


def test_the_only_voter_waits_for_its_journal() -> None:
    """T27.11 unless it is the only voter."""
    world = VotesWorld(3)
    for k in (1, 2):
        world.restart(k)
    n = world.nodes[0].core
    force_voters(n, world.t(0), [n.node_id], -1, 0)
    for k in (1, 2):
        n.forgotten |= 1 << world.slot(0, k)
    assert world.watch(3 * TIMEOUT_MS) == [0]
    world.break_disk(0)
    assert world.watch(3 * TIMEOUT_MS) == [0]


def test_a_failover_that_lost_no_answer_counts_none() -> None:
    """T21.4 those answered since its last start count as lost, in INFO too: none, with votes and
    SYNC majority.
    """
    world = VotesWorld(3)
    world.put(0)
    world.pass_ms(1_000)
    for k in (1, 2):
        world.hold(0, k)
    world.put(0, b"never answered")
    world.settle()
    world.isolate(0)
    assert world.answered(0) < world.tube(0).seq
    (home,) = world.watch(4 * TIMEOUT_MS)
    assert home in (1, 2)
    world.link()
    world.pass_ms(1_000)
    assert world.t(0).changes_lost == 0
    assert any("without the last 1 changes here: 0 of them" in line for line in world.news(0))


def test_a_restart_of_a_leader_counts_none() -> None:
    """T21.4 those answered since its last start count as lost, in INFO too: none, with votes and
    SYNC majority.
    """
    world = VotesWorld(3)
    world.put(0)
    world.pass_ms(1_000)
    world.restart(0)
    (home,) = world.watch(4 * TIMEOUT_MS)
    world.put(home)
    world.rejoin(0)
    world.pass_ms(1_000)
    assert world.tube(0).home == world.id(home)
    assert world.t(0).changes_lost == 0
    assert not any("without the last" in line for line in world.warnings(0) + world.news(0))


def test_a_change_of_voters_names_the_journal_that_fails() -> None:
    """T28.1 On a node whose journal cannot be written (J6), ADD, REMOVE and FORCE are refused at
    once, and a change that waits when its time is over: the error names that journal, as no other
    node is the cause."""
    world = VotesWorld(3)
    n, t, other = world.nodes[0].core, world.t(0), world.id(2)
    world.break_disk(0)
    for is_added in (False, True):
        with pytest.raises(TubeError) as refused:
            world.ask(0, change_voters, other, is_added)
        assert refused.value.code == why.OWN_JOURNAL
    with pytest.raises(TubeError) as refused:
        force_voters(n, t, [n.node_id], -1, 0)
    assert text_of(refused.value) == (
        b"the journal of this node cannot be written, so that other nodes may not get its "
        b"messages: see journal_error in INFO; try again when it works"
    )
    world.mend_disk(0)
    world.ask(0, change_voters, other, False)
    world.disk(0).fail(writes=1 << 30, syncs=1 << 30)
    world.pass_ms(2 * TIMEOUT_MS + 500)
    assert world.said(0).startswith(b"the journal of this node cannot be written")
