"""SPEC F4: jobs that nodes pass on faster than their messages arrive."""

from __future__ import annotations

from test_f_moving import adds, wish

from cluster_lab import Lab
from tuque.core.model.job import QUEUED


def test_a_job_that_goes_round_is_queued_somewhere() -> None:
    """F4.2 A node that dequeued the job for the sender (Q4.3) queues it again, and sends QUEUED:
    what it heard may be older than the job's way to it.
    """
    lab = Lab(3)
    ids = adds(lab, 0, 8, replicate=3)
    lab.hold(1, 2)
    for taker, giver in ((1, 0), (0, 1), (2, 0)):
        for _ in range(8):
            wish(lab, taker, giver, 8)
    assert all(lab.nodes[2].jobs[id].state == QUEUED for id in ids)
    lab.release(1, 2)
    lab.run()
    for id in ids:
        assert [n.jobs[id].state for n in lab.nodes].count(QUEUED) == 1, "late, not for good"
