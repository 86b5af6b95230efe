"""A seed of the simulator that is stopped on its way, to be looked at by one judge."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tuque.sim.cluster import Cluster
from tuque.sim.plan import Plan


class Stopped(Exception):
    """The seed has come so far."""


def stopped(
    plan: Plan,
    at_s: float,
    look: Callable[[Cluster], None] | None = None,
    begin: Callable[[Cluster], None] | None = None,
) -> Cluster:
    """A cluster as it is at that instant, after `look`; `begin` comes before all."""
    cluster = Cluster(plan)
    if begin is not None:
        begin(cluster)

    def stop() -> None:
        if look is not None:
            look(cluster)
        raise Stopped

    cluster.world.at(int(at_s * 1e6), stop)
    with pytest.raises(Stopped):
        cluster.run()
    assert cluster.history.findings == []
    return cluster


def rules(cluster: Cluster) -> list[str]:
    """The rules of what was found so far."""
    return [one.rule for one in cluster.history.findings]
