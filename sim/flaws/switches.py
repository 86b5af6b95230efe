"""The known flaws, each as a switch that puts it into the core while a seed runs.

A simulator that does not find a known flaw is too weak. Each flaw must be found within its
budget of seeds; it may adapt the plan to reveal it. Only for the interpreted core: compiled
functions cannot be replaced.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from sim.engine.plan import Plan
from sim.plans.swarm import draw

ROOMS: Final = (
    "tuque.core",
    "tuque.store",
    "tuque.wire",
    "tuque.cluster",
    "tuque.server",
    "sim",
    "tuque.tubes",
)
Patch = tuple[object, str, Any]  # where, name, replacement


class Flaw:
    """One known flaw."""

    def __init__(
        self,
        name: str,
        text: str,
        patches: Callable[[], list[Patch]],
        budget: int = 60,
        bend: Callable[[int], Plan] | None = None,
    ) -> None:
        self.name = name
        self.text = text
        self.patches = patches
        self.budget = budget  # seeds
        self.bend = bend

    def plan(self, seed: int) -> Plan:
        """The plan of a seed, adapted to the flaw."""
        return draw(seed, False, False) if self.bend is None else self.bend(seed)

    @contextmanager
    def on(self) -> Iterator[None]:
        """Enable the flaw in the core for a while."""
        changed: list[Patch] = []
        for where, name, flawed in self.patches():
            changed.append((where, name, getattr(where, name)))
            setattr(where, name, flawed)
        try:
            yield
        finally:
            for where, name, sound in reversed(changed):
                setattr(where, name, sound)


def everywhere(sound: Any, flawed: Any) -> list[Patch]:
    """Replace a function in each module that has it by name."""
    patches: list[Patch] = []
    for name, module in sorted(sys.modules.items()):
        if name.startswith(ROOMS):
            patches += [(module, key, flawed) for key, one in vars(module).items() if one is sound]
    return patches


def bent(
    seed: int, faults: list[str] | None = None, nodes: int = 0, policy: str = "", at_least: int = 0
) -> Plan:
    """The plan of a seed, or of a later one that has what the flaw needs."""
    plan = draw(seed, False, False)
    for further in range(seed, seed + 5000, 7):
        plan = draw(further, False, False)
        if (
            faults is not None
            and set(plan.faults) != set(faults)
            and not (faults and set(faults) <= set(plan.faults))
        ):
            continue
        if (nodes and plan.nodes != nodes) or plan.nodes < at_least:
            continue
        if policy and plan.policy != policy:
            continue
        break
    return plan
