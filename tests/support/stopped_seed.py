"""A simulator seed stopped half-way, for one judge to inspect."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tuque.sim.engine.plan import Plan
from tuque.sim.runs.cluster import Cluster

Situation = Callable[..., Any]


class Stopped(Exception):
    """The seed has reached the instant."""


def stopped(
    plan: Plan,
    at_s: float,
    look: Callable[[Cluster], None] | None = None,
    begin: Callable[[Cluster], None] | None = None,
) -> Cluster:
    """A cluster as of that instant, after `look`; `begin` runs before everything."""
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
    """The rules of the findings so far."""
    return [one.rule for one in cluster.history.findings]


class Table:
    """Situations, row by row, with a judge's verdict on each; one test runs them all.

    A situation gets a fresh cluster and its row without the last column, which is the expected
    finding, or what the situation returns.
    """

    def __init__(self, begin: Callable[[], Cluster]) -> None:
        self.begin = begin
        self.rows: list[Any] = []

    def __call__(self, *rows: tuple[object, ...]) -> Callable[[Situation], Situation]:
        def add(situation: Situation) -> Situation:
            for row in rows:
                words = [getattr(one, "__name__", str(one)) for one in row]
                name = "-".join([situation.__name__, *words])
                self.rows.append(pytest.param(situation, row, id=name))
            return situation

        return add

    def judge(self, situation: Situation, row: tuple[object, ...]) -> None:
        """Fail if the judge's verdict differs from the row."""
        cluster = self.begin()
        said = situation(cluster, *row[:-1])
        assert (rules(cluster) if said is None else said) == row[-1], situation.__doc__
