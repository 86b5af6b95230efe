"""Leases and writes that happen once: the clients of the simulator do them, its judges can fail."""

from __future__ import annotations

import pytest

from sim.engine.disk import WINDOW_US
from sim.flaws.leases import ONCE_FLAWS, RULES, keyed_adds, lessees, writers
from sim.plans.swarm import draw
from sim.runs.cluster import Cluster
from sim.runs.seeds import run_plan, run_seed

FIRST = {"l6": 2, "l8": 5}  # the seed that finds it, if seed 1 does not


@pytest.mark.sources
@pytest.mark.parametrize("name", [flaw.name for flaw in ONCE_FLAWS])
def test_a_broken_promise_is_found_by_its_judge(name: str) -> None:
    flaw = next(flaw for flaw in ONCE_FLAWS if flaw.name == name)
    rule, seeds, known = RULES[name], range(1, flaw.budget + 1), FIRST.get(name, 1)
    rules = (run_seed(seed, name, until=rule).rules() for seed in sorted(seeds, key=known.__ne__))
    assert any(rule in found for found in rules)


@pytest.mark.parametrize(
    "seed", [1, *(pytest.param(one, marks=pytest.mark.slow) for one in (2, 3))]
)
def test_without_a_flaw_lessees_find_nothing_and_do_much(seed: int) -> None:
    outcome = run_plan(lessees(seed))
    assert outcome.findings == []
    for what in ("batches", "second readings", "COMMITs said again", "jobs committed"):
        assert outcome.counts.get(what, 0) > 0, what


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_without_a_flaw_writers_write_once(seed: int) -> None:
    outcome = run_plan(writers(seed))
    assert outcome.findings == []
    for what in ("STAGE ok", "PUBLISH ok", "ADDJOBs with a key said again"):
        assert outcome.counts.get(what, 0) > 0, what
    assert outcome.counts["publications checked"] > 3


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_keyed_adds_are_there_once_though_their_node_is_killed(seed: int) -> None:
    outcome = run_plan(keyed_adds(seed))
    assert outcome.findings == []
    assert outcome.counts.get("ADDJOBs with a key said again", 0) > 10


def test_the_swarm_draws_each_kind_of_client_and_none() -> None:
    kinds = [{op.kind for op in draw(seed).ops} for seed in range(60)]
    wanted = {"lessee", "publisher", "repeater"}
    assert set.union(*kinds) >= wanted
    assert any(not wanted & one for one in kinds)


def test_drawing_without_them_leaves_the_rest_as_it_is() -> None:
    for seed in range(30):
        whole, plain = draw(seed), draw(seed, False)
        rest = [op for op in whole.ops if op in plain.ops]
        assert rest == plain.ops


def test_only_what_was_not_synced_may_be_added_again() -> None:
    """Z6.5 Under `everysec` a crash of the machine may lose the keys and versions of the last
    second together with their jobs (promise 1).
    """
    cluster = Cluster(draw(1))
    m = cluster.machines[0]
    cluster.world.now_us = 10_000_000
    m.known = {b"known": True}
    excused = {}
    for name, id, done_us in (
        ("fresh", b"new", 9_900_000),
        ("unanswered", b"new", 0),
        ("old", b"new", 8_000_000),
        ("on disk", b"known", 9_900_000),
    ):
        row = cluster.history.new_add(b"q", 20, m.name)
        row.is_once, row.id, row.done_us = True, id, done_us
        excused[name] = row
    cluster.leasing.lose_unsynced(m, -1)
    assert [name for name, row in excused.items() if row.once_excuse] == ["unanswered"]
    cluster.leasing.lose_unsynced(m, WINDOW_US)
    assert [name for name, row in excused.items() if row.once_excuse] == ["fresh", "unanswered"]
