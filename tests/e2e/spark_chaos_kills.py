"""Three nodes, two streams and their producers, killed again and again: `make chaos`.

5 kills of the driver, 5 of a node, one of all nodes at once and one of all Python workers, while
24,000 jobs with copies are added for each stream. Each comes out once, in Parquet and in Delta, and
none is left.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("deltalake")
sys.path.insert(0, str(Path(__file__).parents[1] / "spark"))

from endless_driver import SINKS
from spark_cluster import end, line, parent, processes

from lab import RealCluster
from tuque import Client
from tuque.errors import Error
from until import until

DRIVER = Path(__file__).parents[1] / "spark" / "endless_driver.py"
FAULTS = "driver node node workers driver all driver node driver node driver node".split()
JOBS = 24_000
SHARE = JOBS // len(FAULTS)  # jobs of a stream that are added for each fault
PRODUCERS = 6
RETRY_S = 60  # no node is away for so long
PAUSE_S = 0.05  # between two attempts to add a job
LIMIT_S = 900.0


class Producers:
    """Threads that add jobs as fast as the nodes take them, up to `allowed` for each stream."""

    def __init__(self, urls: list[str]) -> None:
        self.allowed = 0
        self.begun = 0
        self.ids: dict[str, dict[str, str]] = {sink: {} for sink in SINKS}  # confirmed, with bodies
        self.unsure: set[str] = set()  # bodies that were sent, and no reply came
        self.is_over = False
        self.wrong: list[BaseException] = []
        self.changed = threading.Condition()
        self.threads = [
            threading.Thread(target=self._run, args=(urls[number % len(urls)],))
            for number in range(PRODUCERS)
        ]
        for thread in self.threads:
            thread.start()

    def allow(self, count: int) -> None:
        with self.changed:
            self.allowed += count
            self.changed.notify_all()

    def count(self) -> int:
        """Jobs that every stream has got, at the least."""
        assert not self.wrong, self.wrong
        return min(len(ids) for ids in self.ids.values())

    def end(self) -> None:
        with self.changed:
            self.is_over = True
            self.changed.notify_all()
        for thread in self.threads:
            thread.join()

    def _run(self, url: str) -> None:
        try:
            with Client(url) as client:
                while (number := self._next()) is not None:
                    for sink in SINKS:
                        self._add(client, sink, number)
        except BaseException as err:
            self.wrong.append(err)
            raise

    def _next(self) -> int | None:
        with self.changed:
            self.changed.wait_for(lambda: self.is_over or self.begun < self.allowed)
            if self.is_over:
                return None
            self.begun += 1
            return self.begun

    def _add(self, client: Client, sink: str, number: int) -> None:
        """Add that job until a node confirms it; each attempt has a body of its own."""
        attempt = 0
        while not self.is_over:
            attempt += 1
            body = f"{sink} {number}.{attempt}"
            try:
                id = client.addjob(sink, body, replicate=2, retry=RETRY_S)
            except Error as err:
                if err.may_be_done:
                    self.unsure.add(body)
                time.sleep(PAUSE_S)
                continue
            self.ids[sink][id] = body
            return


class Driver:
    """The process of the queries, in a group with its JVM."""

    def __init__(self, place: Path, url: str) -> None:
        self.place = place
        self.words = [sys.executable, str(DRIVER), str(place), url]
        self.starts = 0
        self.start()

    def start(self) -> None:
        self.starts += 1
        with (self.place / "driver.log").open("ab") as log:
            self.process = subprocess.Popen(
                self.words,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
                start_new_session=True,
            )

    def kill(self) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(30)

    def log(self) -> str:
        return (self.place / "driver.log").read_text(errors="replace")[-4000:]

    def logged(self, kind: str) -> dict[str, int]:
        """The last batch of each stream in that log of its checkpoint; -1: none."""
        assert self.process.poll() is None, self.log()
        found = {}
        for sink in SINKS:
            logs = (self.place / sink / "checkpoint" / kind).glob("[0-9]*")
            found[sink] = max((int(path.name) for path in logs), default=-1)
        return found

    def in_flight(self) -> dict[str, int]:
        """The batches that are planned, if one of them is not committed; else none.

        Not the first ones: Spark refuses a checkpoint with half of its first offset.
        """
        done, planned = self.logged("commits"), self.logged("offsets")
        return planned if planned != done and min(done.values()) >= 0 else {}

    def has_committed(self, batches: dict[str, int]) -> bool:
        """Whether these batches, or later ones, are done."""
        done = self.logged("commits")
        return all(done[sink] >= batch for sink, batch in batches.items())

    def kill_workers(self) -> int:
        """Kill every Python process that the JVM has started; returns how many."""
        known = {pid: parent(pid) for pid in processes()}

        def is_below(pid: int) -> bool:
            while pid > 1 and pid != self.process.pid:
                pid = known.get(pid, 0)
            return pid == self.process.pid

        found = [pid for pid in known if pid != self.process.pid and is_below(pid)]
        workers = [pid for pid in found if b"pyspark" in line(pid) and b"java" not in line(pid)]
        for pid in workers:
            end(pid, signal.SIGKILL)
        return len(workers)


class Run:
    """All that is killed."""

    def __init__(self, place: Path) -> None:
        flags = ("--appendonly", "yes", "--appendfsync", "always")
        self.cluster = RealCluster(place / "nodes", 3, *flags).start()
        (place / "driver").mkdir()
        self.producers = Producers([node.url for node in self.cluster.nodes])
        self.driver = Driver(place / "driver", self.cluster.url)
        self.kills: Counter[str] = Counter()
        self.began_s = time.monotonic()

    def end(self) -> None:
        self.producers.end()
        self.driver.kill()
        self.cluster.end()

    def fault(self, number: int, kind: str) -> None:
        """Kill something while jobs come in and a batch is in flight, and have it again."""
        self.producers.allow(SHARE)
        half = number * SHARE + SHARE // 2
        until(lambda: self.producers.count() >= half, "add half of them", most_s=LIMIT_S)
        batches = until(self.driver.in_flight, "plan a batch", most_s=LIMIT_S)
        getattr(self, f"kill_{kind}")()
        self.kills[kind] += 1
        until(lambda: self.driver.has_committed(batches), self.driver.log, most_s=LIMIT_S)
        spent_s = time.monotonic() - self.began_s
        print(f"{spent_s:.0f} s: {kind} killed, {self.producers.count()} jobs added", flush=True)

    def kill_driver(self) -> None:
        self.driver.kill()
        self.driver.start()

    def kill_workers(self) -> None:
        """The planners are among them: the queries end, and whoever watches starts them again."""
        assert self.driver.kill_workers() > 1
        assert self.driver.process.wait(LIMIT_S) != 0
        self.driver.kill()  # what is left of its group
        self.driver.start()

    def kill_node(self) -> None:
        """The producers go on with the two others before it comes back."""
        node = self.cluster.nodes[self.kills["node"] % 3]
        before = self.producers.count()
        node.kill()
        until(lambda: self.producers.count() > before, "add more", most_s=LIMIT_S)
        node.start()

    def kill_all(self) -> None:
        for node in self.cluster.nodes:
            node.signal(signal.SIGKILL)
        for node in self.cluster.nodes:
            node.wait()
        for node in self.cluster.nodes:
            node.launch()
        for node in self.cluster.nodes:
            node.wait_ready()

    def left(self) -> int:
        """Jobs that a node still knows."""
        assert self.driver.process.poll() is None, self.driver.log()
        count = 0
        for node in self.cluster.nodes:
            with Client(node.url, discover=False) as client:
                count += int(client.info()["registered_jobs"])
        return count

    def rows(self) -> dict[str, list[tuple[str, str]]]:
        """What is in the tables once no job is left."""
        until(lambda: self.left() == 0, lambda: f"end {self.left()} jobs", most_s=LIMIT_S)
        (self.driver.place / "stop").touch()
        assert self.driver.process.wait(LIMIT_S) == 0, self.driver.log()
        found: dict[str, list[tuple[str, str]]]
        found = json.loads((self.driver.place / "rows").read_text())
        return found


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    made = Run(tmp_path)
    yield made
    made.end()


@pytest.mark.timeout(3600)
def test_each_job_comes_out_once(run: Run) -> None:
    for number, kind in enumerate(FAULTS):
        run.fault(number, kind)
    added = run.producers
    until(lambda: added.count() == JOBS, lambda: f"add {JOBS} jobs", most_s=LIMIT_S)
    found = run.rows()
    spent_s = time.monotonic() - run.began_s
    print(f"kills: {dict(run.kills)}; {run.driver.starts} starts of the driver, {spent_s:.0f} s")
    for sink in SINKS:
        ids, bodies = Counter(id for id, _ in found[sink]), {body for _, body in found[sink]}
        lost = added.ids[sink].keys() - ids.keys()
        twice = sum(times > 1 for times in ids.values())
        more = bodies - set(added.ids[sink].values())
        print(
            f"{sink}: {len(added.ids[sink])} jobs confirmed, {len(lost)} lost, {twice} duplicates, "
            f"{len(more)} more of those that got no reply"
        )
        assert not lost and not twice
        assert more <= added.unsure and len(bodies) == len(found[sink])
    assert run.kills == {"driver": 5, "node": 5, "all": 1, "workers": 1}
