"""Keys of topics (SPEC T63)."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from raw_resp import encode
from tuque.core.tables.topics import Match, Tree
from world import World


def queues_of(world: World, key: str | None, body: str = "b") -> list[bytes]:
    """The queues that an ADD with this key reaches."""
    words = [] if key is None else ["KEY", key]
    return [world.n.jobs[id].queue for id in world.run("TOPIC", "ADD", "events", body, 0, *words)]


def rows(world: World, i: int = 0) -> dict[bytes, list[bytes]]:
    """The patterns of each queue, by LIST."""
    return {row[1]: row[4] for row in world.wire(i)("TOPIC", "LIST")[1]}


def subscribe(world: World, queue: str, *words: str) -> Any:
    return world.run("TOPIC", "SUBSCRIBE", "events", queue, *words)


def fits(pattern: list[str], key: list[str]) -> bool:
    """Whether the key fits, word by word: slow, and plain."""
    if not pattern:
        return not key
    if pattern[0] == "#":
        return any(fits(pattern[1:], key[i:]) for i in range(len(key) + 1))
    return bool(key) and pattern[0] in ("*", key[0]) and fits(pattern[1:], key[1:])


def test_a_job_comes_once_to_each_queue_with_a_pattern_that_fits(world: World) -> None:
    """T63.2 A job comes once if one of them fits its key, or if there is none."""
    assert subscribe(world, "all") == 1
    assert subscribe(world, "a", "KEY", "task.*") == 1
    assert subscribe(world, "a", "KEY", "#") == 1
    assert subscribe(world, "a", "KEY", "task.*") == 0
    assert subscribe(world, "b", "KEY", "worker.#.end") == 1
    assert queues_of(world, "task.begin") == [b"a", b"all"]
    assert queues_of(world, "worker.end") == [b"a", b"all", b"b"]
    assert queues_of(world, "worker.x.y.end") == [b"a", b"all", b"b"]
    assert queues_of(world, "worker.x.y") == [b"a", b"all"]
    assert queues_of(world, None) == [b"a", b"all"]
    assert rows(world) == {b"all": [], b"a": [b"task.*", b"#"], b"b": [b"worker.#.end"]}
    assert world.run("TOPIC", "UNSUBSCRIBE", "events", "a", "KEY", "#") == 1
    assert world.run("TOPIC", "UNSUBSCRIBE", "events", "a", "KEY", "#") == 0
    assert queues_of(world, None) == [b"all"]
    assert queues_of(world, "task.begin") == [b"a", b"all"]
    assert world.run("TOPIC", "UNSUBSCRIBE", "events", "a", "KEY", "task.*") == 1
    assert queues_of(world, "task.begin") == [b"all"]
    assert subscribe(world, "b") == 1
    assert queues_of(world, "task.begin") == [b"all", b"b"]
    assert world.n.topics.trees == {}
    assert world.run("DEBUG", "CHECK") == b"OK"


def test_keys_and_filters_together(world: World) -> None:
    assert subscribe(world, "a", "KEY", "x.*", "FILTER", "kind", "big*") == 1
    add = ("TOPIC", "ADD", "events", "b", 0, "KEY")
    header = ("HEADERS", 1, "kind", "bigger")
    assert len(world.run(*add, "x.y", *header)) == 1
    assert world.run(*add, "x", *header) == []
    assert world.run(*add, "x.y") == []


@pytest.mark.parametrize("seed", range(4))
def test_the_tree_against_a_plain_matcher(seed: int) -> None:
    """T63.3 All patterns of a topic are a tree of their words, and a key goes through it once"""
    dice = random.Random(seed)
    tree, known = Tree(), set()
    for _ in range(1_200):
        words = [dice.choice(["a", "b", "", "*", "#"]) for _ in range(dice.randint(1, 5))]
        one = (".".join(words), f"q{dice.randrange(9)}")
        if one in known:
            known.discard(one)
            tree.remove(one[0].encode(), one[1].encode())
        elif len(known) < 30:
            known.add(one)
            tree.add(one[0].encode(), one[1].encode())
        key = ".".join(dice.choice(["a", "b", "c", ""]) for _ in range(dice.randint(1, 6)))
        match = Match(tree, key.encode())
        while match.left:
            assert match.step() > 0
        parts = key.split(".") if key else []
        found = {q.encode() for pattern, q in known if fits(pattern.split("."), parts)}
        assert set(match.queues()) == found, (key, known)
    assert tree.count == len(known)
    for pattern, queue in known:
        tree.remove(pattern.encode(), queue.encode())
    assert tree.root.words == {} and tree.count == 0


def test_patterns_have_bounds(world: World) -> None:
    """T63.1 A key is words between dots, 1 to 255 bytes and up to 32 words."""
    text = "ERR a key has 1 to 255 bytes, and up to 32 words between dots"
    for odd in ("", "x" * 256, ".".join("x" * 33)):
        assert str(subscribe(world, "a", "KEY", odd)) == text
        assert str(world.run("TOPIC", "ADD", "events", "b", 0, "KEY", odd)) == text
    for i in range(64):
        assert subscribe(world, "a", "KEY", f"x.{i}") == 1
    text = "ERR queue 'a' has 64 patterns in topic 'events', the most that it may have"
    assert str(subscribe(world, "a", "KEY", "y")) == text
    assert subscribe(world, "a", "KEY", ".".join("#" * 32)) is not None
    assert "KEY needs a value" in str(subscribe(world, "a", "KEY"))
    assert "has no option 'KEYS'" in str(subscribe(world, "a", "KEYS", "x"))
    refused = world.run("TOPIC", "UNSUBSCRIBE", "events", "a", "FILTER", "x")
    assert "TOPIC UNSUBSCRIBE has no option 'FILTER'" in str(refused)


def test_patterns_are_in_journal_and_snapshot(make_world: Callable[..., World]) -> None:
    """T63.4 The record `topic-keys` follows the `topic` of a subscription with patterns (T60.6)."""
    world = make_world(journal="always")
    subscribe(world, "a", "KEY", "x.*")
    subscribe(world, "a", "KEY", "y")
    subscribe(world, "gone", "KEY", "z")
    subscribe(world, "gone")
    for _ in range(2):
        world.kill(0)
        world.start(0)
        world.pass_ms(100)
        assert rows(world) == {b"a": [b"x.*", b"y"], b"gone": []}
        assert queues_of(world, "x.z") == [b"a", b"gone"]
        world.rewrite()
    assert world.run("TOPIC", "UNSUBSCRIBE", "events", "a", "KEY", "y") == 1
    world.restart(0)
    assert rows(world)[b"a"] == [b"x.*"]


def test_other_nodes_learn_of_patterns(make_world: Callable[..., World]) -> None:
    """T63.4 Of two changes at nodes that were apart the later one wins with all of its patterns
    (T60.4).
    """
    world = make_world(2)
    world.wire(0)("TOPIC", "SUBSCRIBE", "events", "a", "KEY", "x.#")
    world.settle()
    assert rows(world, 1) == {b"a": [b"x.#"]}
    world.cut(0, 1)
    world.wire(0)("TOPIC", "SUBSCRIBE", "events", "a", "KEY", "y")
    world.pass_ms(100)
    world.wire(1)("TOPIC", "SUBSCRIBE", "events", "a", "KEY", "z")
    world.heal()
    world.pass_ms(5_000)
    assert rows(world, 0) == rows(world, 1) == {b"a": [b"x.#", b"z"]}


def test_who_consumes_may_subscribe(world: World) -> None:
    """T61.4 A user with `consume` may subscribe a queue that it may use to a topic of that kind."""
    world.run("ACL", "SETUSER", "shop", "on", "nopass", "~shop.*", "+@consume")
    wire = world.wire()
    wire("AUTH", "shop", "x")
    assert wire("TOPIC", "SUBSCRIBE", "shop.events", "shop.a", "KEY", "x") == 1
    assert wire.say(encode("TOPIC", "SUBSCRIBE", "events", "shop.a")).startswith(b"-NOPERM")
    assert wire.say(encode("TOPIC", "SUBSCRIBE", "shop.events", "a")).startswith(b"-NOPERM")
