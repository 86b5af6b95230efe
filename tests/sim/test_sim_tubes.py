"""Tubes in the simulator: their clients do much, each of their judges can fail."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from sim.engine.plan import Op, Plan
from sim.flaws.homes import (
    HOME_FLAWS,
    HOME_RULES,
    behind_in_sync,
    cut_off,
    movers,
    order,
    paused,
    power_and_moves,
    three_homes,
    two_and_power,
)
from sim.flaws.tubes import TUBE_FLAWS, TUBE_RULES, keyed, one_tube, powerless, small
from sim.flaws.voters import VOTER_FLAWS, VOTER_RULES
from sim.plans.swarm import draw
from sim.plans.tube_swarm import TYPES
from sim.runs.cluster import Cluster
from sim.runs.score import CHECKED, TEXTS, Score
from sim.runs.seeds import run_plan, run_seed
from sim.tube_judges.disk import judge_tokens
from sim.tube_judges.facts import Facts, Line
from sim.tube_judges.homes import end_force, is_unknown
from stopped_seed import rules, stopped

FLAWS = TUBE_FLAWS + HOME_FLAWS + VOTER_FLAWS
RULES = TUBE_RULES | HOME_RULES | VOTER_RULES
# The seed that finds it, if seed 1 does not.
FIRST = {"t9": 8, "t13": 13, "t15": 4, "t16": 2, "t41": 17, "t42": 6, "t45": 2, "t47": 5}
# Their judges find a quicker flaw, too: t42 of tube-twice, t16 of tube-sync, t14 of tube-home.
LONG = ("t12", "t17", "t40", "t41", "t43", "t44", "t45", "t46")


@pytest.mark.sources
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(flaw.name, marks=pytest.mark.slow if flaw.name in LONG else ())
        for flaw in FLAWS
    ],
)
def test_a_broken_promise_is_found_by_its_judge(name: str) -> None:
    flaw = next(flaw for flaw in FLAWS if flaw.name == name)
    rule, seeds = RULES[name], range(1, flaw.budget + 1)
    known = FIRST.get(name, 1)
    rules = (run_seed(seed, name, until=rule).rules() for seed in sorted(seeds, key=known.__ne__))
    assert any(rule in found for found in rules)


@pytest.mark.parametrize("plan", [one_tube, keyed, small, powerless])
@pytest.mark.parametrize("seed", [1, 3])
def test_without_a_flaw_nothing_is_found_and_much_is_looked_at(
    plan: Callable[[int], Plan], seed: int
) -> None:
    outcome = run_plan(plan(seed))
    assert outcome.findings == []
    for rule in TUBE_RULES.values():
        if rule != "tube-disk" or plan is powerless:
            assert outcome.counts.get(CHECKED[rule], 0) > 0, rule


@pytest.mark.slow
@pytest.mark.parametrize(
    ("plan", "moves", "what"),
    [
        (movers, 10, "tasks that moved"),
        (paused, 5, "changes of paused tubes"),
        (cut_off, 1, "failovers by force"),
        (two_and_power, 1, "looks for second homes"),
        (power_and_moves, 1, "ends of homes"),
        (behind_in_sync, 1, "synced ops looked for"),
    ],
)
def test_homes_move_and_nothing_is_found(
    plan: Callable[[int], Plan], moves: int, what: str
) -> None:
    """T20.4: "Two nodes are never RUNNING for one tube." """
    outcome = run_plan(plan(2))
    assert outcome.findings == []
    assert outcome.counts["switchovers"] >= moves
    assert outcome.counts[what] > 0
    score = Score()
    score.take(outcome)
    assert f"switchovers          {outcome.counts['switchovers']} (" in score.table(1)
    assert "doubled takes 0 of " in score.table(1)


def stood_still(seed: int) -> Plan:
    """A home reaches nobody for a while and goes on; its disk is never synced, its power fails."""
    plan = three_homes(seed)
    plan.seed, plan.policy, plan.faults = f"stood still {seed}", "no", ["cut", "power"]
    plan.ops.append(Op(4_000, "cut", {"a": [0], "b": [1, 2], "for_ms": 4_000}))
    power = {"node": 0, "how": "power", "back": "disk", "fuse": 0, "down_ms": 50}
    plan.ops.append(Op(10_000, "crash", power))
    return order(plan)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [2, 6])
def test_a_disk_may_end_before_the_home_went_on(seed: int) -> None:
    """T14.4: "A journal cut off anywhere gives the tubes as they were after some call"."""
    outcome = run_plan(stood_still(seed))
    assert outcome.findings == []
    assert outcome.counts.get("tubes on disks", 0) == 1


@pytest.mark.slow  # the same flaw is found above
@pytest.mark.sources
def test_a_hole_before_the_home_went_on_is_found() -> None:
    flaw = next(flaw for flaw in TUBE_FLAWS if flaw.name == "t8")
    with flaw.on():
        findings = run_plan(stood_still(6), until="tube-disk").findings
    assert any("with a hole" in text for text in findings)


@pytest.mark.parametrize("policy", ["no", pytest.param("everysec", marks=pytest.mark.slow)])
def test_power_that_fails_while_a_home_loads_takes_what_was_not_synced(policy: str) -> None:
    """T14.4: "A journal cut off anywhere gives the tubes as they were after some call"."""
    findings: list[str] = []
    for seed in range(1, 5):
        plan = one_tube(seed)
        plan.seed, plan.policy, plan.faults = f"twice {seed}", policy, ["kill", "power"]
        plan.load_us = 300_000
        for at_ms, how, down_ms in ((6_000, "kill", 50), (6_200, "power", 200)):
            crash = {"node": 0, "how": how, "back": "disk", "fuse": 0, "down_ms": down_ms}
            plan.ops.append(Op(at_ms, "crash", crash))
        findings += run_plan(order(plan)).findings
    assert findings == []


def test_a_tube_that_all_forgot_comes_back_from_an_old_disk() -> None:
    """Nobody knew it any more: what the old disk has of it is what the node begins with."""
    plan = one_tube(1)
    plan.seed, plan.policy, plan.is_faultless = "from an old disk", "always", False
    plan.faults = ["kill", "old_disk"]
    plan.ops.append(Op(3_000, "backup", {"node": 0}))
    for at_ms, back in ((4_000, "empty"), (6_000, "old")):
        kill = {"node": 0, "how": "kill", "back": back, "fuse": 0, "down_ms": 50}
        plan.ops.append(Op(at_ms, "crash", kill))
    outcome = run_plan(order(plan))
    assert outcome.findings == []
    assert outcome.counts["tubes loaded"] == 1


def test_a_tube_that_was_on_its_way_when_its_home_ended_does_not_begin_at_the_next() -> None:
    """T21.3: "Numbers go on 1,000,000 above the highest known", also if nobody knew the tube."""
    plan = three_homes(1)
    plan.seed, plan.policy, plan.faults = "on its way", "off", ["kill"]
    plan.ops.append(Op(4_000, "tube_forcer", {
        "client": "f", "tube": "t0", "node": 1, "for_ms": 9_000, "kill": "kill",
        "down_ms": 9_000, "wait_ms": 500,
    }))  # fmt: skip

    def forget(cluster: Cluster) -> None:
        lines = cluster.tubing.facts[b"t0"].lines
        assert lines and "n0" not in cluster.net.listeners
        lines.clear()

    outcome = run_plan(order(plan), tweak=lambda c: c.world.at(12_200_000, lambda: forget(c)))
    assert outcome.findings == []
    assert outcome.counts["failovers answered"] == 1


@pytest.mark.slow
def test_a_tube_that_was_on_its_way_is_helped_though_its_home_forgot_it() -> None:
    """T22.2: "answer -TUBEHOME until an operator decides": the rescuer must know of it."""
    plan = three_homes(1)
    plan.seed, plan.policy, plan.faults = "on its way to others", "off", ["kill"]
    kill = {"node": 0, "how": "kill", "back": "empty", "fuse": 0, "down_ms": 500}
    plan.ops.append(Op(4_000, "crash", kill))

    def forget(cluster: Cluster) -> None:
        cluster.tubing.facts[b"t0"].lines.clear()

    outcome = run_plan(order(plan), tweak=lambda c: c.world.at(12_200_000, lambda: forget(c)))
    assert outcome.findings == []
    assert outcome.counts["failovers answered"] == 1


def forgotten(seed: int) -> Plan:
    """The newest home is down, the other one that knew it lost its disk, and the first is back."""
    plan = three_homes(seed)
    plan.seed, plan.faults = f"forgotten {seed}", ["kill"]
    plan.ops.append(Op(2_000, "tube_forcer", {
        "client": "f", "tube": "t0", "node": 0, "for_ms": 9_000, "kill": "kill",
        "down_ms": 8_000, "wait_ms": 100,
    }))  # fmt: skip
    for node, back, down_ms in ((1, "disk", 7_000), (2, "empty", 100)):
        kill = {"node": node, "how": "kill", "back": back, "fuse": 0, "down_ms": down_ms}
        plan.ops.append(Op(9_000, "crash", kill))
    return order(plan)


@pytest.mark.slow  # the excuse alone: test_sim_excuses_tubes.py
def test_an_older_home_runs_when_nobody_can_tell_of_the_newest() -> None:
    """T19.4: "if such nodes are half of those that must tell, and the newest home is down or not
    linked meanwhile, an older one may run"."""
    seen: list[bool] = []

    def look(cluster: Cluster) -> None:
        facts, machines = cluster.tubing.facts[b"t0"], cluster.machines
        assert [m.shell is not None for m in machines] == [True, False, True]
        (line,) = facts.lines.values()
        seen.append(line.excuse == "T19.4")
        seen.append(is_unknown(cluster, machines[0], line))
        machines[2].has_lost_disk = False
        seen.append(is_unknown(cluster, machines[0], line))

    outcome = run_plan(forgotten(2), tweak=lambda c: c.world.at(22_000_000, lambda: look(c)))
    assert outcome.findings == []
    assert seen == [True, True, False]


