"""How the small models walk: steps by dice, then healing, each judged by the model itself."""

from __future__ import annotations

from typing import Protocol

from spec.model.state import BrokenError


class Steps(Protocol):
    """A walk of one of the small models."""

    def step(self) -> None:
        """Do one thing by dice."""

    def heal(self) -> None:
        """End all faults, and judge what is left."""


def play(one: Steps, steps: int) -> str:
    """What broke in that many steps and in the healing, or ""."""
    try:
        for _ in range(steps):
            one.step()
        one.heal()
    except BrokenError as why:
        return str(why)
    return ""
