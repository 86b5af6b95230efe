"""Homes of tubes and copies of their tasks, over several nodes (SPEC T17, T18)."""

from __future__ import annotations

import pytest
from homes_lab import HomesLab

from tuque.tubes.errors import HomeError, TubeError


def test_every_node_knows_of_every_tube() -> None:
    """T17.2 Every node knows of every tube its name, type, options, home and epoch."""
    lab = HomesLab(3)
    lab.make(0, b"fifottl", ttr_ms=1234, pri=7)
    for i in range(3):
        tube = lab.tube(i)
        assert (tube.type, tube.ttr_ms, tube.pri) == (b"fifottl", 1234, 7)
        assert (tube.home, tube.epoch) == (lab.nodes[0].node_id, 1)
    assert lab.states() == ["RUNNING", "INIT", "INIT"]


def test_elsewhere_a_command_names_the_home() -> None:
    """T17.3 Elsewhere than at home every command about the tube is refused."""
    lab = HomesLab(3)
    lab.make(0)
    with pytest.raises(HomeError) as e:
        lab.put(1)
    assert e.value.node_id == lab.nodes[0].node_id
    assert e.value.text == b"Tube 't' has its home there"


def test_every_other_node_holds_a_copy() -> None:
    """T18.1 Every other node holds a copy of every task of a tube that is not temporary."""
    lab = HomesLab(3)
    lab.make(0, b"utubettl")
    for i in range(30):
        lab.put(0, b"body %d" % i, utube=b"k%d" % (i % 4), pri=i % 3, delay_ms=i % 5 * 100)
    lab.run()
    while (task := lab.take(0)) is not None:
        if task.number % 2:
            lab.ack(0, task.number)
    lab.run()
    assert lab.picture(0) and lab.picture(0) == lab.picture(1) == lab.picture(2)
    assert lab.tube(1).seq == lab.tube(0).seq


def test_a_planned_switchover() -> None:
    """T20.4 The new home is STARTUP: it records the epoch, takes the tasks into its tables."""
    lab = HomesLab(3)
    lab.make(0)
    for i in range(10):
        lab.put(0, b"body %d" % i)
    task = lab.take(0)
    assert task is not None
    assert not lab.move(0, 2)
    lab.run()
    assert lab.states() == ["WAITING", "INIT", "RUNNING"]
    done = lab.done(0)
    assert done.error == b"" and (done.client, done.serial) == (5, 7)
    assert [lab.tube(i).epoch for i in range(3)] == [2, 2, 2]
    assert lab.picture(0) == lab.picture(1) == lab.picture(2)
    with pytest.raises(TubeError):
        lab.put(0)
    assert lab.put(2).number == 10
    lab.run()
    assert lab.picture(0) == lab.picture(1) == lab.picture(2)
