"""Tasks at work in tubes of type `tasks`: START to FAIL, silence, CANCEL, UPDATEJOB (SPEC T48).

The token of a run follows from the take: so a new leader knows it also if the START was lost with
the last one. Terms, failures and the run are part of the task (tubes/entries/work.py).
"""

from mypy_extensions import i64

from tuque.core.life.runs import new_life, next_wait_ms, tell_failure, tell_run
from tuque.core.model.errors import (
    CANCELLED_JOB,
    NOTDELIVERED,
    Refusal,
)
from tuque.core.model.job import OUT_HERE, Update
from tuque.core.model.stats import BY_FAILURE, BY_NACK, BY_RELEASE
from tuque.core.model.task import BYTES, DELAYED, MAX_MS, READY, TAKEN, Task
from tuque.core.model.work import (
    CRASHED,
    EXPIRED,
    FAILED,
    LIVE,
    NEVER_S,
    RELEASED,
    TIMED_OUT,
    UNSTARTED,
    Failure,
    Life,
    attempt_of,
)
from tuque.core.node.node import Node
from tuque.core.node.tables import fitting_reason, put_body
from tuque.core.queues.ends import life_of
from tuque.core.records.events import RUN_RELEASED, RUN_STARTED
from tuque.core.records.tubes import tell_task_life
from tuque.core.work import rules
from tuque.core.work.rules import BACK, DIED, ENDED, GONE
from tuque.tubes.entries.keys import carry, work_in
from tuque.tubes.log.leader import needs_copies
from tuque.tubes.log.send import WORK, trace
from tuque.tubes.model import options
from tuque.tubes.model.tube import Tube
from tuque.tubes.model.tubes import Tubes
from tuque.tubes.policies.next_task import Tasks
from tuque.tubes.work.dead_letters import give_up, set_end
from tuque.tubes.work.transitions import (
    arm,
    change,
    clamp,
    end_cancelled,
    ends_cancelled,
    expire,
    is_forgiven,
    keep_image,
    record,
    record_back,
    record_update,
    record_whole,
    reprice,
    return_ms,
    run_of_take,
    tell,
)


def start(
    n: Node, t: Tubes, tube: Tube, task: Task, worker: bytes, client: i64
) -> tuple[Life | None, Refusal | None]:
    """[T48] START of a task that was delivered (T48.3)."""
    work = life_of(n, task.id)
    refused = rules.may_begin(work, rules.DELIVERED, task.queue, worker, n.now_ms)
    if refused is not None:
        if work is not None and refused.code == CANCELLED_JOB:
            end_cancelled(n, t, tube, task, work)
        return None, refused
    if work is not None and work.run_state == LIVE:
        work.client = client
        return work, None  # W2.4
    if work is None:
        work = new_life(n, task, worker)
    begin(n, tube, task, work, worker, client, n.now_ms)
    limit_ms = work.terms.limit_ms
    if limit_ms > 0 and (task.qtime_ms == 0 or n.now_ms + limit_ms < task.qtime_ms):
        arm(n, t, task, n.now_ms + limit_ms)
        record(n, tube, task)
    if n.events is not None:
        n.events.run(n.now_ms, task, RUN_STARTED, attempt_of(work.run), worker)
    return work, None


def cancel(n: Node, t: Tubes, tube: Tube, task: Task, reason: bytes) -> bool:
    """[T48] CANCEL: True, the task has ended; False, who has it hears of it (T48.10)."""
    work = life_of(n, task.id)
    if work is None:
        work = new_life(n, task, b"")
    is_news = rules.flag(work, fitting_reason(n, work, reason))
    n.life.weigh(work)
    if task.status != TAKEN:
        end_cancelled(n, t, tube, task, work)
        return True
    if is_news:
        if work.run_state == LIVE and work.client >= 0:
            n.life.calls.append((int(work.client), task.id, int(work.run)))  # W8.2
        carry(task, work)  # a new leader knows it (T48.2)
        record_update(n, t, tube, task)
    return False


