"""SPEC V with several nodes: other holders hear of deliveries, clients get jobs of other nodes."""

from __future__ import annotations

from cluster_lab import Lab
from tuque.core.copies.ack import on_ackjob
from tuque.core.model.job import ACTIVE
from tuque.core.msgs import Delivered, NeedJobs
from tuque.core.queues.deliver import wait


def sent(lab: Lab, kind: type) -> list[tuple[int, int]]:
    """From where to where messages of that kind went, in order."""
    return [(a, b) for a, b, m in lab.log if isinstance(m, kind)]


def test_deliveries_are_told() -> None:
    """V4.6 (cluster) The other holders of an ALO job get DELIVERED (Q9): at once, or if retry is
    above 5 s within half a second, and then only if a worker still has the job.
    """
    lab = Lab(3)
    hasty = lab.add(0, b"hasty", replicate=3, retry_s=5)
    lab.get(0, b"hasty")
    assert sent(lab, Delivered) == [(0, 1), (0, 2)]
    lab.log.clear()
    patient, done = (lab.add(0, b"q", replicate=3, retry_s=60) for _ in range(2))
    lab.get(0)
    lab.get(0)
    assert sent(lab, Delivered) == []
    lab.pass_ms(300)
    on_ackjob(lab.nodes[0], done)
    lab.pass_ms(200)
    told = [m for _, _, m in lab.log if isinstance(m, Delivered)]
    assert [m.id for m in told] == [patient, patient]
    assert all(59_000 <= m.left_ms < 60_500 for m in told)
    assert lab.states_of(hasty) == [ACTIVE] * 3
    assert lab.nodes[0].untold == {}


def test_jobs_that_are_done_at_once_cost_no_word() -> None:
    """V4.6 (cluster) The other holders of an ALO job get DELIVERED (Q9): at once, or if retry is
    above 5 s within half a second, and then only if a worker still has the job.
    """
    lab = Lab(3)
    for _ in range(200):
        id = lab.add(0, replicate=3, retry_s=60)
        lab.get(0)
        on_ackjob(lab.nodes[0], id)
        lab.pass_ms(7)
    lab.pass_ms(600)
    assert len(sent(lab, Delivered)) <= 4  # one may be out just when the half second is over
    assert lab.nodes[0].untold == {}


def test_at_most_once_is_not_told() -> None:
    """V4.6 (cluster) The other holders of an ALO job get DELIVERED (Q9): at once, or if retry is
    above 5 s within half a second, and then only if a worker still has the job.
    """
    lab = Lab(2)
    lab.wait(1)
    lab.add(0, replicate=1, retry_s=0)
    lab.pass_ms(2_000)
    assert lab.nodes[1].deliveries == 1
    assert sent(lab, Delivered) == []


def test_who_waits_asks_the_others() -> None:
    """V1.6 Otherwise the client waits once in each of the named queues, in order of arrival, and
    the queues are created. (cluster) F1 runs for each of them.
    """
    lab = Lab(3)
    wait(lab.nodes[2], 7, [b"a", b"b"], 1, False, 0)
    lab.run()
    assert [(a, b, m.queue) for a, b, m in lab.log if isinstance(m, NeedJobs)] == [
        (2, 0, b"a"),
        (2, 0, b"b"),
        (2, 1, b"a"),
        (2, 1, b"b"),
    ]
    lab.add(0, b"b", replicate=1)
    assert len(lab.served[2][7]) == 1
    lab.add(1, b"a", replicate=1)
    assert len(lab.served[2][7]) == 1  # it does not wait any more
