"""A tube starts and stops running on this node (SPEC T19).

While RUNNING, its tasks are in the tables of jobs, timers and its driver; in any other state they
are copies, or being loaded or unloaded (load.py), and nothing acts on them. Timers that
expire meanwhile fire when it runs again.
"""

from mypy_extensions import i64

from tuque.core.model.errors import MOVE_ENDED
from tuque.core.model.task import TAKEN, Task
from tuque.core.msgs.records import TubeHolder
from tuque.core.node.node import HOME_MOVED, Node, Wake
from tuque.core.queues.procedures import mark_ready, stop_waiting
from tuque.tubes.leadership.load import (
    begin_in,
    begin_out,
    end_shift,
    step_in,
    step_out,
    turn_back,
)
from tuque.tubes.log.catalog import announce
from tuque.tubes.log.receive import ask_copies, hold
from tuque.tubes.log.send import record_leader
from tuque.tubes.model.errors import TubeError
from tuque.tubes.model.options import PutDone
from tuque.tubes.model.tube import (
    ARROWS,
    ENDING,
    RUNNING,
    STARTUP,
    WAITING,
    Tube,
)
from tuque.tubes.model.tubes import HomeDone, Tubes
from tuque.tubes.tasks.operations import keys_loaded
from tuque.tubes.work.transitions import give_back, wake_waits


def set_home_state(tube: Tube, to: i64) -> None:
    """Move the tube along an arrow (T19)."""
    is_arrow = False
    for old, _, new in ARROWS:
        if old == tube.state and new == to:
            is_arrow = True
    assert is_arrow, "illegal change of the state of a home"
    tube.state = to


def ask_sync(n: Node, t: Tubes, tube: Tube) -> None:
    """Record the leader, and continue when it is on disk, also under `everysec` (T20.3, T20.4)."""
    tube.wish = 1
    records = n.records
    if records is not None:
        record_leader(records, tube)
        records.has_custody = True
        records.wish += 1
        tube.wish = records.wish
    t.pending.append(tube)
    t.must_look = True


def is_granted(n: Node, t: Tubes, tube: Tube) -> bool:
    """Whether the disk has the record that the tube waits for."""
    records = n.records
    if records is None or records.granted >= tube.wish:
        return True
    if records.wish < tube.wish:  # the journal was restarted meanwhile
        record_leader(records, tube)
        records.has_custody = True
        records.wish += 1
        tube.wish = records.wish
    return False


# ---- The tube starts


def start(n: Node, t: Tubes, tube: Tube) -> None:
    """The tube is STARTUP; it is RUNNING once its tasks are loaded (T20.4, T19.6)."""
    if tube.state != STARTUP:
        set_home_state(tube, STARTUP)
    begin_in(n, t, tube)
    step_shifts(n, t)


def step_shifts(n: Node, t: Tubes) -> None:
    """[T19] Load and unload tasks, up to a limit per turn for all tubes (T19.6)."""
    tubes = list(t.shifting)
    left: i64 = len(tubes)
    for tube in tubes:
        share = t.shift_room // left  # a small tube does not wait for a large one
        left -= 1
        shift = tube.shift
        if t.shift_room == 0 or shift is None:
            continue
        room = share if share > 0 else 1
        t.shift_room -= room
        if shift.is_in:
            t.shift_room += step_in(n, t, tube, shift, room)
        else:
            t.shift_room += step_out(n, t, tube, shift, room)
        if shift.pos < len(shift.numbers) or (shift.is_in and not shift.is_settled):
            continue
        end_shift(t, tube)
        if shift.is_in:
            run(n, t, tube, shift.orphans)
        else:
            t.must_look = True
            ask_copies(n, t, tube)


def run(n: Node, t: Tubes, tube: Tube, orphans: list[Task]) -> None:
    """The tube is RUNNING: all its tasks are loaded."""
    tube.owners = {}
    tube.run_ms = 0
    tube.hears_ms = n.now_ms  # T48.9
    keys_loaded(t, tube)
    set_home_state(tube, RUNNING)
    for task in orphans:
        if task.status == TAKEN and task.owner not in t.sessions:
            give_back(n, t, tube, task)  # T8.2
    if len(tube.waiters) > 0:
        mark_ready(n, tube)
    announce(n, t, [tube], -1)


# ---- The tube stops


def stop(n: Node, t: Tubes, tube: Tube) -> None:
    """The tube is ENDING: its tasks become copies (T19.2, T20.2, T19.6)."""
    set_home_state(tube, ENDING)
    tube.is_local = True
    tube.owners = {}
    begin_out(t, tube)
    step_shifts(n, t)


def wait_here(n: Node, t: Tubes, tube: Tube) -> None:
    """The tube is WAITING."""
    if tube.state == RUNNING:
        stop(n, t, tube)
    turn_back(t, tube)
    set_home_state(tube, WAITING)


def send_away(n: Node, t: Tubes, tube: Tube) -> None:
    """Redirect clients that wait here for the tube with -TUBEHOME (T17.3, T20.2)."""
    wake_waits(n, tube, b"")  # T72.2
    for client in list(tube.waiters):
        stop_waiting(n, client)
        wake = Wake(client, HOME_MOVED, [], 0)
        wake.queue = tube.name
        n.wakes.append(wake)
    while len(tube.putters) > 0:
        putter = tube.putters.popleft()
        if not putter.is_over:
            t.end_put(tube, putter)
            done = PutDone(putter.client, putter.serial, None)
            done.moved = tube.name
            t.put_done.append(done)


def lose_home(n: Node, t: Tubes, tube: Tube, home: bytes, epoch: i64) -> None:
    """Another node leads, under a higher epoch (T17.1, T21.4)."""
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
    tube.is_unsure = False
    tube.run_ms = 0
    tube.home = home
    tube.epoch = epoch
    tube.followers = {}
    tube.is_won = False
    tube.end_candidacy(epoch)
    t.voter_state.moved.append(tube)
    send_away(n, t, tube)


def end_waits(t: Tubes, tube: Tube) -> None:
    """Reply to clients of a running switchover or failover: another leader came first."""
    done = t.forced.pop(tube.name, None)
    move = tube.move
    if move is not None and move.client >= 0:
        done = HomeDone(move.client, move.serial, tube)
    tube.move = None
    if done is not None:
        done.error = TubeError(MOVE_ENDED, (tube.name,))
        t.home_done.append(done)


def keep_holders(n: Node, t: Tubes, tube: Tube) -> None:
    """Number the sessions that hold tasks here as sessions of another leader."""
    if not tube.is_local:
        return  # done before
    if len(tube.tasks) > 0:  # being unloaded
        for session in t.sessions.values():
            for task in session.taken.values():
                if task.queue == tube.name:
                    tube.owners[session.number] = None
                    break
    for number in tube.owners:
        found = t.sessions.get(number)
        if found is not None and hold(t, tube, found.number, found.uuid, found.user):
            if n.records is not None:
                n.records.put(TubeHolder(found.number, found.uuid, found.user, tube.name))
    tube.owners = {}
