"""Changes of a task's status: tables, timers, counters, journal, notices, work (SPEC T4, T48.2).

Every change goes through `change`, which keeps the tube, its driver and the session consistent
with the task. tubes/tasks/operations.py decides which callers may ask for one.
"""

from typing import Final

from mypy_extensions import i64, u8

from tuque.core.life.start import end_cancelled
from tuque.core.model import stats
from tuque.core.model.job import ACKED, DELIVERED, OUT_HERE, AddSpec
from tuque.core.model.stats import BY_COMMAND
from tuque.core.model.task import (
    BURIED,
    BYTES,
    DELAYED,
    DONE,
    FAR,
    MAX_MS,
    READY,
    TAKEN,
    TASK_BYTES,
    Task,
    is_arrow,
    retry_of,
    state_of,
    whole_s,
    with_pri,
)
from tuque.core.model.work import (
    ATTEMPT_BITS,
    NO_RUN,
    NO_TERMS,
    RELEASED,
    STARTS_MAX,
    Life,
    run_of,
)
from tuque.core.msgs.records import TubeCfg, TubeImplicit, TubeRow
from tuque.core.node.node import JOB_ENDED, Node, Wake
from tuque.core.node.queue import PAUSE_IN
from tuque.core.node.tables import swap_job
from tuque.core.queues.ends import life_of
from tuque.core.queues.procedures import drop_task, mark_ready, register
from tuque.core.records.events import REQUEUE_COMMAND
from tuque.core.records.jobs import Records
from tuque.core.records.tubes import (
    tell_task,
    tell_task_state,
)
from tuque.core.work import rules
from tuque.tubes.entries.keys import JobEntry, carry, drop_work, keys_of, unique_of
from tuque.tubes.entries.schedule import HoldEntry
from tuque.tubes.entries.value import SetEntry, ValueEntry, wait_key
from tuque.tubes.entries.work import is_empty
from tuque.tubes.log.results import note_end
from tuque.tubes.log.send import ALL, STATE, trace
from tuque.tubes.model import options
from tuque.tubes.model.options import PRI_DEFAULT, Change, PutDone, PutSpec, Told
from tuque.tubes.model.tube import Tube
from tuque.tubes.model.tubes import Tubes
from tuque.tubes.policies.next_task import Tasks
from tuque.tubes.types.driver import Driver

TAKES: Final = 1_048_573  # of so many in a row each has another hash

TOKEN_RESERVE: Final = 1 << 20  # tokens that a restart may skip
RESERVE: Final = 999  # numbers of a temporary tube that a restart may skip


# ---- The work of the tasks that this node leads, as it follows from the tasks (SPEC T48.2)


def work_for(spec: AddSpec) -> Life | None:
    """[T48] The work of the task of an ADDJOB, if it has some (T48.1)."""
    if spec.terms is None and len(spec.headers) == 0:
        return None
    return Life(NO_TERMS if spec.terms is None else spec.terms, spec.headers)


def enter_life(n: Node, task: Task) -> None:
    """The task enters the tables of the leader: so does its life, if it has one."""
    entry = task.entry
    work = entry.work if isinstance(entry, JobEntry) else None
    if work is not None and goes_on(task, work):
        work.terms = n.life.share(work.terms)
        work.is_resting = work.is_resting and task.status == DELAYED
        work.is_dead = False  # until it lies in the table of dead letters
        n.has_lives = True
        n.life.enter(task.id, work, task.queue)


def run_of_take(task: Task, life: Life | None) -> i64:
    """The token of the run that this take may have (T48.3)."""
    failed: i64 = 0 if life is None else life.failed
    return run_of(failed + 1, min(i64(task.delivered_count), STARTS_MAX), task.token % TAKES)


def ran_last(task: Task, run: i64) -> bool:
    """[T48] Whether the run is that of the last take, which is over (T48.6); 0: no run was named.

    Its attempt may have failed since: all else of the token says which take it was.
    """
    if run == 0 or task.status == TAKEN:
        return False
    return (run ^ run_of_take(task, None)) & ~ATTEMPT_BITS == 0


