"""What the events of real nodes say of takes: when each job was out, and how many at once.

For tests that kill the leader (SPEC T40 to T46).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lab import RealCluster, RealServer
from until import until

Row = dict[str, Any]
Span = tuple[int, int]  # ms


def events_of(cluster: RealCluster) -> list[Row]:
    """The rows of all nodes by time; ends the nodes, each of which must run."""
    pq = pytest.importorskip("pyarrow.parquet")
    cluster.end()
    paths = [path for node in cluster.nodes for path in sealed(node)]
    rows: list[Row] = [row for path in paths for row in pq.ParquetFile(path).read().to_pylist()]
    for row in rows:
        row["ts"] = round(row["ts"].timestamp() * 1000)
    return sorted(rows, key=lambda row: (row["ts"], row["node"], row["seq"]))


def sealed(node: RealServer) -> list[Path]:
    """The segments of a node that has ended, once its writer has ended as well."""
    place = node.directory / "events"
    until(lambda: not list(place.rglob(".raw-*")) and not list(place.rglob(".hot-*")))
    return sorted(place.glob("date=*/events-*.parquet"))


# ---- what the rows say of takes

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
