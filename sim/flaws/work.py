"""More flaws in a job's work: one for each promise that no flaw of lives.py breaks."""

from __future__ import annotations

from typing import Any, Final

from mypy_extensions import i64

from sim.engine.plan import Op, Plan
from sim.flaws.lives import at_work, editing, falling_silent
from sim.flaws.switches import Flaw, Patch, everywhere
from sim.flaws.tubes import one_tube
from tuque.core.life import (
    cancel_update,
    holders,
    outcomes,
    runs,
    start,
)
from tuque.core.life.holders import make_life
from tuque.core.model.errors import Refusal
from tuque.core.model.job import Job, Update
from tuque.core.model.task import Task
from tuque.core.model.work import (
    NO_TERMS,
    Failure,
    Life,
    run_of,
)
from tuque.core.node.node import Node
from tuque.core.queues import work_copies
from tuque.core.queues.work_copies import go_dead
from tuque.core.tables.work import Change, Lives
from tuque.core.work import rules
from tuque.server.commands import dead
from tuque.server.commands import results as waits
from tuque.server.state.client import Client, Wanted
from tuque.server.state.server import Server
from tuque.tubes.model import options
from tuque.tubes.model.tube import Tube
from tuque.tubes.model.tubes import Tubes
from tuque.tubes.policy import TubePolicy
from tuque.tubes.work import transitions


def begun_in_words_only() -> list[Patch]:
    """W17.1: GETJOB START tells a run, and none has begun."""

    def begin_delivered(n: Node, job: Job, worker: bytes, client: i64) -> Life | None:
        life = Life(NO_TERMS, b"")
        life.run = run_of(1, 1, holders.hash_here(n, worker))
        return life

    return everywhere(start.begin_delivered, begin_delivered)


def tokens_are_alike() -> list[Patch]:
    """W1.2: the token does not say who runs the job."""

    def hash_here(n: Node, worker: bytes) -> int:
        return 0

    return everywhere(holders.hash_here, hash_here)


def outcomes_go_early() -> list[Patch]:
    """W7.2: the outcome is kept for a tenth of KEEP."""
    sound = Lives.forget_old

    def forget_old(self: Lives, now_ms: int, limit_bytes: int) -> None:
        sound(self, now_ms + 81_000, limit_bytes)

    return [(Lives, "forget_old", forget_old)]


def letters_have_no_reason() -> list[Patch]:
    """W6.5: a dead letter does not say why its last attempt failed."""
    sound = go_dead

    def dead_letter(n: Node, job: Job, life: Life, cause: bytes) -> None:
        life.first = life.last = None
        sound(n, job, life, cause)

    return everywhere(sound, dead_letter)


def starts_are_not_counted() -> list[Patch]:
    """W1.2: each run of a job has the number of the first one."""
    sound = holders.Holders.begin

    def begin(
        self: holders.Holders, n: Node, job: Job, work: Life, worker: bytes, client: i64
    ) -> None:
        work.starts = 0
        sound(self, n, job, work, worker, client)

    return [(holders.Holders, "begin", begin)]


def letters_forget_an_attempt() -> list[Patch]:
    """W6.5: a dead letter has lost its last attempt."""
    sound = go_dead

    def dead_letter(n: Node, job: Job, life: Life, cause: bytes) -> None:
        if life.failed > 1:
            life.failed -= 1
            last = life.last
            if last is not None:
                reason = b"of %d." % life.failed + last.reason.partition(b".")[2]
                life.last = Failure(
                    last.at_ms, life.failed, last.worker, last.cause, reason, last.detail
                )
        sound(n, job, life, cause)

    return everywhere(sound, dead_letter)


def refused_edits_stand() -> list[Patch]:
    """W10.2: UPDATEJOB of a job that a worker has is refused, and the body is changed."""
    sound = cancel_update.why_not

    def why_not(n: Node, job: Job, life: Life | None, edit: Update) -> Refusal | None:
        refused = sound(n, job, life, edit)
        if refused is not None and edit.body is not None:
            work_copies.set_body(n, job, edit.body)
        return refused

    return everywhere(sound, why_not)


