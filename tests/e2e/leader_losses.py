"""How long producers wait when the leader of a tube is killed, or told to stop.

Three nodes with journals, a producer of 50 jobs a second through the shipped client, a worker
with eight threads: `python tests/e2e/leader_losses.py --kills 30 --stops 20` prints the figures.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from uuid import uuid4

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

from lab import RealCluster, RealServer
from tuque.errors import Error
from until import until

APP = """
from tuque.worker import App

app = App({url!r})


@app.task(queue="t", retry_s=30)
def work(n: int) -> None:
    pass
"""
RATE = 50  # jobs a second
CALM_S = 1.0  # of answers between two losses


class Producer:
    """Adds jobs one after another, and notes when each was answered."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.at: list[float] = []  # when jobs were answered
        self.errors: list[str] = []
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        from tuque.worker import App

        app = App(self.url)
        task = app.task(queue="t", retry_s=30, name="app.work")(lambda n: None)
        number = 0
        with app.client:
            while not self._is_over.is_set():
                began = time.monotonic()
                try:
                    task.options(key=uuid4().hex).enqueue(number)
                    self.at.append(time.monotonic())
                except Error as error:
                    self.errors.append(f"{type(error).__name__}: {error}")
                number += 1
                self._is_over.wait(max(0.0, began + 1 / RATE - time.monotonic()))

    def __enter__(self) -> Producer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join(60)

    def gap_s(self, since: float) -> float:
        """The longest time without an answer from then on."""
        before = [one for one in self.at if one <= since][-1:]
        at = before + [one for one in self.at if one > since]
        return max(b - a for a, b in pairwise(at))

    def count(self, since: float) -> int:
        """So many answers came since."""
        return sum(one > since for one in self.at[-10_000:])


@contextmanager
def worker(url: str, place: Path) -> Iterator[subprocess.Popen[bytes]]:
    """`tuque worker` with eight threads."""
    (place / "app.py").write_text(APP.format(url=url))
    words = [sys.executable, "-m", "tuque", "worker", "app:app", "-c", "8"]
    env = {**os.environ, "PYTHONPATH": f"{place}:{os.environ.get('PYTHONPATH', '')}"}
    with (place / "worker.log").open("wb") as log:
        process = subprocess.Popen(words, env=env, cwd=place, stdout=log, stderr=log)
        try:
            yield process
        finally:
            process.terminate()
            process.wait(30)


def lose(nodes: RealCluster, number: int) -> RealServer:
    """The leader gets that signal; it has ended when this returns."""
    leader = nodes.leader("t")
    leader.signal(number)
    leader.wait()
    return leader


def gaps_of(nodes: RealCluster, producer: Producer, number: int, times: int) -> list[float]:
    """The longest time without an answer at each of so many losses of the leader."""
    found: list[float] = []
    for _ in range(times):
        calm_s = time.monotonic()
        until(lambda at=calm_s: producer.count(at) > RATE * CALM_S, nodes.logs)
        began = time.monotonic()
        gone = lose(nodes, number)
        lost_s = time.monotonic()
        until(lambda at=lost_s: producer.count(at) > RATE * CALM_S, nodes.logs)
        found.append(producer.gap_s(began))
        gone.hang_up()
        gone.start()
        nodes.wait_formed()
    return found


def measure(nodes: RealCluster, place: Path, kills: int, stops: int) -> dict[str, list[float]]:
    """The gaps of kills and of stops; fails if an error reached the producer."""
    with worker(nodes.url, place), Producer(nodes.url) as producer:
        until(lambda: producer.count(0) > RATE, nodes.logs)
        found = {
            "kill": gaps_of(nodes, producer, signal.SIGKILL, kills),
            "stop": gaps_of(nodes, producer, signal.SIGTERM, stops),
        }
    assert not producer.errors, producer.errors[:3]
    return found


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--stops", type=int, default=20)
    parser.add_argument("flags", nargs="*", help="options of the server")
    given = parser.parse_args()
    place = Path(tempfile.mkdtemp(prefix="losses"))
    nodes = RealCluster(place, 3, "--appendonly", "yes", *given.flags, voters=3)
    try:
        nodes.start().create("t", "tasks")
        for name, gaps in measure(nodes, place, given.kills, given.stops).items():
            if gaps:
                middle, most = statistics.median(gaps), max(gaps)
                shown = " ".join(f"{gap:.2f}" for gap in sorted(gaps))
                print(
                    f"{name}: {len(gaps)} times, median {middle:.2f} s, most {most:.2f} s: {shown}"
                )
    finally:
        nodes.end()
        shutil.rmtree(place, ignore_errors=True)


if __name__ == "__main__":
    main()
