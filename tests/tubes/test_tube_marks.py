"""Voters notice that their disk is older than what they have said (SPEC T29)."""

from __future__ import annotations

import pytest
from tubes_world import TIMEOUT_MS, VotesWorld

MARK_MS = 1_000


def marked(world: VotesWorld, i: int) -> tuple[int, int]:
    """Right and mark of node i, as it tells them."""
    b = world.t(i).voter_state
    return int(b.right), int(b.mark)


def restore(world: VotesWorld, i: int) -> None:
    """Node i comes back with its disk as it was at the snapshot."""
    world.end(i)
    world.disk(i).restore()
    world.begin(i)


def lost_put(world: VotesWorld) -> None:
    """Nodes 0 and 1 have a task that node 2 has not heard of; a snapshot of 1 is without it."""
    world.put(0)
    world.pass_ms(3 * MARK_MS)
    world.disk(1).snapshot()
    world.isolate(2)
    world.put(0, b"answered")
    world.pass_ms(3 * MARK_MS)
    assert world.answered(0) == world.tube(0).seq


def test_an_old_disk_ends_the_right() -> None:
    """T29.4 A voter that learns of a higher disk epoch under its right than it has on its disk
    has an old disk: its right ends, which is logged.
    """
    world = VotesWorld(3)
    lost_put(world)
    restore(world, 1)
    world.link()
    world.pass_ms(1_000)
    assert world.t(1).voter_state.right == 0
    assert any("an old one" in note for note in world.warnings(1))
    world.restart(0)
    assert world.watch(4 * TIMEOUT_MS) == [], "one vote of three is left"
    world.rejoin(0)
    (home,) = world.watch(4 * TIMEOUT_MS)
    assert len(world.picture(home)) == 2, "what was answered"


def test_a_voter_with_an_old_disk_is_added_again() -> None:
    """T29.4 It gets replicas, and a new right (T28.4)."""
    world = VotesWorld(3)
    lost_put(world)
    restore(world, 1)
    world.link()
    world.pass_ms(8 * TIMEOUT_MS)
    right, mark = marked(world, 1)
    assert right == 4
    assert world.may_vouch(1)
    world.restart(0)
    (home,) = world.watch(4 * TIMEOUT_MS)
    assert len(world.picture(home)) == 2
    world.put(home)
    world.pass_ms(3 * MARK_MS)
    assert marked(world, 1) > (right, mark)


def test_a_leader_with_an_old_disk_sends_no_copies() -> None:
    """T27.5 sends no TUBE-COPY until it is elected

    T22.5 after a start its copy counts for votes as that one, not as the number up to which it
    skips (T18.7)
    """
    world = VotesWorld(3)
    world.put(0)
    world.pass_ms(3 * MARK_MS)
    world.disk(0).snapshot()
    world.put(0, b"answered")
    world.pass_ms(500)  # no mark of it yet: nobody notices the old disk
    assert world.answered(0) == world.tube(0).seq
    restore(world, 0)
    world.rejoin(0)
    world.pass_ms(500)
    assert [len(world.picture(i)) for i in (1, 2)] == [2, 2]
    (home,) = world.watch(4 * TIMEOUT_MS)
    assert len(world.picture(home)) == 2


def test_whom_nobody_told_trusts_its_disk() -> None:
    """T29.5 By `failover-disks trust` an old disk goes unnoticed if no reachable node knows of
    the newer disk epoch.
    """
    world = VotesWorld(3)
    lost_put(world)
    world.restart(0)
    restore(world, 1)
    world.link(1, 2)
    (home,) = world.watch(4 * TIMEOUT_MS)
    assert len(world.picture(home)) == 1, "the price of trust"


def test_who_asks_all_waits_for_them() -> None:
    """T29.3 with `ask` one of each majority, of the list on its disk and of the newest one"""
    world = VotesWorld(3)
    lost_put(world)
    world.restart(0)
    restore(world, 1)
    world.t(1).voter_state.asks_all = True
    world.link(1, 2)
    assert world.watch(4 * TIMEOUT_MS) == []
    assert world.t(1).voter_state.is_asking and not world.may_vouch(1)
    slot = world.slot(2, 1)
    assert world.t(2).voter_state.asking >> slot & 1 and not world.t(2).voter_state.lame >> slot & 1
    world.link()
    (home,) = world.watch(4 * TIMEOUT_MS)
    assert len(world.picture(home)) == 2, "node 0 has told of the newer mark"
    assert world.t(1).voter_state.right == 4, "a new one"


@pytest.mark.parametrize("asks_all", [False, True])
def test_a_healthy_disk_keeps_its_right(asks_all: bool) -> None:
    """T29.3 After a start a voter neither votes nor echoes nor is a candidate before others have
    sent which disk epoch of it they know.
    """
    world = VotesWorld(3)
    world.put(0)
    for _ in range(3):
        world.pass_ms(2 * MARK_MS)
        for i in range(3):
            world.restart(i)
            assert world.t(i).voter_state.is_asking
            world.t(i).voter_state.asks_all = asks_all
        for i in range(3):
            world.rejoin(i)
        assert not any(world.t(i).voter_state.is_asking for i in range(3))
        (home,) = world.watch(4 * TIMEOUT_MS)
        world.put(home)
    assert [world.t(i).voter_state.right for i in range(3)] == [1, 2, 2]
    assert len(world.picture(home)) == 4


def test_marks_are_kept_by_those_who_start() -> None:
    """T29.2 Each node remembers the highest disk epoch of each voter, on its disk as well."""
    world = VotesWorld(3)
    lost_put(world)
    world.rewrite(0)
    world.restart(0)
    restore(world, 1)
    world.link(0, 1)
    world.pass_ms(1_000)
    assert world.t(1).voter_state.right == 0


def test_a_mark_is_told_when_it_is_on_the_disk() -> None:
    """T29.1 It is sent once it is on the disk"""
    world = VotesWorld(3)
    world.stick(1)
    before = marked(world, 1)
    world.put(0)
    world.pass_ms(3 * MARK_MS)
    assert marked(world, 1) == before
    assert world.t(1).voter_state.mark_next == before[1] + 1
    world.stick()
    world.pass_ms(1_000)
    assert marked(world, 1) == (before[0], before[1] + 1)


def test_a_quiet_node_writes_no_marks() -> None:
    """T29.1 at most once a second if its journal got something else"""
    world = VotesWorld(3)
    world.put(0)
    world.pass_ms(5 * MARK_MS)
    before = [world.journal(i).seq for i in range(3)]
    world.pass_ms(10 * MARK_MS)
    assert [world.journal(i).seq for i in range(3)] == before


def test_the_list_waits_for_a_voter_that_asks() -> None:
    """T28.1 REMOVE is refused where the list after it would have no majority of voters that this
    node reaches and that have their right."""
    world = VotesWorld(3)
    world.restart(2)
    world.t(2).voter_state.asks_all = True
    world.restart(1)
    world.link(0, 2)
    world.pass_ms(2 * TIMEOUT_MS)
    assert world.t(2).voter_state.is_asking
    assert not world.t(0).voter_state.lame, "it is not removed by itself"
