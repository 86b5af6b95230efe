"""A node that nobody met, at the address of another one (SPEC K1.4)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from world import World

MakeWorld = Callable[..., World]
NEW = b"f" * 40
UNMET = "LEAVING this node is not in its cluster, which knows another one at this address"


@pytest.fixture
def world(make_world: MakeWorld) -> World:
    """Three nodes; in the place of the third one, which had jobs, starts another one."""
    world = make_world(3)
    world.until(lambda: world.node(0).info("tubes")["tubes_voters"] == "3")
    with world.client(0) as client:
        client.tube("t").create("fifo", sync="majority")
    for _ in range(20):
        world.wire(2).add("q", replicate=3)
    world.pass_ms(2_000)
    world.kill(2)
    world.machines[2].conf = b""
    world.machines[2].node_id = NEW
    return world


def state(world: World, i: int) -> str:
    """Its cluster_state."""
    return world.node(i).info("cluster")["cluster_state"]


@pytest.mark.parametrize("disk", ["lost", "kept"])
def test_a_node_that_nobody_met_does_no_work(world: World, disk: str) -> None:
    """K1.4 A node with another id refuses, and joins nobody: a new node, or a copied directory
    without `nodes.conf`, becomes a member by CLUSTER MEET only.

    If it is alone, it refuses work, as a forgotten node does (K6.4)
    """
    world.start(2, disk=disk)
    world.until(lambda: state(world, 2) == "unmet", 10_000)
    wire = world.wire(2)
    for words in (("ADDJOB", "q", "x", "0"), ("GETJOB", "NOHANG", "FROM", "q"), ("PING",)):
        assert str(wire(*words)).startswith(UNMET), words
    world.pass_ms(60_000)
    assert state(world, 2) == "unmet"
    for i in (0, 1):
        assert NEW not in world.wire(i)("CLUSTER", "NODES")
        assert world.node(i).info("tubes")["tubes_voters"] == "3"
    assert str(world.wire(2)("ADDJOB", "q", "x", "0")).startswith(UNMET)


def test_being_met_ends_that(world: World) -> None:
    """K1.4 Being met ends that, and CLUSTER RESET."""
    world.start(2, disk="lost")
    world.until(lambda: state(world, 2) == "unmet", 10_000)
    assert world.wire(0)("CLUSTER", "MEET", "10.0.0.3", "7711") == b"OK"
    world.until(lambda: world.node(2).core.reachable_count == 2)
    assert state(world, 2) == "ok"
    assert world.wire(2).add("q", replicate=3).startswith(b"D-")
    world.pass_ms(30_000)
    assert NEW in world.wire(1)("CLUSTER", "NODES")
    assert [state(world, i) for i in range(3)] == ["ok"] * 3


def test_a_reset_ends_that_where_nobody_expects_it_any_more(world: World) -> None:
    """K1.4 Being met ends that, and CLUSTER RESET."""
    world.start(2, disk="lost")
    world.until(lambda: state(world, 2) == "unmet", 10_000)
    gone = world.node(1).core.node_id.replace(b"b", b"c")
    assert world.wire(0)("CLUSTER", "VOTERS", "REMOVE", gone) in (b"OK", None)
    world.pass_ms(5_000)
    assert world.wire(0)("CLUSTER", "FORGET", gone) == b"OK"
    world.pass_ms(5_000)
    assert world.wire(2)("CLUSTER", "RESET") == b"OK"
    world.pass_ms(20_000)
    assert state(world, 2) == "ok"
    assert world.wire(2)("ADDJOB", "q", "alone", "0").startswith(b"D-")
