"""Three real nodes that vote, with a tube of type tasks: who leads it, and what their events say.

For tests that kill the leader (SPEC T23 to T27, T40 to T46).
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytest

from lab import RealCluster, RealServer, info, is_running
from ports import free_port
from raw_resp import Wire, wait_for

Row = dict[str, Any]


class Voting(RealCluster):
    """Three voters, each also with a port for IPROTO."""

    def __init__(self, directory: Path, timeout_ms: int, *flags: str | int) -> None:
        journal = ("--appendonly", "yes", "--cluster-node-timeout", timeout_ms)
        super().__init__(directory, 3, *journal, *flags)
        self.timeout_s = timeout_ms / 1000
        self.ids: list[str] = []
        self.iproto_ports = [free_port() for _ in self.nodes]
        for node, port in zip(self.nodes, self.iproto_ports, strict=True):
            (node.directory / "users").write_text("admin sesame all\n")
            (node.directory / "users").chmod(0o600)
            node.flags += ["--iproto-port", str(port), "--iproto-users-file", "users"]

    def start(self) -> Voting:
        """Start all; they vote, and have the tube `t`."""
        super().start()
        self.ids = [self.wire(i)("CLUSTER", "MYID").decode() for i in range(3)]
        for i in range(3):
            wire = self.wire(i)
            wait_for(lambda wire=wire: info(wire, "tubes")["tubes_voters"] == "3", self.logs)
        self.create("t")
        return self

    def create(self, name: str) -> None:
        """Make a tube of type tasks with a copy at a majority, and wait until all know it."""
        said = self.wire(0)("TUBE", "CREATE", name, "tasks")
        assert said == b"OK" or "done here, but not yet" in said, said  # a slow machine
        for i in range(3):
            wait_for(lambda i=i: self.told(i, name), self.logs)
        self.leader(name)

    @property
    def url(self) -> str:
        """All nodes, for a client."""
        return "tuque://" + ",".join(f"127.0.0.1:{node.port}" for node in self.nodes)

    def told(self, number: int, name: str = "t") -> dict[bytes, Any]:
        """TUBE INFO of a node; empty if it does not answer."""
        with contextlib.suppress(OSError, EOFError), Wire(self.nodes[number].port, "", 5) as wire:
            flat = wire("TUBE", "INFO", name)
            if isinstance(flat, list):
                return dict(zip(flat[::2], flat[1::2], strict=True))
        return {}

    def leading(self, name: str = "t") -> list[int]:
        """The nodes that say that they lead the tube."""
        alive = [i for i, node in enumerate(self.nodes) if is_running(node)]
        return [i for i in alive if self.told(i, name).get(b"state") == b"RUNNING"]

    def leader(self, name: str = "t") -> RealServer:
        """The node that leads the tube, after as long as it takes."""
        return self.nodes[wait_for(lambda: self.leading(name), self.logs)[0]]

    def kill_leader(self, name: str = "t") -> RealServer:
        """Kill it, as a crash does; the node that was killed."""
        leader = self.leader(name)
        leader.kill()
        return leader

    def logs(self) -> str:
        """What the nodes say, for a failure."""
        return "\n".join(node.log()[-2000:] for node in self.nodes)

    def check(self) -> None:
        """Every node's tables are sound."""
        for node in self.nodes:
            with Wire(node.port) as wire:
                assert wire("DEBUG", "CHECK") == b"OK"

    def events(self) -> list[Row]:
        """The rows of all nodes by time; ends the nodes, each of which must run."""
        pq = pytest.importorskip("pyarrow.parquet")
        self.end()
        paths = [path for node in self.nodes for path in sealed(node)]
        rows: list[Row] = [row for path in paths for row in pq.ParquetFile(path).read().to_pylist()]
        for row in rows:
            row["ts"] = round(row["ts"].timestamp() * 1000)
        return sorted(rows, key=lambda row: (row["ts"], row["node"], row["seq"]))


def sealed(node: RealServer) -> list[Path]:
    """The segments of a node that has ended, once its writer has ended as well."""
    place = node.directory / "events"
    wait_for(lambda: not list(place.rglob(".raw-*")) and not list(place.rglob(".hot-*")))
    return sorted(place.glob("date=*/events-*.parquet"))


# ---- what the rows say of takes

Span = tuple[int, int]  # ms
ENDS = {"acked", "nacked", "requeued", "expired", "dead", "deleted", "cancelled"}
ENDS |= {"run-released", "run-failed", "run-crashed", "run-timed-out", "run-done"}


def takes_of(rows: list[Row], faults: list[int]) -> dict[str, list[Span]]:
    """When each job was taken: from each `delivered` to the row that ends it.

    A node that is killed loses its rows of the last 20 ms (E3.2), and takes that no other node has
    heard of. So a take of which no end is told is over at the next one of `faults`.
    """
    found: dict[str, list[Span]] = {}
    since: dict[str, int] = {}

    def end(job: str, at_ms: int, is_told: bool) -> None:
        began = since.pop(job)
        if not is_told:
            at_ms = min([one for one in faults if one >= began], default=at_ms)
        found.setdefault(job, []).append((began, at_ms))

    for row in rows:
        job, kind = row["job_id"], row["event"]
        if job in since and (kind in ENDS or kind == "delivered"):
            end(job, row["ts"], kind in ENDS)
        if kind == "delivered":
            since[job] = row["ts"]
    last = rows[-1]["ts"]
    for job in list(since):
        end(job, last, False)
    return found


def most_at_once(spans: list[Span]) -> int:
    """The greatest number of them at one instant; one that ends when another begins is no two."""
    steps = sorted([(a, 1) for a, b in spans if b > a] + [(b, -1) for a, b in spans if b > a])
    now = most = 0
    for _, step in steps:
        now += step
        most = max(most, now)
    return most


def is_within(instants: list[int], burst: int, gap_ms: int) -> bool:
    """Whether no time t has more than burst + rate x t of them, told in whole ms (T42.1)."""
    at = sorted(instants)
    return all(
        (j - i + 1 - burst) * gap_ms <= at[j] - at[i] + 1
        for i in range(len(at))
        for j in range(i, len(at))
    )
