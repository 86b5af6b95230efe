"""Voters whose journal does not work (SPEC T27.9)."""

from __future__ import annotations

import pytest
from votes_lab import TIMEOUT_MS, VotesLab


@pytest.mark.parametrize("is_off", [False, True])
def test_a_voter_without_a_disk_confirms_nothing(is_off: bool) -> None:
    """T27.9 A voter whose journal is off, or cannot be written (J6), takes no changes of such a
    tube, and so confirms none

    T27.9 When its journal works again, it asks for what it lacks with the next change.
    """
    lab = VotesLab(3)
    lab.put(0)
    lab.live(1_000)
    known = lab.answered(0)
    assert known == lab.tube(0).seq
    kept = lab.nodes[1].records
    assert kept is not None
    kept.is_failing = True
    if is_off:
        lab.nodes[1].records = None
    lab.isolate(2)
    lab.put(0)
    lab.live(500)
    assert lab.answered(0) == known < lab.tube(0).seq
    assert lab.tube(1).seq == known
    kept.is_failing = False
    lab.nodes[1].records = kept
    lab.put(0)
    lab.live(500)
    assert lab.answered(0) == lab.tube(0).seq == lab.tube(1).seq
    assert lab.picture(0) == lab.picture(1)


def test_what_was_answered_survives_a_voter_without_a_disk() -> None:
    """T27.7 with a majority no failover loses what was answered"""
    lab = VotesLab(3)
    lab.put(0)
    lab.live(1_000)
    records = lab.nodes[1].records
    assert records is not None
    records.is_failing = True
    lab.put(0, b"answered by nodes 0 and 2")
    lab.live(500)
    assert lab.answered(0) == lab.tube(0).seq
    picture = lab.picture(0)
    records.is_failing = False
    lab.die(0)
    assert lab.watch(4 * TIMEOUT_MS) == [2]
    assert {k: v[0] for k, v in lab.picture(2).items()} == {k: v[0] for k, v in picture.items()}


def test_a_node_without_a_vote_needs_no_journal() -> None:
    """T27.9 A voter whose journal is off"""
    lab = VotesLab(4, off=3)
    lab.nodes[3].records = None
    lab.put(0)
    lab.live(1_000)
    assert lab.picture(3) == lab.picture(0)
