"""Lists of one voter: at the start of a node, when nodes meet, and afterwards (SPEC T23)."""

from __future__ import annotations

import pytest
from tubes_world import TIMEOUT_MS, VotesWorld

from tuque.core.model.errors import EXISTS, FEW_VOTERS, HOME_ALIVE, LIST_COMES
from tuque.tubes.election.force import take_by_vote
from tuque.tubes.model.errors import TubeError
from tuque.tubes.model.tube import RUNNING

NAMES = [b"a", b"b", b"c"]


class Apart(VotesWorld):
    """Nodes that have never been linked; each has made a tube, with a task."""

    def __init__(self, count: int, **options: object) -> None:
        super().__init__(count, makes=False, **options)
        self.pass_ms(TIMEOUT_MS)
        for i in self.numbers():
            self.t(i).voter_state.unmet = 0  # as of nodes that knew nobody when they started
            self.make(i, name=NAMES[i])
            self.put(i, name=NAMES[i])
            self.settle()

    def form(self) -> None:
        """Start all nodes, and link none."""
        for machine in self.machines:
            machine.start()
        for a in self.numbers():
            for b in range(a):
                self.sever(a, b)
        self.settle()

    def voting(self, i: int) -> tuple[int, ...]:
        """The voters, as node i knows them."""
        voters = self.t(i).voter_state.voters
        assert voters is not None
        return tuple(k for k in self.numbers() if self.id(k) in voters.rights)

    def watch_b(self, span_ms: int) -> list[int]:
        """Let time pass; where the second tube runs then."""
        self.pass_ms(span_ms)
        return self.runs_at(b"b")

    def families(self, name: bytes) -> int:
        """How many lists choose the leader of the tube, as its nodes know."""
        return len({self.tube(i, name).family for i in self.numbers()})


def test_each_node_has_a_list_of_its_own() -> None:
    """T23.1 With `tube-failover yes` (the default) a node with a journal that knows no list makes
    one of itself"""
    world = Apart(2)
    lists = [world.t(i).voter_state.voters for i in (0, 1)]
    assert [world.voting(i) for i in (0, 1)] == [(0,), (1,)]
    assert len({v.origin for v in lists if v is not None and v.is_solo}) == 2
    assert world.runs_at(b"a") == [0] and world.runs_at(b"b") == [1]


def test_a_restart_keeps_its_tubes_running() -> None:
    """T27.10 After a start it leads on under its epoch"""
    world = Apart(2)
    lists = world.t(0).voter_state.voters
    for _ in range(2):
        world.restart(0)
        assert world.tube(0, b"a").state == RUNNING and world.runs_at(b"a") == [0]
        assert world.tube(0, b"a").epoch == 1
        assert len(world.tube(0, b"a").tasks) == 1
    found = world.t(0).voter_state.voters
    assert lists is not None and found is not None and found.origin == lists.origin
    world.put(0, name=b"a")
    world.settle()
    assert len(world.tube(0, b"a").tasks) == 2


def test_the_list_of_the_lower_id_wins_and_gets_the_tubes() -> None:
    """T23.4 of two solo lists that of the lower id"""
    world = Apart(2)
    world.link(0, 1)
    world.pass_ms(500)
    assert [world.voting(i) for i in (0, 1)] == [(0,), (0,)]
    assert world.until(lambda: world.runs_at(b"b") == [0])
    world.pass_ms(1_000)
    assert world.runs_at(b"a") == [0]
    for name in (b"a", b"b"):
        assert world.families(name) == 1 and len(world.picture(0, name)) == 1
    tube = world.tube(0, b"b")
    assert (tube.moves, tube.from_number, tube.epoch) == (1, 0, 2)
    for i in (0, 1):
        world.restart(i)
        world.pass_ms(100)
    assert world.runs_at(b"b") == [0] and world.tube(0, b"b").epoch == 2
    assert world.tube(1, b"b").family == world.tube(0, b"a").family


def test_sync_counts_all_copies_where_one_votes() -> None:
    """T18.9 n of SYNC is 1 to the number of nodes with copies (T18.1)"""
    world = Apart(2)
    world.link(0, 1)
    world.pass_ms(500)
    world.make(0, sync=2)
    world.hold(1, 0)
    world.put(0)
    world.pass_ms(500)
    assert world.answered(0) == world.tube(0).seq - 1
    world.release(1, 0)
    world.pass_ms(500)
    assert world.answered(0) == world.tube(0).seq


def test_two_nodes_after_a_restart_make_one_tube() -> None:
    """T27.8 Where no majority of the voters is linked CREATE does nothing"""
    world = Apart(2)
    world.link(0, 1)
    assert world.until(lambda: world.runs_at(b"b") == [0])
    for i in (0, 1):
        world.restart(i)
    world.pass_ms(100)
    with pytest.raises(TubeError) as refused:
        world.claim(1, name=b"new")
    assert (refused.value.code, refused.value.about) == (FEW_VOTERS, (b"new", 0, 1))
    world.make(0, name=b"new")
    world.link(0, 1)
    world.pass_ms(1_000)
    assert world.runs_at(b"new") == [0] and world.tube(1, b"new").conflict == b""


def test_three_nodes_meet_and_all_vote() -> None:
    """T23.2 A solo list becomes one of three (T28.9) while all nodes that its voter knows are
    linked and use it"""
    world = Apart(3)
    world.link(0, 1)
    world.pass_ms(3 * TIMEOUT_MS)
    assert [world.voting(i) for i in range(3)] == [(0,), (0,), (2,)], "one is not linked"
    world.link(0, 2)
    world.link(1, 2)
    assert world.until(world.are_listed)
    for name in NAMES:
        world.leads(name)
    world.pass_ms(2 * TIMEOUT_MS)
    assert all(world.voting(i) == (0, 1, 2) for i in range(3))
    for name in NAMES:
        assert world.families(name) == 1
    world.end(0)
    for name in NAMES:
        home = world.leads(name)
        assert home != 0 and len(world.picture(home, name)) == 1


