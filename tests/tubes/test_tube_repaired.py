"""Voters whose journal was repaired, or is off (SPEC T27.9, T29.6)."""

from __future__ import annotations

from tubes_world import TIMEOUT_MS, VotesWorld

from tuque.core.records.jobs import Records


def repair(world: VotesWorld, i: int) -> None:
    """The journal of node i has the record that a repair leaves."""
    left = Records()
    left.gap(1, 100)
    journal = world.journal(i)
    assert journal.append(left.take(), 0, world.now_ms) and journal.sync()


def test_a_repaired_journal_ends_the_right() -> None:
    """T29.6 A voter whose journal a repair took records from (J7) has no right and no whole copy
    of a tube led by votes after its start.
    """
    world = VotesWorld(3)
    for _ in range(3):
        world.put(0)
    world.pass_ms(1_000)
    repair(world, 1)
    world.restart(1)
    assert world.t(1).voter_state.right == 0 and not world.tube(1).is_complete
    assert any("repair" in note for note in world.warnings(1))
    world.restart(0)
    world.link(1, 2)
    assert world.watch(4 * TIMEOUT_MS) == [], "one voter of three is left"
    world.link()
    world.pass_ms(10 * TIMEOUT_MS)
    assert world.t(1).voter_state.right == 4
    assert [len(world.picture(i)) for i in range(3)] == [3, 3, 3]
    world.restart(1)
    assert world.t(1).voter_state.right == 4, "the repair was before this right"
    assert world.tube(1).is_complete


def test_a_leader_whose_journal_was_repaired_gets_its_tasks_again() -> None:
    """T29.6 A voter whose journal a repair took records from (J7) has no right and no whole copy
    of a tube led by votes after its start
    """
    world = VotesWorld(3)
    for _ in range(3):
        world.put(0)
    world.pass_ms(1_000)
    repair(world, 0)
    world.restart(0)
    world.rejoin(0)
    (home,) = world.watch(4 * TIMEOUT_MS)
    assert home != 0
    world.pass_ms(8 * TIMEOUT_MS)
    assert [len(world.picture(i)) for i in range(3)] == [3, 3, 3]
    assert world.t(0).voter_state.right == 4


def test_a_leader_without_a_journal_counts_itself_no_more() -> None:
    """T27.9 A leader like that does not count itself."""
    world = VotesWorld(3)
    world.put(0)
    world.pass_ms(1_000)
    kept = world.nodes[0].core.records
    world.nodes[0].core.records = None
    world.isolate(2)
    world.put(0)
    world.pass_ms(500)
    assert world.answered(0) < world.tube(0).seq, "only node 1 has it on its disk"
    world.link()
    world.pass_ms(3 * TIMEOUT_MS)
    (home,) = world.watch(2 * TIMEOUT_MS)
    assert home != 0
    world.nodes[0].core.records = kept
