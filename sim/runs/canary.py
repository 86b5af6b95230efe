"""Breaks a promise on purpose, to test the path from a checker to the report."""

from __future__ import annotations

from sim.engine.plan import Op
from sim.runs.cluster import Cluster


def canary(cluster: Cluster) -> None:
    """Change a byte of a job in a node's memory, so that the delivered body differs."""
    cluster.plan.ops.append(Op(3_000, "add", {"client": "p0", "node": 0, "queue": "q", "size": 30}))
    cluster.world.after(11_500_000, lambda: spoil(cluster))


def spoil(cluster: Cluster) -> None:
    """Damage a job in memory; retry later if there is none yet."""
    for machine in cluster.machines:
        if machine.shell is None:
            continue
        for job in machine.shell.n.jobs.values():
            if len(job.body) > 5:
                job.body = job.body[:-1] + b"!"
    if cluster.phase != "rest":
        cluster.world.after(500_000, lambda: spoil(cluster))
