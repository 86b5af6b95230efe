"""Real nodes whose leaders are lost again and again, and replaced by vote (SPEC T23 to T27)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from vote_chaos import VoteChaos


@pytest.fixture
def chaos(tmp_path: Path) -> Iterator[VoteChaos]:
    """Three nodes behind proxies."""
    made = VoteChaos(tmp_path, 3, seed=17)
    yield made
    made.end()


@pytest.mark.slow
def test_a_leader_is_cut_off_under_load(chaos: VoteChaos) -> None:
    """T27.7 with a majority no failover loses what was answered."""
    chaos.run(chaos.move)


@pytest.mark.slow
def test_leaders_are_lost_under_load(chaos: VoteChaos) -> None:
    """T27.7 with a majority no failover loses what was answered."""
    chaos.run(lambda: chaos.trouble(12, every_s=4))
    assert sum(chaos.faults.values()) >= 2
    assert max(map(max, chaos.gaps_s.values())) < 30, chaos.score()
