"""Draws tubes of type `tasks` in clusters that vote, and faults that make votes (SPEC T40)."""

from __future__ import annotations

from random import Random
from typing import Any, Final

from sim.engine.plan import Op, Plan
from sim.plans.vote_swarm import draw_fault

KINDS: Final = ("kill", "power", "pause", "cut", "slow", "break", "clock", "old_disk")
CHAOS_MS: Final = 20_000


def draw_tasks(seed: int) -> Plan:
    """Three or five nodes, a tube that a majority has, jobs with keys, and faults."""
    c = Random(f"tasks {seed}")
    nodes = c.choice([3, 3, 5])
    plan = task_plan(f"tasks {seed}", nodes, c.randrange(nodes))
    plan.node_timeout_ms = c.choice([1_000, 1_000, 2_000])
    plan.shift_tasks = c.choice([1, 3, 2_000])
    plan.sync_us = c.choice([500, 2_000, 20_000])
    draw_clients(plan, c)
    draw_others(plan, Random(f"tasks {seed} others"))
    plan.faults = sorted(c.sample(KINDS, c.choice([0, 1, 1, 2, 2, 3])))
    if "clock" in plan.faults:
        plan.rates_ppm = [c.randint(-500, 500) for _ in range(nodes)]
    for _ in range(c.randint(2, 6) if plan.faults else 0):
        draw_any(plan, c)
    plan.is_faultless = not plan.faults
    plan.ops.sort(key=lambda op: op.at_ms)
    return plan


