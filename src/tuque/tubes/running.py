"""A tube begins and ends to run at this node (SPEC T19).

RUNNING means that its tasks lie in the tables of jobs, timers and its driver; in every other
state they are copies, on which nothing acts. What is due meanwhile is due when it runs again.
"""

from heapq import heappush

from mypy_extensions import i64, u8

from tuque.core import ledger
from tuque.core.home_records import tell_tube_holder
from tuque.core.job import DELIVERED, job_bytes
from tuque.core.node import HOME_MOVED, Node, Wake
from tuque.core.procedures import mark_ready, stop_waiting
from tuque.core.task import BURIED, READY, TAKEN, TASK_BYTES, Task
from tuque.tubes.book import HomeDone, Session, Tubes
from tuque.tubes.catalog import announce
from tuque.tubes.copying import record_home
from tuque.tubes.driver import Absent
from tuque.tubes.errors import LUA, MOVE_ENDED
from tuque.tubes.follower import ARROWS, ENDING, RUNNING, STARTUP, WAITING, Held
from tuque.tubes.load import settle_in
from tuque.tubes.options import PutDone
from tuque.tubes.order import BURIED_BIT, Order
from tuque.tubes.replica import drop_copy, forget_held, hold, keep_copy
from tuque.tubes.sessions import enter_session, record_session
from tuque.tubes.states import arm, enter, record
from tuque.tubes.tube import Tube


def set_home_state(tube: Tube, to: i64) -> None:
    """Move the tube along an arrow (T19)."""
    is_arrow = False
    for old, _, new in ARROWS:
        if old == tube.state and new == to:
            is_arrow = True
    assert is_arrow, "illegal change of the state of a home"
    tube.state = to


def ask_sync(n: Node, t: Tubes, tube: Tube) -> None:
    """Record the home, and go on when the disk has it, also under `everysec` (T20.3, T20.4)."""
    tube.wish = 1
    records = n.records
    if records is not None:
        record_home(records, tube)
        records.has_custody = True
        records.wish += 1
        tube.wish = records.wish
    t.pending.append(tube)
    t.must_look = True


def is_granted(n: Node, t: Tubes, tube: Tube) -> bool:
    """Whether the disk has what the tube waits for."""
    records = n.records
    if records is None or records.granted >= tube.wish:
        return True
    if records.wish < tube.wish:  # another journal was begun meanwhile
        record_home(records, tube)
        records.has_custody = True
        records.wish += 1
        tube.wish = records.wish
    return False


# ---- to run


def start(n: Node, t: Tubes, tube: Tube) -> None:
    """The tube is RUNNING: its tasks take their places (T20.4, T20.5)."""
    if tube.state != STARTUP:
        set_home_state(tube, STARTUP)
    tube.copy_epoch = tube.epoch
    tube.is_complete = True
    tube.unseen = {}
    numbers = list(tube.copies)
    numbers.sort()
    taken: dict[bytes, Task] = {}  # by sub-queue
    changed: dict[int, Task] = {}
    for number in numbers:
        task = tube.copies[number]
        if task.status != TAKEN:
            continue
        if task.owner != 0 and settle_owner(n, t, tube, task):
            changed[number] = task
        if task.status == TAKEN and tube.driver.is_keyed:
            loser = taken.get(task.subqueue)
            if loser is None or loser.token < task.token:
                taken[task.subqueue] = task
            else:
                loser = task
            if loser is not None:  # a copy that lags may show two
                release(tube, loser)
                changed[loser.number] = loser
    for number in numbers:
        task = tube.copies[number]
        drop_copy(t, tube, task)
        take_in(n, t, tube, task)
    forget_held(t, tube)
    tube.is_local = True
    tube.run_ms = 0
    set_home_state(tube, RUNNING)
    for task in changed.values():
        record(n, tube, task)
    if len(tube.waiters) > 0:
        mark_ready(n, tube)
    announce(n, t, [tube], -1)


def take_in(n: Node, t: Tubes, tube: Tube, task: Task) -> None:
    """A copy is a task."""
    if tube.driver.is_timed:
        task.dead_ms = task.created_ms + task.ttl_ms
    if task.delivered_count > 0:
        task.flags |= DELIVERED
    tube.calls.loaded += 1
    enter(n, tube, task, ledger.LOADED)
    if tube.next_number <= task.number:
        tube.next_number = task.number + 1
    settle_in(t, tube, task)
    arm(n, t, task, task.qtime_ms)


