"""The lives of the tasks that this node leads, as they follow from the tasks (SPEC T48.2)."""

from typing import Final

from mypy_extensions import i64

from tuque.core.model.job import OUT_HERE, AddSpec
from tuque.core.model.task import BURIED, DELAYED, TAKEN, Task
from tuque.core.model.work import (
    LIVE,
    NO_RUN,
    NO_TERMS,
    RELEASED,
    STARTS_MAX,
    Life,
    run_of,
)
from tuque.core.node.node import Node
from tuque.core.queues.ends import leave_life, life_of
from tuque.tubes.keys.tasks import Tasks
from tuque.tubes.keys.words import with_work, without_work, work_of
from tuque.tubes.keys.work import pack_work, says_nothing, unpack_work
from tuque.tubes.types.driver import Driver

TAKES: Final = 1_048_573  # of so many in a row each has another hash


def packed_of(spec: AddSpec) -> bytes:
    """[T48] What the task of an ADDJOB carries: its keys, and its life, if it has one (T48.1)."""
    if spec.terms is None and len(spec.headers) == 0:
        return spec.keys
    terms = NO_TERMS if spec.terms is None else spec.terms
    return with_work(spec.keys, pack_work(Life(terms, spec.headers)))


def enter_life(n: Node, task: Task) -> None:
    """The task enters the tables of the leader: so does its life, if it has one."""
    work = work_of(task.subqueue)
    life = unpack_work(work) if len(work) > 0 else None
    if life is not None and goes_on(task, life, len(work)):
        life.terms = n.life.share(life.terms)
        life.is_resting = life.is_resting and task.status == DELAYED
        life.is_dead = False  # until it lies in the table of dead letters
        n.has_lives = True
        n.life.enter(task.id, life)


def run_of_take(task: Task, life: Life | None) -> i64:
    """The token of the run that this take may have (T48.3)."""
    failed: i64 = 0 if life is None else life.failed
    return run_of(failed + 1, min(i64(task.delivered_count), STARTS_MAX), task.token % TAKES)


def goes_on(task: Task, life: Life, size: i64) -> bool:
    """[T48] The run in the life counts if it is of the present take (T48.4). False: the life says
    nothing without it.
    """
    if life.run == 0:
        return True
    if task.status == TAKEN and life.run == run_of_take(task, life):
        life.since_ms += task.taken_ms
        life.packed_bytes = size
        task.marks = OUT_HERE
        return True
    life.run, life.starts, life.run_state = 0, 0, NO_RUN
    life.since_ms = 0
    life.worker = b""
    forget_run(task, life)
    return not says_nothing(life)


def forget_run(task: Task, life: Life) -> None:
    """The task carries no run any more: that of its last take is over."""
    life.packed_bytes = 0
    if says_nothing(life):
        task.subqueue = without_work(task.subqueue)
    else:
        task.subqueue = with_work(task.subqueue, pack_work(life))


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
    if old == TAKEN and life.run_state == LIVE:
        life.run_state = RELEASED
        life.ended_ms = n.now_ms
    if old == TAKEN and life.packed_bytes > 0:
        forget_run(task, life)
        n.life.weigh(life)
    elif old == DELAYED:
        life.is_resting = False


def put_life_away(n: Node, task: Task) -> None:
    """The task leaves the tables, but goes on: nobody hears that a run is over."""
    life = life_of(n, task.id)
    if life is not None:
        life.client = -1
        leave_life(n, task)
