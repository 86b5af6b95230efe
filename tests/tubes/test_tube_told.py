"""SPEC E1.8: the events of new leaders."""

from __future__ import annotations

from homes_lab import HomesLab
from votes_lab import TIMEOUT_MS, VotesLab

from told_events import Told
from tuque.core.records.events import HOME_CHANGED, Events


def watched(lab: HomesLab) -> HomesLab:
    for node in lab.nodes:
        node.events = Events(1_000, 0)
    return lab


def told(lab: HomesLab, i: int) -> list[tuple[bytes, int, str]]:
    """Tube, epoch and reason of each time that node i became a leader."""
    events = lab.nodes[i].events
    assert events is not None
    events.cut()
    rows = []
    for chunk in map(Told, events.full):
        assert set(chunk.kinds) == {HOME_CHANGED}
        reasons = [reason.decode() for reason in chunk.reason]
        rows += zip(chunk.queues, chunk.delivery, reasons, strict=True)
    return rows


def test_by_command() -> None:
    """E1.8 home-changed is a row of the node that becomes the leader of a tube: the queue is the
    tube, the number of the delivery is the epoch, the reason says what became of the leader before.
    It has no job. The first leader of a tube has none."""
    lab = watched(HomesLab(3))
    lab.make(0)
    lab.run()
    assert lab.move(0, 1) is not None
    lab.live(1_000)
    lab.isolate(1)
    lab.force(2)
    lab.live(20_000)
    assert lab.runs_at() == [2]
    assert told(lab, 0) == []
    assert told(lab, 1) == [(b"t", 2, "its leader gave it to this node")]
    assert told(lab, 2) == [(b"t", 3, "by command, without its leader")]


def test_by_votes() -> None:
    """E1.8 the reason says what became of the leader before"""
    lab = VotesLab(3)
    watched(lab)
    lab.isolate(0)
    (home,) = lab.watch(3 * TIMEOUT_MS)
    ((tube, epoch, reason),) = told(lab, home)
    assert (tube, epoch, reason) == (b"t", lab.tube(home).epoch, "its leader was silent")