def settle_owner(n: Node, t: Tubes, tube: Tube, task: Task) -> bool:
    """A TAKEN task stays with its session if that is here or shared; else it is released (T20.5).

    True when that changed the task.
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
    """The session of that uuid and user, made when it is not here yet: its client may come."""
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
    """The task is READY: nobody holds it any more."""
    tube.calls.release += 1
    task.deliveries += 1
    task.owner = 0
    task.status = u8(READY)
    task.qtime_ms = 0


# ---- to run no more


def stop(n: Node, t: Tubes, tube: Tube) -> None:
    """The tube is ENDING: its tasks are copies from now on (T19.2, T20.2)."""
    set_home_state(tube, ENDING)
    for task in list(tube.tasks.values()):
        put_away(n, t, tube, task)
    tube.tasks = {}
    tube.length = tube.plain
    tube.taken = 0
    tube.delayed = 0
    tube.buried = 0
    tube.graves = Order(BURIED, BURIED_BIT)
    before = tube.driver.bytes_used
    factory = t.drivers.get(tube.type)
    tube.driver = Absent() if factory is None else factory()
    t.bytes_used += tube.driver.bytes_used - before
    tube.is_local = True


def put_away(n: Node, t: Tubes, tube: Tube, task: Task) -> None:
    """The task leaves the tables of jobs and timers, as it is; its session keeps its number."""
    session = t.sessions.get(task.owner)
    if session is not None:
        session.taken.pop(task.id, None)
    n.wheel.cancel(task)
    del n.jobs[task.id]
    n.job_bytes -= job_bytes(task) + TASK_BYTES
    n.ledger.leave(ledger.MOVED)
    tube.calls.moved += 1
    task.listed = 0
    keep_copy(t, tube, task)


def wait_here(n: Node, t: Tubes, tube: Tube) -> None:
    """The tube is WAITING."""
    if tube.state == RUNNING:
        stop(n, t, tube)
    set_home_state(tube, WAITING)


def send_away(n: Node, t: Tubes, tube: Tube) -> None:
    """Who waits here for the tube is told that its home is elsewhere (T17.3, T20.2)."""
    for client in list(tube.waiters):
        stop_waiting(n, client)
        wake = Wake(client, HOME_MOVED, [], False)
        wake.queue = tube.name
        n.wakes.append(wake)
    while len(tube.putters) > 0:
        putter = tube.putters.popleft()
        if not putter.is_over:
            t.end_put(putter)
            done = PutDone(putter.client, putter.serial, None)
            done.moved = tube.name
            t.put_done.append(done)


def lose_home(n: Node, t: Tubes, tube: Tube, home: bytes, epoch: i64) -> None:
    """Another node is the home, under a higher epoch (T17.1, T21.4)."""
    end_waits(t, tube)
    was_mine = tube.is_mine
    if tube.state == RUNNING or tube.state == ENDING or tube.state == STARTUP:
        wait_here(n, t, tube)
    if was_mine and t.in_replicaset:
        keep_holders(n, t, tube)
    tube.is_local = False
    tube.is_mine = False
    tube.is_owed = False
    tube.move = None
    tube.wish = 0
    tube.run_ms = 0
    tube.home = home
    tube.epoch = epoch
    tube.followers = {}
    send_away(n, t, tube)


def end_waits(t: Tubes, tube: Tube) -> None:
    """Who asked for a move that goes on, or for a home by force, is told that it came otherwise."""
    done = t.forced.pop(tube.name, None)
    move = tube.move
    if move is not None and move.client >= 0:
        done = HomeDone(move.client, move.serial, tube)
    tube.move = None
    if done is not None:
        done.code = LUA
        done.error = MOVE_ENDED % tube.name
        t.home_done.append(done)


def keep_holders(n: Node, t: Tubes, tube: Tube) -> None:
    """The sessions that hold copies here are known by number as those of another home are."""
    for task in tube.copies.values():
        session = t.sessions.get(task.owner)
        if session is not None and hold(t, tube, session.number, session.uuid, session.user):
            if n.records is not None:
                tell_tube_holder(n.records, tube.name, session.number, session.uuid, session.user)
