"""Where a job stands that a worker has begun: at work, or due again when (SPEC O12)."""

from typing import Final, final

from mypy_extensions import i64

from tuque.core.jobs.letters import due_by
from tuque.core.model.job import ACKED, ACTIVE, QUEUED, Job
from tuque.core.model.life import LIVE, Life
from tuque.core.node.node import Node

RUNNING: Final = 0
WAITING: Final = 1  # its worker is lost: for the end of its RETRY or TIMELIMIT
BACK_OFF: Final = 2
IN_QUEUE: Final = 3
STANDING_NAMES: Final = [b"running", b"waiting", b"back-off", b"queued"]


@final
class Standing:
    """A job and what a worker has to do with it."""

    def __init__(self, job: Job, life: Life, state: i64, due_ms: i64) -> None:
        self.job = job
        self.life = life
        self.state = state
        self.due_ms = due_ms  # when it is due again; 0: never, or it is queued


def standing_of(n: Node, id: bytes, worker: bytes, is_lost: bool) -> Standing | None:
    """[O12] The job, if the worker's run of it is the last one and counts still (O12.2).

    Of a worker that is not lost only live runs count.
    """
    life = n.life.by_id.get(id)
    job = n.jobs.get(id)
    if life is None or job is None or job.state == ACKED or life.is_dead or life.worker != worker:
        return None
    if life.run_state == LIVE:
        return Standing(job, life, WAITING if is_lost else RUNNING, end_of_run(job, life))
    if not is_lost:
        return None
    if job.state == QUEUED:
        return Standing(job, life, IN_QUEUE, 0)
    if life.is_resting and job.state == ACTIVE:
        return Standing(job, life, BACK_OFF, job.qtime_ms)
    return None


def end_of_run(job: Job, life: Life) -> i64:
    """When the live run is over if nothing more is heard of it; 0: never."""
    due_ms = job.qtime_ms
    if job.retry_s > 0 and life.heard_ms > 0:
        due_ms = max(
            due_ms, life.heard_ms + i64(job.retry_s) * 1000
        )  # its timer may not have moved
    return due_ms if due_ms == 0 else due_by(life, due_ms)
