"""Known flaws are found when they are put back, and not when they are not there."""

from __future__ import annotations

import pytest

import tuque.core.model.job
from tuque.sim.flaws.published import MUTATIONS
from tuque.sim.runs.seeds import run_plan, run_seed

IS_COMPILED = not (tuque.core.model.job.__file__ or "").endswith(".py")
QUICK = [
    "f3",
    "f4",
    "f7",
    "f8",
    "f10",
    "f15",
    "q1",
    "q2",
    "q3",
    "r3",
    "p1",
    "p2",
    "p3",
]  # all of them: python -m tuque.sim --mutation all


@pytest.mark.skipif(IS_COMPILED, reason="compiled functions cannot be replaced")
@pytest.mark.parametrize("name", QUICK)
def test_a_flaw_is_found_within_its_budget(name: str) -> None:
    flaw = MUTATIONS[name]
    assert any(run_seed(seed, name).findings for seed in range(1, flaw.budget + 1))


@pytest.mark.skipif(IS_COMPILED, reason="compiled functions cannot be replaced")
def test_a_flaw_is_gone_when_its_seed_is_over() -> None:
    before = run_plan(MUTATIONS["f11"].plan(1))
    assert run_seed(1, "f11").findings
    after = run_plan(MUTATIONS["f11"].plan(1))
    assert after.findings == []
    assert before.digest == after.digest


@pytest.mark.parametrize(
    "name", ["f4", "f5", "f7", "f9", "f11", "f17", "q1", "q2", "r3", "p1", "p2", "p3"]
)
def test_the_plan_of_a_flaw_is_harmless_without_it(name: str) -> None:
    assert run_plan(MUTATIONS[name].plan(1)).findings == []
