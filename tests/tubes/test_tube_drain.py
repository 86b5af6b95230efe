"""A node that leaves gives its tubes away (SPEC K7, T19)."""

from __future__ import annotations

from homes_lab import HomesLab

from tuque.core.repair.drain import drain_left


def test_a_tube_on_its_way_counts_as_left() -> None:
    """K7.3 The number is not 0 while the journal is loading, or while the new leader of a tube
    that was given away has not reported that it runs.
    """
    lab = HomesLab(2, has_journal=True)
    lab.make(0)
    lab.live(1000)
    lab.leave(0)
    for _ in range(1000):
        if lab.tube(0).is_owed:
            break
        lab.now_ms += 1
        lab.step()
    assert lab.tube(0).is_owed
    lab.cut(0, 1)
    lab.live(10_000)
    assert drain_left(lab.nodes[0]) == 1
    lab.heal()
    lab.live(5000)
    assert lab.runs_at() == [1]
    assert drain_left(lab.nodes[0]) == 0
