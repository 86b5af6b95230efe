"""CLUSTER MEET of two clusters (SPEC K3.4, K3.5)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from world import World
from world_machines import conf_of

MakeWorld = Callable[..., World]
A, B = range(3), range(3, 6)


@pytest.fixture
def two(make_world: MakeWorld) -> World:
    """Nodes 0 to 2 are one cluster, 3 to 5 another one; each has voters."""
    world = make_world(6, start=False)
    for group in (A, B):
        for i in group:
            others = [world.machines[k] for k in group if k != i]
            world.machines[i].conf = conf_of(world.machines[i], others)
    for i in world.numbers():
        world.start(i)
    world.until(lambda: all(node.info("tubes")["tubes_voters"] == "3" for node in world.nodes))
    return world


def create(world: World, i: int, name: str, tasks: int) -> None:
    """Node i creates the tube, with so many tasks that a majority has."""
    with world.client(i) as client:
        client.tube(name).create("fifo", sync="majority")
        for number in range(tasks):
            client.addjob(name, f"{i} {number}")


def met(world: World, a: int, b: int) -> str:
    """CLUSTER MEET of node b at node a; why it failed."""
    wire = world.wire(a)
    assert wire("CLUSTER", "MEET", f"10.0.0.{b + 1}", "7711") == b"OK"
    world.pass_ms(12_000)
    return str(world.node(a).info("cluster")["cluster_meet_error"])


@pytest.mark.parametrize(("a", "b"), [(0, 3), (3, 0)])
def test_clusters_with_tubes_of_one_name_stay_apart(two: World, a: int, b: int) -> None:
    """K3.4 Two nodes that meet tell each other their tubes and the origin of their voters. One that
    has another tube or a plain queue of such a name, or voters of another origin, refuses and names
    them; nothing has changed then.
    """
    create(two, 0, "t", 20)
    create(two, 3, "t", 5)
    create(two, 3, "u", 1)
    reason = met(two, a, b)
    assert "each of the two clusters has a tube or queue of its own named t:" in reason
    assert "t, u" not in reason
    for node in two.nodes:
        assert node.info("cluster")["cluster_known_nodes"] == "3"
    for group, bodies in ((A, 20), (B, 5)):
        for i in group:
            tube = two.node(i).tubes.by_name[b"t"]
            assert len(tube.tasks) + len(tube.copies) == bodies


def test_clusters_with_voters_stay_apart(two: World) -> None:
    """K3.4 (as above)"""
    reason = met(two, 0, 3)
    assert reason.startswith(
        "10.0.0.4:17711 each of the two clusters has voters of its own (origins "
    )
    assert two.node(0).info("cluster")["cluster_known_nodes"] == "3"


@pytest.mark.parametrize(("a", "b"), [(0, 1), (1, 0)])
def test_a_tube_and_a_queue_of_one_name_clash(make_world: MakeWorld, a: int, b: int) -> None:
    """K3.4 One that has another tube or a plain queue of such a name"""
    world = make_world(2, start=False)
    for i in (0, 1):
        world.machines[i].conf = conf_of(world.machines[i], [])
        world.start(i)
    create(world, 0, "q", 1)
    world.wire(1).add("q")
    assert "has a tube or queue of its own named q:" in met(world, a, b)


def test_a_node_without_tubes_joins(make_world: MakeWorld) -> None:
    """K3.4 (as above)"""
    world = make_world(2, start=False)
    for i in (0, 1):
        world.machines[i].conf = conf_of(world.machines[i], [])
        world.start(i)
    create(world, 0, "t", 3)
    world.wire(1).add("q")
    assert met(world, 1, 0) == ""
    world.until(world.is_whole)
    world.until(lambda: b"t" in world.node(1).tubes.by_name)
