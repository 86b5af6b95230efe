"""A tube stays paused wherever its home is (SPEC T17.7, P)."""

from __future__ import annotations

import pytest
from homes_lab import HomesLab

from tuque.core.copies.federation import pause_queue
from tuque.core.msgs import Pause
from tuque.core.node.queue import PAUSE_IN, PAUSE_OUT
from tuque.core.queues.deliver import set_pause
from tuque.tubes.model.errors import PAUSED, TubeError
from tuque.tubes.tasks import admin

BOTH = PAUSE_IN | PAUSE_OUT


def pause(lab: HomesLab, i: int, bits: int, is_bcast: bool = False) -> None:
    """PAUSE at node i, carried out to its end."""
    pause_queue(lab.nodes[i], b"t", bits, is_bcast)
    lab.run()


def pauses(lab: HomesLab) -> list[int]:
    """How each node believes that the tube is paused."""
    return [int(n.queues[b"t"].pause) for n in lab.nodes]


@pytest.mark.parametrize("bits", [PAUSE_IN, PAUSE_OUT, BOTH])
@pytest.mark.parametrize("has_journal", [False, True])
def test_a_pause_moves_with_the_tube(bits: int, has_journal: bool) -> None:
    """T17.7 A pause (P) of a tube belongs to its leader and moves with the leadership."""
    lab = HomesLab(3, has_journal)
    lab.make(0)
    lab.put(0)
    pause(lab, 0, bits)
    assert not lab.move(0, 1)
    lab.run()
    assert lab.runs_at() == [1]
    if bits & PAUSE_IN:
        with pytest.raises(TubeError) as e:
            lab.put(1)
        assert e.value.code == PAUSED
    assert (lab.take(1) is None) == (bits & PAUSE_OUT != 0)
    pause(lab, 1, 0)
    assert pauses(lab) == [0, 0, 0]
    assert lab.put(1).number == 1
    lab.run()
    assert not lab.move(1, 0)
    lab.run()
    assert lab.put(0).number == 2


def test_a_pause_outlives_restarts_of_copies() -> None:
    """T17.7 Each keeps it, also in its journal, for the time when it leads the tube."""
    lab = HomesLab(3, has_journal=True)
    lab.make(0)
    pause(lab, 0, BOTH)
    lab.die(1)
    assert pauses(lab) == [BOTH] * 3
    pause(lab, 0, PAUSE_IN)  # node 1 is away
    lab.revive(1)
    lab.live(1000)
    assert pauses(lab) == [PAUSE_IN] * 3
    lab.journals[1].rewrite(lab.nodes[1])
    lab.die(1)
    assert lab.tube(1).pause == PAUSE_IN


def test_a_pause_after_a_failover() -> None:
    """T17.7 After a failover (T21) the tube is paused as the lost leader last sent."""
    lab = HomesLab(3)
    lab.make(0)
    pause(lab, 0, BOTH)
    lab.live(1000)
    lab.isolate(0)
    pause_queue(lab.nodes[0], b"t", 0, False)
    lab.live(6000)
    lab.force(1)
    lab.live(20_000)
    assert lab.runs_at() == [1] and pauses(lab) == [0, BOTH, BOTH]
    pause(lab, 1, PAUSE_OUT)
    lab.heal()
    lab.live(1000)
    assert lab.runs_at() == [1] and pauses(lab) == [PAUSE_OUT] * 3


def test_who_was_away_hears_of_it_with_the_new_home() -> None:
    """T17.7 The leader sends the pause to every node (T17.2).

    So it does with a temporary tube."""
    lab = HomesLab(3)
    lab.make(0, temporary=True)
    lab.live(1000)
    lab.isolate(1)
    pause(lab, 0, BOTH)
    assert not lab.move(0, 2)
    lab.run()
    assert lab.runs_at() == [2] and pauses(lab) == [BOTH, 0, BOTH]
    lab.link(0, 1)  # its new home is not linked with it
    lab.run()
    assert lab.tube(1).epoch == 2 and pauses(lab) == [BOTH] * 3


def test_only_the_home_tells_of_a_pause() -> None:
    """T17.7 BCAST has no effect, and a PAUSE message of another node (P3) changes no tube."""
    lab = HomesLab(3)
    set_pause(lab.nodes[0], b"t", PAUSE_OUT)
    pause_queue(lab.nodes[1], b"t", PAUSE_IN, True)  # of a plain queue, older than the tube
    lab.run()
    set_pause(lab.nodes[2], b"t", BOTH)
    lab.make(2)
    assert pauses(lab) == [BOTH] * 3
    lab.log.clear()
    pause(lab, 2, PAUSE_OUT, is_bcast=True)
    lab.cut(1, 2)
    lab.link(1, 2)
    lab.run()
    assert pauses(lab) == [PAUSE_OUT] * 3
    assert {a for a, _, m in lab.log if isinstance(m, Pause)} <= {1}
    admin.drop(lab.nodes[2], lab.t(2), lab.tube(2))
    lab.run()
    assert pauses(lab) == [PAUSE_OUT] * 3