def unheard(seed: int) -> Plan:
    """The newest home is up, but not linked to an older one that an old disk brought back."""
    plan = three_homes(seed)
    plan.seed, plan.faults = f"unheard {seed}", ["cut", "break", "kill", "old_disk"]
    plan.ops += [
        Op(1_500, "backup", {"node": 0}),
        Op(2_000, "cut", {"a": [0], "b": [1, 2], "for_ms": 5_500}),
        Op(2_001, "break", {"node": 0}),
        Op(2_010, "tube_forcer", {
            "client": "f", "tube": "t0", "node": 2, "for_ms": 9_000, "wait_ms": 150,
        }),
        Op(9_000, "cut", {"a": [1], "b": [0, 2], "for_ms": 5_000}),
    ]  # fmt: skip
    for node, back in ((0, "old"), (2, "empty")):
        kill = {"node": node, "how": "kill", "back": back, "fuse": 0, "down_ms": 100}
        plan.ops.append(Op(9_001, "crash", kill))
    return order(plan)


@pytest.mark.slow
def test_an_older_home_runs_while_the_newest_is_not_linked() -> None:
    """T19.4: "the newest home is down or not linked meanwhile"; takes there are said apart."""
    outcome = run_plan(unheard(1))
    assert outcome.findings == []
    assert outcome.counts["doubled takes T19.4"] > 0
    assert "doubled takes" not in outcome.counts
    score = Score()
    score.take(outcome)
    assert f"{outcome.counts['doubled takes T19.4']} with disks lost (T19.4)" in score.table(1)


