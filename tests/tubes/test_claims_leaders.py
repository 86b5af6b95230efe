"""Leaders without votes: lease by reach, start, standstill, FORCE (SPEC T18.7, T19 to T22).

This file is about leaders by claims alone: it goes with them.
"""

from __future__ import annotations

import pytest
from tubes_world import TubesWorld

from refusals import refused
from told_events import Told
from tuque.core.msgs.bus import TubeYours
from tuque.core.records.events import Events
from tuque.server.replies.errors import resp_words, text_of
from tuque.tubes.log.leader import homeless, state_of_node
from tuque.tubes.model.errors import TubeError
from tuque.tubes.tasks.admin import register_driver
from tuque.tubes.types.utube import Fifo


def test_a_home_that_reaches_too_few_waits() -> None:
    """T19.3 A leader without votes (T23.5) is WAITING while it reaches fewer than half of all
    nodes
    """
    world = TubesWorld(3)
    world.make(0)
    world.put(0)
    world.pass_ms(2000)
    world.isolate(0)
    world.pass_ms(4000)
    assert world.runs_at() == [0]
    world.pass_ms(2500)
    assert world.state_at(0) == "WAITING" and world.runs_at() == []
    with pytest.raises(TubeError) as e:
        world.put(0)
    assert resp_words(e.value) == b"NOQUORUM Tube 't': this node reaches 1 of 3 nodes"
    assert state_of_node(world.nodes[0].core, world.t(0)) == b"WAITING"
    world.link()
    world.pass_ms(1500)
    assert world.runs_at() == [0]
    assert world.put(0).number == 1


def test_an_epoch_is_on_the_disk_first() -> None:
    """T20.3 Only when they are on disk, under `everysec` too, TUBE-YOURS is sent.

    T20.4 is RUNNING when the epoch is on disk."""
    world = TubesWorld(3, has_journal=True)
    world.make(0)
    world.put(0)
    world.settle()
    world.move(0, 1)
    world.step_until(lambda: world.tube(0).epoch == 2)
    world.stick(0, 1)
    assert world.tube(0).epoch == 2 and world.state_at(0) == "ENDING"
    assert not any(isinstance(m, TubeYours) for _, _, m in world.heard())
    records = world.nodes[0].core.records
    assert records is not None and records.wish == 1
    world.stick(1)
    world.settle()
    assert world.states_at() == ["WAITING", "STARTUP", "INIT"]
    assert world.answers(0) == []
    world.stick()
    world.settle()
    assert world.runs_at() == [1] and world.said(0) == b""


def test_yours_is_said_again() -> None:
    """T20.3 TUBE-YOURS is sent, and again when a link opens. From then on the tube is WAITING
    here, also after a restart.
    """
    world = TubesWorld(3, has_journal=True)
    world.make(0)
    world.put(0)
    world.settle()
    world.move(0, 1)
    world.step_until(lambda: world.tube(0).is_owed)
    assert world.tube(0).epoch == 2 and world.tube(1).epoch == 1
    world.hold(0, 1)
    world.settle()
    world.restart(0)  # the epoch is on its disk, and nobody heard of it
    assert world.tube(0).is_owed and not world.tube(0).is_mine
    world.pass_ms(6000)
    assert world.runs_at() == []
    world.rejoin(0)
    world.pass_ms(1000)
    assert world.runs_at() == [1]
    assert world.picture(0) == world.picture(1) == world.picture(2)
    assert not world.tube(0).is_owed


def test_a_restart_of_the_home() -> None:
    """T19.4 After a start a leader is INIT until half of the nodes, itself counted, have sent their
    catalog"""
    world = TubesWorld(3, has_journal=True)
    world.make(0)
    for _ in range(5):
        world.put(0)
    world.settle()
    picture = world.picture(0)
    world.restart(0)
    assert world.state_at(0) == "INIT" and world.picture(0) == picture
    world.pass_ms(1000)
    assert world.runs_at() == []
    world.link(0, 1)
    world.pass_ms(1000)
    assert world.runs_at() == [0]
    world.link()
    world.pass_ms(1000)
    assert world.put(0).number == 5
    world.settle()
    assert world.picture(0) == world.picture(1) == world.picture(2)


def stood(world: TubesWorld, span_ms: int = 6_000) -> None:
    """Node 0 stands still while the others live; its links end."""
    world.stand_still(0)
    world.isolate(0)
    world.pass_ms(span_ms)


@pytest.mark.parametrize("count", [2, 3, 4])
def test_a_home_that_stood_still_does_nothing_before_it_has_heard(count: int) -> None:
    """T19.7 After a standstill (G8.4) each tube that this node leads is WAITING."""
    world = TubesWorld(count)
    world.make(0)
    for _ in range(3):
        world.put(0)
    world.pass_ms(1_000)
    taken = world.take(0, client=3)
    assert taken is not None
    world.pass_ms(1_000)
    stood(world)
    world.force(1)
    assert world.said(1) == b""
    world.pass_ms(16_000)
    assert world.runs_at() == [1]
    again = world.take(1, client=4)
    assert again is not None and again.number == taken.number
    world.go_on(0)
    with refused("stood still for 22000 ms"):
        world.put(0, b"lost, were it answered")
    with refused("stood still"):
        world.ack(0, int(taken.number), client=3)
    with refused("stood still"):
        world.take(0)
    world.settle()
    world.pass_ms(2_000)
    assert world.runs_at() == [1]
    assert world.state_at(0) == "WAITING"
    assert homeless(world.nodes[0].core, world.t(0)) == [b"t"]
    with refused("stood still"):
        world.put(0)
    world.link()
    world.pass_ms(2_000)
    assert world.runs_at() == [1]
    assert world.picture(0) == world.picture(1)
    assert len(world.picture(0)) == 3