def goes_on(task: Task, life: Life) -> bool:
    """[T48] The run in the life counts if it is of the present take (T48.4). False: the life says
    nothing without it.
    """
    if life.run == 0:
        return True
    if task.status == TAKEN and life.run == run_of_take(task, life):
        life.since_ms += task.taken_ms
        task.marks = OUT_HERE
        return True
    life.run, life.starts, life.run_state = 0, 0, NO_RUN
    life.since_ms = 0
    life.worker = b""
    forget_run(task, life)
    return not is_empty(life)


def forget_run(task: Task, life: Life) -> None:
    """The task carries no run any more: that of its last take is over."""
    if is_empty(life):
        drop_work(task)
    else:
        carry(task, life)


def go_on(n: Node, driver: Driver, task: Task, old: i64) -> None:
    """[T48] The life of the task follows it, and so does its unique key (T44.2, T48.13)."""
    if n.has_lives:
        moved_on(n, task, old)
    if task.status == BURIED or old == BURIED:
        assert isinstance(driver, Tasks)
        if task.status == BURIED:
            driver.died(task)
        else:
            driver.joined(task)


def moved_on(n: Node, task: Task, old: i64) -> None:
    """The task has another status than `old`: no run of it lasts, nor its back-off."""
    life = life_of(n, task.id)
    if life is None:
        return
    if old == TAKEN:
        rules.end_run(life, RELEASED, n.now_ms)
    if old == TAKEN and life.run != 0:
        forget_run(task, life)
    elif old == DELAYED and life.is_resting:
        life.is_resting = False
        if task.entry is not None:
            task.entry.drop_image()


# ---- Transitions (SPEC T4)


def change(n: Node, t: Tubes, tube: Tube, task: Task, to: i64) -> None:
    """Move the task along a transition; timers, journal and notices are up to the caller."""
    old = i64(task.status)
    assert is_arrow(old, to), "illegal change of status"
    driver = tube.driver
    driver.now_ms = n.now_ms
    used = driver.bytes_used
    if to == TAKEN:
        driver.took(task)
    task.status = u8(to)
    task.state = u8(state_of(to))
    if old == READY:
        tube.length -= 1
        if to != TAKEN:
            driver.left(task)
    elif old == DELAYED:
        tube.delayed -= 1
    elif old == BURIED:
        tube.buried -= 1
        tube.graves.remove(task)
    if to == READY:
        tube.length += 1
        driver.enter(task)
        if len(tube.waiters) > 0:
            mark_ready(n, tube)
    elif to == TAKEN:
        tube.taken += 1
    elif to == DELAYED:
        tube.delayed += 1
    elif to == BURIED:
        tube.buried += 1
        tube.graves.add(task)
    if driver.has_keys and to != DONE:
        go_on(n, driver, task, old)
    if old == TAKEN:
        tube.taken -= 1
        if task.owner != 0:
            disown(t, task)
        driver.freed(task)
        if len(tube.waiters) > 0 and tube.length > 0:
            mark_ready(n, tube)  # its sub-queue, or its LIMIT, may have more
    if driver.alarm_ms < tube.alarm_ms:
        t.watch(tube)
    t.charge(tube, driver.bytes_used - used)


def disown(t: Tubes, task: Task) -> None:
    """Remove the task from its session."""
    session = t.session_of_number(task.owner)
    if session is not None:
        del session.taken[task.id]
    task.owner = 0


def arm(n: Node, t: Tubes, task: Task, at_ms: i64) -> None:
    """Set the timer: a TAKEN or DELAYED task waits for `at_ms` (0: for ever), others for their end.

    `expire_ms` is not earlier, since ttl ends neither of these (T6.2).
    """
    if task.status == READY or task.status == BURIED:
        at_ms = 0
    elif at_ms > n.now_ms + MAX_MS:
        at_ms = n.now_ms + MAX_MS
    task.qtime_ms = at_ms
    end_ms = task.dead_ms
    if end_ms == FAR or (at_ms == 0 and task.status == TAKEN):
        end_ms = n.now_ms + MAX_MS
    if end_ms < at_ms:
        end_ms = at_ms
    task.expire_ms = end_ms
    if at_ms == 0:
        at_ms = end_ms
    if at_ms <= n.now_ms:
        t.overdue.append(task)
    n.wheel.set(task, at_ms, n.now_ms)