def ends_are_not_named() -> list[Patch]:
    """W9.2: WAITJOB does not name jobs whose outcome is kept."""
    sound = waits.put_ended

    def put_ended(s: Server, c: Client, wanted: Wanted) -> None:
        wanted.ids = [id for id in wanted.ids if s.n.life.known(id) is None]
        sound(s, c, wanted)

    return everywhere(sound, put_ended)


def all_ends_are_done() -> list[Patch]:
    """W9.2: WAITJOB calls each outcome `done`."""
    sound = outcomes.outcome_of

    def outcome_of(n: Node, id: bytes) -> bytes:
        return b"done" if sound(n, id) else b""

    return everywhere(sound, outcome_of)


def bodies_are_cut() -> list[Patch]:
    """W10.1: UPDATEJOB gives the job another body than it was told."""
    sound = work_copies.set_body

    def set_body(n: Node, job: Job, body: bytes) -> None:
        sound(n, job, body + b"9")

    return everywhere(sound, set_body)


def rate_is_ignored() -> list[Patch]:
    """W12.7: DEAD REPLAY with RATE queues all letters at once."""
    sound = dead.LetterChore.step

    def step(self: dead.LetterChore, room: int) -> bool:
        self.rate = dead.RATE_MAX
        return bool(sound(self, room))

    return [(dead.LetterChore, "step", step)]


def silence_is_an_attempt() -> list[Patch]:
    """W6.7: the loss of a worker uses up an attempt of the jobs that it had."""
    sound = runs.fail

    def fail(n: Node, job: Job, life: Life, *rest: Any) -> Any:
        return sound(n, job, life, *rest[:5])

    return everywhere(sound, fail)


def crashes_count_twice() -> list[Patch]:
    """W6.7: a run that ended in silence adds two to `crashes`."""
    sound = rules.count_failure

    def count_failure(work: Life, attempt: int, is_silent: bool, crashes_max: int) -> bool:
        work.crashes += is_silent
        return bool(sound(work, attempt, is_silent, crashes_max))

    return everywhere(sound, count_failure)


def one_crash_is_the_last() -> list[Patch]:
    """W6.7: a job is dead after its first crash, whatever `crashes-max` is."""
    sound = rules.count_failure

    def count_failure(work: Life, attempt: int, is_silent: bool, crashes_max: int) -> bool:
        return bool(sound(work, attempt, is_silent, 1))

    return everywhere(sound, count_failure)


def pri_is_not_set() -> list[Patch]:
    """T1.10: UPDATEJOB PRI says OK, and the task has its old pri."""

    def set_pri(self: TubePolicy, n: Node, task: Task, pri: int) -> bool:
        return True

    return [(TubePolicy, "set_pri", set_pri)]


def place_is_not_changed() -> list[Patch]:
    """T1.10: a READY task has another pri, and is taken in its old place."""

    def set_pri(n: Node, t: Tubes, tube: Tube, task: Task, pri: int) -> None:
        task.pri = pri
        transitions.record_whole(n, tube, task)
        transitions.tell(n, t, tube, task, options.UPDATE)

    return everywhere(transitions.set_pri, set_pri)


def ended_unasked() -> list[Patch]:
    """W16.8: a node asks no holder before it ends a job that is cancelled."""
    sound = cancel_update.ask_more

    def ask_more(n: Node, job: Job, change: Change) -> None:
        if change.update is not None:
            sound(n, job, change)

    return everywhere(sound, ask_more)


def flagged_in_words_only() -> list[Patch]:
    """W16.8: a holder says that it has flagged the job, and does nothing."""

    def set_aside(n: Node, job: Job, reason: bytes) -> None:
        pass

    return everywhere(cancel_update.set_aside, set_aside)


def flag_stays_queued() -> list[Patch]:
    """W16.8: a holder flags the job, and hands it out all the same."""

    def set_aside(n: Node, job: Job, reason: bytes) -> None:
        work = make_life(n, job)
        rules.flag(work, reason)
        n.life.weigh(work)

    return everywhere(cancel_update.set_aside, set_aside)


