"""The list of voters changes: one more, one less, agreed on by a majority (SPEC T28)."""

from __future__ import annotations

import pytest
from test_tube_votes_random import Walk
from tubes_world import TIMEOUT_MS, VotesWorld

from tuque.core.msgs.bus import AnyMessage, TubeCopy
from tuque.server.replies.errors import text_of
from tuque.tubes.election.force import force_voters
from tuque.tubes.election.membership import change_voters
from tuque.tubes.election.voters import set_willing
from tuque.tubes.log.send import ENDS
from tuque.tubes.log.vote_state import record_voters, vote_of
from tuque.tubes.model.errors import TubeError
from tuque.tubes.model.voter_state import FORCE_GAP, Voters


def voters_at(world: VotesWorld, i: int) -> Voters:
    """The list in force at node i."""
    voters = world.t(i).voter_state.in_force()
    assert voters is not None
    return voters


def names(world: VotesWorld, i: int) -> list[int]:
    """The voters as node i knows them."""
    rights = voters_at(world, i).rights
    return [k for k, n in enumerate(world.cores) if n.node_id in rights]


def change(world: VotesWorld, i: int, k: int, is_added: bool) -> None:
    """CLUSTER VOTERS ADD or REMOVE of node k, at node i."""
    world.ask(i, change_voters, world.id(k), is_added)


def is_willing(world: VotesWorld, i: int, yes: bool) -> None:
    """`tube-failover` at node i is yes from now on, or no."""
    world.may_vote(i, yes)
    set_willing(world.t(i), yes)


def lab_of(count: int, off: int) -> VotesWorld:
    """A world with a tube, and one node that has no vote."""
    world = VotesWorld(count, makes=False, off=off)
    world.pass_ms(1_000)
    world.make(0)
    world.put(0)
    world.pass_ms(1_000)
    return world


def lack_the_end(_a: int, _b: int, message: AnyMessage) -> None:
    """No node hears that a replica is complete."""
    if isinstance(message, TubeCopy):
        message.flags &= ~ENDS


def test_a_node_joins_by_itself() -> None:
    """T28.4 it gets replicas, and is added when it has all of every such tube."""
    world = lab_of(4, off=3)
    assert names(world, 0) == [0, 1, 2]
    is_willing(world, 3, True)
    world.pass_ms(4_000)
    for i in range(4):
        assert (names(world, i), voters_at(world, i).number) == ([0, 1, 2, 3], 3)
        assert world.may_vouch(i)
    assert world.t(3).voter_state.right == 3
    world.put(0)
    world.pass_ms(500)
    world.isolate(2)
    world.restart(0)
    assert world.watch(3 * TIMEOUT_MS) == [], "two of four are no majority"
    world.link()
    (home,) = world.watch(3 * TIMEOUT_MS)
    assert len(world.picture(home)) == 2


def test_a_node_that_is_not_even_waits() -> None:
    """T28.4 is added when it has all of every such tube."""
    world = lab_of(4, off=3)
    world.lab.editor = lack_the_end
    is_willing(world, 3, True)
    world.pass_ms(2 * TIMEOUT_MS)
    assert world.tube(3).is_replica
    assert names(world, 1) == [0, 1, 2]
    world.lab.editor = None
    world.isolate(3)
    world.link()
    world.pass_ms(4_000)
    assert names(world, 1) == [0, 1, 2, 3]


def test_a_voter_is_removed_and_added() -> None:
    """T28.1 REMOVE makes a list without the node, ADD one with it."""
    world = VotesWorld(4)
    is_willing(world, 3, False)
    world.pass_ms(1_000)
    change(world, 1, 3, is_added=False)
    with pytest.raises(TubeError) as e:
        change(world, 1, 2, is_added=False)
    assert text_of(e.value).startswith(b"the list of voters is changing already")
    world.pass_ms(1_500)
    assert world.said(1) == b""
    assert [names(world, i) for i in range(4)] == [[0, 1, 2]] * 4
    assert not world.may_vouch(3)
    world.pass_ms(2 * TIMEOUT_MS)
    assert names(world, 0) == [0, 1, 2]
    change(world, 2, 3, is_added=True)
    world.pass_ms(1_500)
    assert world.said(2) == b""
    assert [names(world, i) for i in range(4)] == [[0, 1, 2, 3]] * 4
    assert (world.t(3).voter_state.right, voters_at(world, 3).number) == (5, 5)
    world.restart(3)
    world.rejoin(3)
    assert (world.t(3).voter_state.right, voters_at(world, 3).number) == (5, 5)


