"""The list of voters changes: one more, one less, agreed on by a majority (SPEC T28)."""

from __future__ import annotations

import pytest
from test_tube_votes_random import Walk
from votes_lab import TIMEOUT_MS, VotesLab

from refusals import said
from tuque.core.dispatch.timers import tick
from tuque.server.replies.errors import text_of
from tuque.tubes.election.membership import change_voters, changes_tick, force_voters
from tuque.tubes.election.voters import FORCE_GAP, may_vouch, set_willing
from tuque.tubes.election.votes import send_due
from tuque.tubes.log.vote_state import record_voters, stand_of
from tuque.tubes.model.errors import TubeError
from tuque.tubes.model.voter_state import IN_FORCE, Voters


def voters_at(lab: VotesLab, i: int) -> Voters:
    """The list in force at node i."""
    voters = lab.t(i).ballots.in_force()
    assert voters is not None
    return voters


def names(lab: VotesLab, i: int) -> list[int]:
    """The voters as node i knows them."""
    rights = voters_at(lab, i).rights
    return [k for k, n in enumerate(lab.nodes) if n.node_id in rights]


def change(lab: VotesLab, i: int, k: int, is_added: bool) -> None:
    """CLUSTER VOTERS ADD or REMOVE of node k, at node i."""
    n = lab.nodes[i]
    n.now_ms = lab.now_ms
    change_voters(n, lab.t(i), lab.nodes[k].node_id, is_added, 5, 7)


def is_willing(lab: VotesLab, i: int, yes: bool) -> None:
    """`tube-failover` at node i is yes from now on, or no."""
    lab.off = -1 if yes else i
    set_willing(lab.t(i), yes)


def lab_of(count: int, off: int) -> VotesLab:
    """A lab with a tube, and one node that has no vote."""
    lab = VotesLab(count, makes=False, off=off)
    lab.live(1_000)
    lab.make(0)
    lab.put(0)
    lab.live(1_000)
    return lab


def test_a_node_joins_by_itself() -> None:
    """T28.4 A node with `tube-failover yes` that goes by the list, and has all of every such tube,
    is added by itself as long as there are fewer than 7 voters."""
    lab = lab_of(4, off=3)
    assert names(lab, 0) == [0, 1, 2]
    is_willing(lab, 3, True)
    lab.live(4_000)
    for i in range(4):
        assert (names(lab, i), voters_at(lab, i).number) == ([0, 1, 2, 3], 2)
        assert may_vouch(lab.nodes[i], lab.t(i))
    assert lab.t(3).ballots.right == 2
    lab.put(0)
    lab.live(500)
    lab.isolate(2)
    lab.die(0)
    assert lab.watch(3 * TIMEOUT_MS) == [], "two of four are no majority"
    lab.heal()
    (home,) = lab.watch(3 * TIMEOUT_MS)
    assert len(lab.picture(home)) == 2


def test_a_node_that_is_not_even_waits() -> None:
    """T28.4 and has all of every such tube"""
    lab = lab_of(4, off=3)
    lab.tube(3).is_complete = False
    lab.live(1_000)
    is_willing(lab, 3, True)
    lab.live(4_000)
    assert names(lab, 1) == [0, 1, 2]
    lab.isolate(3)
    lab.heal()
    lab.live(4_000)
    assert names(lab, 1) == [0, 1, 2, 3]


def test_a_voter_is_removed_and_added() -> None:
    """T28.1 CLUSTER VOTERS REMOVE node makes a list without it, CLUSTER VOTERS ADD node one with
    it."""
    lab = VotesLab(4)
    lab.off = 3
    is_willing(lab, 3, False)
    lab.live(1_000)
    change(lab, 1, 3, is_added=False)
    with pytest.raises(TubeError) as e:
        change(lab, 1, 2, is_added=False)
    assert text_of(e.value).startswith(b"the list of voters is changing already")
    lab.live(1_500)
    assert said(lab.done(1)) == b""
    assert [names(lab, i) for i in range(4)] == [[0, 1, 2]] * 4
    assert not may_vouch(lab.nodes[3], lab.t(3))
    lab.live(2 * TIMEOUT_MS)
    assert names(lab, 0) == [0, 1, 2]
    change(lab, 2, 3, is_added=True)
    lab.live(1_500)
    assert said(lab.done(2)) == b""
    assert [names(lab, i) for i in range(4)] == [[0, 1, 2, 3]] * 4
    assert (lab.t(3).ballots.right, voters_at(lab, 3).number) == (3, 3)
    lab.die(3)
    lab.revive(3)
    assert (lab.t(3).ballots.right, voters_at(lab, 3).number) == (3, 3)


