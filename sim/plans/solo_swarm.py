"""Draws nodes that start alone, make tubes, and meet later (SPEC T23.1, T23.4, T23.7).

Each list of one loses or wins when two nodes meet; the tubes of the one that loses move. Nodes
restart meanwhile, links are cut, and where three vote one of them loses its disk.
"""

from __future__ import annotations

from random import Random
from typing import Any, Final

from sim.engine.plan import Op, Plan

CHAOS_MS: Final = 30_000
MEET_MS: Final = 10_000  # all have met by then
LOSS_MS: Final = 18_000  # three nodes vote by then, and have all tubes


def draw_solo(seed: int) -> Plan:
    """Two nodes, or three, each with a tube of its own; they meet one after the other."""
    c = Random(f"solo {seed}")
    nodes = c.choice([2, 2, 3])
    plan = Plan(seed=f"solo {seed}", nodes=nodes, chaos_ms=CHAOS_MS, policy="always")
    plan.failover, plan.starts_alone, plan.is_faultless = True, True, False
    plan.node_timeout_ms = c.choice([1_000, 1_000, 2_000])
    plan.sync_us = c.choice([500, 2_000, 20_000])
    plan.shift_tasks = c.choice([3, 2_000])
    for i in range(nodes):
        draw_tube(plan, c, i)
    add = {"client": "j", "node": 0, "queue": "q", "retry": 5, "ttl": 120, "repl": 1}
    plan.ops.append(Op(60, "add", add))
    order = c.sample(range(nodes), nodes)
    for k in range(1, nodes):
        pair = c.sample([order[k], order[c.randrange(k)]], 2)
        plan.ops.append(Op(c.randrange(1_000, MEET_MS), "meet", {"a": pair[0], "b": pair[1]}))
    plan.faults = sorted(c.sample(["kill", "power", "pause", "cut", "slow", "break"], 3))
    for _ in range(c.randint(2, 6)):
        draw_fault(plan, c)
    if nodes == 3 and c.random() < 0.4:
        lost = {"node": c.randrange(nodes), "how": "power", "back": "empty", "fuse": 0}
        plan.ops.append(Op(c.randrange(LOSS_MS, CHAOS_MS), "crash", lost | {"down_ms": 500}))
        plan.faults.append("reformat")
    plan.ops.sort(key=lambda op: op.at_ms)
    return plan


def draw_tube(plan: Plan, c: Random, i: int) -> None:
    """A tube that node i makes, with producers and workers that begin there.

    At another node they would make another tube of the name, if the two have not met yet.
    """
    tube: dict[str, Any] = {"tube": f"t{i}", "type": c.choice(["fifo", "fifottl"]), "node": i}
    plan.ops.append(Op(0, "tube", tube | {"ttr": 3_000, "capacity": 0, "by_majority": True}))
    for k, from_ms in enumerate([10, MEET_MS + 2_000]):
        at_ms = from_ms + c.randrange(500)
        shared: dict[str, Any] = {"tube": f"t{i}", "node": i, "for_ms": CHAOS_MS - at_ms - 100}
        puts = {"client": f"p{i} {k}", "idle_ms": c.choice([100, 300]), **shared}
        plan.ops.append(Op(at_ms, "tube_producer", puts))
        works = {"client": f"w{i} {k}", "many": c.choice([1, 3]), "work_ms": c.choice([50, 500])}
        works |= {"idle_ms": 50, "timeout": 500, **shared}
        plan.ops.append(Op(at_ms + 1, "tube_worker", works))


def draw_fault(plan: Plan, c: Random) -> None:
    """One fault of the plan's kinds, often about when two nodes meet."""
    kind, node = c.choice(plan.faults), c.randrange(plan.nodes)
    meets = [op.at_ms for op in plan.ops if op.kind == "meet"]
    at_ms = c.choice(meets) + c.randrange(1_500) if c.random() < 0.5 else c.randrange(500, CHAOS_MS)
    for_ms = plan.node_timeout_ms * c.choice([1, 2, 4]) // c.choice([1, 1, 2, 8])
    other = (node + c.randrange(1, plan.nodes)) % plan.nodes
    args: dict[str, Any] = {"node": node}
    if kind in ("kill", "power"):
        args |= {"how": kind, "back": "disk", "fuse": c.choice([0, 0, c.randint(1, 60)])}
        plan.ops.append(Op(at_ms, "crash", args | {"down_ms": for_ms}))
    elif kind == "pause":
        plan.ops.append(Op(at_ms, "pause", args | {"for_ms": for_ms}))
    elif kind == "cut":
        others = [i for i in range(plan.nodes) if i != node]
        cut = {"a": [node], "b": others, "for_ms": for_ms, "one_way": c.random() < 0.2}
        plan.ops.append(Op(at_ms, "cut", cut))
        plan.ops.append(Op(at_ms + 1, "break", args))
    elif kind == "slow":
        extra_ms = c.choice([50, 500])
        slow = {"a": node, "b": other, "extra_ms": extra_ms, "for_ms": for_ms}
        plan.ops.append(Op(at_ms, "slow", slow))
    else:
        plan.ops.append(Op(at_ms, "break", args))