def begin(
    n: Node, tube: Tube, task: Task, life: Life, worker: bytes, client: i64, since_ms: i64
) -> None:
    """The run of this take lasts: the journal and other nodes know it (T48.2)."""
    if rules.begin(life, run_of_take(task, life), worker, client, since_ms):
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
    """[T48] The work whose run lasts; a run that began at an earlier leader goes on (T48.4)."""
    work = life_of(n, task.id)
    if task.status == TAKEN and run == run_of_take(task, work):
        if work is None:
            work = new_life(n, task, b"")
        if work.run != run:
            begin(n, tube, task, work, work.worker, client, task.taken_ms)
    refused = rules.check_run(work, run, task.queue)
    return (work, None) if refused is None else (None, refused)


def at_work(n: Node, t: Tubes, tube: Tube, task: Task, run: i64, client: i64) -> Refusal | None:
    """[T48] WORKING and PROGRESS: the run is heard of, and has ttr from now (T48.4)."""
    work = life_of(n, task.id)
    if run == 0 and work is not None:
        run = work.run
    work, refused = known_run(n, tube, task, run, client)
    if work is None:
        return refused
    refused = rules.may_last(work, client, n.now_ms)
    if refused is not None:
        return refused
    at_ms = rules.due_by(work, return_ms(n, tube, task))
    if at_ms > task.qtime_ms:
        arm(n, t, task, at_ms)
        record(n, tube, task)
    tube.calls.touch += 1
    tell(n, t, tube, task, options.TOUCH)
    return None


def release(n: Node, t: Tubes, tube: Tube, task: Task, run: i64, delay_ms: i64) -> bool:
    """[T48] RELEASE: the task is given back, and nothing is counted (T48.5)."""
    work = life_of(n, task.id)
    if task.status != TAKEN:
        return False
    if run != 0 and run != run_of_take(task, work):
        return False
    if run == 0 and work is not None and work.run_state == LIVE:
        return False
    if ends_cancelled(n, t, tube, task):
        return True
    if work is None and n.events is not None:
        work = new_life(n, task, b"")
    if work is not None:
        end_run(n, task, work, RELEASED)
        work.is_resting = delay_ms > 0
    go_back(n, t, tube, task, work if n.events is not None else None, delay_ms, BY_RELEASE)
    return True


def go_back(
    n: Node, t: Tubes, tube: Tube, task: Task, work: Life | None, delay_ms: i64, cause: i64
) -> None:
    """The task comes again; `work`: where its return is counted, if not by `nacks`."""
    tube.calls.release += 1
    is_whole = is_forgiven(n, task)
    if work is not None:
        count_return(n, task, work)
        is_whole = True
    put_back(n, t, tube, task, delay_ms)
    record_back(n, tube, task, is_whole)
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
    if rules.end_run(life, how, n.now_ms) and how == RELEASED:
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
    if rules.is_over_time(life, n.now_ms):
        failure.cause = TIMED_OUT
        failure.reason = rules.limit_reason(life)
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
    n.life.crashes += 1 if is_silent else 0
    is_last = rules.count_failure(life, failure.attempt, is_silent, n.limits.crashes_max)
    is_last = is_last or is_final
    rules.keep_failure(life, failure)
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
        if rules.dies_expired(life):
            give_up(n, t, tube, task, life, EXPIRED)  # T48.14
            return DIED
        expire(n, t, tube, task)
        return GONE
    wait_ms = next_wait_ms(n, life) if delay_ms < 0 else delay_ms
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


def is_unstarted(n: Node, t: Tubes, tube: Tube, task: Task, work: Life) -> bool:
    """[T48] ttr of a delivery is over that nobody began: whether that was one too many (W6.4)."""
    if work.terms.attempts == 0:
        return False
    is_too_many = rules.count_unstarted(work, n.limits.unstarted_max)
    carry(task, work)
    if not is_too_many:
        return False
    give_up(n, t, tube, task, work, UNSTARTED)
    return True


