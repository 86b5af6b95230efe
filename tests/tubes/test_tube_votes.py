"""Votes make leaders (SPEC T23 to T27)."""

from __future__ import annotations

from itertools import permutations

import pytest
from tubes_world import TIMEOUT_MS, VotesWorld, word_of

from tuque.core.dispatch.messages import on_message
from tuque.core.msgs.bus import (
    TubeCopy,
    TubeStands,
    TubeVote,
    TubeVoted,
)
from tuque.tubes.election.votes import send_due
from tuque.tubes.log.leader import copies_needed
from tuque.tubes.log.vote_state import vote_of
from tuque.tubes.model.errors import TubeError
from tuque.tubes.model.options import MAJORITY, NOT_SAID
from tuque.tubes.model.voter_state import (
    BETTER,
    OLD_EPOCH,
    PROMISED,
    YES,
)


def asked(
    world: VotesWorld, a: int, b: int, epoch: int, is_survey: bool = False, seq: int = -1
) -> int:
    """Node a asks node b for its vote; what that one answers. -1: nothing, as its disk is slow."""
    tube, voters = world.tube(a), world.t(a).voter_state.voters
    assert voters is not None
    at = world.vote_at(a, epoch)
    if seq >= 0:
        at.seq = seq
    m = TubeVote(int(voters.number), voters.origin, is_survey, [at])
    world.forget_heard()
    on_message(world.node(b).core, world.slot(b, a), m)
    world.settle()
    if (b, a) in world.held:
        world.release(b, a)
        world.hold(b, a)
    found = [m for x, y, m in world.heard() if (x, y) == (b, a) and isinstance(m, TubeVoted)]
    assert world.tube(a) is tube
    return found[0].tubes[0].answer if found else -1


def asked_now(world: VotesWorld, a: int, b: int, epoch: int, is_survey: bool = False) -> int:
    """The same of the core of node b alone; nothing runs."""
    voters = world.t(a).voter_state.voters
    assert voters is not None
    n, slot = world.node(b).core, world.slot(b, a)
    on_message(
        n, slot, TubeVote(voters.number, voters.origin, is_survey, [world.vote_at(a, epoch)])
    )
    send_due(n, world.t(b))
    found = [m for m in n.peers[slot].outbox if isinstance(m, TubeVoted)]
    return int(found[-1].tubes[0].answer)


def lose_leader(world: VotesWorld) -> None:
    """Node 0 is cut off, and promises to it end in 100 ms; the others do not hear each other."""
    world.beat()
    world.isolate(0)
    world.pass_ms(TIMEOUT_MS - 100)
    for a, b in permutations(world.numbers()[1:], 2):
        world.hold(a, b)


def test_a_node_that_does_not_know_the_messages() -> None:
    """T23.3 they are sent to such nodes only, and no solo list grows while a node does not know
    them"""
    world = VotesWorld(4, makes=False, off=3, old=3)
    world.pass_ms(3_000)
    assert not any(world.in_force(i) for i in range(4))
    world.lab.editor = None
    world.restart(3)
    world.rejoin(3)
    world.pass_ms(1_000)
    assert all(world.in_force(i) for i in range(4))


def test_with_two_that_may_vote_one_votes() -> None:
    """T28.9 When two nodes that could join (T28.4) have all of every tube, the list of three is the
    next one"""
    world = VotesWorld(3, makes=False, off=1)
    world.restart(1)
    world.rejoin(1)
    world.pass_ms(3_000)
    lists = [world.t(i).voter_state.voters for i in range(3)]
    assert [list(v.rights) for v in lists if v is not None] == [[world.id(0)]] * 3


def test_every_node_goes_by_the_list() -> None:
    """T23.4 Every node uses the list in force, with `tube-failover no` too"""
    world = VotesWorld(4, makes=False, off=3)
    world.pass_ms(2_000)
    assert all(world.in_force(i) for i in range(4))
    voters = world.t(3).voter_state.voters
    assert voters is not None and len(voters.rights) == 3
    assert world.t(3).voter_state.right == 0
    tube = world.make(3)
    assert tube.led_by_votes
    world.put(3)
    world.pass_ms(3 * TIMEOUT_MS)
    (home,) = world.runs_at()
    assert home != 3, "it does not vote"
    assert world.answered(home) == world.tube(home).seq
    for i in range(3):  # a restart with another setting changes nothing
        world.may_vote(i, False)
        world.restart(i)
        world.rejoin(i)
        world.pass_ms(2_000)
        assert world.in_force(i) and world.t(i).voter_state.right == (1 if i == 0 else 2)
    (home,) = world.watch(2 * TIMEOUT_MS)
    assert home != 3