def tell(n: Node, t: Tubes, tube: Tube, task: Task, event: i64) -> None:
    """Keep a notice of the change for pollers, subscribers and the tube's callback (T12)."""
    status = i64(task.status)
    t.charge(tube, tube.note(event, task.number, status, n.now_ms))
    if tube.subscribers > 0 or len(tube.on_task_change) > 0:
        seq = tube.change_seq - 1
        change = Change(seq, options.EVENTS[event], task.number, status, n.now_ms)
        t.told.append(Told(tube.name, change, task))


def record(n: Node, tube: Tube, task: Task, binds: bool = True) -> None:
    """Record the task's new state (T14.1); `binds`: the reply waits for it."""
    if tube.is_temporary:
        return
    if n.records is not None:
        tell_task_state(n.records, task, binds)
    tube.seq += 1  # T18.2
    if n.others != 0:
        trace(n, tube, task.number, STATE)


def record_whole(n: Node, tube: Tube, task: Task) -> None:
    """Record all of the task: more than its state has changed (T14.1)."""
    if tube.is_temporary:
        return
    keep_image(n, task)
    if n.records is not None:
        tell_task(n.records, task)
    tube.seq += 1  # T18.2
    if n.others != 0:
        trace(n, tube, task.number, ALL)


def record_update(n: Node, t: Tubes, tube: Tube, task: Task) -> None:
    """The task has changed, and not its status: one change, and its notice."""
    record_whole(n, tube, task)
    tell(n, t, tube, task, options.UPDATE)


def keep_image(n: Node, task: Task) -> None:
    """Journal and followers get the entry of the task: it is packed once (T18.2)."""
    entry = task.entry
    if entry is not None and n.records is not None and n.others != 0:
        entry.keep_image(task.taken_ms)


def set_pri(n: Node, t: Tubes, tube: Tube, task: Task, pri: i64) -> None:
    """[T1] The task has another pri from now on, in whatever status (T1.10)."""
    record_update(n, t, tube, reprice(n, t, tube, task, pri))


def reprice(n: Node, t: Tubes, tube: Tube, task: Task, pri: i64) -> Task:
    """Its new record with that pri, in the place of the old one. The caller records it."""
    fresh = with_pri(task, pri)
    driver = tube.driver
    driver.now_ms = n.now_ms
    used = driver.bytes_used
    if task.status == READY:
        task.status = DONE  # a driver of another package may still have the old record
        driver.left(task)
        driver.enter(fresh)
        if len(tube.waiters) > 0:
            mark_ready(n, tube)
    elif task.status == BURIED:
        task.status = DONE
        tube.graves.remove(task)
        tube.graves.add(fresh)
    t.charge(tube, driver.bytes_used - used)
    swap_job(n, task, fresh)
    tube.tasks[fresh.number] = fresh
    session = t.session_of_number(fresh.owner) if fresh.owner != 0 else None
    if session is not None:
        session.taken[fresh.id] = fresh
    for done in t.put_done:
        if done.task is task:
            done.task = fresh  # a waiting put whose reply is still to be sent
    n.wheel.cancel(task)
    arm(n, t, fresh, fresh.qtime_ms)
    return fresh


def end(n: Node, t: Tubes, tube: Tube, task: Task, cause: i64, event: i64) -> None:
    """End the task: remove it from all tables; events for histories are up to the caller."""
    driver = tube.driver
    if driver.has_keys and task.entry is not None and event != options.TRUNCATE:  # T44.8
        assert isinstance(driver, Tasks)
        until_ms = driver.uniques.kept_until(task, n.now_ms)
        if until_ms > 0:
            keep_key(n, t, tube, task, until_ms)  # T44.3
    let_go(n, t, tube, task)
    drop_task(n, task, cause)
    if not tube.is_temporary:
        if n.records is not None:
            n.records.remove(task.id, cause)
        tube.seq += 1
        if driver.has_keys and n.has_lives:
            note_end(n, tube, task)  # T48.6
            if isinstance(task.entry, ValueEntry | SetEntry):
                wake_waits(n, tube, task.entry.name)
        if n.others != 0:
            trace(n, tube, task.number, STATE)
    tell(n, t, tube, task, event)
    if len(tube.putters) > 0:
        admit(n, t, tube)


