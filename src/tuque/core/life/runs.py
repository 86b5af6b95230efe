"""Runs that last or fail: WORKING, PROGRESS, RELEASE, FAIL, and silence (SPEC W3-W6)."""

from typing import Final

from mypy_extensions import i64

from tuque.core.copies.ack_gc import retire
from tuque.core.model import stats
from tuque.core.model.errors import (
    ACKED_ALREADY,
    CANCELLED_JOB,
    CHANGING,
    DEAD_LETTER,
    FAILED_RUN,
    NAMELESS,
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
from tuque.core.model.job import (
    ACKED,
    ACTIVE,
    DELIVERED,
    LEASED,
    ONCE_QUEUED,
    OUT_HERE,
    QUEUED,
    WAIT_REPL,
    Job,
)
from tuque.core.model.stats import BY_FAILURE, BY_RELEASE
from tuque.core.model.task import Task
from tuque.core.model.work import (
    CANCELLED,
    CRASHED,
    EXPIRED,
    FAILED,
    FAILED_BY_WORKER,
    LIVE,
    NO_TERMS,
    RELEASED,
    TIMED_OUT,
    UNSTARTED,
    Failure,
    Life,
    attempt_of,
    hash_of,
    is_of_life,
    run_text,
    starts_of,
)
from tuque.core.node.node import Node
from tuque.core.node.peers import send_resting, set_due, slots_of
from tuque.core.node.tables import brief, fitting, may_grow
from tuque.core.queues.ends import conclude, life_of
from tuque.core.queues.merge_work import due_by, go_dead, leave_line, send_work
from tuque.core.queues.procedures import (
    REQUEUE_DELAY,
    REQUEUE_RELEASE,
    dequeue,
    may_enqueue,
    policy_of,
    remove,
    requeue,
    retry_due_ms,
)
from tuque.core.queues.requeue import is_delayed, on_nack, on_working
from tuque.core.records.events import RUN_CRASHED, RUN_FAILED, RUN_RELEASED, RUN_TIMED_OUT

OUTLIVE_MS: Final = 60_000  # timers may be late: a silent run fails before its job expires (W6.3)

FAR: Final = (1 << 62) - 1  # largest int that mypyc stores unboxed

PROGRESS_MS: Final = 1_000
# what became of a failed job
BACK: Final = 0
DIED: Final = 1
ENDED: Final = 2
GONE: Final = 3  # it expired


# ---- What the commands about work share: the open job, its work, its run (SPEC W2, W3)


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


def make_life(n: Node, job: Job) -> Life:
    """The life of an open job, made if it has none."""
    life = life_of(n, job.id)
    return new_life(n, job, b"") if life is None else life


def new_life(n: Node, job: Job, worker: bytes) -> Life:
    """The life of an open job that had none."""
    life = Life(NO_TERMS, b"")
    life.worker = worker
    n.has_lives = True
    n.life.enter_new(job.id, life, job.queue)
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
    if run == 0:
        return Refusal(NAMELESS if life.run_state == LIVE else NO_RUN_YET)
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


# ---- Events of a run (SPEC E1.7)


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


# ---- The commands, and timers of runs (SPEC W3-W6)


def extend(n: Node, job: Job, life: Life) -> None:
    """The run was heard of: it is silent RETRY from now, or over at its TIMELIMIT (W3.2, W3.3)."""
    due_ms: i64 = 0
    life.heard_ms = 0
    if job.retry_s > 0:
        due_ms = max(job.qtime_ms, retry_due_ms(n, job))
    if life.terms.limit_ms > 0:
        due_ms = due_by(life, FAR if due_ms == 0 else due_ms)
    if due_ms == 0:
        return
    outlive(job, life, due_ms)
    set_due(n, job, due_ms, OUT_HERE)


def on_work(n: Node, id: bytes, run: i64, client: i64) -> Refusal | None:
    """[Q8, W3] ON COMMAND WORKING id [run]: the run is heard of. `run` 0: none was named."""
    job = n.jobs.get(id)
    if job is None or job.state == ACKED:
        return open_job(n, id)[1]  # W2.2
    task = task_with_runs(n, id)
    if task is not None and (run != 0 or is_at_work(n, id)):
        return policy_of(n).at_work(n, task, run, client)
    if task is not None:
        return on_working(n, id, client)
    work = life_of(n, id)
    if is_held(n, id):
        return Refusal(CHANGING)  # W16.1
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
    if job is None:
        return refused
    if run == 0:
        run = work.run
    learn_run(n, job, work, run)
    refused = check_run(job, work, run)
    if refused is not None:
        return refused
    if work.is_cancelled:
        work.client = client
        return Refusal(CANCELLED_JOB, (work.cancel_reason,))  # W8.2
    if is_over_time(n, work):
        limit_ms = work.terms.limit_ms
        return Refusal(OVER_TIME, (seconds_text(limit_ms),))  # W3.3
    work.client = client
    extend(n, job, work)
    if n.records is not None:
        n.records.state(job)
    send_work(n, job)
    return None


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
        return refused if job is None else check_run(job, n.life.by_id.get(id), 0)
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


def is_over_time(n: Node, life: Life) -> bool:
    """Whether the live run has lasted longer than its TIMELIMIT (W3.3)."""
    limit_ms = life.terms.limit_ms
    return limit_ms > 0 and life.since_ms + limit_ms <= n.now_ms


def limit_text(life: Life) -> bytes:
    """The reason of a run over its TIMELIMIT: the words of the worker, too (W3.3)."""
    return b"ran longer than its time limit of %s s" % seconds_text(life.terms.limit_ms)


def tell_runner(n: Node, id: bytes, life: Life, client: i64) -> None:
    """[W8] Another connection has ended the run: its worker hears of it (W8.2)."""
    if life.run_state == LIVE and life.client >= 0 and life.client != client:
        n.life.calls.append((int(life.client), id, int(life.run)))


def on_release(n: Node, id: bytes, run: i64, delay_ms: i64, client: i64 = -1) -> bool:
    """[W4] ON COMMAND RELEASE: the job is given back, nothing is counted (W4.1)."""
    task = n.jobs.get(id)
    if isinstance(task, Task):
        return policy_of(n).release(n, task, run, delay_ms, client)
    job, _ = open_job(n, id)
    if job is None or job.flags & LEASED or is_held(n, id):
        return False
    life = life_of(n, id)
    if life is not None and life.run_state == LIVE:
        if run != life.run:
            return False
    elif run != 0:
        return False
    if job.state == QUEUED or (life is not None and (life.is_dead or life.is_resting)):
        return False
    if job.flags & DELIVERED == 0 or job.retry_s == 0:
        return False
    if life is not None:
        tell_runner(n, id, life, client)
        if life.is_cancelled:
            end_cancelled(n, job, life)
            return True
        end_run(n, job, life, RELEASED)
        life.unstarted = 0
        if is_over(n, job):
            go_dead_or_end(n, job, life, EXPIRED)
            return True
    elif delay_ms > 0 or n.events is not None:
        life = make_life(n, n.jobs[id])
    give_back(n, job, life, delay_ms, BY_RELEASE)
    if n.events is not None:
        n.events.nacked(n.now_ms, job, b"released")
    return True


def is_over(n: Node, job: Job) -> bool:
    """Whether the job's own expiry has passed, which a run had put off."""
    return job.expire_ms <= n.now_ms


def end_run(n: Node, job: Job, life: Life, how: i64) -> None:
    """The live run is over; the job's own expiry holds again (W6.3)."""
    if life.run_state == LIVE:
        life.run_state = how
        life.ended_ms = n.now_ms
        if how == RELEASED:
            tell_run(n, job, life, RUN_RELEASED, life.worker)
    if life.expire_ms != 0:
        job.expire_ms = life.expire_ms
        life.expire_ms = 0


def give_back(n: Node, job: Job, life: Life | None, delay_ms: i64, cause: i64) -> None:
    """Queue the job again, now or after the delay; no counter of deliveries grows (W4.2)."""
    if life is not None:
        life.returned += 1
    leave_line(n, job)
    n.book.requeue(job, cause)
    job.flags &= 0xFF ^ ONCE_QUEUED
    if delay_ms <= 0:
        if life is not None:
            send_work(n, job)  # W14.9
        requeue(n, job, REQUEUE_RELEASE if cause == BY_RELEASE else REQUEUE_DELAY)
    else:
        if life is not None:
            life.is_resting = True
        set_due(n, job, n.now_ms + delay_ms)
        if n.records is not None:
            n.records.state(job)
    if life is not None:
        n.life.weigh(life)
        if n.records is not None:
            n.records.life(job.id, life)
        if delay_ms > 0:
            send_work(n, job)
    if delay_ms > 0 and job.holders != 1:
        send_resting(n, job, delay_ms)


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
    if isinstance(job, Task):
        reason, detail = fitting(n, id, reason, detail, True)
        failure = Failure(n.now_ms, attempt_of(run), b"", cause, reason, detail)
        return policy_of(n).fail(n, job, run, delay_ms, failure, is_final)
    if is_held(n, id):
        return 0, 0, Refusal(CHANGING)  # W16.1
    life = life_of(n, id)
    if life is not None:
        learn_run(n, job, life, run)
    refused = check_run(job, life, run)
    if refused is not None or life is None:
        return 0, 0, refused
    tell_runner(n, id, life, client)
    if life.is_cancelled:
        end_cancelled(n, job, life)
        return ENDED, 0, None
    if is_over_time(n, life):
        cause = TIMED_OUT
        reason = limit_text(life)
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
    attempt = attempt_of(life.run)
    is_last = is_final or job.retry_s == 0
    if is_silent:
        n.life.crashes += 1
        is_last = life.crash(n.limits.crashes_max) or is_last
    else:
        life.failed = max(life.failed, attempt)
        is_last = is_last or 0 < life.terms.attempts <= life.failed
    reason, detail = fitting(n, job.id, reason, detail, is_last)
    failure = Failure(n.now_ms, attempt, life.worker, cause, reason, detail)
    if life.first is None:
        life.first = Failure(n.now_ms, attempt, life.worker, cause, reason, b"")
    life.last = failure
    tell_failure(n, job, failure)
    end_run(n, job, life, FAILED)
    n.life.failures += 1
    n.book.fail(job)
    if is_over(n, job):
        if life.dies_expired():
            go_dead(n, job, life, EXPIRED)
            return DIED
        remove(n, job, stats.EXPIRED)  # W6.2
        return GONE
    if is_last:
        go_dead(n, job, life, cause)  # W5.3
        return DIED
    give_back(n, job, life, back_off_ms(n, life) if delay_ms < 0 else delay_ms, BY_FAILURE)
    if n.events is not None:
        n.events.nacked(n.now_ms, job, reason if len(reason) > 0 else cause)
    return BACK


def back_off_ms(n: Node, life: Life) -> i64:
    """[W5] The wait before the next run: doubled with each failure and crash (W5.4)."""
    terms = life.terms
    wait_ms = terms.first_ms
    step: i64 = 1
    while step < life.failed + life.crashes and wait_ms < terms.max_ms:
        wait_ms *= 2
        step += 1
    if wait_ms > terms.max_ms:
        wait_ms = terms.max_ms
    if terms.jitter > 0:
        wait_ms -= wait_ms * terms.jitter // 1000 * n.chance.below(1001) // 1000
    return wait_ms


def on_late(n: Node, job: Job) -> bool:
    """[W6] TIMER: a job with a life is due; False: it is queued as any job (W6.1, W6.4)."""
    life = life_of(n, job.id)
    if life is None or life.is_dead or job.state != ACTIVE:
        return False
    if life.is_cancelled and not life.is_resting:
        end_cancelled(n, job, life)  # W8.3
        return True
    if life.run_state == LIVE:
        if life.heard_ms > 0 and life.heard_ms + i64(job.retry_s) * 1000 > n.now_ms:
            due_ms = life.heard_ms + i64(job.retry_s) * 1000
            life.heard_ms = 0
            outlive(job, life, due_ms)
            set_due(n, job, due_ms, OUT_HERE)
            return True
        is_slow = is_over_time(n, life)
        if job.retry_s == 0 and not is_slow:
            return False
        if not is_slow:
            due_ms = heard_again_ms(n, job) + i64(job.retry_s) * 1000
            if due_ms > n.now_ms:
                due_ms = due_by(life, due_ms)
                outlive(job, life, due_ms)
                set_due(n, job, due_ms, OUT_HERE)
                return True
        if life.client >= 0:
            n.life.calls.append((int(life.client), job.id, int(life.run)))
        reason = (
            limit_text(life) if is_slow else life.silence(i64(job.retry_s), n.limits.crashes_max)
        )
        cause = TIMED_OUT if is_slow else CRASHED
        fail(n, job, life, cause, reason, b"", -1, False, not is_slow)
        return True
    if life.is_resting:
        life.is_resting = False
        return False
    if job.flags & ONCE_QUEUED == 0 or life.terms.attempts == 0:
        return False
    life.unstarted += 1
    most = n.limits.unstarted_max
    if 0 < most <= life.unstarted:
        go_dead(n, job, life, UNSTARTED)  # W6.4
        return True
    if n.records is not None:
        n.records.life(job.id, life)
    return False


def on_nack_of(n: Node, id: bytes, delay_ms: i64, client: i64) -> bool:
    """[Q6] ON COMMAND NACK, also of a job with a life: its run ends as by RELEASE (W4.3)."""
    life = life_of(n, id)
    if is_held(n, id):
        return False  # W16.1
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
    tell_runner(n, id, life, client)
    was_live = life.run_state == LIVE
    end_run(n, job, life, RELEASED)
    life.unstarted = 0
    if was_live and is_over(n, job):
        go_dead_or_end(n, job, life, EXPIRED)
        return True
    is_done = on_nack(n, id, delay_ms, client)
    if is_done:
        life.is_resting = delay_ms > 0
        if n.records is not None:
            n.records.life(id, life)
        send_work(n, job)
    return is_done


def go_dead_or_end(n: Node, job: Job, life: Life, cause: bytes) -> None:
    """The job's time is over and nobody works on it any more."""
    if life.dies_expired():
        go_dead(n, job, life, cause)
    else:
        job.expire_ms = n.now_ms
        n.wheel.arm(job, n.now_ms)
        if n.records is not None:
            n.records.life(job.id, life)


def end_cancelled(n: Node, job: Job, life: Life) -> None:
    """[W8] The job ends as cancelled."""
    if life.run_state == LIVE:
        life.run_state = RELEASED
    if n.events is not None:
        n.events.cancelled(n.now_ms, job, life.cancel_reason, life.returned)
    conclude(n, job, CANCELLED, life.run, None, life.cancel_reason)
    retire(n, job)
