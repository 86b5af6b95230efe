"""Voters whose journal was repaired, or is off (SPEC T27.9, T29.6)."""

from __future__ import annotations

from votes_lab import TIMEOUT_MS, VotesLab

from tuque.core.records.jobs import Records


def repair(lab: VotesLab, i: int) -> None:
    """The journal of node i has the record that a repair leaves."""
    left = Records()
    left.gap(1, 100)
    journal = lab.journals[i].journal
    assert journal.append(left.take(), 0, lab.now_ms) and journal.sync()


def test_a_repaired_journal_ends_the_right() -> None:
    """T29.6 A voter whose journal a repair took records from (J7) has no right after its start, and
    no whole copy of a tube that votes lead."""
    lab = VotesLab(3)
    for _ in range(3):
        lab.put(0)
    lab.live(1_000)
    repair(lab, 1)
    lab.die(1)
    assert lab.t(1).ballots.right == 0 and not lab.tube(1).is_complete
    assert any("repair" in note for note in lab.t(1).notes)
    lab.die(0)
    lab.link(1, 2)
    assert lab.watch(4 * TIMEOUT_MS) == [], "one voter of three is left"
    lab.heal()
    lab.live(10 * TIMEOUT_MS)
    assert lab.t(1).ballots.right == 3
    assert [len(lab.picture(i)) for i in range(3)] == [3, 3, 3]
    lab.die(1)
    assert lab.t(1).ballots.right == 3, "the repair was before this right"
    assert lab.tube(1).is_complete


def test_a_leader_whose_journal_was_repaired_gets_its_tasks_again() -> None:
    """T29.6 A voter whose journal a repair took records from (J7) has no right after its start"""
    lab = VotesLab(3)
    for _ in range(3):
        lab.put(0)
    lab.live(1_000)
    repair(lab, 0)
    lab.die(0)
    lab.revive(0)
    (home,) = lab.watch(4 * TIMEOUT_MS)
    assert home != 0
    lab.live(8 * TIMEOUT_MS)
    assert [len(lab.picture(i)) for i in range(3)] == [3, 3, 3]
    assert lab.t(0).ballots.right == 3


def test_a_leader_without_a_journal_counts_itself_no_more() -> None:
    """T27.9 A leader whose journal is off, or cannot be written, does not count itself either."""
    lab = VotesLab(3)
    lab.put(0)
    lab.live(1_000)
    kept = lab.nodes[0].records
    lab.nodes[0].records = None
    lab.isolate(2)
    lab.put(0)
    lab.live(500)
    assert lab.answered(0) < lab.tube(0).seq, "only node 1 has it on its disk"
    lab.heal()
    lab.live(3 * TIMEOUT_MS)
    (home,) = lab.watch(2 * TIMEOUT_MS)
    assert home != 0
    lab.nodes[0].records = kept