def test_what_a_new_tube_is() -> None:
    """T23.5 Where a list is in force a new tube that is not temporary is led by votes, for good"""
    world = VotesWorld(5, makes=False, old=2)
    before = world.make(0, name=b"before")
    assert (before.led_by_votes, before.by_majority, before.sync) == (True, True, 1)
    world.lab.editor = None
    world.restart(2)
    world.rejoin(2)
    assert world.until(world.are_listed)
    found = {}
    for i, sync in enumerate([NOT_SAID, 1, 2, 3, 4, MAJORITY]):
        tube = world.make(1, name=b"t%d" % i, sync=sync)
        assert tube.led_by_votes
        found[i] = (tube.by_majority, int(copies_needed(world.nodes[1].core, world.t(1), tube)))
    assert found == {
        0: (True, 3), 1: (False, 1), 2: (False, 2), 3: (True, 3), 4: (True, 4), 5: (True, 3)
    }  # fmt: skip
    assert not world.make(1, name=b"passing", temporary=True).led_by_votes
    world.settle()
    for i in (0, 1):
        world.restart(i)
        world.rejoin(i)
    world.pass_ms(500)
    for i in range(5):
        by_vote = {name for name, tube in world.t(i).by_name.items() if tube.led_by_votes}
        assert by_vote == {b"before", *(b"t%d" % i for i in range(6))}
    assert {name for name, tube in world.t(0).by_name.items() if tube.by_majority} == {
        b"before", b"t0", b"t3", b"t4", b"t5",
    }  # fmt: skip


def test_without_a_list_such_a_tube_does_not_run() -> None:
    """T23.5 On a node that knows no list it does not run."""
    world = VotesWorld(4)
    for i in (2, 3):
        world.cut(0, i)
        world.cut(1, i)
    world.pass_ms(2 * TIMEOUT_MS)
    world.t(0).voter_state.voters = None
    world.pass_ms(2_000)
    assert world.t(0).lease_ms >= world.now_ms, "T19.3 alone would let it run"
    assert world.state_at(0) == "WAITING"


def test_a_node_that_lost_its_journal() -> None:
    """T28.5 A disk that is empty, old (T29.4) or was repaired (T29.6) gets a new id, and has no
    right.
    """
    world = VotesWorld(3)
    world.lose_journal(1)
    world.pass_ms(2 * TIMEOUT_MS)
    assert world.in_force(1) and world.t(1).voter_state.right == 0
    world.restart(0)
    assert world.watch(4 * TIMEOUT_MS) == []
    world.rejoin(0)
    (home,) = world.watch(2 * TIMEOUT_MS)
    assert home in (0, 2)


def test_other_tubes_are_led_as_before() -> None:
    """T23.5 for others T17 to T22 hold alone."""
    world = VotesWorld(4)
    world.make(0, name=b"passing", temporary=True)
    world.pass_ms(1_000)
    world.restart(0)
    world.pass_ms(3 * TIMEOUT_MS)
    assert len(world.runs_at()) == 1
    assert world.runs_at(b"passing") == []
    world.force(1, b"passing")
    assert world.said(1) == b""


def test_a_lost_leader_is_replaced() -> None:
    """T27.1 A voter with a complete replica is a candidate when the node for which it votes is
    silent for T, or stepped down.
    """
    world = VotesWorld(3)
    for i in range(5):
        world.put(0, b"body %d" % i)
    world.pass_ms(1_000)
    assert world.answered(0) == world.tube(0).seq
    picture = world.picture(1)
    world.restart(0)
    (home,) = world.watch(2 * TIMEOUT_MS)
    assert home in (1, 2)
    assert world.tube(home).epoch == 2
    assert {k: v[0] for k, v in world.picture(home).items()} == {
        k: v[0] for k, v in picture.items()
    }
    assert world.put(home).number == 1_000_005  # T27.3
    world.pass_ms(500)
    assert world.answered(home) == world.tube(home).seq
    world.rejoin(0)
    assert world.watch(2 * TIMEOUT_MS) == [home]
    assert world.picture(0) == world.picture(home)


