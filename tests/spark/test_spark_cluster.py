"""Source, sink and report on a Spark of one master and two workers, with killed executors."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from real_server import RealServer
from spark_cluster import SparkCluster, end

from tuque import Client

pytestmark = [pytest.mark.slow, pytest.mark.spark]

JOB = Path(__file__).parent / "cluster_job.py"
LIMIT_S = 240.0
SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.interval": "100ms",
    "spark.speculation.minTaskRuntime": "1s",
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    with SparkCluster(tmp_path_factory.mktemp("spark-cluster")) as running:
        yield running


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[RealServer]:
    (tmp_path / "node").mkdir()
    server = RealServer(tmp_path / "node")
    server.start()
    yield server
    server.end()


class Job:
    """A driver program under way."""

    def __init__(self, cluster: SparkCluster, name: str, work: Path, **asked: Any) -> None:
        conf = {**cluster.settings(), **asked.pop("conf", {})}
        asked = {"first_s": 0, "each_s": 0, "conf": conf, "work": str(work), **asked}
        self.work = work
        self.process = subprocess.Popen(
            [sys.executable, str(JOB), name, json.dumps(asked)],
            env=cluster.env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def logged(self, kind: str) -> int:
        """How many batches the log of that kind, offsets or commits, has."""
        return len(list((self.work / "checkpoint" / kind).glob("[0-9]*")))

    def await_in_flight(self, batch: int) -> None:
        """Returns while that batch, or a later one, is planned and not committed."""
        until = time.monotonic() + LIMIT_S
        while not self.logged("offsets") > max(batch, self.logged("commits")):
            assert self.process.poll() is None, self.process.communicate()[1]
            assert time.monotonic() < until, "the batch did not come"
            time.sleep(0.01)

    def counts(self) -> dict[str, Any]:
        """What it printed at its end."""
        try:
            said, errors = self.process.communicate(timeout=LIMIT_S)
        finally:
            end(self.process.pid, signal.SIGKILL)
        assert self.process.returncode == 0, errors[-4000:]
        found = json.loads(said.splitlines()[-1])
        assert isinstance(found, dict)
        return found


def fill(broker: RealServer, count: int) -> None:
    """Jobs 0 to count - 1 in the queue `in`."""
    with Client(f"tuque://127.0.0.1:{broker.port}") as client:
        pipe = client.pipeline()
        for number in range(count):
            pipe.addjob("in", str(number))
        assert len(pipe.execute()) == count


def drain(broker: RealServer) -> Counter[str]:
    """How often each body is in the queue `out`."""
    found: Counter[str] = Counter()
    with Client(f"tuque://127.0.0.1:{broker.port}") as client:
        while jobs := client.getjob("out", count=1000, nohang=True):
            found.update(job.body.decode() for job in jobs)
            client.fastack(*(job.id for job in jobs))
    return found


def assert_once(found: Counter[str], count: int) -> None:
    """Each of the numbers, once: 0 lost, 0 duplicates."""
    lost = [str(n) for n in range(count) if str(n) not in found]
    twice = {body: times for body, times in found.items() if times > 1}
    print(f"{len(lost)} lost, {sum(twice.values()) - len(twice)} duplicates of {count}")
    assert (len(found), lost, twice) == (count, [], {})


def left(broker: RealServer) -> int:
    """Jobs that the broker still knows."""
    with Client(f"tuque://127.0.0.1:{broker.port}") as client:
        return int(client.info()["registered_jobs"])


def test_source_on_two_hosts(cluster: SparkCluster, broker: RealServer, tmp_path: Path) -> None:
    fill(broker, 5000)
    counts = Job(cluster, "source", tmp_path / "job", port=broker.port, batch=2000).counts()
    assert (counts["rows"], counts["jobs"], counts["bodies"]) == (5000, 5000, 5000)
    assert {"127.0.0.2", "127.0.0.3"} <= {host.partition(":")[0] for host in counts["hosts"]}
    assert left(broker) == 0, "the last batch is acknowledged too"


def test_executors_killed_in_the_middle_of_a_batch(
    cluster: SparkCluster, broker: RealServer, tmp_path: Path
) -> None:
    """Read and staged write in one query, executors killed twice: 0 lost, 0 duplicates."""
    fill(broker, 4000)
    job = Job(cluster, "through", tmp_path / "job", port=broker.port, each_s=1.5)
    for batch in (0, 2):
        job.await_in_flight(batch)
        cluster.kill_executor()
    job.counts()
    assert_once(drain(broker), 4000)
    assert left(broker) == 0


def test_speculative_copies(cluster: SparkCluster, broker: RealServer, tmp_path: Path) -> None:
    """A copy of a slow task of the source, and one of the sink: neither doubles a row."""
    fill(broker, 2000)
    slow = {"port": broker.port, "first_s": 60, "conf": SPECULATION}
    began = time.monotonic()
    Job(cluster, "through", tmp_path / "through", batch=2000, **slow).counts()
    assert time.monotonic() - began < 60, "the copy did not win"
    assert_once(drain(broker), 2000)
    began = time.monotonic()
    Job(cluster, "sink", tmp_path / "sink", count=3000, **slow).counts()
    assert time.monotonic() - began < 60, "the copy did not win"
    assert_once(drain(broker), 3000)


def test_report_on_the_cluster(cluster: SparkCluster, history: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    words = ["spark", "report", "--events", str(history), "--out", str(out), "--memory", "512m"]
    done = subprocess.run(
        [sys.executable, "-m", "tuque", *words],
        env=cluster.env,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stdout.splitlines()[0].startswith("8 jobs in 6 s: 3 acked, 1 dead")
    log = (cluster.directory / "master.log").read_text()
    assert re.search(r"Registered app tuque report", log)
    assert (out / "report.html").exists()