def test_what_is_refused() -> None:
    """T28.1 It is refused"""
    world = VotesWorld(4, off=3)
    for i, k, is_added, why in (
        (3, 0, False, b"this node does not vote"),
        (0, 3, False, b"node %s is no voter" % world.id(3)),
    ):
        with pytest.raises(TubeError) as e:
            change(world, i, k, is_added)
        assert text_of(e.value).startswith(why)
    world.isolate(3)
    with pytest.raises(TubeError) as e:
        change(world, 0, 3, is_added=True)
    assert text_of(e.value).startswith(b"node %s cannot vote" % world.id(3))
    world = VotesWorld(1, makes=False, off=0)
    with pytest.raises(TubeError) as e:
        change(world, 0, 0, is_added=True)
    assert text_of(e.value).startswith(b"there is no list of voters")


def test_a_node_with_another_tube_of_a_name_is_not_added() -> None:
    """T28.1 ADD is refused for a node that has another tube of a name"""
    world = VotesWorld(4, makes=False, off=3, tube_voters=4)
    world.pass_ms(TIMEOUT_MS)
    world.isolate(3)
    assert world.wire(3)("TUBE", "CREATE", "t", "fifo", "TEMPORARY") == b"OK"
    world.make(0, sync=2)
    world.link()
    world.pass_ms(1_000)
    with pytest.raises(TubeError) as e:
        change(world, 0, 3, is_added=True)
    assert text_of(e.value).startswith(b"node %s cannot be added: it has a tube" % world.id(3))
    is_willing(world, 3, True)
    world.pass_ms(2 * TIMEOUT_MS)
    assert names(world, 0) == [0, 1, 2]
    assert world.wire(3)("TUBE", "DROP", "t") == b"OK"
    world.pass_ms(2 * TIMEOUT_MS)
    assert names(world, 0) == [0, 1, 2, 3]


def test_without_a_majority_nothing_changes() -> None:
    """T28.1 without a majority of the voters in twice `cluster-node-timeout`"""
    world = VotesWorld(3)
    change(world, 0, 2, is_added=False)
    world.split_off(2)
    world.split_off(1)
    world.pass_ms(2 * TIMEOUT_MS + 1_000)
    assert world.said(0).startswith(b"a majority of the voters did not answer in time")
    world.link()
    world.pass_ms(2_000)
    assert [names(world, i) for i in range(3)] == [[0, 1, 2]] * 3


def test_a_dead_voter_is_replaced_by_a_new_node() -> None:
    """T28.4 The voter with the lowest id, of those that have their right, can write their
    journal and see each other, makes these changes itself
    """
    world = lab_of(4, off=3)
    world.restart(2)
    world.pass_ms(2_000)
    change(world, 0, 2, is_added=False)
    world.pass_ms(2_000)
    assert world.said(0) == b""
    is_willing(world, 3, True)
    world.pass_ms(4_000)
    assert names(world, 0) == names(world, 3) == [0, 1, 3]
    world.put(0)
    world.pass_ms(500)
    world.restart(0)
    world.link(1, 3)
    (home,) = world.watch(3 * TIMEOUT_MS)
    assert len(world.picture(home)) == 2
    world.rejoin(0)
    world.rejoin(2)
    world.pass_ms(3_000)
    assert names(world, 2) == names(world, 3)


@pytest.mark.parametrize("lost", [0, 1, 2])
def test_a_voter_that_lost_its_journal_gets_a_new_right(lost: int) -> None:
    """T28.4 A voter without its right for 2 T is removed, and added again"""
    world = VotesWorld(3)
    world.put(0)
    world.pass_ms(500)
    world.lose_journal(lost)
    assert world.t(lost).voter_state.right == 0
    world.pass_ms(8 * TIMEOUT_MS)
    assert names(world, 0) == [0, 1, 2]
    assert voters_at(world, 0).number == 4
    assert world.t(lost).voter_state.right == 4
    (home,) = world.watch(TIMEOUT_MS)
    world.restart(home)
    (home,) = world.watch(3 * TIMEOUT_MS)
    assert list(world.picture(home)) == [0]


def test_a_tube_without_a_leader_keeps_the_list() -> None:
    """T28.3 A voter agrees when it knows, from `TUBE-STANDS`, that every tube led by votes is
    settled under the list in force
    """
    world = VotesWorld(5)
    world.restart(0)
    for i in range(1, 5):
        world.tube(i).is_complete = False
    world.pass_ms(TIMEOUT_MS)
    change(world, 1, 0, is_added=False)  # it was settled under the first list
    world.pass_ms(1_500)
    assert world.said(1) == b""
    change(world, 1, 4, is_added=False)
    world.pass_ms(2 * TIMEOUT_MS + 1_000)
    wanted = b"the list stays: no majority has all of tube 't' under the present one yet"
    assert world.said(1) == wanted
    assert names(world, 2) == [1, 2, 3, 4]


