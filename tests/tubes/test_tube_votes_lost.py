"""Disks that were lost, voters that leave, and lists by force (SPEC T25, T27, T28)."""

from __future__ import annotations

import pytest
from test_tube_voters import change, force, names, other_cluster
from test_tube_voters_few import forget, lab_of
from test_tube_votes import asked, lose_leader
from tubes_world import TIMEOUT_MS, VotesWorld, word_of

from tuque.core.msgs.bus import TubeStands, TubeVote
from tuque.core.repair.drain import set_leaving
from tuque.server.replies.errors import text_of
from tuque.tubes.log.vote_state import seat_of, vote_of
from tuque.tubes.model.errors import TubeError
from tuque.tubes.model.voter_state import FORCE_ELECTIONS, FORCE_GAP, PROMISED, YES


def told_vote(world: VotesWorld, epoch: int, node: int) -> TubeStands:
    """What a node sends that votes for that one, and neither leads nor asks for votes."""
    tube = world.tube(0)
    at = word_of(tube, epoch, world.id(node))
    return TubeStands(False, [at])


def test_a_candidate_that_lost_its_disk_binds_nobody() -> None:
    """T25.4 under a lower epoch than that in which the voter voted for it: it has lost its disk
    since.
    """
    world = VotesWorld(3)
    lose_leader(world)
    world.jump_ms(200)
    assert asked(world, 1, 2, 5) == YES
    world.lose_journal(1)
    world.isolate(0)
    world.pass_ms(TIMEOUT_MS)
    assert vote_of(world.tube(2)) == (5, world.id(1))
    assert vote_of(world.tube(1))[0] < 5
    world.link()
    assert len(world.watch(2 * TIMEOUT_MS)) == 1


def test_an_older_word_of_a_leader_ends_no_promise() -> None:
    """T25.4 in which the voter voted for it"""
    world = VotesWorld(3)
    epoch, leader = vote_of(world.tube(2))
    assert (epoch, leader) == (1, world.id(0)), "node 2 knows it, and has not voted for it"
    world.tube(2).epoch = 3  # another node has named it leader under the third epoch
    world.send(0, 2, told_vote(world, 2, 1))  # sent before that
    assert vote_of(world.tube(2)) == (3, world.id(0))
    assert asked(world, 1, 2, 5, is_survey=True) == PROMISED


def test_a_leader_with_an_old_disk_binds_nobody() -> None:
    """T25.4 It ends when that node neither leads nor asks for votes, and sends a vote: for
    itself
    """
    world = VotesWorld(3)
    tube = world.tube(2)
    tube.epoch = 3  # another node has named node 0 leader under the third epoch
    assert asked(world, 1, 2, 5, is_survey=True) == PROMISED
    world.cut(0, 2)
    world.link(0, 2)  # it tells node 0 of that epoch, which does not lead under it
    assert vote_of(tube) == vote_of(world.tube(0)) == (3, world.id(0))
    assert asked(world, 1, 2, 5, is_survey=True) == YES


def test_those_that_leave_are_candidates_last() -> None:
    """T27.1 One that leaves, or could deliver no task (T20.1), waits for all others."""
    world = VotesWorld(3)
    world.isolate(2)
    world.put(0, b"answered by nodes 0 and 1")
    world.pass_ms(500)
    assert world.answered(0) == world.tube(0).seq
    for i in (0, 1):
        world.restart(i)
        set_leaving(world.node(i).core, True)
    world.link()
    (home,) = world.watch(4 * TIMEOUT_MS)
    assert len(world.picture(home)) == 1
    assert home == 2, "those that leave have given it away"


