"""Rare states: each has a place that notes it, and the score-card names those never met."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import pytest

import sim
from sim.engine.plan import Op, Plan
from sim.flaws.homes import order, stood_still, three_homes
from sim.judges.rare import OF_MESSAGES, ON_THE_SPOT, RARE, look_at_message, tubes_of
from sim.runs.cluster import Cluster
from sim.runs.score import Score, nth
from sim.runs.seeds import Outcome, run_plan, run_seed
from stopped_seed import stopped
from tuque.core.msgs.bus import (
    GotJob,
    Pause,
    Queued,
    SetAck,
)
from tuque.core.node.node import Pausing

SOURCES = Path(sim.__file__).parent


def outcome(faults: list[str], settling_us: int, **counts: int) -> Outcome:
    """What a seed might have brought."""
    most = {"settling": settling_us}
    return Outcome("1", [], counts, most, {"tombstones": 3}, 10, 1_000_000, 0.1, "", faults, 3)


def test_every_state_has_one_name_and_one_place() -> None:
    assert len(set(RARE)) == len(RARE)
    text = "".join(path.read_text() for path in sorted(SOURCES.rglob("*.py")))
    noted = set(re.findall(r'world\.sometimes\("([^"]+)"\)', text))
    assert noted == set(ON_THE_SPOT)
    said = {
        node.value
        for each in ast.parse((SOURCES / "judges" / "rare.py").read_text()).body
        if isinstance(each, ast.FunctionDef) and each.name.startswith("on_")
        for node in ast.walk(ast.Module(each.body[1:], []))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value
    }
    assert said == set(OF_MESSAGES)


def test_the_card_names_what_no_seed_met() -> None:
    score = Score()
    score.take(outcome([], 0))
    assert f"rare states that were met: 1 of {len(RARE)}" in score.table(1.0)
    assert "never met:\n  a PAUSE comes" in score.table(1.0)
    assert "tombstones" not in score.never_met()
    assert len(score.never_met()) == len(RARE) - 1


def test_the_card_says_how_often_jobs_came_again_and_when_nodes_settled() -> None:
    score = Score()
    score.take(outcome([], 0, deliveries=10, redeliveries=1))
    for settling_us in (250_000, 1_500_000):
        score.take(outcome(["cut"], settling_us, deliveries=20, redeliveries=5))
    table = score.table(1.0)
    assert "1 of 10 without faults" in table
    assert "10 of 40 with faults" in table
    assert "0.25 s (p50), 1.50 s (p99)" in table


def test_a_card_with_findings_does_not_say_that_there_are_few() -> None:
    score = Score()
    score.take(outcome([], 0))
    assert "below" in score.failure_rate()
    bad = outcome([], 0)
    bad.findings = ["lost at 1.000 s: b'<1>'"]
    score.take(bad)
    assert score.failure_rate().endswith(" 50.00 % of seeds")


@pytest.mark.parametrize(("percent", "figure"), [(0, 1), (50, 6), (99, 10), (100, 10)])
def test_the_nth_figure(percent: int, figure: int) -> None:
    assert nth(list(range(10, 0, -1)), percent) == figure
    assert nth([], percent) == 0


def test_messages_that_meet_something_are_noted() -> None:
    cluster = Cluster(Plan("rare", 2))
    for machine in cluster.machines:
        machine.start()
    shell = cluster.machines[0].shell
    assert shell is not None
    n = shell.n
    n.pauses[b"q"] = Pausing(3, 20, False)
    n.failed[b"x"] = (1, 2)
    for message in (
        Pause(b"q", 0, 30), Pause(b"q", 0, 40), Queued(b"x", 0), GotJob([b"y"]),
        Pause(b"q", 0, 10), SetAck(b"x", 1, 5), GotJob([b"x"]),
    ):  # fmt: skip
        look_at_message(shell, message)
    assert cluster.world.seen == {
        "a PAUSE comes that is older than the one here": 1,
        "an ack comes before its job, or after it is forgotten": 1,
        "a copy is confirmed after its producer gave up": 1,
    }


def given_to_an_old_disk(seed: int) -> Plan:
    """The next leader of a tube comes back from a backup before it hears that it is the leader."""
    plan = three_homes(seed, 2)
    plan.seed, plan.faults = f"lost on its way {seed}", ["slow", "kill", "old_disk"]
    plan.ops += [
        Op(400, "slow", {"a": 0, "b": 1, "extra_ms": 1_500, "for_ms": 12_000}),
        Op(1_000, "tube_mover", {
            "client": "v", "tube": "t0", "node": 0, "for_ms": 6_000, "idle_ms": 1,
        }),
        Op(1_500, "backup", {"node": 1}),
        Op(5_600, "crash", {"node": 1, "how": "kill", "back": "old", "fuse": 0, "down_ms": 300}),
    ]  # fmt: skip
    return order(plan)


@pytest.mark.parametrize(
    ("plan", "state"),
    [
        (stood_still(1), "a home stood still"),
        (given_to_an_old_disk(1), "a tube is given to a node whose copy lacks something"),
    ],
)
def test_what_random_seeds_hardly_meet_is_met_by_a_plan(plan: Plan, state: str) -> None:
    outcome = run_plan(plan)
    assert outcome.findings == []
    assert outcome.seen[state] > 0


def named_alike(seed: int) -> Plan:
    """A tube is made while a node that has a plain queue of that name cannot be reached."""
    plan = Plan(seed=f"alike {seed}", nodes=2, chaos_ms=12_000, policy="always")
    plan.faults = ["cut", "break"]
    shared: dict[str, Any] = {"tube": "t0", "node": 1, "for_ms": 9_000}
    plan.ops = [
        Op(0, "tube", {"tube": "t0", "type": "fifo", "node": 1}),
        Op(100, "cut", {"a": [0], "b": [1], "for_ms": 7_000}),
        Op(101, "break", {"node": 0}),
        Op(4_000, "tube_producer", {"client": "p", "idle_ms": 200, **shared}),
    ]
    for i in range(3):
        plan.ops.append(Op(4_000 + i, "add", {
            "client": "a", "node": 0, "queue": "t0", "retry": 30, "ttl": 120, "repl": 1,
        }))  # fmt: skip
    return order(plan)


def test_plain_jobs_meet_a_tube_of_that_name_and_go_to_its_leader() -> None:
    """T1.9: no client gets them on a node that follows the tube."""
    cluster = stopped(named_alike(1), 31)  # before consumers take tasks for jobs of the queue
    seen = cluster.world.seen
    assert seen["plain jobs in a tube"] > 0
    plain = [tubes_of(m.shell)[0].plain for m in cluster.machines if m.shell is not None]
    assert plain == [0, 3]


def test_a_seed_meets_many() -> None:
    seen = run_seed(7_000_000).seen
    assert set(seen) <= set(RARE)
    assert {"consumers wait", "tombstones"} <= set(seen)