def test_answers_from_before_are_no_answers() -> None:
    """T19.7 WAITING until half of all nodes, itself included (of two, the other one), have sent
    their catalog and replied to heartbeats sent since.
    """
    world = TubesWorld(2)
    world.make(0)
    world.put(0)
    world.pass_ms(1_000)
    world.stand_still(0)
    world.pass_ms(6_000)
    world.hold(1, 0)
    world.go_on(0)
    world.pass_ms(10_000)
    assert world.runs_at() == []
    with refused("stood still"):
        world.put(0)
    world.release(1, 0)
    world.pass_ms(1_500)
    assert world.runs_at() == [0]
    assert world.put(0).number == 1
    world.settle()


def test_of_two_nodes_an_operator_decides() -> None:
    """T21.1 It is for a leader that cannot be reached, or for this node if it is the leader and
    waits since its start (T19.4) or a standstill (T19.7)."""
    world = TubesWorld(2)
    world.make(0)
    world.put(0)
    world.make(0, name=b"other")
    taken = world.take(0, client=3)
    assert taken is not None
    world.pass_ms(1_000)
    stood(world)
    world.restart(1)
    assert homeless(world.nodes[0].core, world.t(0)) == []
    world.go_on(0)
    world.pass_ms(20_000)
    assert world.runs_at() == []
    assert homeless(world.nodes[0].core, world.t(0)) == [b"t", b"other"]  # T11.5
    world.force(0)
    assert world.said(0) == b""
    world.pass_ms(11_000)
    assert world.runs_at() == [0]
    assert world.runs_at(b"other") == []
    assert homeless(world.nodes[0].core, world.t(0)) == [b"other"]
    assert world.ack(0, int(taken.number), client=3).number == taken.number
    assert world.put(0).number == 1_000_001


def test_a_home_that_is_about_to_run_is_not_forced() -> None:
    """T21.1 It is refused while this node can reach the leader, while it reaches no more than half
    of all nodes, and while a reachable node has a later replica;"""
    world = TubesWorld(3, has_journal=True)
    world.make(1)
    world.pass_ms(1_000)
    world.begin_move(1, 0)
    world.step_until(lambda: world.state_at(0) == "STARTUP")
    world.stick(0)
    stood(world)
    world.go_on(0)
    assert world.state_at(0) == "STARTUP"  # its epoch is on the way to the disk
    with refused("is reachable"):
        world.force(0)
    world.stick()
    world.link()
    world.pass_ms(2_000)
    assert world.runs_at() == [0]


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
    world.cores[1].events = events = Events(1_000, 0)
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
    events.cut()
    (chunk,) = map(Told, events.full)
    assert chunk.reason == [b"by command, without its leader"]  # E1.8
    world.settle()
    world.rejoin(0)
    world.pass_ms(1000)
    assert world.states_at() == ["INIT", "RUNNING", "INIT"]
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


def power_cut(world: TubesWorld, i: int) -> None:
    """Node i loses what its disk has not synced, and starts again without a link."""
    world.end(i)
    world.disk(i).files.power_cut()
    world.begin(i)


@pytest.mark.parametrize("moves", [0, 1, 2])
def test_no_number_of_a_change_is_given_twice(moves: int) -> None:
    """T18.7 A number above those of a leader is on its disk before any of them is sent to another
    node, also under `everysec`.

    T18.7 TUBE-COPY and replies wait for that once in 65,536 changes, first in an epoch and after
    a start, which skips up to that number.
    """
    world = TubesWorld(3, has_journal=True)
    world.make(0)
    world.pass_ms(1000)
    for to in range(moves):
        world.put(to % 2)
        world.pass_ms(1000)
        world.move(to % 2, 1 - to % 2)
        world.pass_ms(1000)
    home = moves % 2
    for _ in range(2):  # also of a home that was loaded, and gave no number since
        for i in range(3):
            world.put(home, b"lost %d" % i)
            world.settle()
        assert world.picture(2) == world.picture(home)
        power_cut(world, home)
        world.link(home, 1 - home)  # node 2 has not heard of it yet
        world.pass_ms(2000)
        for i in range(3):
            world.put(home, b"new %d" % i)
            world.settle()
        world.link()
        world.pass_ms(2000)
        assert world.picture(2) == world.picture(1 - home) == world.picture(home)


def test_numbers_of_changes_that_were_told_to_nobody() -> None:
    """T18.7 A number above those of a leader is on its disk before any of them is sent to another
    node

    So are those of a leader that was alone, when another node comes."""
    world = TubesWorld(2, has_journal=True)
    world.isolate(1)
    world.nodes[0].core.others = 0
    world.make(0)
    world.pass_ms(1000)
    for _ in range(3):
        world.put(0, b"lost")
    world.pass_ms(1000)
    world.link()
    world.pass_ms(1000)
    assert world.picture(1) == world.picture(0)
    told = int(world.tube(1).seq)
    power_cut(world, 0)
    assert world.tube(0).seq > told
