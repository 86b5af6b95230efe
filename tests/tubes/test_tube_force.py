"""Homes that are lost, and failover by command (SPEC T21, T22)."""

from __future__ import annotations

import pytest
from tubes_world import TubesWorld

from tuque.core.msgs.bus import TubeYours
from tuque.server.replies.errors import resp_words, text_of
from tuque.tubes.model.errors import TubeError
from tuque.tubes.tasks.admin import register_driver
from tuque.tubes.types.utube import Fifo


def test_force_after_the_home_died() -> None:
    """T21.1 It is for a leader that cannot be reached, or for this node if it is the leader and
    waits since its start (T19.4) or a standstill (T19.7)."""
    world = TubesWorld(3, has_journal=True)
    world.make(0)
    for i in range(10):
        world.put(0, b"body %d" % i)
    world.settle()
    world.pass_ms(1000)
    with pytest.raises(TubeError):
        world.move(1, 2)
    world.force(1)
    assert world.said(1) == b"the leader of tube 't' is reachable: run TUBE HOME on it"
    world.restart(0)
    world.settle()
    world.force(1)
    values = world.told(1)
    assert values[b"home"] == world.id(1)
    assert (values[b"epoch"], values[b"copy"]) == (b"2", b"complete")
    assert values[b"stopped"] == b""
    assert (values[b"changes-missing"], values[b"next-id"]) == (b"0", b"1000010")
    assert world.state_at(1) == "STARTUP"
    world.pass_ms(9000)
    assert world.state_at(1) == "STARTUP"  # twice cluster-node-timeout (T21.2)
    world.pass_ms(2000)
    assert world.runs_at() == [1]
    assert world.put(1).number == 1000010
    world.settle()
    world.rejoin(0)
    world.pass_ms(1000)
    assert world.states_at() == ["INIT", "RUNNING", "INIT"]
    assert world.picture(0) == world.picture(1) == world.picture(2)


def test_a_home_that_was_overtaken() -> None:
    """T21.4 A former leader that comes back finds the higher epoch, is WAITING (INIT, if it was
    restarted), and replaces what it has by a replica of the new leader's tasks."""
    world = TubesWorld(3)
    world.make(0)
    for _ in range(3):
        world.put(0)
    world.pass_ms(2000)
    world.isolate(0)
    world.put(0, b"only here")
    world.put(0, b"and this")
    world.pass_ms(500)
    world.force(1)
    assert world.said(1) == b""
    for _ in range(40):
        world.pass_ms(400)
        world.runs_at()
    assert world.runs_at() == [1]
    assert world.put(1).number == 1_000_003
    world.link()
    world.pass_ms(1000)
    assert world.states_at() == ["WAITING", "RUNNING", "INIT"]
    assert world.t(0).changes_lost == 2
    told = "without the last 2 changes here: 2 of them were answered"
    assert any(told in line for line in world.warnings(0))
    old = world.id(0)[:8].decode()
    assert world.warnings(1) == [f"tube t: its leader {old} was replaced by command"]  # T20.4
    assert world.news(1) == ["tube t: its leader is this node now (epoch 2)"]
    assert world.picture(0) == world.picture(1) == world.picture(2)


def test_a_later_copy_stops_a_force() -> None:
    """T21.1 It is refused while this node can reach the leader, while it reaches no more than half
    of all nodes, and while a reachable node has a later replica; the error names that node."""
    world = TubesWorld(3)
    world.make(0)
    world.put(0)
    world.settle()
    world.cut(0, 1)
    world.put(0)
    world.settle()
    world.isolate(0)
    world.force(1)
    assert world.said(1) == b"node %s has a later copy of tube 't'" % world.id(2)
    world.force(2)
    assert world.said(2) == b""


def test_a_copy_at_a_node_that_leaves_stops_a_force() -> None:
    """T21.1 A leaving node is asked too."""
    world = TubesWorld(2)
    world.make(0)
    world.put(0)
    world.pass_ms(1000)
    world.restart(0)
    world.rejoin(0)
    world.leave(1)
    world.force(0)
    assert world.said(0) == b"node %s has a later copy of tube 't'" % world.id(1)


def test_a_force_needs_more_than_half() -> None:
    """T21.1 It is refused while this node can reach the leader, while it reaches no more than half
    of all nodes, and while a reachable node has a later replica;"""
    world = TubesWorld(4)
    world.make(0)
    world.isolate(0)
    world.cut(1, 3)
    world.force(1)
    assert world.said(1) == b"this node reaches 2 of 4 nodes, and needs more than half of them"
    assert world.state_at(1) == "INIT"


def test_of_two_nodes_one_is_enough() -> None:
    """T21.1 Of two nodes one is enough: the command itself asserts that the other one is dead."""
    world = TubesWorld(2, has_journal=True)
    world.make(0)
    world.put(0)
    world.settle()
    world.restart(0)
    world.force(1)
    assert world.said(1) == b""
    world.pass_ms(8_000)
    assert world.states_at() == ["INIT", "STARTUP"]
    world.rejoin(0)
    world.pass_ms(1_000)  # it knows now that it is none (T21.2)
    assert world.states_at() == ["INIT", "RUNNING"]


