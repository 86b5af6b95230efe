"""A node whose id another one has: it keeps its jobs, leads nothing, does not vote (SPEC K1.3)."""

from __future__ import annotations

import pytest
from tubes_world import TIMEOUT_MS, VotesWorld, voting

from tuque.core.copies.add import on_addjob, settle
from tuque.core.copies.federation import look_again
from tuque.core.model.job import QUEUED, AddSpec
from tuque.core.model.task import READY
from tuque.server.commands.tube_leaders import own_state
from tuque.tubes.policy import tubes_of
from world import World


def set_double(world: World, i: int, is_double: bool = True) -> None:
    """What cluster/members.py does when a conflict begins or ends."""
    n = world.nodes[i].core
    n.is_double = is_double
    look_again(n)
    tubes_of(n).on_reach(n)


def test_a_leader_in_conflict_gives_its_tubes_up() -> None:
    """K1.3 A node that refuses service gives no jobs to other nodes and takes none, leads no tube,
    gives no votes and makes no promises

    K1.3 It steps down from tubes that elected it, and counts among their voters as asking
    (T29.3).
    """
    world = VotesWorld(3)
    task = world.put(0)
    world.pass_ms(1_000)
    set_double(world, 0)
    world.pass_ms(500)
    assert 0 not in world.runs_at() and not world.may_vouch(0)
    world.pass_ms(2 * TIMEOUT_MS - 500)
    (leader,) = world.runs_at()
    assert leader in (1, 2)
    assert world.tube(leader).tasks[task.number].status == READY
    world.pass_ms(4 * TIMEOUT_MS)
    assert world.runs_at() == [leader]


def test_a_leader_of_a_temporary_tube_waits() -> None:
    """K1.3 leads no tube"""
    world = voting()
    world.make(0, temporary=True)
    world.pass_ms(1_000)
    assert world.runs_at() == [0]
    set_double(world, 0)
    world.pass_ms(2_000)
    assert world.runs_at() == []
    set_double(world, 0, False)
    world.pass_ms(2_000)
    assert world.runs_at() == [0]


def test_a_node_in_conflict_gives_no_vote() -> None:
    """K1.3 gives no votes and makes no promises"""
    world = VotesWorld(3)
    set_double(world, 1)
    world.pass_ms(1_000)
    assert world.runs_at() == [0]  # the third one promises, too
    world.isolate(0)
    world.pass_ms(4 * TIMEOUT_MS)
    assert world.runs_at() == []  # one vote of three
    set_double(world, 1, False)
    world.pass_ms(2 * TIMEOUT_MS)
    assert len(world.runs_at()) == 1


def test_a_voter_in_conflict_stays_in_the_list() -> None:
    """K1.3 It steps down from tubes that elected it, and counts among their voters as asking
    (T29.3).

    T28.7 conflict, forgotten or unmet (C3.11, of the node that replies)
    """
    world = VotesWorld(4)
    set_double(world, 3)
    assert own_state(world.nodes[3].core, world.t(3), "") == "conflict"
    world.pass_ms(8 * TIMEOUT_MS)
    for i in range(3):
        voters = world.t(i).voter_state.in_force()
        assert voters is not None and len(voters.rights) == 4
        assert world.t(i).voter_state.asking >> world.slot(i, 3) & 1 == 1
    set_double(world, 3, False)
    world.pass_ms(1_000)
    assert world.may_vouch(3)


@pytest.mark.parametrize("retry", [0, 60])
def test_jobs_stay_where_the_conflict_is(retry: int) -> None:
    """K1.3 A node that refuses service gives no jobs to other nodes and takes none"""
    world = World(2)
    mine, theirs = world.wire(0), world.wire(1)
    mine.add(retry=retry, replicate=1)
    theirs.add("other", retry=retry, replicate=1)
    world.hold(0, 1)
    mine.send("GETJOB", "FROM", "other")  # nobody has heard of it yet
    set_double(world, 0)
    world.release(0, 1)
    theirs.send("GETJOB", "FROM", "q")
    world.pass_ms(1_000)
    assert theirs.take() is None
    assert mine.take() is None
    set_double(world, 0, False)
    world.pass_ms(1_000)
    assert len(theirs.take()) == 1, "what was held back is given when the conflict is over"
    assert len(mine.take()) == 1


@pytest.mark.parametrize("retry", [0, 60])
def test_jobs_on_their_way_go_back(retry: int) -> None:
    """K1.3 A node that refuses service gives no jobs to other nodes and takes none"""
    world = World(2)
    mine, theirs = world.wire(0), world.wire(1)
    id = theirs.add(retry=retry, replicate=1)
    world.hold(1, 0)
    mine.send("GETJOB", "FROM", "q")
    assert theirs.get() == []  # it is on its way
    set_double(world, 0)
    world.release(1, 0)
    assert mine.take() is None
    assert theirs.get() == [id]


def test_who_waits_gets_no_job_before_the_refusal() -> None:
    """K1.3 Both refuse service until it is over."""
    world = World(2)
    world.run.send("GETJOB", "FROM", "q")
    set_double(world, 0)
    spec = AddSpec()
    spec.replicate = 1
    id = on_addjob(world.n, b"q", b"body", settle(world.n, spec)).id
    world.settle()
    assert world.run.take() is None
    assert world.n.jobs[id].state == QUEUED
