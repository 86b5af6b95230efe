"""Votes make leaders (SPEC T23 to T27)."""

from __future__ import annotations

import pytest
from votes_lab import TIMEOUT_MS, VotesLab

from refusals import said
from tuque.core.msgs import (
    StandAt,
    TubeStands,
    TubeVote,
    TubeVoted,
)
from tuque.tubes.log.leader import copies_needed
from tuque.tubes.log.vote_state import record_voters, stand_of
from tuque.tubes.model.errors import TubeError
from tuque.tubes.model.options import MAJORITY, NO
from tuque.tubes.model.options import YES as YES_WORD
from tuque.tubes.model.voter_state import (
    BETTER,
    OLD_EPOCH,
    PROMISED,
    PROPOSED,
    YES,
    Voters,
)


def asked(lab: VotesLab, a: int, b: int, epoch: int, is_survey: bool = False, seq: int = -1) -> int:
    """Node a asks node b for its vote; what that one answers. -1: nothing, as its disk is slow."""
    tube, voters = lab.tube(a), lab.t(a).ballots.voters
    assert voters is not None
    at = lab.vote_at(a, epoch)
    if seq >= 0:
        at.seq = seq
    m = TubeVote(int(voters.number), voters.origin, is_survey, [at])
    lab.log.clear()
    lab.send(a, b, m)
    found = [m for x, y, m in lab.log if (x, y) == (b, a) and isinstance(m, TubeVoted)]
    assert lab.tube(a) is tube
    return found[0].tubes[0].answer if found else -1


def lose_leader(lab: VotesLab) -> None:
    """Node 0 is cut off, and no promise to it is left."""
    lab.isolate(0)
    lab.pass_ms(TIMEOUT_MS - 100)


def test_the_first_list() -> None:
    """T23.2 When all have confirmed it, the list is in force."""
    lab = VotesLab(3, makes=False, slow=2)
    lab.live(1_000)
    assert not any(lab.in_force(i) for i in range(3))
    lab.slow = set()
    lab.live(1_000)
    assert all(lab.in_force(i) for i in range(3))
    lists = [lab.t(i).ballots.voters for i in range(3)]
    assert len({(v.number, v.origin, tuple(sorted(v.rights))) for v in lists if v}) == 1


@pytest.mark.parametrize("is_gone", [False, True])
def test_a_proposal_whose_maker_goes_by_another_one(is_gone: bool) -> None:
    """T23.2 The maker replies if it has withdrawn that proposal; the node then takes the new one
    when it is sent again."""
    lab = VotesLab(4, makes=False, slow=2)
    lab.live(1_000)
    b = lab.t(2).ballots
    maker = lab.t(1).ballots.voters
    assert maker is not None and maker.step == PROPOSED and len(maker.rights) == 4
    rights = {lab.nodes[i].node_id: 1 for i in (1, 2, 3)}  # node 1 made it, when it knew three
    b.voters, b.due = Voters(1, bytes(16), rights, PROPOSED), []
    records = lab.nodes[2].records
    assert records is not None
    record_voters(records, b, b.voters)
    if not is_gone:  # it may put it in force yet
        lab.t(1).ballots.voters = Voters(1, bytes(16), dict(rights), PROPOSED)
        lab.t(0).ballots.confirmed = 0
    lab.slow = set()
    lab.live(500)
    assert not any(lab.in_force(i) for i in range(4))
    lab.live(3 * TIMEOUT_MS)
    lists = [lab.t(i).ballots.in_force() for i in range(4)]
    assert len({(v.number, v.origin) for v in lists if v}) == 1 and None not in lists
    assert all(len(v.rights) == 4 for v in lists if v)


def test_a_node_that_does_not_know_the_messages() -> None:
    """T23.3 they are sent to such nodes only, and no list is made while a node does not know
    them"""
    lab = VotesLab(4, makes=False, off=3, old=3)
    lab.live(3_000)
    assert not any(lab.in_force(i) for i in range(4))
    lab.old = -1
    lab.die(3)
    lab.revive(3)
    lab.live(1_000)
    assert all(lab.in_force(i) for i in range(4))


def test_two_that_may_vote_make_no_list() -> None:
    """T23.2 when they are 3 or more, and it is linked to all nodes that it knows."""
    lab = VotesLab(3, makes=False, off=1)
    lab.live(3_000)
    assert not any(lab.in_force(i) for i in range(3))
    names = {type(m).__name__ for _, b, m in lab.log if b == 1}
    assert "TubesTold" in names
    assert not names & {"VotersTold", "TubePulse", "TubeStands", "TubeVote", "TubeVoted"}


