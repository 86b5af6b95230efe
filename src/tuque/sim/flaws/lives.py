"""Flaws in a job's work, enabled by switches.py: judges of judges/lives.py find them."""

from __future__ import annotations

from typing import Any, Final

from tuque.core.jobs import letters
from tuque.core.jobs.letters import go_dead
from tuque.core.life import base, runs
from tuque.core.model.job import Job
from tuque.core.model.life import Failure, Life, attempt_of
from tuque.core.model.refusal import Refusal
from tuque.core.node.node import Node
from tuque.core.replication.ack_gc import retire
from tuque.sim.engine.plan import Op, Plan
from tuque.sim.flaws.switches import Flaw, Patch, everywhere


def failures_count_twice() -> list[Patch]:
    """W5.2: a failure counts two attempts."""
    sound = runs.fail

    def fail(n: Node, job: Job, life: Life, *rest: Any) -> Any:
        life.failed = attempt_of(life.run) + 1
        return sound(n, job, life, *rest)

    return everywhere(sound, fail)


def fence_is_open() -> list[Patch]:
    """W3.1: the FAIL of an old run hits the run at work."""
    sound = base.check_run

    def check_run(job: Job, life: Life | None, run: int) -> Refusal | None:
        if life is not None and life.run != 0 and run < life.run and not life.is_dead:
            return None
        return sound(job, life, run)

    return everywhere(sound, check_run)


def reason_is_the_first() -> list[Patch]:
    """W6.5: a dead letter tells its first failure as its last."""
    sound = go_dead

    def dead(n: Node, job: Job, life: Life, cause: bytes) -> None:
        first = life.first
        if first is not None and life.last is not None:
            life.last = Failure(
                life.last.at_ms, first.attempt, first.worker, cause, first.reason, b""
            )
        sound(n, job, life, cause)

    return everywhere(sound, dead)


def letters_are_dropped() -> list[Patch]:
    """W6.5: a job that is given up is deleted."""

    def dead(n: Node, job: Job, life: Life, cause: bytes) -> None:
        letters.leave_line(n, job)
        retire(n, job)

    return everywhere(go_dead, dead)


def at_work(seed: int) -> Plan:
    """Producers, workers and people who read, cancel and replay, on three nodes; no faults."""
    plan = Plan(seed=f"at work {seed}", nodes=3, chaos_ms=15_000)
    plan.ops.append(Op(50, "add", {"client": "p", "node": 0, "queue": "q"}))
    for node in range(3):
        shared: dict[str, Any] = {"node": node, "for_ms": 14_000}
        plan.ops.append(Op(100, "life_producer", {
            "client": f"lp{node}", "attempts": [2, 3], "backoff": [0.1, 0.2, 0.5], "retry": [1],
            "keep": [90], "limit": [0], "ttl": [120], "delay": [0], "idle_ms": 300, **shared,
        }))  # fmt: skip
        plan.ops.append(Op(101, "life_worker", {
            "client": f"lw{node}", "work_ms": 50, "idle_ms": 20, "timeout": 500, "p_fail": 0.5,
            "p_final": 0.1, "p_silent": 0.4, "p_late": 1.0, "p_move": 0.3, "p_twice": 0.3,
            **shared,
        }))  # fmt: skip
        plan.ops.append(Op(102, "life_boss", {"client": f"lb{node}", "idle_ms": 100, **shared}))
    return plan


LIFE_FLAWS: Final = [
    Flaw("w1", "a failure counts two attempts", failures_count_twice, 5, at_work),
    Flaw("w2", "FAIL of an old run counts", fence_is_open, 5, at_work),
    Flaw("w3", "a dead letter has its first reason", reason_is_the_first, 5, at_work),
    Flaw("w4", "jobs that are given up are deleted", letters_are_dropped, 5, at_work),
]
LIFE_RULES: Final = {
    "w1": "life-attempts", "w2": "life-fence", "w3": "life-reason", "w4": "life-outcome",
}  # fmt: skip
