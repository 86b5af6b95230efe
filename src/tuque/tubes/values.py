"""VALUE: named values of a tube, counters and sets of parts, kept by its leader (SPEC T70, T71).

Each is a task that is no job, with an entry of tubes/entries/value.py. A value that is set again
keeps its task: that is one change of the tube. Who has met a value whose time is over ends it
first, so that its end is a change as well (T70.4).
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from tuque.core.model import stats
from tuque.core.model.errors import (
    HAS_PARTS,
    IS_FIXED_VALUE,
    LARGE_SUM,
    NO_NUMBER,
    NO_PARTS,
    NO_VALUES,
    VALUES_FULL,
)
from tuque.core.model.job import JOB_BYTES
from tuque.core.model.stats import tenant_of
from tuque.core.model.task import BYTES, MAX_MS, TASK_BYTES, Task, whole_s
from tuque.core.node.node import Node
from tuque.core.node.tables import put_body
from tuque.tubes.entries.value import (
    IS_FIXED,
    NO_PART,
    NONE,
    PartEntry,
    Parts,
    SetEntry,
    ValueEntry,
    Values,
    name_in,
    size_of,
)
from tuque.tubes.log.leader import (
    copies_needed,
    has_lease,
    needs_copies,
    needs_voters,
    refusal_of,
)
from tuque.tubes.model import options
from tuque.tubes.model.errors import TubeError
from tuque.tubes.model.tube import RUNNING, Tube
from tuque.tubes.model.tubes import Tubes
from tuque.tubes.policies.next_task import Tasks
from tuque.tubes.work.transitions import arm, end, enter_apart, record_whole, wake_waits

NUMBER_MOST: Final = (1 << 63) - 1
NUMBER_WORD: Final = 20  # characters of the longest number
SAME_END_MS: Final = 1_000  # a set whose end would move by less keeps it (T71.5)
SWEEP: Final = 200  # parts without a set that go in a turn (T71.6)
AGAIN_MS: Final = 200


def values_of(tube: Tube) -> Values:
    """The values of a tube that may have some; raises TubeError (T70.1)."""
    driver = tube.driver
    if not isinstance(driver, Tasks) or tube.is_temporary:
        raise TubeError(NO_VALUES, (tube.name,))
    return driver.plans.values


# ---- Values (SPEC T70)


def begin_read(n: Node, t: Tubes, tube: Tube) -> None:
    """[T70] A call that may change nothing: its reply waits as that of a change (T70.5)."""
    if tube.state != RUNNING or not has_lease(n.now_ms, t, tube):
        raise refusal_of(n, t, tube)
    values_of(tube)
    if copies_needed(n, t, tube) > 1:
        needs_voters(t, tube)
        t.to_sync[tube.name] = tube


def begin_change(n: Node, t: Tubes, tube: Tube) -> None:
    """[T70] A call that sets, counts or drops (T70.5)."""
    needs_copies(n, t, tube)
    values_of(tube)


def find(n: Node, t: Tubes, tube: Tube, name: bytes) -> Task | None:
    """The task of the value or set of that name, unless its time is over (T70.4)."""
    number = values_of(tube).by_name.get(name)
    if number is None:
        return None
    task = tube.tasks[number]
    if task.qtime_ms <= n.now_ms:
        end_value(n, t, tube, task)
        return None
    return task


def end_value(n: Node, t: Tubes, tube: Tube, task: Task) -> None:
    """The value, the set or the part is gone; no event tells of it, for it is no job."""
    tube.calls.delete += 1
    tube.calls.done += 1
    end(n, t, tube, task, stats.ADMIN_DELETED, options.DELETE)


def check_room(n: Node, tube: Tube, more: i64) -> None:
    """[T70] Raise TubeError if the values of the tube would take too much (T70.7)."""
    most = n.limits.values_bytes
    if most > 0 and more > 0 and values_of(tube).bytes + more > most:
        raise TubeError(VALUES_FULL, (tube.name, int(most)))


def until(n: Node, ttl_ms: i64) -> i64:
    """The end of a TTL that begins now; 0: none."""
    return n.now_ms + (MAX_MS if ttl_ms == 0 or ttl_ms > MAX_MS else ttl_ms)


def enter(
    n: Node, t: Tubes, tube: Tube, entry: ValueEntry | SetEntry | PartEntry, body: bytes, at_ms: i64
) -> Task:
    """A new task with that entry."""
    check_room(n, tube, JOB_BYTES + TASK_BYTES + len(body))
    id = n.ids.make_task(i64(whole_s(MAX_MS)), tenant_of(tube.name), tube.mark)
    task = Task(id, tube.name, body, n.next_ctime_ns(), tube.next_number, tube.pri, BYTES)
    task.entry = entry
    task.created_ms = n.now_ms
    enter_apart(n, t, tube, task, at_ms)
    if not isinstance(entry, PartEntry):
        wake_waits(n, tube, entry.name)
    return task


def put_value(n: Node, t: Tubes, tube: Tube, task: Task, entry: ValueEntry, body: bytes) -> None:
    """The value of the task is this one from now on. The caller records it."""
    values = values_of(tube)
    check_room(n, tube, len(body) - len(task.body))
    before = size_of(task)
    if task.body != body:
        put_body(n, task, body)
    values.bytes += size_of(task) - before
    task.entry = entry


def set_value(
    n: Node, t: Tubes, tube: Tube, name: bytes, body: bytes, ttl_ms: i64, bits: i64, is_new: bool
) -> bool:
    """[T70] SET; False: it changes nothing (T70.2)."""
    begin_change(n, t, tube)
    task = find(n, t, tube, name)
    if task is None:
        enter(n, t, tube, ValueEntry(name, bits), body, until(n, ttl_ms))
        return True
    entry = value_entry(task)
    if is_new or entry.bits & IS_FIXED != 0:
        return False
    put_value(n, t, tube, task, ValueEntry(name, bits), body)
    arm(n, t, task, until(n, ttl_ms))
    record_whole(n, tube, task)
    wake_waits(n, tube, name)
    return True


def value_entry(task: Task) -> ValueEntry:
    """What the task of a value carries; raises TubeError if it is a set of parts."""
    entry = task.entry
    if isinstance(entry, SetEntry):
        raise TubeError(HAS_PARTS, (entry.name,))
    assert isinstance(entry, ValueEntry), "a name of another task"
    return entry


def drop_values(n: Node, t: Tubes, tube: Tube, names: list[bytes]) -> i64:
    """[T70] DROP; returns how many there were."""
    begin_change(n, t, tube)
    count: i64 = 0
    for name in names:
        task = find(n, t, tube, name)
        if task is not None:
            end_value(n, t, tube, task)
            count += 1
    return count


def add_number(n: Node, t: Tubes, tube: Tube, name: bytes, by: int, ttl_ms: i64) -> int:
    """[T70] ADD: the value is a number; returns the sum (T70.3)."""
    begin_change(n, t, tube)
    task = find(n, t, tube, name)
    if task is None:
        enter(n, t, tube, ValueEntry(name, 0), b"%d" % by, until(n, ttl_ms))
        return by
    entry = value_entry(task)
    if entry.bits & IS_FIXED != 0:
        raise TubeError(IS_FIXED_VALUE, (name,))
    total = number_in(name, task.body) + by
    if not -NUMBER_MOST - 1 <= total <= NUMBER_MOST:
        raise TubeError(LARGE_SUM, (name,))
    put_value(n, t, tube, task, ValueEntry(name, entry.bits), b"%d" % total)
    arm(n, t, task, until(n, ttl_ms))
    record_whole(n, tube, task)
    wake_waits(n, tube, name)
    return total


def number_in(name: bytes, body: bytes) -> int:
    """The number that the value is; raises TubeError."""
    digits = body[1:] if body[:1] == b"-" else body
    if len(body) > NUMBER_WORD or not digits.isdigit():
        raise TubeError(NO_NUMBER, (name,))
    total = int(body)
    if not -NUMBER_MOST - 1 <= total <= NUMBER_MOST:
        raise TubeError(NO_NUMBER, (name,))
    return total


# ---- Sets of parts (SPEC T71)


def count_part(
    n: Node, t: Tubes, tube: Tube, name: bytes, index: i64, body: bytes, size: i64, ttl_ms: i64
) -> tuple[i64, i64, bool]:
    """[T71] TALLY: parts, size, and whether this call completes the set, or did (T71.3).

    `index` NO_PART: only the size is said.
    """
    begin_change(n, t, tube)
    at_ms = until(n, ttl_ms)
    task = find(n, t, tube, name)
    if task is None:
        check_room(n, tube, 2 * (JOB_BYTES + TASK_BYTES) + len(body))
        task = enter(n, t, tube, SetEntry(name, 0, NONE), b"", at_ms)
    entry = set_entry(task)
    parts = values_of(tube).parts_of(task.number)
    if index != NO_PART and int(index) not in parts.by_index:
        enter(n, t, tube, PartEntry(task.number, index), body, until(n, 0))
    count: i64 = len(parts.by_index)
    grown, last = entry.size, entry.last
    if last == NONE:
        grown = max(grown, size)  # T71.2
        if 0 < grown <= count:
            last = index
    if grown != entry.size or last != entry.last:
        task.entry = SetEntry(name, grown, last)
    elif -SAME_END_MS < at_ms - task.qtime_ms < SAME_END_MS:
        return count, grown, last == index
    arm(n, t, task, at_ms)
    record_whole(n, tube, task)
    return count, grown, last == index


def set_entry(task: Task) -> SetEntry:
    """What the task of a set carries; raises TubeError if it is a value."""
    entry = task.entry
    if isinstance(entry, ValueEntry):
        raise TubeError(NO_PARTS, (entry.name,))
    assert isinstance(entry, SetEntry), "a name of another task"
    return entry


def parts_at(n: Node, t: Tubes, tube: Tube, name: bytes) -> Parts | None:
    """[T71] The parts of the set; None: there is none of that name (T71.4)."""
    begin_read(n, t, tube)
    task = find(n, t, tube, name)
    if task is None:
        return None
    set_entry(task)
    return values_of(tube).parts_of(task.number)


# ---- Timers (SPEC T70.4, T71.6)


def on_value_timer(n: Node, t: Tubes, tube: Tube, task: Task) -> None:
    """The time of a value or a set is over; a part goes with its set."""
    if isinstance(task.entry, PartEntry):
        arm(n, t, task, until(n, 0))
    else:
        end_value(n, t, tube, task)


def sweep(n: Node, t: Tubes) -> None:
    """[T71] TIMER: parts whose set is gone go, a few in a turn (T71.6)."""
    room = SWEEP
    for name in list(t.sweeping):
        tube = t.by_name.get(name)
        driver = None if tube is None else tube.driver
        if tube is None or not isinstance(driver, Tasks) or tube.state != RUNNING:
            del t.sweeping[name]  # it begins again when the tube runs here
            continue
        if not has_lease(n.now_ms, t, tube):
            t.sweep_ms = n.now_ms + AGAIN_MS
            continue
        orphans = driver.plans.values.orphans
        while len(orphans) > 0 and room > 0:
            task = tube.tasks.get(orphans.pop())
            room -= 1
            if task is not None and isinstance(task.entry, PartEntry):
                end_value(n, t, tube, task)
        if len(orphans) == 0:
            del t.sweeping[name]


def next_sweep_ms(n: Node, t: Tubes) -> i64:
    """When `sweep` has work next, if it has some."""
    return max(n.now_ms, t.sweep_ms)


def check_values(tube: Tube) -> None:
    """Assert that names, sets and parts agree with the tasks of the tube (for DEBUG CHECK)."""
    driver = tube.driver
    if not isinstance(driver, Tasks) or (tube.shift is not None and not tube.shift.is_in):
        return
    values = driver.plans.values
    for name, number in values.by_name.items():
        assert name_in(tube.tasks[number].entry) == name, "name of another value"
    for owner, parts in values.parts.items():
        for index, number in parts.by_index.items():
            entry = tube.tasks[number].entry
            assert isinstance(entry, PartEntry), "part that is none"
            assert (int(entry.owner), int(entry.index)) == (owner, index), "part of another set"
    found = [task for task in tube.tasks.values() if name_in(task.entry) != b""]
    found += [task for task in tube.tasks.values() if isinstance(task.entry, PartEntry)]
    assert len(found) == values.tasks == driver.apart, "tasks of values"
    assert sum([int(size_of(task)) for task in found]) == values.bytes, "bytes of values"
