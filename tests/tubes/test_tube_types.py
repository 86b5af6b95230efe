"""Homes and types of tubes that not every node has, or whose driver fails (SPEC T14, T19, T20)."""

from __future__ import annotations

import pytest
from homes_lab import HomesLab

from refusals import said
from tuque.core.model.task import Task
from tuque.core.queues.procedures import check
from tuque.tubes.log.leader import set_read_only
from tuque.tubes.model.driver_guard import why_stopped
from tuque.tubes.tasks import operations
from tuque.tubes.tasks.admin import register_driver
from tuque.tubes.types.driver import Driver
from tuque.tubes.types.utube import Fifo


def late(lab: HomesLab, *where: int) -> None:
    """Three tasks in a tube of a type that only node 0 and those nodes have."""
    for i in (0, *where):
        register_driver(lab.nodes[i], lab.t(i), b"late", Fifo)
    lab.make(0, b"late")
    for _ in range(3):
        lab.put(0)
    lab.live(1000)


@pytest.mark.parametrize("temporary", [False, True])
def test_no_move_to_a_node_without_the_type(temporary: bool) -> None:
    """T20.1 Nor may a node that could deliver no task of the tube, since its type is missing there
    (T14.5) or its driver failed (T3.8)."""
    lab = HomesLab(2)
    register_driver(lab.nodes[0], lab.t(0), b"late", Fifo)
    lab.make(0, b"late", temporary=temporary)
    lab.put(0)
    lab.live(1000)
    operations.wait(lab.nodes[0], lab.t(0), lab.make(0, b"late", b"u"), 4, 0)
    lab.run()
    node = lab.nodes[1].node_id
    for name in (b"t", b"u"):
        assert not lab.move(0, 1, name)
        lab.run()
        assert said(lab.done(0)) == (
            b"node %s lacks the type 'late' of tube '%s', which stays: install its package there "
            b"and run there TUBE REGISTERDRIVER 'late', or choose another node" % (node, name)
        )
    assert lab.runs_at() == [0] and lab.tube(0).epoch == 1
    assert list(lab.tube(0, b"u").waiters) == [4] and lab.t(0).news == [], "nothing ended"
    task = lab.take(0)
    assert task is not None and task.number == 0
    register_driver(lab.nodes[1], lab.t(1), b"late", Fifo)
    assert not lab.move(0, 1)
    lab.run()
    assert said(lab.done(0)) == b"" and lab.runs_at() == [1]


def test_no_move_to_a_node_where_the_driver_failed() -> None:
    """T20.1 or its driver failed (T3.8)."""
    lab = HomesLab(2)
    made = []

    def factory() -> Driver:
        made.append(1)
        if len(made) > 1:
            raise OSError("its file is away")
        return Fifo()

    register_driver(lab.nodes[0], lab.t(0), b"late", Fifo)
    register_driver(lab.nodes[1], lab.t(1), b"late", factory)
    lab.make(0, b"late")
    lab.put(0)
    assert not lab.move(0, 1)
    lab.run()
    begin = b"on node %s the driver of type 'late' of tube 't', which stays, has failed: "
    assert said(lab.done(0)).startswith(begin % lab.nodes[1].node_id)
    assert lab.runs_at() == [0]


@pytest.mark.parametrize("temporary", [False, True])
def test_a_node_that_is_emptied_asks_for_the_type(temporary: bool) -> None:
    """T19.5 A node that could deliver no task (T20.1; TUBE-GOT reports that) is chosen only if all
    are like that."""
    lab = HomesLab(4)
    for i in (0, 3):
        register_driver(lab.nodes[i], lab.t(i), b"late", Fifo)
    lab.make(0, b"late", temporary=temporary)
    lab.put(0)
    lab.live(1000)
    set_read_only(lab.nodes[0], lab.t(0), True)
    lab.live(2000)
    assert lab.runs_at() == [3]
    set_read_only(lab.nodes[0], lab.t(0), False)
    register_driver(lab.nodes[2], lab.t(2), b"late", Fifo)  # it has a copy already
    lab.live(1000)
    set_read_only(lab.nodes[0], lab.t(0), True)
    lab.live(1000)
    lab.leave(3)
    lab.live(3000)
    assert lab.runs_at() == [2]


def test_a_home_that_has_not_the_type() -> None:
    """T14.5 A tube whose type is no longer installed, or is not installed at its new leader (T19.5,
    T21), keeps its tasks and accepts puts."""
    lab = HomesLab(3)
    late(lab)
    assert lab.take(0) is not None
    lab.run()
    set_read_only(lab.nodes[2], lab.t(2), True)
    lab.run()
    set_read_only(lab.nodes[0], lab.t(0), True)
    lab.live(2000)
    assert lab.runs_at() == [1]
    set_read_only(lab.nodes[2], lab.t(2), False)
    lab.run()
    assert lab.t(1).notes == ["tube t has the type late, which is not installed: its tasks wait"]
    assert lab.take(1) is None
    assert lab.put(1).number == 3
    lab.run()
    register_driver(lab.nodes[2], lab.t(2), b"late", Fifo)  # it has copies only
    check(lab.nodes[2])
    assert not lab.move(1, 2)
    lab.run()
    assert lab.t(2).notes == []
    taken = [lab.take(2) for _ in range(5)]
    assert [task and task.number for task in taken] == [0, 1, 2, 3, None]
    check(lab.nodes[2])


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
    lab = HomesLab(3)
    for i in range(3):
        register_driver(lab.nodes[i], lab.t(i), b"once", Once)
    lab.make(0, b"once")
    lab.put(0)
    lab.live(1000)
    assert lab.take(0) is None
    assert why_stopped(b"once", lab.tube(0).driver) == "ValueError: not today"
    monkeypatch.setattr(Once, "is_broken", False)
    assert lab.take(0) is None
    lab.isolate(0)
    lab.live(7000)
    assert lab.state(0) == "WAITING"
    lab.heal()
    lab.live(1500)
    task = lab.take(0)
    assert task is not None and why_stopped(b"once", lab.tube(0).driver) == ""
