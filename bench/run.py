"""`make bench`: Tuque beside Redis and beanstalkd in one run, as ratios.

Rounds alternate (A B A B ...), so that drift of the machine affects all alike; a ratio is the
median of the rounds' ratios. Writes build/bench.json. Exit status 1 if a target is missed and
--strict is given.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import celery_urls
import cluster
import costs
import keys
import leases
import load
import restart
import servers
import turns

import iproto
import spark
import tubes
import worker

BUILD = Path("build")
BODY = b"x" * 100


@dataclass
class Figure:
    """A measured figure and its target."""

    name: str
    value: float
    unit: str
    target: float
    at_least: bool  # else: at most
    detail: str

    @property
    def is_met(self) -> bool:
        """Whether the target is reached."""
        return self.value >= self.target if self.at_least else self.value <= self.target


class Run:
    """Collects figures; `only` picks sections by name."""

    def __init__(self, seconds: float, rounds: int, jobs: int, only: str) -> None:
        self.seconds = seconds
        self.rounds = rounds
        self.jobs = jobs
        self.only = only
        self.program = load.build_jobbench(BUILD)
        self.figures: list[Figure] = []
        self.raw: dict[str, list[float]] = {}

    def note(
        self, name: str, value: float, unit: str, target: float, at_least: bool, detail: str
    ) -> None:
        """Add a figure and print it at once."""
        figure = Figure(name, round(value, 3), unit, target, at_least, detail)
        self.figures.append(figure)
        sign = ">=" if at_least else "<="
        mark = "ok    " if figure.is_met else "MISSED"
        print(
            f"{mark} {name:<42} {figure.value:>10g} {unit:<6} (wanted {sign} {target:g})  {detail}"
        )
        sys.stdout.flush()

    def rounds_of(self, runs: dict[str, Callable[[], float]]) -> dict[str, list[float]]:
        """Run everything once per round, in turn."""
        found: dict[str, list[float]] = {name: [] for name in runs}
        for _ in range(self.rounds):
            for name, run in runs.items():
                found[name].append(run())
        return found

    def ratio(self, a: list[float], b: list[float]) -> float:
        """Median of the pairwise ratios."""
        return statistics.median(x / y for x, y in zip(a, b, strict=True))


def middle(values: list[float]) -> str:
    """Median in thousands."""
    return f"{statistics.median(values) / 1000:.1f}k/s"


def bench_cycle(run: Run) -> None:
    """The job cycle against Redis lists, Redis streams and beanstalkd."""
    redis, bean = servers.redis(), servers.beanstalkd()
    with servers.tuque() as ours:
        for conns, depth, lists, streams in ((16, 16, 1.0, 1.3), (64, 1, 0.95, 1.2)):

            def one(proto: str, port: int, c: int = conns, d: int = depth) -> float:
                return load.cycle(run.program, proto, port, c, d, run.seconds)

            runs: dict[str, Callable[[], float]] = {"tuque": lambda: one("disque", ours.port)}
            if redis is not None:
                runs["redis-list"] = lambda: one("redis-list", redis.port)
                runs["redis-stream"] = lambda: one("redis-stream", redis.port)
            if bean is not None:
                runs["beanstalkd"] = lambda: one("beanstalk", bean.port)
            found = run.rounds_of(runs)
            shape = f"{conns} conns x {depth} deep"
            run.raw[f"cycle {shape}"] = found["tuque"]
            for name, target in (("redis-list", lists), ("redis-stream", streams)):
                if name in found:
                    ratio = run.ratio(found["tuque"], found[name])
                    detail = f"{middle(found['tuque'])} : {middle(found[name])}"
                    run.note(f"cycle {shape} / {name}", ratio, "x", target, True, detail)
            if "beanstalkd" in found:
                ratio = run.ratio(found["tuque"], found["beanstalkd"])
                detail = f"{middle(found['tuque'])} : {middle(found['beanstalkd'])}"
                run.note(f"cycle {shape} / beanstalkd", ratio, "x", 0, True, detail)
    for other in (redis, bean):
        if other is not None:
            other.close()


def bench_work(run: Run) -> None:
    """The cycle with START and DONE beside the plain one.

    Each word names all jobs of its step, in all. Step by step, START is a fourth round trip to
    three: of jobs one at a time that leaves 0.75, and the target cannot be met. GETJOB START saves
    it. A worker that fetches ahead makes one round trip for as many jobs in either way.
    """
    with servers.tuque() as ours:
        for conns, depth, way in ((16, 16, ""), (64, 1, ""), (64, 1, "-ahead")):

            def one(proto: str, c: int = conns, d: int = depth, way: str = way) -> float:
                return load.cycle(run.program, proto + way, ours.port, c, d, run.seconds)

            ways: dict[str, Callable[[], float]] = {
                "work": lambda: one("disque-work"),
                "plain": lambda: one("disque"),
            }
            if not way:
                ways["begin"] = lambda: one("disque-begin")
            found = run.rounds_of(ways)
            for word, figures in found.items():
                if word != "plain":
                    ratio = run.ratio(figures, found["plain"])
                    detail = f"{middle(figures)} : {middle(found['plain'])}"
                    name = "START" if word == "work" else "GETJOB START"
                    name += f", DONE {conns} x {depth}{', ahead' if way else ''} / ACKJOB"
                    run.note(name, ratio, "x", 0.8, True, detail)


def bench_add(run: Run) -> None:
    """ADDJOB over 50 connections pipelined by 16, beside Redis' PING without pipelining."""
    redis = servers.redis()
    if redis is None:
        print("skip   ADDJOB against PING: redis-server is not installed")
        return
    body = BODY.decode()

    def add() -> float:
        with servers.tuque() as ours:
            return load.redis_benchmark(ours.port, 50, 16, 600_000, "ADDJOB", "q", body, "0")

    with redis:
        found = run.rounds_of(
            {
                "add": add,
                "ping": lambda: load.redis_benchmark(redis.port, 50, 1, 200_000, "PING"),
            }
        )
    ratio = run.ratio(found["add"], found["ping"])
    detail = f"{middle(found['add'])} : {middle(found['ping'])}"
    run.note("ADDJOB 50 conns x 16 / Redis PING", ratio, "x", 200 / 140, True, detail)


