"""Judges DEAD REPLAY with RATE: no more letters are queued than the rate allows (SPEC W12.7)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from sim.judges.lives import Living

CLOCK_PPM: Final = 1_000  # clocks of nodes run that much too fast, at most
TICK_US: Final = 2_000  # they count whole ms


def on_paced(living: Living, rate: int, asked_us: int, reply: object) -> None:
    """DEAD REPLAY RATE is answered."""
    if not isinstance(reply, list):
        return
    done, span_us = int(reply[1]), living.world.now_us - asked_us
    living.history.count("paced replays")
    living.history.count("letters replayed in time", done)
    most = 1 + rate * (span_us + span_us * CLOCK_PPM // 1_000_000 + TICK_US) // 1_000_000
    if done > most:
        living.find("life-rate", f"{done} letters in {span_us / 1e6:.3f} s, RATE is {rate}")
    if done > int(reply[2]):
        living.find("life-rate", f"{done} letters of {int(reply[2])} that were seen")
