"""What a command is said to have taken, and when a turn ended: both with few looks at the clock."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

import pytest

from raw_resp import encode
from sim.machines.kernel import SimWakeup
from tuque.core.model.timers import NEVER_MS
from tuque.server.state.server import JOURNAL, REFUSED, SYNCED, WATCH
from world import Wire, World

SLOW_S = 1.0  # longer than the system lets a short command wait for a core


@pytest.fixture
def world(make_world: Callable[..., World], monkeypatch: pytest.MonkeyPatch) -> World:
    """A node without a bus, in which DEBUG may sleep: commands take real time."""
    made = make_world(journal="off", cluster_enabled=False, enable_debug_command="yes")
    monkeypatch.setattr(made.server.system, "work_ns", time.perf_counter_ns)
    return made


def longest_ping_s(world: World) -> float:
    """At least the time that the longest PING took."""
    return world.server.table[b"PING"].usec_ns / 1e9


def test_a_command_is_not_said_to_take_the_time_of_another_clients(world: World) -> None:
    """Both run in one turn; the second begins when the first has ended."""
    first, second = world.wire(), world.wire()
    first.put(b"DEBUG SLEEP %.1f\r\n" % SLOW_S)
    second.put(b"PING\r\n")
    turns = world.server.figures.turns
    world.turn()
    assert world.server.figures.turns == turns + 1
    assert world.server.table[b"DEBUG"].usec_ns >= SLOW_S * 1e9
    assert world.server.table[b"PING"].calls == 1
    assert 0 < longest_ping_s(world) < SLOW_S


def test_nor_what_the_loop_did_between_two_commands(world: World) -> None:
    """A bell rings between the commands of two clients, and what it calls takes long."""
    first, second = world.wire(), world.wire()
    shell = world.node().shell
    bell = SimWakeup(shell.kernel)
    rung = []

    def on_ring() -> None:
        bell.quiet()
        rung.append(world.server.table[b"PING"].calls)
        time.sleep(SLOW_S)

    world.pump.watch_bell(bell.fd, on_ring)
    shell.is_paused = True
    first.put(b"PING\r\n")
    world.settle_wires()
    bell.ring()
    second.put(b"PING\r\n")
    world.settle_wires()
    world.node().turn()
    world.node().machine.go_on(shell)
    assert rung == [1]
    assert world.server.table[b"PING"].calls == 2
    assert 0 < longest_ping_s(world) < SLOW_S


def test_the_sleep_after_a_turn_is_shorter_by_what_the_turn_took(world: World) -> None:
    pump = world.pump
    world.wire()  # with clients there is housekeeping to do
    at_ms = world.n.now_ms
    pump.began_ns, pump.ended_ns = 1_000_000, 8_900_000
    assert pump.ended_ms() == at_ms + 7
    pump.house_ms = at_ms + 50
    assert pump.sleep_ms(-1, at_ms + 7) == 43
    assert pump.sleep_ms(20, at_ms + 7) == 20


def set_now(world: World) -> set[int]:
    """The alarms of the first node that are set."""
    return {slot for slot, at_ms in enumerate(world.server.alarms.at_ms) if at_ms != NEVER_MS}


@pytest.mark.parametrize("seed", range(2))
def test_no_alarm_is_forgotten(make_world: Callable[..., World], seed: int) -> None:
    """The world compares the alarms after each turn with what their features would say."""
    world = make_world(3, maxclients="1", enable_debug_command="yes")
    chance = random.Random(seed)
    wire, guests = world.wire(), list[Wire]()
    assert wire("TUBE", "CREATE", "t", "fifo", "SYNC", "majority") == b"OK"
    for _ in range(3):  # the places for administrators; later guests are refused
        admin = world.wire()
        assert admin("CONFIG", "GET", "nothing") == []
    seen: set[int] = set()
    for i in range(60):
        lot = chance.random()
        if lot < 0.4:
            for other in (1, 2):
                world.hold(0, other)
            for _ in range(chance.randrange(4)):
                wire.put(encode("TUBE", "PUT", "t", b"%d" % i))
                admin.put(encode("DEBUG", "CHECK"))  # in the same turn
                world.pass_ms(chance.randrange(9))
                assert admin.take() == b"OK"
            seen |= set_now(world)
            for other in (1, 2):
                world.let_go(0, other)
        elif lot < 0.6:
            guests.append(world.wire())
        elif lot < 0.7 and guests:
            guests.pop(chance.randrange(len(guests))).close()
        else:
            world.pass_ms(chance.choice([1, 30, 700, 6_000]))
        world.settle_wires()
        seen |= set_now(world)
    assert seen - {JOURNAL} == {WATCH, REFUSED, SYNCED}