def test_a_leader_that_leaves_waits_for_longer() -> None:
    """T27.6 the former leader for T/2, for T if it leaves."""
    world = VotesWorld(3)
    world.pass_ms(TIMEOUT_MS)
    for is_leaving, wait_ms in ((False, TIMEOUT_MS // 2), (True, TIMEOUT_MS)):
        set_leaving(world.node(0).core, is_leaving)
        assert not world.move(0, 1)
        world.step_until(lambda: not world.tube(0).is_won)
        assert world.seat(0).wait_ms == world.now_ms + wait_ms
        set_leaving(world.node(0).core, False)
        world.pass_ms(2 * TIMEOUT_MS)
        assert not world.move(1, 0)
        world.pass_ms(2 * TIMEOUT_MS)
        assert world.runs_at() == [0]


def test_a_node_whose_disk_is_unknown_is_not_named() -> None:
    """T28.8 Each named node is linked, uses the list, and has sent the id of its disk (T28.5)."""
    world = VotesWorld(4, off=3)
    other_cluster(world, 1)
    world.link()
    world.isolate(1)
    world.isolate(2)
    world.pass_ms(2 * TIMEOUT_MS)
    with pytest.raises(TubeError) as e:
        force(world, 0, [0, 3])
    assert text_of(e.value).startswith(b"node %s cannot vote" % world.id(3))
    force(world, 0, [0])
    assert right_at(world, 0) == (FORCE_GAP + 2, True)


def test_a_forced_list_repeats_no_epoch() -> None:
    """T28.8 Epochs under it begin above all epochs of the lists before"""
    world = lab_of(3)
    world.isolate(2)
    world.restart(0)
    world.link(0, 1)
    (home,) = world.watch(4 * TIMEOUT_MS)
    world.put(home, b"of the second epoch")
    world.pass_ms(500)
    epoch = world.tube(home).epoch
    world.isolate(0)
    world.isolate(1)
    world.pass_ms(2 * TIMEOUT_MS)
    force(world, 2, [2])
    forget(world, 2, 0, 1)
    (home,) = world.watch(4 * TIMEOUT_MS)
    assert home == 2
    assert world.tube(2).epoch > epoch + (1 << FORCE_ELECTIONS)
    world.put(2, b"after FORCE")
    world.pass_ms(500)
    world.restart(2)  # it forgets that it forgot
    world.link()
    (home,) = world.watch(6 * TIMEOUT_MS)
    bodies = [[body for _, _, body, *_ in world.picture(i).values()] for i in range(3)]
    assert bodies == [[b"body", b"after FORCE"]] * 3


def right_at(world: VotesWorld, i: int) -> tuple[int, bool]:
    """The right of node i, and whether its votes count."""
    return int(world.t(i).voter_state.right), world.may_vouch(i)


def lists_apart() -> VotesWorld:
    """Node 2 has the right of the fourth list; node 3, cut off, knows the third one only."""
    world = VotesWorld(4, off=3)
    world.restart(2)
    world.pass_ms(2 * TIMEOUT_MS)
    change(world, 0, 2, is_added=False)
    world.pass_ms(2 * TIMEOUT_MS)
    assert world.said(0) == b""
    world.isolate(3)
    for i in (0, 1):
        world.link(i, 2)
    world.pass_ms(4 * TIMEOUT_MS)
    assert right_at(world, 2) == (4, True)
    assert [names(world, i) for i in (2, 3)] == [[0, 1, 2], [0, 1]]
    return world


def test_a_new_disk_has_no_right_of_the_one_before() -> None:
    """T28.5 A right is that of one disk."""
    world = lists_apart()
    world.end(2)
    world.disk(2).lose()
    world.begin(2)
    world.link(2, 3)
    assert names(world, 2) == [0, 1], "it learns the older list first"
    world.link(2, 0)
    world.link(2, 1)
    assert names(world, 2) == [0, 1, 2]
    assert right_at(world, 2) == (0, False)
    assert world.warnings(2) == [], "it had none before others told of the disk epoch, either"
    world.pass_ms(8 * TIMEOUT_MS)
    assert right_at(world, 2) == (6, True), "one of its own"


def test_one_that_finds_no_majority_of_rights_asks_nobody() -> None:
    """T27.2 It surveys all voters when a majority may vote, by their pulses."""
    world = VotesWorld(3)
    world.lose_journal(0)
    world.lose_journal(1)
    world.pass_ms(4 * TIMEOUT_MS)
    world.forget_heard()
    world.pass_ms(4 * TIMEOUT_MS)
    assert not any(isinstance(m, TubeVote) for _, _, m in world.heard())
    assert world.runs_at() == []


def test_one_that_gets_a_majority_of_rights_asks_at_once() -> None:
    """T27.2 when a majority may vote, by their pulses"""
    world = VotesWorld(3)
    world.isolate(0)
    right, world.t(1).voter_state.right = world.t(1).voter_state.right, 0
    world.pass_ms(4 * TIMEOUT_MS)
    world.t(1).voter_state.right = right
    world.forget_heard()
    world.pass_ms(TIMEOUT_MS // 4)
    assert any(isinstance(m, TubeVote) for a, _, m in world.heard() if a == 2)
    assert world.runs_at() in ([1], [2])


def test_one_that_lost_votes_for_the_winner_of_its_epoch() -> None:
    """T24.1 its last vote, or the leader that it knows if that one has no lower epoch"""
    world = VotesWorld(3)
    seat = seat_of(world.tube(1))
    for other in (0, 2):
        world.hold(1, other)
    seat.voted_epoch, seat.voted_node, seat.asked_epoch = 2, world.id(1), 2
    assert not world.move(0, 2)
    world.settle()
    for other in (0, 2):
        world.release(1, other)
    world.settle()
    assert vote_of(world.tube(1)) == vote_of(world.tube(2)) == (2, world.id(2))
    world.forget_heard()
    world.isolate(0)
    world.pass_ms(4 * TIMEOUT_MS)
    assert world.runs_at() == [2], "its vote counts for the leader"
    assert not any(isinstance(m, TubeVote) for _, _, m in world.heard())


def test_one_that_gets_a_vote_and_does_not_lead_answers() -> None:
    """T24.2 If a node gets a vote but neither leads nor asks, it answers with its own."""
    world = VotesWorld(3)
    assert not world.move(0, 1)
    world.settle()
    tube = world.tube(0)
    for sender, answers in ((2, [(2, world.id(1))]), (1, [])):
        world.forget_heard()
        vote = word_of(tube, 1, world.id(0))
        world.send(sender, 0, TubeStands(False, [vote]))
        found = [m.stands for a, b, m in world.heard(TubeStands) if (a, b) == (0, sender)]
        assert [(at.epoch, at.node) for stands in found for at in stands] == answers
