"""A driver program on a Spark of several processes, what it is fed, and what came of it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from spark_cluster import SparkCluster, end

from lab import RealServer
from tuque import Client

JOB = Path(__file__).parent / "cluster_job.py"
LIMIT_S = 300.0
SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.interval": "100ms",
    "spark.speculation.minTaskRuntime": "1s",
}


class Job:
    """A driver under way; started again with the same `work` it goes on where it was."""

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
        """The last batch in the log of that kind, offsets or commits; -1: none."""
        found = (self.work / "checkpoint" / kind).glob("[0-9]*")
        return max((int(path.name) for path in found), default=-1)

    def await_in_flight(self, batch: int) -> None:
        """Returns while that batch, or a later one, is planned and not committed."""
        until = time.monotonic() + LIMIT_S
        while not self.logged("offsets") >= max(batch, self.logged("commits") + 1):
            assert self.process.poll() is None, self.process.communicate()[1]
            assert time.monotonic() < until, "the batch did not come"
            time.sleep(0.01)

    def kill(self) -> None:
        """Kills the driver; its JVM ends with it."""
        end(self.process.pid, signal.SIGKILL)
        self.process.communicate()

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


def drain(broker: RealServer, queue: str = "out") -> Counter[str]:
    """How often each body is in the queue."""
    found: Counter[str] = Counter()
    with Client(f"tuque://127.0.0.1:{broker.port}") as client:
        while jobs := client.getjob(queue, count=1000, nohang=True):
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
