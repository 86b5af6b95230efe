"""The metrics of a worker (SPEC O4)."""

from __future__ import annotations

import asyncio
import random
import urllib.error
import urllib.request
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from lab import free_port
from tuque.errors import ConfigError, ConnectionError
from tuque.metrics.listener import Listener
from tuque.worker import App
from tuque.worker.app.decisions import Outcome
from tuque.worker.pools.execute import Job
from tuque.worker.pools.pools import ThreadPool
from tuque.worker.run import stats as story_module
from tuque.worker.run.health import Meter, open_meter
from tuque.worker.run.link import Link
from tuque.worker.run.stats import JobLog


class Served:
    def __init__(self) -> None:
        self.story, self.link = JobLog(), Link(random.Random(1))
        self.pool = ThreadPool({}, 8, App().aclose)
        self.meter = Meter(self.story, self.link, 8, "abc", self.pool)
        self.port = free_port()
        self.listener: Listener = open_meter(self.meter, self.port)

    def get(self, path: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=20) as found:
                return found.status, found.read().decode()
        except urllib.error.HTTPError as refused:
            return refused.code, refused.read().decode()


@pytest.fixture
def served() -> Iterator[Served]:
    made = Served()
    yield made
    made.listener.close()


def job(task: str) -> Job:
    return Job("D-1", "q", task, 1, 0, 0, 0, datetime.now(UTC))


def test_runs_by_task_and_outcome(served: Served) -> None:
    """O4.1 runs by task and outcome, their times, slots and how many are busy, outages of the
    broker that ended.
    """
    served.story.done(job("send"), 0.02)
    served.story.again(job("send"), Outcome("failed", "no"), 1.0, 7.0)
    served.link.failed("PING", ConnectionError("gone"))
    served.link.answered()
    status, text = served.get("/metrics")
    assert status == 200
    for line in (
        'tuque_worker_runs_total{task="send",outcome="done"} 1',
        'tuque_worker_runs_total{task="send",outcome="failed"} 1',
        'tuque_worker_run_seconds_bucket{task="send",le="0.05"} 1',
        'tuque_worker_run_seconds_bucket{task="send",le="10.0"} 2',
        'tuque_worker_run_seconds_sum{task="send"} 7.02',
        'tuque_worker_jobs_total{outcome="failed_attempts"} 1',
        "tuque_worker_slots 8",
        "tuque_worker_slots_busy 3",
        "tuque_worker_connected 1",
        "tuque_worker_reconnects_total 1",
    ):
        assert f"\n{line}\n" in text, line


def test_names_of_tasks_are_bounded(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """O4.1 200 tasks have figures of their own, all others are `other`."""
    monkeypatch.setattr(story_module, "TASKS_KEPT", 2)
    for name in "abcd":
        served.story.done(job(name), 0.02)
    assert list(served.story.tasks) == ["a", "b", "other"]
    assert 'tuque_worker_runs_total{task="other",outcome="done"} 2' in served.get("/metrics")[1]


def test_health(served: Served) -> None:
    """O4.2 `/healthz`: 200 if its loop has turned within 30 s. `/readyz`: 200 if its broker replies
    and a process has entered its lifespans (U3.9).
    """
    assert served.get("/healthz") == (200, "ok\n")
    assert served.get("/readyz")[0] == 503
    asyncio.run(served.pool.start())
    assert served.get("/readyz") == (200, "ready\n")
    assert served.get("/")[0] == 404
    served.link.failed("PING", ConnectionError("gone"))
    served.meter.beat_at -= 40
    assert served.get("/readyz") == (503, "it has no broker\n")
    assert served.get("/healthz")[0] == 503
    asyncio.run(served.pool.stop())


def test_a_taken_port_is_an_error() -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as taken:
        meter = Meter(JobLog(), Link(random.Random(1)), 1, (), ThreadPool({}, 1, App().aclose))
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match="choose another --metrics-port"):
            open_meter(meter, port)
