"""Loads and unloads tasks of a leader, a limited number per turn (SPEC T19.6).

A load first scans the copies for TAKEN tasks and settles their holders all at once, so that every
copy names its holder in the numbers of one node; then the tasks enter the tables. An unload drops
the tube's tables at once, and its tasks become copies.
"""

from heapq import heappush
from typing import Final

from mypy_extensions import i64, u8

from tuque.core.model import stats
from tuque.core.model.job import job_bytes
from tuque.core.model.task import BURIED, READY, TAKEN, TASK_BYTES, Task
from tuque.core.node.node import Node
from tuque.core.node.tables import leave_job
from tuque.core.queues.ends import leave_life
from tuque.tubes.entries.keys import close, work_in
from tuque.tubes.entries.work import serial_in
from tuque.tubes.leadership.restore import take_in
from tuque.tubes.log.receive import drop_copy, forget_held, keep_copy
from tuque.tubes.log.send import record_leader
from tuque.tubes.model.tube import Held, Shift, Tube
from tuque.tubes.model.tubes import Session, Tubes
from tuque.tubes.policies.next_task import Tasks
from tuque.tubes.tasks.sessions import enter_session, record_session
from tuque.tubes.types.driver import Absent, Order
from tuque.tubes.work.transitions import record

LOOKS: Final = 10  # copies scanned for the cost of one that is loaded
FREED: Final = 8  # entries of a driver that are freed with a task: it has no more of one
ALL: Final = 1 << 60  # above any number of tasks


# ---- Loading: copies become tasks


def begin_in(n: Node, t: Tubes, tube: Tube) -> None:
    """Start the load: copies become tasks."""
    driver = tube.driver
    if isinstance(driver, Tasks):
        driver.begin_empty(n.now_ms)
    numbers = list(tube.copies)
    numbers.sort()
    tube.shift = Shift(numbers, True)
    t.shifting.append(tube)


def step_in(n: Node, t: Tubes, tube: Tube, shift: Shift, room: i64) -> i64:
    """Load up to `room` tasks; returns the room left. Done when all numbers are done."""
    numbers = shift.numbers
    end: i64 = len(numbers)
    pos = shift.pos
    if not shift.is_settled:
        most = pos + room * LOOKS
        while pos < end and pos < most:
            task = tube.copies[numbers[pos]]
            if task.status == TAKEN:
                shift.taken.append(task)
            elif task.status == BURIED and tube.driver.has_keys:
                shift.dead.append((int(serial_in(work_in(task))), numbers[pos]))
            pos += 1
        room -= (pos - shift.pos) // LOOKS
        shift.pos = pos
        if pos < end:
            return 0
        settle_owners(n, t, tube, shift.taken)
        shift.is_settled = True
        shift.dead.sort()
        shift.dead_at = end
        numbers.extend([number for _, number in shift.dead])  # by their deaths, after the others
        end = len(numbers)
        pos = 0
    while pos < end and room > 0:
        task = tube.copies[numbers[pos]]
        if pos < shift.dead_at and task.status == BURIED and tube.driver.has_keys:
            pos += 1
            continue
        drop_copy(t, tube, task)
        take_in(n, t, tube, task)
        if task.owner != 0 and task.owner not in t.sessions:
            shift.orphans.append(task)
        pos += 1
        room -= 1
    shift.pos = pos
    return room


def settle_owners(n: Node, t: Tubes, tube: Tube, found: list[Task]) -> None:
    """Give TAKEN tasks to sessions of this node, or release them (T20.5); the tube runs here."""
    tube.copy_epoch = tube.epoch
    tube.is_complete = True
    tube.unseen = {}
    taken: dict[bytes, Task] = {}  # by sub-queue
    changed: dict[int, Task] = {}
    for task in found:
        if task.owner != 0 and settle_owner(n, t, tube, task):
            changed[task.number] = task
        if task.status == TAKEN and tube.driver.is_keyed:
            loser = taken.get(task.subqueue)
            if loser is None or loser.token < task.token:
                taken[task.subqueue] = task
            else:
                loser = task
            if loser is not None:  # a lagging replica may show two
                release(tube, loser)
                changed[loser.number] = loser
    tube.owners = {}
    for task in found:
        if task.owner != 0:
            tube.owners[task.owner] = None
    forget_held(t, tube)
    tube.is_local = True
    for task in changed.values():
        record(n, tube, task)
    if n.records is not None:
        record_leader(n.records, tube)


