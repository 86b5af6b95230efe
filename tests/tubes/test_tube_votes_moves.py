"""Switchovers of tubes led by votes, one after another (SPEC T27.6)."""

from __future__ import annotations

import pytest
from refusals import said
from votes_lab import VotesLab


@pytest.mark.parametrize("step", [1, 2])
def test_the_node_that_was_named_leads(step: int) -> None:
    """T27.6 the new leader stands up at once. If nobody votes for it, others may.

    T27.6 They first wait for a quarter of the timeout, as after each leader that gives up, and the
    former leader for half of it.
    """
    lab = VotesLab(3)
    lab.put(0)
    lab.live(500)
    home = 0
    for _ in range(9):
        named = (home + step) % 3
        assert not lab.move(home, named)
        lab.run()
        lab.live(100)
        assert said(lab.done_last(home)) == b""
        lab.live(500)
        assert lab.runs_at() == [named]
        assert lab.t(named).changes_lost == 0
        home = named
    assert lab.tube(home).epoch == 10
