"""Votes in the simulator: leaders are lost and replaced, the judges of tubes look (SPEC T23)."""

from __future__ import annotations

import pytest

from tuque.sim.flaws.homes import lost_while_behind
from tuque.sim.plans.vote_swarm import draw_votes
from tuque.sim.runs.seeds import run_plan


def test_a_leader_that_is_lost_is_replaced_by_vote() -> None:
    """T27.7 with a majority no failover loses what was answered."""
    outcome = run_plan(lost_while_behind(1))
    assert outcome.findings == []
    assert outcome.counts["failovers by vote"] > 0
    assert outcome.counts["synced ops looked for"] > 0
    assert "failovers by force" not in outcome.counts


@pytest.mark.parametrize("seed", [2, pytest.param(13, marks=pytest.mark.slow)])
def test_faults_of_votes_find_nothing(seed: int) -> None:
    """T25.2 A leader of a tube led by votes is RUNNING only while a majority of the voters, itself
    counted, stands with it under its epoch"""
    outcome = run_plan(draw_votes(seed))
    assert outcome.findings == []
    assert outcome.counts["failovers by vote"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 120))
def test_many_faults_of_votes_find_nothing(seed: int) -> None:
    assert run_plan(draw_votes(seed)).findings == []
