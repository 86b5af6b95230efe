"""Celery over Tuque beside Celery over Redis: the same program with another URL.

Tasks per second of a worker of two processes that fetches 16, without results and with them; what
a program adds per second, one by one and in batches; a chord of 1,000; the wait for one result.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import servers

import worker

if TYPE_CHECKING:
    from run import Run

SOURCES: Final = Path(__file__).resolve().parents[1] / "src"
TASKS: Final = 3_000
BATCH: Final = 10_000
PARTS: Final = 1_000
WAITS: Final = 300
BARS: Final = {"tasks": 1.3, "results": 1.5, "adds": 0.95, "batches": 1.0, "chord": 1.0, "get": 1.0}


class Site:
    """One broker, and the program at its URL."""

    def __init__(self, python: str, url: str, scratch: Path) -> None:
        self.python = python
        self.done = scratch / "done"
        self.log = scratch / "worker.log"
        path = os.pathsep.join([str(SOURCES), str(worker.HERE)])
        self.env = {
            **os.environ,
            "BENCH_URL": url,
            "BENCH_DONE": str(self.done),
            "PYTHONPATH": path,
        }

    def timed(self, what: str, count: int) -> float:
        """What the program prints."""
        words = [self.python, "celery_load.py", what, str(count)]
        made = subprocess.run(
            words, cwd=worker.HERE, env=self.env, check=True, stdout=subprocess.PIPE, text=True
        )
        return float(made.stdout)

    @contextmanager
    def worker(self) -> Iterator[subprocess.Popen[bytes]]:
        """A worker of two processes."""
        self.done.write_bytes(b"")
        words = [self.python, "-m", "celery", "-A", "celery_load", "worker", "-c", "2"]
        words += ["--loglevel", "ERROR", "--without-gossip", "--without-mingle"]
        with self.log.open("wb") as log:
            process = subprocess.Popen(words, cwd=worker.HERE, env=self.env, stdout=log, stderr=log)
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def drained(self, count: int) -> float:
        """Tasks per second of a worker that starts with so many."""
        with self.worker() as process:
            return worker.watch(self.done, count, process)


def measured(site: Site) -> dict[str, float]:
    """All figures of one broker; of each the larger is the better."""
    found = {"adds": site.timed("empty", TASKS)}
    found["tasks"] = site.drained(TASKS)
    site.timed("kept", TASKS)
    found["results"] = site.drained(TASKS)
    found["batches"] = site.timed("batch", BATCH)
    with site.worker():
        found["chord"] = 1 / site.timed("chord", PARTS)
        found["get"] = 1000 / site.timed("get", WAITS)
    return found


def bench_celery(run: Run) -> None:
    """The same program over both brokers, in turn."""
    python = worker.peers_python("peers-celery", "celery.txt")
    if not python or shutil.which("redis-server") is None:
        print("skip   Celery over both: redis-server or Celery is not installed")
        return
    ours: dict[str, list[float]] = {name: [] for name in BARS}
    theirs: dict[str, list[float]] = {name: [] for name in BARS}
    for _ in range(run.rounds):
        for into, start, scheme in (
            (ours, servers.tuque, "tuque://127.0.0.1:{}"),
            (theirs, servers.redis, "redis://127.0.0.1:{}/0"),
        ):
            broker = start()
            assert broker is not None
            with broker, tempfile.TemporaryDirectory() as scratch:
                found = measured(Site(python, scheme.format(broker.port), Path(scratch)))
            for name, value in found.items():
                into[name].append(value)
    for name, bar in BARS.items():
        a, b = statistics.median(ours[name]), statistics.median(theirs[name])
        detail = f"{a:,.2f} : {b:,.2f}/s"
        run.note(
            f"celery, {name} / redis", run.ratio(ours[name], theirs[name]), "x", bar, True, detail
        )
