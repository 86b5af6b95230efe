"""Schedules of a tube: added, fired, paused and dropped by its leader (SPEC T45).

The shell computes instants, in whatever time zone; here they are inputs. A firing is two changes
that go together: the schedule notes the instant, and where its job is; then the job is added. A new
leader that has the first without the second fires the instant again (T45.4).
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64, u8

from tuque.core.model import stats
from tuque.core.model.errors import MANY_SCHEDULES, NO_SCHEDULE, NO_SCHEDULES, PAUSED
from tuque.core.model.task import BYTES, DELAYED, FAR, MAX_MS, Task, whole_s
from tuque.core.node.node import Node
from tuque.core.node.peers import are_expected
from tuque.core.node.queue import PAUSE_IN
from tuque.core.records.events import SCHEDULE_FIRED, SCHEDULE_LATE
from tuque.tubes.entries.group import is_of_group
from tuque.tubes.entries.keys import opened
from tuque.tubes.entries.schedule import (
    PLANS_MAX,
    HoldEntry,
    ScheduleEntry,
    Step,
    same_words,
)
from tuque.tubes.entries.value import OfValue
from tuque.tubes.log.leader import copies_needed, has_lease, needs_copies, synced
from tuque.tubes.model import options
from tuque.tubes.model.errors import TubeError
from tuque.tubes.model.options import PutSpec
from tuque.tubes.model.tube import RUNNING, Tube
from tuque.tubes.model.tubes import Tubes
from tuque.tubes.policies.next_task import Tasks
from tuque.tubes.tasks.operations import KEYS_MAX, same_task
from tuque.tubes.work.transitions import (
    arm,
    end,
    enter_apart,
    insert,
    record_whole,
    tell,
)

AHEAD_MS: Final = 60_000  # clocks of nodes differ by less (T45.9)
HELD_MS: Final = 1  # a job that waits for copies is DELAYED so long at least

# what an ADD has done
ADDED: Final = 0
KEPT: Final = 1
REPLACED: Final = 2


def driver_of(tube: Tube) -> Tasks:
    """The driver of a tube that may have schedules; raises TubeError (T45.1)."""
    driver = tube.driver
    if not isinstance(driver, Tasks) or tube.is_temporary:
        raise TubeError(NO_SCHEDULES, (tube.name,))
    return driver


def schedule_of(tube: Tube, name: bytes) -> Task:
    """The schedule of that name; raises TubeError."""
    task = find_schedule(tube, name)
    if task is None:
        raise TubeError(NO_SCHEDULE, (tube.name, name))
    return task


def find_schedule(tube: Tube, name: bytes) -> Task | None:
    """The schedule of that name, if there is one."""
    number = driver_of(tube).plans.by_name.get(name)
    return None if number is None else tube.tasks.get(number)


def add_schedule(n: Node, t: Tubes, tube: Tube, plan: ScheduleEntry, body: bytes) -> i64:
    """[T45] ADD: a new schedule, or another text for one (T45.2); returns what it has done."""
    driver = driver_of(tube)
    needs_copies(n, t, tube)
    old = find_schedule(tube, plan.name)
    plan.noted_ms = n.now_ms
    plan.base_ms = n.now_ms
    if old is not None:
        before = words_of(old)
        if same_words(before, plan) and old.body == body:
            return KEPT
        if before.every_ms > 0 and before.every_ms == plan.every_ms:
            plan.base_ms = before.base_ms  # T45.2: it does not begin anew
        elif before.fired_ms > 0:
            plan.base_ms = before.fired_ms
        plan.fired_ms = before.fired_ms
        plan.fired_seq = before.fired_seq
        plan.fired_epoch = before.fired_epoch
        plan.fired = before.fired
        plan.late = before.late
        plan.is_paused = before.is_paused
    elif len(driver.plans.by_name) >= PLANS_MAX:
        raise TubeError(MANY_SCHEDULES, (tube.name, PLANS_MAX))
    enter_schedule(n, t, tube, plan, body)
    if old is None:
        return ADDED
    end_schedule(n, t, tube, old)
    return REPLACED


def enter_schedule(n: Node, t: Tubes, tube: Tube, plan: ScheduleEntry, body: bytes) -> None:
    """The schedule's task: DELAYED, and to be looked at in this turn."""
    id = n.ids.make_task(i64(whole_s(MAX_MS)), tube.tally.owner.name, tube.mark)
    task = Task(id, tube.name, body, n.next_ctime_ns(), tube.next_number, tube.pri, BYTES)
    task.entry = plan
    task.created_ms = n.now_ms
    enter_apart(n, t, tube, task, n.now_ms)


