"""Groups of jobs: made, given children, and ended by the leader of their tube (SPEC T50).

The leader waits for the ends of the children as a client of WAITJOB does: a child does not know its
group, so it may be a job of any queue and any node, and no end is missed that RESULT would show. A
group becomes its callback by one change of one task: it is there once, whatever leaders are lost.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from tuque.core.life.cancel_update import (
    FLAGGED,
    OVER,
    UNKNOWN,
    on_cancel,
)
from tuque.core.life.lookup import (
    CANCEL,
    LOOK,
    ask,
    may_ask,
)
from tuque.core.life.outcomes import is_settled, silent, watch
from tuque.core.life.shown import result_fields
from tuque.core.model import stats
from tuque.core.model.errors import BAD_INDEX, MANY_GROUPS_OF_JOBS, NO_GROUP, NO_GROUPS, NOJOB
from tuque.core.model.task import BYTES, MAX_MS, READY, Entry, Task, whole_s
from tuque.core.msgs.packed import REASON_MAX
from tuque.core.node.node import Node
from tuque.core.records.events import GROUP_CALLED, GROUP_CREATED
from tuque.tubes.entries.group import (
    CANCELLED,
    CONTINUE,
    DONE,
    FAILED,
    GONE_WHY,
    GROUPS_MAX,
    OPEN,
    POLICY_WORDS,
    WAIT,
    ChildEntry,
    Family,
    GroupEntry,
    end_by_outcome,
    end_child,
    is_of_group,
)
from tuque.tubes.entries.keys import opened
from tuque.tubes.log.leader import has_lease, needs_copies
from tuque.tubes.model import options
from tuque.tubes.model.errors import TubeError
from tuque.tubes.model.tube import RUNNING, Tube
from tuque.tubes.model.tubes import Tubes
from tuque.tubes.policies.next_task import Tasks
from tuque.tubes.work.transitions import (
    arm,
    change,
    end,
    enter_apart,
    enter_life,
    record_whole,
    tell,
)

FILL_MS: Final = 3_600_000  # a group without all its children is cancelled then (T50.8)
ASKS_MAX: Final = 500  # children at other nodes that are asked for at once
ASK_MS: Final = 1_000  # until a child at another node is asked for again
PATIENCE_MS: Final = 5_000  # for an answer about such a child, before others have their turn
LOOK_MS: Final = 30_000  # until a child is looked at again without a cause
REST_MS: Final = 60_000  # the same of one that has ended
DEAD_MS: Final = 5_000  # of a dead one that may be replayed (T50.5)
FIRST_WATCHER: Final = -(1 << 40)  # the leader waits under such numbers, as a client does
WHY: Final = b"its group has ended"
ON: Final = b"its group has ended; it continues, for another one added it"


def driver_of(tube: Tube) -> Tasks:
    """The driver of a tube that may have groups; raises TubeError (T50.1)."""
    driver = tube.driver
    if not isinstance(driver, Tasks) or tube.is_temporary:
        raise TubeError(NO_GROUPS, (tube.name,))
    return driver


def family_of(tube: Tube, number: i64) -> Family:
    """The children of that group; an empty family: none was added yet."""
    family = driver_of(tube).plans.members.families.get(int(number))
    return Family() if family is None else family


def group_of(n: Node, tube: Tube, id: bytes) -> Task:
    """The task of that id, which is a group or was one; raises TubeError (T51.3)."""
    task = n.jobs.get(id)
    if isinstance(task, Task) and task.queue == tube.name:
        if isinstance(task.entry, GroupEntry):
            return task
        if int(task.number) in driver_of(tube).plans.members.families:
            return task
    raise TubeError(NO_GROUP, (tube.name, id))


# ---- What clients ask for (SPEC T50)


def create(
    n: Node, t: Tubes, tube: Tube, plan: GroupEntry, body: bytes, pri: i64, ttr_ms: i64
) -> Task:
    """[T50] CREATE: a group without children, which has an hour to get them (T50.8)."""
    driver = driver_of(tube)
    needs_copies(n, t, tube)
    if len(driver.plans.members.open) >= GROUPS_MAX:
        raise TubeError(MANY_GROUPS_OF_JOBS, (tube.name, GROUPS_MAX))
    task = enter_member(n, t, tube, plan, body, pri, ttr_ms, n.now_ms + FILL_MS)
    t.groups_made += 1
    if n.events is not None:
        policy = POLICY_WORDS[int(plan.policy)].encode()
        text = b"%s on failure %s" % (task.id, policy)
        n.events.of_group(n.now_ms, GROUP_CREATED, tube.name, plan.size, text)
    return task


def enter_member(
    n: Node, t: Tubes, tube: Tube, entry: Entry, body: bytes, pri: i64, ttr_ms: i64, at_ms: i64
) -> Task:
    """A task of the group: DELAYED, and looked at at that instant."""
    id = n.ids.make_task(i64(whole_s(MAX_MS)), stats.tenant_of(tube.name), tube.mark)
    task = Task(id, tube.name, body, n.next_ctime_ns(), tube.next_number, pri, BYTES)
    task.entry = entry
    task.created_ms = n.now_ms
    task.ttl_ms = MAX_MS
    task.ttr_ms = ttr_ms
    enter_apart(n, t, tube, task, at_ms)
    return task


def add(
    n: Node, t: Tubes, tube: Tube, group: Task, index: i64, id: bytes, is_met: bool = False
) -> bool:
    """[T50] ADD: the job is the child of that index, unless it has one already (T50.2)."""
    needs_copies(n, t, tube)
    plan = group.entry
    if not isinstance(plan, GroupEntry):
        return False
    if not 0 <= index < plan.size:
        raise TubeError(BAD_INDEX, (group.id, plan.size - 1))
    if plan.state != OPEN or int(index) in family_of(tube, group.number).by_index:
        return False
    child = ChildEntry()
    child.group = group.number
    child.index = index
    child.id = id
    child.is_met = is_met
    at_ms = n.now_ms + ASK_MS  # not now: ends of timers that are due are all dealt with at once
    task = enter_member(n, t, tube, child, b"", tube.pri, tube.ttr_ms, at_ms)
    t.members_due[task.id] = None
    return True


def cancel(n: Node, t: Tubes, tube: Tube, group: Task) -> bool:
    """[T50] CANCEL: the callback will not run, open children are cancelled (T50.7)."""
    needs_copies(n, t, tube)
    entry = group.entry
    if not isinstance(entry, GroupEntry) or entry.state != OPEN:
        return False
    close_group(n, t, tube, group, CANCELLED)
    return True


# ---- What the leader does when a group or a child has news (SPEC T50)


def next_member(n: Node, t: Tubes) -> Task | None:
    """A group or child to be looked at now, taken from the list; None: there is no more."""
    while len(t.members_due) > 0:
        id = next(iter(t.members_due))
        del t.members_due[id]
        task = n.jobs.get(id)
        if not isinstance(task, Task) or not is_of_group(task):
            forget(n, t, id)
            continue
        tube = t.by_name[task.queue]
        if tube.state != RUNNING or not has_lease(n.now_ms, t, tube):
            forget(n, t, id)
            continue  # its timer comes again
        return task
    return None


def look(n: Node, t: Tubes, task: Task) -> None:
    """[T50] A group or a child: what has become of it."""
    tube = t.by_name[task.queue]
    entry = task.entry
    if isinstance(entry, GroupEntry):
        look_at_group(n, t, tube, task, entry)
    elif isinstance(entry, ChildEntry):
        look_at_child(n, t, tube, task, entry.copy())


def look_at_group(n: Node, t: Tubes, tube: Tube, task: Task, plan: GroupEntry) -> None:
    """It has ended long ago, has not got all its children in time, or may go on."""
    if plan.state != OPEN:
        if n.now_ms >= plan.over_ms + plan.keep_ms:
            drop(n, t, tube, task)  # T50.6
        else:
            arm(n, t, task, plan.over_ms + plan.keep_ms)
        return
    arm(n, t, task, n.now_ms + REST_MS)
    settle(n, t, tube, task, plan)
    if plan.size > len(family_of(tube, task.number).by_index):
        until_ms = task.created_ms + FILL_MS
        if n.now_ms >= until_ms:
            close_group(n, t, tube, task, CANCELLED)  # T50.8
        else:
            arm(n, t, task, until_ms)


def look_at_child(n: Node, t: Tubes, tube: Tube, task: Task, child: ChildEntry) -> None:
    """It has ended, is to be cancelled, or is waited for. `child` may be changed."""
    group = tube.tasks.get(child.group)
    family = family_of(tube, child.group)
    if group is None or family.by_index.get(int(child.index), -1) != int(task.number):
        if child.state == OPEN and group is None and not child.is_met:  # T51.2
            if cancel_child(n, t, task, child.id) < 0:
                return
        forget(n, t, task.id)
        drop(n, t, tube, task)
        return
    if child.state != OPEN:
        forget(n, t, task.id)
        arm(n, t, task, n.now_ms + REST_MS)
        return
    entry = group.entry
    if not isinstance(entry, GroupEntry) or entry.state != OPEN:
        close_late_child(n, t, tube, task, child, group)
        return
    wait_for(n, t, tube, task, child, entry.policy)


def wait_for(n: Node, t: Tubes, tube: Tube, task: Task, child: ChildEntry, policy: i64) -> None:
    """[T50] Note the child's end, or wait for it (T50.3)."""
    id = child.id
    if may_ask(n, id):
        asking = n.life.asking.get(id)
        if asking is None or task.id not in t.watchers:
            is_asked = len(n.life.asking) < ASKS_MAX
            if is_asked:
                watch_child(n, t, task.id, id)
                ask(n, id, LOOK)
            arm(n, t, task, n.now_ms + ASK_MS)
            return
        if not is_settled(n, id):
            if asking.is_told or n.now_ms >= asking.since_ms + PATIENCE_MS:
                forget(n, t, task.id)  # others have their turn
            if asking.is_told:
                note_dead(n, t, tube, task, child, b"", b"")
            arm(n, t, task, n.now_ms + ASK_MS)
            return
    elif not is_settled(n, id):
        note_dead(n, t, tube, task, child, b"", b"")
        watch_child(n, t, task.id, id)
        arm(n, t, task, n.now_ms + LOOK_MS)
        return
    fields, refused = result_fields(n, id)
    if fields is None and refused is not None and refused.code != NOJOB:
        arm(n, t, task, n.now_ms + ASK_MS)  # a node that may know it is not in reach
        return
    forget(n, t, task.id)
    if fields is not None and fields["state"] == b"dead":
        if policy == WAIT:
            ended = ChildEntry()
            end_by_outcome(ended, fields, 0)
            note_dead(n, t, tube, task, child, ended.word, ended.reason)
            if not may_ask(n, id):
                watch_child(n, t, task.id, id)  # its replay at this node is known at once
            arm(n, t, task, n.now_ms + DEAD_MS)  # T50.5
            return
    note_outcome(n, t, tube, task, child, fields)


