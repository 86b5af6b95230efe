"""Nodes that start alone, make tubes, and meet later in the simulator (SPEC T23)."""

from __future__ import annotations

import pytest

from sim.plans.solo_swarm import draw_solo
from sim.runs.seeds import run_plan


def test_the_plans_have_meetings_losses_and_cuts() -> None:
    plans = [draw_solo(seed) for seed in range(60)]
    assert {plan.nodes for plan in plans} == {2, 3}
    kinds = {op.kind for plan in plans for op in plan.ops}
    assert {"meet", "crash", "cut", "pause", "slow", "break"} <= kinds
    assert any(op.args.get("back") == "empty" for plan in plans for op in plan.ops)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_nodes_that_start_alone_break_no_promise(seed: int) -> None:
    outcome = run_plan(draw_solo(seed))
    assert outcome.findings == []
    assert outcome.counts["meetings"] > 0
    assert outcome.counts["tube puts"] > 0
