"""Three nodes on this machine: the cost of copies, and of idle nodes.

Nodes and load share the cores; a ratio compares REPLICATE 3 with REPLICATE 1 on the same three
nodes, in turn.
"""

from __future__ import annotations

import statistics
import time
from typing import TYPE_CHECKING

import load
import servers

if TYPE_CHECKING:
    from run import Run

NODES = 3
BODY = "x" * 100
IDLE_JOBS = 10_000
IDLE_SECONDS = 20
ADD = ("ADDJOB", "q", BODY, "1000", "REPLICATE")


class Cluster:
    """Nodes that form a cluster; use it in a `with`."""

    def __init__(self, *options: str, nodes: int = NODES) -> None:
        self.nodes = [servers.tuque(*options) for _ in range(nodes)]
        self.port = self.nodes[0].port
        line = load.Line(self.port)
        for node in self.nodes[1:]:
            bus_port = self.figure(node.port, "bus_port", "INFO")
            line.call("CLUSTER", "MEET", "127.0.0.1", node.port, bus_port)
        until = time.monotonic() + 20
        while any(self.reach(node.port) < nodes - 1 for node in self.nodes):
            if time.monotonic() > until:
                raise SystemExit("the nodes do not find each other")
            time.sleep(0.05)
        line.close()

    def reach(self, port: int) -> int:
        """The number of other nodes that a node reaches."""
        return self.figure(port, "cluster_reachable_nodes", "CLUSTER", "INFO")

    def figure(self, port: int, name: str, *command: str) -> int:
        """One figure from INFO or CLUSTER INFO."""
        line = load.Line(port)
        text = line.call(*command)
        line.close()
        assert isinstance(text, bytes)
        for row in text.split(b"\r\n"):
            if row.startswith(name.encode() + b":"):
                return int(row.partition(b":")[2])
        raise SystemExit(f"{command} has no {name}")

    def bus(self) -> tuple[int, int]:
        """Messages and bytes that all nodes have sent to each other."""
        sent = [
            (
                self.figure(node.port, "cluster_stats_messages_sent", "CLUSTER", "INFO"),
                self.figure(node.port, "cluster_stats_bytes_sent", "CLUSTER", "INFO"),
            )
            for node in self.nodes
        ]
        return sum(m for m, _ in sent), sum(b for _, b in sent)

    def flush(self) -> None:
        """Drop all jobs."""
        for node in self.nodes:
            line = load.Line(node.port)
            line.call("DEBUG", "FLUSHALL")
            line.close()

    def cpu_s(self) -> list[float]:
        """CPU seconds of each node so far."""
        return [node.cpu_s() for node in self.nodes]

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *exc: object) -> None:
        for node in self.nodes:
            node.close()


def bench_cluster(run: Run) -> None:
    """Copies on three nodes: single adds, pipelined adds, the whole cycle, latency, bytes."""
    redis = servers.redis()
    with Cluster() as ours:

        def adds(conns: int, depth: int, count: int, copies: int) -> float:
            rate = load.redis_benchmark(ours.port, conns, depth, count, *ADD, str(copies))
            ours.flush()
            return rate

        found = run.rounds_of(
            {"three": lambda: adds(64, 1, 60_000, 3), "one": lambda: adds(64, 1, 100_000, 1)}
        )
        detail = f"{middle(found['three'])} : {middle(found['one'])}"
        ratio = run.ratio(found["three"], found["one"])
        run.note("ADDJOB 64 x 1, REPLICATE 3 / 1", ratio, "x", 0.62, True, detail)
        if redis is not None:
            found = run.rounds_of(
                {
                    "add": lambda: adds(64, 16, 400_000, 3),
                    "ping": lambda: load.redis_benchmark(redis.port, 50, 1, 150_000, "PING"),
                }
            )
            ratio = run.ratio(found["add"], found["ping"])
            detail = f"{middle(found['add'])} : {middle(found['ping'])}"
            run.note("REPLICATE 3 64 x 16 / Redis PING", ratio, "x", 100 / 140, True, detail)
            redis.close()
        cycle(run, ours)
        latency(run, ours)


def cycle(run: Run, ours: Cluster) -> None:
    """Add with three copies, get and ack; and the traffic between the nodes."""
    before = ours.bus()
    rates = []
    jobs = 0.0
    for _ in range(run.rounds):
        rate = load.cycle(run.program, "disque", ours.port, 16, 16, run.seconds, "REPLICATE 3")
        rates.append(rate)
        jobs += rate * run.seconds
        ours.flush()
    after = ours.bus()
    detail = f"{middle(rates)}, 16 x 16, with ACKJOB"
    run.note("cycle on three nodes, REPLICATE 3", statistics.median(rates), "/s", 0, True, detail)
    run.note("bus messages a job", (after[0] - before[0]) / jobs, "", 0, True, "all three nodes")
    run.note("bus bytes a job", (after[1] - before[1]) / jobs, "B", 0, True, "body 100 bytes")


def latency(run: Run, ours: Cluster) -> None:
    """The latency that waiting for two other nodes adds to an ADDJOB on one connection."""
    added = []
    for _ in range(run.rounds):
        three, one = one_by_one(ours.port, 3), one_by_one(ours.port, 1)
        added.append((three - one) * 1000)
        ours.flush()
    detail = "median of single ADDJOBs, REPLICATE 3 less REPLICATE 1"
    run.note("latency of copies", statistics.median(added), "ms", 0.1, False, detail)


def one_by_one(port: int, copies: int) -> float:
    """Median seconds of an ADDJOB when each waits for the previous one."""
    line = load.Line(port)
    spent = []
    for _ in range(3000):
        start = time.perf_counter()
        line.call(*ADD, copies)
        spent.append(time.perf_counter() - start)
    line.close()
    return statistics.median(spent)


def bench_idle(run: Run) -> None:
    """Three nodes with 10,000 idle jobs in three copies, without clients."""
    with Cluster() as ours:
        load.redis_benchmark(ours.port, 10, 16, IDLE_JOBS, *ADD, "3")
        time.sleep(2)
        before, sent = ours.cpu_s(), ours.bus()
        time.sleep(IDLE_SECONDS)
        after, said = ours.cpu_s(), ours.bus()
    worst = max(b - a for a, b in zip(before, after, strict=True)) / IDLE_SECONDS * 100
    detail = f"worst of three, {(said[0] - sent[0]) / IDLE_SECONDS:.0f} messages/s in all"
    run.note(f"idle cluster, {IDLE_JOBS} jobs", worst, "%", 2, False, detail)


def middle(values: list[float]) -> str:
    """Median in thousands."""
    return f"{statistics.median(values) / 1000:.1f}k/s"