def test_every_node_goes_by_the_list() -> None:
    """T23.4 Every node goes by the list that is in force, with `tube-failover no` too"""
    lab = VotesLab(4, makes=False, off=3)
    lab.live(2_000)
    assert all(lab.in_force(i) for i in range(4))
    voters = lab.t(3).ballots.voters
    assert voters is not None and len(voters.rights) == 3
    assert lab.t(3).ballots.right == 0
    tube = lab.make(3)  # it leads, and does not vote
    assert tube.fails_over
    lab.put(3)
    lab.live(3 * TIMEOUT_MS)
    assert lab.runs_at() == [3]
    assert lab.answered(3) == tube.seq
    lab.off = -1
    for i in range(3):  # a restart with another setting changes nothing
        lab.off = i
        lab.die(i)
        lab.revive(i)
        lab.live(2_000)
        assert lab.in_force(i) and lab.t(i).ballots.right == 1
    lab.die(3)
    (home,) = lab.watch(2 * TIMEOUT_MS)
    assert home != 3


def test_what_a_new_tube_is() -> None:
    """T23.5 Without the word it is `yes` where that holds and SYNC (T18.5) is a majority or
    more."""
    lab = VotesLab(5, makes=False, slow=2)
    before = lab.make(0, name=b"before")
    assert (before.fails_over, before.by_majority, before.sync) == (False, False, 1)
    with pytest.raises(TubeError):
        lab.make(0, name=b"no list", failover=YES_WORD)
    lab.slow = set()
    lab.live(2_000)
    found = {}
    for i, (sync, failover) in enumerate(
        [(-9, -9), (2, -9), (3, -9), (4, -9), (MAJORITY, NO), (-9, NO), (2, YES_WORD)]
    ):
        o = {"sync": sync, "failover": failover}
        tube = lab.make(1, name=b"t%d" % i, **{k: v for k, v in o.items() if v != -9})
        found[i] = (tube.fails_over, int(copies_needed(lab.nodes[1], lab.t(1), tube)))
    assert found == {
        0: (True, 3), 1: (False, 2), 2: (True, 3), 3: (True, 4), 4: (False, 3), 5: (False, 1),
        6: (True, 2),
    }  # fmt: skip
    assert not lab.make(1, name=b"passing", temporary=True).fails_over
    lab.run()
    for i in (0, 1):
        lab.die(i)
        lab.revive(i)
    lab.live(500)
    for i in range(5):
        by_vote = {name for name, tube in lab.t(i).by_name.items() if tube.fails_over}
        assert by_vote == {b"t0", b"t2", b"t3", b"t6"}
    assert not lab.tube(0, b"before").fails_over
    assert {name for name, tube in lab.t(0).by_name.items() if tube.by_majority} == {
        b"t0", b"t2", b"t3", b"t4",
    }  # fmt: skip


def test_without_a_list_such_a_tube_does_not_run() -> None:
    """T23.5 On a node that knows no list such a tube does not run."""
    lab = VotesLab(4)
    for i in (2, 3):
        lab.cut(0, i)
        lab.cut(1, i)
    lab.live(2 * TIMEOUT_MS)
    lab.t(0).ballots.voters = None
    lab.live(2_000)
    assert lab.t(0).lease_ms >= lab.now_ms, "T19.3 alone would let it run"
    assert lab.state(0) == "WAITING"


def test_two_nodes_do_as_before() -> None:
    """T23.1 Without a list in force T17 to T22 hold alone, so also with two nodes."""
    lab = VotesLab(2, makes=False)
    lab.make(0, sync=2)
    lab.live(3_000)
    assert not any(lab.in_force(i) for i in range(2))
    lab.die(0)
    lab.live(4 * TIMEOUT_MS)
    assert lab.states() == ["INIT", "INIT"]
    lab.force(1)
    assert said(lab.done(1)) == b""


def test_a_node_that_lost_its_journal() -> None:
    """T23.4 A node that finds itself in the list of others, and has none on its own disk, has lost
    its journal: it takes the list, has no right, and never votes."""
    lab = VotesLab(3)
    lab.lose_journal(1)
    lab.live(2 * TIMEOUT_MS)
    assert lab.in_force(1) and lab.t(1).ballots.right == 0
    lab.die(0)
    assert lab.watch(4 * TIMEOUT_MS) == []
    lab.revive(0)
    (home,) = lab.watch(2 * TIMEOUT_MS)
    assert home in (0, 2)


