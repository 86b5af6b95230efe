"""Draws tubes and their clients, from a random stream of their own.

Drawn separately, so that what the other clients do in a seed does not change.
"""

from __future__ import annotations

from random import Random
from typing import Any, Final

from sim.engine.plan import Op, Plan

TIMED: Final = ("fifottl", "limfifottl", "utubettl")
SHARE: Final = 0.3  # of the seeds have tubes
TYPES: Final = ("fifo", "fifottl", "limfifottl", "utube", "utubettl")
FORGETTING: Final = {"reformat", "rolling", "forget", "old_disk", "leaving", "disk"}
MEDDLING: Final = ("PEEK", "KICK", "BURY", "DELETE", "RELEASEALL", "TRUNCATE", "STATISTICS")


def draw_tubes(plan: Plan, c: Random) -> None:
    """Add a tube or two with their clients to a plan, or none."""
    if c.random() >= SHARE:
        return
    may_share = c.random() < 0.4
    for i in range(c.choice([1, 1, 2])):
        draw_tube(plan, f"t{i}", c, may_share)
    plan.shift_tasks = c.choice([1, 1, 3, 10, 2_000])
    for op in [op for op in plan.ops if op.kind == "tube"]:
        if c.random() < 0.3:
            name, home = op.args["tube"], op.args["node"]
            idle_ms, hold_ms = c.choice([500, 4_000]), c.choice([300, 3_000])
            begin(plan, "tube_pauser", f"{name} z", name, home, c, idle_ms=idle_ms, hold_ms=hold_ms)
    if "pause" in plan.faults and plan.nodes > 1:
        draw_standstill(plan, Random(f"{plan.seed} standstill"))


def draw_pris(plan: Plan, c: Random) -> None:
    """Some tubes with pri have a client that gives their tasks other ones."""
    for op in [op for op in plan.ops if op.kind == "tube"]:
        if op.args["type"] in TIMED and c.random() < 0.5:
            name, idle_ms = op.args["tube"], c.choice([100, 1_000])
            home = op.args["node"]
            begin(plan, "tube_meddler", f"{name} u", name, home, c, verbs=["PRI"], idle_ms=idle_ms)


def draw_standstill(plan: Plan, c: Random) -> None:
    """The leader of a tube stands still, and another node takes over by force meanwhile."""
    if c.random() < 0.5:
        return
    op = c.choice([op for op in plan.ops if op.kind == "tube"])
    name, home = op.args["tube"], op.args["node"]
    still_ms = plan.node_timeout_ms * c.randint(2, 6)
    forcer = begin(
        plan, "tube_forcer", f"{name} s", name, home, c, for_ms=30_000, wait_ms=100,
        still_ms=still_ms,
    )  # fmt: skip
    forcer["p_crash"] = 0.0
    plan.ops[-1].at_ms = c.randrange(plan.chaos_ms)


def draw_tube(plan: Plan, name: str, c: Random, may_share: bool) -> None:
    """One tube, its producers, its workers and its meddlers."""
    type = c.choice(TYPES)
    hit = [op.args["node"] for op in plan.ops if op.kind == "crash"]
    home = c.choice(hit) if hit and c.random() < 0.6 else c.randrange(plan.nodes)
    options: dict[str, Any] = {"tube": name, "type": type, "node": home}
    options["temporary"] = not may_share and c.random() < 0.15
    if c.random() < 0.5:
        options["ttr"] = c.choice([300, 1_000, 5_000])
    if c.random() < 0.3:
        options["ttl"] = c.choice([4_000, 20_000])
    if c.random() < 0.3:
        options["pri"] = 5
    options["capacity"] = c.choice([0, 2, 5, 20])
    if plan.nodes > 1 and c.random() < 0.4:
        options["sync"] = c.randint(2, min(3, plan.nodes))
    if options["temporary"]:
        options.pop("sync", 0)  # T18.5: there are no replicas
    plan.ops.append(Op(0, "tube", options))
    draw_producers(plan, name, home, c)
    draw_workers(plan, name, home, c, may_share)
    if c.random() < 0.5:
        verbs = c.sample(MEDDLING, c.randint(2, len(MEDDLING))) + ["CFG"] * may_share
        begin(plan, "tube_meddler", f"{name} m", name, home, c, verbs=verbs, idle_ms=3_000)
    if plan.nodes > 1 and c.random() < 0.8:
        draw_moves(plan, name, home, c)


def may_be_lost(plan: Plan) -> bool:
    """Whether a leader may forget a tube: an ADDJOB then makes a plain queue of its name."""
    return plan.policy != "always" or bool(FORGETTING & set(plan.faults))


