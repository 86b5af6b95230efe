"""Operations on tasks: put, take, touch, ack, release, peek, bury, kick; keys (SPEC T5, T40, T44).

Every function may raise TubeError; nothing was done then. `client` is the number of a
connection: its session is created when first needed (T8). A returned task is the live one; after
ack and delete it is in no table and its status is DONE.

A take that finds nothing may wait: `wait` adds the client to those that wait in GETJOB; the shell
gets a Wake with the task, or with the reason why there is none.
"""

from heapq import heapify, heappop, heappush
from typing import Final

from mypy_extensions import i64

from tuque.core.model import stats
from tuque.core.model.errors import (
    DUPLICATE,
    IS_KEY,
    IS_MEMBER,
    IS_SCHEDULE,
    IS_VALUE,
    NO_KEYS,
    NO_TOUCH,
    NOT_FOUND,
    NOT_TAKEN,
    PAUSED,
    TUBE_KEYS_FULL,
    Refusal,
)
from tuque.core.model.job import AddSpec, awake_ms
from tuque.core.model.stats import BY_NACK
from tuque.core.model.task import BURIED, BYTES, DELAYED, FAR, MAX_MS, READY, TAKEN, Task, retry_of
from tuque.core.model.timers import TURN_WORK
from tuque.core.node.node import Node
from tuque.core.node.queue import PAUSE_IN, PAUSE_OUT
from tuque.core.node.tables import put_body
from tuque.core.queues import deliver
from tuque.core.queues.procedures import mark_ready
from tuque.tubes.entries.group import (
    ChildEntry,
    GroupEntry,
    is_of_group,
)
from tuque.tubes.entries.keys import (
    UNTIL_START,
    has_unique,
    keys_of,
    unique_of,
    unpack,
)
from tuque.tubes.entries.schedule import HoldEntry, ScheduleEntry
from tuque.tubes.entries.value import OfValue, name_in
from tuque.tubes.log.leader import needs_copies, needs_home
from tuque.tubes.model import options
from tuque.tubes.model.errors import TubeError
from tuque.tubes.model.options import PutSpec, Putter
from tuque.tubes.model.tube import RUNNING, Tube
from tuque.tubes.model.tubes import (
    PUT_BYTES,
    PUT_ENDS_STALE,
    Tubes,
)
from tuque.tubes.policies.next_task import Tasks
from tuque.tubes.tasks.sessions import session_for
from tuque.tubes.tasks.timers import on_task_timer
from tuque.tubes.work import dead_letters
from tuque.tubes.work.dead_letters import remove_task, run_out, set_aside
from tuque.tubes.work.transitions import (
    arm,
    change,
    clamp,
    end,
    ends_cancelled,
    expire,
    hand_out,
    insert,
    is_forgiven,
    make_ready,
    record,
    record_back,
    record_update,
    tell,
)

PASSED_MAX: Final = 1_000  # dead letters that a kick passes by

KEYS_MAX: Final = 1_000_000  # of one tube


def settle(n: Node, t: Tubes) -> None:
    """End tasks that were over when set: with a ttl or ttr of 0."""
    while len(t.overdue) > 0:
        overdue = t.overdue
        t.overdue = []
        for task in overdue:
            tube = t.by_name.get(task.queue)
            if tube is not None and tube.tasks.get(task.number) is task:
                if tube.state == RUNNING:  # else its timer fires (T19.6)
                    on_task_timer(n, t, tube, task)


def put(
    n: Node, t: Tubes, tube: Tube, body: bytes, form: i64, spec: PutSpec, client: i64, serial: i64
) -> Task | None:
    """[T5] ON put. None: the tube is full (T7).

    With `spec.timeout_ms` > 0 the reply then comes in `t.put_done`, with client and serial.
    """
    needs_copies(n, t, tube)
    settle(n, t)
    if tube.pause & PAUSE_IN or tube.drops > 0:
        raise TubeError(PAUSED)
    if not tube.is_full():
        return insert(n, t, tube, body, form, spec)
    if spec.timeout_ms > 0:
        timeout_ms = clamp(spec.timeout_ms, 0)
        putter = Putter(body, form, spec, client, serial, n.now_ms + timeout_ms)
        tube.putters.append(putter)
        tube.waiting_puts += 1
        t.count_put(client, PUT_BYTES + len(body))
        t.put_serial += 1
        heappush(t.put_ends, (putter.until_ms, t.put_serial, putter, tube))
        if len(t.put_ends) > t.put_ends_most:
            drop_put_ends(t)
    return None