def test_what_is_refused() -> None:
    """T28.1 It is refused"""
    lab = VotesLab(4, off=3)
    for i, k, is_added, why in (
        (3, 0, False, b"this node does not vote"),
        (0, 3, False, b"node %s is no voter" % lab.nodes[3].node_id),
    ):
        with pytest.raises(TubeError) as e:
            change(lab, i, k, is_added)
        assert text_of(e.value).startswith(why)
    lab.isolate(3)
    with pytest.raises(TubeError) as e:
        change(lab, 0, 3, is_added=True)
    assert text_of(e.value).startswith(b"node %s cannot vote" % lab.nodes[3].node_id)
    lab = VotesLab(3, makes=False, off=1)
    with pytest.raises(TubeError) as e:
        change(lab, 0, 1, is_added=True)
    assert text_of(e.value).startswith(b"there is no list of voters")


def test_without_a_majority_nothing_changes() -> None:
    """T28.1 without a majority of the voters in twice the timeout"""
    lab = VotesLab(3)
    change(lab, 0, 2, is_added=False)
    lab.isolate(2)
    lab.isolate(1)
    lab.live(2 * TIMEOUT_MS + 1_000)
    assert said(lab.done(0)).startswith(b"a majority of the voters did not answer in time")
    lab.heal()
    lab.live(2_000)
    assert [names(lab, i) for i in range(3)] == [[0, 1, 2]] * 3


def test_a_dead_voter_is_replaced_by_a_new_node() -> None:
    """T28.4 The voter with the lowest id, of those that have their right, can write their
    journal and see each other, makes
    these changes by itself"""
    lab = lab_of(4, off=3)
    lab.die(2)
    lab.live(2_000)
    change(lab, 0, 2, is_added=False)
    lab.live(2_000)
    assert said(lab.done(0)) == b""
    is_willing(lab, 3, True)
    lab.live(4_000)
    assert names(lab, 0) == names(lab, 3) == [0, 1, 3]
    lab.put(0)
    lab.live(500)
    lab.die(0)
    lab.link(1, 3)
    (home,) = lab.watch(3 * TIMEOUT_MS)
    assert len(lab.picture(home)) == 2
    lab.revive(0)
    lab.revive(2)
    lab.live(3_000)
    assert names(lab, 2) == names(lab, 3)


@pytest.mark.parametrize("lost", [0, 1, 2])
def test_a_voter_that_lost_its_journal_gets_a_new_right(lost: int) -> None:
    """T28.4 A voter without its right (T23.4) for twice the timeout is removed, and added again"""
    lab = VotesLab(3)
    lab.put(0)
    lab.live(500)
    lab.lose_journal(lost)
    assert lab.t(lost).ballots.right == 0
    lab.live(8 * TIMEOUT_MS)
    assert names(lab, 0) == [0, 1, 2]
    assert voters_at(lab, 0).number == 3
    assert lab.t(lost).ballots.right == 3
    (home,) = lab.watch(TIMEOUT_MS)
    lab.die(home)
    (home,) = lab.watch(3 * TIMEOUT_MS)
    assert list(lab.picture(home)) == [0]


def test_a_tube_without_a_leader_keeps_the_list() -> None:
    """T28.3 A voter agrees to the next list when it knows that every tube led by votes is settled
    under the one in force"""
    lab = VotesLab(5)
    lab.die(0)
    for i in range(1, 5):
        lab.tube(i).is_complete = False
    lab.live(TIMEOUT_MS)
    change(lab, 1, 0, is_added=False)  # it was settled under the first list
    lab.live(1_500)
    assert said(lab.done(1)) == b""
    change(lab, 1, 4, is_added=False)
    lab.live(2 * TIMEOUT_MS + 1_000)
    wanted = b"the list stays: no majority has all of tube 't' under the present one yet"
    assert said(lab.done(1)) == wanted
    assert names(lab, 2) == [1, 2, 3, 4]


def test_the_next_list_waits_until_the_last_one_is_settled() -> None:
    """T28.3 its leader has a lease under that list, and a majority of its voters has all that was
    changed before"""
    lab = VotesLab(5)
    lab.hold(0, 3)
    lab.hold(0, 4)
    lab.put(0)
    lab.live(500)
    assert lab.answered(0) == lab.tube(0).seq
    number = int(voters_at(lab, 1).number)
    lab.isolate(0)
    lab.held = set()
    change(lab, 1, 0, is_added=False)
    lab.live(500)
    assert voters_at(lab, 1).number == number + 1
    assert lab.runs_at() in ([], [0])
    change_voters(lab.nodes[3], lab.t(3), lab.nodes[1].node_id, False, 6, 8)
    lab.live(1_000)
    assert voters_at(lab, 3).number == number + 1, "nobody leads under the new list"
    (home,) = lab.watch(2 * TIMEOUT_MS)
    assert len(lab.picture(home)) == 1


