"""Draws clusters whose list of voters changes: shrunk, grown, moved, given away, forced (SPEC T28).

Nodes are lost at the instant of a growth, and majorities of the voters for good.
"""

from __future__ import annotations

from random import Random
from typing import Any, Final

from sim.engine.plan import Op, Plan

CHAOS_MS: Final = 30_000
Act = dict[str, Any]


def voter_plan(name: str, acts: list[Act], nodes: int = 3) -> Plan:
    """One tube with clients at each node, and an operator who changes the list of voters."""
    plan = Plan(seed=name, nodes=nodes, chaos_ms=CHAOS_MS, policy="always", node_timeout_ms=1_000)
    plan.failover, plan.is_faultless = True, False
    tube = {"tube": "t0", "type": "fifo", "node": 0, "ttr": 3_000, "by_majority": True}
    plan.ops.append(Op(0, "tube", tube))
    for i in range(3):
        shared: Act = {"tube": "t0", "node": i, "for_ms": CHAOS_MS - 500}
        plan.ops.append(Op(10 + i, "tube_producer", {"client": f"p{i}", "idle_ms": 250, **shared}))
        works = {"client": f"w{i}", "many": 1, "work_ms": 100, "idle_ms": 150, "timeout": 500}
        plan.ops.append(Op(100 + i, "tube_worker", works | shared))
    add = {"client": "j", "node": 0, "queue": "q", "retry": 5, "ttl": 120, "repl": 1}
    plan.ops.append(Op(60, "add", add))
    keeper = {"client": "k", "node": 0, "for_ms": CHAOS_MS - 1_500, "acts": acts}
    plan.ops.append(Op(1_000, "voter_keeper", keeper))
    return plan


def draw_voters(seed: int) -> Plan:
    """Three nodes, or four; two to four acts of the operator; now and then a slow line."""
    c = Random(f"lists {seed}")
    nodes = c.choice([3, 3, 4])
    plan = voter_plan(f"voters {seed}", draw_acts(c, nodes), nodes)
    plan.node_timeout_ms = c.choice([1_000, 1_000, 2_000])
    plan.sync_us = c.choice([500, 2_000, 20_000])
    plan.faults = ["cut", "old_disk", "power", "slow"]
    for _ in range(c.choice([0, 1, 2])):
        a = c.randrange(nodes)
        slow = {"a": a, "b": (a + c.randrange(1, nodes)) % nodes, "extra_ms": c.choice([50, 300])}
        at_ms = c.randrange(2_000, CHAOS_MS - 5_000)
        plan.ops.append(Op(at_ms, "slow", slow | {"for_ms": c.choice([1_000, 5_000])}))
    for _ in range(c.choice([0, 0, 1, 2])):
        plan.ops.append(Op(c.randrange(4_000, CHAOS_MS), "break", {"node": c.randrange(nodes)}))
    plan.ops.sort(key=lambda op: op.at_ms)
    return plan


def draw_acts(c: Random, nodes: int) -> list[Act]:
    """A list that shrinks to one voter, and what becomes of it; sometimes it moves first."""
    acts: list[Act] = []
    if nodes > 3 and c.random() < 0.7:
        acts.append({"do": "move", "which": c.randrange(3)})
    for _ in range(c.choice([1, 2])):
        only = c.randrange(nodes)
        acts.append({"do": "shrink", "to": only})
        acts += c.choice([draw_growth, draw_growth, draw_force, draw_leave])(c, nodes, only)
    if c.random() < 0.3:
        acts += draw_force(c, nodes, c.randrange(nodes))
    for act in acts:
        act["wait_ms"] = c.choice([1, 500, 2_000])
    return acts


def draw_growth(c: Random, nodes: int, only: int) -> list[Act]:
    """The list grows, and in most plans a node is lost meanwhile."""
    spoil = c.choice(["", "lose", "lose", "cut", "twice", "apart"])
    within_us = c.choice([2_000, 20_000, 100_000])
    grow = {"do": "grow", "spoil": spoil, "node": c.randrange(nodes), "within_us": within_us}
    return [grow | {"late_ms": c.choice([0, 50, 200])}]


def draw_force(c: Random, nodes: int, only: int) -> list[Act]:
    """The voter is lost; then the list that another node has made grows."""
    at = (only + c.randrange(1, nodes)) % nodes
    force = {"do": "force", "at": at, "back_ms": c.choice([1, 1_000, 4_000])}
    force["late_ms"] = c.choice([0, 300, 700])
    return [force, *draw_growth(c, nodes, at)]


def draw_leave(c: Random, nodes: int, only: int) -> list[Act]:
    """The voter gives its vote away."""
    return [{"do": "leave"}]
