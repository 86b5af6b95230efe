"""Lists of one voter or two, and voters that cannot vote (SPEC T27, T28)."""

from __future__ import annotations

import pytest
from test_tube_voters import change, force, is_willing, names
from tubes_world import TIMEOUT_MS, VotesWorld

from tuque.core.repair.drain import set_leaving
from tuque.server.replies.errors import text_of
from tuque.tubes.election.force import force_voters
from tuque.tubes.model.errors import TubeError


def lab_of(count: int) -> VotesWorld:
    """A world with a tube of `SYNC majority` at node 0, and a task."""
    world = VotesWorld(count, makes=False)
    world.pass_ms(2 * TIMEOUT_MS)
    world.make(0)
    world.put(0)
    world.pass_ms(1_000)
    return world


def forget(world: VotesWorld, i: int, *gone: int) -> None:
    """CLUSTER FORGET at node i."""
    for k in gone:
        world.nodes[i].core.forgotten |= 1 << world.slot(i, k)


def tasks_at(world: VotesWorld, i: int) -> int:
    """Wait until the tube runs at node i, put one more task; how many are there."""
    assert world.watch(4 * TIMEOUT_MS) == [i]
    world.put(i)
    world.pass_ms(500)
    assert world.answered(i) == world.tube(i).seq
    return len(world.picture(i))


@pytest.mark.parametrize("leads", [True, False])
def test_one_voter_left_by_force(leads: bool) -> None:
    """T27.10 After a start it leads on under its epoch"""
    world = lab_of(3)
    i = 0 if leads else 2
    gone = [k for k in range(3) if k != i]
    for k in gone:
        world.restart(k)
    world.pass_ms(2 * TIMEOUT_MS)
    force(world, i, [i])
    forget(world, i, *gone)
    assert tasks_at(world, i) == 2
    epoch = world.tube(i).epoch
    world.restart(i)  # it starts again, alone
    forget(world, i, *gone)
    assert tasks_at(world, i) == 3
    assert world.tube(i).epoch == epoch
    world.make(i, name=b"new")
    assert world.runs_at(b"new") == [i]


def test_one_voter_waits_for_its_disk() -> None:
    """T27.10 leads when its own vote is on its disk."""
    world = lab_of(3)
    world.restart(0)
    world.restart(1)
    world.pass_ms(2 * TIMEOUT_MS)
    world.stick(2)
    world.ask(2, force_voters, [world.id(2)])  # the reply waits for the disk
    world.settle()
    forget(world, 2, 0, 1)
    assert world.watch(4 * TIMEOUT_MS) == []
    world.stick()
    assert world.watch(2 * TIMEOUT_MS) == [2]


@pytest.mark.parametrize("stays", [0, 1])
def test_one_voter_left_by_command(stays: int) -> None:
    """T27.10 without a survey, an echo or a wait."""
    world = lab_of(3)
    for i in range(3):
        is_willing(world, i, False)
    for k in range(3):
        if k != stays:
            change(world, stays, k, is_added=False)
            world.pass_ms(2 * TIMEOUT_MS)
            assert world.said(stays) == b""
    assert [names(world, i) for i in range(3)] == [[stays]] * 3
    assert tasks_at(world, stays) == 2, "a leader without a vote hands over"
    if stays != 0:
        world.restart(0)
    assert tasks_at(world, stays) == 3
    world.restart(stays)
    world.link(stays, 2)
    assert tasks_at(world, stays) == 4
    change(world, stays, 2, is_added=True)
    world.pass_ms(2 * TIMEOUT_MS)
    assert world.said(stays) == b""
    assert names(world, 2) == [stays, 2]
    world.put(stays)
    world.pass_ms(500)
    world.restart(stays)
    assert world.watch(4 * TIMEOUT_MS) == [], "one of two is no majority"


def refused(world: VotesWorld, i: int, nodes: list[int]) -> bytes:
    """Why CLUSTER VOTERS FORCE is refused at node i."""
    with pytest.raises(TubeError) as e:
        force(world, i, nodes)
    return bytes(text_of(e.value))


def test_voters_without_their_right_are_not_here() -> None:
    """T28.8 those without their right do not count as here."""
    world = lab_of(3)
    for i in range(3):
        world.end(i)
        if i < 2:
            world.disk(i).lose()
        world.begin(i)
    for i in (0, 1):
        world.rejoin(i)
    world.pass_ms(2 * TIMEOUT_MS)
    assert [world.may_vouch(i) for i in range(3)] == [False, False, True]
    assert world.watch(2 * TIMEOUT_MS) == []
    wanted = b"node %s is here and can vote: name it too" % world.id(2)
    assert refused(world, 0, [0]) == refused(world, 1, [0, 1]) == wanted
    force(world, 2, [2])
    assert tasks_at(world, 2) == 2
    world.pass_ms(4 * TIMEOUT_MS)
    assert {tuple(names(world, i)) for i in range(3)} == {(0, 1, 2)}, "they joined again"
    world.restart(2)
    (home,) = world.watch(4 * TIMEOUT_MS)
    assert len(world.picture(home)) == 2