def draw_moves(plan: Plan, name: str, home: int, c: Random) -> None:
    """The leader changes: planned, by force after a crash or without one, or from read-only nodes.

    Leaders that end are not a fault of the plan: job judges go by its kinds of faults.
    """
    if c.random() < 0.8:
        idle_ms = c.choice([500, 2_000, 6_000])
        for i in range(c.choice([1, 1, 2])):
            begin(plan, "tube_mover", f"{name} v{i}", name, home, c, idle_ms=idle_ms)
    crash = {"kill", "power"} & set(plan.faults)
    for i in range(c.choice([0, 1, 2]) if crash else c.choice([0, 0, 1])):
        kill = c.choice(sorted(crash)) if crash and c.random() < 0.8 else ""
        forcer = begin(
            plan, "tube_forcer", f"{name} f{i}", name, home, c, kill=kill, for_ms=30_000,
            down_ms=c.choice([500, 4_000, 15_000]), wait_ms=c.choice([100, 1_000, 5_000]),
        )  # fmt: skip
        forcer["p_crash"] = 0.0
        plan.ops[-1].at_ms = c.randrange(plan.chaos_ms)
    if c.random() < 0.3:
        args = {"node": c.randrange(plan.nodes), "for_ms": c.choice([500, 5_000])}
        plan.ops.append(Op(c.randrange(plan.chaos_ms), "tube_read_only", args))


def draw_producers(plan: Plan, name: str, home: int, c: Random) -> None:
    """Producers: their options, and how they disconnect."""
    keys = c.choice([["", "a"], ["a", "b", "c"], [f"k{i}" for i in range(20)], [None, "a"]])
    options: dict[str, Any] = {
        "pri": c.choice([None, [0, 1, 9], [5, None]]), "utube": keys,
        "ttl": c.choice([None, None, [500, 3_000, None]]),
        "ttr": c.choice([None, [200, 2_000], [1_000, None]]),
        "delay": c.choice([None, None, [None, None, 400, 2_000]]),
        "p_wait": c.choice([0.0, 0.7]), "p_job": 0.0 if may_be_lost(plan) else 0.2,
        "p_hang_up": c.choice([0.0, 0.05]), "size": c.choice([5, 5, 500]),
        "idle_ms": c.choice([100, 500, 1_500]),
    }  # fmt: skip
    count = c.randint(1, 2)
    if count > 1 and plan.nodes > 1:
        options["p_job"] = 0.0  # an ADDJOB on a node that does not know the tube makes a queue
    for i in range(count):
        producer = begin(plan, "tube_producer", f"{name} p{i}", name, home, c, **options)
        producer["node"] = (
            home + i
        ) % plan.nodes  # it creates the tube there if it is first (T17.5)


def draw_workers(plan: Plan, name: str, home: int, c: Random, may_share: bool) -> None:
    """Workers: hungry or slow, honest or not."""
    habits: dict[str, Any] = {
        "many": c.choice([1, 1, 3, 8]), "work_ms": c.choice([5, 200, 2_000, 6_000]),
        "idle_ms": c.choice([5, 50, 500]), "timeout": c.choice([200, 1_000, 3_000]),
        "p_release": c.choice([0.0, 0.2]), "p_touch": c.choice([0.0, 0.15]),
        "p_bury": c.choice([0.0, 0.1]), "p_keep": c.choice([0.0, 0.2]),
        "p_twice": c.choice([0.0, 0.2]), "p_bare": c.choice([0.0, 0.3, 1.0]),
        "p_job": c.choice([0.0, 0.0, 0.3]), "p_job_verbs": c.choice([0.0, 0.2]),
        "p_identify": c.choice([0.5, 1.0]) if may_share else 0.0,
    }  # fmt: skip
    for i in range(c.randint(1, 3)):
        worker = begin(plan, "tube_worker", f"{name} w{i}", name, home, c, **habits)
        if i and may_share and c.random() < 0.5:
            worker["joins"] = f"{name} w{i - 1}"
    if may_share:
        args = {"verbs": ["CFG"], "idle_ms": 8_000}
        begin(plan, "tube_meddler", f"{name} c", name, home, c, **args)


def begin(
    plan: Plan, kind: str, client: str, tube: str, home: int, c: Random, **args: Any
) -> dict[str, Any]:
    """Add a client."""
    at_ms = 1 + c.randrange(plan.chaos_ms // 3)
    everything: dict[str, Any] = {
        "client": client, "tube": tube, "node": home, "for_ms": plan.chaos_ms - at_ms,
        "p_crash": c.choice([0.0, 0.02, 0.1]), **args,
    }  # fmt: skip
    plan.ops.append(Op(at_ms, kind, everything))
    return everything


def last_clients(plan: Plan, span_ms: int) -> list[tuple[str, dict[str, Any]]]:
    """After the faults every tube accepts puts, and its tasks are taken and acked."""
    found: list[tuple[str, dict[str, Any]]] = []
    for op in plan.ops:
        if op.kind == "tube":
            tube = op.args["tube"]
            shared = {"tube": tube, "node": op.args["node"], "for_ms": span_ms}
            producer = {"client": f"{tube} last p", "idle_ms": 4_000, **shared}
            found.append(("tube_producer", producer))
            worker = {"client": f"{tube} last w", "idle_ms": 5, "timeout": 1_000, **shared}
            found.append(("tube_pauser", {"client": f"{tube} last z", "idle_ms": 1_000, **shared}))
            found.append(("tube_rescuer", {"client": f"{tube} last r", **shared}))
            found.append(("tube_worker", {"many": 1, "work_ms": 50, **worker}))
    return found
