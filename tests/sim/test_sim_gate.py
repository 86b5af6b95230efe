"""What of the simulator's findings refuses a change."""

from __future__ import annotations

import pytest

from sim.__main__ import is_too_much, past_seeds
from sim.runs.score import TEXTS, Score
from sim.runs.seeds import run_past, run_seed


def score_of(seeds: int, *findings: str) -> Score:
    """A score-card of that many seeds, of which these found something."""
    score = Score()
    score.seeds = seeds
    score.failed = [(str(number), [text]) for number, text in enumerate(findings)]
    return score


@pytest.mark.parametrize("rule", ["internal", "ledger", "empty"])
def test_one_grave_finding_is_enough(rule: str) -> None:
    assert rule in TEXTS
    assert is_too_much(score_of(100_000, f"{rule} at 1.000 s: b'<1>'"), 2)


def test_other_findings_may_be_rare() -> None:
    mild = "lost at 40.000 s: b'<1>' is gone: 0 copies were lost, W = 2"
    assert not is_too_much(score_of(1_000), 2)
    assert not is_too_much(score_of(1_000, mild, mild), 2)
    assert is_too_much(score_of(1_000, mild, mild, mild), 2)
    assert is_too_much(score_of(1_000, mild), 0), "without --rare nothing is let pass"


def test_seeds_that_failed_before_there_were_tubes_are_drawn_without() -> None:
    assert past_seeds("# why\n12\n\n34 tubes\n") == [(12, []), (34, ["tubes"])]


@pytest.mark.slow
def test_old_seeds_are_run_as_they_were_by_any_number_of_processes() -> None:
    past = [(5002, []), (5003, ["tubes"]), (5012, ["tubes", "lives"])]
    alone = [(one.seed, one.digest) for one in run_past(past, 1)]
    assert alone == [(one.seed, one.digest) for one in run_past(past, 2)]
    assert alone[2][1] == run_seed(5012, with_lives=True).digest