def two_decide() -> list[Patch]:
    """W16.1: the node of the client makes an UPDATEJOB, and asks another one to decide."""
    sound = cancel_update.choose

    def choose(n: Node, change: Change) -> None:
        sound(n, change)
        job, wanted = n.jobs.get(change.id), change.update
        if change.decider != 0 and job is not None and wanted is not None:
            cancel_update.update_job(n, job, wanted)

    return everywhere(sound, choose)


def links_are_not_awaited() -> list[Patch]:
    """W16.9: a node that has just started ends a cancelled job before it is linked to others."""

    def is_awaited(n: Node, job: Job) -> bool:
        return False

    return [(cancel_update, "is_awaited", is_awaited)]


# ---- plans that reveal them


def beginning(seed: int) -> Plan:
    """Workers whose runs begin with the delivery."""
    return at_work(seed, p_begin=0.9)


def apart(seed: int) -> Plan:
    """Workers at nodes that do not hear each other for a while."""
    plan = at_work(seed, workers=2, p_fail=0.1, p_silent=0.1, work_ms=2_500)
    for i in range(3):
        args = {"a": [i], "b": [(i + 1) % 3, (i + 2) % 3], "for_ms": 3_000}
        plan.ops.append(Op(1_500 + i * 4_000, "cut", args))
    plan.faults, plan.is_faultless = ["cut"], False
    return plan


def failing(seed: int) -> Plan:
    """Jobs that use up their attempts."""
    return at_work(seed, p_fail=0.95, p_silent=0.0, p_final=0.0)


def ending(seed: int) -> Plan:
    """People who wait for jobs, and people who cancel them."""
    return at_work(seed, p_wait=0.6, p_cancel=0.3, p_fail=0.2, work_ms=500)


def cancelling_afar(seed: int) -> Plan:
    """Nodes that are far apart: a holder hands out a job, whose delay is over, until it hears
    of the CANCEL at the other one.
    """
    habits: dict[str, Any] = {
        "p_cancel": 0.8,
        "p_fail": 0.1,
        "p_silent": 0.0,
        "p_move": 0.0,
        "work_ms": 50,
    }
    plan = at_work(seed, workers=2, **habits)
    plan.delay_us = 60_000
    for op in plan.ops:
        if op.kind == "life_producer":
            op.args |= {"idle_ms": 50, "retry": [5], "delay": [1]}
        elif op.kind == "life_boss":
            op.args["idle_ms"] = 20
    crowd(plan)
    return plan


def crowd(plan: Plan) -> None:
    """Five producers and five of those who cancel, in place of each."""
    for op in list(plan.ops):
        if op.kind in ("life_producer", "life_boss"):
            for more in range(4):
                client = f"{op.args['client']} {more}"
                plan.ops.append(Op(op.at_ms, op.kind, {**op.args, "client": client}))
    plan.ops.sort(key=lambda op: op.at_ms)


def cancelling_after_starts(seed: int) -> Plan:
    """Nodes are killed and start again, and jobs are cancelled there whose delay ends elsewhere."""
    habits: dict[str, Any] = {"p_begin": 1, "p_fail": 0.0, "p_silent": 0.0, "p_move": 0.0}
    plan = at_work(seed, work_ms=20, timeout=50, p_cancel=0.9, **habits)
    plan.policy, plan.faults, plan.is_faultless = "always", ["kill"], False
    plan.node_timeout_ms, plan.delay_us = 5_000, 60_000
    for op in plan.ops:
        if op.kind == "life_producer":
            op.args |= {"idle_ms": 50, "retry": [6], "delay": [1]}
        elif op.kind == "life_boss":
            op.args["idle_ms"] = 20
    crowd(plan)
    for k in range(9):
        plan.ops.append(Op(1_500 + 1_300 * k + seed % 7 * 50, "crash", {
            "node": k % 3, "how": "kill", "back": "disk", "fuse": 0, "down_ms": 100,
        }))  # fmt: skip
    return plan


