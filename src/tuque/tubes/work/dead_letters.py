"""Dead letters of tubes of type `tasks`: a dead-lettered task stays there, BURIED (SPEC T48).

It carries its death, as it carries its keys (tubes/entries/work.py): so its record and its copies
have all of it, and a new leader has the dead letters of the last one. In such a tube each BURIED
task is a dead letter.

Must not know: the caller, which has checked that the tube runs here.
"""

from mypy_extensions import i64

from tuque.core.copies.ack import bury_task, hand_on
from tuque.core.life.dead_letters import letter_of, replay
from tuque.core.life.holders import new_life
from tuque.core.model import stats
from tuque.core.model.task import BURIED, READY, TTL_MAX_MS, Task
from tuque.core.model.work import (
    EXPIRED,
    LETTERED,
    NEVER_S,
    SET_ASIDE,
    Life,
)
from tuque.core.node.node import Node
from tuque.core.queues.ends import (
    conclude_life,
    leave_life,
    life_of,
    look_again,
)
from tuque.core.queues.work_copies import drop_letters, report_death
from tuque.core.tables.work import count_of, last_serial
from tuque.core.work import rules
from tuque.tubes.entries.keys import (
    UNTIL_START,
    carry,
    carry_death,
    keys_of,
    unique_of,
    until_of,
    work_in,
)
from tuque.tubes.entries.work import detail_in
from tuque.tubes.log.leader import copies_needed, needs_home, synced
from tuque.tubes.model import options
from tuque.tubes.model.errors import TubeError
from tuque.tubes.model.tube import Tube
from tuque.tubes.model.tubes import Tubes
from tuque.tubes.policies.next_task import Tasks
from tuque.tubes.work.transitions import (
    arm,
    change,
    end,
    end_task,
    expire,
    record_whole,
    tell,
)

# ---- A task becomes a dead letter (SPEC T48.8)


def give_up(n: Node, t: Tubes, tube: Tube, task: Task, life: Life, cause: bytes) -> None:
    """[T48] PROCEDURE the task is given up: it stays as a dead letter (T48.8), or its letter begins
    in the queue that DEAD names (T48.12).
    """
    if len(life.terms.dead) == 0:
        bury(n, t, tube, task, life, cause)
        return
    leave_life(n, task)
    conclude_life(n, task, life, LETTERED, life.run, None, life.last_failure().reason)  # W7.2
    bury_task(n, task, life, cause)
    end_task(n, t, tube, task)


def bury(n: Node, t: Tubes, tube: Tube, task: Task, life: Life, cause: bytes) -> None:
    """[T48] The task is a dead letter from now on: one change of one task (T48.8)."""
    change(n, t, tube, task, BURIED)
    if life.replays == 0:
        life.ttl_ms = task.ttl_ms  # T48.13
    rules.die(life, cause, tube.name, n.now_ms)
    set_end(n, task, n.limits.dead_keep_ms)
    arm(n, t, task, 0)
    serial = next_serial(n, tube, tube.seq + 1)  # of this change: those of a new leader are higher
    carry_death(task, life, serial)
    enter_letter(n, tube, task, life, serial)
    report_death(n, task, life, cause, life.returned)
    tube.calls.bury += 1
    record_whole(n, tube, task)
    tell(n, t, tube, task, options.BURY)
    if task.id in n.life.watchers:
        look_again(n, task.id)  # W9.2
        if n.others != 0 and (tube.sync > 1 or tube.by_majority):
            tube.ends_due.append((int(tube.seq), task.id))
    drop_letters(n)


def enter_letter(n: Node, tube: Tube, task: Task, life: Life, serial: i64) -> None:
    """The task, which carries its death, enters the table of dead letters.

    The detail of its last failure stays in the image that it carries.
    """
    last = life.last
    if last is not None:
        last.detail = b""
    life.packed_bytes = len(work_in(task))
    n.life.weigh(life)
    limit_bytes = n.limits.dead_bytes
    n.life.bury(tube.name, task.id, life, len(task.body), limit_bytes, serial)


def next_serial(n: Node, tube: Tube, wanted: i64) -> i64:
    """The serial of the next dead letter: that one, if it is above the others."""
    return max(wanted, last_serial(n.life.letters, tube.name) + 1)


def set_end(n: Node, task: Task, left_ms: i64) -> None:
    """The task's life ends so long from now."""
    task.ttl_ms = min(n.now_ms - task.created_ms + left_ms, TTL_MAX_MS)
    task.dead_ms = task.created_ms + task.ttl_ms


def set_aside(n: Node, t: Tubes, tube: Tube, task: Task) -> None:
    """[T48] TUBE BURY: a dead letter of which no attempt failed now (T48.8)."""
    life = life_of(n, task.id)
    if life is None:
        life = new_life(n, task, b"")
    bury(n, t, tube, task, life, SET_ASIDE)


def run_out(n: Node, t: Tubes, tube: Tube, task: Task) -> bool:
    """[T48] The time of a READY or BURIED task is over: with ATTEMPTS it becomes a dead letter
    (T48.14), else it is gone. Whether it is there still.
    """
    life = life_of(n, task.id) if tube.driver.has_keys else None
    if life is None or not rules.dies_expired(life) or task.status == BURIED:
        expire(n, t, tube, task)
        return False
    tube.calls.ttl += 1
    give_up(n, t, tube, task, life, EXPIRED)
    return tube.tasks.get(task.number) is task


