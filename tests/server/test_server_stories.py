"""Short stories in which a Disque cluster loses, doubles or resurrects jobs; ours do not.

Each is what somebody would do by hand on nodes. The numbers of flaws are those in
docs/from-disque.md. The eighth is that of a planned restart (test_e2e_journal.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest

from raw_resp import NULL, Err
from world import World

MakeWorld = Callable[..., World]
TIMEOUT = {"cluster_node_timeout": 1_000}
MEMORY = TIMEOUT | {"journal": "off"}


def getjob(world: World, i: int, *, timeout_ms: int = 1) -> list[bytes]:
    """The ids of up to 100 jobs of q that can be had of a node."""
    reply = world.wire(i).ask("GETJOB", "TIMEOUT", timeout_ms, "COUNT", 100, "FROM", "q")
    return [] if reply is NULL else [job[1] for job in reply]


def watch(world: World, nodes: Iterable[int], span_ms: int) -> list[bytes]:
    """All that can be had from these nodes in the time."""
    wires = [world.wire(i) for i in nodes]
    for wire in wires:
        wire.send("GETJOB", "TIMEOUT", span_ms, "COUNT", 100, "FROM", "q")
    world.pass_ms(span_ms + 10)
    replies = [wire.take() for wire in wires]
    assert None not in replies, "a GETJOB waits on after its time"
    return [job[1] for reply in replies if reply is not NULL for job in reply]


def registered(world: World) -> list[int]:
    """How many jobs each node that is up knows."""
    return [len(node.jobs_now()) for node in world.up()]


def repaired(world: World) -> bool:
    """Whether every node says that no job lacks a copy."""
    replies = [world.wire(i)("CLUSTER", "REPAIR") for i in world.numbers()]
    return world.is_whole() and all(reply in (b"done", 0) for reply in replies)


def test_1_an_ack_at_the_importer_is_final(make_world: MakeWorld) -> None:
    """Flaw 1: a job of A is taken and acked at B; A must not deliver it again."""
    world = make_world(2, **MEMORY)
    id = world.wire(0).ask("ADDJOB", "q", "x", 2000, "REPLICATE", 1, "RETRY", 2)
    assert getjob(world, 1, timeout_ms=3000) == [id]
    assert world.wire(1).ask("ACKJOB", id) == 1
    assert watch(world, (0, 1), 3_500) == []
    world.until(lambda: registered(world) == [0, 0])


def test_2_numbers_do_not_wrap(make_world: MakeWorld) -> None:
    """Flaw 14: TTL and RETRY of 2^32 are refused, not taken for 0."""
    world = make_world(2, **MEMORY)
    for option in ("TTL", "RETRY"):
        reply = world.wire(0).ask("ADDJOB", "q", "x", 1000, option, 1 << 32)
        assert isinstance(reply, Err)
        assert reply.startswith(f"ERR {option}")
    assert registered(world) == [0, 0]


def test_3_working_does_not_end_a_delay(make_world: MakeWorld) -> None:
    """Flaw 15: WORKING on a job with DELAY 3600 RETRY 1 is refused, and it stays delayed."""
    world = make_world(2, **MEMORY)
    id = world.wire(0).ask("ADDJOB", "q", "x", 1000, "DELAY", 3600, "RETRY", 1)
    reply = world.wire(0).ask("WORKING", id)
    assert isinstance(reply, Err)
    assert reply.startswith("NOTDELIVERED")
    assert watch(world, (0, 1), 1_500) == []


def test_4_a_rolling_restart_loses_no_copy(make_world: MakeWorld) -> None:
    """Flaw 3: three nodes without disk restart one by one; every job keeps three copies."""
    world = make_world(3, **MEMORY)
    wire = world.wire(0)
    ids = [wire.ask("ADDJOB", "q", "x", 20_000, "REPLICATE", 3) for _ in range(20)]
    assert all(isinstance(id, bytes) for id in ids)
    for i in range(3):
        world.until(lambda: repaired(world))
        world.kill(i)
        world.start(i)
        world.until(lambda: repaired(world))
    for id in ids:
        assert world.holders(id) == [0, 1, 2]
    assert set(watch(world, range(3), 2_000)) <= set(ids)


def test_5_a_leaving_node_takes_at_most_once_jobs(make_world: MakeWorld) -> None:
    """Flaw 8: ADDJOB RETRY 0 at a leaving node: the job is delivered by another one, once."""
    world = make_world(2, **MEMORY)
    a = world.wire(0)
    assert a.ask("CLUSTER", "LEAVING", "yes") == b"OK"
    id = a.ask("ADDJOB", "q", "x", 2000, "RETRY", 0, "REPLICATE", 1)
    assert isinstance(id, bytes)
    assert getjob(world, 1, timeout_ms=3000) == [id]
    assert watch(world, (1,), 1_000) == []


def test_6_an_ack_at_a_leaving_node_is_passed_on(make_world: MakeWorld) -> None:
    """Flaw 9: ACKJOB at a leaving node for a job that it does not hold ends the job."""
    world = make_world(2, **MEMORY)
    id = world.wire(1).ask("ADDJOB", "q", "x", 2000, "REPLICATE", 1, "RETRY", 2)
    assert getjob(world, 1) == [id]
    a = world.wire(0)
    assert a.ask("CLUSTER", "LEAVING", "yes") == b"OK"
    a.ask("ACKJOB", id)
    assert watch(world, (1,), 3_500) == []
    assert registered(world)[1] == 0


def test_7_forged_ids_cost_nothing(make_world: MakeWorld) -> None:
    """Flaw 10: 20,000 invented ids in ACKJOB while a peer is stopped leave nothing behind."""
    world = make_world(2, **MEMORY)
    a = world.wire(0)
    world.stall(1, 60_000)
    forged = [b"D-%08x-%024d-05a1" % (i, i) for i in range(20_000)]
    for at in range(0, len(forged), 1000):
        assert a.ask("ACKJOB", *forged[at : at + 1000]) == 0
    assert registered(world) == [0, 0]


def test_9_an_ack_survives_restarts(make_world: MakeWorld) -> None:
    """Flaw 4: with C down a job is acked, A and B restart, C comes back: it is not delivered."""
    world = make_world(3, **TIMEOUT, journal="always")
    id = world.wire(0).ask("ADDJOB", "q", "x", 20_000, "REPLICATE", 3, "RETRY", 2)
    assert isinstance(id, bytes)
    world.kill(2)
    assert getjob(world, 0) == [id]
    assert world.wire(0).ask("ACKJOB", id) == 1
    for i in (0, 1):
        world.kill(i)
        world.start(i)
    world.start(2)
    world.until(world.is_whole)
    assert watch(world, range(3), 4_000) == []
    world.until(lambda: registered(world) == [0, 0, 0])


def test_10_a_forgotten_node_holds_nothing_up(make_world: MakeWorld) -> None:
    """Flaw 11: C dies and is forgotten; the ack of a job that it had is collected all the same."""
    world = make_world(3, **MEMORY)
    id = world.wire(0).ask("ADDJOB", "q", "x", 20_000, "REPLICATE", 3, "RETRY", 30)
    dead_id = world.wire(2)("CLUSTER", "MYID")
    world.kill(2)
    for i in (0, 1):
        reply = world.wire(i).ask("CLUSTER", "FORGET", dead_id)
        assert reply == b"OK" or "Unknown" in reply  # the first told the second
    assert world.wire(0).ask("ACKJOB", id) == 1
    world.until(lambda: registered(world) == [0, 0])


@pytest.mark.parametrize("seed", range(1, 4))
def test_11_an_ack_waits_for_a_holder_that_is_away(make_world: MakeWorld, seed: int) -> None:
    """Flaw 1: a job of {A, C} is acked at importer B while C is stopped: C must not revive it."""
    world = make_world(3, **MEMORY, seed=seed)
    a, b = world.wire(0), world.wire(1)
    while True:
        id = a.ask("ADDJOB", "q", "x", 20_000, "REPLICATE", 2, "RETRY", 2)
        if world.holders(id) == [0, 2]:
            break
        assert a.ask("FASTACK", id) == 1
    away_ms = 20_000
    world.stall(2, away_ms)
    began_ms = world.now_ms
    world.until(lambda: getjob(world, 1, timeout_ms=500) == [id])
    assert b.ask("ACKJOB", id) == 1
    world.pass_ms(1_000)
    assert world.holders(id) != [2], "nobody remembers the ack"
    world.pass_ms(began_ms + away_ms - world.now_ms)
    assert watch(world, range(3), 4_000) == []
    world.until(lambda: registered(world) == [0, 0, 0])


def test_12_retry_counts_from_the_delivery(make_world: MakeWorld) -> None:
    """Flaw 2: a job that waited long comes again RETRY after its delivery, not before."""
    world = make_world(1, **MEMORY)
    id = world.add("q", "x", RETRY=3)
    world.pass_ms(2_700)  # the time of which the flaw is made
    assert world.get() == [id]
    began_ms = world.now_ms
    assert getjob(world, 0, timeout_ms=10_000) == [id]
    assert world.now_ms - began_ms >= 3_000