def end_schedule(n: Node, t: Tubes, tube: Tube, task: Task) -> None:
    """The schedule is gone; no event tells of it, for it is no job."""
    tube.calls.delete += 1
    tube.calls.done += 1
    end(n, t, tube, task, stats.ADMIN_DELETED, options.DELETE)


def words_of(task: Task) -> ScheduleEntry:
    """What the task of a schedule carries; it is not changed."""
    entry = task.entry
    assert isinstance(entry, ScheduleEntry), "a schedule carries another entry"
    return entry


def plan_of(tube: Tube, task: Task) -> ScheduleEntry:
    """The next entry of a schedule: what a lost leader noted and never added is due (T45.4)."""
    plan = words_of(task).copy()
    if plan.fired_epoch == tube.before_epoch and plan.fired_seq > tube.begin_seq:
        if plan.fired_epoch < tube.epoch and plan.fired_ms > 0:
            plan.noted_ms = min(plan.noted_ms, plan.fired_ms - 1)
            plan.fired_epoch = 0
    return plan


def next_due(n: Node, t: Tubes) -> Task | None:
    """A schedule to be looked at now, taken from the list; None: there is no more."""
    while len(t.due) > 0:
        id = next(iter(t.due))
        del t.due[id]
        task = n.jobs.get(id)
        if not isinstance(task, Task) or not isinstance(task.entry, ScheduleEntry):
            continue
        tube = t.by_name[task.queue]
        if tube.state != RUNNING or not has_lease(n.now_ms, t, tube):
            continue  # its timer comes again
        driver = tube.driver
        assert isinstance(driver, Tasks)
        if driver.plans.by_name.get(task.entry.name, -1) != task.number:
            end_schedule(n, t, tube, task)  # T45.2: its leader was lost while it replaced it
            continue
        return task
    return None


def may_fire(n: Node, t: Tubes, tube: Tube, plan: ScheduleEntry) -> bool:
    """Whether a job can be added (T45.6), and the last one is where it must be (T45.4)."""
    if tube.pause & PAUSE_IN or tube.drops > 0 or n.is_leaving:
        return False
    if not are_expected(n, copies_needed(n, t, tube) - 1):
        return False
    if plan.fired_epoch != tube.epoch or plan.fired_seq > tube.seq:
        return True  # a start without other nodes counts changes anew
    return plan.fired_seq <= synced(n, t, tube)


def fire(n: Node, t: Tubes, tube: Tube, task: Task, plan: ScheduleEntry, step: Step) -> None:
    """[T45] Do what the shell has found: note instants, and add the job of one (T45.3)."""
    is_noted = step.noted_ms != plan.noted_ms or step.is_late
    adds = step.fires_ms > 0 and not is_busy(n, tube, plan)
    t.duplicates += int(step.fires_ms > 0 and not adds)
    plan.noted_ms = step.noted_ms
    if step.is_late:
        plan.late += 1
        t.schedules_late += 1
    if adds:
        plan.fired += 1
        t.schedules_fired += 1
        plan.fired_ms = step.fires_ms
        plan.fired_epoch = tube.epoch
        plan.fired_seq = tube.seq + 2  # after the change of the schedule
    if n.events is not None and step.is_late:
        n.events.of_schedule(n.now_ms, SCHEDULE_LATE, tube.name, plan.late, plan.name)
    if n.events is not None and adds:
        n.events.of_schedule(n.now_ms, SCHEDULE_FIRED, tube.name, plan.fired, plan.name)
    task.entry = plan.copy()
    arm(n, t, task, 0 if step.next_ms == FAR else step.next_ms)
    if not is_noted:
        return
    record_whole(n, tube, task)
    tell(n, t, tube, task, options.UPDATE)
    if n.records is not None:
        n.records.has_custody = True  # T45.4: on disk before anybody gets the job
    if adds:
        add_job(n, t, tube, task, plan, True)


