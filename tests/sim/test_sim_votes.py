"""Votes in the simulator: leaders are lost and replaced, the judges of tubes look (SPEC T23)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sim.engine.plan import Plan
from sim.flaws.homes import (
    half_hidden,
    lost_while_behind,
    old_disk,
    starts_and_votes,
    two_at_once,
    unlike_timeouts,
    voter_dies,
)
from sim.plans.vote_swarm import draw_votes
from sim.runs.seeds import run_plan


def test_a_leader_that_is_lost_is_replaced_by_vote() -> None:
    """T27.7 with a majority no failover loses what was answered."""
    outcome = run_plan(lost_while_behind(1))
    assert outcome.findings == []
    assert outcome.counts["failovers by vote"] > 0
    assert outcome.counts["synced ops looked for"] > 0
    assert "failovers by force" not in outcome.counts


@pytest.mark.slow
@pytest.mark.parametrize("asks_all", [False, True])
def test_an_old_disk_loses_nothing(asks_all: bool) -> None:
    """T29.4 A voter that learns of a higher disk epoch under its right than it has on its disk
    has an old disk: its right ends, which is logged.
    """
    plan = old_disk(1)
    plan.asks_all = asks_all
    outcome = run_plan(plan)
    assert outcome.findings == []
    assert outcome.counts["synced ops looked for"] > 0


@pytest.mark.parametrize(
    "seed", [100, *(pytest.param(one, marks=pytest.mark.slow) for one in (2, 13))]
)
def test_faults_of_votes_find_nothing(seed: int) -> None:
    """T25.2 A leader of a tube led by votes is RUNNING only while a majority of the voters,
    itself counted, votes for this node under its epoch
    """
    outcome = run_plan(draw_votes(seed))
    assert outcome.findings == []
    assert outcome.counts["failovers by vote"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 120))
def test_many_faults_of_votes_find_nothing(seed: int) -> None:
    assert run_plan(draw_votes(seed)).findings == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "plan", [voter_dies, two_at_once, unlike_timeouts, half_hidden, starts_and_votes]
)
def test_the_plans_of_flaws_of_votes_find_nothing_else(plan: Callable[[int], Plan]) -> None:
    """T26.2 no node votes twice in one epoch.

    T25.3 for its T, by its own clock, it votes for nobody else about the tubes for which it
    votes for that node.
    """
    outcome = run_plan(plan(1))
    assert outcome.findings == []
    assert outcome.counts["looks for second homes"] > 0
