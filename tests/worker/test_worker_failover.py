"""A worker goes on at the next leader of its tube, and tasks are added there (SPEC T27)."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import e2e_tasks as tasks
import pytest
from worker_lab import HERE, Did, Program

from lab import RealCluster
from tuque.errors import Error
from until import until


@pytest.fixture
def timeout_ms() -> int:
    return 1_000


@pytest.fixture
def nodes(tmp_path: Path, timeout_ms: int) -> Iterator[RealCluster]:
    journal = ("--appendonly", "yes", "--cluster-node-timeout", timeout_ms)
    made = RealCluster(tmp_path / "cluster", 3, *journal, voters=3)
    try:
        made.start().create("t")
        yield made
    finally:
        tasks.app.close()
        made.end()


@pytest.mark.parametrize("timeout_ms", [1_000, pytest.param(4_000, marks=pytest.mark.slow)])
def test_a_worker_goes_on_at_the_next_leader(
    nodes: RealCluster, timeout_ms: int, tmp_path: Path, did: Did
) -> None:
    """T27.3 With a majority it is the leader"""
    tasks.app.use(nodes.url)
    added: list[str] = []
    is_over = threading.Event()

    def produce() -> None:
        for number in range(100_000):
            try:
                tasks.record_when.options(queue="t").enqueue(f"{number}")
            except Error as error:
                assert error.may_be_done or error.retryable, error
            else:
                added.append(f"{number}")
            if is_over.wait(0.01):
                return

    producer = threading.Thread(target=produce)
    options = ["--app-dir", str(HERE), "--url", nodes.nodes[1].url, "--queues", "t", "-c", "2"]
    worker = Program(
        tmp_path / "worker.log", "worker", "e2e_tasks:app", *options, OUT=str(tmp_path)
    )
    producer.start()
    try:
        until(lambda: len(did()) > 50, lambda: worker.text)
        began = time.monotonic()
        nodes.kill_leader("t")
        before = len(added)
        until(lambda: len(added) > before + 50, lambda: worker.text)
        is_over.set()
        producer.join()
        until(lambda: {line.split()[0] for line in did()} >= set(added), lambda: worker.text)
    finally:
        is_over.set()
        worker.kill()
    at = sorted([began, *(float(line.split()[1]) for line in did())])
    gap_s = max(b - a for a, b in pairwise(at) if a >= began)
    if timeout_ms >= 4_000:  # a slow machine takes seconds for what a second allows
        assert gap_s < 2 * timeout_ms / 1000, worker.text
