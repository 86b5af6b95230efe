"""A schedule at real nodes whose leader is killed again and again (SPEC T45)."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from lab import RealCluster
from tuque import Client
from tuque.errors import Error
from until import until

TIMEOUT_MS = 1_500


@pytest.fixture
def nodes(make_voters: Callable[..., RealCluster]) -> RealCluster:
    return make_voters(TIMEOUT_MS)


@pytest.mark.slow
@pytest.mark.parametrize("kills", [1, 6])
def test_each_instant_makes_one_job_though_leaders_are_killed(
    nodes: RealCluster, kills: int
) -> None:
    """T45.4 Each instant makes one job, also over starts and changes of the leader."""
    seen: set[str] = set()
    is_over = threading.Event()
    failed: list[BaseException] = []

    def work() -> None:
        """Take and ack; a job whose ack was not answered may come again."""
        try:
            with Client(nodes.url, timeout=20.0) as client:
                while not is_over.is_set():
                    for job in client.getjob("t", timeout_ms=200):
                        seen.add(job.id)
                        try:
                            client.ackjob(job)
                        except Error as error:
                            assert error.may_be_done or error.retryable, error
        except BaseException as error:
            failed.append(error)

    worker = threading.Thread(target=work)
    worker.start()
    try:
        with Client(nodes.url, timeout=20.0) as client:
            client.schedule_add("t", "each", "body", every_s=1, missed="all", retry=2)
            first_ms = client.schedule_show("t", "each").next_ms
            for _ in range(kills):
                before = len(seen)
                until(lambda n=before: len(seen) > n, nodes.logs)
                dead = nodes.kill_leader("t")
                until(lambda n=before: len(seen) >= n + 3, nodes.logs)
                dead.start()
                nodes.leader("t")
            client.schedule_pause("t", "each")
            told = client.schedule_show("t", "each")
            until(lambda: len(seen) >= told.fired, nodes.logs)
            until(lambda: client.tube("t").info().taken == 0, nodes.logs)
    finally:
        is_over.set()
        worker.join(60)
    assert not failed, failed
    assert told.fired == (told.last_ms - first_ms) // 1_000 + 1
    assert len(seen) == told.fired, "an instant made no job, or two"
    assert nodes.tube("t", nodes.nodes.index(nodes.leader("t")))[b"ready"] == 0
    nodes.check()
