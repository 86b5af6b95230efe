"""Draws the clients that lease, publish and repeat in a seed, from a random stream of their own.

Drawn separately, so that what the other clients do in a seed does not change.
"""

from __future__ import annotations

from random import Random
from typing import Any

from sim.engine.plan import Op, Plan

SHARE = 0.4  # of the seeds have clients of each kind


def draw_once(plan: Plan, queues: list[str], c: Random) -> None:
    """Add lessees, publishers and repeaters to a plan, or none."""
    lots = [c.random() < SHARE for _ in range(3)]
    if lots[0]:
        draw_lessees(plan, queues, c)
    if lots[1]:
        rows = c.choice([1, 3, 8])
        for i in range(c.randint(1, 2)):
            habits = {"p_retry": c.choice([0.0, 0.1]), "p_double": c.choice([0.0, 0.3])}
            habits |= {"p_replay": c.choice([0.0, 0.2, 0.4]), "p_one": 0.5, "rows": rows}
            begin(plan, "publisher", f"d{i}", c, queues, idle_ms=1_500, **habits)
    if lots[2]:
        for i in range(c.randint(1, 2)):
            begin(plan, "repeater", f"r{i}", c, queues, idle_ms=1_500, p_repeat=0.4)


def begin(
    plan: Plan, kind: str, name: str, c: Random, outs: list[str], **args: Any
) -> dict[str, Any]:
    """Add a client."""
    at_ms = c.randrange(plan.chaos_ms // 2)
    everything: dict[str, Any] = {
        "client": name, "node": c.randrange(plan.nodes), "for_ms": plan.chaos_ms - at_ms,
        "p_crash": c.choice([0.0, 0.02, 0.1]), "out": c.choice([*outs, "out"]),
        "repl": c.choice([1, 1, min(2, plan.nodes)]), "retry": c.choice([1, 3, 10]), **args,
    }  # fmt: skip
    plan.ops.append(Op(at_ms, kind, everything))
    return everything


def draw_lessees(plan: Plan, queues: list[str], c: Random) -> None:
    """One or two groups, each with one or two owners that fence each other; jobs for them."""
    for i in range(c.randint(1, 2)):
        node = c.randrange(plan.nodes)
        own = f"lease{i}"
        shared: dict[str, Any] = {
            "group": f"g{i}", "queues": [own, *queues] if c.random() < 0.3 else [own],
            "ttl_ms": c.choice([1_000, 2_000, 5_000]), "count": c.choice([1, 3, 10]),
            "parts": c.choice([1, 1, 2, 3]), "rows": c.choice([1, 2, 2000]),
            "work_ms": c.choice([10, 300, 2_000]), "idle_ms": c.choice([50, 500]),
            "ahead": c.random() < 0.3, "publishes": c.random() < 0.3, "p_again": 0.4,
            "p_columns": c.choice([0.0, 0.5, 1.0]), "p_late": c.choice([0.0, 0.1, 0.4]),
            "p_touch": 0.2, "p_release": c.choice([0.0, 0.0, 0.1]), "p_twice": 0.3,
            "p_nack": c.choice([0.0, 0.0, 0.2]), "p_one": 0.5, "p_retry": 0.05,
        }  # fmt: skip
        owners = c.choice([1, 2])
        for k in range(owners):
            args = begin(plan, "lessee", f"l{i}{k}", c, queues, gives_way=owners > 1, **shared)
            args["node"] = node
        retries = c.choice([[1, 2], [3, 10], [0, 3]])
        is_near = c.random() < 0.7
        for _ in range(c.choice([10, 20])):
            job: dict[str, Any] = {
                "client": f"p{c.randrange(4)}", "queue": own, "retry": c.choice(retries),
                "node": node if is_near else c.randrange(plan.nodes), "ttl": 120, "delay": 0,
                "repl": c.randint(1, min(3, plan.nodes)), "size": 20, "timeout": 1000,
            }  # fmt: skip
            job["repl"] = 1 if job["retry"] == 0 else job["repl"]
            plan.ops.append(Op(c.randrange(plan.chaos_ms), "add", job))
        if c.random() < 0.3:
            plan.ops.append(Op(c.randrange(plan.chaos_ms), "worker", {
                "client": f"thief{i}", "node": node if c.random() < 0.7 else
                c.randrange(plan.nodes), "queues": [own], "for_ms": plan.chaos_ms,
                "work_ms": 100,
            }))  # fmt: skip
