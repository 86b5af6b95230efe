"""A worker at one of three nodes: what clients of the other two ask of its jobs."""

from __future__ import annotations

import time
from pathlib import Path

import e2e_tasks as tasks
import pytest
from lab import RealCluster
from worker_lab import HERE, Program, wait_until

from tuque import Client
from tuque.errors import JobCancelled


def written(place: Path) -> str:
    """What the tasks have noted so far."""
    did = place / "did"
    return did.read_text() if did.exists() else ""


def test_cancel_and_result_from_any_of_three_nodes(tmp_path: Path) -> None:
    """A cancel ends a coroutine and a child process within two seconds, wherever it is asked.

    A result is read from two nodes after the node of its job was killed.
    """
    with RealCluster(tmp_path, 3) as cluster:
        urls = [node.url for node in cluster.nodes]
        tasks.app.use(urls[0])
        results = [tasks.adds.options(keep_s=60, replicate=3).enqueue(at, 1) for at in range(2)]
        for pool, name in (("async", "for_ever"), ("process", "sleeps")):
            flags = ("--app-dir", str(HERE), "--url", urls[0], "--pool", pool, "-c", "1")
            log = tmp_path / f"{pool}.log"
            worker = Program(log, "worker", "e2e_tasks:app", *flags, OUT=str(tmp_path))
            try:
                for at, url in enumerate(urls):
                    text = f"{pool}-{at}"
                    handle = getattr(tasks, name).options(keep_s=60, replicate=3).enqueue(text)
                    wait_until(lambda line=f"begin {text} ": line in written(tmp_path), text)
                    began_at = time.monotonic()
                    with Client(url, discover=False) as client:
                        assert client.cancel(handle.id) == ["flagged"]
                    with pytest.raises(JobCancelled):
                        handle.result(10)
                    assert time.monotonic() - began_at < 2
            finally:
                worker.kill()
        assert [handle.result(10) for handle in results] == [1, 2]
        cluster.nodes[0].kill()
        for url in urls[1:]:
            with Client(url, discover=False) as client:
                assert [client.result(handle.id).result for handle in results] == [b"1", b"2"]
