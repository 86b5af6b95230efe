"""One voter: all nodes have copies, and the list becomes one of three in one step (SPEC T28.9)."""

from __future__ import annotations

from test_tube_voters import change, force, is_willing, voters_at
from test_tube_voters_few import lab_of, tasks_at
from tubes_world import TIMEOUT_MS, VotesWorld

from tuque.core.model.task import FAR
from tuque.core.model.work import Outcome
from tuque.core.node.queue import AWAY, SHOWN
from tuque.tubes.election.force import force_voters, take_by_vote
from tuque.tubes.log.leader import synced
from tuque.tubes.log.results import shows

TASKS = 2


def names(world: VotesWorld, i: int = 2) -> tuple[int, ...]:
    """The voters as node i knows them."""
    return tuple(k for k in range(3) if world.id(k) in voters_at(world, i).rights)


def one_left() -> VotesWorld:
    """Three nodes; the last one is the only voter by force, and sees nobody."""
    world = lab_of(3)
    world.restart(0)
    world.restart(1)
    world.pass_ms(2 * TIMEOUT_MS)
    force(world, 2, [2])
    assert tasks_at(world, 2) == TASKS
    return world


def growing() -> VotesWorld:
    """The only voter counts by the next list, too, and makes no further step."""
    world = one_left()
    world.link()
    b = world.t(2).voter_state
    world.step_until(lambda: b.growing is not None)
    assert b.change is not None
    b.change.again_ms = FAR
    b.due.clear()
    world.settle()
    assert names(world) == (2,)
    return world


def go_on(world: VotesWorld) -> None:
    """It makes the next step."""
    change = world.t(2).voter_state.change
    if change is not None:
        change.again_ms = 0


