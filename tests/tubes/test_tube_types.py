"""Homes and types of tubes that not every node has, or whose driver fails (SPEC T14, T19, T20)."""

from __future__ import annotations

import pytest
from tubes_world import TubesWorld, voting

from tuque.core.model.task import Task
from tuque.core.queues.procedures import check
from tuque.tubes.log.leader import set_read_only
from tuque.tubes.model.driver_guard import why_stopped
from tuque.tubes.tasks import operations
from tuque.tubes.tasks.admin import register_driver
from tuque.tubes.types.driver import Driver
from tuque.tubes.types.utube import Fifo


def late(world: TubesWorld, *where: int) -> None:
    """Three tasks in a tube of a type that only node 0 and those nodes have."""
    for i in (0, *where):
        register_driver(world.nodes[i].core, world.t(i), b"late", Fifo)
    world.make(0, b"late")
    for _ in range(3):
        world.put(0)
    world.pass_ms(1000)


@pytest.mark.parametrize("temporary", [False, True])
def test_no_move_to_a_node_without_the_type(temporary: bool) -> None:
    """T20.1 Nor may a node that could deliver no task of the tube, since its type is missing there
    (T14.5) or its driver failed (T3.8)."""
    world = voting()
    register_driver(world.nodes[0].core, world.t(0), b"late", Fifo)
    world.make(0, b"late", temporary=temporary)
    world.put(0)
    world.pass_ms(1000)
    operations.wait(world.nodes[0].core, world.t(0), world.make(0, b"late", b"u"), 4, 0)
    world.settle()
    node = world.id(1)
    for name in (b"t", b"u"):
        assert not world.move(0, 1, name)
        world.settle()
        assert world.said(0) == (
            b"node %s lacks the type 'late' of tube '%s', which stays: install its package there "
            b"and run there TUBE REGISTERDRIVER 'late', or choose another node" % (node, name)
        )
    assert world.runs_at() == [0] and world.tube(0).epoch == 1
    assert list(world.tube(0, b"u").waiters) == [4], "nothing ended"
    assert not any("its leader will be" in line for line in world.news(0))
    task = world.take(0)
    assert task is not None and task.number == 0
    register_driver(world.nodes[1].core, world.t(1), b"late", Fifo)
    assert not world.move(0, 1)
    world.settle()
    assert world.said(0) == b"" and world.runs_at() == [1]


def test_no_move_to_a_node_where_the_driver_failed() -> None:
    """T20.1 or its driver failed (T3.8)."""
    world = voting()
    made = []

    def factory() -> Driver:
        made.append(1)
        if len(made) > 1:
            raise OSError("its file is away")
        return Fifo()

    register_driver(world.nodes[0].core, world.t(0), b"late", Fifo)
    register_driver(world.nodes[1].core, world.t(1), b"late", factory)
    world.make(0, b"late")
    world.put(0)
    assert not world.move(0, 1)
    world.settle()
    begin = b"on node %s the driver of type 'late' of tube 't', which stays, has failed: "
    assert world.said(0).startswith(begin % world.id(1))
    assert world.runs_at() == [0]


@pytest.mark.parametrize("temporary", [False, True])
def test_a_node_that_is_emptied_asks_for_the_type(temporary: bool) -> None:
    """T19.5 one that could deliver no task (TUBE-GOT has that) comes last."""
    world = voting(4)
    for i in (0, 3):
        register_driver(world.nodes[i].core, world.t(i), b"late", Fifo)
    world.make(0, b"late", temporary=temporary)
    world.put(0)
    world.pass_ms(1000)
    set_read_only(world.nodes[0].core, world.t(0), True)
    world.pass_ms(2000)
    assert world.runs_at() == [3]
    set_read_only(world.nodes[0].core, world.t(0), False)
    register_driver(world.nodes[2].core, world.t(2), b"late", Fifo)  # it has a copy already
    world.pass_ms(1000)
    set_read_only(world.nodes[0].core, world.t(0), True)
    world.pass_ms(1000)
    world.leave(3)
    world.pass_ms(3000)
    assert world.runs_at() == [2]


def test_a_home_that_has_not_the_type() -> None:
    """T14.5 A tube whose type is not installed here keeps its tasks and accepts puts."""
    world = voting()
    late(world)
    assert world.take(0) is not None
    world.settle()
    set_read_only(world.nodes[2].core, world.t(2), True)
    world.settle()
    set_read_only(world.nodes[0].core, world.t(0), True)
    world.pass_ms(2000)
    assert world.runs_at() == [1]
    set_read_only(world.nodes[2].core, world.t(2), False)
    world.settle()
    absent = "tube t has the type late, which is not installed: its tasks wait"
    assert absent in world.warnings(1)
    assert world.take(1) is None
    assert world.put(1).number == 3
    world.settle()
    register_driver(world.nodes[2].core, world.t(2), b"late", Fifo)  # it has copies only
    check(world.nodes[2].core)
    assert not world.move(1, 2)
    world.settle()
    assert absent not in world.warnings(2)
    taken = [world.take(2) for _ in range(5)]
    assert [task and task.number for task in taken] == [0, 1, 2, 3, None]
    check(world.nodes[2].core)


class Once(Driver):
    """Fails with the first task that it is asked for."""

    is_broken = True

    def first(self) -> Task | None:
        if self.is_broken:
            raise ValueError("not today")
        return super().first()


def test_a_driver_that_failed_begins_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """T3.8 It delivers no task until it runs again (T19: after a start, or after its leadership
    moved or was suspended)."""
    world = voting()
    for i in range(3):
        register_driver(world.nodes[i].core, world.t(i), b"once", Once)
    world.make(0, b"once")
    world.put(0)
    world.pass_ms(1000)
    assert world.take(0) is None
    assert why_stopped(b"once", world.tube(0).driver) == "ValueError: not today"
    monkeypatch.setattr(Once, "is_broken", False)
    assert world.take(0) is None
    world.isolate(1)
    world.isolate(2)
    world.pass_ms(7000)
    assert world.state_at(0) == "WAITING"
    world.link()
    home = world.leads()
    task = world.take(home)
    assert task is not None and why_stopped(b"once", world.tube(home).driver) == ""
