"""A dropped tube does not come back, however often its name is used again (SPEC T17.6)."""

from __future__ import annotations

import pytest
from tubes_world import TubesWorld, VotesWorld, voting

from raw_resp import encode
from tuque.core.queues.procedures import check
from tuque.tubes.leadership.check import check_homes
from tuque.tubes.log.catalog import DROPPED_MAX, DROPPED_OF_NAME, bury_tube, drop_of
from tuque.tubes.model.tubes import Dropped
from tuque.tubes.tasks.admin import drop
from world import World

AWAY = 2
CREATE = ("TUBE", "CREATE", "t", "fifo")
DROP = ("TUBE", "DROP", "t")


def call(world: TubesWorld, i: int, *words: object) -> None:
    """A command at node i, which is done."""
    assert world.wire(i).ask(*words) == b"OK"
    world.settle()


def with_acked() -> VotesWorld:
    """Node 2 is down, with a tube of node 0 and two tasks: one of them was acked meanwhile."""
    world = VotesWorld(3)
    for _ in range(2):
        world.put(0)
    world.pass_ms(500)
    assert sorted(world.tube(AWAY).copies) == [0, 1]
    world.kill(AWAY)
    assert world.take(0) is not None
    world.ack(0, 0)
    return world


def comes_back(world: TubesWorld, *names: bytes) -> None:
    """Node 2 starts; all have these tubes then, and no other one."""
    world.start(AWAY)
    world.link()
    world.pass_ms(10_000)
    for i in world.numbers():
        assert list(world.t(i).by_name) == list(names), i
        check_homes(world.node(i).core, world.t(i))
        check(world.node(i).core)


@pytest.mark.parametrize("maker", [0, 1])
@pytest.mark.parametrize("has_restarts", [False, True])
def test_a_tube_stays_dropped_though_its_name_was_used_again(
    maker: int, has_restarts: bool
) -> None:
    """T17.6 A drop means one tube, by its creator and instant: a later tube of that name does not
    end it."""
    world = with_acked()
    call(world, 0, *DROP)
    for _ in range(3):
        call(world, maker, *CREATE)
        world.pass_ms(1_000)
        call(world, maker, *DROP)
    if has_restarts:
        world.rewrite(0)
        for i in (0, 1):
            world.restart(i)
            world.link(0, 1)
        world.pass_ms(1_000)
    comes_back(world)


def test_a_new_tube_keeps_the_name() -> None:
    """T17.6 they delete their replicas, or report another tube that they follow.

    The tube that is there now has none of the tasks of the first one."""
    world = with_acked()
    for words in (DROP, CREATE):
        call(world, 0, *words)
    world.pass_ms(1_000)
    task = world.put(0, b"new")
    comes_back(world, b"t")
    assert all(list(world.picture(i)) == [task.number] for i in world.numbers())
    assert world.runs_at() == [0]


def test_a_drop_outlives_the_nodes_that_had_the_tube() -> None:
    """T17.6 All nodes keep it, in the journal too, also those that never had the tube.

    Node 1 did not know the tube; it tells node 2 of the drop, though node 0 is gone."""
    world = voting()
    world.isolate(1)
    world.make(0)
    world.put(0)
    world.pass_ms(1_000)
    assert b"t" in world.t(AWAY).by_name and b"t" not in world.t(1).by_name
    world.hold(0, AWAY)
    drop(world.node(0).core, world.t(0), world.tube(0))
    world.isolate(AWAY)
    world.link(0, 1)
    world.pass_ms(1_000)
    world.isolate(0)
    world.restart(1)
    world.link(1, AWAY)
    world.pass_ms(1_000)
    assert b"t" not in world.t(AWAY).by_name and len(world.t(AWAY).copies_by_id) == 0


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_a_drop_that_came_too_late_is_forgotten(how: str) -> None:
    """T17.6 It does not hold for a tube that has a leader of a higher epoch: who kept the drop
    takes the tube again.

    Node 0 drops it, and no other node hears of that before it has chosen another leader."""
    world = VotesWorld(3)
    for i in (1, 2):
        world.hold(0, i)
    assert world.wire(0).ask(*DROP) == b"OK"
    world.isolate(0)
    world.pass_ms(20_000)
    (at,) = world.runs_at()
    task = world.put(at)
    world.link()
    world.pass_ms(5_000)
    for _ in range(2):
        assert all(list(world.picture(i)) == [task.number] for i in world.numbers())
        check_homes(world.node(0).core, world.t(0))
        World.restart(world, 0, how=how)
        world.link()
        world.pass_ms(5_000)
    call(world, at, *DROP)
    world.pass_ms(1_000)
    assert all(b"t" not in world.t(i).by_name for i in world.numbers())


def test_a_tube_that_no_node_has_can_be_dropped() -> None:
    """T17.6 A tube led by votes that was never confirmed, and of which no node has a whole replica,
    can be dropped at its leader while all nodes are linked.

    Node 2 is killed as soon as it has the tube on its disk, and the others have forgotten the drop.
    """
    world = VotesWorld(3, makes=False)
    world.pass_ms(12_000)
    world.wire(0).put(encode(*CREATE))
    known = world.t(AWAY).by_name
    world.step_until(lambda: b"t" in known and known[b"t"].vote_wish == 0)
    assert not world.tube(AWAY).is_complete
    world.kill(AWAY)
    world.pass_ms(1_000)
    call(world, 0, *DROP)
    for i in (0, 1):
        world.t(i).dropped = {}
        world.t(i).dropped_count = 0
    world.start(AWAY)
    world.link()
    world.pass_ms(20_000)
    assert world.runs_at() == [] and not world.tube(0).is_mine
    assert "TUBE DROP" in str(world.wire(0).ask(*CREATE, "IFNOTEXISTS"))
    world.isolate(1)
    world.pass_ms(1_000)
    assert str(world.wire(0).ask(*DROP)).startswith("NOQUORUM")
    world.link()
    world.pass_ms(1_000)
    assert str(world.wire(1).ask(*DROP)).startswith("TUBEHOME")
    call(world, 0, *DROP)
    world.pass_ms(1_000)
    assert all(b"t" not in world.t(i).by_name for i in world.numbers())
    call(world, 1, *CREATE)
    world.pass_ms(1_000)
    assert world.runs_at() == [1] and world.put(1).number == 0


def test_the_drops_of_one_name_push_out_no_other_ones() -> None:
    """T17.6 Of more than 10,000 drops, or 1,000 of one name, the oldest is forgotten"""
    world = VotesWorld(1, makes=False)
    t, maker = world.t(0), world.id(0)
    for made_ns in range(DROPPED_OF_NAME):
        bury_tube(t, b"a", Dropped(maker, made_ns, 1))
        bury_tube(t, b"b%d" % (made_ns % 2), Dropped(maker, made_ns, 1))
    assert drop_of(t, b"a", maker, 0) is not None
    bury_tube(t, b"a", Dropped(maker, 0, 2))  # again: the newest now
    bury_tube(t, b"a", Dropped(maker, DROPPED_OF_NAME, 1))
    assert drop_of(t, b"a", maker, 0) is not None and drop_of(t, b"a", maker, 1) is None
    assert drop_of(t, b"b0", maker, 0) is not None
    for made_ns in range(DROPPED_MAX):
        bury_tube(t, b"c%d" % made_ns, Dropped(maker, made_ns, 1))
    assert next(iter(t.dropped)) == b"c0" and t.dropped_count == DROPPED_MAX
    assert drop_of(t, b"a", maker, DROPPED_OF_NAME) is None
    check_homes(world.node(0).core, t)
