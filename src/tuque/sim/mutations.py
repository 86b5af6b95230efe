"""The published flaws, each as a switch that puts it back into the core while a seed runs.

A simulator that does not find a known flaw is too kind. Each flaw has a budget of seeds in
which it must be found, and may bend the plan towards where it shows. Only for the interpreted
core: compiled functions cannot be replaced.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from tuque.sim.plan import Plan
from tuque.sim.swarm import draw

Patch = tuple[object, str, Any]  # where, name, what stands there meanwhile


class Flaw:
    """One known flaw."""

    def __init__(
        self,
        name: str,
        text: str,
        patches: Callable[[], list[Patch]],
        budget: int = 60,
        bend: Callable[[Plan, int], Plan] | None = None,
    ) -> None:
        self.name = name
        self.text = text
        self.patches = patches
        self.budget = budget  # seeds
        self.bend = bend

    def plan(self, seed: int) -> Plan:
        """The plan of a seed, bent towards the flaw."""
        plan = draw(seed)
        return plan if self.bend is None else self.bend(plan, seed)

    @contextmanager
    def on(self) -> Iterator[None]:
        """Put the flaw into the core for a while."""
        changed: list[Patch] = []
        for where, name, flawed in self.patches():
            changed.append((where, name, getattr(where, name)))
            setattr(where, name, flawed)
        try:
            yield
        finally:
            for where, name, sound in reversed(changed):
                setattr(where, name, sound)


MUTATIONS: Final[dict[str, Flaw]] = {}