def lists_of(world: VotesWorld, span_ms: int) -> list[tuple[int, ...]]:
    """The lists of node 2 in that time."""
    found = [names(world)]
    for _ in range(span_ms // 10):
        world.pass_ms(10)
        now = names(world)
        if now != found[-1]:
            found.append(now)
    return found


def test_one_voter_becomes_three_at_once() -> None:
    """T28.9 One voter becomes three in one step"""
    world = one_left()
    world.link()
    assert lists_of(world, 3 * TIMEOUT_MS) == [(2,), (0, 1, 2)]
    assert world.watch(TIMEOUT_MS) == [2]
    world.put(2)
    world.pass_ms(500)
    assert world.answered(2) == world.tube(2).seq
    world.restart(2)
    (home,) = world.watch(4 * TIMEOUT_MS)
    assert len(world.picture(home)) == TASKS + 1


def test_with_one_other_node_there_is_one_voter() -> None:
    """T28.9 While one node votes it adds no second voter: the loss of either of two would stop
    both."""
    world = one_left()
    world.link(0, 2)
    assert lists_of(world, 4 * TIMEOUT_MS) == [(2,)]
    assert tasks_at(world, 2) == TASKS + 1
    world.end(2)
    assert world.watch(4 * TIMEOUT_MS) == []
    force(world, 0, [0])
    assert tasks_at(world, 0) == TASKS + 2


def test_the_only_voter_leaves() -> None:
    """T28.9 Only if it leaves it adds one, which then gets the vote and the tubes."""
    world = one_left()
    world.link(0, 2)
    world.pass_ms(2 * TIMEOUT_MS)
    world.leave(2)
    assert lists_of(world, 4 * TIMEOUT_MS) == [(2,), (0, 2), (0,)]
    assert tasks_at(world, 0) == TASKS + 1
    assert world.t(2).drain_left(world.nodes[2].core) == 0
    world.end(2)
    assert tasks_at(world, 0) == TASKS + 2


def test_meanwhile_it_counts_under_both_lists() -> None:
    """T28.9 From then on the voter answers what two of the three have, too"""
    world = growing()
    world.claim(2, name=b"new")
    world.step_until(lambda: b"new" in world.t(2).by_name)
    world.hold(0, 2)
    world.hold(1, 2)
    world.put(2)
    world.pass_ms(500)
    assert world.answered(2) == world.tube(2).seq - 1
    assert world.answers(2) == []
    world.release(1, 2)
    world.pass_ms(500)
    assert world.answered(2) == world.tube(2).seq
    assert world.said(2) == b""
    world.release(0, 2)
    go_on(world)
    assert lists_of(world, TIMEOUT_MS) == [(2,), (0, 1, 2)]


def test_the_list_waits_for_what_was_answered() -> None:
    """T28.9 it records the list when it leads every tube, and two of the three have all that was
    answered before."""
    world = one_left()
    for i in (0, 1):
        is_willing(world, i, False)
    world.link()
    world.pass_ms(2 * TIMEOUT_MS)
    for i in (0, 1):
        world.hold(2, i)
    world.put(2)
    world.pass_ms(100)
    assert world.answered(2) == world.tube(2).seq, "one voter is a majority"
    for i in (0, 1):
        is_willing(world, i, True)
    assert world.until(lambda: world.t(2).voter_state.growing)
    world.pass_ms(TIMEOUT_MS // 2)
    assert world.answered(2) < world.tube(2).seq and names(world) == (2,)
    world.release(2, 1)
    assert lists_of(world, 4 * TIMEOUT_MS)[-1] == (0, 1, 2)
    world.end(2)
    (home,) = world.watch(4 * TIMEOUT_MS)
    assert len(world.picture(home)) == TASKS + 1


def test_a_node_lost_meanwhile() -> None:
    """T28.9 If one of the two is lost before the list is used, it counts under the old list
    again"""
    world = growing()
    world.end(0)
    world.hold(1, 2)
    world.put(2)
    world.pass_ms(TIMEOUT_MS)
    assert world.t(2).voter_state.growing is None
    assert world.answered(2) == world.tube(2).seq
    world.release(1, 2)
    go_on(world)
    assert lists_of(world, TIMEOUT_MS) == [(2,)]
    world.begin(0)
    world.rejoin(0)
    assert lists_of(world, 4 * TIMEOUT_MS)[-1] == (0, 1, 2)


def test_a_crash_before_the_list_is_used() -> None:
    """T28.9 and two of the three have all that was answered before"""
    world = one_left()
    world.link()
    b = world.t(2).voter_state
    world.step_until(lambda: b.next is not None and b.next.written_attempt > 0)
    b.due.clear()
    records = world.node(2).core.records
    assert records is not None
    world.step_until(lambda: records.granted >= records.wish)
    assert names(world) == (2,)
    world.restart(2)
    restored = world.t(2).voter_state.next
    assert restored is not None and len(restored.voters) == 3
    assert tasks_at(world, 2) == TASKS + 1
    world.link()
    world.step_until(lambda: names(world, 0) == names(world, 1) == (0, 1, 2))
    world.end(2)
    (home,) = world.watch(4 * TIMEOUT_MS)
    assert len(world.picture(home)) == TASKS + 1


def test_a_newer_copy_elsewhere_is_not_lost_by_force() -> None:
    """T28.8 It asks all nodes that it reaches what they have of each tube, and is refused if one
    that is not named has newer changes"""
    world = one_left()
    is_willing(world, 0, False)
    is_willing(world, 1, False)
    world.link()
    world.pass_ms(2 * TIMEOUT_MS)
    world.hold(2, 1)
    world.put(2)
    world.pass_ms(300)
    assert world.answered(2) == world.tube(2).seq, "one voter is a majority"
    world.end(2)
    world.pass_ms(2 * TIMEOUT_MS)
    world.ask(1, force_voters, [world.id(1)])
    world.settle()
    assert world.said(1).startswith(b"node %s has newer changes of tube 't'" % world.id(0))
    assert names(world, 1) == (2,)
    force(world, 1, [1, 0])
    (home,) = world.watch(4 * TIMEOUT_MS)
    assert home == 0 and len(world.picture(0)) == TASKS + 1


def test_who_does_not_answer_in_time_is_not_here() -> None:
    """T28.8 Who has not answered within `cluster-node-timeout` is not here."""
    world = one_left()
    is_willing(world, 0, False)
    world.link()
    world.pass_ms(2 * TIMEOUT_MS)
    world.end(2)
    world.pass_ms(2 * TIMEOUT_MS)
    world.hold(0, 1)
    world.ask(1, force_voters, [world.id(1)])
    world.settle()
    assert world.answers(1) == [] and names(world, 1) == (2,)
    world.pass_ms(2 * TIMEOUT_MS)
    assert world.said(1) == b"" and names(world, 1) == (1,)


def five(*lost: int, voters: int) -> VotesWorld:
    """The last change is at voters 0 and 2, and these nodes are lost."""
    world = VotesWorld(5, makes=False, tube_voters=voters)
    world.pass_ms(2 * TIMEOUT_MS)
    world.make(0)
    world.put(0)
    world.pass_ms(500)
    for i in range(1, voters):
        if i != 2:
            world.hold(0, i)
    world.put(0)
    world.pass_ms(500)
    for i in lost:
        world.end(i)
    world.pass_ms(2 * TIMEOUT_MS)
    return world


def test_an_older_copy_is_not_forced() -> None:
    """T28.8 It is refused if a majority of the named nodes lacks the newest changes of a tube and
    one of them has older ones, with which it would be elected"""
    world = five(0, 1, voters=4)
    world.ask(2, force_voters, [world.id(i) for i in (2, 3, 4)])
    world.settle()
    older = b"node %s has older changes of tube 't' than others that you name" % world.id(3)
    assert world.said(2).startswith(older)
    assert len(voters_at(world, 2).rights) == 4
    force(world, 2, [2, 3])  # both decide
    assert world.leads() == 2 and len(world.picture(2)) == 2


def test_nodes_without_a_copy_may_be_named() -> None:
    """T28.8 one of them has older ones, with which it would be elected"""
    world = five(0, 1, voters=3)
    force(world, 2, [2, 3, 4])
    assert tasks_at(world, 2) == 3
    assert world.picture(3) == world.picture(4) == world.picture(2)


def test_a_tube_that_no_node_has_is_logged() -> None:
    """T28.8 The log names the tubes of which no node here has all: for these there is T27.12."""
    world = five(0, 1, 2, voters=3)
    force(world, 3, [3])
    assert "of 1 tubes, t first, no node that is here has all" in world.warnings(3)[-1]
    assert world.watch(5 * TIMEOUT_MS) == []
    world.ask(3, take_by_vote, world.tube(3))
    assert world.leads() == 3 and world.told(3)[b"copy"] == b"incomplete"


def test_a_leader_without_a_vote_needs_the_voter() -> None:
    """T27.7 SYNC of such a tube counts only voters that may vote"""
    world = lab_of(3)
    for i in range(3):
        is_willing(world, i, False)
    for k in (0, 1):
        change(world, 2, k, is_added=False)
        world.pass_ms(2 * TIMEOUT_MS)
        assert world.said(2) == b""
    assert names(world, 0) == (2,)
    world.claim(0, name=b"new")
    world.step_until(lambda: b"new" in world.t(0).by_name and world.runs_at(b"new") == [0])
    world.hold(2, 0)
    outcome = Outcome(b"D-" + bytes(38), 0, 0, 0)
    outcome.queue = b"new"
    assert world.until(lambda: world.tube(1, b"new").is_complete)
    for i, may in ((1, AWAY), (2, SHOWN)):
        assert shows(world.node(i).core, world.t(i), outcome) == may
    seq = world.tube(0, b"new").seq
    world.put(0, name=b"new")
    assert synced(world.node(0).core, world.t(0), world.tube(0, b"new")) == seq
