"""Flaws in a job's work, enabled by switches.py: judges of judges/lives.py find them."""

from __future__ import annotations

from typing import Any, Final

from mypy_extensions import i64

from sim.engine.plan import Op, Plan
from sim.flaws.switches import Flaw, Patch, everywhere
from tuque.core.copies.ack_gc import retire
from tuque.core.life import cancel_update, outcomes, runs
from tuque.core.model.errors import Refusal
from tuque.core.model.job import QUEUED, Job
from tuque.core.model.work import (
    LIVE,
    Failure,
    Life,
    attempt_of,
)
from tuque.core.node.node import Node
from tuque.core.node.peers import set_due
from tuque.core.queues import work_copies
from tuque.core.queues.ends import life_of
from tuque.core.queues.work_copies import go_dead
from tuque.core.tables.work import Change
from tuque.core.work import merge, rules


def failures_count_twice() -> list[Patch]:
    """W5.2: a failure counts two attempts."""
    sound = runs.fail

    def fail(n: Node, job: Job, life: Life, *rest: Any) -> Any:
        life.failed = attempt_of(life.run) + 1
        return sound(n, job, life, *rest)

    return everywhere(sound, fail)


def fence_is_open() -> list[Patch]:
    """W3.1: the FAIL of an old run hits the run at work."""
    sound = rules.check_run

    def check_run(work: Life | None, run: int, queue: bytes) -> Refusal | None:
        if work is not None and work.run != 0 and run < work.run and not work.is_dead:
            return None
        return sound(work, run, queue)

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
        work_copies.leave_line(n, job)
        retire(n, job)

    return everywhere(go_dead, dead)


def beats_are_not_heard() -> list[Patch]:
    """W3.2: WORKING is accepted, and the run is silent RETRY from its START all the same."""
    sound = runs.on_work

    def on_work(n: Node, id: bytes, run: i64, client: i64) -> Refusal | None:
        job = n.jobs.get(id)
        due_ms = job.qtime_ms if job is not None else 0
        refused = sound(n, id, run, client)
        if refused is None and job is not None and life_of(n, id) is not None:
            set_due(n, job, due_ms)
        return refused

    return everywhere(sound, on_work)


def failures_are_not_merged() -> list[Patch]:
    """W14.2: a node does not count what failed elsewhere."""
    sound = merge.merge

    def merged(mine: Life, theirs: Life) -> bool:
        failed = mine.failed
        is_replayed: bool = sound(mine, theirs)
        if not is_replayed:
            mine.failed = failed
        return is_replayed

    return everywhere(sound, merged)


def cancelled_jobs_go_on() -> list[Patch]:
    """W8.1: CANCEL of a job that nobody has says that it ended, and the job goes on."""
    sound = cancel_update.on_cancel

    def on_cancel(
        n: Node, id: bytes, reason: bytes, is_asked: bool = False
    ) -> tuple[int, Refusal | None, Change | None]:
        job = n.jobs.get(id)
        if job is not None and job.state == QUEUED:
            return cancel_update.ENDED, None, None
        became: tuple[int, Refusal | None, Change | None] = sound(n, id, reason, is_asked)
        return became

    return everywhere(sound, on_cancel)


def late_results_stand() -> list[Patch]:
    """W14.6: the DONE of another run replaces the outcome that is kept, and maybe was read."""

    def adopt_late(n: Node, id: bytes, data: bytes) -> i64:
        kept = n.life.known(id)
        outcome = work_copies.unpack_outcome(n, id, data) if kept is not None and data else None
        if kept is not None and outcome is not None and merge.is_better(kept, outcome):
            outcome.is_claim = False
            work_copies.stand_for(n, kept, outcome)
        return work_copies.SAME

    return everywhere(work_copies.adopt_late, adopt_late)


def silence_is_not_seen() -> list[Patch]:
    """W6.1: nothing happens when a run was silent for RETRY."""
    sound = runs.on_late

    def on_late(n: Node, job: Job) -> bool:
        life = life_of(n, job.id)
        if life is not None and life.run_state == LIVE:
            set_due(n, job, n.now_ms + i64(job.retry_s) * 1000)
            return True
        return sound(n, job)

    return everywhere(sound, on_late)


def failures_end_waits() -> list[Patch]:
    """W9.2: WAITJOB names a job that failed once, and will run again."""
    sound = outcomes.is_settled

    def is_settled(n: Node, id: bytes) -> bool:
        life = life_of(n, id)
        return (life is not None and life.failed > 0) or sound(n, id)

    return everywhere(sound, is_settled)


