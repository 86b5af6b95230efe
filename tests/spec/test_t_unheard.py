"""SPEC T15.5: a node that has started, and does not know the tubes of its cluster."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tuque.errors import NoTube
from world import World

LOADING = (
    "LOADING this node has started, and has not heard all tubes of other nodes yet: nothing was "
    "done, try again soon"
)
CALLS = [
    "TUBE PUT t x",
    "TUBE TAKE t",
    "TUBE INFO t",
    "ADDJOB t x 0 LIMIT k 1",
    "LIMITS t",
    "SCHEDULE LIST t",
    "GROUP LIST t",
]


@pytest.fixture
def world(make_world: Callable[..., World]) -> World:
    """Three nodes with a tube at node 0."""
    made = make_world(3, journal="always", tube_failover=False)
    made.client(0).tube("t").create("tasks", alone=True)
    made.settle()
    return made


def answers(world: World, i: int = 2) -> set[str]:
    """The first words of what node i says about the tube."""
    return {str(world.at(i)(*line.split())).split()[0] for line in CALLS}


def test_a_node_without_its_journal_does_not_deny_a_tube(world: World) -> None:
    """T15.5 This ends `cluster-node-timeout` after the start, or after the journal is loaded; but
    not while the node has met no other one and knows no tube.
    """
    world.restart(2, "lost")
    assert world.at(2)("TUBE", "PUT", "t", "x") == LOADING
    assert answers(world) == {"LOADING"}
    wire = world.iproto(2)
    said = wire.hear(wire.ask_call("queue.tube.t:put", "x"))
    assert (said.code, said.data) == (116, LOADING.partition(" ")[2])
    world.pass_ms(2 * int(world.node(2).core.limits.node_timeout_ms))
    assert answers(world) == {"LOADING"}, "it still knows nothing"
    world.join(0, 2)
    world.settle()
    assert answers(world) & {"TUBEHOME", "LOADING", "NOTUBE"} == {"TUBEHOME"}
    assert str(world.at(2)("TUBE", "INFO", "other")).startswith("NOTUBE")


def test_a_node_that_has_started_waits_for_all_that_are_linked(world: World) -> None:
    """T15.5 Until another node, and each that is linked, has sent its tubes, it answers
    `-LOADING
    """
    other = ("TUBE", "INFO", "other")
    world.restart(2)
    assert str(world.at(2)(*other)).startswith("LOADING")
    world.join(1, 2)
    world.settle()
    world.join(0, 2)
    world.hold(0, 2)
    world.settle()
    assert str(world.at(2)(*other)).startswith("LOADING"), "node 0 may know more"
    world.pass_ms(int(world.node(2).core.limits.node_timeout_ms))
    assert str(world.at(2)(*other)).startswith("NOTUBE"), "others may be away for long"


def test_a_client_turns_to_another_node(world: World) -> None:
    """T15.5 it answers `-LOADING this node has started, and has not heard all tubes of other nodes
    yet: nothing was done, try again soon`
    """
    world.restart(2, "lost")
    for number in range(10):  # each begins at one of the nodes
        task = world.client(2, others=True).tube("t").put("x")
        assert task is not None and task.number == number
    with pytest.raises(NoTube):
        world.client(0).tube("other").put("x")
