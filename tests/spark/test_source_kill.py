"""The driver of a query over three nodes is killed -9, and a node with it, in the middle."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from source_lab import assert_once, fill

from lab import RealCluster
from tuque import Client
from until import until

pytestmark = [pytest.mark.slow, pytest.mark.spark]

DRIVER = Path(__file__).parent / "source_driver.py"
JOBS = 3000
LIMIT_S = 240.0


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[RealCluster]:
    running = RealCluster(tmp_path / "nodes", 3, "--appendonly", "yes", "--appendfsync", "always")
    try:
        yield running.start()
    finally:
        running.end()


def logged(place: Path, kind: str) -> int:
    """The last batch in that log; -1: none."""
    found = (place / "checkpoint" / kind).glob("[0-9]*")
    return max((int(path.name) for path in found), default=-1)


def kill(process: subprocess.Popen[str]) -> None:
    """Kills the driver with its JVM, which is of the same group."""
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def start(place: Path, url: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(DRIVER), str(place), url],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def test_driver_and_node_are_killed(cluster: RealCluster, tmp_path: Path) -> None:
    """With a batch of all three in flight; the next driver finishes it and the rest."""
    urls = [f"tuque://127.0.0.1:{node.port}" for node in cluster.nodes]
    url = "tuque://" + ",".join(f"127.0.0.1:{node.port}" for node in cluster.nodes)
    for number, one in enumerate(urls):
        fill(one, number * JOBS // 3, JOBS // 3)
    place = tmp_path / "query"
    place.mkdir()
    driver = start(place, url)

    def is_in_flight() -> bool:
        assert driver.poll() is None, driver.communicate()[1][-4000:]
        return logged(place, "offsets") > max(1, logged(place, "commits"))

    until(is_in_flight, "no batch came", most_s=LIMIT_S)
    cluster.nodes[1].kill()
    kill(driver)
    batch = logged(place, "offsets")
    offset = json.loads((place / "checkpoint" / "offsets" / str(batch)).read_text().split("\n")[-1])
    assert len(offset) == 3
    driver = start(place, url)
    cluster.nodes[1].start()
    try:
        _, errors = driver.communicate(timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        kill(driver)
        raise
    assert driver.returncode == 0, errors[-4000:]
    assert_once(Counter(json.loads((place / "bodies").read_text())), JOBS)
    for one in urls:
        with Client(one, discover=False) as client:
            assert client.qlen("q") == 0 and client.lease_info("g").batches == []