def test_all_that_are_here_are_named() -> None:
    """T28.8 It names all voters that are here."""
    world = lab_of(5)
    for k in (0, 1, 2):
        world.restart(k)
    world.pass_ms(2 * TIMEOUT_MS)
    wanted = b"node %s is here and can vote: name it too" % world.id(4)
    assert refused(world, 3, [3]) == wanted
    force(world, 3, [3, 4])
    assert names(world, 4) == [3, 4]


def test_no_voter_goes_that_is_needed() -> None:
    """T28.1 where the list after it would have no majority of voters that this node reaches and
    that have their right"""
    world = lab_of(3)
    world.restart(2)
    world.pass_ms(2 * TIMEOUT_MS)
    for i, k in ((0, 1), (0, 0), (1, 0)):
        with pytest.raises(TubeError) as e:
            change(world, i, k, is_added=False)
        assert text_of(e.value).startswith(b"without node %s too few" % world.id(k))
        assert text_of(e.value).endswith(b"use CLUSTER VOTERS FORCE")
    change(world, 0, 2, is_added=False)
    world.pass_ms(2 * TIMEOUT_MS)
    assert world.said(0) == b""
    assert names(world, 0) == names(world, 1) == [0, 1]
    assert world.watch(TIMEOUT_MS) == [0]


def test_a_leaving_voter_that_is_needed_stays() -> None:
    """T28.4 A leaving voter is removed, unless it is the last one, or the others have no majority
    that is reached and can vote."""
    world = lab_of(3)
    world.restart(2)
    world.pass_ms(2 * TIMEOUT_MS)
    for leaver in (0, 1):
        world.leave(leaver)
        world.pass_ms(4 * TIMEOUT_MS)
        assert names(world, 0) == [0, 1, 2]
        assert world.t(leaver).drain_left(world.nodes[leaver].core) > 0
        world.leave(leaver, False)
    world.leave(1)
    world.rejoin(2)
    world.pass_ms(4 * TIMEOUT_MS)
    assert names(world, 0) == names(world, 2) == [0, 2]


@pytest.mark.parametrize("lost", [0, 1])
def test_two_voters_one_without_its_right(lost: int) -> None:
    """T28.1 ADD and REMOVE are refused at once without such a majority of the present list."""
    world = lab_of(3)
    is_willing(world, 2, False)
    change(world, 0, 2, is_added=False)
    world.pass_ms(2 * TIMEOUT_MS)
    assert world.said(0) == b""
    world.restart(2)
    world.lose_journal(lost)
    other = 1 - lost
    assert world.watch(4 * TIMEOUT_MS) == [], "one of two can vote"
    for is_added in (False, True):
        with pytest.raises(TubeError) as e:
            change(world, other, lost, is_added)
        assert text_of(e.value).startswith(b"1 of 2 voters are here and can vote")
        assert text_of(e.value).endswith(b"use CLUSTER VOTERS FORCE")
    force(world, other, [other])
    assert tasks_at(world, other) == 2
    world.pass_ms(4 * TIMEOUT_MS)
    assert names(world, 0) == names(world, 1) == [other], "two would need each other (T28.9)"
    assert world.tube(lost).is_complete


def test_one_of_two_leaves() -> None:
    """T28.4 A leaving voter is removed, unless it is the last one"""
    world = lab_of(3)
    is_willing(world, 2, False)
    change(world, 0, 2, is_added=False)
    world.pass_ms(2 * TIMEOUT_MS)
    assert world.said(0) == b""
    set_leaving(world.nodes[1].core, True)
    assert world.t(1).drain_left(world.nodes[1].core) > 0
    world.beat()
    world.pass_ms(4 * TIMEOUT_MS)
    assert names(world, 0) == [0]
    assert world.t(1).drain_left(world.nodes[1].core) == 0
    world.restart(1)
    assert world.watch(2 * TIMEOUT_MS) == [0]
    world.leave(0)
    world.pass_ms(2 * TIMEOUT_MS)
    assert names(world, 0) == [0], "the last one stays"


def test_a_sync_above_the_voters_is_refused() -> None:
    """T18.9 If fewer nodes vote later than SYNC says, no change of the tube and no read of its
    values is possible"""
    world = lab_of(3)
    for i in range(3):
        is_willing(world, i, False)
    world.make(0, b"tasks", b"two", sync=2)
    for i in (2, 1):
        change(world, 0, i, is_added=False)
        world.pass_ms(2 * TIMEOUT_MS)
        assert world.said(0) == b""
    why = "NOREPL tube 'two' has SYNC 2, and the voters are 1: nothing was done, add voters"
    for words in (("ADDJOB", "two", "x", 0), ("TUBE", "PUT", "two", "x")):
        assert str(world.wire(0)(*words)).startswith(why)
    for words in (("VALUE", "SET", "two", "k", "v"), ("VALUE", "GET", "two", "k")):
        assert str(world.wire(0)(*words)).startswith(why)
    assert tasks_at(world, 0) == 2
    change(world, 0, 1, is_added=True)
    world.pass_ms(2 * TIMEOUT_MS)
    assert world.wire(0)("TUBE", "PUT", "two", "x")[1] == b"READY"