# ---- A dead letter is replayed or removed (SPEC W12)


def key_holder(n: Node, tube: Tube, task: Task) -> Task | None:
    """[T48] Another task, which has the unique key that a dead one asks for again (T48.13)."""
    driver = tube.driver
    keys = keys_of(task)
    if len(keys) == 0 or not isinstance(driver, Tasks):
        return None
    until = until_of(keys)
    if task.delivered_count > 0 and until == UNTIL_START:
        return None  # T44.2
    if 0 < until <= n.now_ms - task.created_ms:
        return None  # T44.3
    number: i64 = driver.uniques.holder(unique_of(keys), n.now_ms)
    return None if number < 0 or number == task.number else tube.tasks.get(number)


def frees(n: Node, t: Tubes, tube: Tube, task: Task, is_back: bool) -> bool:
    """Whether the dead task may be replayed or deleted now; to its place only if no other task has
    its unique key.
    """
    if task.status != BURIED or not may_change(n, t, tube):
        return False
    return not is_back or key_holder(n, tube, task) is None


def revive(n: Node, t: Tubes, tube: Tube, task: Task, work: Life) -> None:
    """[T48] The task, dead no more, is READY at its place (T48.13)."""
    set_end(n, task, work.ttl_ms)
    carry(task, work)
    tube.calls.kick += 1
    change(n, t, tube, task, READY)
    arm(n, t, task, 0)
    record_whole(n, tube, task)
    tell(n, t, tube, task, options.KICK)


def kick(n: Node, task: Task) -> bool:
    """[T48] KICK and ENQUEUE of a dead task are a replay (T48.13); False: it stays dead."""
    letter = letter_of(n, task.id)
    return letter is not None and replay(n, letter, b"")


def send_on(n: Node, t: Tubes, tube: Tube, task: Task, work: Life, queue: bytes) -> None:
    """[T48] The body of the dead task goes on in a queue, as a new job; the task ends (T48.13)."""
    leave_life(n, task)
    conclude_life(n, task, work, LETTERED, work.run, None, work.last_failure().reason)
    rules.revive(work, n.now_ms)
    hand_on(n, task, work, queue, min(work.ttl_ms, NEVER_S * 1000), False)
    end_task(n, t, tube, task)


def remove_task(n: Node, t: Tubes, tube: Tube, task: Task) -> None:
    """Delete the task."""
    tube.calls.delete += 1
    tube.calls.done += 1
    if n.events is not None:
        n.events.deleted(n.now_ms, task, stats.ADMIN_DELETED, n.returned(task.id))
    end(n, t, tube, task, stats.ADMIN_DELETED, options.DELETE)


def may_change(n: Node, t: Tubes, tube: Tube) -> bool:
    """Whether the tube runs here now."""
    try:
        needs_home(n, t, tube)
    except TubeError:
        return False
    return True


# ---- What clients see


def shows_death(n: Node, t: Tubes, task: Task) -> bool:
    """[T48] Whether so many nodes know of the death as SYNC asks (T48.8)."""
    tube = t.by_name.get(task.queue)
    life = life_of(n, task.id)
    if tube is None or life is None or tube.is_temporary or copies_needed(n, t, tube) <= 1:
        return True
    died = max(min(life.serial, tube.seq), tube.begin_seq, tube.loaded_seq)
    return died <= synced(n, t, tube)


def detail_of(n: Node, task: Task) -> bytes:
    """The detail of the last failure of the task."""
    life = life_of(n, task.id)
    if life is None:
        return b""
    if life.is_dead:
        return detail_in(work_in(task))
    return life.last.detail if life.last is not None else b""


# ---- Dead letters after a load


def lie_down(n: Node, t: Tubes, tube: Tube, task: Task) -> None:
    """A BURIED task of a journal or a replica is in the tables of its leader."""
    life = life_of(n, task.id)
    if life is None:
        life = new_life(n, task, b"")
    if len(life.dead_cause) == 0:  # no leader writes that
        life.dead_cause = SET_ASIDE
        life.dead_ms = n.now_ms
    life.origin = tube.name
    if n.is_loading:
        t.letters_due.append((int(life.serial), int(task.number), tube.name))
    else:
        enter_letter(n, tube, task, life, next_serial(n, tube, life.serial))


def lay_down(n: Node, t: Tubes) -> None:
    """The journal is loaded: the dead letters follow each other as before."""
    due = t.letters_due
    t.letters_due = []
    due.sort()
    for serial, number, name in due:
        tube = t.by_name.get(name)
        task = tube.tasks.get(number) if tube is not None else None
        life = life_of(n, task.id) if task is not None else None
        if tube is not None and task is not None and life is not None and not life.is_dead:
            enter_letter(n, tube, task, life, next_serial(n, tube, i64(serial)))


def check_letters(n: Node, tube: Tube) -> None:
    """Assert that the BURIED tasks of a tube with keys are its dead letters (T48.8)."""
    if not tube.driver.has_keys or tube.shift is not None or n.is_loading:
        return
    for task in tube.tasks.values():
        life = life_of(n, task.id)
        is_dead = life is not None and life.is_dead
        assert is_dead == (task.status == BURIED), "a dead letter is not BURIED, or the reverse"
    assert count_of(n.life.letters, tube.name) >= tube.buried, "dead letters of a tube"
