"""Runs that last or fail: WORKING, PROGRESS, RELEASE, FAIL, and silence (SPEC W3-W6)."""

from typing import Final

from mypy_extensions import i64

from tuque.core.life.holders import HOLDERS, new_life, place_of
from tuque.core.life.start import end_cancelled, open_job
from tuque.core.model.errors import (
    CANCELLED_JOB,
    DEAD_LETTER,
    NO_RUN_YET,
    Refusal,
)
from tuque.core.model.job import (
    ACKED,
    ACTIVE,
    DELIVERED,
    ONCE_QUEUED,
    QUEUED,
    Job,
)
from tuque.core.model.stats import BY_FAILURE, BY_RELEASE
from tuque.core.model.task import Task
from tuque.core.model.work import (
    CRASHED,
    EXPIRED,
    FAILED,
    FAILED_BY_WORKER,
    LIVE,
    RELEASED,
    TIMED_OUT,
    UNSTARTED,
    Failure,
    Life,
    attempt_of,
)
from tuque.core.node.node import Node
from tuque.core.node.queue import COUNT, Placement
from tuque.core.node.tables import brief, fitting, may_grow
from tuque.core.queues.ends import life_of
from tuque.core.queues.procedures import (
    may_enqueue,
    policy_of,
)
from tuque.core.queues.requeue import is_delayed, on_nack, on_working
from tuque.core.queues.work_copies import send_work
from tuque.core.records.events import RUN_CRASHED, RUN_FAILED, RUN_RELEASED, RUN_TIMED_OUT
from tuque.core.work import rules
from tuque.core.work.rules import BACK, DIED, ENDED, GONE

PROGRESS_MS: Final = 1_000


# ---- Events of a run (SPEC E1.7)


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


# ---- The commands, and timers of runs (SPEC W3-W6)


def on_work(n: Node, id: bytes, run: i64, client: i64) -> Refusal | None:
    """[Q8, W3] ON COMMAND WORKING id [run]: the run is heard of. `run` 0: none was named."""
    job = n.jobs.get(id)
    if job is None or job.state == ACKED:
        return open_job(n, id)[1]  # W2.2
    task = task_with_runs(n, id)
    if task is not None and (run != 0 or is_at_work(n, id)):
        return keep_at_work(n, task, run, client)
    if task is not None:
        return on_working(n, id, client)
    work = life_of(n, id)
    if work is None or (run == 0 and work.run_state != LIVE):
        if run != 0:
            job, refused = open_job(n, id)
            return refused if job is None else Refusal(NO_RUN_YET)
        if work is not None and work.is_cancelled and id in n.jobs:
            return Refusal(CANCELLED_JOB, (work.cancel_reason,))  # W8.2
        if work is not None and work.is_dead and job.state == QUEUED:
            return Refusal(DEAD_LETTER, (job.queue,))  # Q8.5
        return on_working(n, id, client)
    job, refused = open_job(n, id)
    return refused if job is None else keep_at_work(n, job, run, client)


def keep_at_work(n: Node, job: Job, run: i64, client: i64) -> Refusal | None:
    """[W3] The worker of the run reports; 0: of the one at work (W3.1, W3.2)."""
    if run == 0:
        run = n.life.by_id[job.id].run
    place = place_of(n, job)
    work, refused = place.known_run(n, job, run, client)
    if work is not None:
        refused = rules.may_last(work, client, n.now_ms)
        if refused is None:
            place.extend(n, job, work)
    return refused


def task_with_runs(n: Node, id: bytes) -> Task | None:
    """[T48] The task with that id, if it is of a tube whose tasks have runs."""
    job = n.jobs.get(id)
    if not isinstance(job, Task) or not policy_of(n).has_runs(job):
        return None
    return job


def is_at_work(n: Node, id: bytes) -> bool:
    """Whether a run of the job lasts."""
    life = life_of(n, id)
    return life is not None and life.run_state == LIVE


def on_progress(n: Node, id: bytes, run: i64, progress: bytes, client: i64) -> Refusal | None:
    """[W3] ON COMMAND PROGRESS: as WORKING, and the latest word replaces the last (W3.4)."""
    if run == 0:
        job, refused = open_job(n, id)
        return refused if job is None else rules.check_run(n.life.by_id.get(id), 0, job.queue)
    refused = on_work(n, id, run, client)
    if refused is not None:
        return refused
    life = n.life.by_id[id]
    more: i64 = len(progress) - len(life.progress)
    if len(progress) > brief(n) and more > 0 and not may_grow(n, life, more):
        return None  # M2.8, N11.10
    life.progress = progress
    send_progress(n, id, life)
    n.life.weigh(life)
    return None