def drop_put_ends(t: Tubes) -> None:
    """Drop stale ends of waiting puts that found room: they may be far ahead."""
    t.put_ends = [entry for entry in t.put_ends if not entry[2].is_over]
    heapify(t.put_ends)
    t.put_ends_most = 2 * len(t.put_ends) + PUT_ENDS_STALE


def take(n: Node, t: Tubes, tube: Tube, client: i64) -> Task | None:
    """[T5] ON take: the first task that may be taken, or None.

    Waiting clients are served first (T9.1).
    """
    needs_home(n, t, tube)
    settle(n, t)
    if tube.is_ready:
        hand_over(n, tube)
    if tube.pause & PAUSE_OUT or tube.drops > 0:
        return None
    return take_first(n, t, tube, client, session_for(n, t, client).number)


def take_first(n: Node, t: Tubes, tube: Tube, client: i64, owner: i64) -> Task | None:
    """Take the driver's first task, never an expired one (T6.1)."""
    driver = tube.driver
    driver.now_ms = n.now_ms
    task = first_of(t, tube)
    while task is not None and task.dead_ms <= n.now_ms:
        if n.passed >= TURN_WORK:
            n.looks_later[tube.name] = None  # V2.3
            return None
        n.passed += 1
        run_out(n, t, tube, task)
        task = first_of(t, tube)
    if task is not None:
        hand_out(n, t, tube, task, client, owner)
    elif driver.alarm_ms < tube.alarm_ms:
        t.watch(tube)
    return task


def first_of(t: Tubes, tube: Tube) -> Task | None:
    """The driver's first task; to find it, lanes that may go no longer wait again (T41.4)."""
    driver = tube.driver
    used = driver.bytes_used
    task = driver.first()
    t.charge(tube, driver.bytes_used - used)
    return task


def keys_loaded(t: Tubes, tube: Tube) -> None:
    """[T41, T42] All tasks of the tube are in: what their keys mean is known."""
    driver = tube.driver
    if isinstance(driver, Tasks):
        used = driver.bytes_used
        driver.loaded()
        t.charge(tube, driver.bytes_used - used)
        if len(driver.plans.values.orphans) > 0:
            t.sweeping[tube.name] = None  # T71.6


def keys_tick(n: Node, t: Tubes) -> None:
    """[T42] TIMER: tokens have come, and lanes that waited for them may go (T42.3)."""
    room = TURN_WORK
    while room > 0 and len(t.alarms) > 0 and t.alarms[0][0] <= n.now_ms:
        tube = t.by_name.get(heappop(t.alarms)[1])
        if tube is None or tube.alarm_ms > n.now_ms:
            continue
        tube.alarm_ms = FAR
        driver = tube.driver
        if driver.has_keys:
            assert isinstance(driver, Tasks)
            used = driver.bytes_used
            driver.now_ms = n.now_ms
            room = driver.wake(room)
            t.charge(tube, driver.bytes_used - used)
            t.watch(tube)
        if tube.length > 0 and len(tube.waiters) > 0:
            mark_ready(n, tube)


def wait(n: Node, t: Tubes, tube: Tube, client: i64, until_ms: i64, number: i64 = -1) -> None:
    """Let the client wait for a task of its session (0: for ever); a Wake ends it.

    `number` identifies the wait if the connection has several.
    """
    waiting = client if number < 0 else number
    deliver.wait(n, waiting, [tube.name], 1, False, until_ms, client)


def hand_over(n: Node, tube: Tube) -> None:
    """Serve clients that wait for the tube while it has tasks for them (T9.1)."""
    while tube.length > 0 and len(tube.waiters) > 0 and tube.pause & PAUSE_OUT == 0:
        client: i64 = -1
        for first in tube.waiters:
            client = first
            break
        if not deliver.serve(n, n.waiters[client]):
            return


def find(n: Node, t: Tubes, tube: Tube, number: i64) -> Task | None:
    """The task of that number; changes that are due for it are made first."""
    settle(n, t)
    task = tube.tasks.get(number)
    if task is not None and awake_ms(task) <= n.now_ms:
        on_task_timer(n, t, tube, task)
        task = tube.tasks.get(number)
    return task


