"""Runs of tasks in tubes of type `tasks`: START, WORKING, RELEASE, FAIL, silence (SPEC T48).

The token of a run follows from the take: so a new leader knows it also if the START was lost with
the last one. Terms, failures and the run are part of the task (tubes/entries/work.py).
"""

from mypy_extensions import i64

from tuque.core.life.runs import (
    BACK,
    DIED,
    ENDED,
    GONE,
    back_off_ms,
    check_run,
    is_over_time,
    limit_text,
    new_life,
    seconds_text,
    tell_failure,
    tell_run,
)
from tuque.core.model.errors import (
    ATWORK,
    CANCELLED_JOB,
    NOTDELIVERED,
    OVER_TIME,
    Refusal,
)
from tuque.core.model.job import OUT_HERE
from tuque.core.model.stats import BY_FAILURE, BY_NACK, BY_RELEASE
from tuque.core.model.task import DELAYED, READY, TAKEN, Task
from tuque.core.model.work import (
    CRASHED,
    EXPIRED,
    FAILED,
    LIVE,
    RELEASED,
    STARTS_MAX,
    TIMED_OUT,
    Failure,
    Life,
    attempt_of,
)
from tuque.core.node.node import Node
from tuque.core.node.tables import fitting_reason
from tuque.core.queues.ends import life_of
from tuque.core.queues.merge_work import due_by
from tuque.core.records.events import RUN_RELEASED, RUN_STARTED
from tuque.core.records.tubes import tell_task_life
from tuque.tubes.entries.keys import carry, work_in
from tuque.tubes.log.send import WORK, trace
from tuque.tubes.model import options
from tuque.tubes.model.tube import Tube
from tuque.tubes.model.tubes import Tubes
from tuque.tubes.work.dead_letters import give_up
from tuque.tubes.work.transitions import (
    arm,
    change,
    clamp,
    end_cancelled,
    ends_cancelled,
    expire,
    keep_image,
    record,
    record_whole,
    return_ms,
    run_of_take,
    tell,
)


def start(
    n: Node, t: Tubes, tube: Tube, task: Task, worker: bytes, client: i64
) -> tuple[Life | None, Refusal | None]:
    """[T48] START of a task that was delivered (T48.3)."""
    life = life_of(n, task.id)
    if life is not None and life.run_state == LIVE:
        if life.worker == worker:
            if life.is_cancelled:
                return None, end_by_start(n, t, tube, task, life)
            life.client = client
            return life, None  # W2.4
        since_s = (n.now_ms - life.since_ms) // 1000
        return None, Refusal(ATWORK, (life.worker, int(since_s)))
    if task.status != TAKEN:
        return None, Refusal(NOTDELIVERED)
    if life is not None and life.is_cancelled:
        return None, end_by_start(n, t, tube, task, life)
    if life is None:
        life = new_life(n, task, worker)
    begin(n, tube, task, life, worker, client, n.now_ms)
    limit_ms = life.terms.limit_ms
    if limit_ms > 0 and (task.qtime_ms == 0 or n.now_ms + limit_ms < task.qtime_ms):
        arm(n, t, task, n.now_ms + limit_ms)
        record(n, tube, task)
    if n.events is not None:
        n.events.run(n.now_ms, task, RUN_STARTED, attempt_of(life.run), worker)
    return life, None


def end_by_start(n: Node, t: Tubes, tube: Tube, task: Task, life: Life) -> Refusal:
    """[T48] No run begins of a task that is cancelled: it ends (T48.10)."""
    end_cancelled(n, t, tube, task, life)
    return Refusal(CANCELLED_JOB, (life.cancel_reason,))


def cancel(n: Node, t: Tubes, tube: Tube, task: Task, reason: bytes) -> bool:
    """[T48] CANCEL: True, the task has ended; False, who has it hears of it (T48.10)."""
    life = life_of(n, task.id)
    if life is None:
        life = new_life(n, task, b"")
    is_news = not life.is_cancelled
    if is_news:
        life.cancel_reason = fitting_reason(n, life, reason)  # the first one stays
        life.is_cancelled = True
        n.life.weigh(life)
    if task.status != TAKEN:
        end_cancelled(n, t, tube, task, life)
        return True
    if is_news:
        if life.run_state == LIVE and life.client >= 0:
            n.life.calls.append((int(life.client), task.id, int(life.run)))  # W8.2
        carry(task, life)  # a new leader knows it (T48.2)
        record_whole(n, tube, task)
        tell(n, t, tube, task, options.UPDATE)
    return False