def at_work(seed: int, nodes: int = 3, workers: int = 1, **habits: Any) -> Plan:
    """Producers, workers and people who read and replay; no faults.

    `habits` are of the workers, and of those who cancel.
    """
    plan = Plan(seed=f"at work {seed}", nodes=nodes, chaos_ms=15_000)
    plan.ops.append(Op(50, "add", {"client": "p", "node": 0, "queue": "q"}))
    for node in range(nodes):
        shared: dict[str, Any] = {"node": node, "for_ms": 14_000}
        plan.ops.append(Op(100, "life_producer", {
            "client": f"lp{node}", "attempts": [2, 3], "backoff": [0.1, 0.2, 0.5], "retry": [1],
            "keep": [90], "limit": [0], "ttl": [120], "delay": [0], "idle_ms": 300, **shared,
        }))  # fmt: skip
        for i in range(workers):
            plan.ops.append(Op(101, "life_worker", {
                "client": f"lw{node + nodes * i}", "work_ms": 50, "idle_ms": 20, "timeout": 500,
                "p_fail": 0.5, "p_final": 0.1, "p_silent": 0.4, "p_late": 1.0, "p_move": 0.3,
                "p_twice": 0.3, **habits, **shared,
            }))  # fmt: skip
        boss = {"client": f"lb{node}", "idle_ms": 100, **habits, **shared}
        plan.ops.append(Op(102, "life_boss", boss))
    return plan


def beating(seed: int) -> Plan:
    """Workers that say WORKING for longer than RETRY."""
    return at_work(seed, p_beat=0.8, p_silent=0.0)


def cancelling(seed: int) -> Plan:
    """People who cancel jobs."""
    return at_work(seed, p_cancel=0.3, work_ms=500)


def late_dones(seed: int) -> Plan:
    """Workers that say DONE late, where nobody has the job."""
    return at_work(seed, nodes=5, workers=4, p_fail=0.1, p_move=1.0)


def waiting(seed: int) -> Plan:
    """People who wait for jobs that fail."""
    return at_work(seed, p_wait=0.9, p_fail=0.9, p_silent=0.0)


def falling_silent(seed: int) -> Plan:
    """Workers that are never heard of again."""
    return at_work(seed, nodes=1, p_late=0.0)


def edits_stay_at_one_node() -> list[Patch]:
    """W16.3: a holder confirms an UPDATEJOB and keeps its own body."""
    sound = work_copies.take_edit

    def take_edit(n: Node, job: Job, mine: Life, theirs: Life, body: bytes, left_ms: int) -> None:
        sound(n, job, mine, theirs, job.body, left_ms)

    return everywhere(sound, take_edit)


def editing(seed: int) -> Plan:
    """People who give jobs other bodies."""
    plan = at_work(seed, work_ms=500)
    for node in range(3):
        args = {"client": f"le{node}", "node": node, "for_ms": 14_000, "idle_ms": 30}
        plan.ops.append(Op(103, "life_editor", args))
    return plan


LIFE_FLAWS: Final = [
    Flaw("w1", "a failure counts two attempts", failures_count_twice, 5, at_work),
    Flaw("w2", "FAIL of an old run counts", fence_is_open, 5, at_work),
    Flaw("w3", "a dead letter has its first reason", reason_is_the_first, 5, at_work),
    Flaw("w4", "jobs that are given up are deleted", letters_are_dropped, 5, at_work),
    Flaw("w5", "WORKING postpones nothing", beats_are_not_heard, 5, beating),
    Flaw("w6", "failures elsewhere do not count", failures_are_not_merged, 5, at_work),
    Flaw("w7", "cancelled jobs go on", cancelled_jobs_go_on, 5, cancelling),
    Flaw("w8", "a late DONE changes the result", late_results_stand, 5, late_dones),
    Flaw("w9", "silence is not seen", silence_is_not_seen, 5, falling_silent),
    Flaw("w10", "a failure ends WAITJOB", failures_end_waits, 5, waiting),
    Flaw("w11", "edits stay at one node", edits_stay_at_one_node, 5, editing),
]
LIFE_RULES: Final = {
    "w1": "life-attempts", "w2": "life-fence", "w3": "life-reason", "w4": "life-outcome",
    "w5": "life-two", "w6": "life-count", "w7": "life-cancel", "w8": "life-result",
    "w9": "life-stuck", "w10": "life-wait", "w11": "life-edit",
}  # fmt: skip