def send_progress(n: Node, id: bytes, life: Life) -> None:
    """The other holders hear of progress once a second at most."""
    if life.told_ms + PROGRESS_MS <= n.now_ms:
        life.told_ms = n.now_ms
        send_work(n, n.jobs[id])


def on_release(n: Node, id: bytes, run: i64, delay_ms: i64, client: i64 = -1) -> bool:
    """[W4] ON COMMAND RELEASE: the job is given back, nothing is counted (W4.1)."""
    job = n.jobs.get(id)
    if job is None:
        return False
    place = place_of(n, job)
    if not place.may_release(n, job, run, client):
        return False
    life = life_of(n, id)
    if life is not None:
        n.life.stop_runner(id, life, client)
        if life.is_cancelled:
            end_cancelled(n, job, life)
            return True
        end_run(n, job, life, RELEASED)
        if place.ends_ms(n, job) <= n.now_ms:
            expire_after(n, place, job, life)
            return True
    elif n.events is not None:
        life = new_life(n, job, b"")
    place.give_back(n, job, life, delay_ms, BY_RELEASE)
    if n.events is not None:
        n.events.nacked(n.now_ms, job, b"released")
    return True


def end_run(n: Node, job: Job, life: Life, how: i64) -> None:
    """The live run is over; the job's own expiry holds again (W6.3)."""
    if rules.end_run(life, how, n.now_ms) and how == RELEASED:
        n.record_run(job, life, RUN_RELEASED, life.worker)
    if life.expire_ms != 0:
        job.expire_ms = life.expire_ms
        life.expire_ms = 0


def on_fail(
    n: Node,
    id: bytes,
    run: i64,
    delay_ms: i64,
    reason: bytes,
    detail: bytes,
    is_final: bool,
    client: i64 = -1,
    cause: bytes = FAILED_BY_WORKER,
) -> tuple[i64, i64, Refusal | None]:
    """[W5] ON COMMAND FAIL: what became of the job, and the wait in ms; or a refusal (W5.1).

    `cause` is one that a worker may name (W5.6).
    """
    job, refused = open_job(n, id)
    if job is None:
        task = n.jobs.get(id)
        if run == 0 and isinstance(task, Task) and len(policy_of(n).what_is(task)) == 0:
            return policy_of(n).fail_take(n, task, delay_ms, is_final, client)  # T1.14
        return 0, 0, refused
    life, refused = place_of(n, job).known_run(n, job, run, client)
    if life is None:
        return 0, 0, refused
    n.life.stop_runner(id, life, client)
    if life.is_cancelled:
        end_cancelled(n, job, life)
        return ENDED, 0, None
    if rules.is_over_time(life, n.now_ms):
        cause = TIMED_OUT
        reason = rules.limit_reason(life)
    became = fail(n, job, life, cause, reason, detail, delay_ms, is_final)
    is_waiting = became == BACK and life.is_resting
    return became, max(0, job.qtime_ms - n.now_ms) if is_waiting else 0, None


def fail(
    n: Node,
    job: Job,
    life: Life,
    cause: bytes,
    reason: bytes,
    detail: bytes,
    delay_ms: i64,
    is_final: bool,
    is_silent: bool = False,
) -> i64:
    """[W5] PROCEDURE a run failed: count it; the job waits, or is given up (W5.2, W5.3).

    `is_silent`: its worker is gone, and that uses up no attempt (W6.7).
    """
    place = place_of(n, job)
    attempt = attempt_of(life.run)
    n.life.crashes += 1 if is_silent else 0
    is_last = rules.count_failure(life, attempt, is_silent, n.limits.crashes_max)
    is_last = is_last or is_final or job.retry_s == 0
    reason, detail = fitting(n, job.id, reason, detail, is_last)
    failure = Failure(n.now_ms, attempt, life.worker, cause, reason, detail)
    rules.keep_failure(life, failure)
    tell_failure(n, job, failure)
    end_run(n, job, life, FAILED)
    n.life.failures += 1
    n.book.fail(job)
    if place.ends_ms(n, job) <= n.now_ms:
        return expire_after(n, place, job, life)
    if is_last:
        place.bury(n, job, life, cause)  # W5.3
        return DIED
    if delay_ms < 0:
        draw = n.chance.below(1001) if life.terms.jitter > 0 else 0
        delay_ms = rules.back_off_ms(life, draw)
    place.give_back(n, job, life, delay_ms, BY_FAILURE)
    if n.events is not None:
        n.events.nacked(n.now_ms, job, reason if len(reason) > 0 else cause)
    return BACK