def note_outcome(
    n: Node, t: Tubes, tube: Tube, task: Task, child: ChildEntry, fields: dict[str, object] | None
) -> None:
    """The child has ended: with these fields of RESULT, or without any."""
    if fields is None:
        end_child(child, FAILED, b"gone", GONE_WHY)
    else:
        end_by_outcome(child, fields, family_of(tube, child.group).result_bytes)
    note_end(n, t, tube, task, child)


def note_end(n: Node, t: Tubes, tube: Tube, task: Task, child: ChildEntry) -> None:
    """[T50] How the child ended, once (T50.3); later than its group, if that has (T51.6)."""
    group = tube.tasks.get(child.group)
    entry = None if group is None else group.entry
    child.over_ms = n.now_ms
    if isinstance(entry, GroupEntry):
        child.over_ms = max(n.now_ms, entry.over_ms + 1)
    forget(n, t, task.id)
    arm(n, t, task, n.now_ms + REST_MS)
    note_child(n, t, tube, task, child)
    if group is not None and isinstance(entry, GroupEntry):
        settle(n, t, tube, group, entry)


def note_dead(
    n: Node, t: Tubes, tube: Tube, task: Task, child: ChildEntry, word: bytes, reason: bytes
) -> None:
    """[T50] The open child is dead, and a replay is awaited; no word: it is not dead (T50.5)."""
    reason = reason[:REASON_MAX]
    if child.word != word or child.reason != reason:
        child.word = word
        child.reason = reason
        note_child(n, t, tube, task, child)