def is_ahead(schedule: ScheduleEntry, now_ms: i64) -> bool:
    """[T45] Whether instants are noted that have not come: a clock was ahead (T45.9)."""
    return schedule.noted_ms > now_ms + AHEAD_MS and not schedule.is_paused


def take_back(n: Node, t: Tubes, tube: Tube, task: Task, schedule: ScheduleEntry) -> None:
    """[T45] What a leader noted whose clock was ahead has not come: it makes its jobs (T45.9)."""
    schedule.noted_ms = n.now_ms
    schedule.base_ms = min(schedule.base_ms, n.now_ms)
    schedule.fired_ms = min(schedule.fired_ms, n.now_ms)
    record_schedule(n, t, tube, task, schedule)


def record_schedule(n: Node, t: Tubes, tube: Tube, task: Task, schedule: ScheduleEntry) -> None:
    """The schedule has changed, and has made no job."""
    task.entry = schedule.copy()
    record_whole(n, tube, task)
    tell(n, t, tube, task, options.UPDATE)


def is_busy(n: Node, tube: Tube, plan: ScheduleEntry) -> bool:
    """Whether a task has the unique key of the jobs, or the tube takes no more keys (T45.6)."""
    if len(plan.keys) == 0:
        return False
    return same_task(n, tube, plan.keys) is not None or driver_of(tube).keys() >= KEYS_MAX


def add_job(n: Node, t: Tubes, tube: Tube, task: Task, plan: ScheduleEntry, waits: bool) -> Task:
    """Add a job; one that waits is with SYNC not READY before it has its copies (T45.4)."""
    spec = PutSpec()
    job = opened(plan.keys) if len(plan.keys) > 0 else None
    if job is not None:
        spec.keys, spec.work = job.keys, job.work
    spec.ttl_ms = plan.ttl_ms
    spec.ttr_ms = plan.ttr_ms
    spec.pri = plan.pri
    if waits and copies_needed(n, t, tube) > 1:
        spec.delay_ms = HELD_MS
    made = insert(n, t, tube, task.body, BYTES, spec)
    if spec.delay_ms > 0:
        driver_of(tube).plans.held[int(made.number)] = int(tube.seq)
    return made


def run_now(n: Node, t: Tubes, tube: Tube, name: bytes) -> Task | None:
    """[T45] RUN: a job now; no instant is noted (T45.7). None: its unique key is taken."""
    task = schedule_of(tube, name)
    if tube.pause & PAUSE_IN or tube.drops > 0:
        raise TubeError(PAUSED)  # T46.5
    needs_copies(n, t, tube)
    plan = words_of(task)
    return None if is_busy(n, tube, plan) else add_job(n, t, tube, task, plan, False)


def set_paused(n: Node, t: Tubes, tube: Tube, name: bytes, is_paused: bool) -> bool:
    """[T45] PAUSE and RESUME: instants of the pause are none (T45.7). Whether it changed."""
    task = schedule_of(tube, name)
    needs_copies(n, t, tube)
    schedule = plan_of(tube, task)
    if schedule.is_paused == is_paused:
        return False
    schedule.is_paused = is_paused
    schedule.noted_ms = max(schedule.noted_ms, n.now_ms)
    arm(n, t, task, n.now_ms)
    record_schedule(n, t, tube, task, schedule)
    return True


def drop_schedule(n: Node, t: Tubes, tube: Tube, name: bytes) -> bool:
    """[T45] DROP; False: there is none of that name."""
    needs_copies(n, t, tube)
    task = find_schedule(tube, name)
    if task is None:
        return False
    end_schedule(n, t, tube, task)
    return True


def take_up(n: Node, tube: Tube, task: Task) -> None:
    """A task of a journal or a replica enters a tube with keys.

    A schedule, or what is of a group, is DELAYED, and due now; what keeps a key, and a value, is
    DELAYED. A job that is due may be one whose copies are not there yet: it waits until those have
    what this node has (T45.4).
    """
    if isinstance(task.entry, ScheduleEntry) or is_of_group(task):
        task.status = u8(DELAYED)
        task.qtime_ms = n.now_ms
    elif isinstance(task.entry, HoldEntry | OfValue):
        task.status = u8(DELAYED)
    elif task.status == DELAYED and 0 < task.qtime_ms <= n.now_ms:
        driver_of(tube).plans.held[int(task.number)] = int(tube.seq)
