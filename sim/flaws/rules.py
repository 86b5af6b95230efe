"""Rules of the SPEC, each disabled by a flaw for switches.py, and a load that reveals it."""

from __future__ import annotations

from typing import Final

from sim.engine.plan import Op, Plan
from sim.flaws.switches import Flaw, Patch, everywhere
from tuque.core.copies import ack_gc, federation
from tuque.core.model.job import ACKED, Job
from tuque.core.msgs.bus import SetAck
from tuque.core.node.node import Node
from tuque.core.node.queue import Queue
from tuque.core.queues import deliver

LATE_MS: Final = 5_000


def named_are_not_joined() -> list[Patch]:
    """A4.2: a node that receives an ack uses its own list of holders."""
    sound = ack_gc.on_setack

    def on_setack(n: Node, slot: int, m: SetAck) -> None:
        job = n.jobs.get(m.id)
        if job is None or job.state == ACKED:
            sound(n, slot, m)
            return
        holders = int(job.holders)
        become = ack_gc.become_acked

        def become_acked(n: Node, job: Job) -> None:
            job.holders = holders
            become(n, job)

        ack_gc.become_acked = become_acked
        sound(n, slot, m)
        ack_gc.become_acked = become

    return everywhere(sound, on_setack)


def slow_answers(seed: int) -> Plan:
    """Copies are confirmed late, so that more and more nodes are sent one (R4.1).

    The first one may not know of the last. The job is acked where it was added as soon as possible;
    the last one learns of that last.
    """
    plan = Plan(seed=f"answers {seed}", nodes=4, chaos_ms=20_000, node_timeout_ms=5_000)
    plan.is_faultless = False
    plan.faults = ["slow"]
    for a, b, extra_ms in ((1, 0, 250), (2, 0, 250), (3, 0, 250), (0, 3, 40)):
        args = {"a": a, "b": b, "extra_ms": extra_ms, "for_ms": 19_000}
        plan.ops.append(Op(0, "slow", args))
    plan.ops.append(Op(300, "worker", {
        "client": "w", "node": 0, "queues": ["q"], "for_ms": 18_000, "work_ms": 1, "count": 10,
    }))  # fmt: skip
    for i in range(60):
        plan.ops.append(Op(500 + 300 * i, "add", {
            "client": "p", "node": 0, "queue": "q", "repl": 2, "retry": 5, "ttl": 120,
        }))  # fmt: skip
    return plan


def ends_are_late() -> list[Patch]:
    """V2.3: GETJOB delivers expired jobs for some seconds."""
    sound = deliver.take

    def take(n: Node, q: Queue, client: int) -> Job | None:
        first = q.first() if q.policy is None else None
        if first is None or not first.expire_ms <= n.now_ms < first.expire_ms + LATE_MS:
            return sound(n, q, client)
        first.expire_ms += LATE_MS
        job = sound(n, q, client)
        first.expire_ms -= LATE_MS
        return job

    return everywhere(sound, take)


def stood_still_over_the_end(seed: int) -> Plan:
    """A node stands still while its jobs expire; meanwhile a connected client asks for them.

    Timers run after commands: GETJOB itself must see that the jobs have expired.
    """
    plan = Plan(seed=f"still {seed}", nodes=1 + seed % 3, chaos_ms=20_000, node_timeout_ms=5_000)
    plan.is_faultless = False
    plan.faults = ["pause"]
    for i in range(4):
        at_ms = 500 + 5_000 * i
        for k in range(3):
            plan.ops.append(Op(at_ms + k, "add", {
                "client": "p", "node": 0, "queue": "q", "repl": 1, "retry": 1, "ttl": 2,
            }))  # fmt: skip
        plan.ops.append(Op(at_ms + 1_000, "pause", {"node": 0, "for_ms": 2_500 + seed % 7 * 100}))
        plan.ops.append(Op(at_ms - 300, "worker", {
            "client": f"w{i}", "node": 0, "queues": ["q"], "for_ms": 4_500, "work_ms": 5,
            "count": 10, "nohang": True, "idle_ms": 1_800,
        }))  # fmt: skip
    return plan


def moves_are_told_by_the_sender_alone() -> list[Patch]:
    """F3.7: a node that now serves a job leaves it to the sender to inform the others."""

    def tell_served(n: Node, slot: int, job: Job) -> None:
        return

    return everywhere(federation.tell_served, tell_served)


def moved_beside_a_cut(seed: int) -> Plan:
    """Jobs move from 0 to 1 while 2, which has no link to 0, has queued them too.

    1 and 2 are always linked, so that no new link makes them settle. RETRY is so long that no
    WILLQUEUE of 0 comes before the check of all queues.
    """
    plan = Plan(seed=f"beside {seed}", nodes=3, chaos_ms=20_500, is_faultless=False)
    plan.faults = ["cut"]
    for i in range(30):
        plan.ops.append(Op(10 * i, "add", {
            "client": "p", "node": 0, "queue": "q", "repl": 3, "retry": 16, "ttl": 120,
        }))  # fmt: skip
    plan.ops.append(Op(1_000, "cut", {"a": [0], "b": [2], "for_ms": 19_000}))
    plan.ops.append(Op(17_500, "worker", {
        "client": "w", "node": 1, "queues": ["q"], "for_ms": 1_500,
        "work_ms": 200 + seed % 3 * 100, "count": 1, "idle_ms": 100, "timeout": 500,
    }))  # fmt: skip
    return plan


RULE_FLAWS: Final = [
    Flaw("r1", "holders that SETACK names are not joined", named_are_not_joined, 10, slow_answers),
    Flaw("r2", "expired jobs are delivered", ends_are_late, 5, stood_still_over_the_end),
    Flaw(
        "r3", "only the sender announces a move", moves_are_told_by_the_sender_alone, 5,
        moved_beside_a_cut,
    ),
]  # fmt: skip