def keep_key(n: Node, t: Tubes, tube: Tube, task: Task, until_ms: i64) -> None:
    """[T44] The task is about to end, but its unique key is taken until then (T44.3)."""
    id = n.ids.make_task(i64(whole_s(MAX_MS)), tube.tally.owner.name, tube.mark)
    kept = Task(id, tube.name, b"", n.next_ctime_ns(), tube.next_number, tube.pri, BYTES)
    kept.entry = HoldEntry(task.id, unique_of(keys_of(task)))
    kept.created_ms = n.now_ms
    kept.qtime_ms = until_ms
    enter_apart(n, t, tube, kept, until_ms)


def enter_apart(n: Node, t: Tubes, tube: Tube, task: Task, at_ms: i64) -> None:
    """Enter a task that is no job: it is DELAYED, and looked at at that instant."""
    tube.next_number += 1
    task.dead_ms = n.now_ms + MAX_MS
    task.retry_s = retry_of(task.ttr_ms, n.limits.default_retry_max_s)
    enter(n, t, tube, task, stats.CREATED)
    tube.calls.put += 1
    change(n, t, tube, task, DELAYED)
    arm(n, t, task, at_ms)
    record_new(n, tube, task)
    tell(n, t, tube, task, options.PUT)


def forget(n: Node, t: Tubes, tube: Tube, task: Task) -> None:
    """[G2] The table of jobs drops the task in a command about all jobs (T11.3)."""
    let_go(n, t, tube, task)
    tube.calls.moved += 1


def let_go(n: Node, t: Tubes, tube: Tube, task: Task) -> None:
    """Remove the task from the tube."""
    change(n, t, tube, task, DONE)
    if tube.driver.has_keys:
        end_keys(t, tube, task)
    task.state = ACKED
    del tube.tasks[task.number]
    n.job_bytes -= TASK_BYTES


def make_ready(
    n: Node, t: Tubes, tube: Tube, task: Task, event: i64, is_whole: bool = False
) -> None:
    """Make the task READY, at its old place (T4.3); `is_whole`: its work has changed as well."""
    change(n, t, tube, task, READY)
    arm(n, t, task, 0)
    record_back(n, tube, task, is_whole)
    tell(n, t, tube, task, event)


def record_back(n: Node, tube: Tube, task: Task, is_whole: bool) -> None:
    """Record a task that was given back."""
    if is_whole:
        record_whole(n, tube, task)
    else:
        record(n, tube, task)


def is_forgiven(n: Node, task: Task) -> bool:
    """[W6] RELEASE or NACK of a delivery: whether it ends a row of those that nobody began (W6.4).

    Then all of the task is to be recorded.
    """
    work = n.life.by_id.get(task.id)
    if work is None or work.unstarted == 0:
        return False
    work.unstarted = 0
    carry(task, work)
    return True


def ends_cancelled(n: Node, t: Tubes, tube: Tube, task: Task) -> bool:
    """[T48] End a task that is cancelled, where it would be given back otherwise (T48.10)."""
    life = life_of(n, task.id) if tube.driver.has_keys else None
    if life is None or not life.is_cancelled:
        return False
    end_cancelled(n, task, life)
    return True


def end_task(n: Node, t: Tubes, tube: Tube, task: Task) -> None:
    """[T48] The task has ended: cancelled (T48.10), or as a letter elsewhere (T48.12, T48.13)."""
    tube.calls.delete += 1
    tube.calls.done += 1
    end(n, t, tube, task, stats.GC_ACKED, options.DELETE)


def expire(n: Node, t: Tubes, tube: Tube, task: Task) -> None:
    """End an expired task (T6.1)."""
    calls = tube.calls
    calls.ttl += 1
    calls.delete += 1
    calls.done += 1
    n.book.expire(task)
    if n.events is not None:
        n.events.expired(n.now_ms, task, n.returned(task.id))
    end(n, t, tube, task, stats.EXPIRED, options.TTL)


