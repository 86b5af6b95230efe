"""Homes that are lost, and failover by command (SPEC T21, T22)."""

from __future__ import annotations

import pytest
from homes_lab import HomesLab

from refusals import said
from tuque.core.msgs import TubeYours
from tuque.server.replies.errors import resp_words, text_of
from tuque.tubes.model.errors import TubeError
from tuque.tubes.tasks.admin import register_driver
from tuque.tubes.types.utube import Fifo


def test_force_after_the_home_died() -> None:
    """T21.1 It is for a leader that cannot be reached, or for this node if it is the leader and
    waits since its start (T19.4) or a standstill (T19.7)."""
    lab = HomesLab(3, has_journal=True)
    lab.make(0)
    for i in range(10):
        lab.put(0, b"body %d" % i)
    lab.run()
    lab.live(1000)
    with pytest.raises(TubeError):
        lab.move(1, 2)
    lab.force(1)
    assert said(lab.done(1)) == b"the leader of tube 't' is reachable: run TUBE HOME on it"
    lab.die(0)
    lab.run()
    lab.force(1)
    done = lab.done(1)
    assert said(done) == b"" and done.tube is lab.tube(1)
    values = dict(done.values)
    assert values[b"home"] == lab.nodes[1].node_id
    assert (values[b"epoch"], values[b"copy"]) == (b"2", b"complete")
    assert values[b"stopped"] == b""
    assert (values[b"changes-missing"], values[b"next-id"]) == (b"0", b"1000010")
    assert lab.state(1) == "STARTUP"
    lab.live(9000)
    assert lab.state(1) == "STARTUP"  # twice cluster-node-timeout (T21.2)
    lab.live(2000)
    assert lab.runs_at() == [1]
    assert lab.put(1).number == 1000010
    lab.run()
    lab.revive(0)
    lab.live(1000)
    assert lab.states() == ["INIT", "RUNNING", "INIT"]
    assert lab.picture(0) == lab.picture(1) == lab.picture(2)


def test_a_home_that_was_overtaken() -> None:
    """T21.4 A former leader that comes back finds the higher epoch, is WAITING (INIT, if it was
    restarted), and replaces what it has by a replica of the new leader's tasks."""
    lab = HomesLab(3)
    lab.make(0)
    for _ in range(3):
        lab.put(0)
    lab.live(2000)
    lab.isolate(0)
    lab.put(0, b"only here")
    lab.put(0, b"and this")
    lab.live(500)
    lab.force(1)
    assert said(lab.done(1)) == b""
    for _ in range(40):
        lab.live(400)
        lab.runs_at()
    assert lab.runs_at() == [1]
    assert lab.put(1).number == 1_000_003
    lab.heal()
    lab.live(1000)
    assert lab.states() == ["WAITING", "RUNNING", "INIT"]
    assert lab.t(0).changes_lost == 2
    assert "without the last 2 changes here: 2 of them were answered" in lab.t(0).notes[0]
    old = lab.nodes[0].node_id[:8].decode()
    assert lab.t(1).notes == [f"tube t: its leader {old} was replaced by command"]  # T20.4
    assert lab.t(1).news == ["tube t: its leader is this node now (epoch 2)"]
    assert lab.picture(0) == lab.picture(1) == lab.picture(2)


def test_a_later_copy_stops_a_force() -> None:
    """T21.1 It is refused while this node can reach the leader, while it reaches no more than half
    of all nodes, and while a reachable node has a later replica; the error names that node."""
    lab = HomesLab(3)
    lab.make(0)
    lab.put(0)
    lab.run()
    lab.cut(0, 1)
    lab.put(0)
    lab.run()
    lab.isolate(0)
    lab.force(1)
    assert said(lab.done(1)) == b"node %s has a later copy of tube 't'" % lab.nodes[2].node_id
    lab.force(2)
    assert said(lab.done(2)) == b""


def test_a_copy_at_a_node_that_leaves_stops_a_force() -> None:
    """T21.1 A leaving node is asked too."""
    lab = HomesLab(2)
    lab.make(0)
    lab.put(0)
    lab.live(1000)
    lab.die(0)
    lab.revive(0)
    lab.leave(1)
    lab.force(0)
    assert said(lab.done(0)) == b"node %s has a later copy of tube 't'" % lab.nodes[1].node_id


def test_a_force_needs_more_than_half() -> None:
    """T21.1 It is refused while this node can reach the leader, while it reaches no more than half
    of all nodes, and while a reachable node has a later replica;"""
    lab = HomesLab(4)
    lab.make(0)
    lab.isolate(0)
    lab.cut(1, 3)
    lab.force(1)
    assert said(lab.done(1)) == b"this node reaches 2 of 4 nodes, and needs more than half of them"
    assert lab.state(1) == "INIT"


def test_of_two_nodes_one_is_enough() -> None:
    """T21.1 Of two nodes one is enough: the command itself asserts that the other one is dead."""
    lab = HomesLab(2, has_journal=True)
    lab.make(0)
    lab.put(0)
    lab.run()
    lab.die(0)
    lab.force(1)
    assert said(lab.done(1)) == b""
    lab.live(8_000)
    assert lab.states() == ["INIT", "STARTUP"]
    lab.revive(0)
    lab.live(1_000)  # it knows now that it is none (T21.2)
    assert lab.states() == ["INIT", "RUNNING"]


