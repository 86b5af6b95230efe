"""N11: what tenants share, and that none uses it up."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from raw_resp import Err, encode
from tuque.core.node.tables import bare_size
from world import World
from world_wires import Wire


@pytest.fixture
def world(make_world: Callable[..., World]) -> World:
    made = make_world()
    root = made.wire()
    for name in ("ann", "bob"):
        words = ("ACL", "SETUSER", name, "on", "nopass", "+@all", "~*", f"tenant:{name}s")
        assert root(*words) == b"OK"
    return made


def pass_s(world: World, seconds: int) -> None:
    world.pass_ms(seconds * 1_000)


def done(wire: Wire, result: str) -> bytes:
    """The id of a job that ended with that result."""
    id = wire("ADDJOB", "q", "x", 0, "ATTEMPTS", 1, "KEEP", 600)
    assert isinstance(id, bytes)
    wire("GETJOB", "FROM", "q")
    run = wire("START", id)
    assert isinstance(run, list)
    assert wire("DONE", id, run[0][0], "RESULT", result) == 1
    return id


def dead(wire: Wire, detail: str) -> bytes:
    """The id of a dead letter with that detail."""
    id = wire("ADDJOB", "q", "x", 0, "ATTEMPTS", 1)
    assert isinstance(id, bytes)
    wire("GETJOB", "FROM", "q")
    run = wire("START", id)
    assert isinstance(run, list)
    wire("FAIL", id, run[0][0], "DETAIL", detail)
    return id


def state(wire: Wire, id: bytes) -> object:
    said = wire("RESULT", id)
    return said if isinstance(said, Err) else b"kept"


def test_results_of_others_stay(world: World) -> None:
    """N11.7 Where the bound of all outcomes (W7.4) or of all dead letters (W6.6) is reached, and a
    tenant has more than a quarter of it, the oldest of the tenant that has most go first.
    """
    root, ann, bob = world.wire(), world.user("ann"), world.user("bob")
    root("CONFIG", "SET", "results-max-bytes", 100_000)
    first = done(ann, "a" * 1_000)
    flood = [done(bob, "b" * 9_000) for _ in range(30)]
    assert state(ann, first) == b"kept"
    held = [state(bob, id) == b"kept" for id in flood]
    assert held == sorted(held) and 8 <= sum(held) <= 11
    last = [done(ann, "a" * 1_000) for _ in range(5)]
    assert {state(ann, id) for id in (first, *last)} == {b"kept"}


def test_letters_of_others_stay(world: World) -> None:
    """N11.7 the oldest of the tenant that has most go first."""
    root, ann, bob = world.wire(), world.user("ann"), world.user("bob")
    root("CONFIG", "SET", "dead-max-bytes", 100_000)
    first = dead(ann, "a" * 1_000)
    flood = [dead(bob, "b" * 9_000) for _ in range(30)]
    rows = ann("DEAD", "LIST", "q.dead")
    assert isinstance(rows, list) and [row[0] for row in rows[1]] == [first]
    rows = bob("DEAD", "LIST", "q.dead", "COUNT", 100)
    assert isinstance(rows, list)
    left = [row[0] for row in rows[1]]
    assert left == flood[-len(left) :] and 8 <= len(left) <= 11
    bob("DEAD", "PURGE", "q.dead", "ALL")
    assert list(world.n.life.shares.by_name) == [b"anns"], "nothing of it is left"


def test_what_is_kept_counts(world: World) -> None:
    """N11.2 bytes are those of their bodies, of what is staged, of kept outcomes with their
    results, and of what is known of its dead letters.
    """
    root, ann = world.wire(), world.user("ann")
    root("ACL", "SETUSER", "ann", "quota:bytes=5000")
    done(ann, "r" * 5_000)
    assert "QUOTA tenant 'anns' has jobs of 5" in str(ann("ADDJOB", "q", "x", 0))
    pass_s(world, 601)
    dead(ann, "d" * 5_000)
    assert "QUOTA" in str(ann("ADDJOB", "q", "x", 0))
    ann("DEAD", "PURGE", "q.dead", "ALL")
    assert isinstance(ann("STAGE", "t", "a", 9000, "q", "x" * 4_900), int)
    assert "QUOTA" in str(ann("STAGE", "t", "a", 9000, "q", "x"))
    pass_s(world, 10)
    assert isinstance(ann("ADDJOB", "q", "x", 0), bytes)


def test_groups_of_leases(world: World) -> None:
    """N11.8 A tenant's users open no more groups of leases (Y1.4), make no more tubes (T2.7),
    subscribe to no more topics (T60.2) and use no more keys of DEDUPE (Z4.6) than a quarter of what
    the node may have; tubes and keys are refused as there, with the tenant's figures.
    """
    ann, bob = world.user("ann"), world.user("bob")
    for i in range(250):
        assert isinstance(ann("LEASE", "OPEN", f"g{i}", "me", "q"), int)
    text = "QUOTA tenant 'anns' has 250 groups of leases, a quarter of what this node may have"
    assert text in str(ann("LEASE", "OPEN", "more", "me", "q"))
    assert isinstance(ann("LEASE", "OPEN", "g3", "other", "q"), int), "it is there"
    assert isinstance(bob("LEASE", "OPEN", "more", "me", "q"), int)


def test_released_groups_of_a_tenant(world: World) -> None:
    """N11.8 Before that, an unused group of the tenant makes room as in Y1.4, at once if it was
    released last (Y5.4).
    """
    ann, bob = world.user("ann"), world.user("bob")
    other = bob("LEASE", "OPEN", "bobs", "me", "q")
    assert bob("LEASE", "RELEASE", "bobs", int(str(other))) == 0
    epochs = [ann("LEASE", "OPEN", f"g{i}", "me", "q") for i in range(250)]
    assert "LEASE RELEASE those" in str(ann("LEASE", "OPEN", "more", "me", "q"))
    assert ann("LEASE", "RELEASE", "g7", int(str(epochs[7]))) == 0
    assert isinstance(ann("LEASE", "OPEN", "more", "me", "q"), int)
    assert "NOGROUP" in str(ann("LEASE", "INFO", "g7"))
    assert "NOGROUP" not in str(bob("LEASE", "INFO", "bobs")), "of another tenant"


def test_tubes(world: World) -> None:
    """N11.8 make no more tubes (T2.7)"""
    root, ann, bob = world.wire(), world.user("ann"), world.user("bob")
    root("CONFIG", "SET", "tubes-max", 20)
    for i in range(5):
        assert ann("TUBE", "CREATE", f"t{i}", "fifo") == b"OK"
    assert "5 tubes exist, and tubes-max is 5" in str(ann("TUBE", "CREATE", "t", "fifo"))
    assert bob("TUBE", "CREATE", "t", "fifo") == b"OK"
    assert ann("TUBE", "DROP", "t0") == b"OK"
    assert ann("TUBE", "CREATE", "t", "fifo") == b"OK"


def test_keys(world: World) -> None:
    """N11.8 use no more keys of DEDUPE (Z4.6)"""
    root, ann, bob = world.wire(), world.user("ann"), world.user("bob")
    root("CONFIG", "SET", "dedupe-max-keys", 20)
    for i in range(5):
        said = ann("ADDJOB", "q", "x", 0, "DEDUPE", f"k/{i}", "DEDUPETTL", 60_000)
        assert isinstance(said, bytes)
    said = ann("ADDJOB", "q", "x", 0, "DEDUPE", "k", "DEDUPETTL", 60_000)
    assert "OOM this node keeps 5 DEDUPE keys, at most" in str(said)
    assert isinstance(bob("ADDJOB", "q", "x", 0, "DEDUPE", "k"), bytes)
    pass_s(world, 61)
    said = ann("ADDJOB", "q", "x", 0, "DEDUPE", "k", "DEDUPETTL", 60_000)
    assert isinstance(said, bytes)


def test_released_groups_make_room(world: World) -> None:
    """Y5.4 A group that was released last is unused since ever: where there is no room for another
    one, it goes at once (Y1.4).
    """
    root = world.wire()
    epochs = [root("LEASE", "OPEN", f"g{i}", "me", "q") for i in range(1_000)]
    assert "LEASE RELEASE those" in str(root("LEASE", "OPEN", "more", "me", "q"))
    assert root("LEASE", "RELEASE", "g7", int(str(epochs[7]))) == 0
    assert isinstance(root("LEASE", "OPEN", "more", "me", "q"), int)
    assert "NOGROUP" in str(root("LEASE", "INFO", "g7"))


def test_names_of_queues(world: World) -> None:
    """N11.9 A tenant's PAUSE, and what adds jobs to one queue, make no queue if the tenant's queues
    would cost more than a quarter of `maxmemory`, without their jobs
    """
    root, ann, bob = world.wire(), world.user("ann"), world.user("bob")
    assert root("CONFIG", "SET", "maxmemory", "8mb") == b"OK"
    full = b"-QUOTA tenant 'anns' has queues of "
    for word in ("PAUSE", "ADDJOB"):
        for i in range(1_000):
            name = f"{word}{i}" + 9_000 * "p"
            if word == "PAUSE":
                said = ann.say(encode(word, name, "in"))
            else:
                said = ann.say(encode(word, name, "b", 0))
                ann.say(encode("DELJOB", said[1:-2]))
            if said.startswith(b"-"):
                break
        assert said.startswith(full) and said.endswith(b"use fewer names\r\n")
        held = int(world.n.book.owners[b"anns"].queue_bytes)
        assert 2 << 20 >= held > (2 << 20) - 750 - 4 * 9_010
    assert isinstance(bob("ADDJOB", "q" * 9_000, "b", 0), bytes)
    assert ann.say(encode("PAUSE", f"PAUSE0{9_000 * 'p'}", "in")) == b"+in\r\n"  # it is there


def test_names_that_are_waited_for(world: World) -> None:
    """N11.9 Of what bare queues may use (M5.4) a tenant has at most a quarter: `-QUOTA tenant
    '<name>' waits for new queues of <n> bytes, a quarter of what all may have: wait for fewer
    names`.

    M5.4 A queue that a GETJOB has made by waiting is bare until it has a job or a pause. Bare
    queues may use an eighth of `maxmemory`
    """
    root, ann, bob = world.wire(), world.user("ann"), world.user("bob")
    assert root("CONFIG", "SET", "maxmemory", "8mb") == b"OK"
    full = b"-QUOTA tenant 'anns' waits for new queues of "
    said, rounds = b"", 0
    before = world.n.counted_bytes()
    while said == b"" and rounds < 100:
        names = [f"{rounds}_{i}" + 900 * "n" for i in range(5)]
        said = world.user("ann").say(encode("GETJOB", "TIMEOUT", 60_000, "FROM", *names))
        rounds += 1
    assert said.startswith(full) and said.endswith(b"wait for fewer names\r\n")
    held = int(world.n.book.owners[b"anns"].bare_bytes)
    assert 1 << 18 >= held > (1 << 18) - 5 * (1_200 + 5 * 910)
    assert world.n.counted_bytes() - before < 1 << 18
    assert ann.say(encode("GETJOB", "NOHANG", "FROM", *names)) == b"*-1\r\n"
    assert bob.say(encode("GETJOB", "TIMEOUT", 60_000, "FROM", "q")) == b""
    for i in range(5):  # with jobs they are queues as others are
        assert isinstance(ann("ADDJOB", f"0_{i}" + 900 * "n", "b", 0), bytes)
    assert world.user("ann").say(encode("GETJOB", "TIMEOUT", 60_000, "FROM", *names)) == b""
    assert world.n.bare_bytes == sum(bare_size(name) for name in world.n.bare)


def test_queues_that_nobody_waits_for_make_room(world: World) -> None:
    """M4.1 10 s at level 1, 2 s at level 2 and above, and while bare queues (M5.4) use more than
    half of what they may.
    """
    root = world.wire()
    assert root("CONFIG", "SET", "maxmemory", "8mb") == b"OK"
    wires = []
    while 2 * world.n.bare_bytes <= 1 << 20:
        wires.append(world.wire())
        names = [f"{len(wires)}_{i}" + 900 * "n" for i in range(20)]
        assert wires[-1]("GETJOB", "TIMEOUT", 0, "FROM", *names) is None
    for wire in wires:
        wire.close()
    pass_s(world, 5)
    assert 2 * world.n.bare_bytes <= 1 << 20 and len(world.n.queues) < 20 * len(wires)
