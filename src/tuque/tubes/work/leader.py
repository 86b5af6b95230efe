"""The leader of a tube keeps the work of its tasks: the placement of it (SPEC T48).

The token of a run follows from the take: so a new leader knows it also if the START was lost with
the last one. Terms, failures and the run are part of the task (tubes/entries/work.py). Commands
come here from core/life, whose rules are the same for all jobs (core/work).
"""

from mypy_extensions import i64

from tuque.core.life.holders import new_life
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
    Life,
)
from tuque.core.node.node import Node
from tuque.core.node.queue import COUNT, SAME_FLAG
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
from tuque.tubes.work.dead_letters import set_end
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


def may_release(n: Node, task: Task, run: i64) -> bool:
    """[T48] RELEASE of a TAKEN task, by the token of its take, too (T48.5)."""
    work = life_of(n, task.id)
    return rules.may_release(work, run) or run == run_of_take(task, work)


def over_ms(n: Node, tube: Tube, task: Task, work: Life | None) -> i64:
    """[T48] Until when a take lasts at least: ttr counts from a start, a standstill, or from when
    this node leads the tube (T48.9).
    """
    if not tube.driver.has_keys:
        return 0
    is_live = work is not None and work.run_state == LIVE
    due_ms = max(tube.hears_ms, n.deaf_until_ms()) + return_ms(n, tube, task) - n.now_ms
    return rules.due_by(work, due_ms) if work is not None and is_live else due_ms


def extend(n: Node, t: Tubes, tube: Tube, task: Task, work: Life) -> None:
    """[T48] WORKING and PROGRESS: the run has ttr from now (T48.4)."""
    at_ms = rules.due_by(work, return_ms(n, tube, task))
    if at_ms > task.qtime_ms:
        arm(n, t, task, at_ms)
        record(n, tube, task)
    tube.calls.touch += 1
    tell(n, t, tube, task, options.TOUCH)


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
    n: Node, t: Tubes, tube: Tube, task: Task, work: Life | None, delay_ms: i64, cause: i64
) -> None:
    """[T48] The run is over, and the task comes again (T48.5, T48.7)."""
    if work is not None:
        work.is_resting = delay_ms > 0
    if cause == BY_RELEASE and n.events is None:
        work = None  # nobody asks how often it came back
    go_back(n, t, tube, task, work, delay_ms, cause)


def fail_take(n: Node, t: Tubes, tube: Tube, task: Task, delay_ms: i64) -> i64:
    """[T1] FAIL of a task without runs: it comes again; returns the wait in ms (T1.14)."""
    task.nacks += 1
    n.nacks += 1
    go_back(n, t, tube, task, None, delay_ms, BY_NACK)
    if n.events is not None:
        n.events.nacked(n.now_ms, task)
    return task.qtime_ms - n.now_ms if delay_ms > 0 else 0


# ---- UPDATEJOB of a task that nobody has (SPEC W10, T48.11)


def may_change(tube: Tube, task: Task) -> i64:
    """A job of a schedule is not changed before it has its copies (T45.4)."""
    driver = tube.driver
    assert isinstance(driver, Tasks)
    return NOTDELIVERED if int(task.number) in driver.plans.held else 0


def update(n: Node, t: Tubes, tube: Tube, task: Task, asked: Update) -> Task:
    """[T48] UPDATEJOB: pri, time to live and delay; returns the record of the task (T48.11)."""
    needs_copies(n, t, tube)  # not before: an error waits for no copies
    if asked.pri >= 0 and asked.pri != task.pri:
        task = reprice(n, t, tube, task, asked.pri)
    if asked.body is not None:
        task.form = BYTES
    if asked.ttl_ms >= 0:
        left_ms = MAX_MS if asked.ttl_ms == NEVER_S * 1000 else asked.ttl_ms
        set_end(n, task, left_ms)
        work = n.life.by_id.get(task.id)
        if work is not None and work.replays > 0:
            work.ttl_ms = left_ms  # T48.13
    put_off(n, t, tube, task, asked)
    return task


def save(n: Node, t: Tubes, tube: Tube, task: Task, work: Life | None, what: i64) -> None:
    """[T48] The work is part of the task, so that a new leader knows it (T48.2)."""
    if what == SAME_FLAG:
        return
    if work is not None:
        carry(task, work)
    if what != COUNT:
        record_update(n, t, tube, task)


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
