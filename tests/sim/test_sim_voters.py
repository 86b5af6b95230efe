"""Lists of voters that change in the simulator: growth, FORCE, a vote given away (SPEC T28)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sim.engine.plan import Plan
from sim.flaws.voters import forced_behind, lost_and_alone, lost_twice, one_voter
from sim.plans.voter_swarm import draw_voters
from sim.runs.seeds import run_plan
from sim.workload.voters import ACTS, SPOILS


def acts_of(plan: Plan) -> list[dict[str, str]]:
    """What the operator of the plan does."""
    return [act for op in plan.ops if op.kind == "voter_keeper" for act in op.args["acts"]]


def test_force_names_the_node_that_has_more() -> None:
    """T28.8 It asks all nodes that it reaches what they have of each tube, and is refused if one
    that is not named has newer changes
    """
    outcome = run_plan(forced_behind(1))
    assert outcome.findings == []
    assert outcome.counts["newer copies named"] == 1
    assert outcome.counts["lists by force"] == 1
    assert outcome.counts["told to clients, kept by force"] > 0
    assert outcome.counts["synced ops looked for"] > 0


@pytest.mark.slow
def test_what_only_the_dead_had_is_lost() -> None:
    """T28.8 What only the dead nodes had is lost."""
    plan = forced_behind(1)
    slow = next(op for op in plan.ops if op.kind == "slow")
    for b in (1, 2):
        plan.ops.append(type(slow)(slow.at_ms, "slow", slow.args | {"b": b}))
    outcome = run_plan(plan)
    assert outcome.findings == []
    assert outcome.counts["told to clients, lost by force"] > 0
    assert outcome.counts["told to clients, kept by force"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("plan", [lost_twice, lost_and_alone])
def test_a_node_lost_at_the_instant_of_a_growth(plan: Callable[[int], Plan]) -> None:
    """T28.9 it records the list when it leads every tube, and two of the three have all that was
    answered before.
    """
    outcome = run_plan(plan(1))
    assert outcome.findings == []
    assert outcome.counts["nodes lost in a growth"] == 1
    assert outcome.counts["failovers by vote"] > 0
    assert outcome.counts["synced ops looked for"] > 0


@pytest.mark.slow
def test_the_only_voter_gives_its_vote_away() -> None:
    """T28.9 Only if it leaves it adds one, which then gets the vote and the tubes."""
    outcome = run_plan(one_voter(1, "leaves", {"do": "leave"}))
    assert outcome.findings == []
    assert outcome.counts["votes given away"] == 1


def test_the_plans_have_each_act_and_each_loss() -> None:
    acts = [act for seed in range(60) for act in acts_of(draw_voters(seed))]
    assert {act["do"] for act in acts} == set(ACTS)
    assert {act.get("spoil", "") for act in acts} == {"", *SPOILS}


@pytest.mark.parametrize("seed", [2, *(pytest.param(k, marks=pytest.mark.slow) for k in (1, 3, 4))])
def test_lists_that_change_break_no_promise(seed: int) -> None:
    assert run_plan(draw_voters(seed)).findings == []
