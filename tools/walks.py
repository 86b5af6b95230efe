"""Which files of src/tuque one command runs through, and in which order.

python tools/walks.py [--json] [--src FOLDER] [--only add|put|task]
python tools/walks.py --figures [--json] [--src FOLDER]

Three nodes with journals run on the sources, as processes of their own on loopback. Each of their
functions is counted while one `ADDJOB ... REPLICATE 3`, or one `TUBE PUT` at the leader of its
tube, is carried out; the third walk is one task in a worker. A function is on the walk if it
runs in each of several repetitions and hardly ever while the process is idle: that takes off
heartbeats and other work by the clock. A file is on the walk if one of its functions is.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from tuque.client.transport.conn import ErrorReply
from tuque.client.transport.raw_link import Link, Target

ROOT = Path(__file__).resolve().parent.parent
SRC = ROOT / "src"
WINDOW_S = 0.6
IDLE_WINDOWS = 12
IDLE_MOST = 4  # of these a function of the walk may run in: the clock makes a node use it, too
REPETITIONS = 6
SETTLE_S = 8.0  # after the start: nodes that have just met still agree on voters
RESTS_S = (1.6, 1.9, 1.3)  # between repetitions, in turn: in step with no heartbeat
DEADLINE_S = 60.0
READY = re.compile(r"ready to accept connections on port (\d+)")
SERVES = re.compile(r"worker ready: .*tasks: (\d+)")
BUS = re.compile(r"bus listens on port (\d+)")

# Runs at the start of each traced process: counts calls between two lines that arrive on standard
# input. `begin PATH` starts and makes that file, `end PATH` writes what was counted into that file,
# in the order of first calls.
TRACER = """
import json, os, sys, threading

PREFIX = os.environ["WALKS_SRC"]
calls = {}
is_on = False


def profile(frame, event, argument):
    if is_on and event == "call":
        code = frame.f_code
        if code.co_filename.startswith(PREFIX):
            calls[code] = calls.get(code, 0) + 1


def obey():
    global calls, is_on
    for line in sys.stdin:
        words = line.split()
        if words[0] == "begin":
            calls = {}
            is_on = True
            open(words[1], "w").close()
            continue
        is_on = False
        rows = [
            (code.co_filename[len(PREFIX):], code.co_qualname, code.co_firstlineno, count)
            for code, count in list(calls.items())
        ]
        with open(words[1] + ".new", "w") as out:
            json.dump(rows, out)
        os.rename(words[1] + ".new", words[1])


generation = int(os.environ.pop("WALKS_GENERATION", "-1"))
if generation > 0:  # a program that starts the one that works
    os.environ["WALKS_GENERATION"] = str(generation - 1)
if generation == 0:
    threading.Thread(target=obey, daemon=True).start()
    sys.setprofile(profile)
    threading.setprofile(profile)
"""

# The app of the third walk.
TASKS = """
from tuque.worker import App

app = App()


@app.task(queue="walk", retry_s=60)
def hello(text: str) -> str:
    return text
