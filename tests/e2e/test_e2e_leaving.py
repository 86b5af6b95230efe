"""A worker of a node that leaves its cluster: it finishes what it runs, and goes on elsewhere."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import leaving_tasks as tasks
import pytest

from lab import RealCluster, cluster_info, info
from program import Program
from until import until

pytestmark = pytest.mark.slow
HERE = Path(__file__).parent
JOBS = 300
MORE = 30  # are added when the node has gone


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[RealCluster]:
    try:
        with RealCluster(tmp_path / "cluster", 3, "--appendonly", "yes") as made:
            yield made
    finally:
        tasks.app.close()


@pytest.fixture
def worker(cluster: RealCluster, tmp_path: Path) -> Iterator[Program]:
    """It begins at node 0."""
    words = ["leaving_tasks:app", "--app-dir", str(HERE), "--url", cluster.url, "-c", "4"]
    made = Program(tmp_path / "worker.log", "worker", *words, OUT=str(tmp_path))
    try:
        yield made
    finally:
        made.kill()


def add(url: str, numbers: range) -> None:
    """Add these jobs at the node."""
    tasks.app.use(url)
    for number in numbers:
        tasks.lasts.enqueue(number)


@pytest.mark.parametrize("seen", [0, 60])
def test_every_job_of_a_node_that_leaves_runs_once(
    cluster: RealCluster, worker: Program, tmp_path: Path, seen: int
) -> None:
    """K7.9 Clients ask another node, so that no run is taken for one that is over. The holders
    learn of a run that began in the last 50 ms (W14.3) before the job goes.
    """
    said = tmp_path / "did"

    def did(word: str) -> Counter[int]:
        lines = said.read_text().splitlines() if said.exists() else []
        return Counter(int(line.split()[1]) for line in lines if line.startswith(word))

    leaving, wire = cluster.nodes[0], cluster.wire(0)
    add(leaving.url, range(JOBS))
    until(lambda: len(did("end")) >= seen and did("begin"), lambda: worker.text)
    assert wire("QLEN", "q") > 0, "jobs are queued at it, and some run"
    assert wire("CLUSTER", "LEAVING", "yes") == b"OK"
    until(lambda: cluster_info(wire)["cluster_drain_left"] == "0", leaving.log)
    leaving.end()
    add(cluster.nodes[1].url, range(JOBS, JOBS + MORE))
    until(lambda: len(did("end")) == JOBS + MORE, lambda: worker.text)
    for node in cluster.nodes[1:]:
        with node.wire() as other:
            until(lambda other=other: info(other, "jobs")["registered_jobs"] == "0", node.log)
            assert info(other, "jobs")["dead"] == info(other, "jobs")["crashes"] == "0"
            assert other("DEBUG", "CHECK") == b"OK"
    assert set((did("begin") + did("end")).values()) == {2}, "no job ran twice"
    assert worker.process.poll() is None
