"""Tubes of one name, and words of other nodes that are not about tubes: nothing is lost by them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tubes_world import TubesWorld

from refusals import refused
from tuque.core.copies.ack_gc import on_unknown_ack, on_unknown_fastack
from tuque.core.copies.federation import pause_queue
from tuque.core.msgs.bus import TubeAt, TubeClaim, TubeClaimed
from tuque.core.node.queue import PAUSE_IN
from tuque.core.queues.procedures import check
from tuque.tubes.leadership.controller import on_tube_message
from tuque.tubes.leadership.create import ALIVE, KNOWN
from tuque.tubes.leadership.switchover import become_home
from tuque.tubes.log.catalog import at_of
from tuque.tubes.model.tube import RUNNING
from tuque.tubes.tasks.admin import remove_tube


def test_a_tube_made_again_by_a_node_that_forgot_it_takes_nothing_from_its_home() -> None:
    """T17.5 Each continues as leader of its tube.

    T17.6 A leader that has lost its memory drops nothing"""
    world = TubesWorld(3)
    world.make(0)
    world.put(0)
    world.move(0, 1)
    world.pass_ms(1000)
    assert world.runs_at() == [1]
    world.restart(0)
    world.make(0)
    world.link()
    world.pass_ms(2000)
    assert world.tube(0).is_mine and world.tube(1).is_mine
    assert world.tube(1).conflict == world.id(0)
    assert sorted(world.tube(1).tasks) == [0]


def test_a_home_that_was_away_hears_of_its_end_though_others_go_by_another_tube() -> None:
    """T17.5 Of the other one they remember epoch and leader until they stop"""
    world = TubesWorld(5, has_journal=True)
    world.isolate(0)
    world.make(3)
    world.pass_ms(1000)
    world.restart(3)
    world.force(4)
    world.pass_ms(12_000)
    assert world.tube(4).is_mine and world.tube(4).epoch == 2
    world.make(0)
    for other in (1, 2):
        world.link(0, other)
    world.pass_ms(2000)
    assert world.tube(1).home == world.tube(2).home == world.id(0)
    world.link(3, 1)
    world.link(3, 2)
    world.pass_ms(3000)
    assert not world.tube(3).is_mine


def test_the_home_of_another_tube_of_that_name_does_not_stop_a_force() -> None:
    """T21.1 The leader of another tube of that name (T17.5) does not count."""
    world = TubesWorld(4)
    world.isolate(3)
    world.make(0)
    world.make(3)
    world.put(0)
    world.pass_ms(1000)
    world.restart(0)  # it has no journal: of its tube it is the home no more (T22.2)
    world.link()
    world.pass_ms(1000)
    assert world.tube(3).is_mine and world.tube(1).conflict == world.id(3)
    world.force(1)
    world.pass_ms(12_000)
    assert world.said(1) == b""
    assert world.tube(1).is_mine and sorted(world.tube(1).tasks) == [0]
    assert world.tube(0).home == world.tube(2).home == world.id(1)
    assert world.tube(3).is_mine, "each goes on at its home"
    world.force(2)
    assert b"is reachable" in world.said(2)


def test_of_two_nodes_one_goes_by_another_tube_and_the_other_one_is_forced() -> None:
    """T21.2 The next epoch is recorded and sent as in T20.4. The tube stays STARTUP until all
    nodes know the epoch, except those that follow another tube of its name.
    """
    world = TubesWorld(2, has_journal=True)
    world.make(0)
    world.put(0)
    world.move(0, 1)
    world.pass_ms(1000)
    world.end(1)
    world.disk(1).lose()
    world.begin(1)  # the home, and its disk is lost
    world.make(1)
    world.link()
    world.pass_ms(1000)
    assert world.tube(1).is_mine and not world.tube(0).is_mine
    assert world.tube(0).maker == world.id(0) != world.tube(1).maker
    world.force(0)
    world.pass_ms(1000)
    assert world.said_last(0) == b"" and world.state_at(0) == "RUNNING"
    assert world.tube(1).is_mine and sorted(world.tube(0).tasks) == [0]


def test_what_a_node_remembers_of_a_tube_is_not_what_it_goes_by() -> None:
    """T21.2 until all nodes know the epoch, except those that follow another tube of its name.

    A node that set this tube aside counts as such, although it reports what it knows of it."""
    world = TubesWorld(3)
    world.make(2)
    world.pass_ms(1000)
    world.isolate(0)
    world.restart(2)  # it had no journal
    world.make(2)
    world.link(1, 2)
    world.pass_ms(1000)
    old, new = world.tube(0), world.tube(1)
    assert old.maker == new.maker and old.made_ns < new.made_ns
    assert len(world.t(1).aside) == 1
    n = world.nodes[0].core
    become_home(n, world.t(0), old, 2, b"by hand")
    old.run_ms = -1  # as by force (T21.2)
    world.link(0, 1)
    world.pass_ms(500)
    assert old.apart == 1 << world.slot(0, 1)
    world.link(0, 2)
    world.pass_ms(1000)
    assert world.tube(0) is old and world.state_at(0) == "RUNNING"


@pytest.mark.parametrize("is_temporary", [False, True])
def test_a_tube_does_not_move_to_who_goes_by_another_one(is_temporary: bool) -> None:
    """T20.1 A node may not lead the tube if it is read-only or leaves, or follows another tube of
    that name (T17.5): it would never accept this one."""
    world = TubesWorld(2)
    world.isolate(0)
    for number in (0, 1):
        world.make(number, temporary=is_temporary)
    world.link(0, 1)
    world.pass_ms(1000)
    assert [world.tube(i).state for i in (0, 1)] == [RUNNING, RUNNING]
    for giver, taker in ((0, 1), (1, 0)):
        with refused("has another tube of that name"):
            world.move(giver, taker)
    world.pass_ms(1000)
    assert [world.tube(i).state for i in (0, 1)] == [RUNNING, RUNNING]
    remove_tube(world.nodes[1].core, world.t(1), world.tube(1))
    world.pass_ms(1000)
    world.move(0, 1)
    world.pass_ms(1000)
    assert world.runs_at() == [1]


def test_a_force_hears_of_a_later_home_where_the_tube_was_set_aside() -> None:
    """T17.5 Of the other one they remember epoch and leader until they stop

    T21.1 It is refused while this node can reach the leader"""
    world = TubesWorld(3)
    tube = world.make(1)
    world.pass_ms(1000)
    told = TubeClaim(b"t", 1, 3, tube.maker, tube.made_ns + 1, False)
    for epoch, answer in ((2, KNOWN), (3, ALIVE)):
        world.t(0).aside[tube.maker, tube.made_ns + 1] = set_epoch(world, epoch)
        on_tube_message(world.nodes[0].core, world.t(0), world.slot(0, 2), told)
        world.settle()
        told_back = [
            m for a, b, m in world.heard() if (a, b) == (0, 2) and isinstance(m, TubeClaimed)
        ]
        assert told_back[-1] == TubeClaimed(b"t", 1, answer, 0, 0, False)


def set_epoch(world: TubesWorld, epoch: int) -> TubeAt:
    """The tube as node 0 would tell of it under that epoch."""
    at = at_of(world.nodes[0].core, world.tube(0))
    at.epoch = epoch
    return at


def test_a_tube_that_was_set_aside_for_another_one_was_not_dropped() -> None:
    """T17.5 Each continues as leader of its tube.

    T17.6 drop is sent to the other nodes, at once or when they are linked again

    Nothing else is, not even a journal in which the tube ends."""
    world = TubesWorld(3, has_journal=True)
    world.isolate(0)
    world.make(0)
    world.make(1)
    world.pass_ms(1000)
    assert world.tube(2).maker == world.id(1)
    world.cut(1, 2)
    world.link(0, 2)
    world.pass_ms(1000)
    assert world.tube(2).maker == world.id(0), "2 goes by the other one"
    world.restart(2)
    world.link(1, 2)
    world.pass_ms(2000)
    assert world.tube(1).is_mine


def test_no_conflict_of_names_drops_a_replica_with_tasks() -> None:
    """K3.5 No conflict of names drops tasks: a node that has a replica with tasks of one tube does
    not follow another one of that name (T17.5) before the first one is dropped.
    """
    world = TubesWorld(3, has_journal=True)
    world.isolate(0)
    world.make(0)
    world.make(1)
    world.put(1)
    world.pass_ms(1000)
    world.link(0, 1)
    world.link(0, 2)
    world.pass_ms(2000)
    tube = world.tube(2)
    assert (tube.maker, list(tube.copies)) == (world.id(1), [0])
    assert tube.conflict == world.tube(1).conflict == world.id(0)
    remove_tube(world.nodes[1].core, world.t(1), world.tube(1))
    world.pass_ms(2000)
    assert world.tube(2).maker == world.tube(1).maker == world.id(0)


@pytest.mark.parametrize("say_it", [on_unknown_ack, on_unknown_fastack])
def test_an_ack_at_a_node_that_does_not_know_the_task_does_nothing_to_it(
    say_it: Callable[..., None],
) -> None:
    """T1.4 Messages of other nodes about a job do nothing to a task, except T1.12. An ack or end
    (A4, A10) and a question (K5.2) are answered as for an unknown job
    """
    world = TubesWorld(2)
    world.make(0, temporary=True)
    task = world.put(0)
    world.pass_ms(1000)
    n = world.nodes[1].core
    say_it(*((n, 1, task.id) if say_it is on_unknown_ack else (n, task.id)))
    world.pass_ms(3000)
    check(world.nodes[0].core)
    assert world.tube(0).tasks[0] is task
    assert len(world.nodes[1].core.jobs) == 0, "the ack is collected"
    assert world.take(0) is task


def test_an_ack_that_is_faster_than_the_copy_does_nothing() -> None:
    """T1.4 Messages of other nodes about a job do nothing to a task, except T1.12."""
    world = TubesWorld(3, has_journal=True)
    world.make(0)
    world.pass_ms(1000)
    world.hold(0, 1)
    world.cut(1, 2)
    task = world.put(0)
    on_unknown_ack(world.nodes[1].core, 1, task.id)
    assert task.id in world.nodes[1].core.jobs
    world.release(0, 1)
    world.pass_ms(1000)
    assert task.id not in world.nodes[1].core.jobs and list(world.tube(1).copies) == [0]
    check(world.nodes[1].core)
    world.restart(1)
    check(world.nodes[1].core)
    assert list(world.tube(1).copies) == [0]


def with_plain_jobs() -> tuple[TubesWorld, list[bytes]]:
    """Node 1 made tube t while it had no link to node 0, which has a plain queue of that name."""
    world = TubesWorld(2, has_journal=True)
    world.cut(0, 1)
    ids = [world.run.add("t", replicate=1, retry=retry) for retry in (0, 5, 5)]
    world.pass_ms(1000)
    world.make(1)
    world.put(1)
    return world, ids


def test_plain_jobs_on_a_follower_go_to_the_leader() -> None:
    """T1.9 With each round of heartbeats (K4.1) up to 100 of them go to the leader as in F2.2"""
    world, ids = with_plain_jobs()
    world.link(0, 1)
    world.pass_ms(1500)
    assert (world.tube(0).plain, world.tube(1).plain) == (0, 3)
    assert world.take(1) is not None and world.take(1) is None
    assert sorted(world.wire(1).get("t")[0] for _ in ids) == sorted(ids)
    assert ids[0] not in world.nodes[0].core.jobs
    for n in world.cores:
        check(n)


@pytest.mark.parametrize("what", ["paused", "leaving", "full"])
def test_plain_jobs_stay_where_the_leader_would_refuse_them(what: str) -> None:
    """T1.9 unless the leader is not linked, leaves or has no room for jobs, or the input of the
    tube is paused"""
    world, _ = with_plain_jobs()
    pause_queue(world.nodes[1].core, b"t", PAUSE_IN if what == "paused" else 0, False)
    if what == "leaving":
        world.leave(1)
    if what == "full":
        world.nodes[1].core.limits.memory_bytes = 1
        world.settle()
    world.link(0, 1)
    world.pass_ms(1500)
    assert (world.tube(0).plain, world.tube(1).plain) == (3, 0)
    check(world.nodes[0].core)