def note_child(n: Node, t: Tubes, tube: Tube, task: Task, child: ChildEntry) -> None:
    """The record of the child says this from now on."""
    renew(t, tube, task, child)
    record_whole(n, tube, task)
    tell(n, t, tube, task, options.UPDATE)


def settle(n: Node, t: Tubes, tube: Tube, task: Task, plan: GroupEntry) -> None:
    """[T50] Whether the ends of the children end the group (T50.4, T50.5)."""
    if plan.state != OPEN:
        return
    family = family_of(tube, task.number)
    if family.failed > 0 and plan.policy != CONTINUE:
        close_group(n, t, tube, task, FAILED)
    elif family.done + family.failed == plan.size:
        if plan.has_callback:
            call_back(n, t, tube, task, plan)
        else:
            close_group(n, t, tube, task, DONE)


def call_back(n: Node, t: Tubes, tube: Tube, task: Task, plan: GroupEntry) -> None:
    """[T50] The group is its callback from now on: one change of one task (T50.4)."""
    renew(t, tube, task, opened(plan.keys) if len(plan.keys) > 0 else None)
    enter_life(n, task)
    change(n, t, tube, task, READY)
    arm(n, t, task, 0)
    tube.jobs_in += 1
    tube.atime_ms = n.now_ms
    t.groups_done += 1
    record_group_end(n, tube, task, GROUP_CALLED, plan)
    if n.events is not None:
        n.events.added(n.now_ms, task)
    record_whole(n, tube, task)
    tell(n, t, tube, task, options.DELAY)


