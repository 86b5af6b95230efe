"""A run begins by START, or by GETJOB with START; what WORKER shows of it (SPEC W2, W17, O12).

It also has what all commands about work begin with: the open job, and its work.
"""

from typing import Final, final

from mypy_extensions import i64

from tuque.core.life.holders import HOLDERS, new_life, place_of
from tuque.core.model.attempts import CANCELLED_STATE
from tuque.core.model.errors import (
    ACKED_ALREADY,
    CANCELLED_JOB,
    NOJOB,
    NOTDELIVERED,
    TASK_APART,
    TASK_WORK,
    Refusal,
)
from tuque.core.model.job import ACKED, ACTIVE, QUEUED, WAIT_REPL, Job
from tuque.core.model.task import Task
from tuque.core.model.work import CANCELLED, LIVE, RELEASED, Life
from tuque.core.node.node import Node
from tuque.core.node.queue import Placement
from tuque.core.queues.ends import conclude, life_of
from tuque.core.queues.procedures import policy_of
from tuque.core.records.events import RUN_STARTED
from tuque.core.work import rules

RUNNING: Final = 0
WAITING: Final = 1  # its worker is lost: for the end of its RETRY or TIMELIMIT
BACK_OFF: Final = 2
IN_QUEUE: Final = 3
STANDING_NAMES: Final = [b"running", b"waiting", b"back-off", b"queued"]


# ---- What the commands about work share: the open job, its work, its run (SPEC W2, W8)


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


def end_cancelled(n: Node, job: Job, life: Life) -> None:
    """[W8] The job ends as cancelled."""
    if life.run_state == LIVE:
        life.run_state = RELEASED
        rules.keep_attempt(life, CANCELLED_STATE, n.now_ms, life.cancel_reason, b"")
    if n.events is not None:
        n.events.cancelled(n.now_ms, job, life.cancel_reason, life.returned)
    conclude(n, job, CANCELLED, life.run, None, life.cancel_reason)
    place_of(n, job).end(n, job)


# ---- A run begins (SPEC W2, W17)


def on_start(n: Node, id: bytes, worker: bytes, client: i64) -> Refusal | None:
    """[W2] ON COMMAND START: a run begins, or the same worker's goes on (W2.4)."""
    job, refused = open_job(n, id)
    if job is None:
        return refused
    return start(n, job, worker, client)[1]


def start(n: Node, job: Job, worker: bytes, client: i64) -> tuple[Life | None, Refusal | None]:
    """[W2] As `on_start`, of an open job: its life with the run, or why there is none."""
    place: Placement = HOLDERS
    if isinstance(job, Task):
        place = policy_of(n)
    at = place.where(n, job, client)
    life = n.life.by_id.get(job.id)
    if at < 0:
        return None, rules.refusal(-at, life, job.queue, 0, n.now_ms)
    refused = rules.may_begin(life, at, job.queue, worker, n.now_ms)
    if refused is not None:
        if life is not None and refused.code == CANCELLED_JOB:
            end_cancelled(n, job, life)  # W8.3
        return None, refused
    if life is not None and life.run_state == LIVE:
        life.client = client
        return life, None  # W2.4
    if life is None:
        life = new_life(n, job, worker)
    place.begin(n, job, life, worker, client)
    if n.events is not None:
        n.record_run(job, life, RUN_STARTED, worker)
    return life, None


def begin_delivered(n: Node, job: Job, worker: bytes, client: i64) -> Life | None:
    """[W17] The job was delivered in this turn, and its run begins (W17.1, W17.4).

    Returns its life with the run; None if START would refuse it (W17.3).
    """
    if isinstance(job, Task):
        return start(n, job, worker, client)[0] if policy_of(n).has_runs(job) else None
    if job.state != ACTIVE:
        return None
    life = life_of(n, job.id)
    if life is not None:
        return start(n, job, worker, client)[0]
    life = new_life(n, job, worker)
    HOLDERS.begin(n, job, life, worker, client)
    if n.events is not None:
        n.record_run(job, life, RUN_STARTED, worker)
    return life


# ---- The status of a run that a worker has begun: at work, or due again when (SPEC O12)


@final
class RunStatus:
    """A job and what a worker has to do with it."""

    def __init__(self, job: Job, life: Life, state: i64, due_ms: i64) -> None:
        self.job = job
        self.life = life
        self.state = state
        self.due_ms = due_ms  # when it is due again; 0: never, or it is queued


def standing_of(n: Node, id: bytes, worker: bytes, is_lost: bool) -> RunStatus | None:
    """[O12] The job, if the worker's run of it is the last one and counts still (O12.2).

    Of a worker that is not lost only live runs count.
    """
    life = n.life.by_id.get(id)
    job = n.jobs.get(id)
    if life is None or job is None or job.state == ACKED or life.is_dead or life.worker != worker:
        return None
    if life.run_state == LIVE:
        return RunStatus(job, life, WAITING if is_lost else RUNNING, end_of_run(job, life))
    if not is_lost:
        return None
    if job.state == QUEUED:
        return RunStatus(job, life, IN_QUEUE, 0)
    if life.is_resting and job.state == ACTIVE:
        return RunStatus(job, life, BACK_OFF, job.qtime_ms)
    return None


def end_of_run(job: Job, life: Life) -> i64:
    """When the live run is over if nothing more is heard of it; 0: never."""
    due_ms = job.qtime_ms
    if job.retry_s > 0 and life.heard_ms > 0:
        due_ms = max(
            due_ms, life.heard_ms + i64(job.retry_s) * 1000
        )  # its timer may not have moved
    return due_ms if due_ms == 0 else rules.due_by(life, due_ms)
