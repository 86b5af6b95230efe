"""What clients hold is reserved: it is bounded, counted, and lets jobs of others in (SPEC M5)."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest

from iproto_raw import request
from raw_resp import encode
from tuque.server.state.client import HOLE_BYTES, Connection
from world import World
from world_wires import Wire

MB = 1 << 20
MOST = 64 * MB // 5  # reserved: 20 % of maxmemory


@pytest.fixture
def world(make_world: Callable[..., World]) -> World:
    made = make_world(maxmemory="64mb")
    root = made.wire()
    for name in ("ann", "bob"):
        words = ("ACL", "SETUSER", name, "on", "nopass", "+@all", "~*", f"tenant:{name}s")
        assert root(*words) == b"OK"
    return made


def make_queues(world: World) -> None:
    """Those that `wait_for_names` names."""
    bob = world.user("bob")
    for k in range(20):
        bob.add(f"{k:060000d}")
        bob.get(f"{k:060000d}")


def wait_for_names(world: World, i: int) -> Wire:
    """A GETJOB that waits for long names of queues that are there."""
    wire = world.user("bob")
    assert wire("GETJOB", "FROM", *[f"{k:060000d}" for k in range(20)]) is None
    return wire


def send_half(world: World, i: int) -> Wire:
    """Most of a body."""
    wire = world.user("bob")
    wire.put(b"*4\r\n$6\r\nADDJOB\r\n$1\r\nq\r\n$2000000\r\n" + b"x" * 1_500_000)
    world.settle()
    return wire


def leave_unread(world: World, i: int) -> Wire:
    """Replies that nobody reads."""
    wire = world.user("bob")
    wire.stop_reading()
    for _ in range(12):
        wire.put(encode("ECHO", "e" * 60_000) * 2)
        world.settle()
    return wire


def await_ids(world: World, i: int) -> Wire:
    """A wait for many jobs."""
    wire = world.user("bob")
    ids = [wire("ADDJOB", "q", "b", 0)]
    assert wire("WAITJOB", 0, *ids * 500) is None
    return wire


def put_into_full(world: World, i: int) -> Wire:
    """A put with a body that waits for room."""
    wire = world.user("bob")
    if i == 0:
        assert wire("TUBE", "CREATE", "t", "limfifottl", "capacity", 1) == b"OK"
        wire("TUBE", "PUT", "t", "first")
    assert wire("TUBE", "PUT", "t", "x" * 1_000_000, "TIMEOUT", 60_000) is None
    return wire


@pytest.mark.parametrize(
    ("attack", "count"),
    [
        (wait_for_names, 60),
        (send_half, 60),
        (leave_unread, 60),
        (await_ids, 140),
        (put_into_full, 60),
    ],
)
def test_none_holds_what_others_need(
    world: World, attack: Callable[[World, int], Wire], count: int
) -> None:
    """M5.3 When clients hold more than that, the node closes at the end of the turn the largest
    of the tenant whose clients hold most, until an eighth is free

    M5.2 The levels (M2) do not count it: whatever clients hold, jobs are taken.
    """
    n, ann = world.n, world.user("ann")
    make_queues(world)
    held = []
    for i in range(count):
        attack(world, i)
        assert isinstance(ann("ADDJOB", "q", "x" * 1_000, 0), bytes)
        held.append(n.held_by_clients())
        assert n.used_bytes() <= n.counted_bytes() + MOST
    assert max(held) <= MOST
    assert max(held) > MOST // 2 and world.server.figures.evicted > 0
    info = world.info("clients") | world.info("memory")
    assert int(info["evicted_clients"]) == world.server.figures.evicted
    assert int(info["mem_not_counted_for_evict"]) == n.held_by_clients()
    assert not ann.is_closed


LARGE = {
    "show": ("SHOW", "ID"),
    "peek": ("QPEEK", "q", 1),
    "scan": ("JSCAN", 0, "REPLY", "all"),
    "task": ("TUBE", "PEEK", "t", 0),
    "tasks": ("TUBE", "TASKS", "t", "READY"),
    "iproto": (),
}


@pytest.mark.parametrize("name", LARGE)
def test_large_replies_of_a_turn_are_few(make_world: Callable[..., World], name: str) -> None:
    """L2.8 A connection whose replies of a turn have over 1 MiB runs no more in it. Replies
    count as well, those of a connection when they have 1 KiB in a turn
    """
    world = make_world()
    assert world.run("TUBE", "CREATE", "t", "fifo") == b"OK"
    world.run("TUBE", "PUT", "t", "x" * 2 * MB)
    job_id = world.add("q", "x" * 2 * MB)
    words = [job_id if word == "ID" else word for word in LARGE[name]]
    call = request(10, 1, {0x22: "queue.tube.t:peek", 0x21: [0]})
    pipe = (encode(*words) if words else call) * 5
    wires = [world.wire() if words else world.iproto() for _ in range(6)]
    for wire in wires:
        wire.stop_reading()
        wire.put(pipe)
    grown = replies_by_turn(world)
    assert sum(grown) >= 30 * 2 * MB
    assert max(grown) <= 9 * MB, "in one step a node takes one turn at most"


def replies_by_turn(world: World) -> list[int]:
    """Carry out what is to be done; the bytes of replies that each step made."""
    held: list[int] = [0]
    while world.step():
        figures, clients = world.server.figures, world.server.clients
        wired = world.server.wired
        everyone: list[Connection] = [*clients.values(), *wired.values()]
        sent = int(figures.out_bytes) + sum(int(c.wire_bytes) for c in everyone)
        held.append(sent)
    return [after - before for before, after in itertools.pairwise(held)]


def test_replies_to_many_come_in_turns(make_world: Callable[..., World]) -> None:
    """L2.8 Replies count as well, those of a connection when they have 1 KiB in a turn"""
    world = make_world()
    job_id = world.add("q", "x" * 900_000)
    wires = [world.wire() for _ in range(30)]
    for wire in wires:
        wire.stop_reading()
        wire.put(encode("SHOW", job_id))
    grown = replies_by_turn(world)
    assert sum(grown) >= 30 * 900_000
    assert max(grown) <= 2 * MB, "not that of each connection in one turn"


def test_monitors_see_what_a_turn_runs(make_world: Callable[..., World]) -> None:
    """L2.8 Replies count as well, those of a connection when they have 1 KiB in a turn, and what
    monitors see.
    """
    world = make_world()
    monitors = [world.wire() for _ in range(20)]
    for wire in monitors:
        assert wire("MONITOR") == b"OK"
    for wire in [world.wire() for _ in range(9)]:
        wire.put(encode("PING", "e" * 60) * 300)
    grown = replies_by_turn(world)
    assert sum(grown) >= 20 * 9 * 300 * 60
    assert max(grown) <= 2 * MB


def test_many_that_wait_for_one_end_are_told_in_turns(make_world: Callable[..., World]) -> None:
    """L2.8 When replies to those who wait for ends of jobs have more than 1 MiB in a turn, the
    other ones get theirs in the next turns.
    """
    world = make_world()
    job_id = world.add("q", "b", KEEP=60)
    world.get("q")
    wires = [world.wire() for _ in range(60)]
    for wire in wires:
        assert wire("RESULT", job_id, "WAIT", 9_000) is None
    world.wire().put(encode("DONE", job_id, "-", "RESULT", "r" * 60_000))
    grown = replies_by_turn(world)
    assert sum(grown) >= 60 * 60_000
    assert max(grown) <= 2 * MB
    assert all(b"r" * 60_000 in wire.take() for wire in wires)


def test_what_is_sent_in_part_counts_as_a_whole(make_world: Callable[..., World]) -> None:
    """M5.1 A client holds its input that is no whole command or has not run, its replies that are
    not sent or wait for others
    """
    world = make_world()
    wire = world.wire()
    wire.stop_reading()
    wire.give(encode("SHOW", world.add("q", "x" * 3 * MB)))
    (piece,) = [piece for piece in wire.c.wire if len(piece) > 2 * MB]
    assert wire.c.wire_at > 500_000
    assert world.n.client_bytes >= len(piece)


def test_what_was_read_goes(make_world: Callable[..., World]) -> None:
    """M5.1 A client holds its input that is no whole command"""
    world = make_world()
    wire = world.wire()
    wire.give(b"PING\r\n" * 10_000 + b"*2\r\n$4\r\nECHO\r\n$1")
    strict = wire.c.reader.strict
    assert strict is not None and strict.buf.endswith(b"$1")
    assert len(strict.buf) < 600, "not all that came with it"


def test_replies_behind_others_count(make_world: Callable[..., World]) -> None:
    """M5.1 A client holds its input that is no whole command or has not run, its replies that are
    not sent or wait for others
    """
    world = make_world(2)
    wire = world.wire()
    before = world.n.client_bytes
    world.hold(0, 1)
    wire.put(encode("ADDJOB", "q", "b", 0, "REPLICATE", 2))
    for _ in range(100):
        wire.put(encode("ADDJOB", "q", "b", 0, "x" * 4_000))
    world.settle()
    world.pass_ms(2_000)
    assert wire.values() == []
    assert world.n.client_bytes - before > 101 * (HOLE_BYTES + 100), "each error has 107 bytes"
    world.release(0, 1)
    assert len(wire.values()) == 101
    world.pass_ms(2_000)
    assert world.n.client_bytes - before < 1_000


def test_the_words_of_a_long_command_count(make_world: Callable[..., World]) -> None:
    """M5.1 A client holds its input that is no whole command or has not run, its replies that are
    not sent or wait for others, the words of a long command and its reply in the making
    """
    world = make_world()
    job_id, wire = world.add(), world.wire()
    before = world.n.client_bytes
    wire.put(encode("ACKJOB", *[job_id] * 40_000))
    while world.step() and wire.c.long_command is None:
        pass
    assert world.n.client_bytes - before > 40_000 * len(job_id)
    world.settle()
    assert wire.values() == [1]
    assert world.n.client_bytes - before < 1_000


def test_a_long_command_goes_with_its_client(make_world: Callable[..., World]) -> None:
    """L2.2 If its connection closes, a command that has begun to change something runs to its end;
    any other command stops.

    And what it holds is free: the others of the line come first else.
    """
    world = make_world(journal="off")
    for _ in range(2_000):
        world.add()
    wires = [world.wire() for _ in range(20)]
    for wire in wires:
        wire.put(encode("JSCAN", 0, "BUSYLOOP", "REPLY", "all"))
    while world.step() and len(world.server.long_commands) < 15:
        pass
    for wire in wires[1:]:
        wire.reset()
    world.turn()
    world.turn()
    assert [long_command.c.address for long_command in world.server.long_commands] == [
        wires[0].address
    ]


def test_small_pieces_are_weighed(world: World) -> None:
    """M5.1 A client holds its input that is no whole command"""
    root, wire = world.wire(), world.wire()
    wire.put(b"*4\r\n$6\r\nADDJOB\r\n$1\r\nq\r\n$200000\r\n")
    for _ in range(200):
        wire.put(b"x")
        world.settle()
    world.pass_ms(2_000)
    assert root("PING") == b"PONG"
    assert world.n.client_bytes > 200 * 40, "each byte came in an object of its own"


def test_what_goes_is_counted_down(world: World) -> None:
    """M5.1 A client holds its input that is no whole command or has not run"""
    make_queues(world)
    before = world.n.held_by_clients()
    wires = [attack(world, 1) for attack in (send_half, wait_for_names, await_ids)]
    assert world.n.held_by_clients() > before + 2_500_000
    for wire in wires:
        wire.close()
    world.settle()
    assert world.n.held_by_clients() == before


def test_nothing_is_set_aside(make_world: Callable[..., World]) -> None:
    """M5.2 With 0 nothing is reserved: no client is closed for that, and the levels count what
    clients hold.
    """
    world = make_world(maxmemory="64mb", maxmemory_clients="0")
    root = world.wire()
    wires = []
    for _ in range(40):
        wires.append(world.wire())
        wires[-1].put(b"*4\r\n$6\r\nADDJOB\r\n$1\r\nq\r\n$2000000\r\n" + b"x" * 1_500_000)
        world.settle()
    assert world.n.counted_bytes() == world.n.used_bytes() > 50 * MB
    assert world.server.figures.evicted == 0
    assert "memory" in str(root("ADDJOB", "q", "b", 0)).lower()
    assert root("CONFIG", "SET", "maxmemory-clients", "10%") == b"OK"
    world.pass_ms(1_000)
    assert world.n.held_by_clients() < 6.4 * MB and world.server.figures.evicted > 30
    assert isinstance(root("ADDJOB", "q", "b", 0), bytes)


def test_classes_add_up(world: World) -> None:
    """S8.1 All classes add up to `used_memory`, except `used_memory_clients`: what clients hold
    (M5.1), the sum of the classes `buffers` and `waiting`.
    """
    send_half(world, 0)
    put_into_full(world, 0)
    info = world.info("memory")
    known = {
        name.removeprefix("used_memory_"): int(size)
        for name, size in info.items()
        if name.startswith("used_memory_") and size.isdigit()
    }
    for name in ("rss", "peak"):
        del known[name]
    held = known.pop("clients")
    assert sum(known.values()) == int(info["used_memory"])
    assert known["buffers"] + known["waiting"] == held > 2 * MB


def test_names_that_other_nodes_are_asked_for(make_world: Callable[..., World]) -> None:
    """M5.5 The names that GETJOB NOHANG and LEASE NEXT have asked other nodes for (F1.1) may use as
    much, and the levels do not count it. Beyond that other nodes are not asked for further names,
    until some have not been asked for again.
    """
    world = make_world(2, maxmemory="16mb")
    wire = world.wire(0)
    most = 0
    for i in range(60):
        names = [f"{i}_{k:09990d}" for k in range(10)]
        assert not isinstance(wire("GETJOB", "NOHANG", "FROM", *names), list)
        most = max(most, world.node(0).core.demand_bytes)
    assert (1 << 20) < most < (2 << 20) + 200_000
    asked = len(world.node(0).core.demands)
    world.pass_ms(3_000)
    for i in (0, 1):
        assert (
            world.node(i).core.demand_bytes < 1_200_000 and len(world.node(i).core.demands) < asked
        )
    assert isinstance(wire("ADDJOB", "q", "b", 0, "REPLICATE", 1), bytes)