def begin(
    n: Node, tube: Tube, task: Task, life: Life, worker: bytes, client: i64, since_ms: i64
) -> None:
    """The run of this take lasts: the journal and other nodes know it (T48.2)."""
    life.starts = min(i64(task.delivered_count), STARTS_MAX)
    life.run = run_of_take(task, life)
    life.run_state = LIVE
    life.since_ms = since_ms
    life.client = client
    life.is_resting = False
    if worker != life.worker or len(life.progress) > 0:
        life.worker = worker
        life.progress = b""
        n.life.weigh(life)
    carry(task, life)
    n.life.runs += 1
    task.marks = OUT_HERE
    n.book.arm(task)
    if tube.is_temporary:
        return
    keep_image(n, task)
    if n.records is not None:
        tell_task_life(n.records, task.id, work_in(task))
    tube.seq += 1  # T18.2
    if n.others != 0:
        trace(n, tube, task.number, WORK)


def known_run(
    n: Node, tube: Tube, task: Task, run: i64, client: i64
) -> tuple[Life | None, Refusal | None]:
    """[T48] The life whose run lasts; a run that began at an earlier leader goes on (T48.4)."""
    life = life_of(n, task.id)
    if task.status == TAKEN and run == run_of_take(task, life):
        if life is None:
            life = new_life(n, task, b"")
        if life.run != run:
            begin(n, tube, task, life, life.worker, client, task.taken_ms)
    refused = check_run(task, life, run)
    return (life, None) if refused is None else (None, refused)


def at_work(n: Node, t: Tubes, tube: Tube, task: Task, run: i64, client: i64) -> Refusal | None:
    """[T48] WORKING and PROGRESS: the run is heard of, and has ttr from now (T48.4)."""
    life = life_of(n, task.id)
    if run == 0 and life is not None:
        run = life.run
    life, refused = known_run(n, tube, task, run, client)
    if life is None:
        return refused
    if life.is_cancelled:
        life.client = client
        return Refusal(CANCELLED_JOB, (life.cancel_reason,))  # W8.2
    if is_over_time(n, life):
        return Refusal(OVER_TIME, (seconds_text(life.terms.limit_ms),))  # W3.3
    life.client = client
    at_ms = due_by(life, return_ms(n, tube, task))
    if at_ms > task.qtime_ms:
        arm(n, t, task, at_ms)
        record(n, tube, task)
    tube.calls.touch += 1
    tell(n, t, tube, task, options.TOUCH)
    return None


def release(n: Node, t: Tubes, tube: Tube, task: Task, run: i64, delay_ms: i64) -> bool:
    """[T48] RELEASE: the task is given back, and nothing is counted (T48.5)."""
    life = life_of(n, task.id)
    if task.status != TAKEN:
        return False
    if run != 0 and run != run_of_take(task, life):
        return False
    if run == 0 and life is not None and life.run_state == LIVE:
        return False
    if ends_cancelled(n, t, tube, task):
        return True
    if life is None and n.events is not None:
        life = new_life(n, task, b"")
    if life is not None:
        end_run(n, task, life, RELEASED)
        life.is_resting = delay_ms > 0
    go_back(n, t, tube, task, life if n.events is not None else None, delay_ms, BY_RELEASE)
    return True


def go_back(
    n: Node, t: Tubes, tube: Tube, task: Task, work: Life | None, delay_ms: i64, cause: i64
) -> None:
    """The task comes again; `work`: where its return is counted, if not by `nacks`."""
    tube.calls.release += 1
    if work is not None:
        count_return(n, task, work)
        put_back(n, t, tube, task, delay_ms)
        record_whole(n, tube, task)
    else:
        put_back(n, t, tube, task, delay_ms)
        record(n, tube, task)
    tell(n, t, tube, task, options.RELEASE)
    n.book.requeue(task, cause)
    if n.events is not None:
        n.events.nacked(n.now_ms, task, b"released" if cause == BY_RELEASE else b"")


def count_return(n: Node, task: Task, life: Life) -> None:
    """[E1] The task goes back without a NACK: it carries how often (E1.11)."""
    life.returned += 1
    carry(task, life)
    n.life.weigh(life)


def end_run(n: Node, task: Task, life: Life, how: i64) -> None:
    """The live run is over."""
    if life.run_state == LIVE:
        life.run_state = how
        life.ended_ms = n.now_ms
        if how == RELEASED:
            tell_run(n, task, life, RUN_RELEASED, life.worker)


