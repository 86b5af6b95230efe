"""A simulator seed stopped half-way, for one judge to inspect."""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

from sim.engine.plan import Plan
from sim.runs.cluster import Cluster

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
    finding, or what the situation returns. The cluster is made once: each situation has a process
    forked from this one, in which it may change it.
    """

    def __init__(self, begin: Callable[[], Cluster]) -> None:
        self.begin = cache(begin)
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

        def verdict() -> bytes:
            said = situation(cluster, *row[:-1])
            return repr(rules(cluster) if said is None else said).encode()

        assert in_a_fork(verdict) == repr(row[-1]), situation.__doc__


def in_a_fork(ask: Callable[[], bytes]) -> str:
    """The answer of a process forked for this question, or the traceback of its error."""
    read_fd, write_fd = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            answer = ask()
        except BaseException:
            answer = traceback.format_exc().encode()
        with open(write_fd, "wb", closefd=False) as answers:
            answers.write(answer)
        os._exit(0)
    os.close(write_fd)
    with open(read_fd, "rb") as answers:
        answer = answers.read()
    os.waitpid(pid, 0)
    return answer.decode()