def given_again(seed: int) -> Plan:
    """A home by force, and the node that knew of it, lose their disks; a third has an old one."""
    plan = three_homes(seed)
    plan.seed, plan.faults = f"again {seed}", ["cut", "break", "kill", "old_disk"]
    plan.ops += [
        Op(1_500, "backup", {"node": 2}),
        Op(2_000, "cut", {"a": [1], "b": [0, 2], "for_ms": 5_500}),
        Op(2_001, "break", {"node": 1}),
        Op(2_010, "tube_forcer", {
            "client": "f", "tube": "t0", "node": 2, "for_ms": 9_000, "wait_ms": 150,
        }),
    ]  # fmt: skip
    for node, back in ((0, "empty"), (1, "empty"), (2, "old")):
        kill = {"node": node, "how": "kill", "back": back, "fuse": 0, "down_ms": 100}
        plan.ops.append(Op(9_000, "crash", kill))
    return order(plan)


@pytest.mark.slow
def test_an_epoch_that_no_disk_knows_is_given_again() -> None:
    """T19.4: "a home by force has an epoch that there was before"."""
    seen: list[bool] = []

    def look(cluster: Cluster) -> None:
        facts, machines = cluster.tubing.facts[b"t0"], cluster.machines
        (line,) = facts.lines.values()
        assert (line.homes, line.epoch) == ({1: "n1", 2: "n0"}, 2)
        seen.append(line.excuse == "T19.4")
        seen.append(is_unknown(cluster, machines[2], line))
        machines[0].has_lost_disk = False
        seen.append(is_unknown(cluster, machines[2], line))
        machines[2].disk_since_us = line.epoch_us
        seen.append(is_unknown(cluster, machines[2], line))

    outcome = run_plan(given_again(2), tweak=lambda c: c.world.at(60_000_000, lambda: look(c)))
    assert outcome.findings == []
    assert seen == [True, True, True, False]