def test_a_tube_is_settled_when_a_majority_has_all() -> None:
    """T28.3 its leader has a lease under that list, and a majority of its voters has all that was
    changed before it went by the list."""
    lab = VotesLab(5)
    for i in range(1, 5):
        is_willing(lab, i, False)
    lab.live(500)
    for i in (3, 4):
        lab.tube(0).followers[lab.slot(0, i)].is_open = False  # nothing more is sent
    lab.put(0)
    lab.run()
    assert lab.answered(0) == lab.tube(0).seq
    change(lab, 0, 1, is_added=False)
    lab.live(1_500)
    assert said(lab.done(0)) == b""
    change(lab, 0, 2, is_added=False)
    lab.live(1_500)
    assert len(names(lab, 0)) == 4, "two of these four have all"
    for i in (3, 4):
        lab.tube(0).followers[lab.slot(0, i)].is_open = True
    lab.put(0)
    lab.live(4_000)
    assert said(lab.done(0)) == b""
    assert names(lab, 0) == [0, 3, 4]


def test_two_change_the_list_at_once() -> None:
    """T28.2 else a list with the change"""
    lab = VotesLab(5)
    for i in (3, 4):
        is_willing(lab, i, False)
    change(lab, 1, 4, is_added=False)
    change(lab, 2, 3, is_added=False)
    lab.live(2 * TIMEOUT_MS)
    assert said(lab.done(1)) == said(lab.done(2)) == b""
    assert {tuple(names(lab, i)) for i in range(5)} == {(0, 1, 2)}
    assert voters_at(lab, 0).number == 3


def test_a_maker_that_dies_leaves_its_list_to_others() -> None:
    """T28.2 A list that may have been agreed on is offered again"""
    lab = VotesLab(5)
    for i in (3, 4):
        is_willing(lab, i, False)
    lab.live(500)
    change(lab, 1, 4, is_added=False)
    lab.now_ms += 600
    for n in lab.nodes:
        n.now_ms = lab.now_ms
        tick(n)
    changes_tick(lab.nodes[1], lab.t(1), voters_at(lab, 1))
    for _ in range(20):  # message by message
        for k, n in enumerate(lab.nodes):
            lab.settle(k)
            send_due(n, lab.t(k))
        if any(voters_at(lab, k).number > 1 for k in (0, 2, 3, 4)):
            break
        known = [b.written_attempt for k in (0, 2, 3) if (b := lab.t(k).ballots.next)]
        if len([one for one in known if one > 0]) > 1:
            break
        lab.carry()
    assert [int(voters_at(lab, k).number) for k in (0, 2, 3)] == [1, 1, 1]
    lab.isolate(1)
    lab.live(1_000)
    change(lab, 2, 3, is_added=False)
    lab.live(2 * TIMEOUT_MS)
    assert said(lab.done(2)) == b""
    assert names(lab, 0) == [0, 1, 2]
    assert voters_at(lab, 0).number == 3, "the list of the one that died came first"
    lab.heal()
    lab.live(3_000)
    assert {tuple(names(lab, i)) for i in range(5)} == {(0, 1, 2)}


def force(lab: VotesLab, i: int, nodes: list[int]) -> None:
    """CLUSTER VOTERS FORCE at node i."""
    n = lab.nodes[i]
    n.now_ms = lab.now_ms
    force_voters(n, lab.t(i), [lab.nodes[k].node_id for k in nodes])
    lab.run()


def test_a_lost_majority_is_given_up_by_command() -> None:
    """T28.8 it is the operator's word that all other voters are dead, and the only way past a lost
    majority."""
    lab = VotesLab(5, makes=False)
    lab.live(1_000)
    lab.make(0)
    lab.put(0)
    lab.live(500)
    for i in (3, 4):
        with pytest.raises(TubeError) as e:
            force(lab, i, [3, 4])
        assert text_of(e.value).startswith(b"a majority of the voters is here")
    for i in (0, 1, 2):
        lab.isolate(i)
    assert lab.watch(3 * TIMEOUT_MS) == []
    with pytest.raises(TubeError) as e:
        force(lab, 3, [4])
    assert text_of(e.value).startswith(b"name this node too")
    with pytest.raises(TubeError) as e:
        force(lab, 3, [3, 2])
    assert text_of(e.value).startswith(b"node %s cannot vote" % lab.nodes[2].node_id)
    force(lab, 3, [3, 4])
    assert names(lab, 3) == names(lab, 4) == [3, 4]
    for i in (3, 4):
        for k in (0, 1, 2):
            lab.nodes[i].forgotten |= 1 << lab.slot(i, k)
    (home,) = lab.watch(3 * TIMEOUT_MS)
    assert len(lab.picture(home)) == 1
    lab.put(home)
    lab.live(500)
    assert lab.answered(home) == lab.tube(home).seq
    for i in (3, 4):  # they forget that they forgot
        lab.die(i)
        lab.revive(i)
    lab.heal()
    (home,) = lab.watch(5 * TIMEOUT_MS)
    assert len(lab.picture(home)) == 2
    assert {tuple(names(lab, i)) for i in range(5)} == {(0, 1, 2, 3, 4)}, "they joined again"
    assert len({voters_at(lab, i).origin for i in range(5)}) == 1