def test_the_next_list_waits_until_the_last_one_is_settled() -> None:
    """T28.3 its leader has a lease under it, and a majority of its voters has all that was
    changed before
    """
    world = VotesWorld(5)
    world.hold(0, 3)
    world.hold(0, 4)
    world.put(0)
    world.pass_ms(500)
    assert world.answered(0) == world.tube(0).seq
    number = int(voters_at(world, 1).number)
    world.isolate(0)
    world.release_all()
    change(world, 1, 0, is_added=False)
    world.pass_ms(500)
    assert voters_at(world, 1).number == number + 1
    assert world.runs_at() in ([], [0])
    change(world, 3, 1, is_added=False)
    world.pass_ms(1_000)
    assert voters_at(world, 3).number == number + 1, "nobody leads under the new list"
    (home,) = world.watch(2 * TIMEOUT_MS)
    assert len(world.picture(home)) == 1


def test_a_tube_is_settled_when_a_majority_has_all() -> None:
    """T28.3 its leader has a lease under it, and a majority of its voters has all that was
    changed before it was used.
    """
    world = VotesWorld(5)
    for i in range(1, 5):
        is_willing(world, i, False)
    world.pass_ms(500)
    for i in (3, 4):
        world.tube(0).followers[world.slot(0, i)].is_open = False  # nothing more is sent
    world.put(0)
    world.settle()
    assert world.answered(0) == world.tube(0).seq
    change(world, 0, 1, is_added=False)
    world.pass_ms(1_500)
    assert world.said(0) == b""
    change(world, 0, 2, is_added=False)
    world.pass_ms(1_500)
    assert len(names(world, 0)) == 4, "two of these four have all"
    for i in (3, 4):
        world.tube(0).followers[world.slot(0, i)].is_open = True
    world.put(0)
    world.pass_ms(4_000)
    assert world.said(0) == b""
    assert names(world, 0) == [0, 3, 4]


def test_two_change_the_list_at_once() -> None:
    """T28.2 else a list with the change"""
    world = VotesWorld(5)
    for i in (3, 4):
        is_willing(world, i, False)
    change(world, 1, 4, is_added=False)
    change(world, 2, 3, is_added=False)
    world.pass_ms(2 * TIMEOUT_MS)
    assert world.said(1) == world.said(2) == b""
    assert {tuple(names(world, i)) for i in range(5)} == {(0, 1, 2)}
    assert voters_at(world, 0).number == 6


def test_a_maker_that_dies_leaves_its_list_to_others() -> None:
    """T28.2 A list that may have been agreed on is offered again"""
    world = VotesWorld(5)
    for i in (3, 4):
        is_willing(world, i, False)
    world.pass_ms(500)
    change(world, 1, 4, is_added=False)

    def have_written() -> bool:
        known = [b for k in (0, 2, 3) if (b := world.t(k).voter_state.next)]
        return len([b for b in known if b.written_attempt > 0 and b.number == 5]) > 1

    world.step_until(have_written)
    assert [int(voters_at(world, k).number) for k in (0, 2, 3)] == [4, 4, 4]
    world.split_off(1)
    world.pass_ms(1_000)
    change(world, 2, 3, is_added=False)
    world.pass_ms(2 * TIMEOUT_MS)
    assert world.said(2) == b""
    assert names(world, 0) == [0, 1, 2]
    assert voters_at(world, 0).number == 6, "the list of the one that died came first"
    world.link()
    world.pass_ms(3_000)
    assert {tuple(names(world, i)) for i in range(5)} == {(0, 1, 2)}


def force(world: VotesWorld, i: int, nodes: list[int]) -> None:
    """CLUSTER VOTERS FORCE at node i."""
    world.ask(i, force_voters, [world.id(k) for k in nodes])
    world.settle()
    assert world.said(i) == b""


