"""A node that was forgotten and runs, and voters that are lost for good (SPEC K6, T28.8)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from world import World

MakeWorld = Callable[..., World]
REMOVED = "LEAVING this node was removed from its cluster by CLUSTER FORGET, and does no work"


def id_of(world: World, i: int) -> str:
    """Its node id."""
    return str(world.machines[i].node_id.decode())


def state(world: World, i: int) -> str:
    """Its cluster_state."""
    return world.node(i).info("cluster")["cluster_state"]


def test_a_node_that_runs_is_forgotten_by_force_only(make_world: MakeWorld) -> None:
    """K6.5 FORGET of a node that is linked and not suspected is refused without FORCE

    K6.4 A forgotten node that runs learns it from gossip, or from the refusal of its links. It
    stores this and refuses work: C3.11, `cluster_state:forgotten`, not ready (O2.2), and
    waiting clients get `-LEAVING`.
    """
    world = make_world(3, tube_failover=False)
    gone = id_of(world, 2)
    wire, waiting = world.wire(2), world.wire(2)
    waiting.send("GETJOB", "FROM", "q")
    said = str(world.wire(0)("CLUSTER", "FORGET", gone))
    assert said.startswith(f"ERR node {gone} runs and is linked: drain and stop it first, or ")
    assert state(world, 2) == "ok"
    assert world.wire(0)("CLUSTER", "FORGET", gone, "FORCE") == b"OK"
    world.until(lambda: state(world, 2) == "forgotten", 10_000)
    assert waiting.read().startswith("LEAVING ")
    for words in (("ADDJOB", "q", "x", "0"), ("GETJOB", "NOHANG", "FROM", "q"), ("PING",)):
        assert str(wire(*words)).startswith(REMOVED), words
    world.pass_ms(2_000)
    world.kill(2)
    world.start(2)
    world.settle()
    assert state(world, 2) == "forgotten"
    # S6.4 A node that does no work (C3.11) says why in its own: `conflict`, `forgotten` or `unmet`.
    assert b"myself,forgotten" in world.wire(2)("CLUSTER", "NODES")
    assert str(world.wire(2)("ADDJOB", "q", "x", "0")).startswith(REMOVED)


def test_a_forgotten_voter_says_so(make_world: MakeWorld) -> None:
    """T28.7 conflict, forgotten or unmet (C3.11, of the node that replies)"""
    world = make_world(4, tube_voters=4)
    world.until(lambda: world.node(3).info("tubes")["tubes_vote_state"] == "votes", 60_000)
    world.isolate(3)
    gone = id_of(world, 3)
    world.wire(0)("CLUSTER", "VOTERS", "REMOVE", gone)
    world.until(lambda: world.node(0).info("tubes")["tubes_voters"] == "3", 60_000)
    world.until(lambda: world.wire(0)("CLUSTER", "FORGET", gone) == b"OK", 60_000)
    world.heal()
    world.until(lambda: state(world, 3) == "forgotten", 60_000)
    assert world.node(3).info("tubes")["tubes_vote_state"] == "forgotten"


def test_a_forgotten_node_works_again_once_it_is_reset(make_world: MakeWorld) -> None:
    """K6.4 CLUSTER RESET, or a new MEET (K6.3), ends that."""
    world = make_world(3, tube_failover=False)
    world.wire(0)("CLUSTER", "FORGET", id_of(world, 2), "FORCE")
    world.until(lambda: state(world, 2) == "forgotten", 10_000)
    wire = world.wire(2)
    assert wire("CLUSTER", "RESET") == b"OK"
    assert state(world, 2) == "ok"
    world.settle()
    assert wire("ADDJOB", "q", "alone", "0").startswith(b"D-")
    assert wire("CLUSTER", "RESET") == b"OK"
    assert world.wire(0)("CLUSTER", "MEET", "10.0.0.3", "7711") == b"OK"
    world.until(world.is_whole)
    assert wire.add("q", replicate=3).startswith(b"D-")


def test_a_forgotten_node_works_again_once_it_is_met_without_jobs(make_world: MakeWorld) -> None:
    """K6.4 CLUSTER RESET, or a new MEET (K6.3), ends that."""
    world = make_world(3, tube_failover=False)
    world.wire(0)("CLUSTER", "FORGET", id_of(world, 2), "FORCE")
    world.until(lambda: state(world, 2) == "forgotten", 10_000)
    world.pass_ms(2_000)
    world.kill(2)
    world.start(2, disk="lost")
    world.settle()
    assert state(world, 2) == "forgotten"
    assert world.wire(0)("CLUSTER", "MEET", "10.0.0.3", "7711") == b"OK"
    world.until(world.is_whole)
    world.until(lambda: state(world, 2) == "ok")
    assert world.wire(2).add("q", replicate=3).startswith(b"D-")


def leaders(world: World, *nodes: int) -> list[int]:
    """Which of the nodes take a task for the tube."""
    took = []
    for i in nodes:
        reply = world.wire(i)("ADDJOB", "t", "x", "0", "ASYNC")
        if isinstance(reply, bytes) and reply.startswith(b"D-"):
            took.append(i)
    return took


def test_a_lost_majority_is_replaced_as_the_docs_say(make_world: MakeWorld) -> None:
    """T28.8 FORCE node ... makes a list of these nodes at once

    docs/tubes.md: stop the others, FORCE, FORGET each of them. Three of the five old voters come
    back with their disks, and do not lead the tube beside the new leader.
    """
    world = make_world(5, journal="always", tube_voters=5)
    world.until(lambda: world.node(0).info("tubes")["tubes_voters"] == "5")
    with world.client(2) as client:
        client.tube("t").create("fifo", sync="majority")
        client.addjob("t", "1")
    world.pass_ms(5_000)
    for i in (2, 3, 4):
        world.kill(i)
    world.pass_ms(20_000)
    wire = world.wire(0)
    assert wire("CLUSTER", "VOTERS", "FORCE", id_of(world, 0), id_of(world, 1)) == b"OK"
    for i in (2, 3, 4):
        assert wire("CLUSTER", "FORGET", id_of(world, i)) == b"OK"
    world.until(lambda: leaders(world, 0, 1), 60_000)
    for i in (2, 3, 4):
        world.start(i)
    for _ in range(30):
        world.pass_ms(1_000)
        assert leaders(world, 2, 3, 4) == []
    assert leaders(world, 0, 1)
    assert [state(world, i) for i in range(5)] == ["ok", "ok", *["forgotten"] * 3]
    for i in (2, 3, 4):  # they come back: without what they have
        world.wire(i)("CLUSTER", "RESET")
        assert wire("CLUSTER", "MEET", f"10.0.0.{i + 1}", "7711") == b"OK"
    world.until(world.is_whole)
    world.until(lambda: world.node(0).info("tubes")["tubes_voters"] == "5", 120_000)


@pytest.mark.parametrize("mode", ["SOFT", "HARD"])
@pytest.mark.parametrize("is_forced", [False, True])
def test_a_leader_is_not_reset_by_mistake(
    make_world: MakeWorld, mode: str, is_forced: bool
) -> None:
    """S6.6 It is refused without `FORCE` while this node does its work and leads tubes that other
    nodes can lead (K9.2): `-ERR this node leads tubes that other nodes can lead, and <n> of them
    would have no leader: CLUSTER LEAVING yes hands them over, or CLUSTER RESET <mode> FORCE`.
    """
    world = make_world(3)
    world.until(lambda: world.node(0).info("tubes")["tubes_voters"] == "3")
    with world.client(0) as client:
        client.tube("t").create("tasks")
        client.addjob("t", "body")
    wire = world.wire(0)
    assert wire("CLUSTER", "RESET", mode) == (
        "ERR this node leads tubes that other nodes can lead, and 1 of them would have no leader: "
        f"CLUSTER LEAVING yes hands them over, or CLUSTER RESET {mode} FORCE"
    )
    assert world.is_whole() and wire("TUBE", "STATE", "t") == b"RUNNING"
    if is_forced:
        assert wire("CLUSTER", "RESET", mode, "FORCE") == b"OK"
    else:
        assert wire("CLUSTER", "LEAVING", "yes") == b"OK"
        assert world.until(lambda: wire("CLUSTER", "RESET", mode) == b"OK")

    def leaders() -> list[int]:
        return [i for i in (1, 2) if world.at(i)("TUBE", "STATE", "t") == b"RUNNING"]

    (leader,) = world.until(leaders)
    [(queue, _, body)] = world.at(leader)("GETJOB", "NOHANG", "FROM", "t")
    assert (queue, body) == (b"t", b"body")