def bench_journal(run: Run) -> None:
    """The cost of the journal: everysec against off, always against one fsync per job."""
    everysec = ("--appendonly", "yes", "--appendfsync", "everysec")
    with servers.tuque() as off, servers.tuque(*everysec) as on:
        found = run.rounds_of(
            {
                "on": lambda: load.cycle(run.program, "disque", on.port, 16, 16, run.seconds),
                "off": lambda: load.cycle(run.program, "disque", off.port, 16, 16, run.seconds),
            }
        )
    cost = (1 - run.ratio(found["on"], found["off"])) * 100
    detail = f"{middle(found['on'])} : {middle(found['off'])}"
    run.note("journal everysec costs", cost, "%", 25, False, detail)
    with servers.tuque("--appendonly", "yes", "--appendfsync", "always") as always:
        port = always.port
        found = run.rounds_of(
            {
                "flat": lambda: load.cycle(run.program, "disque", port, 64, 1, run.seconds),
                "deep": lambda: load.cycle(run.program, "disque", port, 64, 16, run.seconds),
                "fsync": lambda: fsync_rate(always.scratch),
            }
        )
    for name, shape, target in (("flat", "64 conns x 1", 0), ("deep", "64 conns x 16", 20)):
        ratio = run.ratio(found[name], found["fsync"])
        detail = f"{middle(found[name])} : {middle(found['fsync'])}"
        run.note(f"always, {shape} / one fsync a job", ratio, "x", target, True, detail)


def bench_always(run: Run) -> None:
    """The cycle with an fsync before each reply, against Redis lists under the same policy."""
    policy = ("--appendonly", "yes", "--appendfsync", "always")
    redis = servers.redis(*policy)
    if redis is None:
        print("skip   always beside Redis: redis-server is not installed")
        return
    with redis, servers.tuque(*policy) as ours:
        for conns, depth, target in ((64, 1, 1.0), (16, 16, 1.2)):

            def one(proto: str, port: int, c: int = conns, d: int = depth) -> float:
                return load.cycle(run.program, proto, port, c, d, run.seconds)

            found = run.rounds_of(
                {
                    "tuque": lambda: one("disque", ours.port),
                    "redis": lambda: one("redis-list", redis.port),
                }
            )
            ratio = run.ratio(found["tuque"], found["redis"])
            detail = f"{middle(found['tuque'])} : {middle(found['redis'])}"
            name = f"always, {conns} conns x {depth} / redis-list"
            run.note(name, ratio, "x", target, True, detail)


def fsync_rate(directory: Path) -> float:
    """Job cycles per second if each add and each ack needed its own fsync."""
    count = 200
    with tempfile.NamedTemporaryFile(dir=directory) as file:
        start = time.perf_counter()
        for _ in range(count):
            os.write(file.fileno(), b"x" * 250)
            os.fdatasync(file.fileno())
        return count / (time.perf_counter() - start)


def bench_events(run: Run) -> None:
    """The cost of the event stream."""
    with servers.tuque() as off, servers.tuque("--events", "yes") as on:
        found = run.rounds_of(
            {
                "on": lambda: load.cycle(run.program, "disque", on.port, 16, 16, run.seconds),
                "off": lambda: load.cycle(run.program, "disque", off.port, 16, 16, run.seconds),
            }
        )
    ratio = run.ratio(found["on"], found["off"])
    detail = f"{middle(found['on'])} : {middle(found['off'])}"
    run.note("events on / off", ratio, "x", 0.8, True, detail)


