"""From a failing seed to the smallest plan that still breaks the same promise.

Operations are removed in halves, quarters, ... while the failure stays; then nodes. As each use
of chance has its own stream, the rest behaves as before.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from sim.engine.plan import Op, Plan, encode
from sim.runs.seeds import Outcome, run_plan

TRIES_MAX = 400


class Shrinker:
    """Shrinks one plan."""

    def __init__(self, plan: Plan, rule: str, run: Callable[[Plan], Outcome] | None = None) -> None:
        self.plan = plan
        self.rule = rule
        self.run = run or partial(run_plan, until=rule)
        self.tries = 0

    def still_fails(self, plan: Plan) -> bool:
        """Whether the plan breaks the same promise."""
        self.tries += 1
        return self.rule in self.run(plan).rules()

    def with_ops(self, ops: list[Op]) -> Plan:
        """The plan with other operations."""
        return msgspec.structs.replace(self.plan, ops=ops)

    def shrink(self) -> Plan:
        """The smallest plan found."""
        self.drop_kinds()
        self.drop_ops()
        self.drop_nodes()
        self.drop_ops()
        self.plan_simpler()
        return self.plan

    def drop_kinds(self) -> None:
        """Remove all operations of a kind at once."""
        for kind in sorted({op.kind for op in self.plan.ops}):
            self.try_ops([op for op in self.plan.ops if op.kind != kind])

    def try_ops(self, ops: list[Op]) -> bool:
        """Keep the smaller plan if it fails too."""
        if len(ops) == len(self.plan.ops) or self.tries >= TRIES_MAX:
            return False
        smaller = self.with_ops(ops)
        if self.still_fails(smaller):
            self.plan = smaller
            return True
        return False

    def drop_ops(self) -> None:
        """Remove runs of operations, each shorter than the last."""
        size = len(self.plan.ops) // 2
        while size >= 1 and self.tries < TRIES_MAX:
            at = 0
            while at < len(self.plan.ops):
                ops = self.plan.ops[:at] + self.plan.ops[at + size :]
                if not self.try_ops(ops):
                    at += size
            size //= 2

    def drop_nodes(self) -> None:
        """Try with fewer nodes (numbers of nodes wrap around)."""
        for nodes in range(1, self.plan.nodes):
            smaller = msgspec.structs.replace(self.plan, nodes=nodes)
            if self.tries < TRIES_MAX and self.still_fails(smaller):
                self.plan = smaller
                return

    def plan_simpler(self) -> None:
        """Try without the plan's unusual settings."""
        changes: list[dict[str, Any]] = [
            {"split_rate": 0.0},
            {"rates_ppm": []},
            {"holes": False},
            {"cpu_us": 1},
        ]
        for change in changes:
            simpler = msgspec.structs.replace(self.plan, **change)
            if self.still_fails(simpler):
                self.plan = simpler


def as_test(plan: Plan, rule: str) -> str:
    """A test file that runs the plan."""
    name = "".join(ch if ch.isalnum() else "_" for ch in f"{rule}_{plan.seed}".lower())
    return f'''"""Seed {plan.seed} broke {rule}; what is left of its plan must not do so again."""

from sim.engine.plan import decode
from sim.runs.seeds import run_plan

PLAN = rb"""
{encode(plan).decode()}
"""


def test_{name}() -> None:
    assert run_plan(decode(PLAN)).findings == []
'''