def test_other_tubes_are_led_as_before() -> None:
    """T23.5 For all other tubes, and those made before, T17 to T22 hold alone."""
    lab = VotesLab(3)
    lab.make(0, name=b"one", sync=1)
    lab.make(0, name=b"passing", temporary=True)
    lab.live(1_000)
    lab.die(0)
    lab.live(3 * TIMEOUT_MS)
    assert len(lab.runs_at()) == 1
    assert lab.runs_at(b"one") == lab.runs_at(b"passing") == []
    lab.force(1, b"one")
    assert said(lab.done(1)) == b""


def test_a_lost_leader_is_replaced() -> None:
    """T27.1 A voter with a complete replica stands up for a tube led by votes when the node with
    which it stands is silent for the timeout, or gave up."""
    lab = VotesLab(3)
    for i in range(5):
        lab.put(0, b"body %d" % i)
    lab.live(1_000)
    assert lab.answered(0) == lab.tube(0).seq
    picture = lab.picture(1)
    lab.die(0)
    (home,) = lab.watch(2 * TIMEOUT_MS)
    assert home in (1, 2)
    assert lab.tube(home).epoch == 2
    assert {k: v[0] for k, v in lab.picture(home).items()} == {k: v[0] for k, v in picture.items()}
    assert lab.put(home).number == 1_000_005  # T27.3
    lab.live(500)
    assert lab.answered(home) == lab.tube(home).seq
    lab.revive(0)
    assert lab.watch(2 * TIMEOUT_MS) == [home]
    assert lab.picture(0) == lab.picture(home)