def editing_afar(seed: int) -> Plan:
    """People who give jobs other bodies, at nodes so far apart that a worker gets one meanwhile."""
    plan = at_work(seed, p_fail=0.5, p_silent=0.0, work_ms=50)
    plan.delay_us = 60_000
    for node in range(3):
        for more in range(3):
            plan.ops.append(Op(103, "life_editor", {
                "client": f"le{node} {more}", "node": node, "for_ms": 14_000, "idle_ms": 30,
            }))  # fmt: skip
    return plan


def replaying(seed: int) -> Plan:
    """Jobs that fail soon, and people who replay them slowly."""
    plan = at_work(seed, p_fail=0.95, p_final=0.9, p_silent=0.0, work_ms=5)
    for node in range(3):
        plan.ops.append(Op(103, "life_replayer", {
            "client": f"lr{node}", "node": node, "for_ms": 14_000, "idle_ms": 500, "rate": [2, 5],
        }))  # fmt: skip
    return plan


def repricing(seed: int) -> Plan:
    """A tube whose tasks get other pris."""
    plan = one_tube(seed)
    plan.seed = f"pris {seed}"
    plan.ops.append(Op(70, "tube_meddler", {
        "client": "u", "verbs": ["PRI"], "idle_ms": 60, "tube": "t0", "node": 0, "for_ms": 11_000,
    }))  # fmt: skip
    plan.ops.sort(key=lambda op: op.at_ms)
    return plan


WORK_FLAWS: Final = [
    Flaw("w12", "GETJOB START begins nothing", begun_in_words_only, 5, beginning),
    Flaw("w13", "two workers have one token", tokens_are_alike, 60, apart),
    Flaw("w14", "outcomes go before KEEP is over", outcomes_go_early, 5, at_work),
    Flaw("w15", "dead letters have no reason", letters_have_no_reason, 5, at_work),
    Flaw("w16", "STARTs are not counted", starts_are_not_counted, 5, at_work),
    Flaw("w17", "dead letters lose an attempt", letters_forget_an_attempt, 5, failing),
    Flaw("w18", "refused edits are made", refused_edits_stand, 10, editing),
    Flaw("w19", "RATE is ignored", rate_is_ignored, 5, replaying),
    Flaw("w20", "WAITJOB does not name what ended", ends_are_not_named, 5, ending),
    Flaw("w21", "WAITJOB says done of all", all_ends_are_done, 5, ending),
    Flaw("w22", "UPDATEJOB changes the body otherwise", bodies_are_cut, 5, editing),
    Flaw("w23", "the loss of a worker is an attempt", silence_is_an_attempt, 5, falling_silent),
    Flaw("w24", "a crash counts twice", crashes_count_twice, 5, falling_silent),
    Flaw("w25", "crashes-max is ignored", one_crash_is_the_last, 5, falling_silent),
    Flaw("w26", "CANCEL asks no holder", ended_unasked, 5, cancelling_afar),
    Flaw("w27", "a flag of CANCEL is none", flagged_in_words_only, 5, cancelling_afar),
    Flaw("w28", "a flagged job is handed out", flag_stays_queued, 20, cancelling_afar),
    Flaw("w29", "two nodes decide about an edit", two_decide, 10, editing_afar),
    Flaw("w30", "links are not waited for", links_are_not_awaited, 10, cancelling_after_starts),
    Flaw("t24", "UPDATEJOB PRI does nothing", pri_is_not_set, 5, repricing),
    Flaw("t25", "a new pri does not move the task", place_is_not_changed, 5, repricing),
]
WORK_RULES: Final = {
    "w12": "life-count", "w13": "life-two", "w14": "life-result", "w15": "life-reason",
    "w16": "life-count", "w17": "life-count", "w18": "life-edit", "w19": "life-rate",
    "w20": "life-wait", "w21": "life-wait", "w22": "life-edit",
    "w23": "life-crash", "w24": "life-crash", "w25": "life-crash",
    "w26": "life-cancel", "w27": "life-cancel", "w28": "life-cancel",
    "w29": "life-edit", "w30": "life-cancel",
    "t24": "tube-pri", "t25": "tube-order",
}  # fmt: skip
