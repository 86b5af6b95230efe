"""What a command is said to have taken, and when a turn ended: both with few looks at the clock."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pump_box import PumpBox

SLOW_S = 1.0  # longer than the system lets a short command wait for a core


@pytest.fixture
def box(tmp_path: Path) -> Iterator[PumpBox]:
    box = PumpBox(tmp_path)
    yield box
    box.close()
    box.listener.close()


def longest_ping_s(box: PumpBox) -> float:
    """At least the time that the longest PING took."""
    return box.server.table[b"PING"].usec_ns / 1e9


def test_a_command_is_not_said_to_take_the_time_of_another_clients(box: PumpBox) -> None:
    """Both run in one turn; the second begins when the first has ended."""
    first, second = box.connect(), box.connect()
    first.sock.sendall(b"DEBUG SLEEP %.1f\r\n" % SLOW_S)
    second.sock.sendall(b"PING\r\n")
    turns = box.server.figures.turns
    box.pump.turn(0)
    assert box.server.figures.turns == turns + 1
    assert box.server.table[b"DEBUG"].usec_ns >= SLOW_S * 1e9
    assert box.server.table[b"PING"].calls == 1
    assert 0 < longest_ping_s(box) < SLOW_S


def test_nor_what_the_loop_did_between_two_commands(box: PumpBox) -> None:
    """A bell rings between the commands of two clients, and what it calls takes long."""
    first, second = box.connect(), box.connect()
    reading, writing = os.pipe()
    rung = []

    def on_ring() -> None:
        rung.append(os.read(reading, 8))
        time.sleep(SLOW_S)

    box.pump.watch_bell(reading, on_ring)
    first.sock.sendall(b"PING\r\n")
    os.write(writing, b"x")
    second.sock.sendall(b"PING\r\n")
    box.pump.turn(0)
    assert rung == [b"x"]
    assert box.server.table[b"PING"].calls == 2
    assert 0 < longest_ping_s(box) < SLOW_S
    os.close(reading)
    os.close(writing)


def test_the_sleep_after_a_turn_is_shorter_by_what_the_turn_took(box: PumpBox) -> None:
    pump = box.pump
    pump.began_ns, pump.ended_ns = 1_000_000, 8_900_000
    at_ms = box.n.now_ms
    assert pump.ended_ms() == at_ms + 7
    pump.house_ms = at_ms + 50
    box.connect()  # with clients there is housekeeping to do
    pump.house_ms = box.n.now_ms + 50
    assert pump.sleep_ms(-1, box.n.now_ms + 7) == 43
    assert pump.sleep_ms(20, box.n.now_ms + 7) == 20
