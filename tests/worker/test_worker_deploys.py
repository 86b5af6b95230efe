"""A day of deploys: workers that are stopped and killed while a thousand jobs are at work."""

from __future__ import annotations

import random
import signal
from collections import Counter

import e2e_tasks as tasks
import pytest
from worker_lab import Did, StartWorker

from lab import RealServer
from tuque import Client
from until import until

JOBS = 1_000
STOPS = [signal.SIGTERM] * 20 + [signal.SIGKILL] * 3


@pytest.mark.usefixtures("own_node")
@pytest.mark.slow
def test_a_thousand_jobs_outlast_twenty_stops_and_three_kills(
    node: RealServer, client: Client, start_worker: StartWorker, did: Did
) -> None:
    """W4.1 The run at work ends and its attempt is not used up.

    W5.2 The attempt counts: `failed` becomes the run's attempt.
    """
    tasks.app.use(node.url)
    options = tasks.longer_than_retry.options(keep_s=900, retry_s=4, attempts=5)
    handles = [options.enqueue(str(at), 1.5) for at in range(JOBS)]
    stops = STOPS.copy()
    random.Random(20).shuffle(stops)
    flags = ("-c", "20", "--prefetch", "20", "--grace", "10")
    workers = [start_worker(*flags), start_worker(*flags)]
    for at, how in enumerate(stops):
        begun = len(did())
        until(lambda begun=begun: len(did()) > begun + 20)
        worker = workers.pop(0)
        worker.signal(how)
        worker.process.wait(30)
        workers.append(start_worker(*flags))
        assert at < len(stops) - 1 or len({*did()}) < 2 * JOBS, "the stops came too late"
    left = [handle.id for handle in handles]
    while left:
        ended = client.waitjob(*left[:200], wait_ms=60_000)
        assert ended, f"{len(left)} jobs did not end"
        left = [id for id in left if id not in ended]
    lines = Counter(did())
    statuses = [handle.status() for handle in handles]
    assert {status.state for status in statuses} == {"done"}
    assert all(lines[f"end {at}"] >= 1 for at in range(JOBS))
    # a kill may come after START and before the function's first line: the run has begun
    counted = [status.attempt - 1 for status in statuses]
    assert max(counted) <= 3 and sum(counted) <= 3 * 20, "only what ran at a kill counts"
    assert client.info("jobs")["dead"] == 0
