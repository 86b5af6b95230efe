"""Draws clients that use the words about a job's work, from a random stream of their own.

Drawn separately, so that what the other clients do in a seed does not change.
"""

from __future__ import annotations

from random import Random
from typing import Any, Final

from sim.engine.plan import Op, Plan

SHARE: Final = 0.35  # of the fresh seeds have such jobs
KINDS: Final = ("life_producer", "life_worker", "life_boss", "life_editor", "life_replayer")


def draw_lives(plan: Plan, c: Random) -> None:
    """Add producers, workers, and people who cancel, read, replay and purge; or none."""
    if c.random() >= SHARE:
        return
    options: dict[str, Any] = {
        "attempts": c.choice([[0, 3], [1, 2], [2, 4], [3], [0]]),
        "backoff": c.choice([[0.1, 1, 0.5], [1, 4, 0], [0, 0, 0]]),
        "retry": c.choice([[1, 2], [1, 6], [3, 8]]), "keep": c.choice([[0, 90], [90], [90]]),
        "limit": c.choice([[0], [0], [0, 2]]), "ttl": c.choice([[120], [0, 120], [6, 120]]),
        "delay": c.choice([[0], [0, 0, 2]]), "idle_ms": c.choice([150, 400, 1_200]),
    }  # fmt: skip
    for i in range(c.randint(1, 2)):
        begin(plan, "life_producer", f"lp{i}", c, **options)
    draw_workers(plan, c)
    for i in range(c.randint(1, 2)):
        begin(
            plan, "life_boss", f"lb{i}", c, idle_ms=c.choice([100, 400]),
            p_cancel=c.choice([0.0, 0.1, 0.3]), p_letters=c.choice([0.0, 0.15, 0.3]),
            p_wait=c.choice([0.0, 0.2]),
        )  # fmt: skip


def draw_edits(plan: Plan, c: Random) -> None:
    """Add people who give jobs other bodies, where there are such jobs; or none."""
    if c.random() < 0.5 or not any(op.kind in KINDS for op in plan.ops):
        return
    for i in range(c.randint(1, 2)):
        begin(plan, "life_editor", f"le{i}", c, idle_ms=c.choice([50, 200]))


def draw_words(plan: Plan, c: Random) -> None:
    """Workers whose runs begin with the delivery, people who replay slowly; or none."""
    workers = [op for op in plan.ops if op.kind == "life_worker"]
    p_begin = c.choice([0.0, 0.3, 1.0])
    for op in workers:
        op.args["p_begin"] = p_begin
    if workers and c.random() < 0.5:
        begin(plan, "life_replayer", "lr", c, idle_ms=c.choice([300, 2_000]), rate=[1, 3, 20])


def draw_workers(plan: Plan, c: Random) -> None:
    """Workers: they fail, give back, fall silent, speak late, move to another node."""
    habits: dict[str, Any] = {
        "work_ms": c.choice([5, 100, 1_500]), "idle_ms": c.choice([5, 50]),
        "timeout": c.choice([200, 1_000]), "p_plain": c.choice([0.0, 0.1]),
        "p_drop": c.choice([0.0, 0.1]), "p_fail": c.choice([0.1, 0.4, 0.8]),
        "p_final": c.choice([0.0, 0.1]), "p_release": c.choice([0.0, 0.15]),
        "p_silent": c.choice([0.0, 0.1, 0.3]), "p_late": c.choice([0.0, 0.5, 1.0]),
        "p_move": c.choice([0.0, 0.2, 0.5]), "p_twice": c.choice([0.0, 0.3]),
        "p_beat": c.choice([0.0, 0.5]), "p_letter": c.choice([0.0, 0.0, 0.3]),
    }  # fmt: skip
    for i in range(c.randint(2, 5)):
        begin(plan, "life_worker", f"lw{i}", c, **habits)


def begin(plan: Plan, kind: str, name: str, c: Random, **args: Any) -> None:
    """Add a client."""
    at_ms = 1 + c.randrange(plan.chaos_ms // 3)
    everything: dict[str, Any] = {
        "client": name, "node": c.randrange(plan.nodes), "for_ms": plan.chaos_ms - at_ms,
        "p_crash": c.choice([0.0, 0.0, 0.02]), **args,
    }  # fmt: skip
    plan.ops.append(Op(at_ms, kind, everything))


def last_workers(plan: Plan, span_ms: int) -> list[tuple[str, dict[str, Any]]]:
    """After the faults, workers on all nodes do what is left; somebody reads the results."""
    if not any(op.kind in KINDS for op in plan.ops):
        return []
    found: list[tuple[str, dict[str, Any]]] = []
    for node in range(plan.nodes):
        shared = {"node": node, "for_ms": span_ms}
        worker = {"client": f"life last w{node}", "idle_ms": 5, "timeout": 1_000, "work_ms": 5}
        found.append(("life_worker", {**worker, **shared}))
        found.append(("life_boss", {"client": f"life last b{node}", "idle_ms": 200, **shared}))
    return found