def test_takes_at_a_home_that_is_none_are_counted() -> None:
    """T20.4: "Two nodes are never RUNNING for one tube." """

    def give_away(cluster: Cluster) -> None:
        cluster.tubing.mirrors["n0", b"t0"].line.epoch += 1  # n0 does not hear of it

    def takes(plan: Plan, *, is_given: bool) -> int:
        seen: list[int] = []

        def begin(cluster: Cluster) -> None:
            if is_given:
                cluster.world.at(10_000_000, lambda: give_away(cluster))

        def look(cluster: Cluster) -> None:
            seen.append(cluster.history.counts.get("doubled takes", 0))
            assert set(rules(cluster)) == ({"tube-twice"} if is_given else set())
            cluster.history.findings.clear()

        stopped(plan, 11, look, begin)
        return seen[0]

    assert takes(three_homes(1), is_given=False) == 0
    assert takes(three_homes(1), is_given=True) > 10


def hasty(seed: int) -> Plan:
    """An empty tube moves often, and is paused often."""
    plan = three_homes(seed, temporary=True)
    plan.seed, plan.cpu_us = f"hasty {seed}", 1_000
    shared: dict[str, Any] = {"tube": "t0", "node": 0, "for_ms": 14_000}
    for k in range(2):
        plan.ops.append(Op(500, "tube_mover", {"client": f"v{k}", "idle_ms": 60, **shared}))
    plan.ops.append(Op(600, "tube_pauser", {
        "client": "z", "idle_ms": 20, "hold_ms": 60, **shared,
    }))  # fmt: skip
    return order(plan)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [2, 4])
def test_a_tube_may_be_paused_and_given_away_in_one_turn(seed: int) -> None:
    """T17.7: "A pause (P) of a tube is the home's and moves with the tube"."""
    assert run_plan(hasty(seed)).findings == []


def test_of_tokens_that_nobody_knows_no_greater_ones_are_asked_for() -> None:
    """T5.1: "greater than any before on this node", if its disk, or another one, has them."""
    plan = three_homes(1)
    cluster = Cluster(plan, False)
    facts, lost = cluster.tubing.facts[b"t0"], cluster.machines[0]
    line = facts.lines[b"maker", 1] = Line()
    for back, known, newest in (("disk", 3, 9), ("empty", 12, 9), ("empty", 3, 3)):
        cluster.machines[1].kept_token = known
        line.newest_token = 9
        judge_tokens(cluster, lost, facts, back)
        assert line.newest_token == newest


def test_a_home_by_force_may_come_after_a_planned_one() -> None:
    """A FORCE that was taken is judged as one, though the tube moved as planned before it ran."""
    facts = Facts("t0", {"type": "fifo"})
    facts.forced = {"n0": 90_000_000, "n1": 99_000_000, "n2": 1}
    end_force(facts, "n0", 100_000_000)
    assert facts.forced == {"n1": 99_000_000}


@pytest.mark.parametrize(("waited_us", "rules"), [(102_100, []), (101_400, ["tube-full"])])
def test_a_put_waits_for_room_as_long_as_it_may(waited_us: int, rules: list[str]) -> None:
    """T7.3: at the end of its timeout, which is a whole ms (G8.2), it gets nothing."""
    cluster = Cluster(small(1), False)
    facts = cluster.tubing.facts[b"t0"]
    put = facts.new_put(cluster.world.now_us - waited_us, {"timeout": 103})
    cluster.tubing.on_put(facts, put, "n0", None)
    assert [one.rule for one in cluster.history.findings] == rules


@pytest.mark.parametrize("type", TYPES)
def test_each_type_of_tube_is_put_to_and_taken_from(type: str) -> None:
    counts = run_plan(one_tube(1, type)).counts
    assert counts["tube puts told"] > 20
    assert counts["tube takes told"] > 20


def test_a_seed_that_checks_nothing_of_its_tubes_fails() -> None:
    plan = one_tube(1, "nosuch")  # nobody can make it
    findings = run_plan(plan).findings
    assert any(text.startswith("empty") and "no tube puts" in text for text in findings)


def test_every_rule_has_a_text_and_a_denominator() -> None:
    rules = {*RULES.values(), "tube-home"}
    assert rules <= set(TEXTS) & set(CHECKED)


def test_the_swarm_draws_each_type_and_none() -> None:
    drawn = [[op.args["type"] for op in draw(seed).ops if op.kind == "tube"] for seed in range(90)]
    assert {type for types in drawn for type in types} == set(TYPES)
    assert any(not types for types in drawn)


def test_drawing_without_tubes_leaves_the_rest_as_it_is() -> None:
    for seed in range(30):
        whole, plain = draw(seed), draw(seed, True, False)
        assert [op for op in whole.ops if not op.kind.startswith("tube")] == plain.ops
