"""Tubes of one name, and words of other nodes that are not about tubes: nothing is lost by them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tubes_world import VotesWorld, voting

from refusals import refused
from tuque.core.copies.ack_gc import on_unknown_ack, on_unknown_fastack
from tuque.core.copies.federation import pause_queue
from tuque.core.node.queue import PAUSE_IN
from tuque.core.queues.procedures import check
from tuque.tubes.log.leader import set_read_only
from tuque.tubes.model.tube import RUNNING
from tuque.tubes.tasks.admin import remove_tube


def test_a_tube_does_not_move_to_who_goes_by_another_one() -> None:
    """T20.1 A node may not lead the tube if it is read-only or leaves, or follows another tube of
    that name (T17.5): it would never accept this one."""
    world = voting()
    world.isolate(0)
    for number in (0, 1):
        world.make(number, temporary=True)
    world.link()
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


@pytest.mark.parametrize("say_it", [on_unknown_ack, on_unknown_fastack])
def test_an_ack_at_a_node_that_does_not_know_the_task_does_nothing_to_it(
    say_it: Callable[..., None],
) -> None:
    """T1.4 Messages of other nodes about a job do nothing to a task, except T1.12. An ack or end
    (A4, A10) and a question (K5.2) are answered as for an unknown job
    """
    world = voting()
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
    world = voting()
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


def with_plain_jobs() -> tuple[VotesWorld, list[bytes]]:
    """Node 1 made tube t while it had no link to node 0, which has a plain queue of that name."""
    world = voting()
    world.isolate(0)
    ids = [world.run.add("t", replicate=1, retry=retry) for retry in (0, 5, 5)]
    world.pass_ms(1000)
    world.make(1)
    world.put(1)
    return world, ids


def test_plain_jobs_on_a_follower_go_to_the_leader() -> None:
    """T1.9 With each round of heartbeats (K4.1) up to 100 of them go to the leader as in F2.2"""
    world, ids = with_plain_jobs()
    world.link()
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
        for i in (0, 2):  # where the tube cannot go
            set_read_only(world.node(i).core, world.t(i), True)
        world.leave(1)
    if what == "full":
        world.nodes[1].core.limits.memory_bytes = 1
        world.settle()
    world.link()
    world.pass_ms(1500)
    assert (world.tube(0).plain, world.tube(1).plain) == (3, 0)
    check(world.nodes[0].core)
