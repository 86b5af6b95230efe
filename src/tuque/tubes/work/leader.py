"""The leader of a tube keeps the work of its tasks: the placement of it (SPEC T48).

The token of a run follows from the take: so a new leader knows it also if the START was lost with
the last one. Terms, failures and the run are part of the task (tubes/entries/work.py). Commands
come here from core/life, whose rules are the same for all jobs (core/work).
"""

from mypy_extensions import i64

from tuque.core.life.runs import end_run, end_silent
from tuque.core.life.start import end_cancelled, new_life
from tuque.core.model.errors import (
    NOTDELIVERED,
    Refusal,
)
from tuque.core.model.job import OUT_HERE, Update
from tuque.core.model.stats import BY_NACK, BY_RELEASE
from tuque.core.model.task import BYTES, DELAYED, MAX_MS, READY, TAKEN, Task
from tuque.core.model.work import (
    LIVE,
    NEVER_S,
    RELEASED,
    UNSTARTED,
    Life,
)
from tuque.core.node.node import Node
from tuque.core.node.tables import put_body
from tuque.core.queues.ends import life_of
from tuque.core.records.tubes import tell_task_life
from tuque.core.work import rules
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
    is_forgiven,
    keep_image,
    record,
    record_back,
    record_update,
    reprice,
    return_ms,
    run_of_take,
    tell,
)


def begin(
    n: Node, tube: Tube, task: Task, work: Life, worker: bytes, client: i64, since_ms: i64
) -> None:
    """[T48] The run of this take lasts: the journal and other nodes know it (T48.2)."""
    if rules.begin(work, run_of_take(task, work), worker, client, since_ms):
        n.life.weigh(work)
    n.life.runs += 1
    carry(task, work)
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


def limit(n: Node, t: Tubes, tube: Tube, task: Task, work: Life) -> None:
    """[T48] The run that begins now is over at its TIMELIMIT (W3.3)."""
    limit_ms = work.terms.limit_ms
    if task.qtime_ms == 0 or n.now_ms + limit_ms < task.qtime_ms:
        arm(n, t, task, n.now_ms + limit_ms)
        record(n, tube, task)


def known_run(
    n: Node, t: Tubes, tube: Tube, task: Task, run: i64, client: i64
) -> tuple[Life | None, Refusal | None]:
    """[T48] The work whose run lasts; a run that began at an earlier leader goes on (T48.4)."""
    needs_copies(n, t, tube)
    work = n.life.by_id.get(task.id)
    if task.status == TAKEN and run == run_of_take(task, work):
        if work is None:
            work = new_life(n, task, b"")
        if work.run != run:
            begin(n, tube, task, work, work.worker, client, task.taken_ms)
    refused = rules.check_run(work, run, task.queue)
    return (work, None) if refused is None else (None, refused)


def extend(n: Node, t: Tubes, tube: Tube, task: Task, work: Life) -> None:
    """[T48] WORKING and PROGRESS: the run has ttr from now (T48.4)."""
    at_ms = rules.due_by(work, return_ms(n, tube, task))
    if at_ms > task.qtime_ms:
        arm(n, t, task, at_ms)
        record(n, tube, task)
    tube.calls.touch += 1
    tell(n, t, tube, task, options.TOUCH)


def release(
    n: Node, t: Tubes, tube: Tube, task: Task, run: i64, delay_ms: i64, client: i64
) -> bool:
    """[T48] RELEASE of a TAKEN task: it is given back, and nothing is counted (T48.5)."""
    work = life_of(n, task.id)
    if not rules.may_release(work, run) and run != run_of_take(task, work):
        return False
    if work is None and n.events is not None:
        work = new_life(n, task, b"")
    if work is not None:
        n.life.stop_runner(task.id, work, client)
        if work.is_cancelled:
            end_cancelled(n, task, work)
            return True
        end_run(n, task, work, RELEASED)
        work.is_resting = delay_ms > 0
    go_back(n, t, tube, task, work if n.events is not None else None, delay_ms, BY_RELEASE)
    if n.events is not None:
        n.events.nacked(n.now_ms, task, b"released")
    return True


def go_back(
    n: Node, t: Tubes, tube: Tube, task: Task, work: Life | None, delay_ms: i64, cause: i64
) -> None:
    """The task comes again; `work`: where its return is counted, if not by `nacks`."""
    tube.calls.release += 1
    is_whole = is_forgiven(n, task)
    if work is not None:
        work.returned += 1  # E1.11
        carry(task, work)
        n.life.weigh(work)
        is_whole = True
    put_back(n, t, tube, task, delay_ms)
    record_back(n, tube, task, is_whole)
    tell(n, t, tube, task, options.RELEASE)
    n.book.requeue(task, cause)


def put_back(n: Node, t: Tubes, tube: Tube, task: Task, delay_ms: i64) -> None:
    """The task is READY at its old place, now or after the delay; its ttl does not change."""
    if delay_ms > 0:
        change(n, t, tube, task, DELAYED)
        arm(n, t, task, n.now_ms + clamp(delay_ms, 0))
    else:
        change(n, t, tube, task, READY)
        arm(n, t, task, 0)


def give_back(
    n: Node, t: Tubes, tube: Tube, task: Task, work: Life, delay_ms: i64, cause: i64
) -> None:
    """[T48] The run failed, and the task comes again (T48.7)."""
    work.is_resting = delay_ms > 0
    go_back(n, t, tube, task, work, delay_ms, cause)


def fail_take(n: Node, t: Tubes, tube: Tube, task: Task, delay_ms: i64) -> i64:
    """[T1] FAIL of a task without runs: it comes again; returns the wait in ms (T1.14)."""
    task.nacks += 1
    n.nacks += 1
    go_back(n, t, tube, task, None, delay_ms, BY_NACK)
    if n.events is not None:
        n.events.nacked(n.now_ms, task)
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


def is_silent(n: Node, tube: Tube, task: Task) -> bool:
    """[T48] TIMER: ttr of a TAKEN task is over; False: no run of it fails now (T48.9)."""
    work = life_of(n, task.id)
    if work is None or work.run_state != LIVE or work.is_cancelled:
        return False
    tube.calls.ttr += 1
    end_silent(n, task, work)
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
        if rules.change(work, headers, asked.attempts):
            work.terms = n.life.share(work.terms)
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
    place: i64 = rules.DELIVERED if task.status == TAKEN else rules.WAITING
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
