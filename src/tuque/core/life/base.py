"""What the words about work share: the open job, its life, its run (SPEC W2, W3)."""

from typing import Final

from mypy_extensions import i64

from tuque.core.jobs.endings import life_of
from tuque.core.jobs.transitions import dequeue, policy_of
from tuque.core.model.job import ACKED, QUEUED, WAIT_REPL, Job
from tuque.core.model.life import (
    CANCELLED,
    CRASHED,
    FAILED,
    LIVE,
    NO_TERMS,
    TIMED_OUT,
    Failure,
    Life,
    attempt_of,
    hash_of,
    is_of_life,
    run_text,
    starts_of,
)
from tuque.core.model.refusal import (
    ACKED_ALREADY,
    CANCELLED_JOB,
    DEAD_LETTER,
    FAILED_RUN,
    NO_RUN_YET,
    NOJOB,
    NOTDELIVERED,
    OVER_RUN,
    OVER_TIME,
    STALE_RUN,
    TASK_APART,
    TASK_WORK,
    Refusal,
)
from tuque.core.model.task import Task
from tuque.core.node.node import Node
from tuque.core.node.slots import slots_of
from tuque.core.outbox.events import RUN_CRASHED, RUN_FAILED, RUN_TIMED_OUT

OUTLIVE_MS: Final = 60_000  # timers may be late: a silent run fails before its job expires (W6.3)


def open_job(n: Node, id: bytes) -> tuple[Job | None, Refusal | None]:
    """The open job with that id, or why there is none to work on (W2.2)."""
    return if_open(n, id, n.jobs.get(id))


def if_open(n: Node, id: bytes, job: Job | None) -> tuple[Job | None, Refusal | None]:
    """As `open_job`; `job`: the one that has the id."""
    if job is None or job.state == ACKED:
        outcome = n.life.kept.get(id) if n.has_lives else None
        if outcome is not None:
            if outcome.kind == CANCELLED:
                return None, Refusal(CANCELLED_JOB, (outcome.reason,))
            return None, Refusal(ACKED_ALREADY)
        return None, Refusal(NOJOB if job is None else ACKED_ALREADY)
    if isinstance(job, Task):
        if policy_of(n).has_runs(job):
            return job, None  # T48
        return None, without_runs(n, job)
    if job.state == WAIT_REPL:
        return None, Refusal(NOTDELIVERED)
    return job, None


def without_runs(n: Node, task: Task) -> Refusal:
    """Why the task has no runs: it is no job (T1.11), or its tube has no runs (T48)."""
    what = policy_of(n).what_is(task)
    return (
        Refusal(TASK_WORK, (task.queue,))
        if len(what) == 0
        else Refusal(TASK_APART, (task.id, what))
    )


def make_life(n: Node, id: bytes) -> Life:
    """The life of an open job, made if it has none."""
    life = life_of(n, id)
    return new_life(n, id, b"") if life is None else life


def new_life(n: Node, id: bytes, worker: bytes) -> Life:
    """The life of an open job that had none."""
    life = Life(NO_TERMS, b"")
    life.worker = worker
    n.has_lives = True
    n.life.enter_new(id, life)
    return life


def outlive(job: Job, life: Life, due_ms: i64) -> None:
    """The job does not expire before the run is over (W6.3)."""
    if job.expire_ms <= due_ms:
        if life.expire_ms == 0:
            life.expire_ms = job.expire_ms
        job.expire_ms = due_ms + OUTLIVE_MS


def learn_run(n: Node, job: Job, life: Life, run: i64) -> None:
    """[W14] A worker names a later run than this node knows: its node sent nothing about it.

    It may have died (W14.5).
    """
    if job.holders == 1 or starts_of(run) <= life.starts or life.is_dead:
        return
    if not is_of_life(run, life):
        return
    life.run = run
    life.run_state = LIVE
    life.starts = starts_of(run)
    life.since_ms = n.now_ms
    life.is_resting = False
    if job.state == QUEUED:
        dequeue(n, job)


def check_run(job: Job, life: Life | None, run: i64) -> Refusal | None:
    """[W3] Whether the run is the one at work; a `-STALE` if not (W3.1)."""
    if life is not None and run == life.run and has_timed_out(life):
        return Refusal(OVER_TIME, (seconds_text(life.terms.limit_ms),))  # W3.3
    if life is not None and life.is_dead:
        return Refusal(DEAD_LETTER, (job.queue,))
    if life is None or life.run == 0:
        return Refusal(NO_RUN_YET)
    if run == life.run and life.run_state == LIVE:
        return None
    if run == life.run:
        return Refusal(FAILED_RUN if life.run_state == FAILED else OVER_RUN, (run_text(run),))
    return Refusal(STALE_RUN, (run_text(run), run_text(life.run)))


def has_timed_out(life: Life) -> bool:
    """Whether the latest run failed because its TIMELIMIT was over."""
    last = life.last
    if last is None or life.run_state != FAILED or life.terms.limit_ms == 0:
        return False
    return last.cause == TIMED_OUT and last.attempt == attempt_of(life.run)


def seconds_text(ms: i64) -> bytes:
    """Seconds with as many decimals as it takes."""
    text = b"%d.%03d" % (int(ms // 1000), int(ms % 1000))
    return text.rstrip(b"0").rstrip(b".")


def is_held(n: Node, id: bytes) -> bool:
    """Whether the job is held for a change (W16.1)."""
    return len(n.life.held) > 0 and id in n.life.held


def heard_again_ms(n: Node, job: Job) -> i64:
    """[W6] Since when this node could hear of the job's runs (W6.1)."""
    at_ms = n.life.deaf_ms
    if n.records is not None and n.records.is_failing:
        at_ms = n.now_ms  # WORKING is refused (J6.1)
    if job.holders != 1:
        for slot in slots_of(job.holders):
            at_ms = max(at_ms, n.peers[slot].linked_ms)
    return at_ms


def hash_here(n: Node, worker: bytes) -> i64:
    """The hash of the worker at this node, for its tokens (W1.2)."""
    known = n.life.hashes.get(worker)
    if known is not None:
        return known
    # The seed is another one at each start of the node (W13.4).
    hash = hash_of(n.ids.seed, hash_of(n.node_id, hash_of(worker)))
    n.life.remember(worker, hash)
    return hash


# ---- events


def tell_run(n: Node, job: Job, life: Life, kind: i64, text: bytes) -> None:
    """[E1] An event of the latest run, if events are written (E1.7)."""
    if n.events is not None:
        n.events.run(n.now_ms, job, kind, attempt_of(life.run), text)


def tell_failure(n: Node, job: Job, failure: Failure) -> None:
    """[E1] The event of a run that failed (E1.7)."""
    if n.events is None:
        return
    kind: i64 = RUN_FAILED
    if failure.cause == CRASHED:
        kind = RUN_CRASHED
    elif failure.cause == TIMED_OUT:
        kind = RUN_TIMED_OUT
    n.events.run(n.now_ms, job, kind, failure.attempt, failure.reason)
