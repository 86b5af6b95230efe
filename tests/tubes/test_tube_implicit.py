"""Tubes that an enqueue made go when they are idle (SPEC T2.9)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pytest

from tuque.server.config.options import Config
from world import World
from world_wires import Wire

Make = Callable[..., World]

IMPLICIT: Final = ("TUBE", "CREATE", "t", "tasks", "TTR", 30, "IFNOTEXISTS", "IMPLICIT")
LASTING: Final = IMPLICIT[:-1]
IDLE_MS: Final = 20_000  # in place of an hour


def has(world: World, node: int = 0) -> bool:
    return b"t" in world.node(node).tubes.by_name


def make(make_world: Make, **options: object) -> World:
    """A node with an implicit tube `t`."""
    world = make_world(1, tube_idle_time=IDLE_MS // 1000, **options)
    assert world.run(*IMPLICIT) == b"OK"
    return world


def led(make_world: Make, **options: object) -> tuple[World, int]:
    """Three nodes with an implicit tube `t` that a majority confirms; the number of its leader."""
    world = make_world(3, tube_idle_time=IDLE_MS // 1000, **options)
    assert world.wire(0).ask(*IMPLICIT) == b"OK"
    world.until(lambda: world.leader("t") is not None)
    leader = world.leader("t")
    assert leader is not None
    world.until(lambda: all(has(world, node) for node in world.numbers()))
    return world, leader


def info(wire: Wire) -> int:
    reply: list[Any] = wire.ask("TUBE", "INFO", "t")
    return int(reply[reply.index(b"implicit") + 1])


def test_it_goes_when_it_was_idle(make_world: Make) -> None:
    """T2.9 Such a tube goes, as DROP removes it, when its leader has found it idle for
    `tube-idle-time` (an hour; 0: never).
    """
    assert Config().tube_idle_time == 3_600
    world = make(make_world)
    assert info(world.wire()) == 1
    world.pass_ms(IDLE_MS - 1_000)
    assert has(world)
    id = world.run("ADDJOB", "t", "b", 0, "LIMIT", "l", 1, "RATE", "r", "1/s", "GROUP", "g")
    world.pass_ms(3 * IDLE_MS)
    assert has(world)
    assert world.get("t") == [id] and world.run("ACKJOB", id) == 1
    world.pass_ms(IDLE_MS - 1_000)
    assert has(world)
    id = world.run("ADDJOB", "t", "b", 0)  # it comes and goes between two looks
    assert world.get("t") == [id] and world.run("ACKJOB", id) == 1
    world.pass_ms(IDLE_MS - 1_000)
    assert has(world)
    world.pass_ms(3_500)
    assert not has(world)
    assert any("an enqueue made it" in line for line in world.node().log)
    assert world.run(*LASTING) == b"OK"
    assert info(world.wire()) == 0
    world.pass_ms(3 * IDLE_MS)
    assert has(world)


def keep_task(wire: Wire) -> None:
    wire.ask("ADDJOB", "t", "b", 0, "DELAY", 40_000)


def keep_outcome(wire: Wire) -> None:
    id = wire.ask("ADDJOB", "t", "b", 0, "KEEP", 40_000)
    assert wire.ask("GETJOB", "FROM", "t")[0][1] == id
    assert wire.ask("ACKJOB", id) == 1


def keep_schedule(wire: Wire) -> None:
    assert wire.ask("SCHEDULE", "ADD", "t", "s", "EVERY", 900_000, "b") == b"ADDED"


def keep_group(wire: Wire) -> None:
    wire.ask("GROUP", "CREATE", "t", 2)


def keep_topic(wire: Wire) -> None:
    assert wire.ask("TOPIC", "SUBSCRIBE", "news", "t") is not None


def keep_waiting(wire: Wire) -> None:
    wire.send("GETJOB", "TIMEOUT", 40_000_000, "FROM", "t")


def keep_pause(wire: Wire) -> None:
    wire.ask("PAUSE", "t", "out")


def keep_dedupe(wire: Wire) -> None:
    id = wire.ask("ADDJOB", "t", "b", 0, "DEDUPE", "k")
    wire.ask("GETJOB", "FROM", "t")
    assert wire.ask("ACKJOB", id) == 1


def keep_unique(wire: Wire) -> None:
    id = wire.ask("ADDJOB", "t", "b", 0, "UNIQUE", "k", "UNTIL", 40_000)
    wire.ask("GETJOB", "FROM", "t")
    assert wire.ask("ACKJOB", id) == 1


def keep_rate(wire: Wire) -> None:
    id = wire.ask("ADDJOB", "t", "b", 0, "RATE", "r", "1/h", 5)
    wire.ask("GETJOB", "FROM", "t")
    assert wire.ask("ACKJOB", id) == 1


def keep_grant(wire: Wire) -> None:
    assert wire.ask("TUBE", "GRANT", "t", "guest", "CALL") == b"OK"


KEEPERS: Final = {
    "task": keep_task, "outcome": keep_outcome, "schedule": keep_schedule, "group": keep_group,
    "topic": keep_topic, "waiting": keep_waiting, "pause": keep_pause, "dedupe": keep_dedupe,
    "unique": keep_unique, "rate": keep_rate, "grant": keep_grant,
}  # fmt: skip


@pytest.mark.parametrize("what", KEEPERS)
def test_what_keeps_it(make_world: Make, what: str) -> None:
    """T2.9 It is idle without a change of a task, and while it has no task, schedule, group,
    outcome or DEDUPE key that is kept, key of a task (T40), plain job, topic, waiting client,
    subscriber, pause, callback or grant.
    """
    world = make(make_world)
    KEEPERS[what](world.wire())
    for _ in range(4):
        world.pass_ms(IDLE_MS // 2)
        assert has(world), what


def test_who_waited_begins_anew(make_world: Make) -> None:
    """T2.9 It is idle without a change of a task, and while it has no task"""
    world = make(make_world)
    world.wire().send("GETJOB", "TIMEOUT", 3 * IDLE_MS, "FROM", "t")
    world.pass_ms(3 * IDLE_MS + IDLE_MS // 2)
    assert has(world)
    world.pass_ms(IDLE_MS)
    assert not has(world)


def test_zero_keeps_all(make_world: Make) -> None:
    """T2.9 (an hour; 0: never)"""
    world = make(make_world)
    assert world.run("CONFIG", "SET", "tube-idle-time", 0) == b"OK"
    world.pass_ms(6 * IDLE_MS)
    assert has(world)
    assert world.run("CONFIG", "SET", "tube-idle-time", 30) == b"OK"
    world.pass_ms(1_500)
    assert not has(world)


@pytest.mark.parametrize("how", ["kill", "snapshot"])
@pytest.mark.parametrize("is_kept", [False, True])
def test_a_restart_knows_it(make_world: Make, how: str, is_kept: bool) -> None:
    """T2.9 The leader looks once a minute at least; a start, a new leader and a CREATE begin anew.
    A CREATE without IMPLICIT makes the tube lasting: so do all nodes that learn of it.
    """
    world = make(make_world, journal="always")
    if is_kept:
        assert world.run(*LASTING) == b"OK"
        assert world.run(*IMPLICIT) == b"OK"
    world.pass_ms(IDLE_MS - 2_000)
    if how == "snapshot":
        world.rewrite()
    world.restart()
    assert has(world) and info(world.wire()) == int(not is_kept)
    world.pass_ms(IDLE_MS - 2_000)
    assert has(world)
    world.pass_ms(5_000)
    assert has(world) == is_kept
    world.restart()
    assert has(world) == is_kept


def test_a_create_begins_anew(make_world: Make) -> None:
    """T2.9 a start, a new leader and a CREATE begin anew."""
    world = make(make_world)
    for _ in range(5):
        world.pass_ms(15_000)
        assert has(world)
        assert world.run(*IMPLICIT) == b"OK"
    assert has(world)
    world.pass_ms(23_000)
    assert not has(world)


def test_followers_lose_it_with_the_leader(make_world: Make) -> None:
    """T2.9 Such a tube goes, as DROP removes it

    T17.6 drop is sent to the other nodes, at once or when they are linked again: they delete their
    replicas
    """
    world, leader = led(make_world)
    away = (leader + 1) % 3
    world.kill(away)
    world.until(lambda: not has(world, leader), 60_000)
    world.settle()
    assert not has(world, 3 - leader - away)
    world.start(away)
    world.until(lambda: not has(world, away), 60_000)
    assert world.wire(away).ask(*IMPLICIT) == b"OK"  # an enqueue that comes makes it again
    id = world.wire(away).ask("ADDJOB", "t", "b", 0, "UNIQUE", "u")
    world.pass_ms(2 * IDLE_MS)
    assert world.wire(away).show(id) and all(has(world, node) for node in world.numbers())


def test_the_next_leader_drops_it(make_world: Make) -> None:
    """T2.9 a start, a new leader and a CREATE begin anew."""
    world, leader = led(make_world)
    world.pass_ms(15_000)
    world.kill(leader)
    world.until(lambda: world.leader("t") not in (None, leader))
    after = world.leader("t")
    assert after is not None and info(world.wire(after)) == 1
    world.pass_ms(IDLE_MS // 2)
    assert has(world, after)
    world.until(lambda: not has(world, after), 60_000)


def test_all_nodes_learn_that_it_is_lasting(make_world: Make) -> None:
    """T2.9 A CREATE without IMPLICIT makes the tube lasting: so do all nodes that learn of it."""
    world, leader = led(make_world)
    assert world.wire(leader).ask(*LASTING) == b"OK"
    world.settle()
    assert [info(world.wire(node)) for node in world.numbers()] == [0, 0, 0]
    world.kill(leader)
    world.until(lambda: world.leader("t") not in (None, leader))
    world.pass_ms(2 * IDLE_MS)
    after = world.leader("t")
    assert after is not None and has(world, after)


def test_a_leader_with_an_old_snapshot_learns_it(make_world: Make) -> None:
    """T2.9 A CREATE without IMPLICIT makes the tube lasting: so do all nodes that learn of it."""
    world = make_world(2, journal="always", tube_idle_time=20)
    assert world.wire(0).ask(*IMPLICIT) == b"OK"
    world.until(lambda: has(world, 1))
    world.disk(0).snapshot()
    assert world.wire(0).ask(*LASTING) == b"OK"
    world.pass_ms(1_000)
    world.kill(0)
    world.start(0, disk="old")
    world.until(lambda: world.is_whole())
    world.pass_ms(2 * IDLE_MS)
    assert [info(world.wire(node)) for node in range(2)] == [0, 0]
