"""SPEC E1.8: the events of new leaders."""

from __future__ import annotations

from tubes_world import TIMEOUT_MS, TubesWorld, VotesWorld, voting

from told_events import Told
from tuque.core.records.events import HOME_CHANGED, Events


def watched(world: VotesWorld) -> VotesWorld:
    for node in world.cores:
        node.events = Events(1_000, 0)
    return world


def told(world: TubesWorld, i: int) -> list[tuple[bytes, int, str]]:
    """Tube, epoch and reason of each time that node i became a leader."""
    events = world.nodes[i].core.events
    assert events is not None
    events.cut()
    rows = []
    for chunk in map(Told, events.full):
        assert set(chunk.kinds) == {HOME_CHANGED}
        reasons = [reason.decode() for reason in chunk.reason]
        rows += zip(chunk.queues, chunk.delivery, reasons, strict=True)
    return rows


def test_by_votes() -> None:
    """E1.8 (cluster) home-changed is a row of the node that becomes the leader of a tube: the
    queue is the tube, the number of the delivery is the epoch, the reason is what became of the
    leader before. It has no job. The first leader of a tube has none.
    """
    world = watched(voting())
    world.make(0)
    assert not world.move(0, 1)
    world.pass_ms(1_000)
    world.isolate(1)
    (home,) = world.watch(3 * TIMEOUT_MS)
    rows = [told(world, i) for i in world.numbers()]
    assert rows[1] == [(b"t", 2, "its leader gave it to this node")]
    assert rows[home] == [(b"t", world.tube(home).epoch, "its leader was silent")]
    assert rows[2 - home] == []
