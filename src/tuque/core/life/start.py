"""A run begins by START, or by GETJOB with START; what WORKER shows of it (SPEC W2, W17, O12)."""

from typing import Final, final

from mypy_extensions import i64

from tuque.core.life.runs import (
    end_cancelled,
    extend,
    hash_here,
    is_held,
    new_life,
    open_job,
)
from tuque.core.model.errors import (
    CANCELLED_JOB,
    LEASED_WORK,
    RESTING,
    Refusal,
)
from tuque.core.model.job import ACKED, ACTIVE, DELIVERED, LEASED, OUT_HERE, QUEUED, Job
from tuque.core.model.task import Task
from tuque.core.model.work import (
    LIVE,
    Life,
    attempt_of,
    run_of,
)
from tuque.core.node.node import Node
from tuque.core.queues.ends import life_of
from tuque.core.queues.merge_work import tell_soon
from tuque.core.queues.procedures import dequeue, policy_of
from tuque.core.queues.requeue import is_delayed
from tuque.core.records.events import RUN_STARTED
from tuque.core.work import rules

RUNNING: Final = 0
WAITING: Final = 1  # its worker is lost: for the end of its RETRY or TIMELIMIT
BACK_OFF: Final = 2
IN_QUEUE: Final = 3
STANDING_NAMES: Final = [b"running", b"waiting", b"back-off", b"queued"]


def on_start(n: Node, id: bytes, worker: bytes, client: i64) -> Refusal | None:
    """[W2] ON COMMAND START: a run begins, or the same worker's goes on (W2.4)."""
    job, refused = open_job(n, id)
    if job is None:
        return refused
    return start(n, job, worker, client)[1]


def start(n: Node, job: Job, worker: bytes, client: i64) -> tuple[Life | None, Refusal | None]:
    """[W2] As `on_start`, of an open job: its life with the run, or why there is none."""
    if isinstance(job, Task):
        return policy_of(n).start(n, job, worker, client)
    life = life_of(n, job.id)
    if job.flags & LEASED:
        return None, Refusal(LEASED_WORK)
    if is_held(n, job.id):
        return None, Refusal(RESTING)  # W16.1
    place: i64 = rules.SCHEDULED if is_delayed(n, job) else rules.DELIVERED
    if job.state == QUEUED:
        place = rules.WAITING
    refused = rules.may_begin(life, place, job.queue, worker, n.now_ms)
    if refused is not None:
        if life is not None and refused.code == CANCELLED_JOB:
            end_cancelled(n, job, life)  # W8.3
        return None, refused
    if life is not None and life.run_state == LIVE:
        life.client = client
        return life, None  # W2.4
    if life is None:
        life = new_life(n, job, worker)
    begin_run(n, job, life, worker, client)
    return life, None


def begin_delivered(n: Node, job: Job, worker: bytes, client: i64) -> Life | None:
    """[W17] The job was delivered in this turn, and its run begins (W17.1, W17.4).

    Returns its life with the run; None if START would refuse it (W17.3).
    """
    if isinstance(job, Task):
        policy = policy_of(n)
        return policy.start(n, job, worker, client)[0] if policy.has_runs(job) else None
    if job.state != ACTIVE:
        return None
    life = life_of(n, job.id)
    if life is not None:
        return start(n, job, worker, client)[0]
    life = new_life(n, job, worker)
    begin_run(n, job, life, worker, client)
    return life


def begin_run(n: Node, job: Job, life: Life, worker: bytes, client: i64) -> None:
    """[W2] The job is at work from now on (W2.5)."""
    is_out = job.state == ACTIVE and job.flags & DELIVERED != 0
    if job.state == QUEUED:
        dequeue(n, job)
    if worker != n.life.last_worker:
        n.life.last_worker = worker
        n.life.last_hash = hash_here(n, worker)
    run = run_of(life.failed + 1, life.starts + 1, n.life.last_hash, life.replays)  # W1.2
    if rules.begin(life, run, worker, client, n.now_ms):
        n.life.weigh(life)
    job.flags |= DELIVERED
    n.life.runs += 1
    is_timed = job.holders == 1 and life.terms.limit_ms == 0 and job.qtime_ms > n.now_ms
    if is_timed and is_out and job.expire_ms > n.now_ms + i64(job.retry_s) * 1000:
        life.heard_ms = n.now_ms  # its timer looks at this: a short run moves none
        job.marks = OUT_HERE
        n.book.arm(job)
    else:
        extend(n, job, life)
        if n.records is not None:
            n.records.state(job)
    if n.records is not None:
        n.records.life(job.id, life)
    if n.events is not None:
        n.events.run(n.now_ms, job, RUN_STARTED, attempt_of(life.run), worker)
    if job.holders != 1:
        tell_soon(n, job, life)  # W14.3


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