def test_a_lost_majority_is_given_up_by_command() -> None:
    """T28.8 it is the operator's word that all other voters are dead, and the only way past a lost
    majority."""
    world = VotesWorld(5, makes=False)
    world.pass_ms(1_000)
    world.make(0)
    world.put(0)
    world.pass_ms(500)
    for i in (3, 4):
        with pytest.raises(TubeError) as e:
            force(world, i, [3, 4])
        assert text_of(e.value).startswith(b"a majority of the voters is here")
    for i in (0, 1, 2):
        world.isolate(i)
    assert world.watch(3 * TIMEOUT_MS) == []
    with pytest.raises(TubeError) as e:
        force(world, 3, [4])
    assert text_of(e.value).startswith(b"name this node too")
    with pytest.raises(TubeError) as e:
        force(world, 3, [3, 2])
    assert text_of(e.value).startswith(b"node %s cannot vote" % world.id(2))
    force(world, 3, [3, 4])
    assert names(world, 3) == names(world, 4) == [3, 4]
    for i in (3, 4):
        for k in (0, 1, 2):
            world.nodes[i].core.forgotten |= 1 << world.slot(i, k)
    (home,) = world.watch(3 * TIMEOUT_MS)
    assert len(world.picture(home)) == 1
    world.put(home)
    world.pass_ms(500)
    assert world.answered(home) == world.tube(home).seq
    for i in (3, 4):  # they forget that they forgot
        world.restart(i)
        world.rejoin(i)
    world.link()
    (home,) = world.watch(5 * TIMEOUT_MS)
    assert len(world.picture(home)) == 2
    assert {tuple(names(world, i)) for i in range(5)} == {(0, 1, 2, 3, 4)}, "they joined again"
    assert len({voters_at(world, i).origin for i in range(5)}) == 1


def other_cluster(world: VotesWorld, number: int) -> None:
    """Node 3 goes by a list of its own, of another cluster."""
    world.pass_ms(500)
    world.isolate(3)
    b = world.t(3).voter_state
    rights = {world.id(3): number}
    b.voters, b.right, b.is_renewed = Voters(number, b"p" * 16, rights), number, True
    n = world.nodes[3].core
    assert n.records is not None
    record_voters(n.records, b, b.voters)


def test_a_cluster_whose_list_was_forced_is_another_one() -> None:
    """T28.8 no list of another cluster (T23.4) ends this one's.

    T23.4 It is logged once."""
    world = VotesWorld(4, makes=False, off=3)
    other_cluster(world, FORCE_GAP + 1)
    world.pass_ms(2_000)
    world.make(0)
    world.put(0)
    world.pass_ms(1_000)
    for _ in range(2):
        world.link()
        world.pass_ms(TIMEOUT_MS)
        assert world.runs_at() == [0]
        assert [names(world, i) for i in range(4)] == [[0, 1, 2]] * 3 + [[3]]
        world.isolate(3)
    for i in range(3):
        assert world.may_vouch(i)
        assert world.t(i).voter_state.strangers == {world.id(3): b"p" * 16}
        assert sum("two clusters have met" in note for note in world.warnings(i)) == 1
    assert set(world.t(3).voter_state.strangers) == {world.id(i) for i in range(3)}
    world.restart(0)
    (home,) = world.watch(4 * TIMEOUT_MS)
    assert home in (1, 2), "their votes still count"


@pytest.mark.parametrize("restarts", [False, True])
def test_two_lists_that_meet(restarts: bool) -> None:
    """T23.4 each leaves the tubes whose leader uses the other list to its voters, also after a
    restart.
    """
    world = VotesWorld(4, makes=False, off=3)
    other_cluster(world, 1)
    n = world.nodes[3].core
    world.link()
    world.pass_ms(500)
    world.make(3, name=b"u")
    world.put(3, name=b"u")
    world.make(0, name=b"v")
    world.pass_ms(1_500)
    assert world.runs_at(b"u") == [3]
    assert all(world.tube(i, b"u").is_complete for i in range(3))
    if restarts:
        for i in range(3):
            world.restart(i)
            world.isolate(3)
        world.link(0, 1)
        world.link(0, 2)
        world.link(1, 2)
    world.isolate(3)
    world.pass_ms(4 * TIMEOUT_MS)
    assert world.tube(1, b"u").epoch == 1
    assert {vote_of(world.tube(i, b"u")) for i in range(3)} == {(1, n.node_id)}
    assert len(world.runs_at(b"v")) == 1
    assert len(names(world, 0)) == 3


class ChangingWalk(Walk):
    """A walk in which the list of voters changes, and nodes lose their journals."""

    def fault(self) -> None:
        """Something breaks or is mended, or somebody changes the list."""
        super().fault()
        world, c = self.world, self.chance
        i, k = c.randrange(self.count), c.randrange(self.count)
        if c.randrange(3) == 0 and i not in self.still | self.down:
            world.nodes[i].core.now_ms = world.now_ms
            is_added = c.randrange(2) == 0
            try:
                node_id = world.id(k)
                change_voters(world.nodes[i].core, world.t(i), node_id, is_added, -1, 0)
            except TubeError:
                return

    def look(self) -> None:
        """Judge what is now: one list of each number."""
        super().look()
        for i in range(self.count):
            voters = self.world.t(i).voter_state.in_force()
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
    """T28.3 A voter agrees when it knows, from `TUBE-STANDS`, that every tube led by votes is
    settled under the list in force
    """
    ChangingWalk(seed).run(80)