def need(n: Node, t: Tubes, tube: Tube, number: i64) -> Task:
    """The task of that number, whatever its status."""
    task = find(n, t, tube, number)
    if task is None:
        raise TubeError(NOT_FOUND, (number,))
    return task


def own(n: Node, t: Tubes, tube: Tube, client: i64, number: i64, token: i64) -> Task:
    """The task if the client's session holds it, by that take (T8.4); 0: by any."""
    task = find(n, t, tube, number)
    session = session_for(n, t, client)
    if task is None or task.status != TAKEN or task.owner != session.number:
        raise TubeError(NOT_TAKEN)
    if token != 0 and task.token != token:
        raise TubeError(NOT_TAKEN)
    return task


def touch(
    n: Node, t: Tubes, tube: Tube, client: i64, number: i64, increment_ms: i64, token: i64 = 0
) -> Task | None:
    """[T5] ON touch: extend the task's times. None: no change, the increment was not above 0."""
    needs_copies(n, t, tube)
    if increment_ms <= 0:
        return None
    task = own(n, t, tube, client, number, token)
    tube.calls.touch += 1
    if not tube.driver.is_timed:
        raise TubeError(NO_TOUCH, (tube.type,))
    increment_ms = clamp(increment_ms, 0)
    task.ttl_ms = longer(task.ttl_ms, increment_ms)
    task.dead_ms = task.created_ms + task.ttl_ms
    task.ttr_ms = longer(task.ttr_ms, increment_ms)
    task.retry_s = retry_of(task.ttr_ms, n.limits.default_retry_max_s)
    arm(n, t, task, task.qtime_ms + increment_ms)
    record(n, tube, task)
    tell(n, t, tube, task, options.TOUCH)
    return task


def longer(time_ms: i64, increment_ms: i64) -> i64:
    """The extended time, at most about 100 years."""
    time_ms += increment_ms
    if time_ms > 2 * MAX_MS:
        return 2 * MAX_MS
    return time_ms


def ack(n: Node, t: Tubes, tube: Tube, client: i64, number: i64, token: i64 = 0) -> Task:
    """[T5] ON ack: end the task."""
    needs_copies(n, t, tube)
    task = own(n, t, tube, client, number, token)
    finish(n, t, tube, task)
    return task


def finish(n: Node, t: Tubes, tube: Tube, task: Task) -> None:
    """End the task."""
    tube.calls.ack += 1
    tube.calls.done += 1
    n.book.ack(task, n.now_ms)
    if n.events is not None:
        n.record_done(task, n.life.done_run)
        n.events.acked(n.now_ms, task, n.returned(task.id))
    end(n, t, tube, task, stats.GC_ACKED, options.ACK)


def release(
    n: Node, t: Tubes, tube: Tube, client: i64, number: i64, delay_ms: i64, token: i64 = 0
) -> Task:
    """[T5] ON release: READY at its old place, or after the delay."""
    needs_copies(n, t, tube)
    task = own(n, t, tube, client, number, token)
    give_up(n, t, tube, task, delay_ms)
    return task


def give_up(n: Node, t: Tubes, tube: Tube, task: Task, delay_ms: i64) -> None:
    """Release the task from its holder."""
    if ends_cancelled(n, t, tube, task):
        return
    tube.calls.release += 1
    task.nacks += 1
    n.nacks += 1
    is_whole = tube.driver.has_keys and is_forgiven(n, task)
    if delay_ms > 0 and tube.driver.is_timed:
        delay_ms = clamp(delay_ms, 0)
        task.ttl_ms = longer(task.ttl_ms, delay_ms)
        task.dead_ms = task.created_ms + task.ttl_ms
        change(n, t, tube, task, DELAYED)
        arm(n, t, task, n.now_ms + delay_ms)
        record_back(n, tube, task, is_whole)
        tell(n, t, tube, task, options.RELEASE)
    else:
        make_ready(n, t, tube, task, options.RELEASE, is_whole)
    n.book.requeue(task, BY_NACK)
    if n.events is not None:
        n.events.nacked(n.now_ms, task)


def peek(n: Node, t: Tubes, tube: Tube, number: i64) -> Task:
    """[T5] ON peek: nothing changes."""
    needs_home(n, t, tube)
    return need(n, t, tube, number)


