"""Timers of tasks: ttl, ttr, delay; schedules, groups, keys, values (SPEC T6, T44, T45, T50, T70).

A DELAYED task may also wait on: a schedule, a group, a job without its copies, a key that is taken
for a time, or a value.
"""

from typing import Final

from mypy_extensions import i64

from tuque.core.life.runs import has_more_time, on_late
from tuque.core.model import stats
from tuque.core.model.stats import BY_RETRY
from tuque.core.model.task import BURIED, DELAYED, DONE, READY, TAKEN, Task
from tuque.core.node.node import Node
from tuque.core.records.events import REQUEUE_TIMEOUT
from tuque.tubes.entries.group import is_of_group
from tuque.tubes.entries.schedule import HoldEntry, ScheduleEntry
from tuque.tubes.entries.value import OfValue
from tuque.tubes.log.leader import synced
from tuque.tubes.model import options
from tuque.tubes.model.tube import Tube
from tuque.tubes.model.tubes import Tubes
from tuque.tubes.policies.next_task import Tasks
from tuque.tubes.values import on_value_timer
from tuque.tubes.work.dead_letters import run_out
from tuque.tubes.work.transitions import (
    arm,
    end,
    make_ready,
)

AGAIN_MS: Final = 200  # a schedule that could not fire tries again after it
COPIES_MS: Final = 20  # so is a job that waits for its copies


def put_off_until_ms(n: Node, t: Tubes, tube: Tube, task: Task) -> i64:
    """[T45] When to look at the DELAYED task again, whose time has come; 0: it is READY now."""
    driver = tube.driver
    if not isinstance(driver, Tasks):
        return 0
    if is_of_group(task):
        t.members_due[task.id] = None  # T50.3
        return n.now_ms + AGAIN_MS
    if isinstance(task.entry, ScheduleEntry):
        t.due[task.id] = None  # T45.3: the shell says what fires
        return n.now_ms + AGAIN_MS
    held = driver.plans.held
    if len(held) == 0:
        return 0
    seq: i64 = held.get(int(task.number), 0)
    if seq > synced(n, t, tube):
        return n.now_ms + COPIES_MS  # T45.4
    held.pop(int(task.number), None)
    return 0


def end_take(n: Node, t: Tubes, tube: Tube, task: Task) -> None:
    """[T6] ttr of a take is over: READY (T6.3), or one delivery too many that nobody began."""
    tube.calls.ttr += 1
    if tube.driver.has_keys and on_late(n, task):
        return  # T48.7, T48.10, W6.4
    work = n.life.by_id.get(task.id) if tube.driver.has_keys else None
    is_whole = work is not None and work.terms.attempts > 0
    task.deliveries += 1
    n.requeues += 1
    make_ready(n, t, tube, task, options.TTR, is_whole)
    n.book.requeue(task, BY_RETRY)
    if n.events is not None:
        n.events.requeued(n.now_ms, task, REQUEUE_TIMEOUT)


def on_task_timer(n: Node, t: Tubes, tube: Tube, task: Task) -> None:
    """[T6] TIMER of a task: its ttl, its ttr or its delay is over."""
    now_ms = n.now_ms
    if (task.status == TAKEN or task.status == DELAYED) and 0 < task.qtime_ms <= now_ms:
        if task.status == TAKEN and has_more_time(n, task):
            return  # T48.9
        if task.status == TAKEN:
            end_take(n, t, tube, task)
            if tube.tasks.get(task.number) is not task or task.status == BURIED:
                return  # T48.7
        elif tube.driver.has_keys and isinstance(task.entry, OfValue):
            on_value_timer(n, t, tube, task)
            return
        elif tube.driver.has_keys and isinstance(task.entry, HoldEntry):
            tube.calls.delete += 1
            tube.calls.done += 1
            end(n, t, tube, task, stats.ADMIN_DELETED, options.DELETE)  # T44.3
            return
        else:
            again_ms = put_off_until_ms(n, t, tube, task)
            if again_ms > 0:
                arm(n, t, task, again_ms)
                return
            tube.calls.delay += 1  # T6.4
            make_ready(n, t, tube, task, options.DELAY)
    if (task.status == READY or task.status == BURIED) and task.dead_ms <= now_ms:
        run_out(n, t, tube, task)
    elif task.status != DONE:
        n.wheel.arm(task, now_ms)
