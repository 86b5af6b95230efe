"""From a seed number to a plan: which faults, how many nodes, what the clients do."""

from __future__ import annotations

from random import Random
from typing import Any

from tuque.sim.plan import Op, Plan


def draw(seed: int) -> Plan:
    """The plan of a seed."""
    c = Random(f"swarm {seed}")
    plan = Plan(seed=str(seed), nodes=c.choice([2, 3]))
    for i in range(40):
        args: dict[str, Any] = {
            "client": f"p{i % 3}",
            "node": c.randrange(plan.nodes),
            "queue": "q",
            "repl": c.randint(1, plan.nodes),
            "retry": c.choice([0, 1, 2, 5]),
            "ttl": 120,
        }
        if args["retry"] == 0:
            args["repl"] = 1
        plan.ops.append(Op(c.randrange(plan.chaos_ms), "add", args))
    for i in range(plan.nodes):
        plan.ops.append(
            Op(
                c.randrange(2000),
                "worker",
                {
                    "client": f"w{i}",
                    "node": i,
                    "queues": ["q"],
                    "for_ms": plan.chaos_ms,
                    "work_ms": 200,
                },
            )
        )
    return plan