def bury(n: Node, t: Tubes, tube: Tube, number: i64, token: i64 = 0) -> Task:
    """[T5] ON bury: set aside until kick, whoever holds it; with a token only by that take."""
    needs_copies(n, t, tube)
    task = need(n, t, tube, number)
    if token != 0 and (task.status != TAKEN or task.token != token):
        raise TubeError(NOT_TAKEN)
    if task.status == BURIED:
        return task
    if tube.driver.has_keys and isinstance(task.entry, ScheduleEntry):
        raise TubeError(IS_SCHEDULE, (number,))  # T45.8
    if tube.driver.has_keys and is_of_group(task):
        raise TubeError(IS_MEMBER, (number,))  # T50.9
    if tube.driver.has_keys and isinstance(task.entry, HoldEntry):
        raise TubeError(IS_KEY, (number,))  # T44.8
    if tube.driver.has_keys and isinstance(task.entry, OfValue):
        raise TubeError(IS_VALUE, (number,))  # T70.8
    if ends_cancelled(n, t, tube, task):
        return task
    if tube.driver.has_keys:
        set_aside(n, t, tube, task)  # T48.8
        return task
    lay_aside(n, t, tube, task)
    return task


def lay_aside(n: Node, t: Tubes, tube: Tube, task: Task) -> None:
    """The task of a tube without dead letters is BURIED."""
    change(n, t, tube, task, BURIED)
    arm(n, t, task, 0)
    tube.calls.bury += 1
    record(n, tube, task)
    tell(n, t, tube, task, options.BURY)


def kick(n: Node, t: Tubes, tube: Tube, count: i64) -> i64:
    """[T5] ON kick: make up to `count` buried tasks READY, by (pri, number)."""
    needs_copies(n, t, tube)
    settle(n, t)
    done: i64 = 0
    passed: list[Task] = []  # by: another task has their unique key
    graves = tube.graves
    while done < count and len(passed) < PASSED_MAX:
        task = graves.first()
        if task is None:
            break
        if task.dead_ms <= n.now_ms:
            expire(n, t, tube, task)
            n.work += 1
        elif unbury(n, t, tube, task):
            done += 1
        else:
            graves.remove(task)
            passed.append(task)
    for one in passed:
        graves.add(one)
    n.work += len(passed)
    return done


def unbury(n: Node, t: Tubes, tube: Tube, task: Task) -> bool:
    """Make a buried task READY; False: another task has its unique key."""
    if tube.driver.has_keys:
        return dead_letters.kick(n, task)  # T48.13
    tube.calls.kick += 1
    make_ready(n, t, tube, task, options.KICK)
    return True


def delete(n: Node, t: Tubes, tube: Tube, number: i64) -> Task:
    """[T5] ON delete: remove the task, whoever holds it."""
    needs_copies(n, t, tube)
    task = need(n, t, tube, number)
    remove_task(n, t, tube, task)
    return task


def may_finish(t: Tubes, task: Task, client: i64) -> bool:
    """Whether the client's ACKJOB, NACK or WORKING refers to this take (T1.4)."""
    if task.status != TAKEN:
        return False
    if task.owner == 0:
        return True
    session = t.by_client.get(client)
    return session is not None and session.number == task.owner


def work_on(n: Node, t: Tubes, tube: Tube, task: Task) -> None:
    """WORKING: restart the time to work on the task, never shortening it (T1.4)."""
    ttr_ms = task.ttr_ms
    if ttr_ms >= MAX_MS:
        ttr_ms = n.limits.default_retry_max_s * 1000
    at_ms = n.now_ms + ttr_ms
    if tube.driver.ends_taken and task.dead_ms != FAR and task.dead_ms < at_ms:
        at_ms = task.dead_ms
    if task.qtime_ms != 0 and at_ms > task.qtime_ms:
        arm(n, t, task, at_ms)
        record(n, tube, task)
    tube.calls.touch += 1
    tell(n, t, tube, task, options.TOUCH)


# ---- A put with keys: the owner of its unique key, and room for more keys (SPEC T40, T44)


def same_task(n: Node, tube: Tube, packed: bytes) -> Task | None:
    """[T44] The task that has the unique key now, or keeps it (T44.3); None: it is free, or there
    is none (T44.4).
    """
    driver = tube.driver
    if len(packed) == 0 or not isinstance(driver, Tasks):
        return None
    if not has_unique(packed):
        return None
    number: i64 = driver.uniques.holder(unique_of(packed), n.now_ms)
    return tube.tasks.get(number) if number >= 0 else None


