"""A node that leaves gives its tubes away (SPEC K7, T19)."""

from __future__ import annotations

from tubes_world import TubesWorld

from tuque.core.repair.drain import drain_left, set_leaving


def test_a_tube_on_its_way_counts_as_left() -> None:
    """K7.3 It is not 0 while the journal is loading, or while the new leader of a tube that was
    given away has not reported that it runs.
    """
    world = TubesWorld(2, has_journal=True)  # voters take a tube only once it runs there
    world.make(0)
    world.pass_ms(1000)
    set_leaving(world.node(0).core, True)
    world.step_until(lambda: world.tube(0).is_owed)
    world.cut(0, 1)
    world.pass_ms(10_000)
    assert drain_left(world.nodes[0].core) == 1
    world.link()
    world.pass_ms(5000)
    assert world.runs_at() == [1]
    assert drain_left(world.nodes[0].core) == 0
