"""Turns and time of a server with schedules, and what they made."""

from __future__ import annotations

from typing import Any

from world import World

SLACK_MS = 20  # timers are that late


def turn(world: World) -> None:
    """Turns of the loop, until none has work at this instant."""
    world.settle()
    assert world("DEBUG CHECK") == b"+OK\r\n"


def later(world: World, ms: int, step: int = 500) -> None:
    """Time passes, with turns on the way."""
    world.pass_ms(ms + SLACK_MS)
    turn(world)


def stand_still(world: World, ms: int) -> None:
    """Nobody looks for so long."""
    world.jump_ms(ms)
    turn(world)


def taken(world: World) -> list[str]:
    """Bodies of all jobs that are ready; they are done."""
    found = []
    while got := world.value("GETJOB NOHANG COUNT 99 FROM t"):
        for _, id, body in got:
            found.append(body.decode())
            world("ACKJOB", id)
    return found


def show(world: World, name: str = "n") -> dict[str, Any]:
    row = world.value(f"SCHEDULE SHOW t {name}")
    return {one.decode(): value for one, value in zip(row[::2], row[1::2], strict=True)}
