"""Keys of DEDUPE in a tube, at its next leaders (SPEC T18.8, Z4.10)."""

from __future__ import annotations

from typing import Any

import pytest

from tuque.tubes.model.tube import RUNNING
from world import World
from world_wires import Wire


def led(count: int = 3) -> tuple[World, int]:
    """Nodes with a tube `t` that a majority confirms; the number of its leader."""
    world = World(count)
    assert world.wire(0).ask("TUBE", "CREATE", "t", "fifottl") == b"OK"
    world.until(lambda: world.leader("t") is not None)
    leader = world.leader("t")
    assert leader is not None
    return world, leader


def added(wire: Wire, key: str, body: str = "b") -> Any:
    return wire.ask("ADDJOB", "t", body, 0, "DEDUPE", key, "WITHNEW")


def next_leader(world: World, old: int) -> int:
    world.kill(old)
    world.until(lambda: world.leader("t") not in (None, old))
    found = world.leader("t")
    assert found is not None
    return found


@pytest.mark.parametrize("is_ended", [False, True])
def test_the_next_leader_knows_the_key(is_ended: bool) -> None:
    """T18.8 The keys of DEDUPE of a tube are part of its changes: the next leader answers them
    (Z4.2), also for tasks that have ended.
    """
    world, leader = led()
    id, is_new = added(world.wire(leader), "k")
    assert is_new == 1
    if is_ended:
        world.wire(leader).ask("GETJOB", "FROM", "t")
        assert world.wire(leader).ask("ACKJOB", id) == 1
    after = next_leader(world, leader)
    assert added(world.wire(after), "k") == [id, 0]
    assert world.wire(after).ask("QLEN", "t") == (0 if is_ended else 1)
    assert added(world.wire(after), "other")[1] == 1


def test_a_node_that_comes_later_gets_all_keys() -> None:
    """T18.8 A scan sends all of them after the tasks, in place of what the node had."""
    world, leader = led()
    other = (leader + 1) % 3
    world.kill(other)
    ids = [added(world.wire(leader), f"k{i}")[0] for i in range(50)]
    world.start(other, disk="lost")
    last = 3 - leader - other
    world.until(lambda: world.node(other).tubes.by_name[b"t"].is_complete)
    kept = {kept.id for kept in world.node(other).core.keys.kept.values()}
    assert kept == set(ids)
    world.kill(last)
    world.start(last)
    world.until(lambda: world.node(last).tubes.by_name[b"t"].is_complete)
    assert {kept.id for kept in world.node(last).core.keys.kept.values()} == set(ids)


def test_a_follower_answers_no_key() -> None:
    """Z4.10 Of a tube only the leader answers a known key (T17.3), when as many nodes have it as
    SYNC asks for (T18.5).
    """
    world, leader = led()
    id, _ = added(world.wire(leader), "k")
    other = (leader + 1) % 3
    world.until(lambda: len(world.node(other).core.keys.kept) == 1)
    assert str(added(world.wire(other), "k")).startswith("TUBEHOME")
    for node in range(3):
        if node != leader:
            world.hold(leader, node)
    wire = world.wire(leader)
    wire.send("ADDJOB", "t", "b", 0, "DEDUPE", "new")
    again = world.wire(leader)
    again.send("ADDJOB", "t", "b", 0, "DEDUPE", "new")
    world.settle()
    assert wire.bytes_now() == again.bytes_now() == b""
    for node in range(3):
        if node != leader:
            world.release(leader, node)
    first = wire.read()
    assert first == again.read() != id


def test_a_key_that_was_never_confirmed_goes_with_its_task() -> None:
    """T18.8 A scan sends all of them after the tasks, in place of what the node had."""
    world, leader = led()
    others = [node for node in range(3) if node != leader]
    for node in others:
        world.hold(leader, node)
    world.wire(leader).send("ADDJOB", "t", "b", 0, "DEDUPE", "lost")
    world.settle()
    assert len(world.node(leader).core.keys.kept) == 1
    for node in others:
        world.cut(leader, node)
    world.until(lambda: world.leader("t") not in (None, leader))
    after = world.leader("t")
    assert after is not None
    id, is_new = added(world.wire(after), "another")
    assert is_new == 1
    world.heal()
    world.until(lambda: world.node(leader).tubes.by_name[b"t"].is_complete)
    world.until(lambda: {one.id for one in world.node(leader).core.keys.kept.values()} == {id})


def test_a_key_of_the_turn_in_which_its_leader_gave_up() -> None:
    """T25.6 Until another node leads, it still sends what was changed before, also in that turn:
    it may have been delivered already.
    """
    world, leader = led()
    timeout_ms = int(world.node(leader).core.limits.lease_timeout_ms)
    consumer, producer = world.wire(leader), world.wire(leader)
    consumer.send("GETJOB", "FROM", "t")
    assert producer("CONFIG", "SET", "appendonly", "no") == b"OK"
    world.pass_ms(timeout_ms)
    assert world.leader("t") == leader
    world.stall(leader, timeout_ms // 4)  # the put and the end of the timeout are of one turn
    producer.send("ADDJOB", "t", "b", 0, "DEDUPE", "k")
    world.pass_ms(timeout_ms // 4)
    assert world.node(leader).tubes.by_name[b"t"].state != RUNNING
    ((_, id, _),) = consumer.take()
    world.until(lambda: world.leader("t") not in (None, leader))
    after = world.leader("t")
    assert after is not None
    assert added(world.wire(after), "k") == [id, 0]
    assert producer.read() == id, "two nodes that vote have it"