"""

Function = tuple[str, str, int]  # file, qualified name, line


class Step(NamedTuple):
    """One file of a walk."""

    file: str
    calls: int
    functions: list[str]


class Walk(NamedTuple):
    """The files of one walk in the order of their first calls."""

    name: str
    title: str
    steps: list[Step]

    @property
    def files(self) -> list[str]:
        """Their names."""
        return [step.file for step in self.steps]


# ---- processes


class Traced:
    """One process of Tuque on the sources, whose calls can be counted."""

    def __init__(self, src: Path, place: Path, *words: str, generation: int = 0) -> None:
        place.mkdir(parents=True, exist_ok=True)
        self.place = place
        self.windows = 0
        self.log_path = place / "log"
        (place / "sitecustomize.py").write_text(TRACER)
        package = f"{src.resolve()}/tuque/"
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("TUQUE_")},
            "PYTHONPATH": f"{place}:{src.resolve()}",
            "PYTHONDONTWRITEBYTECODE": "1",
            "WALKS_SRC": package,
            "WALKS_GENERATION": str(generation),
        }
        with self.log_path.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tuque", *words],
                cwd=place,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env=environment,
            )

    def log(self) -> str:
        """What it has printed so far."""
        return self.log_path.read_text(errors="replace")

    def found(self, pattern: re.Pattern[str]) -> int:
        """The number in a line of its log, once it is there."""

        def look() -> list[str]:
            assert self.process.poll() is None, self.log()
            return pattern.findall(self.log())

        return int(wait_for(look, self.log)[-1])

    def order(self, line: str) -> None:
        """Send a line to the tracer."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n".encode())
        self.process.stdin.flush()

    def window(self, act: Callable[[], None]) -> dict[Function, int]:
        """The calls while `act` runs and for WINDOW_S after it."""
        self.windows += 1
        path = self.place / f"calls-{self.windows}"
        begun = self.place / f"begun-{self.windows}"
        self.order(f"begin {begun}")
        wait_for(begun.exists, self.log)
        act()
        time.sleep(WINDOW_S)
        self.order(f"end {path}")
        wait_for(path.exists, self.log)
        return {(row[0], row[1], row[2]): row[3] for row in json.loads(path.read_text())}

    def end(self) -> None:
        """Stop it."""
        self.process.terminate()
        try:
            self.process.wait(DEADLINE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        assert self.process.stdin is not None
        self.process.stdin.close()


class Wire(Link):
    """A connection to a node: a command in, its reply out."""

    def __init__(self, port: int) -> None:
        super().__init__(Target(port=port), DEADLINE_S)

    def __call__(self, *words: str | int) -> Any:
        return self.calls([[str(word).encode() for word in words]])[0]


def wait_for(what: Callable[[], Any], told: Callable[[], str]) -> Any:
    """Ask until the answer is true; return it."""
    until = time.monotonic() + DEADLINE_S
    while True:
        answer = what()
        if answer:
            return answer
        assert time.monotonic() < until, told()
        time.sleep(0.01)


def info(wire: Wire, section: str) -> dict[str, str]:
    """A section of INFO."""
    lines = wire("INFO", section).decode().split("\r\n")
    return dict(line.split(":", 1) for line in lines if ":" in line)


class Cluster:
    """Nodes that have met and vote."""

    def __init__(self, src: Path, place: Path, count: int) -> None:
        words = ("--port", "0", "--appendonly", "yes")
        self.nodes: list[Traced] = []
        self.wires: list[Wire] = []
        try:
            self.start(src, place, count, words)
        except BaseException:
            self.end()
            raise

    def start(self, src: Path, place: Path, count: int, words: tuple[str, ...]) -> None:
        """Start the nodes, make them meet, and wait until each reaches all and all vote."""
        for i in range(count):
            at = place / f"node{i}"
            self.nodes.append(Traced(src, at, "server", "--dir", str(at), *words))
        self.ports = [node.found(READY) for node in self.nodes]
        buses = [node.found(BUS) for node in self.nodes]
        self.wires = [Wire(port) for port in self.ports]
        for port, bus in list(zip(self.ports, buses, strict=True))[1:]:
            reply = self.wires[0]("CLUSTER", "MEET", "127.0.0.1", port, bus)
            assert reply == b"OK", reply
        for node, wire in zip(self.nodes, self.wires, strict=True):
            reached = f"cluster_reachable_nodes:{count - 1}"
            wait_for(lambda w=wire, r=reached: r in w("CLUSTER", "INFO").decode(), node.log)
            if count > 1:
                voters = str(count)
                wait_for(lambda w=wire, v=voters: info(w, "tubes")["tubes_voters"] == v, node.log)
        time.sleep(SETTLE_S)

    def leader(self, tube: str) -> int:
        """The number of the node that leads a tube, once there is one."""

        def look() -> list[int]:
            found = []
            for i, wire in enumerate(self.wires):
                flat = wire("TUBE", "INFO", tube)
                if isinstance(flat, list) and flat[flat.index(b"state") + 1] == b"RUNNING":
                    found.append(i + 1)
            return found

        return int(wait_for(look, self.nodes[0].log)[0]) - 1

    def end(self) -> None:
        """Stop the nodes."""
        for wire in self.wires:
            wire.close()
        for node in self.nodes:
            node.end()


@contextlib.contextmanager
def cluster(src: Path, count: int) -> Iterator[tuple[Cluster, Path]]:
    """A cluster in a folder of its own, and that folder; both are gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="walks-") as scratch:
        made = Cluster(src, Path(scratch), count)
        try:
            yield made, Path(scratch)
        finally:
            made.end()


# ---- walks


def walk(name: str, title: str, process: Traced, act: Callable[[int], None]) -> Walk:
    """What runs in the process for `act`, in each repetition and hardly ever in idle time."""
    act(-1)  # modules that load at first use, states that come with the first job
    time.sleep(RESTS_S[0])
    began_s = time.monotonic()
    act(-2)
    took_s = time.monotonic() - began_s  # a window without work lasts as long as one with it
    rests = [process.window(lambda: time.sleep(took_s)) for _ in range(IDLE_WINDOWS)]
    seen = Counter(function for rest in rests for function in rest)
    ran: list[dict[Function, int]] = []
    for i in range(REPETITIONS):
        ran.append(process.window(lambda i=i: act(i)))
        time.sleep(RESTS_S[i % len(RESTS_S)])
    common = [one for one in ran[0] if all(one in other for other in ran)]
    on_walk = [one for one in common if seen[one] <= IDLE_MOST]
    steps: dict[str, Step] = {}
    for function in on_walk:
        file, qualified, _ = function
        step = steps.get(file, Step(file, 0, []))
        calls = step.calls + ran[0][function]
        steps[file] = Step(file, calls, [*step.functions, qualified])
    return Walk(name, title, list(steps.values()))


def walk_add(made: Cluster) -> Walk:
    """One job with three copies, at the node that is asked."""

    def act(i: int) -> None:
        reply = made.wires[0](*f"ADDJOB q{i} hello 1000 RETRY {30 + i} REPLICATE 3".split())
        assert isinstance(reply, bytes), reply

    return walk("add", "ADDJOB q hello 1000 RETRY 30 REPLICATE 3", made.nodes[0], act)


def walk_put(made: Cluster) -> Walk:
    """One task into a tube, at its leader."""
    reply = made.wires[0](*"TUBE CREATE t fifo SYNC majority".split())
    assert reply == b"OK", reply
    number = made.leader("t")

    def act(_: int) -> None:
        reply = made.wires[number]("TUBE", "PUT", "t", "hello")
        assert not isinstance(reply, ErrorReply), reply

    return walk("put", "TUBE PUT t hello (SYNC majority)", made.nodes[number], act)


def walk_task(src: Path) -> Walk:
    """One task in a worker: its program is a process beside a node."""
    with cluster(src, 1) as (made, scratch):
        (scratch / "walk_tasks.py").write_text(TASKS)
        url = f"tuque://127.0.0.1:{made.ports[0]}"
        place = scratch / "worker"
        words = ("walk_tasks:app", "--app-dir", str(scratch), "--url", url)
        worker = Traced(src, place, "worker", *words, generation=1)
        try:
            body = json.dumps({"task": "walk_tasks.hello", "args": ["x"], "v": 1})
            worker.found(SERVES)

            def act(_: int) -> None:
                id = made.wires[0]("ADDJOB", "walk", body, 1000)
                wait_for(lambda: made.wires[0]("SHOW", id.decode()) is None, worker.log)

            return walk("task", "one task in a worker", worker, act)
        finally:
            worker.end()


def walks(src: Path, only: str = "") -> list[Walk]:
    """The walks asked for, all by default."""
    found: list[Walk] = []
    if only != "task":
        with cluster(src, 3) as (made, _):
            if only != "put":
                found.append(walk_add(made))
            if only != "add":
                found.append(walk_put(made))
    if only in ("", "task"):
        found.append(walk_task(src))
    return found


# ---- figures of the sources


def figures(src: Path) -> dict[str, int]:
    """Modules (without `__init__`), lines, and packages below the package tuque."""
    files = sorted((src / "tuque").rglob("*.py"))
    return {
        "modules": sum(path.name != "__init__.py" for path in files),
        "lines": sum(len(path.read_text().splitlines()) for path in files),
        "packages": sum(path.name == "__init__.py" for path in files) - 1,
    }


# ---- the program


def print_walk(one: Walk) -> None:
    """The files in order, with the calls in each."""
    print(f"{one.title}: {len(one.steps)} files")
    for number, step in enumerate(one.steps, 1):
        print(f"{number:>4}  {step.file:<40}{step.calls:>5}  {step.functions[0]}")
    print()


def main() -> None:
    """Print what is asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--src", type=Path, default=SRC, help="the folder that has tuque/")
    parser.add_argument("--only", choices=("add", "put", "task"), default="")
    parser.add_argument("--figures", action="store_true", help="modules, lines and packages alone")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    if asked.figures:
        found = figures(asked.src)
        print(json.dumps(found) if asked.json else "\n".join(f"{k} {v}" for k, v in found.items()))
        return
    done = walks(asked.src, asked.only)
    if asked.json:
        rows = [{**one._asdict(), "steps": [s._asdict() for s in one.steps]} for one in done]
        print(json.dumps(rows, indent=1))
        return
    for one in done:
        print_walk(one)


if __name__ == "__main__":
    main()
