"""Draws clusters whose tubes get new leaders by vote, and faults that make votes (SPEC T23)."""

from __future__ import annotations

from random import Random
from typing import Any, Final

from sim.engine.plan import Op, Plan

TYPES: Final = ("fifo", "fifottl", "utube", "utubettl")
CHAOS_MS: Final = 30_000


def draw_votes(seed: int) -> Plan:
    """Three to five nodes, one tube that a majority has, and leaders that are lost."""
    c = Random(f"votes {seed}")
    nodes = c.choice([3, 3, 3, 4, 5])
    plan = Plan(seed=f"votes {seed}", nodes=nodes, chaos_ms=CHAOS_MS, policy="always")
    plan.failover = True
    plan.node_timeout_ms = c.choice([1_000, 1_000, 2_000])
    plan.shift_tasks = c.choice([1, 3, 2_000])
    plan.sync_us = c.choice([500, 2_000, 20_000])
    home = c.randrange(nodes)
    tube: dict[str, Any] = {"tube": "t0", "type": c.choice(TYPES), "node": home}
    tube["sync"] = nodes // 2 + 1
    if c.random() < 0.7:
        tube["ttr"] = c.choice([1_000, 3_000])
    tube["capacity"] = 0
    plan.ops.append(Op(0, "tube", tube))
    add = {"client": "j", "node": 0, "queue": "q", "retry": 5, "ttl": 120, "repl": 1}
    plan.ops.append(Op(60, "add", add))
    draw_clients(plan, c)
    plan.faults = sorted(c.sample(["kill", "pause", "cut", "slow", "break"], c.choice([1, 2, 3])))
    for _ in range(c.randint(2, 6)):
        draw_fault(plan, c)
    draw_leavers(plan, seed)
    draw_lease(plan, seed)
    draw_voters(plan, seed)
    plan.is_faultless = False
    plan.ops.sort(key=lambda op: op.at_ms)
    return plan


def draw_clients(plan: Plan, c: Random) -> None:
    """Producers and workers at all nodes, and sometimes somebody who moves the tube."""
    for i in range(c.randint(1, 3)):
        shared: dict[str, Any] = {"tube": "t0", "node": i % plan.nodes, "for_ms": CHAOS_MS - 100}
        produces = {"client": f"p{i}", "idle_ms": c.choice([100, 300]), **shared}
        plan.ops.append(Op(2_000 + i, "tube_producer", produces))
        works = {"client": f"w{i}", "many": c.choice([1, 3]), "work_ms": c.choice([50, 500])}
        works |= {"idle_ms": 50, "timeout": 500, **shared}
        plan.ops.append(Op(2_100 + i, "tube_worker", works))
    if c.random() < 0.4:
        moves = {"client": "v", "tube": "t0", "node": 0, "for_ms": CHAOS_MS - 3_000}
        plan.ops.append(Op(3_000, "tube_mover", moves | {"idle_ms": c.choice([700, 3_000])}))


def draw_leavers(plan: Plan, seed: int) -> None:
    """Nodes that are told to leave and then to stay, in four of ten plans."""
    c = Random(f"leavers {seed}")  # other plans stay as they were
    if c.random() >= 0.4:
        return
    for _ in range(c.randint(1, 4)):
        for_ms = c.choice([1, 200, 3 * plan.node_timeout_ms])
        at_ms = c.randrange(4_000, plan.chaos_ms - for_ms)
        args = {"node": c.randrange(plan.nodes), "for_ms": for_ms}
        plan.ops.append(Op(at_ms, "away_and_back", args))


def draw_lease(plan: Plan, seed: int) -> None:
    """Leases that are shorter than `cluster-node-timeout`, as by default, in half of all plans."""
    c = Random(f"leases {seed}")  # other plans stay as they were
    if c.random() < 0.5:
        plan.lease_ms = plan.node_timeout_ms
        plan.node_timeout_ms *= c.choice([3, 7])


def draw_voters(plan: Plan, seed: int) -> None:
    """In larger clusters three nodes vote, or all; silent voters are replaced, or not in time."""
    c = Random(f"voters {seed}")  # other plans stay as they were
    plan.voters = c.choice([3, plan.nodes])
    plan.silent_ms = c.choice([plan.silent_ms, 2 * plan.node_timeout_ms])


def draw_fault(plan: Plan, c: Random) -> None:
    """One fault of the plan's kinds, for as long as an election takes, or less."""
    kind = c.choice(plan.faults)
    at_ms = c.randrange(4_000, plan.chaos_ms)
    node = c.randrange(plan.nodes)
    for_ms = plan.node_timeout_ms * c.choice([1, 2, 4]) // c.choice([1, 1, 2])
    if kind == "kill":
        args: dict[str, Any] = {"node": node, "how": "kill", "back": "disk", "fuse": 0}
        plan.ops.append(Op(at_ms, "crash", args | {"down_ms": for_ms}))
    elif kind == "pause":
        plan.ops.append(Op(at_ms, "pause", {"node": node, "for_ms": for_ms}))
    elif kind == "cut":
        alone = c.sample(range(plan.nodes), c.randint(1, plan.nodes // 2))
        others = [i for i in range(plan.nodes) if i not in alone]
        args = {"a": alone, "b": others, "for_ms": for_ms, "one_way": c.random() < 0.2}
        plan.ops.append(Op(at_ms, "cut", args))
        for i in range(3):
            plan.ops.append(Op(at_ms + 1 + i, "break", {"node": alone[0]}))
    elif kind == "slow":
        other = (node + c.randrange(1, plan.nodes)) % plan.nodes
        extra_ms = c.choice([50, 500])
        args = {"a": node, "b": other, "extra_ms": extra_ms, "for_ms": for_ms}
        plan.ops.append(Op(at_ms, "slow", args))
    else:
        plan.ops.append(Op(at_ms, "break", {"node": node}))