def test_a_leader_that_was_cut_off_stops_first() -> None:
    """T25.2 A leader of a tube led by votes is RUNNING only while a majority of the voters, itself
    counted, stands with it under its epoch and has echoed a pulse"""
    lab = VotesLab(3)
    for i in (1, 2):
        lab.hold(0, i)
        lab.hold(i, 0)
    lab.live(TIMEOUT_MS - TIMEOUT_MS // 8 - 1_000)
    assert lab.runs_at() == [0]
    lab.put(0)
    lab.live(1_250)
    with pytest.raises(TubeError):
        lab.put(0)
    assert lab.runs_at() == []
    (home,) = lab.watch(2 * TIMEOUT_MS)
    lab.held = set()
    assert lab.watch(2 * TIMEOUT_MS) == [home] != [0]


def test_a_promise_keeps_a_voter() -> None:
    """T25.3 for its own timeout, by its own clock, it votes for nobody else about the tubes for
    which it stands with that node."""
    lab = VotesLab(3)
    assert asked(lab, 1, 2, 5, is_survey=True) == PROMISED
    lose_leader(lab)
    assert asked(lab, 1, 2, 5) == PROMISED
    lab.now_ms += 200
    assert asked(lab, 1, 2, 5) == YES
    assert stand_of(lab.tube(2)) == (5, lab.nodes[1].node_id)


def test_a_leader_that_gave_up_is_not_waited_for() -> None:
    """T25.4 The promise does not hold against that node itself, nor after that node has said that
    it gave up"""
    lab = VotesLab(3)
    assert asked(lab, 0, 2, 2) == YES  # the leader itself
    lab = VotesLab(3)
    assert not lab.move(0, 1)
    lab.run()
    assert lab.tube(1).epoch == 2


def test_a_leader_that_voted_for_another_one_is_not_waited_for() -> None:
    """T25.4 A node that stands with another node gives up all lower epochs."""
    lab = VotesLab(3)
    tube = lab.tube(0)
    at = StandAt(tube.name, tube.maker, tube.made_ns, 2, lab.nodes[2].node_id, False, 0)
    assert asked(lab, 2, 1, 5, is_survey=True) == PROMISED
    lab.send(0, 1, TubeStands(False, [at]))
    assert asked(lab, 2, 1, 5, is_survey=True) == YES


def test_a_lost_candidate_does_not_take_back_what_the_leader_gave_up() -> None:
    """T25.4 This stays so until the voter votes for another node, whatever else a candidate that
    lost says of itself.
    """
    lab = VotesLab(3)
    tube = lab.tube(0)
    epoch, leader = stand_of(lab.tube(2))
    assert leader == lab.nodes[0].node_id
    gave_up = StandAt(tube.name, tube.maker, tube.made_ns, epoch, leader, False, 0)
    lab.send(0, 2, TubeStands(False, [gave_up]))
    assert asked(lab, 1, 2, epoch + 2, is_survey=True) == YES
    lost = StandAt(tube.name, tube.maker, tube.made_ns, epoch + 1, lab.nodes[1].node_id, False, 0)
    lab.send(1, 2, TubeStands(False, [lost]))
    assert asked(lab, 1, 2, epoch + 2, is_survey=True) == YES


def test_a_node_that_starts_waits() -> None:
    """T25.5 For its timeout after a start a node votes for nobody else than the node that it stands
    with, for it may have promised."""
    lab = VotesLab(3)
    lab.isolate(0)
    lab.die(2)
    lab.link(1, 2)
    lab.pass_ms(TIMEOUT_MS - 100)
    assert asked(lab, 1, 2, 5, is_survey=True) == PROMISED
    lab.now_ms += 200
    assert asked(lab, 1, 2, 5, is_survey=True) == YES


def test_one_vote_in_an_epoch() -> None:
    """T26.2 The vote is on its disk, under `everysec` too, before TUBE-VOTED is sent. So no node
    votes twice in one epoch."""
    lab = VotesLab(4)
    lose_leader(lab)
    lab.now_ms += 200
    lab.slow = {3}
    assert asked(lab, 1, 3, 5) == -1
    lab.slow = set()
    lab.run()
    assert asked(lab, 1, 3, 5) == YES  # the same vote again
    assert asked(lab, 2, 3, 5) == OLD_EPOCH
    lab.die(3)
    for i in (1, 2):
        lab.link(i, 3)
    lab.beat()  # it hears that its disk is no old one (T29.3)
    lab.now_ms += 2 * TIMEOUT_MS
    assert asked(lab, 2, 3, 5) == OLD_EPOCH
    assert asked(lab, 2, 3, 6, is_survey=True) == YES


def test_a_stale_copy_gets_no_vote() -> None:
    """T26.3 The copy of the sender must be as new as its own, or newer"""
    lab = VotesLab(3)
    lab.put(0)
    lab.live(500)
    lose_leader(lab)
    lab.now_ms += 200
    seq = int(lab.tube(1).seq)
    assert asked(lab, 1, 2, 5, seq=seq - 1) == BETTER
    tube = lab.tube(2)
    tube.whole_epoch, tube.whole_seq, tube.is_complete = 1, seq, False  # a scan has begun
    tube.copy_epoch = 9
    assert asked(lab, 1, 2, 5, seq=seq - 1) == BETTER
    assert asked(lab, 1, 2, 5) == YES


def test_a_node_that_voted_confirms_no_older_change() -> None:
    """T26.2 From then on it applies no TUBE-COPY of a lower epoch."""
    lab = VotesLab(3)
    lab.hold(0, 2)
    lab.put(0)
    lab.run()
    lab.pass_ms(TIMEOUT_MS + 100)
    assert asked(lab, 1, 2, 5, is_survey=True) == YES
    assert asked(lab, 1, 2, 5) == BETTER or asked(lab, 1, 2, 5) == YES
    seq = int(lab.tube(2).seq)
    lab.release(0, 2)
    lab.carry()
    assert lab.tube(2).seq == seq


def test_a_survey_changes_nothing() -> None:
    """T26.4 A TUBE-VOTE that only asks (a survey) is answered the same way, and changes nothing."""
    lab = VotesLab(3)
    lose_leader(lab)
    lab.now_ms += 200
    assert asked(lab, 1, 2, 5, is_survey=True) == YES
    assert stand_of(lab.tube(2)) == (1, lab.nodes[0].node_id)


def test_a_node_that_was_cut_off_disturbs_nobody() -> None:
    """T27.2 Without a majority it goes no further: a node that was cut off disturbs nobody."""
    lab = VotesLab(3)
    lab.isolate(2)
    lab.live(6 * TIMEOUT_MS)
    assert stand_of(lab.tube(2)) == (1, lab.nodes[0].node_id)
    lab.heal()
    for _ in range(40):
        lab.live(250)
        assert lab.runs_at() == [0]
    assert lab.tube(0).epoch == 1


def test_a_candidate_without_a_majority_gives_up() -> None:
    """T27.4 Without a majority within a quarter of the timeout it gives up, says so (T25.4), and
    surveys again."""
    lab = VotesLab(3)
    lab.die(0)
    lab.slow = {1, 2}  # no vote is ever on a disk
    lab.live(3 * TIMEOUT_MS)
    assert lab.runs_at() == []
    assert sum(lab.t(i).ballots.elections_lost for i in (1, 2)) > 1
    lab.slow = set()
    assert len(lab.watch(2 * TIMEOUT_MS)) == 1


def test_no_leader_goes_on_after_a_start() -> None:
    """T27.5 No leader goes on under its epoch after a start: it stands up like others."""
    lab = VotesLab(3)
    lab.put(0)
    lab.live(500)
    lab.die(0)
    lab.revive(0)
    (home,) = lab.watch(2_000)
    assert lab.tube(home).epoch == 2
    assert 0 in lab.picture(1)


def test_a_cluster_that_starts_as_a_whole() -> None:
    """T25.5 For its timeout after a start a node votes for nobody else than the node that it stands
    with"""
    lab = VotesLab(3)
    lab.put(0)
    lab.live(500)
    for i in range(3):
        lab.die(i)
    lab.heal()
    assert lab.watch(2_000) == [0]
    assert list(lab.picture(0)) == [0]


def test_a_switchover() -> None:
    """T27.6 when the new leader has everything on disk, the leader gives up and sends TUBE-YOURS;
    the new leader stands up at once."""
    lab = VotesLab(3)
    lab.put(0)
    lab.live(500)
    assert not lab.move(0, 1)
    lab.run()
    done = lab.done(0)
    assert said(done) == b""
    lab.live(500)
    assert lab.runs_at() == [1]
    assert lab.tube(1).epoch == 2
    assert lab.put(1).number == 1  # nothing was lost: no gap


def test_who_counts_for_sync() -> None:
    """T27.7 SYNC of such a tube counts voters only, and only what they confirmed under this
    epoch"""
    lab = VotesLab(3)
    lab.put(0)
    lab.run()
    assert lab.answered(0) == 1
    voters = lab.t(0).ballots.voters
    assert voters is not None
    for i in (1, 2):  # as if these two were no voters
        voters.rights[lab.nodes[i].node_id[::-1]] = voters.rights.pop(lab.nodes[i].node_id)
    assert lab.answered(0) == 0


def test_create_waits_for_a_majority() -> None:
    """T27.8 CREATE is answered when a majority stands with its maker"""
    lab = VotesLab(3)
    lab.make(1, name=b"new", sync=2)  # it asserts the answer
    lab.put(1, name=b"new")
    lab.isolate(1)
    lab.live(500)
    assert lab.create(1, b"alone", sync=2) is None
    assert lab.t(1).home_done == []
    lab.live(TIMEOUT_MS + 500)
    assert said(lab.done(1)) == b"done here, but not yet on 2 nodes: do not repeat it"


def test_half_of_the_voters_is_not_enough() -> None:
    """T25.2 A leader of a tube led by votes is RUNNING only while a majority of the voters, itself
    counted, stands with it under its epoch"""
    lab = VotesLab(4)
    for i in (2, 3):
        lab.cut(0, i)
        lab.cut(1, i)
    for _ in range(2 * TIMEOUT_MS // 250):
        lab.live(250)
    assert lab.runs_at() == []
    assert lab.t(0).lease_ms >= lab.now_ms, "T19.3 alone would let it run"
    lab.heal()
    assert len(lab.watch(2 * TIMEOUT_MS)) == 1


def reasons(lab: VotesLab, i: int) -> list[int]:
    """The elections won at node i: silent, gave up, given, again."""
    return [int(count) for count in lab.t(i).ballots.won_by[1:5]]


def test_why_a_node_leads() -> None:
    """T11.5 Those won by what was before: `tubes_elections_silent` (the leader was silent),
    `_gave_up` (it gave up), `_given` (it gave the tube to this node),
    `_again` (this node led it) and `_forced` (T27.12)."""
    lab = VotesLab(3)
    lab.die(0)
    (home,) = lab.watch(2 * TIMEOUT_MS)
    assert reasons(lab, home) == [1, 0, 0, 0]
    lab.revive(0)
    lab.live(TIMEOUT_MS)
    assert not lab.move(home, 0)
    lab.run()
    lab.done(home)
    lab.live(500)
    assert reasons(lab, 0) == [0, 0, 1, 0]
    before = sum(reasons(lab, 1)) + sum(reasons(lab, 2))
    lab.die(0)
    lab.heal()
    lab.live(2_000)
    (home,) = lab.watch(TIMEOUT_MS)
    assert sum(reasons(lab, 1)) + sum(reasons(lab, 2)) == before + (home != 0)
    assert reasons(lab, home)[3 if home == 0 else 1] == 1
