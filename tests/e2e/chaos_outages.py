"""All nodes of a cluster are killed at once, again and again, while a backlog is worked off.

Each job has copies on several nodes and each node has a journal, so that nothing is lost. What
is counted is how many jobs come twice. Workers ack all that they get, at another node if
theirs is gone.
"""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections import Counter
from pathlib import Path

from lab import RealCluster
from raw_resp import Wire
from until import until

QUEUE = "backlog"
AT_A_TIME = 3  # jobs that a worker takes
TWICE_MAX = 20  # jobs of some 5,000


class Outages:
    """One run: nodes with journals, a backlog, workers, and kills of all nodes at once."""

    def __init__(
        self, directory: Path, count: int, *flags: str, retry_s: int = 10, work_s: float = 0.1
    ) -> None:
        journal = ("--appendonly", "yes", "--appendfsync", "everysec")
        self.cluster = RealCluster(directory, count, *journal, *flags)
        self.count = count
        self.copies = min(3, count)
        self.retry_s = retry_s
        self.work_s = work_s
        self.lock = threading.Lock()
        self.is_over = False
        self.is_working = False
        self.added: set[bytes] = set()
        self.acked: set[bytes] = set()
        self.given: dict[bytes, list[float]] = {}  # when each job was handed out
        self.outages = 0
        self.restart_s: list[float] = []  # from the kill until all nodes serve

    # ---- clients

    def options(self) -> tuple[str | int, ...]:
        """Of each ADDJOB."""
        return ("REPLICATE", self.copies, "RETRY", self.retry_s, "TTL", 3600)

    def fill(self, jobs: int) -> None:
        """Add the backlog, at all nodes alike."""
        wires = [self.cluster.wire(number) for number in range(self.count)]
        for number in range(jobs):
            wire = wires[number % self.count]
            self.added.add(wire("ADDJOB", QUEUE, b"job %d" % number, 10_000, *self.options()))
        for wire in wires:
            wire.close()

    def drain(self, jobs: int) -> None:
        """Take and ack what lies in the queues until so many jobs were handed out in all."""
        until(lambda: self.take_all() >= jobs, lambda: f"{len(self.given)} handed out", most_s=30)

    def take_all(self) -> int:
        """Take and ack what lies in the queues now; the jobs that were handed out so far."""
        for node in self.cluster.nodes:
            wire = node.wire()
            while isinstance(jobs := wire("GETJOB", "NOHANG", "COUNT", 1_000, "FROM", QUEUE), list):
                for _, id, _ in jobs:
                    self.given.setdefault(id, []).append(time.monotonic())
                assert wire("ACKJOB", *[id for _, id, _ in jobs]) == len(jobs)
            wire.close()
        return len(self.given)

    def connect(self, number: int) -> Wire | None:
        """A connection to a node; None when there is none."""
        try:
            return Wire(self.cluster.nodes[number].port, timeout_s=3)
        except OSError:
            return None

    def produce(self, every_s: float) -> None:
        """One job every now and then, at any node; one that failed may be there, and counts not."""
        chance = random.Random(1)
        while not self.is_over:
            time.sleep(every_s)
            wire = self.connect(chance.randrange(self.count))
            if wire is None:
                continue
            with contextlib.suppress(OSError, EOFError):
                reply = wire("ADDJOB", QUEUE, b"more", 1_000, *self.options())
                if isinstance(reply, bytes):
                    with self.lock:
                        self.added.add(reply)
            wire.close()

    def consume(self, number: int) -> None:
        """Take jobs of one node and ack them, of any node when this one is gone."""
        chance = random.Random(number)
        owed: list[bytes] = []
        while not self.is_over:
            wire = self.connect(number if not owed else chance.randrange(self.count))
            if wire is None:
                time.sleep(0.02)
                continue
            with contextlib.suppress(OSError, EOFError):
                if owed:
                    self.ack(wire, owed)
                    wire.close()
                    continue
                while not self.is_over:
                    self.take(wire, owed)
            wire.close()

    def take(self, wire: Wire, owed: list[bytes]) -> None:
        """Take some jobs, work, ack them; `owed` are those whose ack is not answered."""
        if not self.is_working:
            time.sleep(0.02)
            return
        jobs = wire("GETJOB", "TIMEOUT", 200, "COUNT", AT_A_TIME, "FROM", QUEUE)
        if not isinstance(jobs, list):
            return
        with self.lock:
            for _, id, _ in jobs:
                self.given.setdefault(id, []).append(time.monotonic())
        owed += [id for _, id, _ in jobs]
        time.sleep(self.work_s * len(jobs))
        self.ack(wire, owed)

    def ack(self, wire: Wire, owed: list[bytes]) -> None:
        """ACKJOB of all that is owed."""
        reply = wire("ACKJOB", *owed)
        if isinstance(reply, int):
            with self.lock:
                self.acked.update(owed)
            owed.clear()

    # ---- trouble

    def outage(self, down_s: float = 0.0) -> None:
        """kill -9 of all nodes, and a start of all of them `down_s` later."""
        began = time.monotonic()
        for node in self.cluster.nodes:
            node.kill()
        time.sleep(down_s)
        for node in self.cluster.nodes:
            node.launch()
        for node in self.cluster.nodes:
            until(node.is_ready, node.log, most_s=60)
        self.outages += 1
        self.restart_s.append(time.monotonic() - began - down_s)

    def run(self, jobs: int, span_s: float, every_s: float) -> None:
        """A backlog of so many jobs, an outage every so often, until all is acked."""
        self.cluster.start()
        self.fill(jobs)
        work = [(self.consume, number) for number in range(self.count)]
        threads = [threading.Thread(target=f, args=(a,), daemon=True) for f, a in work]
        threads.append(threading.Thread(target=self.produce, args=(0.06,), daemon=True))
        for thread in threads:
            thread.start()
        self.is_working = True
        end_s = time.monotonic() + span_s
        while time.monotonic() < end_s:
            time.sleep(every_s)
            self.outage()
        self.work_s = 0.0
        until(lambda: not self.open(), lambda: f"{len(self.open())} jobs stay open", most_s=120)
        self.is_over = True
        for thread in threads:
            thread.join(10)

    def open(self) -> set[bytes]:
        """Jobs that were added and not acked."""
        with self.lock:
            return self.added - self.acked

    def end(self) -> None:
        """Stop all nodes."""
        self.is_over = True
        self.cluster.end()

    # ---- what came of it

    def twice(self) -> list[bytes]:
        """The jobs that were handed out more than once."""
        return [id for id, times in self.given.items() if len(times) > 1]

    def score(self) -> str:
        """What was counted."""
        gaps: Counter[str] = Counter()
        for id in self.twice():
            times = self.given[id]
            early = times[1] - times[0] < self.retry_s
            gaps["before its RETRY" if early else "later"] += 1
        return "\n".join([
            f"outages          {self.outages}, nodes serve again after "
            f"{', '.join(f'{s:.1f}' for s in self.restart_s)} s",
            f"jobs             {len(self.added)} added, {len(self.given)} handed out",
            f"handed out twice {len(self.twice())} jobs {dict(gaps)}",
            f"deliveries       {sum(len(times) for times in self.given.values())}",
        ])  # fmt: skip


def run_outages(directory: Path, nodes: int, minutes: float, jobs: int = 4_000) -> bool:
    """Outages every 10 s for so long; prints the score. Whether few enough jobs came twice."""
    outages = Outages(directory, nodes)
    try:
        outages.run(jobs, minutes * 60, 10)
    finally:
        outages.end()
    print(outages.score())
    return len(outages.twice()) < TWICE_MAX
