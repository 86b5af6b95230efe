"""The lives of the tasks that this node leads, as they follow from the tasks (SPEC T48.2)."""

from mypy_extensions import i64

from tuque.core.jobs.endings import leave_life, life_of
from tuque.core.model.add_spec import AddSpec
from tuque.core.model.life import LIVE, NO_TERMS, RELEASED, Life
from tuque.core.model.task import BURIED, DELAYED, TAKEN, Task
from tuque.core.node.node import Node
from tuque.tubes.keys.tasks import Tasks
from tuque.tubes.keys.words import with_work, work_of
from tuque.tubes.keys.work import pack_work, unpack_work
from tuque.tubes.types.driver import Driver


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
    if life is not None:
        life.terms = n.life.share(life.terms)
        life.is_resting = life.is_resting and task.status == DELAYED
        life.is_dead = False  # until it lies in the table of dead letters
        n.has_lives = True
        n.life.enter(task.id, life)


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
    elif old == DELAYED:
        life.is_resting = False


def put_life_away(n: Node, task: Task) -> None:
    """The task leaves the tables, but goes on: nobody hears that a run is over."""
    life = life_of(n, task.id)
    if life is not None:
        life.client = -1
        leave_life(n, task)
