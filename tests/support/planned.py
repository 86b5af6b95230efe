"""Turns and time of a server with schedules, and what they made."""

from __future__ import annotations

from typing import Any

from door import Door

from tuque.core.dispatch.timers import next_timer_ms, tick
from tuque.server.loop.pump import end_turn, next_turn_ms

SLACK_MS = 20  # timers are that late


def turn(door: Door) -> None:
    """Turns of the loop, until none has work at this instant."""
    for _ in range(10_000):
        tick(door.n)
        end_turn(door.s)
        if min(next_timer_ms(door.n), next_turn_ms(door.s)) > door.n.now_ms:
            break
    assert door("DEBUG CHECK") == b"+OK\r\n"


def later(door: Door, ms: int, step: int = 500) -> None:
    """Time passes, with turns on the way."""
    until = door.n.now_ms + ms + SLACK_MS
    while door.n.now_ms < until:
        door.n.now_ms = min(until, door.n.now_ms + step)
        turn(door)


def stand_still(door: Door, ms: int) -> None:
    """Nobody looks for so long."""
    door.n.now_ms += ms
    turn(door)


def taken(door: Door) -> list[str]:
    """Bodies of all jobs that are ready; they are done."""
    found = []
    while got := door.value("GETJOB NOHANG COUNT 99 FROM t"):
        for _, id, body in got:
            found.append(body.decode())
            door("ACKJOB", id)
    return found


def show(door: Door, name: str = "n") -> dict[str, Any]:
    row = door.value(f"SCHEDULE SHOW t {name}")
    return {one.decode(): value for one, value in zip(row[::2], row[1::2], strict=True)}