def is_silent(n: Node, t: Tubes, tube: Tube, task: Task) -> bool:
    """[T48] TIMER: ttr of a TAKEN task is over; False: no run of it lasts (T48.9)."""
    work = life_of(n, task.id)
    if work is None or work.run_state != LIVE:
        return False
    tube.calls.ttr += 1
    is_slow = rules.is_over_time(work, n.now_ms)
    if work.client >= 0:
        n.life.calls.append((int(work.client), task.id, int(work.run)))
    reason = rules.crash_reason(work, i64(task.retry_s), n.limits.crashes_max)
    if is_slow:
        reason = rules.limit_reason(work)
    cause = TIMED_OUT if is_slow else CRASHED
    failure = Failure(n.now_ms, attempt_of(work.run), work.worker, cause, reason, b"")
    fail(n, t, tube, task, work, failure, -1, False, not is_slow)
    return True


# ---- UPDATEJOB of a task that nobody has (SPEC W10, T48.11)


def update(n: Node, t: Tubes, tube: Tube, task: Task, asked: Update) -> Refusal | None:
    """[T48] UPDATEJOB: all of it in one change; why not, and then nothing has changed (T48.11)."""
    work = n.life.by_id.get(task.id)
    refused = why_not_updated(n, tube, task, work, asked)
    if refused is not None:
        return refused
    needs_copies(n, t, tube)  # not before: an error waits for no copies
    if asked.pri >= 0 and asked.pri != task.pri:
        task = reprice(n, t, tube, task, asked.pri)
    body = asked.body
    if body is not None:
        put_body(n, task, body)
        task.form = BYTES
    headers = asked.headers
    if work is None and (asked.attempts >= 0 or (headers is not None and len(headers) > 0)):
        work = new_life(n, task, b"")
    if work is not None:
        if headers is not None:
            work.headers = headers
        if asked.attempts >= 0:
            work.terms = n.life.share(work.terms.with_attempts(asked.attempts))
    if asked.ttl_s >= 0:
        left_ms = MAX_MS if asked.ttl_s == NEVER_S else asked.ttl_s * 1000
        set_end(n, task, left_ms)
        if work is not None and work.replays > 0:
            work.ttl_ms = left_ms  # T48.13
    put_off(n, t, tube, task, asked)
    if work is not None:
        carry(task, work)
        n.life.weigh(work)
    record_update(n, t, tube, task)
    return None


def why_not_updated(
    n: Node, tube: Tube, task: Task, work: Life | None, asked: Update
) -> Refusal | None:
    """Why the task cannot be changed (W10.2); None: it can."""
    place = rules.DELIVERED if task.status == TAKEN else rules.WAITING
    refused = rules.may_change(work, place, task.queue, task.taken_ms, n.now_ms)
    if refused is not None:
        return refused
    driver = tube.driver
    assert isinstance(driver, Tasks)
    if int(task.number) in driver.plans.held:
        return Refusal(NOTDELIVERED)  # T45.4
    failed: i64 = 0 if work is None else work.failed
    return asked.refusal(failed, task.dead_ms - n.now_ms)


def put_off(n: Node, t: Tubes, tube: Tube, task: Task, asked: Update) -> None:
    """The task waits from now on for the delay, if one is named: its ttl does not change."""
    delay_ms = asked.delay_ms
    if delay_ms < 0:
        arm(n, t, task, task.qtime_ms)
        return
    if task.delivered_count == 0:
        task.delay_s = asked.first_delay_s(task.ctime_ns, n.now_ms)  # W10.4
    if delay_ms == 0 and task.status == DELAYED:
        change(n, t, tube, task, READY)
    elif delay_ms > 0 and task.status == READY:
        change(n, t, tube, task, DELAYED)
    arm(n, t, task, 0 if delay_ms == 0 else n.now_ms + delay_ms)