def test_a_home_of_two_nodes_restarts_without_the_other() -> None:
    """T19.4 Of two nodes, the other one must have sent it, or the leadership must be forced
    (T21).
    """
    lab = HomesLab(2, has_journal=True)
    lab.make(0)
    lab.put(0)
    lab.run()
    lab.die(0)
    lab.live(20_000)
    assert lab.runs_at() == []
    with pytest.raises(TubeError) as e:
        lab.put(0)
    assert resp_words(e.value) == b"NOQUORUM Tube 't' is INIT here: try again soon"
    lab.force(0)
    assert said(lab.done(0)) == b""
    lab.live(11_000)
    assert lab.runs_at() == [0]
    assert lab.put(0).number == 1_000_001


def test_a_node_without_its_journal_is_no_home() -> None:
    """T22.2 A node that starts without a journal has no replicas and leads no tube, whatever other
    nodes say."""
    lab = HomesLab(3)
    lab.make(0)
    lab.put(0)
    lab.live(1000)
    lab.die(0)
    lab.revive(0)
    lab.live(2000)
    assert lab.runs_at() == []
    with pytest.raises(TubeError) as e:
        lab.put(0)
    assert b"has lost it" in text_of(e.value)
    lab.force(1)
    assert said(lab.done(1)) == b""
    lab.live(11_000)
    assert lab.runs_at() == [1]
    assert len(lab.picture(0)) == 1


def test_a_tube_of_which_nobody_has_a_copy_goes_on_empty() -> None:
    """T21.1 A node without a replica takes the tube without tasks if no node that it reaches has
    one."""
    lab = HomesLab(3)
    lab.make(0)
    task = lab.put(0)
    lab.live(1000)
    for i in range(3):
        lab.die(i)
        lab.revive(i)
        lab.live(3000)
    assert lab.runs_at() == []
    lab.force(1)
    assert said(lab.done(1)) == b""
    lab.live(11_000)
    assert lab.runs_at() == [1]
    assert lab.picture(1) == {}
    assert lab.put(1).number > task.number + 900_000


def test_yours_for_a_node_that_lost_its_copy() -> None:
    """T22.2 A node that starts without a journal has no replicas and leads no tube, whatever other
    nodes say."""
    lab = HomesLab(3)
    lab.make(0)
    lab.put(0)
    lab.live(1000)
    lab.move(0, 1)
    while lab.tube(0).epoch == 1:
        lab.step()
    lab.isolate(1)
    lab.die(1)
    lab.revive(1)
    lab.live(2000)
    assert any(isinstance(m, TubeYours) for _, _, m in lab.log)
    assert lab.runs_at() == []
    lab.force(0)
    assert said(lab.done_last(0)) == b""
    lab.live(11_000)
    assert lab.runs_at() == [0] and len(lab.picture(1)) == 1


def test_a_copy_that_shows_two_of_a_sub_queue() -> None:
    """T18.2 the new state of the tasks that changed, in absolute records

    A forced leader takes the later of two TAKEN tasks."""
    lab = HomesLab(3)
    lab.make(0, b"utube")
    for _ in range(2):
        lab.put(0, utube=b"k")
    lab.run()
    lab.isolate(0)
    copies = lab.tube(1).copies
    for number in (0, 1):
        copies[number].status = ord("t")
        copies[number].token = 7 + number
    lab.force(1)
    assert said(lab.done(1)) == b""
    lab.live(12_000)
    assert lab.runs_at() == [1]
    assert [state[1] for state in lab.picture(1).values()] == ["r", "t"]


def test_who_asked_for_a_move_is_told_when_it_came_otherwise() -> None:
    """T21.4 A former leader that comes back finds the higher epoch

    A command that waits there gets a reply."""
    lab = HomesLab(3)
    lab.make(0)
    lab.put(0)
    lab.live(1000)
    lab.hold(1, 0)
    lab.move(0, 1)
    lab.run()
    lab.cut(0, 2)
    lab.force(2)
    assert said(lab.done(2)) == b"" and lab.t(0).home_done == []
    lab.release(1, 0)
    lab.run()
    done = lab.done(0)
    assert said(done) == b"the leader of tube 't' changed meanwhile"
    assert (done.client, done.serial) == (5, 7)
    lab.live(11_000)
    assert lab.runs_at() == [2]


def test_force_at_a_node_without_the_type() -> None:
    """T21.1 A node that could deliver no task (T20.1) takes the tube as well: it keeps the tasks,
    accepts puts, and the reply says so."""
    lab = HomesLab(3)
    register_driver(lab.nodes[0], lab.t(0), b"late", Fifo)
    lab.make(0, b"late")
    lab.put(0)
    lab.live(1000)
    lab.die(0)
    lab.run()
    lab.force(1)
    done = lab.done(1)
    assert said(done) == b"" and dict(done.values)[b"stopped"] == b"the type 'late' is not loaded"
    lab.live(11_000)
    assert lab.runs_at() == [1] and lab.take(1) is None
    assert "tube t has the type late, which is not installed: its tasks wait" in lab.t(1).notes
    assert lab.put(1).number > 0
    register_driver(lab.nodes[1], lab.t(1), b"late", Fifo)
    task = lab.take(1)
    assert task is not None and task.number == 0
