"""Flaws of restarts and of new links (SPEC Q11, Q12), for switches.py."""

from __future__ import annotations

from typing import Final

from sim.engine.plan import Op, Plan
from sim.flaws.switches import Flaw, Patch, everywhere
from tuque.core.model.job import Job
from tuque.core.node.node import Node
from tuque.core.repair import claims, node_loss
from tuque.server.journal.committer import Committer
from tuque.server.journal.thread import ALWAYS


def queued_without_asking() -> list[Patch]:
    """A restarted node trusts the due times of its journal."""

    def doubt_due(n: Node, job: Job, was_queued: bool) -> bool:
        return False

    return everywhere(claims.doubt_due, doubt_due)


def links_settle_nothing() -> list[Patch]:
    """Two nodes that are linked again do not settle which of them serves a job."""

    def begin_settling(n: Node, slot: int) -> None:
        claims.settle_link_up(n, slot)

    return everywhere(node_loss.begin_settling, begin_settling)


def answers_say_nothing() -> list[Patch]:
    """A node that is asked about a held job gives way, even if a worker has it."""

    def answer_claim(n: Node, slot: int, job: Job, stand: int) -> None:
        return

    return everywhere(claims.answer_claim, answer_claim)


def outages(seed: int) -> Plan:
    """Nodes with journals are killed, all at once or one by one; workers are slow."""
    plan = Plan(seed=f"outages {seed}", nodes=3 + seed % 3, policy="always", chaos_ms=25_000)
    plan.is_faultless, plan.faults, plan.check_every = False, ["kill"], 200
    for i in range(30):
        plan.ops.append(Op(20 * i, "add", {
            "client": f"p{i % 3}", "node": i % 3, "queue": "q", "repl": 3, "retry": 5 + i % 4,
            "ttl": 120,
        }))  # fmt: skip
    for node in range(plan.nodes):
        plan.ops.append(Op(1_000 + 100 * node, "worker", {
            "client": f"w{node}", "node": node, "queues": ["q"], "for_ms": 22_000,
            "work_ms": 2_500 + seed % 3 * 700, "count": 2, "idle_ms": 100, "timeout": 1_000,
        }))  # fmt: skip
    for k in range(8):
        at_ms = 4_500 + 2_500 * k + seed % 7 * 100
        for node in range(plan.nodes) if k % 4 == 3 else [k % plan.nodes]:
            plan.ops.append(Op(at_ms, "crash", {
                "node": node, "how": "kill", "back": "disk", "fuse": 0,
                "down_ms": 100 + (seed * 31 + node * 67 + k * 131) % 900,
            }))  # fmt: skip
    plan.ops.sort(key=lambda op: op.at_ms)
    return plan


def answers_before_writes() -> list[Patch]:
    """J4.2: under `everysec` replies leave while their record waits in memory."""
    sound = Committer.must_hold

    def must_hold(self: Committer, seq: int) -> bool:
        return self.policy == ALWAYS and sound(self, seq)

    return [(Committer, "must_hold", must_hold)]


def rewrites(seed: int, policy: str = "everysec", after_ms: int = 2) -> Plan:
    """A node is killed soon after it began to rewrite its journal, under load."""
    plan = Plan(seed=f"rewrites {seed}", nodes=1, policy=policy, sync_us=6_000, chaos_ms=12_000)
    plan.is_faultless, plan.faults, plan.check_every = False, ["kill"], 200
    for k in range(8):
        at_ms = 1_000 + 1_300 * k
        plan.ops.append(Op(at_ms, "rewrite", {"node": 0}))
        for i in range(40):
            plan.ops.append(Op(at_ms - 20 + i, "add", {
                "client": f"p{i % 4}", "node": 0, "queue": "q", "repl": 1, "retry": 5, "ttl": 120,
            }))  # fmt: skip
        plan.ops.append(Op(at_ms + after_ms + (seed * 31 + k * 67) % 20, "crash", {
            "node": 0, "how": "kill", "back": "disk", "fuse": 0, "down_ms": 100,
        }))  # fmt: skip
    plan.ops.sort(key=lambda op: op.at_ms)
    return plan


def split_backlog(seed: int) -> Plan:
    """Jobs wait for workers while their holders are partitioned."""
    plan = Plan(seed=f"split {seed}", nodes=3, chaos_ms=20_000, is_faultless=False)
    plan.faults = ["cut"]
    for i in range(30):
        plan.ops.append(Op(20 * i, "add", {
            "client": "p", "node": i % 3, "queue": "q", "repl": 2 + i % 2, "retry": 2 + i % 3,
            "ttl": 120,
        }))  # fmt: skip
    for a, b in ((0, 1), (0, 2), (1, 2)):
        span_ms = 10_000 + (seed * 7 + a + b) % 5 * 700
        plan.ops.append(Op(2_000, "cut", {"a": [a], "b": [b], "for_ms": span_ms}))
    return plan


RESTART_FLAWS: Final = [
    Flaw("q1", "jobs of a journal are queued unasked", queued_without_asking, 5, outages),
    Flaw("q2", "links that come up settle nothing", links_settle_nothing, 5, split_backlog),
    Flaw("j1", "answers leave before their record is written", answers_before_writes, 5, rewrites),
    Flaw("q3", "a node that is asked hides its worker", answers_say_nothing, 5, outages),
]