def task_plan(seed: str, nodes: int, home: int, chaos_ms: int = CHAOS_MS) -> Plan:
    """A cluster that votes, with one tube of type `tasks` that a majority has."""
    plan = Plan(seed=seed, nodes=nodes, chaos_ms=chaos_ms, policy="always", failover=True)
    plan.node_timeout_ms = 1_000
    plan.ops.append(Op(0, "task_tube", {"tube": "k", "node": home, "sync": nodes // 2 + 1}))
    add = {"client": "j", "node": 0, "queue": "q", "retry": 5, "ttl": 120, "repl": 1}
    plan.ops.append(Op(60, "add", add))
    return plan


def draw_any(plan: Plan, c: Random) -> None:
    """One fault of the plan's kinds; those that votes know are drawn as there."""
    known, rare = list(plan.faults), {"power", "clock", "old_disk"}
    kind = c.choice(known)
    at_ms, node = c.randrange(4_000, plan.chaos_ms), c.randrange(plan.nodes)
    if c.random() < 0.4:
        node = plan.ops[0].args["node"]  # its first leader
    down_ms = plan.node_timeout_ms * c.choice([1, 2, 4]) // 2
    if kind not in rare:
        plan.faults = [kind]
        draw_fault(plan, c)
        if "node" in plan.ops[-1].args:
            plan.ops[-1].args["node"] = node
        plan.faults = known
    elif kind == "power":
        args: dict[str, Any] = {"node": node, "how": "power", "back": "disk", "fuse": 0}
        plan.ops.append(Op(at_ms, "crash", args | {"down_ms": down_ms}))
    elif kind == "clock":
        jump_ms = c.choice([-3_600_000, -5_000, 5_000, 3_600_000])
        plan.ops.append(Op(at_ms, "clock", {"node": node, "jump_ms": jump_ms}))
        args = {"node": node, "how": "kill", "back": "disk", "fuse": 0, "down_ms": down_ms}
        plan.ops.append(Op(at_ms + 500, "crash", args))
    else:
        plan.ops.append(Op(max(0, at_ms - c.choice([500, 3_000])), "backup", {"node": node}))
        args = {"node": node, "how": "kill", "back": "old", "fuse": 0, "down_ms": down_ms}
        plan.ops.append(Op(at_ms, "crash", args))


def draw_clients(plan: Plan, c: Random) -> None:
    """Producers and workers at all nodes, and sometimes somebody who cancels."""
    options: dict[str, Any] = {"retry": c.choice([[1], [1, 3]]), "idle_ms": c.choice([300, 800])}
    if c.random() < 0.6:
        options["unique"] = [None, *(f"u{i}" for i in range(c.choice([2, 6])))]
        options["on"] = c.choice([["keep"], ["keep", "reject"]])
    if c.random() < 0.6:
        options["limit"] = [None, ["one", 1], ["some", c.choice([1, 2, 3])]]
    if c.random() < 0.5:
        options["rate"] = [None, ["slow", c.choice([3, 5]), c.choice([1, 5, 10])]]
    if c.random() < 0.6:
        options["group"] = [None, ["a", 1], ["b", c.choice([1, 3])], ["c", 1]]
    options["attempts"] = c.choice([[0], [0], [20]])
    habits: dict[str, Any] = {
        "work_ms": c.choice([20, 300]), "idle_ms": c.choice([5, 50]), "timeout": 500,
        "p_fail": c.choice([0.0, 0.2]), "p_release": c.choice([0.0, 0.2]),
        "p_silent": c.choice([0.0, 0.1]), "p_drop": c.choice([0.0, 0.1]),
        "p_plain": c.choice([0.0, 0.2]),
    }  # fmt: skip
    for i in range(c.randint(2, 4)):
        shared: dict[str, Any] = {"tube": "k", "node": i % plan.nodes}
        shared["for_ms"] = plan.chaos_ms - 2_300
        plan.ops.append(Op(1_000 + i, "task_producer", {"client": f"kp{i}", **options, **shared}))
        for k in range(2):
            worker = {"client": f"kw{i} {k}", **habits, **shared}
            plan.ops.append(Op(1_100 + 7 * i + k, "task_worker", worker))
    if c.random() < 0.3:
        boss = {"client": "kb", "tube": "k", "node": 0, "for_ms": plan.chaos_ms - 3_000}
        plan.ops.append(Op(2_000, "task_boss", boss | {"idle_ms": c.choice([300, 1_000])}))


def draw_others(plan: Plan, c: Random) -> None:
    """Schedules, groups of jobs and a topic, or some of them."""
    if c.random() < 0.5:
        for i in range(c.randint(1, 2)):
            missed = c.choice(["all", "all", "one", "skip"])
            add_schedule(plan, f"s{i}", c.choice([1, 1.5, 3]), missed, c.randrange(plan.nodes))
    if c.random() < 0.5:
        add_groups(plan, c.choice([0.0, 0.3, 1.0]), c.choice([0.0, 0.5]), c.choice([800, 2_000]))
    if c.random() < 0.4:
        add_topic(plan, c.choice([300, 800]))


def add_schedule(plan: Plan, name: str, every_s: float, missed: str, node: int) -> None:
    """A schedule of the tube."""
    args: dict[str, Any] = {"client": f"ks {name}", "tube": "k", "node": node, "name": name}
    args |= {"every_s": every_s, "missed": missed, "for_ms": plan.chaos_ms}
    plan.ops.append(Op(1_500, "task_scheduler", args))


def add_groups(plan: Plan, p_task: float, p_odd: float, idle_ms: int) -> None:
    """Somebody who makes groups of jobs, and workers for the children."""
    shared: dict[str, Any] = {"for_ms": plan.chaos_ms - 2_500, "tube": "k"}
    for i in range(2):
        makes = {"client": f"kg{i}", "node": i, "idle_ms": idle_ms, "p_task": p_task, **shared}
        plan.ops.append(Op(1_700 + i, "group_maker", makes))
    for i in range(3):
        works = {"client": f"kc{i}", "node": i, "idle_ms": 50, "work_ms": 300, "p_odd": p_odd}
        plan.ops.append(Op(1_800 + i, "child_worker", works | shared))
    for op in plan.ops:
        if op.kind == "task_worker":
            op.args["p_odd"] = p_odd


def add_topic(plan: Plan, idle_ms: int) -> None:
    """Somebody who subscribes, publishers at all nodes, and workers of the queues."""
    for_ms = plan.chaos_ms - 1_500
    keeps = {"client": "kt", "node": 0, "idle_ms": 500, "for_ms": for_ms}
    plan.ops.append(Op(700, "topic_keeper", keeps))
    for i in range(3):
        shared = {"node": i, "for_ms": for_ms}
        adds = {"client": f"ka{i}", "idle_ms": idle_ms, **shared}
        plan.ops.append(Op(900 + i, "topic_publisher", adds))
        works = {"client": f"kq{i}", "idle_ms": 50, **shared}
        plan.ops.append(Op(1_000 + i, "topic_worker", works))


def last_tasks(plan: Plan, span_ms: int) -> list[tuple[str, dict[str, Any]]]:
    """After the faults all tasks are taken and done."""
    tubes = [op.args for op in plan.ops if op.kind == "task_tube"]
    found: list[tuple[str, dict[str, Any]]] = []
    for tube in tubes:
        for i in range(3):
            args = {"client": f"{tube['tube']} last w{i}", "tube": tube["tube"], "node": i}
            args |= {"for_ms": span_ms, "idle_ms": 5, "timeout": 1_000, "work_ms": 5}
            found.append(("task_worker", args))
    for kind in ("child_worker", "topic_worker"):
        if any(op.kind == kind for op in plan.ops):
            for i in range(plan.nodes):
                args = {"client": f"last {kind} {i}", "node": i, "for_ms": span_ms}
                found.append((kind, args | {"idle_ms": 5, "work_ms": 5}))
    return found