def expire_after(n: Node, place: Placement, job: Job, life: Life) -> i64:
    """[W6] A run is over, and so is the time of its job (W6.2, W6.3)."""
    if rules.dies_expired(life):
        place.bury(n, job, life, EXPIRED)
        return DIED
    place.expire(n, job)
    return GONE


def end_silent(n: Node, job: Job, life: Life) -> None:
    """[W6] The run at work is silent, or over its TIMELIMIT: it fails (W6.1, W3.3)."""
    n.life.stop_runner(job.id, life)
    if rules.is_over_time(life, n.now_ms):
        fail(n, job, life, TIMED_OUT, rules.limit_reason(life), b"", -1, False)
        return
    reason = rules.crash_reason(life, i64(job.retry_s), n.limits.crashes_max)
    fail(n, job, life, CRASHED, reason, b"", -1, False, True)


def has_more_time(n: Node, job: Job) -> bool:
    """[W6] TIMER: a delivery or a run is due. Whether it is put off, since nobody could hear of it
    for a part of its time (W6.1, T48.9).
    """
    work = life_of(n, job.id)
    place = place_of(n, job)
    due_ms = place.over_ms(n, job, work)
    if due_ms <= n.now_ms:
        return False
    place.put_off(n, job, work, due_ms)
    return True


def on_late(n: Node, job: Job) -> bool:
    """[W6] TIMER: the time of a delivery or a run is over; False: the job goes back as one without
    work does (W6.1, W6.4).
    """
    life = life_of(n, job.id)
    if life is None or life.is_dead or job.state != ACTIVE:
        return False
    if life.is_cancelled and not life.is_resting:
        end_cancelled(n, job, life)  # W8.3
        return True
    if life.run_state == LIVE:
        if job.retry_s == 0 and not rules.is_over_time(life, n.now_ms):
            return False
        end_silent(n, job, life)
        return True
    if life.is_resting:
        life.is_resting = False
        return False
    is_out = job.flags & ONCE_QUEUED != 0 or isinstance(job, Task)
    if not is_out or life.terms.attempts == 0:
        return False
    place = place_of(n, job)
    if rules.count_unstarted(life, n.limits.unstarted_max):
        place.bury(n, job, life, UNSTARTED)  # W6.4
        return True
    place.save(n, job, life, COUNT)
    return False


def on_nack_of(n: Node, id: bytes, delay_ms: i64, client: i64) -> bool:
    """[Q6] ON COMMAND NACK, also of a job with a life: its run ends as by RELEASE (W4.3)."""
    life = life_of(n, id)
    job = n.jobs.get(id)
    if job is None or isinstance(job, Task) or (life is not None and life.is_dead):
        return on_nack(n, id, delay_ms, client)
    if life is None:
        if delay_ms <= 0 or job.flags & DELIVERED == 0 or not may_enqueue(job):
            return on_nack(n, id, delay_ms, client)
        life = new_life(n, job, b"")  # so that each holder knows of its back-off (W2.3)
    job, _ = open_job(n, id)
    if job is None:
        return False
    if life.is_cancelled and job.state == ACTIVE:
        end_cancelled(n, job, life)
        return True
    if not may_enqueue(job) or is_delayed(n, job):
        return False
    n.life.stop_runner(id, life, client)
    was_live = life.run_state == LIVE
    end_run(n, job, life, RELEASED)
    life.unstarted = 0
    if was_live and job.expire_ms <= n.now_ms:
        expire_after(n, HOLDERS, job, life)
        return True
    is_done = on_nack(n, id, delay_ms, client)
    if is_done:
        life.is_resting = delay_ms > 0
        if n.records is not None:
            n.records.life(id, life)
        send_work(n, job)
    return is_done