def hand_out(n: Node, t: Tubes, tube: Tube, task: Task, client: i64, owner: i64) -> None:
    """Give the task, the driver's `first`, to the session (T5.1)."""
    change(n, t, tube, task, TAKEN)
    now_ms = n.now_ms
    t.token += 1
    if t.token > t.token_reserved:
        reserve_tokens(n, t)
    task.token = t.token
    task.taken_ms = now_ms
    task.owner = owner
    if owner != 0:
        session = t.session_of_number(owner)
        if session is not None:
            session.taken[task.id] = task
    if task.delivered_count == 0:
        task.first_ms = now_ms
    else:
        n.redeliveries += 1
    task.delivered_count += 1
    n.deliveries += 1
    task.last_ms = now_ms
    task.flags |= DELIVERED
    arm(n, t, task, return_ms(n, tube, task))
    tube.calls.take += 1
    tube.jobs_out += 1
    tube.atime_ms = now_ms
    record(n, tube, task, t.in_replicaset)  # if lost in a crash, it is just taken again
    tell(n, t, tube, task, options.TAKE)
    n.book.hand_out(task, now_ms, task.delivered_count == 1)
    if n.events is not None:
        n.events.delivered(now_ms, task, client)


def reserve_tokens(n: Node, t: Tubes) -> None:
    """Reserve the next tokens in the journal, before one is used (T5.1)."""
    records = n.records
    if records is not None:
        t.token_reserved = t.token + TOKEN_RESERVE
        records.put(TubeCfg(t.ttr_ms, t.in_replicaset, t.token_reserved))
        records.has_custody = True


def return_ms(n: Node, tube: Tube, task: Task) -> i64:
    """When a task TAKEN now comes back by itself; 0: never (T6.3).

    Without a session it comes back like a job, after the default retry time at the latest.
    """
    ttr_ms = task.ttr_ms
    if task.owner == 0 and ttr_ms >= MAX_MS:
        ttr_ms = n.limits.default_retry_max_s * 1000
    elif not tube.driver.is_timed and task.owner != 0:
        return 0
    at_ms = n.now_ms + ttr_ms
    if tube.driver.ends_taken and task.dead_ms < at_ms:
        return task.dead_ms
    return at_ms


def give_back(n: Node, t: Tubes, tube: Tube, task: Task) -> None:
    """Release a TAKEN task at its session's end, RELEASE_ALL or a start (T4.3)."""
    if ends_cancelled(n, t, tube, task):
        return
    tube.calls.release += 1
    n.requeues += 1
    task.deliveries += 1
    make_ready(n, t, tube, task, options.RELEASE)
    n.book.requeue(task, BY_COMMAND)
    if n.events is not None:
        n.events.requeued(n.now_ms, task, REQUEUE_COMMAND)


def wake_waits(n: Node, tube: Tube, name: bytes) -> None:
    """[T72] Who waits for the value of that name, if any does, looks whether it is over (T72.1).

    With an empty name for any value: the tube is gone, or led elsewhere (T72.2).
    """
    for client in n.life.waiting_for(wait_key(tube.name, name), len(name) == 0):
        wake = Wake(client, JOB_ENDED, [], 0)
        wake.name = name
        n.wakes.append(wake)


# ---- New tasks (SPEC T5, T7)