def test_a_home_of_two_nodes_restarts_without_the_other() -> None:
    """T19.4 of two nodes, the other one, unless it is forced (T21)."""
    world = TubesWorld(2, has_journal=True)
    world.make(0)
    world.put(0)
    world.settle()
    world.restart(0)
    world.pass_ms(20_000)
    assert world.runs_at() == []
    with pytest.raises(TubeError) as e:
        world.put(0)
    assert resp_words(e.value) == b"NOQUORUM Tube 't' is INIT here: try again soon"
    world.force(0)
    assert world.said(0) == b""
    world.pass_ms(11_000)
    assert world.runs_at() == [0]
    assert world.put(0).number == 1_000_001


def test_a_node_without_its_journal_is_no_home() -> None:
    """T22.2 A node that starts without a journal has no replicas and leads no tube, whatever other
    nodes say."""
    world = TubesWorld(3)
    world.make(0)
    world.put(0)
    world.pass_ms(1000)
    world.restart(0)
    world.rejoin(0)
    world.pass_ms(2000)
    assert world.runs_at() == []
    with pytest.raises(TubeError) as e:
        world.put(0)
    assert b"has lost it" in text_of(e.value)
    world.force(1)
    assert world.said(1) == b""
    world.pass_ms(11_000)
    assert world.runs_at() == [1]
    assert len(world.picture(0)) == 1


def test_a_tube_of_which_nobody_has_a_copy_goes_on_empty() -> None:
    """T21.1 A node without a replica takes the tube without tasks if no node that it reaches has
    one."""
    world = TubesWorld(3)
    world.make(0)
    task = world.put(0)
    world.pass_ms(1000)
    for i in range(3):
        world.restart(i)
        world.rejoin(i)
        world.pass_ms(3000)
    assert world.runs_at() == []
    world.force(1)
    assert world.said(1) == b""
    world.pass_ms(11_000)
    assert world.runs_at() == [1]
    assert world.picture(1) == {}
    assert world.put(1).number > task.number + 900_000


def test_yours_for_a_node_that_lost_its_copy() -> None:
    """T22.2 A node that starts without a journal has no replicas and leads no tube, whatever other
    nodes say."""
    world = TubesWorld(3)
    world.make(0)
    world.put(0)
    world.pass_ms(1000)
    world.move(0, 1)
    world.step_until(lambda: any(isinstance(m, TubeYours) for _, _, m in world.heard()))
    world.restart(1)
    world.rejoin(1)
    world.pass_ms(2000)
    assert world.runs_at() == []
    world.force(0)
    assert world.said_last(0) == b""
    world.pass_ms(11_000)
    assert world.runs_at() == [0] and len(world.picture(1)) == 1


def test_a_copy_that_shows_two_of_a_sub_queue() -> None:
    """T18.2 the new state of the tasks that changed, in absolute records

    A forced leader takes the later of two TAKEN tasks."""
    world = TubesWorld(3)
    world.make(0, b"utube")
    for _ in range(2):
        world.put(0, utube=b"k")
    world.settle()
    world.isolate(0)
    copies = world.tube(1).copies
    for number in (0, 1):
        copies[number].status = ord("t")
        copies[number].token = 7 + number
    world.force(1)
    assert world.said(1) == b""
    world.pass_ms(12_000)
    assert world.runs_at() == [1]
    assert [state[1] for state in world.picture(1).values()] == ["r", "t"]


def test_who_asked_for_a_move_is_told_when_it_came_otherwise() -> None:
    """T21.4 A former leader that comes back finds the higher epoch

    A command that waits there gets a reply."""
    world = TubesWorld(3)
    world.make(0)
    world.put(0)
    world.pass_ms(1000)
    world.hold(1, 0)
    world.move(0, 1)
    world.settle()
    world.cut(0, 2)
    world.force(2)
    assert world.said(2) == b"" and world.answers(0) == []
    world.release(1, 0)
    world.settle()
    assert world.said(0) == b"the leader of tube 't' changed meanwhile"
    world.pass_ms(11_000)
    assert world.runs_at() == [2]


def test_force_at_a_node_without_the_type() -> None:
    """T21.1 A node that could deliver no task (T20.1) takes the tube as well: it keeps the
    tasks, accepts puts, and the reply has that.
    """
    world = TubesWorld(3)
    register_driver(world.nodes[0].core, world.t(0), b"late", Fifo)
    world.make(0, b"late")
    world.put(0)
    world.pass_ms(1000)
    world.restart(0)
    world.settle()
    world.force(1)
    assert world.told(1)[b"stopped"] == b"the type 'late' is not loaded"
    world.pass_ms(11_000)
    assert world.runs_at() == [1] and world.take(1) is None
    assert "tube t has the type late, which is not installed: its tasks wait" in world.warnings(1)
    assert world.put(1).number > 0
    register_driver(world.nodes[1].core, world.t(1), b"late", Fifo)
    task = world.take(1)
    assert task is not None and task.number == 0