def first_id(task: Task) -> bytes:
    """[T44] The id of the job that has the key, or had it (T44.3, T44.4)."""
    entry = task.entry
    return entry.id if isinstance(entry, HoldEntry) else task.id


def job_of(task: Task) -> Task:
    """[T44] That job for a reply: one that has ended is in no table."""
    entry = task.entry
    if not isinstance(entry, HoldEntry):
        return task
    return Task(entry.id, task.queue, b"", task.ctime_ns, task.number, 0, BYTES)


def keys_refusal(tube: Tube, spec: AddSpec, same: Task | None) -> Refusal | None:
    """[T40] Why the tube refuses the keys of an ADDJOB (T40.5); None: it does not."""
    driver = tube.driver
    if not isinstance(driver, Tasks):
        return Refusal(NO_KEYS)
    if same is not None:
        is_refused = spec.rejects_same or (spec.replaces_same and not is_waiting(same))
        return Refusal(DUPLICATE, (first_id(same),)) if is_refused else None  # T44.5, T44.7
    if driver.keys() >= KEYS_MAX:
        return Refusal(TUBE_KEYS_FULL, (tube.name, KEYS_MAX))  # T40.6
    return None


def held_count(tube: Tube) -> i64:
    """[T1] How many jobs of schedules are READY once they have their copies (T1.1, T45.4)."""
    driver = tube.driver
    return len(driver.plans.held) if isinstance(driver, Tasks) else 0


def is_waiting(task: Task) -> bool:
    """Whether nobody has the task: it may get another body (T44.7)."""
    keeps = isinstance(task.entry, HoldEntry | OfValue)
    return not keeps and (task.status == READY or task.status == DELAYED)


def replace_body(n: Node, t: Tubes, tube: Tube, task: Task, body: bytes) -> None:
    """[T44] The task that has the unique key gets this body, and stays what it was (T44.7)."""
    if task.body != body:
        put_body(n, task, body)
        record_update(n, t, tube, task)


def shown_keys(tube: Tube, task: Task) -> dict[str, object] | None:
    """[T40] The keys of the task for SHOW (T40.7); None: its tube has none."""
    if not tube.driver.has_keys:
        return None
    entry = task.entry
    if isinstance(entry, ScheduleEntry):
        return {"schedule": entry.name}  # T45.8
    if isinstance(entry, GroupEntry):
        return {"children": int(entry.size)}  # T50.9
    if isinstance(entry, ChildEntry):
        return {"child": entry.id}
    if isinstance(entry, OfValue):  # T70.8
        return {"value": name_in(entry)}
    if isinstance(entry, HoldEntry):  # T44.8
        return {"unique": entry.key, "until-ms": int(task.qtime_ms), "key-of": entry.id}
    keys = unpack(keys_of(task))
    found: dict[str, object] = {}
    if len(keys.unique) > 0:
        found["unique"] = keys.unique
        found["until"] = until_word(keys.until_ms)
        if keys.until_ms > 0:
            found["until-ms"] = int(task.created_ms + keys.until_ms)
    if len(keys.limit) > 0:
        found["limit"] = keys.limit
        found["places"] = int(keys.places)
    if len(keys.rate) > 0:
        found["rate"] = keys.rate
        found["token-us"] = int(keys.gap_ns // 1000)
        found["burst"] = int(keys.burst)
    if len(keys.group) > 0:
        found["group"] = keys.group
        found["weight"] = int(keys.weight)
    return found


def until_word(until_ms: i64) -> bytes:
    """Until when a task has its unique key, as ADDJOB says it."""
    if until_ms <= 0:
        return b"start" if until_ms == UNTIL_START else b"done"
    ms = until_ms % 1000
    return b"%d" % (until_ms // 1000) + (b".%03d" % ms).rstrip(b"0") * (1 if ms > 0 else 0)


def check_unique(tube: Tube) -> None:
    """Assert that each unique key has a task of the tube, which names it (T44.1)."""
    driver = tube.driver
    if not isinstance(driver, Tasks) or (tube.shift is not None and not tube.shift.is_in):
        return
    for key, claim in driver.uniques.claims.items():
        task = tube.tasks.get(claim.number)
        assert task is not None, "unique key of a task that is gone"
        entry = task.entry
        named = entry.key if isinstance(entry, HoldEntry) else unique_of(keys_of(task))
        assert named == key, "unique key of another task"