def insert(n: Node, t: Tubes, tube: Tube, body: bytes, form: i64, spec: PutSpec) -> Task:
    """[T5] PROCEDURE insert: add a task with the next number (T2.1), READY or DELAYED."""
    now_ms = n.now_ms
    number = tube.next_number
    tube.next_number = number + 1
    is_timed = tube.driver.is_timed
    ttl_ms = clamp(spec.ttl_ms, tube.ttl_ms)
    ttr_ms = clamp(spec.ttr_ms, tube.ttr_ms)
    delay_ms: i64 = 0
    pri: i64 = 0
    if is_timed:
        delay_ms = clamp(spec.delay_ms, 0)
        pri = tube.pri
        if spec.pri != PRI_DEFAULT:
            pri = spec.pri
    id = n.ids.make_task(i64(whole_s(ttl_ms)), tube.tally.owner.name, tube.mark)
    task = Task(id, tube.name, body, n.next_ctime_ns(), number, pri, form)
    if tube.driver.is_keyed and spec.utube is not None:
        task.subqueue = spec.utube
    elif tube.driver.has_keys and (spec.work is not None or len(spec.keys) > 0):
        task.entry = JobEntry(spec.keys, spec.work)
    task.created_ms = now_ms
    task.ttr_ms = ttr_ms
    task.retry_s = retry_of(ttr_ms, n.limits.default_retry_max_s)
    if is_timed:
        task.ttl_ms = ttl_ms + delay_ms
        task.dead_ms = now_ms + task.ttl_ms
        if delay_ms > 0:
            task.delay_s = whole_s(delay_ms)
    enter(n, t, tube, task, stats.CREATED)
    tube.calls.put += 1
    tube.jobs_in += 1
    tube.atime_ms = now_ms
    if delay_ms > 0:
        change(n, t, tube, task, DELAYED)
        arm(n, t, task, now_ms + delay_ms)
    else:
        change(n, t, tube, task, READY)
        arm(n, t, task, 0)
    if n.events is not None:
        n.events.added(now_ms, task)
    record_new(n, tube, task)
    tell(n, t, tube, task, options.PUT)
    return task


def enter(n: Node, t: Tubes, tube: Tube, task: Task, cause: i64) -> None:
    """Enter a task without a status into the tables."""
    register(n, task, cause)
    n.job_bytes += TASK_BYTES
    tube.tasks[task.number] = task
    driver = tube.driver
    if driver.has_keys:
        assert isinstance(driver, Tasks)
        driver.now_ms = n.now_ms
        used = driver.bytes_used
        driver.joined(task)
        driver.named(task)
        t.charge(tube, driver.bytes_used - used)
        if task.entry is not None:
            enter_life(n, task)


def end_keys(t: Tubes, tube: Tube, task: Task) -> None:
    """The task is gone: free its unique key (T44.2)."""
    driver = tube.driver
    assert isinstance(driver, Tasks)
    used = driver.bytes_used
    driver.ended(task)
    t.charge(tube, driver.bytes_used - used)
    if len(driver.plans.values.orphans) > 0:
        t.sweeping[tube.name] = None  # T71.6


def clamp(asked_ms: i64, default_ms: i64) -> i64:
    """A time within 0 to 100 years; -1 means the default."""
    if asked_ms == -1:
        return default_ms
    if asked_ms < 0:
        return 0
    if asked_ms > MAX_MS:
        return MAX_MS
    return asked_ms


def admit(n: Node, t: Tubes, tube: Tube) -> None:
    """Do waiting puts while there is room, first come first (T7.2, P2.1)."""
    if tube.drops > 0:
        return
    while len(tube.putters) > 0 and not tube.is_full() and tube.pause & PAUSE_IN == 0:
        putter = tube.putters.popleft()
        if not putter.is_over:
            task = insert(n, t, tube, putter.body, putter.form, putter.spec)
            t.end_put(tube, putter)
            t.put_done.append(PutDone(putter.client, putter.serial, task))


def record_new(n: Node, tube: Tube, task: Task) -> None:
    """Record the new task; of a temporary tube, the numbers in use (T14.1)."""
    if not tube.is_temporary:
        keep_image(n, task)
        if n.records is not None:
            tell_task(n.records, task)
        tube.seq += 1
        if n.others != 0:
            trace(n, tube, task.number, ALL)
    elif n.records is not None and tube.next_number > tube.reserved:
        tube.reserved = tube.next_number + RESERVE
        record_tube(n.records, tube)


def record_tube(records: Records, tube: Tube) -> None:
    """Record the tube (T14.1)."""
    next_number = tube.reserved if tube.is_temporary else tube.next_number
    records.put(
        TubeRow(
            tube.number,
            next_number,
            tube.ttl_ms,
            tube.ttr_ms,
            tube.pri,
            tube.capacity,
            tube.is_temporary,
            tube.name,
            tube.type,
            tube.storage_mode,
            tube.engine,
            tube.on_task_change,
        )
    )
    if tube.is_implicit:
        records.put(TubeImplicit(tube.name))
