"""Tubes of one name, and words of other nodes that are not about tubes: nothing is lost by them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from homes_lab import HomesLab

from refusals import refused, said
from tuque.core.copies.ack_gc import on_unknown_ack, on_unknown_fastack
from tuque.core.copies.federation import pause_queue
from tuque.core.msgs import TubeAt, TubeClaim, TubeClaimed
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
    lab = HomesLab(3)
    lab.make(0)
    lab.put(0)
    lab.move(0, 1)
    lab.live(1000)
    assert lab.runs_at() == [1]
    lab.die(0)
    lab.make(0)
    lab.heal()
    lab.live(2000)
    assert lab.tube(0).is_mine and lab.tube(1).is_mine
    assert lab.tube(1).conflict == lab.nodes[0].node_id
    assert sorted(lab.tube(1).tasks) == [0]


def test_a_home_that_was_away_hears_of_its_end_though_others_go_by_another_tube() -> None:
    """T17.5 They remember epoch and leader of the other tube until they stop"""
    lab = HomesLab(5, has_journal=True)
    lab.isolate(0)
    lab.make(3)
    lab.live(1000)
    lab.die(3)
    lab.force(4)
    lab.live(12_000)
    assert lab.tube(4).is_mine and lab.tube(4).epoch == 2
    lab.make(0)
    for other in (1, 2):
        lab.link(0, other)
    lab.live(2000)
    assert lab.tube(1).home == lab.tube(2).home == lab.nodes[0].node_id
    lab.link(3, 1)
    lab.link(3, 2)
    lab.live(3000)
    assert not lab.tube(3).is_mine


def test_the_home_of_another_tube_of_that_name_does_not_stop_a_force() -> None:
    """T21.1 The leader of another tube of that name (T17.5) does not count."""
    lab = HomesLab(4)
    lab.isolate(3)
    lab.make(0)
    lab.make(3)
    lab.put(0)
    lab.live(1000)
    lab.die(0)  # it has no journal: of its tube it is the home no more (T22.2)
    lab.heal()
    lab.live(1000)
    assert lab.tube(3).is_mine and lab.tube(1).conflict == lab.nodes[3].node_id
    lab.force(1)
    lab.live(12_000)
    assert said(lab.done(1)) == b""
    assert lab.tube(1).is_mine and sorted(lab.tube(1).tasks) == [0]
    assert lab.tube(0).home == lab.tube(2).home == lab.nodes[1].node_id
    assert lab.tube(3).is_mine, "each goes on at its home"
    lab.force(2)
    assert b"is reachable" in said(lab.done(2))


def test_of_two_nodes_one_goes_by_another_tube_and_the_other_one_is_forced() -> None:
    """T21.2 The next epoch is recorded and sent as in T20.4. The tube stays STARTUP until all nodes
    know the epoch, except nodes that reported following another tube of its name.
    """
    lab = HomesLab(2, has_journal=True)
    lab.make(0)
    lab.put(0)
    lab.move(0, 1)
    lab.live(1000)
    lab.isolate(1)
    lab.journals[1] = type(lab.journals[1])(1)
    lab.die(1)  # the home, and its disk is lost
    lab.make(1)
    lab.heal()
    lab.live(1000)
    assert lab.tube(1).is_mine and not lab.tube(0).is_mine
    assert lab.tube(0).maker == lab.nodes[0].node_id != lab.tube(1).maker
    lab.force(0)
    lab.live(1000)
    assert said(lab.done_last(0)) == b"" and lab.state(0) == "RUNNING"
    assert lab.tube(1).is_mine and sorted(lab.tube(0).tasks) == [0]


def test_what_a_node_remembers_of_a_tube_is_not_what_it_goes_by() -> None:
    """T21.2 until all nodes know the epoch, except nodes that reported following another tube of
    its name.

    A node that set this tube aside counts as such, although it reports what it knows of it."""
    lab = HomesLab(3)
    lab.make(2)
    lab.live(1000)
    lab.isolate(0)
    lab.die(2)  # it had no journal
    lab.make(2)
    lab.link(1, 2)
    lab.live(1000)
    old, new = lab.tube(0), lab.tube(1)
    assert old.maker == new.maker and old.made_ns < new.made_ns
    assert len(lab.t(1).aside) == 1
    n = lab.nodes[0]
    n.now_ms = lab.now_ms
    become_home(n, lab.t(0), old, 2, b"by hand")
    old.run_ms = -1  # as by force (T21.2)
    lab.link(0, 1)
    lab.live(500)
    assert old.apart == 1 << lab.slot(0, 1)
    lab.link(0, 2)
    lab.live(1000)
    assert lab.tube(0) is old and lab.state(0) == "RUNNING"


@pytest.mark.parametrize("is_temporary", [False, True])
def test_a_tube_does_not_move_to_who_goes_by_another_one(is_temporary: bool) -> None:
    """T20.1 A node may not lead the tube if it is read-only or leaves, or follows another tube of
    that name (T17.5): it would never accept this one."""
    lab = HomesLab(2)
    lab.isolate(0)
    for number in (0, 1):
        lab.make(number, temporary=is_temporary)
    lab.link(0, 1)
    lab.live(1000)
    assert [lab.tube(i).state for i in (0, 1)] == [RUNNING, RUNNING]
    for giver, taker in ((0, 1), (1, 0)):
        with refused("has another tube of that name"):
            lab.move(giver, taker)
    lab.live(1000)
    assert [lab.tube(i).state for i in (0, 1)] == [RUNNING, RUNNING]
    remove_tube(lab.nodes[1], lab.t(1), lab.tube(1))
    lab.live(1000)
    lab.move(0, 1)
    lab.live(1000)
    assert lab.runs_at() == [1]


def test_a_force_hears_of_a_later_home_where_the_tube_was_set_aside() -> None:
    """T17.5 They remember epoch and leader of the other tube until they stop

    T21.1 It is refused while this node can reach the leader"""
    lab = HomesLab(3)
    tube = lab.make(1)
    lab.live(1000)
    told = TubeClaim(b"t", 1, 3, tube.maker, tube.made_ns + 1, False)
    for epoch, answer in ((2, KNOWN), (3, ALIVE)):
        lab.t(0).aside[tube.maker, tube.made_ns + 1] = set_epoch(lab, epoch)
        on_tube_message(lab.nodes[0], lab.t(0), lab.slot(0, 2), told)
        lab.run()
        said = [m for a, b, m in lab.log if (a, b) == (0, 2) and isinstance(m, TubeClaimed)]
        assert said[-1] == TubeClaimed(b"t", 1, answer, 0, 0, False)


def set_epoch(lab: HomesLab, epoch: int) -> TubeAt:
    """The tube as node 0 would tell of it under that epoch."""
    at = at_of(lab.nodes[0], lab.tube(0))
    at.epoch = epoch
    return at


def test_a_tube_that_was_set_aside_for_another_one_was_not_dropped() -> None:
    """T17.5 Each continues as leader of its tube.

    T17.6 drop is sent to the other nodes, at once or when they are linked again

    Nothing else is, not even a journal in which the tube ends."""
    lab = HomesLab(3, has_journal=True)
    lab.isolate(0)
    lab.make(0)
    lab.make(1)
    lab.live(1000)
    assert lab.tube(2).maker == lab.nodes[1].node_id
    lab.cut(1, 2)
    lab.link(0, 2)
    lab.live(1000)
    assert lab.tube(2).maker == lab.nodes[0].node_id, "2 goes by the other one"
    lab.die(2)
    lab.link(1, 2)
    lab.live(2000)
    assert lab.tube(1).is_mine


def test_no_conflict_of_names_drops_a_replica_with_tasks() -> None:
    """K3.5 No conflict of names drops tasks: a node that has a replica with tasks of one tube does
    not follow another one of that name (T17.5) before the first one is dropped.
    """
    lab = HomesLab(3, has_journal=True)
    lab.isolate(0)
    lab.make(0)
    lab.make(1)
    lab.put(1)
    lab.live(1000)
    lab.link(0, 1)
    lab.link(0, 2)
    lab.live(2000)
    tube = lab.tube(2)
    assert (tube.maker, list(tube.copies)) == (lab.nodes[1].node_id, [0])
    assert tube.conflict == lab.tube(1).conflict == lab.nodes[0].node_id
    remove_tube(lab.nodes[1], lab.t(1), lab.tube(1))
    lab.live(2000)
    assert lab.tube(2).maker == lab.tube(1).maker == lab.nodes[0].node_id


@pytest.mark.parametrize("say_it", [on_unknown_ack, on_unknown_fastack])
def test_an_ack_at_a_node_that_does_not_know_the_task_does_nothing_to_it(
    say_it: Callable[..., None],
) -> None:
    """T1.4 Messages of other nodes about a job do nothing to a task, but for T1.12. An ack or end
    (A4, A10) and a question (K5.2) are answered as for an unknown job"""
    lab = HomesLab(2)
    lab.make(0, temporary=True)
    task = lab.put(0)
    lab.live(1000)
    arguments = (lab.nodes[1], 1, task.id) if say_it is on_unknown_ack else (lab.nodes[1], task.id)
    say_it(*arguments)
    lab.live(3000)
    check(lab.nodes[0])
    assert lab.tube(0).tasks[0] is task
    assert len(lab.nodes[1].jobs) == 0, "the ack is collected"
    assert lab.take(0) is task


def test_an_ack_that_is_faster_than_the_copy_does_nothing() -> None:
    """T1.4 Messages of other nodes about a job do nothing to a task, but for T1.12."""
    lab = HomesLab(3, has_journal=True)
    lab.make(0)
    lab.live(1000)
    lab.hold(0, 1)
    lab.cut(1, 2)
    task = lab.put(0)
    on_unknown_ack(lab.nodes[1], 1, task.id)
    assert task.id in lab.nodes[1].jobs
    lab.release(0, 1)
    lab.live(1000)
    assert task.id not in lab.nodes[1].jobs and list(lab.tube(1).copies) == [0]
    check(lab.nodes[1])
    lab.die(1)
    check(lab.nodes[1])
    assert list(lab.tube(1).copies) == [0]


def with_plain_jobs() -> tuple[HomesLab, list[bytes]]:
    """Node 1 made tube t while it had no link to node 0, which has a plain queue of that name."""
    lab = HomesLab(2, has_journal=True)
    lab.cut(0, 1)
    ids = [lab.add(0, b"t", replicate=1, retry_s=retry) for retry in (0, 5, 5)]
    lab.live(1000)
    lab.make(1)
    lab.put(1)
    return lab, ids


def test_plain_jobs_on_a_follower_go_to_the_leader() -> None:
    """T1.9 With each round of heartbeats (K4.1) up to 100 of them go to the leader as in F2.2"""
    lab, ids = with_plain_jobs()
    lab.link(0, 1)
    lab.live(1500)
    assert (lab.tube(0).plain, lab.tube(1).plain) == (0, 3)
    assert lab.take(1) is not None and lab.take(1) is None
    assert sorted(lab.get(1, b"t")[0] for _ in ids) == sorted(ids)
    assert ids[0] not in lab.nodes[0].jobs
    for n in lab.nodes:
        check(n)


@pytest.mark.parametrize("what", ["paused", "leaving", "full"])
def test_plain_jobs_stay_where_the_leader_would_refuse_them(what: str) -> None:
    """T1.9 unless the leader is not linked, leaves or has no room for jobs, or the input of the
    tube is paused"""
    lab, _ = with_plain_jobs()
    pause_queue(lab.nodes[1], b"t", PAUSE_IN if what == "paused" else 0, False)
    lab.link(0, 1)
    if what != "paused":
        peer = lab.nodes[0].peers[lab.slot(0, 1)]
        peer.is_leaving, peer.has_room = what == "leaving", what != "full"
    lab.live(1500)
    assert (lab.tube(0).plain, lab.tube(1).plain) == (3, 0)
    check(lab.nodes[0])
