"""Known flaws are found when they are put back, and not when they are not there."""

from __future__ import annotations

import inspect
from types import FunctionType

import pytest

from sim.flaws.published import ALL_FLAWS, MUTATIONS
from sim.flaws.restarts import rewrites
from sim.runs.seeds import run_plan, run_seed

SLOW_PLANS = ("f5", "f7", "f9", "f11", "f17", "q1", "q2", "r3")
# The others are found sooner: f3 finds what r3 does, f16 what j1 does, q1 what f7 does; of f4
# test_sim_judges.py has the judge.
LONG = ("f1", "f2", "f3", "f4", "f8", "f9", "f14", "f15", "f16", "q1", "q2", "q3")
# The flaws that are found soon, and the first seed that finds each.
# All of them: python -m sim --mutation all
QUICK = {
    "f1": 9, "f2": 7, "f3": 1, "f4": 1, "f6": 1, "f7": 1, "f8": 3, "f9": 1, "f10": 7, "f13": 1,
    "f14": 1, "f15": 6, "f16": 1, "j1": 1,
    "r1": 3, "r2": 1, "q1": 1, "q2": 1, "q3": 2, "r3": 1, "p1": 1, "p2": 1, "p3": 2,
    "b1": 1, "b2": 1,
}  # fmt: skip


def test_each_flaw_has_a_name_of_its_own() -> None:
    assert sorted(MUTATIONS) == sorted(flaw.name for flaw in ALL_FLAWS)


@pytest.mark.sources
def test_a_flaw_takes_the_arguments_of_what_it_replaces() -> None:
    """Else each seed of it has an error of its own, which no judge needs to find."""
    for flaw in ALL_FLAWS:
        for where, name, flawed in flaw.patches():
            sound = getattr(where, name)
            if not isinstance(sound, FunctionType) or not isinstance(flawed, FunctionType):
                continue
            calls = inspect.signature(flawed).parameters.values()
            if not any(one.kind in (one.VAR_POSITIONAL, one.VAR_KEYWORD) for one in calls):
                taken = len(inspect.signature(sound).parameters)
                assert len(calls) == taken, f"{flaw.name}: {name}"


@pytest.mark.sources
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if name in LONG else ()) for name in QUICK]
)
def test_a_flaw_is_found_within_its_budget(name: str) -> None:
    seeds = range(1, MUTATIONS[name].budget + 1)
    outcomes = (run_seed(seed, name, until="any") for seed in sorted(seeds, key=QUICK[name].__ne__))
    assert any(outcome.findings for outcome in outcomes)


@pytest.mark.sources
def test_a_flaw_is_gone_when_its_seed_is_over() -> None:
    before = run_plan(MUTATIONS["p1"].plan(1))
    assert run_seed(1, "p1", until="any").findings
    after = run_plan(MUTATIONS["p1"].plan(1))
    assert after.findings == []
    assert before.digest == after.digest


@pytest.mark.parametrize(
    "name",
    [
        "f4",
        "f6",
        "f13",
        "r1",
        "r2",
        "p1",
        "p2",
        "p3",
        "b1",
        "j1",
        *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW_PLANS),
    ],
)
def test_the_plan_of_a_flaw_is_harmless_without_it(name: str) -> None:
    assert run_plan(MUTATIONS[name].plan(1)).findings == []


@pytest.mark.parametrize("policy", ["no", "everysec", "always"])
def test_a_kill_after_a_rewrite_under_load_loses_nothing(policy: str) -> None:
    """The rewrite begins while the journal's thread syncs, and has ended when the process dies."""
    assert run_plan(rewrites(1, policy, 300)).findings == []