def settle_owner(n: Node, t: Tubes, tube: Tube, task: Task) -> bool:
    """A TAKEN task stays with a session that is here or shared; else release it (T20.5).

    True if the task changed.
    """
    if tube.is_local:
        if task.owner in t.sessions:
            return False
    else:
        held = tube.held.get(task.owner)
        if held is not None and t.in_replicaset and t.ttr_ms > 0:
            task.owner = session_of(n, t, held).number
            return True
    release(tube, task)
    return True


def session_of(n: Node, t: Tubes, held: Held) -> Session:
    """The session of that uuid and user, created if missing: its client may come."""
    session = t.by_uuid.get(held.uuid)
    if session is None or session.user != held.user:
        t.session_serial += 1
        session = Session(t.session_serial, held.uuid, held.user)
        session.until_ms = n.now_ms + t.ttr_ms
        enter_session(t, session)
        heappush(t.session_ends, (session.until_ms, session.number))
        record_session(n, t, session, False)
    return session


def release(tube: Tube, task: Task) -> None:
    """Make the task READY, held by no session."""
    tube.calls.release += 1
    task.deliveries += 1
    task.owner = 0
    task.status = u8(READY)
    task.qtime_ms = 0


# ---- Unloading: tasks become copies


def begin_out(t: Tubes, tube: Tube) -> None:
    """Start the unload: tasks become copies; the tube's own tables are dropped."""
    tube.length = tube.plain
    tube.taken = 0
    tube.delayed = 0
    tube.buried = 0
    tube.graves = Order()
    old = tube.driver
    factory = t.drivers.get(tube.type)
    tube.driver = Absent() if factory is None else factory()
    t.charge(tube, tube.driver.bytes_used - old.bytes_used)
    if tube.shift is None:
        t.shifting.append(tube)
    tube.shift = Shift(list(tube.tasks), False)
    tube.shift.old = old


def step_out(n: Node, t: Tubes, tube: Tube, shift: Shift, room: i64) -> i64:
    """Unload up to `room` tasks; returns the room left."""
    numbers = shift.numbers
    end: i64 = len(numbers)
    pos = shift.pos
    while pos < end and room > 0:
        number = numbers[pos]
        put_away(n, t, tube, tube.tasks[number])
        pos += 1
        room -= 1
    if shift.old is not None:
        shift.old.free(FREED * (pos - shift.pos))
    shift.pos = pos
    return room


def put_away(n: Node, t: Tubes, tube: Tube, task: Task) -> None:
    """Remove the task from the tables of jobs and timers; it keeps its session's number."""
    if task.owner != 0:
        tube.owners[task.owner] = None
        session = t.sessions.get(task.owner)
        if session is not None:
            session.taken.pop(task.id, None)
    n.wheel.cancel(task)
    close(task)
    if n.has_lives:
        leave_life(n, task, False)
    leave_job(n, task)
    del tube.tasks[task.number]
    n.job_bytes -= job_bytes(task) + TASK_BYTES
    n.ledger.leave(stats.MOVED)
    tube.calls.moved += 1
    keep_copy(t, tube, task)


def turn_back(t: Tubes, tube: Tube) -> None:
    """Cancel a load: tasks already loaded become copies again (T19.6)."""
    shift = tube.shift
    if shift is not None and shift.is_in:
        begin_out(t, tube)


def end_shift(t: Tubes, tube: Tube) -> None:
    """End the load or unload."""
    tube.shift = None
    t.shifting.remove(tube)
    if len(tube.tasks) == 0:
        tube.tasks = {}  # an empty dict may still be large
    if len(tube.copies) == 0:
        tube.copies = {}


def put_all_away(n: Node, t: Tubes, tube: Tube) -> None:
    """The tube is about to be removed: unload all its tasks."""
    shift = tube.shift
    if shift is not None:
        assert not shift.is_in, "tasks are on their way in"
        step_out(n, t, tube, shift, ALL)
        end_shift(t, tube)