def test_a_leader_that_was_cut_off_stops_first() -> None:
    """T25.2 A leader of a tube led by votes is RUNNING only while a majority of the voters,
    itself counted, votes for this node under its epoch and has echoed a pulse
    """
    world = VotesWorld(3)
    world.beat()
    for i in (1, 2):
        world.hold(0, i)
        world.hold(i, 0)
    world.pass_ms(TIMEOUT_MS - TIMEOUT_MS // 8 - 1_000)
    assert world.runs_at() == [0]
    world.put(0)
    world.pass_ms(1_250)
    with pytest.raises(TubeError):
        world.put(0)
    assert world.runs_at() == []
    (home,) = world.watch(2 * TIMEOUT_MS)
    world.release_all()
    assert world.watch(2 * TIMEOUT_MS) == [home] != [0]


def test_a_promise_keeps_a_voter() -> None:
    """T25.3 for its T, by its own clock, it votes for nobody else about the tubes for which it
    votes for that node.
    """
    world = VotesWorld(3)
    assert asked(world, 1, 2, 5, is_survey=True) == PROMISED
    lose_leader(world)
    assert asked(world, 1, 2, 5) == PROMISED
    world.jump_ms(200)
    assert asked(world, 1, 2, 5) == YES
    assert vote_of(world.tube(2)) == (5, world.id(1))


def test_a_leader_that_gave_up_is_not_waited_for() -> None:
    """T25.4 The promise does not hold against that node itself. It ends when that node
    neither leads nor asks for votes, and sends a vote: for itself
    """
    world = VotesWorld(3)
    assert asked(world, 0, 2, 2) == YES  # the leader itself
    world = VotesWorld(3)
    assert not world.move(0, 1)
    world.settle()
    assert world.tube(1).epoch == 2


def test_a_leader_that_voted_for_another_one_is_not_waited_for() -> None:
    """T25.4 for another node: all lower epochs end"""
    world = VotesWorld(3)
    tube = world.tube(0)
    at = word_of(tube, 2, world.id(2))
    assert asked(world, 2, 1, 5, is_survey=True) == PROMISED
    world.send(0, 1, TubeStands(False, [at]))
    assert asked(world, 2, 1, 5, is_survey=True) == YES


def test_a_lost_candidate_does_not_take_back_what_the_leader_gave_up() -> None:
    """T25.4 Whatever a candidate that lost sends, this holds until the voter votes for another
    node.
    """
    world = VotesWorld(3)
    tube = world.tube(0)
    epoch, leader = vote_of(world.tube(2))
    assert leader == world.id(0)
    gave_up = word_of(tube, epoch, leader)
    world.send(0, 2, TubeStands(False, [gave_up]))
    assert asked(world, 1, 2, epoch + 2, is_survey=True) == YES
    lost = word_of(tube, epoch + 1, world.id(1))
    world.send(1, 2, TubeStands(False, [lost]))
    assert asked(world, 1, 2, epoch + 2, is_survey=True) == YES


def test_a_node_that_starts_waits() -> None:
    """T25.5 After a start a node votes for nobody else than before"""
    world = VotesWorld(3)
    world.isolate(0)
    world.restart(2)
    world.link(1, 2)
    world.pass_ms(TIMEOUT_MS - 100)
    assert asked(world, 1, 2, 5, is_survey=True) == PROMISED
    world.jump_ms(200)
    assert asked(world, 1, 2, 5, is_survey=True) == YES


def test_one_vote_in_an_epoch() -> None:
    """T26.2 The vote is on its disk, under `everysec` too, before TUBE-VOTED is sent: no node
    votes twice in one epoch.
    """
    world = VotesWorld(4)
    lose_leader(world)
    world.jump_ms(200)
    world.stick(3)
    assert asked(world, 1, 3, 5) == -1
    world.stick()
    world.settle()
    assert asked(world, 1, 3, 5) == YES  # the same vote again
    assert asked(world, 2, 3, 5) == OLD_EPOCH
    world.restart(3)
    for i in (1, 2):
        world.link(i, 3)
    world.beat()  # it hears that its disk is no old one (T29.3)
    world.node(3).core.now_ms += 2 * TIMEOUT_MS
    assert asked_now(world, 2, 3, 5) == OLD_EPOCH
    assert asked_now(world, 2, 3, 6, is_survey=True) == YES


def test_a_stale_copy_gets_no_vote() -> None:
    """T26.3 The copy of the sender must be as new as its own, or newer"""
    world = VotesWorld(3)
    world.put(0)
    world.pass_ms(500)
    lose_leader(world)
    world.jump_ms(200)
    seq = int(world.tube(1).seq)
    assert asked(world, 1, 2, 5, seq=seq - 1) == BETTER
    tube = world.tube(2)
    tube.whole_epoch, tube.whole_seq, tube.is_complete = 1, seq, False  # a scan has begun
    tube.copy_epoch = 9
    assert asked(world, 1, 2, 5, seq=seq - 1) == BETTER
    assert asked(world, 1, 2, 5) == YES


def test_a_node_that_voted_confirms_no_older_change() -> None:
    """T26.2 From then on it applies no TUBE-COPY of a lower epoch."""
    world = VotesWorld(3)
    world.hold(0, 2)
    world.put(0)
    world.settle()
    tube, (epoch, leader) = world.tube(0), vote_of(world.tube(2))
    gave_up = word_of(tube, epoch, leader)
    on_message(world.node(2).core, world.slot(2, 0), TubeStands(False, [gave_up]))
    assert asked(world, 1, 2, 5, is_survey=True) == YES
    assert asked(world, 1, 2, 5) in (BETTER, YES)
    seq = int(world.tube(2).seq)
    world.forget_heard()
    world.dial(0, 2)

    def late() -> list[TubeCopy]:
        heard = [m for a, b, m in world.heard() if (a, b) == (0, 2)]
        return [m for m in heard if isinstance(m, TubeCopy)]

    world.step_until(late)
    assert late()[0].epoch == epoch and late()[0].to_seq > seq
    assert world.tube(2).seq == seq


def test_a_survey_changes_nothing() -> None:
    """T26.4 A TUBE-VOTE that only asks (a survey) is answered so too, and changes nothing."""
    world = VotesWorld(3)
    lose_leader(world)
    world.jump_ms(200)
    assert asked(world, 1, 2, 5, is_survey=True) == YES
    assert vote_of(world.tube(2)) == (1, world.id(0))


def test_a_node_that_was_cut_off_disturbs_nobody() -> None:
    """T27.2 Without a majority it goes no further: a node that was cut off disturbs nobody."""
    world = VotesWorld(3)
    world.isolate(2)
    world.pass_ms(6 * TIMEOUT_MS)
    assert vote_of(world.tube(2)) == (1, world.id(0))
    world.link()
    for _ in range(40):
        world.pass_ms(250)
        assert world.runs_at() == [0]
    assert world.tube(0).epoch == 1


def test_a_candidate_without_a_majority_gives_up() -> None:
    """T27.4 Without a majority within T/4 it steps down, sends that, and surveys again."""
    world = VotesWorld(3)
    world.restart(0)
    for i in (1, 2):
        world.disk(i).slow(TIMEOUT_MS // 2)  # no vote is on a disk in time
    world.pass_ms(3 * TIMEOUT_MS)
    assert world.runs_at() == []
    assert sum(world.t(i).voter_state.elections_lost for i in (1, 2)) > 1
    for i in (1, 2):
        world.disk(i).well()
    assert len(world.watch(2 * TIMEOUT_MS)) == 1


def test_no_leader_goes_on_after_a_start() -> None:
    """T27.5 After a start no leader continues under its epoch: it is a candidate"""
    world = VotesWorld(3)
    world.put(0)
    world.pass_ms(500)
    world.restart(0)
    world.rejoin(0)
    (home,) = world.watch(2_000)
    assert world.tube(home).epoch == 2
    assert 0 in world.picture(1)


def test_a_cluster_that_starts_as_a_whole() -> None:
    """T25.5 After a start a node votes for nobody else than before"""
    world = VotesWorld(3)
    world.put(0)
    world.pass_ms(500)
    for i in range(3):
        world.restart(i)
    world.link()
    assert world.watch(2_000) == [0]
    assert list(world.picture(0)) == [0]


def test_who_counts_for_sync() -> None:
    """T27.7 SYNC of such a tube counts only voters that may vote, and what they confirmed under
    this epoch"""
    world = VotesWorld(3)
    world.put(0)
    world.settle()
    assert world.answered(0) == 1
    voters = world.t(0).voter_state.voters
    assert voters is not None
    for i in (1, 2):  # as if these two were no voters
        voters.rights[world.id(i)[::-1]] = voters.rights.pop(world.id(i))
    assert world.answered(0) == 0


def test_a_voter_without_its_right_confirms_nothing() -> None:
    """T27.7 SYNC of such a tube counts only voters that may vote"""
    world = VotesWorld(3)
    world.isolate(2)
    world.put(0)
    world.settle()
    assert world.answered(0) == 1
    world.t(1).voter_state.right = 0  # as with a new disk
    world.pass_ms(TIMEOUT_MS // 4)  # it says so
    assert world.answered(0) == 0


def test_after_a_link_a_voter_must_say_that_it_may_vote() -> None:
    """T27.7 SYNC of such a tube counts only voters that may vote"""
    world = VotesWorld(3)
    world.isolate(2)
    assert world.t(0).voter_state.vouching.keys() == {1}
    world.isolate(1)
    assert not world.t(0).voter_state.vouching


def test_votes_without_a_right_keep_no_leader() -> None:
    """T25.6 when too few voters with a right vote for it for T"""
    world = VotesWorld(3)
    world.isolate(2)
    world.t(1).voter_state.right = 0
    assert world.tube(0).is_won
    for _ in range(3 * 8):
        world.pass_ms(TIMEOUT_MS // 8)
    assert not world.tube(0).is_won


def test_create_waits_for_a_majority() -> None:
    """T27.8 CREATE is answered when a majority has all of the tube"""
    world = VotesWorld(3)
    world.make(1, name=b"new", sync=2)  # it asserts the answer
    world.put(1, name=b"new")
    for i in (0, 2):
        world.hold(1, i)
    world.claim(1, name=b"alone", sync=2)
    world.pass_ms(500)
    assert world.answers(1) == []
    world.release_all()
    world.pass_ms(500)
    assert world.said(1) == b""


def test_half_of_the_voters_is_not_enough() -> None:
    """T25.2 A leader of a tube led by votes is RUNNING only while a majority of the voters,
    itself counted, votes for this node under its epoch
    """
    world = VotesWorld(4)
    for i in (2, 3):
        world.cut(0, i)
        world.cut(1, i)
    for _ in range(2 * TIMEOUT_MS // 250):
        world.pass_ms(250)
    assert world.runs_at() == []
    assert world.t(0).lease_ms >= world.now_ms, "T19.3 alone would let it run"
    world.link()
    assert len(world.watch(2 * TIMEOUT_MS)) == 1


def reasons(world: VotesWorld, i: int) -> list[int]:
    """The elections won at node i: silent, gave up, given, again."""
    return [int(count) for count in world.t(i).voter_state.won_by[1:5]]


def test_why_a_node_leads() -> None:
    """T11.5 Those won by what was before: `tubes_elections_silent` (the leader was silent),
    `_gave_up` (it stepped down), `_given` (it gave the tube to this node), `_again` (this node
    led it) and `_forced` (T27.12).
    """
    world = VotesWorld(3)
    world.restart(0)
    (home,) = world.watch(2 * TIMEOUT_MS)
    assert reasons(world, home) == [1, 0, 0, 0]
    world.rejoin(0)
    world.pass_ms(TIMEOUT_MS)
    assert not world.move(home, 0)
    world.settle()
    assert world.said(home) == b""
    world.pass_ms(500)
    assert reasons(world, 0) == [0, 0, 1, 0]
    before = sum(reasons(world, 1)) + sum(reasons(world, 2))
    world.restart(0)
    world.link()
    world.pass_ms(2_000)
    (home,) = world.watch(TIMEOUT_MS)
    assert sum(reasons(world, 1)) + sum(reasons(world, 2)) == before + (home != 0)
    assert reasons(world, home)[3 if home == 0 else 1] == 1