def test_a_tube_waits_until_the_other_list_has_it() -> None:
    """T23.7 A tube moves when a majority of the list that won may vote and has all of it"""
    world = Apart(2)
    world.link(0, 1)
    world.hold(1, 0)
    world.put(1, name=b"b")
    assert world.watch_b(3 * TIMEOUT_MS) == [1]
    world.release(1, 0)
    assert world.until(lambda: world.runs_at(b"b") == [0], 120_000)
    assert len(world.picture(0, b"b")) == 2


def test_the_only_voter_has_lost_its_disk() -> None:
    """T21.5 FORCE is also for a tube whose list is gone"""
    world = Apart(2)
    world.link(0, 1)
    assert world.until(lambda: world.runs_at(b"b") == [0])
    world.put(0, name=b"b")
    world.pass_ms(1_000)
    world.lose_journal(0)
    world.pass_ms(3 * TIMEOUT_MS)
    assert [world.voting(i) for i in (0, 1)] == [(0,), (0,)]
    assert world.runs_at(b"a") == world.runs_at(b"b") == []
    epochs = [int(world.tube(1, name).epoch) for name in (b"a", b"b")]
    for name, epoch in zip((b"a", b"b"), epochs, strict=True):
        world.ask(1, take_by_vote, world.tube(1, name))
        world.settle()
        assert world.until(lambda name=name: world.runs_at(name))
        assert world.tube(1, name).epoch > epoch
    assert world.until(lambda: world.runs_at(b"b") == [0] and world.runs_at(b"a") == [0])
    assert len(world.picture(0, b"b")) == 2 and len(world.picture(0, b"a")) == 1


def test_force_is_refused_while_the_leader_is_there() -> None:
    """T21.5 It runs on a node that reaches no leader of the tube"""
    world = Apart(2)
    world.link(0, 1)
    world.hold(0, 1)  # node 1 hears nothing more, so the tube stays there
    world.pass_ms(1_000)
    with pytest.raises(TubeError) as refused:
        world.ask(0, take_by_vote, world.tube(0, b"b"))
    assert refused.value.code == HOME_ALIVE


def test_force_is_refused_where_a_copy_is_older() -> None:
    """T21.5 and has the newest copy of all nodes that it reaches; else the error names the node
    that has it."""
    world = Apart(3, off=2)
    world.link()
    assert world.until(lambda: world.runs_at(b"b") == [0])
    world.pass_ms(1_000)
    world.hold(0, 2)
    world.put(0, name=b"b")
    world.pass_ms(1_000)
    world.lose_journal(0)
    world.pass_ms(3 * TIMEOUT_MS)
    world.ask(2, take_by_vote, world.tube(2, b"b"))
    world.settle()
    assert world.said(2) == b"node %s has a later copy of tube 'b'" % world.id(1)
    world.ask(1, take_by_vote, world.tube(1, b"b"))
    world.settle()
    assert world.until(lambda: world.runs_at(b"b") == [0])
    assert len(world.picture(0, b"b")) == 2


def test_a_reset_node_begins_anew_under_its_new_id() -> None:
    """T23.1 a node with a journal that knows no list makes one of itself"""
    world = VotesWorld(1, makes=False)
    before = world.voting_list(0)
    assert world.wire(0)("CLUSTER", "RESET", "HARD", "FORCE") == b"OK"
    world.settle()
    after = world.voting_list(0)
    assert after.origin != before.origin and list(after.rights) == [world.node(0).core.node_id]
    world.make(0)
    assert world.runs_at() == [0]


def test_the_voter_of_a_list_without_a_tube_is_forgotten() -> None:
    """T28.6 unless it is that of a solo list (T23.1) which chooses the leader of no tube"""
    world = VotesWorld(2, makes=False)
    world.pass_ms(1_000)
    assert list(world.voting_list(1).rights) == [world.id(0)]
    world.make(0)
    world.pass_ms(1_000)
    world.end(0)
    world.pass_ms(3 * TIMEOUT_MS)
    said = world.wire(1)("CLUSTER", "FORGET", world.id(0))
    assert b"votes: CLUSTER VOTERS REMOVE" in str(said).encode()
    world.begin(0)
    world.link()
    assert world.wire(0)("TUBE", "DROP", "t") == b"OK"
    world.pass_ms(1_000)
    world.end(0)
    world.pass_ms(3 * TIMEOUT_MS)
    assert world.wire(1)("CLUSTER", "FORGET", world.id(0)) == b"OK"
    world.settle()
    assert list(world.voting_list(1).rights) == [world.id(1)]
    world.make(1)
    assert world.runs_at() == [1]


def test_a_node_with_a_new_disk_waits_for_those_that_it_knows() -> None:
    """T27.8 A node that made its solo list when it knew others creates nothing before all of these
    have sent their tubes
    """
    world = VotesWorld(2, makes=False)
    world.make(0)
    world.pass_ms(1_000)
    world.end(1)
    world.disk(1).lose()
    world.begin(1)
    assert list(world.voting_list(1).rights) == [world.id(1)]
    with pytest.raises(TubeError) as refused:
        world.claim(1)
    assert refused.value.code == LIST_COMES
    world.link()
    with pytest.raises(TubeError) as there:
        world.claim(1)
    assert there.value.code == EXISTS
