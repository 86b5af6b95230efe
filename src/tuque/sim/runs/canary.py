"""A promise broken on purpose, to see that the way from a checker to the report works."""

from __future__ import annotations

from tuque.sim.engine.plan import Op
from tuque.sim.runs.cluster import Cluster


def canary(cluster: Cluster) -> None:
    """Change a byte of a job in a node's memory, so that what is delivered is not what was sent."""
    cluster.plan.ops.append(Op(3_000, "add", {"client": "p0", "node": 0, "queue": "q", "size": 30}))
    cluster.world.after(11_500_000, lambda: spoil(cluster))


def spoil(cluster: Cluster) -> None:
    """Spoil what lies in memory; again later, if there is nothing yet."""
    for machine in cluster.machines:
        if machine.shell is None:
            continue
        for job in machine.shell.n.jobs.values():
            if len(job.body) > 5:
                job.body = job.body[:-1] + b"!"
    if cluster.phase != "rest":
        cluster.world.after(500_000, lambda: spoil(cluster))