def bench_memory(run: Run) -> None:
    """Bytes per queued job, bytes accounted for, and bytes returned."""
    with servers.tuque() as ours:
        line = load.Line(ours.port)
        line.add("warm", 20_000, BODY)
        line.drain("warm")
        start = ours.rss()
        before = used_memory(line)
        line.add("m", run.jobs, BODY)
        full, accounted = ours.rss(), used_memory(line)
        line.drain("m")
        empty = settled_rss(ours)
        line.close()
    per_job = (full - start) / run.jobs
    detail = f"{run.jobs} jobs, start {start >> 20} MB, full {full >> 20} MB"
    run.note("bytes a queued 100-byte job", per_job, "B", 450, False, detail)
    off = abs((accounted - before) / (full - start) - 1) * 100
    detail = f"accounted {(accounted - before) / run.jobs:.0f} B a job"
    run.note("accounted memory is off by", off, "%", 15, False, detail)
    back = (empty / start - 1) * 100
    detail = f"after {run.jobs} jobs: {empty >> 20} MB"
    run.note("memory kept after all are acked", back, "%", 10, False, detail)


def settled_rss(ours: servers.Broker) -> int:
    """Resident bytes after housekeeping has freed what it can."""
    last = ours.rss()
    for _ in range(20):
        time.sleep(0.25)
        now = ours.rss()
        if abs(now - last) < 1 << 18:
            return now
        last = now
    return last


def used_memory(line: load.Line) -> int:
    """The memory that the server reports."""
    text = line.call("INFO", "memory")
    assert isinstance(text, bytes)
    for row in text.split(b"\r\n"):
        if row.startswith(b"used_memory:"):
            return int(row[12:])
    raise SystemExit("INFO memory has no used_memory")


def bench_depth(run: Run) -> None:
    """GETJOB from a long queue against a short one."""
    with servers.tuque() as ours:
        line = load.Line(ours.port)
        line.add("long", run.jobs, BODY)
        line.close()
        found = run.rounds_of(
            {
                "long": lambda: load.getjob_rate(ours.port, "long", 20_000, run.jobs),
                "short": lambda: load.getjob_rate(ours.port, "short", 20_000, 100),
            }
        )
    ratio = run.ratio(found["long"], found["short"])
    detail = f"{middle(found['long'])} : {middle(found['short'])}"
    run.note(f"GETJOB, queue of {run.jobs} / of 100", ratio, "x", 0.9, True, detail)


SECTIONS = {
    "cycle": bench_cycle,
    "work": bench_work,
    "add": bench_add,
    "journal": bench_journal,
    "always": bench_always,
    "events": bench_events,
    "memory": bench_memory,
    "depth": bench_depth,
    "restart": restart.bench_restart,
    "leases": leases.bench_leases,
    "tubes": tubes.bench_tubes,
    "keys": keys.bench_keys,
    "turns": turns.bench_turns,
    "costs": costs.bench_costs,
    "iproto": iproto.bench_iproto,
    "celery": celery_urls.bench_celery,
    "worker": worker.bench_worker,
    "worker-tubes": worker.bench_worker_tubes,
    "cluster": cluster.bench_cluster,
    "idle": cluster.bench_idle,
    **spark.sections(),
}


def main() -> int:
    """Run the sections and write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=3, help="length of one measurement")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=1_000_000, help="for memory and depth")
    parser.add_argument(
        "--only", default="", help="sections, comma-separated: " + ", ".join(SECTIONS)
    )
    parser.add_argument("--strict", action="store_true", help="exit 1 when a target is missed")
    options = parser.parse_args()
    from tuque.server.app import is_compiled

    mode = "compiled" if is_compiled() else "INTERPRETED: the targets are for compiled modules"
    print(
        f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, {mode}"
    )
    run = Run(options.seconds, options.rounds, options.jobs, options.only)
    wanted = [name for name in options.only.split(",") if name] or list(SECTIONS)
    for name in wanted:
        SECTIONS[name](run)
    report = {
        "machine": {"arch": platform.machine(), "cores": os.cpu_count()},
        "python": platform.python_version(),
        "mode": mode,
        "rounds": options.rounds,
        "seconds": options.seconds,
        "figures": [asdict(figure) | {"met": figure.is_met} for figure in run.figures],
    }
    BUILD.mkdir(exist_ok=True)
    (BUILD / "bench.json").write_text(json.dumps(report, indent=1) + "\n")
    missed = [figure.name for figure in run.figures if not figure.is_met]
    print(f"{len(run.figures) - len(missed)} of {len(run.figures)} targets met; build/bench.json")
    return 1 if missed and options.strict else 0


if __name__ == "__main__":
    sys.exit(main())