def other_cluster(lab: VotesLab, number: int) -> None:
    """Node 3 goes by a list of its own, of another cluster."""
    lab.live(500)
    lab.isolate(3)
    b = lab.t(3).ballots
    rights = {lab.nodes[3].node_id: number}
    b.voters, b.right, b.is_renewed = Voters(number, b"p" * 16, rights, IN_FORCE), number, True
    n = lab.nodes[3]
    assert n.records is not None
    record_voters(n.records, b, b.voters)


def test_a_cluster_whose_list_was_forced_is_another_one() -> None:
    """T28.8 no list of another cluster (T23.4) ends this one's.

    T23.4 The log says it once, and CLUSTER VOTERS names the nodes (T28.7).
    """
    lab = VotesLab(4, makes=False, off=3)
    other_cluster(lab, FORCE_GAP + 1)
    lab.live(2_000)
    lab.make(0)
    lab.put(0)
    lab.live(1_000)
    for _ in range(2):
        lab.heal()
        lab.live(TIMEOUT_MS)
        assert lab.runs_at() == [0]
        assert [names(lab, i) for i in range(4)] == [[0, 1, 2]] * 3 + [[3]]
        lab.isolate(3)
    for i in range(3):
        assert may_vouch(lab.nodes[i], lab.t(i))
        assert lab.t(i).ballots.strangers == {lab.nodes[3].node_id: b"p" * 16}
        assert sum("two clusters have met" in note for note in lab.t(i).notes) == 1
    assert set(lab.t(3).ballots.strangers) == {lab.nodes[i].node_id for i in range(3)}
    lab.die(0)
    (home,) = lab.watch(4 * TIMEOUT_MS)
    assert home in (1, 2), "their votes still count"


@pytest.mark.parametrize("restarts", [False, True])
def test_two_lists_that_meet(restarts: bool) -> None:
    """T23.4 Each node then leaves the tubes whose leader goes by the other list to that list's
    voters: it does not stand up or vote about them, also after a restart."""
    lab = VotesLab(4, makes=False, off=3)
    other_cluster(lab, 1)
    n = lab.nodes[3]
    lab.heal()
    lab.live(500)
    lab.make(3, name=b"u")
    lab.put(3, name=b"u")
    lab.make(0, name=b"v")
    lab.live(1_500)
    assert lab.runs_at(b"u") == [3]
    assert all(lab.tube(i, b"u").is_complete for i in range(3))
    if restarts:
        for i in range(3):
            lab.die(i)
            lab.isolate(3)
        lab.link(0, 1)
        lab.link(0, 2)
        lab.link(1, 2)
    lab.isolate(3)
    lab.live(4 * TIMEOUT_MS)
    assert lab.tube(1, b"u").epoch == 1
    assert {stand_of(lab.tube(i, b"u")) for i in range(3)} == {(1, n.node_id)}
    assert len(lab.runs_at(b"v")) == 1
    assert len(names(lab, 0)) == 3


class ChangingWalk(Walk):
    """A walk in which the list of voters changes, and nodes lose their journals."""

    def fault(self) -> None:
        """Something breaks or is mended, or somebody changes the list."""
        super().fault()
        lab, c = self.lab, self.chance
        i, k = c.randrange(self.count), c.randrange(self.count)
        if c.randrange(3) == 0 and i not in lab.still | self.down:
            lab.nodes[i].now_ms = lab.now_ms
            is_added = c.randrange(2) == 0
            try:
                change_voters(lab.nodes[i], lab.t(i), lab.nodes[k].node_id, is_added, -1, 0)
            except TubeError:
                return

    def look(self) -> None:
        """Judge what is now: one list of each number."""
        super().look()
        for i in range(self.count):
            voters = self.lab.t(i).ballots.in_force()
            if voters is not None:
                known = self.lists.setdefault(int(voters.number), dict(voters.rights))
                assert known == voters.rights, "two lists of one number"

    def run(self, steps: int) -> None:
        """Walk."""
        self.lists: dict[int, dict[bytes, int]] = {}
        super().run(steps)


@pytest.mark.parametrize("seed", range(8))
def test_a_walk_with_changes(seed: int) -> None:
    """T28.2 What a majority has written down in one attempt is the next list."""
    ChangingWalk(seed).run(60)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2_000, 2_150))
def test_many_walks_with_changes(seed: int) -> None:
    """T28.3 A voter agrees to the next list when it knows that every tube led by votes is settled
    under the one in force"""
    ChangingWalk(seed).run(80)