def record_group_end(n: Node, tube: Tube, task: Task, kind: i64, plan: GroupEntry) -> None:
    """[E1.9] The group has ended, or become its callback."""
    if n.events is None:
        return
    family = family_of(tube, task.number)
    text = b"%s %d done, %d failed" % (task.id, int(family.done), int(family.failed))
    n.events.of_group(n.now_ms, kind, tube.name, plan.size, text)


def close_group(n: Node, t: Tubes, tube: Tube, task: Task, state: i64) -> None:
    """[T50] The group ends without a callback; children that are open are cancelled."""
    assert isinstance(task.entry, GroupEntry), "a group has become its callback"
    plan = task.entry.copy()
    plan.state = state
    plan.over_ms = n.now_ms
    record_group_end(n, tube, task, GROUP_CREATED + state, plan)
    renew(t, tube, task, plan)
    arm(n, t, task, n.now_ms + plan.keep_ms)
    record_whole(n, tube, task)
    tell(n, t, tube, task, options.UPDATE)
    if state == DONE:
        t.groups_done += 1
        return
    t.groups_failed += 1
    for number in family_of(tube, task.number).by_index.values():
        t.members_due[tube.tasks[number].id] = None  # T50.7


def close_late_child(
    n: Node, t: Tubes, tube: Tube, task: Task, child: ChildEntry, group: Task
) -> None:
    """[T50] The group has ended before: note the child's end, or cancel the child (T50.7)."""
    id = child.id
    if may_ask(n, id) and id not in n.life.cancelling and not has_looked(n, t, task, id):
        arm(n, t, task, n.now_ms + ASK_MS)
        return
    if is_settled(n, id):
        fields, refused = result_fields(n, id)
        if fields is None and refused is not None and refused.code != NOJOB:
            arm(n, t, task, n.now_ms + ASK_MS)  # a node that may know it is not in reach
            return
        entry = group.entry
        is_awaited = isinstance(entry, GroupEntry) and entry.policy == WAIT and not child.is_met
        if fields is None or fields["state"] != b"dead" or not is_awaited:
            note_outcome(n, t, tube, task, child, fields)
            return
    if child.is_met:
        end_child(child, FAILED, b"open", ON)  # T51.2
        note_end(n, t, tube, task, child)
        return
    became = cancel_child(n, t, task, id)
    if became == OVER:
        watch_child(n, t, task.id, id)
        arm(n, t, task, n.now_ms + ASK_MS)  # how it ended is seen then
    elif became >= 0:
        end_child(child, FAILED, b"cancelled", WHY)
        note_end(n, t, tube, task, child)


