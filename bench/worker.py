"""The worker beside Celery, Dramatiq and RQ on Redis: tasks and enqueues per second.

Each runs the same task, which writes one byte, in one process with 8 threads (RQ's SimpleWorker has
one process without threads). The brokers store nothing on disk. The others have an environment of
their own, `build/peers`, created on the first run.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import venv
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import cluster
import load
import servers

if TYPE_CHECKING:
    from run import Run

HERE = Path(__file__).parent / "peers"
BUILD = Path("build").absolute()
THREADS = 8
QUEUE = "bench"  # of the app
SKIPPED = 0.1  # of the tasks, at the start, while the worker warms up
LIMIT_S = 120.0


@dataclass
class Kind:
    """A candidate: its app, its worker's command and its number of tasks."""

    name: str
    app: str
    python: str
    worker: list[str]
    tasks: int


def own_kind() -> Kind:
    """Our worker."""
    tuque = [sys.executable, "-P", "-m", "tuque", "worker", "tuque_app:app"]
    tuque += ["--app-dir", str(HERE), "-c", str(THREADS), "--log-level", "warning"]
    return Kind("tuque", "tuque_app", sys.executable, tuque, 20_000)


def kinds() -> list[Kind]:
    """The candidates that can run here."""
    found = [own_kind()]
    if shutil.which("redis-server") is None:
        print("skip   the worker beside others: redis-server is not installed")
        return found
    python = peers_python()
    if not python:
        return found
    programs = Path(python).parent
    celery = [str(programs / "celery"), "-A", "celery_app", "worker", "-P", "threads"]
    celery += ["-c", str(THREADS), "--loglevel", "ERROR", "--without-gossip", "--without-mingle"]
    dramatiq = [str(programs / "dramatiq"), "dramatiq_app", "--processes", "1"]
    dramatiq += ["--threads", str(THREADS)]
    rq = [str(programs / "rq"), "worker", "bench", "-w", "rq.SimpleWorker", "--quiet", "--url"]
    return [
        *found,
        Kind("celery", "celery_app", python, celery, 5_000),
        Kind("dramatiq", "dramatiq_app", python, dramatiq, 5_000),
        Kind("rq", "rq_app", python, rq, 3_000),
    ]


def peers_python(name: str = "peers", wanted: str = "requirements.txt") -> str:
    """The Python of an environment with such packages, created if missing; empty if that fails."""
    place = BUILD / name
    python = place / "bin" / "python"
    packages = (HERE / wanted).read_text()
    stamp = place / "requirements.txt"
    if stamp.exists() and stamp.read_text() == packages:
        return str(python)
    venv.create(place, with_pip=True, clear=True)
    command = [str(python), "-m", "pip", "install", "-q", "-r", str(HERE / wanted)]
    made = subprocess.run(command, capture_output=True, text=True, check=False)
    if made.returncode != 0:
        why = (made.stderr.strip().splitlines() or ["pip failed"])[-1]
        print(f"skip   the worker beside others: their packages cannot be installed: {why}")
        return ""
    stamp.write_text(packages)
    return str(python)


def environment(done: Path, port: int) -> dict[str, str]:
    """The environment variables of one measurement."""
    return {
        **os.environ,
        "BENCH_DONE": str(done),
        "BENCH_REDIS": f"redis://127.0.0.1:{port}/0",
        "TUQUE_URL": f"tuque://127.0.0.1:{port}",
    }


def measure(kind: Kind) -> tuple[float, float]:
    """Enqueues and tasks per second, with a fresh broker."""
    broker = servers.tuque() if kind.name == "tuque" else servers.redis()
    assert broker is not None
    with broker:
        return measure_at(kind, broker.port)


def measure_at(kind: Kind, port: int) -> tuple[float, float]:
    """Enqueues and tasks per second, with that broker."""
    with tempfile.TemporaryDirectory() as scratch:
        done = Path(scratch) / "done"
        done.touch()
        env = environment(done, port)
        enqueue = [kind.python, str(HERE / "enqueue.py"), kind.app, str(kind.tasks)]
        made = subprocess.run(
            enqueue, cwd=HERE, env=env, check=True, capture_output=True, text=True
        )
        command = [*kind.worker, env["BENCH_REDIS"]] if kind.name == "rq" else kind.worker
        with (Path(scratch) / "log").open("wb") as log:
            worker = subprocess.Popen(
                command, cwd=HERE, env=env, stdout=log, stderr=log, process_group=0
            )
        try:
            rate = watch(done, kind.tasks, worker)
        except TimeoutError as late:
            text = (Path(scratch) / "log").read_text(errors="replace")
            raise SystemExit(f"{kind.name}: {late}\n{text[-2000:]}") from None
        finally:
            worker.terminate()
            try:
                worker.wait(20)
            except subprocess.TimeoutExpired:
                worker.kill()
                worker.wait()
        return float(made.stdout), rate


def watch(done: Path, count: int, worker: subprocess.Popen[bytes]) -> float:
    """Tasks per second, from the first tenth to the last."""
    until = time.monotonic() + LIMIT_S
    first, first_s = 0, 0.0
    while True:
        size = done.stat().st_size
        now = time.monotonic()
        if not first and size >= count * SKIPPED:
            first, first_s = size, now
        if size >= count:
            return (count - first) / (now - first_s)
        if worker.poll() is not None or now > until:
            raise TimeoutError(f"{size} of {count} tasks were done")
        time.sleep(0.002)


def bench_worker_tubes(run: Run) -> None:
    """Tasks a second of one worker from a tube of tasks beside a queue: one node, then three."""
    kind = own_kind()
    rates: dict[str, list[float]] = {}
    for _ in range(run.rounds):
        for nodes in (1, 3):
            for type_ in ("queue", "tasks"):
                with cluster.Cluster(nodes=nodes) as ours:
                    if type_ != "queue":
                        create(ours.port)
                    rates.setdefault(f"{nodes} {type_}", []).append(measure_at(kind, ours.port)[1])
    for nodes in (1, 3):
        tube, queue = rates[f"{nodes} tasks"], rates[f"{nodes} queue"]
        detail = f"{statistics.median(tube):,.0f} : {statistics.median(queue):,.0f}/s"
        name = f"worker, {nodes} node{'s'[: nodes - 1]}, tasks / queue"
        run.note(name, run.ratio(tube, queue), "x", 0.9, True, detail)


def create(port: int) -> None:
    """Create the tube of the app's queue, as soon as the nodes can."""
    line = load.Line(port)
    line.call("TUBE", "CREATE", QUEUE, "tasks", "ALONE")
    line.close()


def bench_worker(run: Run) -> None:
    """Tasks and enqueues per second of all candidates, in turn."""
    compared = kinds()
    rates: dict[str, list[float]] = {}
    for _ in range(run.rounds):
        for kind in compared:
            enqueues, tasks = measure(kind)
            rates.setdefault(f"{kind.name} enqueues", []).append(enqueues)
            rates.setdefault(f"{kind.name} tasks", []).append(tasks)
    for what in ("enqueues", "tasks"):
        ours = rates[f"tuque {what}"]
        detail = f"{statistics.median(ours):,.0f}/s"
        run.note(f"worker, {what} a second", statistics.median(ours), "/s", 0, True, detail)
        for kind in compared[1:]:
            theirs = rates[f"{kind.name} {what}"]
            detail = f"{statistics.median(ours):,.0f} : {statistics.median(theirs):,.0f}/s"
            run.note(f"worker, {what} / {kind.name}", run.ratio(ours, theirs), "x", 1, True, detail)
