"""Tubes of type `tasks` in the simulator, over changes of the leader (SPEC T40 to T62)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from sim.engine.plan import Plan
from sim.flaws.keys import (
    KEY_FLAWS,
    KEY_RULES,
    dry_buckets,
    given_back,
    groups_move,
    left_in_a_cut,
    limits_move,
    long_work,
    lost_in_a_cut,
    schedules_move,
    short_times,
    three_groups,
    topics_cut,
    unique_moves,
)
from sim.plans.task_swarm import draw_tasks
from sim.runs.score import CHECKED
from sim.runs.seeds import run_plan, run_seed

QUICK = ("k1", "k3", "k7", "k10", "k13", "k14")  # found within some seconds
CALM = (three_groups, given_back)  # plans without faults
FIRST = {"k4": 2, "k5": 4}  # the seed that finds it, if seed 1 does not


def slow_but(names: tuple[str, ...]) -> list[Any]:
    """The names of all flaws; those that take long are slow."""
    return [
        pytest.param(flaw.name, marks=() if flaw.name in names else pytest.mark.slow)
        for flaw in KEY_FLAWS
    ]


@pytest.mark.sources
@pytest.mark.parametrize("name", slow_but(QUICK))
def test_a_broken_promise_about_tasks_is_found_by_its_judge(name: str) -> None:
    flaw = next(flaw for flaw in KEY_FLAWS if flaw.name == name)
    seeds, known = range(1, flaw.budget + 1), FIRST.get(name, 1)
    rule = KEY_RULES[name]
    rules = (run_seed(seed, name, until=rule).rules() for seed in sorted(seeds, key=known.__ne__))
    assert any(rule in found for found in rules)


@pytest.mark.parametrize(
    ("plan", "states"),
    [
        (limits_move, ["a new leader finds a limit that is full"]),
        *(
            pytest.param(plan, states, marks=pytest.mark.slow)
            for plan, states in (
                (schedules_move, ["a schedule makes a job at a new leader"]),
                (dry_buckets, ["a bucket is dry when the leader changes"]),
                (unique_moves, ["a duplicate is answered by a new leader"]),
                (three_groups, []),
                (given_back, []),
                (long_work, []),
                (short_times, []),
                (lost_in_a_cut, []),
                (left_in_a_cut, []),
                (groups_move, ["a callback is made by a new leader"]),
                (topics_cut, []),
            )
        ),
    ],
)
def test_promises_hold_when_the_leader_changes(
    plan: Callable[[int], Plan], states: list[str]
) -> None:
    """T41.2 Of a limit with n places at most n tasks are TAKEN at once.

    T42.4 After a start and at a new leader each bucket is empty: no failover gives a second burst.
    T44.6 After a start and at a new leader the tasks have the keys that they had.

    T45.4 Each instant makes one job, also over starts and changes of the leader.

    T50.4 So the callback is there once, over starts and changes of the leader.

    T62.3 after a crash this node has all or none
    """
    outcome = run_plan(plan(1))
    assert outcome.findings == []
    assert outcome.counts.get("new leaders of tasks", 0) > 0 or plan in CALM
    for state in states:
        assert outcome.seen[state] > 0
    for flaw in KEY_FLAWS:
        if flaw.bend is plan:
            assert outcome.counts[CHECKED[KEY_RULES[flaw.name]]] > 0


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 120))
def test_many_faults_around_tasks_find_nothing(seed: int) -> None:
    assert run_plan(draw_tasks(seed)).findings == []
