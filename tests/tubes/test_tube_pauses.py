"""A tube stays paused wherever its home is (SPEC T17.7, P)."""

from __future__ import annotations

import pytest
from tubes_world import TubesWorld, voting

from tuque.core.copies.federation import pause_queue
from tuque.core.model.errors import PAUSED
from tuque.core.msgs.bus import Pause
from tuque.core.node.queue import PAUSE_IN, PAUSE_OUT
from tuque.core.queues.deliver import set_pause
from tuque.tubes.model.errors import TubeError
from tuque.tubes.tasks import admin

BOTH = PAUSE_IN | PAUSE_OUT


def pause(world: TubesWorld, i: int, bits: int, is_bcast: bool = False) -> None:
    """PAUSE at node i, carried out to its end."""
    pause_queue(world.nodes[i].core, b"t", bits, is_bcast)
    world.settle()


def pauses(world: TubesWorld) -> list[int]:
    """How each node believes that the tube is paused."""
    return [int(n.queues[b"t"].pause) for n in world.cores]


@pytest.mark.parametrize("bits", [PAUSE_IN, PAUSE_OUT, BOTH])
@pytest.mark.parametrize("has_journal", [False, True])
def test_a_pause_moves_with_the_tube(bits: int, has_journal: bool) -> None:
    """T17.7 A pause (P) of a tube belongs to its leader and moves with the leadership."""
    world = voting()
    world.make(0)
    world.put(0)
    pause(world, 0, bits)
    assert not world.move(0, 1)
    world.settle()
    assert world.runs_at() == [1]
    if bits & PAUSE_IN:
        with pytest.raises(TubeError) as e:
            world.put(1)
        assert e.value.code == PAUSED
    assert (world.take(1) is None) == (bits & PAUSE_OUT != 0)
    pause(world, 1, 0)
    assert pauses(world) == [0, 0, 0]
    assert world.put(1).number == 1
    world.settle()
    assert not world.move(1, 0)
    world.settle()
    assert world.put(0).number == 2


def test_a_pause_outlives_restarts_of_copies() -> None:
    """T17.7 each node keeps what the leader last sent, also in its journal."""
    world = voting()
    world.make(0)
    pause(world, 0, BOTH)
    world.restart(1)
    assert pauses(world) == [BOTH] * 3
    pause(world, 0, PAUSE_IN)  # node 1 is away
    world.rejoin(1)
    world.pass_ms(1000)
    assert pauses(world) == [PAUSE_IN] * 3
    world.rewrite(1)
    world.restart(1)
    assert world.tube(1).pause == PAUSE_IN


def test_a_pause_after_a_failover() -> None:
    """T17.7 each node keeps what the leader last sent, also in its journal."""
    world = voting()
    world.make(0)
    pause(world, 0, BOTH)
    world.pass_ms(1000)
    world.isolate(0)
    pause_queue(world.nodes[0].core, b"t", 0, False)
    world.pass_ms(6000)
    home = world.leads()
    assert home != 0 and pauses(world) == [0, BOTH, BOTH]
    pause(world, home, PAUSE_OUT)
    world.link()
    world.pass_ms(1000)
    assert world.runs_at() == [home] and pauses(world) == [PAUSE_OUT] * 3


def test_who_was_away_hears_of_it_with_the_new_home() -> None:
    """T17.7 each node keeps what the leader last sent.

    So it does with a temporary tube."""
    world = voting()
    world.make(0, temporary=True)
    world.pass_ms(1000)
    world.isolate(1)
    pause(world, 0, BOTH)
    assert not world.move(0, 2)
    world.settle()
    assert world.runs_at() == [2] and pauses(world) == [BOTH, 0, BOTH]
    world.link(0, 1)  # its new home is not linked with it
    world.settle()
    assert world.tube(1).epoch == 2 and pauses(world) == [BOTH] * 3


def test_only_the_home_tells_of_a_pause() -> None:
    """T17.7 BCAST and a PAUSE message (P3) change no tube."""
    world = voting()
    set_pause(world.nodes[0].core, b"t", PAUSE_OUT)
    pause_queue(world.nodes[1].core, b"t", PAUSE_IN, True)  # of a plain queue, older than the tube
    world.settle()
    set_pause(world.nodes[2].core, b"t", BOTH)
    world.make(2)
    assert pauses(world) == [BOTH] * 3
    world.forget_heard()
    pause(world, 2, PAUSE_OUT, is_bcast=True)
    world.cut(1, 2)
    world.link(1, 2)
    world.settle()
    assert pauses(world) == [PAUSE_OUT] * 3
    assert {a for a, _, m in world.heard() if isinstance(m, Pause)} <= {1}
    admin.drop(world.nodes[2].core, world.t(2), world.tube(2))
    world.settle()
    assert pauses(world) == [PAUSE_OUT] * 3