def has_looked(n: Node, t: Tubes, task: Task, id: bytes) -> bool:
    """[T50] Whether the child's holder has said how it is; if not, it is asked (T50.3)."""
    asking = n.life.asking.get(id)
    if asking is None or task.id not in t.watchers:
        if len(n.life.asking) < ASKS_MAX:
            watch_child(n, t, task.id, id)
            ask(n, id, LOOK)
        return False
    if not asking.is_told and n.now_ms >= asking.since_ms + PATIENCE_MS:
        forget(n, t, task.id)  # others have their turn
    return asking.is_told


def cancel_child(n: Node, t: Tubes, task: Task, id: bytes) -> i64:
    """[T50] Cancel the child; what became of it, OVER if its end is to be seen; -1: its holder has
    not answered yet (T50.7).
    """
    if not may_ask(n, id):
        life = n.life.by_id.get(id)
        if life is not None and life.is_cancelled and not life.is_dead:
            return FLAGGED
        became, _, change = on_cancel(n, id, WHY, True)
        return became if change is None else OVER
    asking = n.life.cancelling.get(id)
    if asking is None or task.id not in t.watchers:
        forget(n, t, task.id)
        watch_child(n, t, task.id, id)
        ask(n, id, CANCEL, WHY)
    elif asking.became != UNKNOWN:
        return asking.became
    elif asking.is_told:
        if silent(n, id, asking) == 0:
            return UNKNOWN
        forget(n, t, task.id)
    arm(n, t, task, n.now_ms + ASK_MS)
    return -1


# ---- Waiting for the ends of children


def watch_child(n: Node, t: Tubes, task_id: bytes, id: bytes) -> None:
    """The leader waits for the end of the child, as a client would (W9)."""
    if task_id in t.watchers:
        return
    t.watcher_serial += 1
    number = FIRST_WATCHER - t.watcher_serial
    t.watchers[task_id] = int(number)
    t.watched_tasks[int(number)] = task_id
    watch(n, number, [id], 0)


def forget(n: Node, t: Tubes, task_id: bytes) -> None:
    """The leader waits for that child no more."""
    number = t.watchers.pop(task_id, 0)
    if number != 0:
        del t.watched_tasks[number]
        n.life.unwatch(number)


def wake(t: Tubes, client: i64) -> None:
    """A child that the leader waits for under this number has news."""
    task_id = t.watched_tasks.get(int(client))
    if task_id is not None:
        t.members_due[task_id] = None


# ---- Changes of the tasks of groups


def renew(t: Tubes, tube: Tube, task: Task, entry: Entry | None) -> None:
    """The task carries this from now on."""
    driver = driver_of(tube)
    used = driver.bytes_used
    driver.ended(task)
    task.entry = entry
    driver.joined(task)
    driver.named(task)
    t.charge(tube, driver.bytes_used - used)


def drop(n: Node, t: Tubes, tube: Tube, task: Task) -> None:
    """The task is gone; no event tells of it, for it is no job."""
    tube.calls.delete += 1
    tube.calls.done += 1
    end(n, t, tube, task, stats.ADMIN_DELETED, options.DELETE)