def put_back(n: Node, t: Tubes, tube: Tube, task: Task, delay_ms: i64) -> None:
    """The task is READY at its old place, now or after the delay; its ttl does not change."""
    if delay_ms > 0:
        change(n, t, tube, task, DELAYED)
        arm(n, t, task, n.now_ms + clamp(delay_ms, 0))
    else:
        change(n, t, tube, task, READY)
        arm(n, t, task, 0)


def on_fail(
    n: Node,
    t: Tubes,
    tube: Tube,
    task: Task,
    run: i64,
    delay_ms: i64,
    failure: Failure,
    is_final: bool,
) -> tuple[i64, i64, Refusal | None]:
    """[T48] FAIL: what became of the task, and the wait in ms; or a refusal (T48.7)."""
    life, refused = known_run(n, tube, task, run, -1)
    if life is None:
        return 0, 0, refused
    failure.worker = life.worker
    if is_over_time(n, life):
        failure.cause = TIMED_OUT
        failure.reason = limit_text(life)
    became = fail(n, t, tube, task, life, failure, delay_ms, is_final)
    is_waiting = became == BACK and life.is_resting
    return became, task.qtime_ms - n.now_ms if is_waiting else 0, None


def fail(
    n: Node,
    t: Tubes,
    tube: Tube,
    task: Task,
    life: Life,
    failure: Failure,
    delay_ms: i64,
    is_final: bool,
    is_silent: bool = False,
) -> i64:
    """[T48] PROCEDURE a run failed: the task waits, or is given up (T48.7).

    `is_silent`: its worker is gone, and that uses up no attempt (W6.7).
    """
    is_last = counts_out(n, life, failure.attempt, is_silent) or is_final
    if life.first is None:
        life.first = Failure(
            failure.at_ms, failure.attempt, failure.worker, failure.cause, failure.reason, b""
        )
    life.last = failure
    tell_failure(n, task, failure)
    end_run(n, task, life, FAILED)
    n.life.weigh(life)
    n.life.failures += 1
    n.book.fail(task)
    if ends_cancelled(n, t, tube, task):
        return ENDED
    if is_last:
        give_up(n, t, tube, task, life, failure.cause)
        return DIED
    if task.dead_ms <= n.now_ms:
        if life.dies_expired():
            give_up(n, t, tube, task, life, EXPIRED)  # T48.14
            return DIED
        expire(n, t, tube, task)
        return GONE
    wait_ms = back_off_ms(n, life) if delay_ms < 0 else delay_ms
    life.is_resting = wait_ms > 0
    tube.calls.release += 1
    count_return(n, task, life)
    put_back(n, t, tube, task, wait_ms)
    record_whole(n, tube, task)  # T48.2
    tell(n, t, tube, task, options.RELEASE)
    n.book.requeue(task, BY_FAILURE)
    if n.events is not None:
        reason = failure.reason
        n.events.nacked(n.now_ms, task, reason if len(reason) > 0 else failure.cause)
    return BACK


def fail_take(n: Node, t: Tubes, tube: Tube, task: Task, delay_ms: i64) -> i64:
    """[T1] FAIL of a task without runs: it comes again; returns the wait in ms (T1.14)."""
    task.nacks += 1
    n.nacks += 1
    go_back(n, t, tube, task, None, delay_ms, BY_NACK)
    return task.qtime_ms - n.now_ms if delay_ms > 0 else 0


def counts_out(n: Node, work: Life, attempt: i64, is_silent: bool) -> bool:
    """Count the failed run; whether the task has no other one (W5.3, W6.7)."""
    if is_silent:
        n.life.crashes += 1
        return work.crash(n.limits.crashes_max)
    work.failed = max(work.failed, attempt)
    return 0 < work.terms.attempts <= work.failed


def is_silent(n: Node, t: Tubes, tube: Tube, task: Task) -> bool:
    """[T48] TIMER: ttr of a TAKEN task is over; False: no run of it lasts (T48.9)."""
    work = life_of(n, task.id)
    if work is None or work.run_state != LIVE:
        return False
    tube.calls.ttr += 1
    is_slow = is_over_time(n, work)
    if work.client >= 0:
        n.life.calls.append((int(work.client), task.id, int(work.run)))
    reason = limit_text(work) if is_slow else work.silence(i64(task.retry_s), n.limits.crashes_max)
    cause = TIMED_OUT if is_slow else CRASHED
    failure = Failure(n.now_ms, attempt_of(work.run), work.worker, cause, reason, b"")
    fail(n, t, tube, task, work, failure, -1, False, not is_slow)
    return True
