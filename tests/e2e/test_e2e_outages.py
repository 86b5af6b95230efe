"""Nodes with journals are killed while jobs wait: each job is handed out once all the same."""

from __future__ import annotations

from pathlib import Path

import pytest
from chaos_outages import QUEUE, Outages

from until import until

JOBS = 200
RETRY_S = 1
DUE_S = 1.8  # longer than RETRY_S and J: all copies are due


def queued(outages: Outages) -> int:
    """How many jobs lie in the queues of all nodes."""
    return sum(node.wire()("QLEN", QUEUE) for node in outages.cluster.nodes)


@pytest.mark.parametrize("down_s", [0, pytest.param(DUE_S, marks=pytest.mark.slow)])
def test_a_killed_cluster_hands_out_each_job_once(tmp_path: Path, down_s: float) -> None:
    """Q11.4 When no reply is missing, a job that was queued before the restart is queued."""
    outages = Outages(tmp_path, 3, retry_s=RETRY_S)
    try:
        outages.cluster.start()
        outages.fill(JOBS)
        assert queued(outages) == JOBS
        outages.outage(down_s)
        until(lambda: queued(outages) >= JOBS, lambda: f"{queued(outages)} queued", most_s=30)
        outages.cluster.wait_formed()
        assert queued(outages) == JOBS
        outages.drain(JOBS)
        assert queued(outages) == 0 and outages.twice() == []
    finally:
        outages.end()
