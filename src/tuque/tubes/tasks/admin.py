"""Tubes are created, emptied, counted and dropped; rights and types (SPEC T2, T3, T10, T11)."""

from collections.abc import Callable
from typing import Final, final

from mypy_extensions import i64

from tuque.core.model import errors as why
from tuque.core.model import stats
from tuque.core.model.errors import LONG_OPTION, OVERRIDING
from tuque.core.model.task import BURIED, DELAYED, FAR, READY, TAKEN
from tuque.core.msgs.records import GrantRow, TubeCfg, TubeDrop
from tuque.core.node.node import Node
from tuque.core.node.peers import count_of
from tuque.core.node.tables import enter_queue, leave_queue
from tuque.core.queues.procedures import get_queue, mark_ready
from tuque.tubes.log.catalog import (
    announce,
    announce_gone,
    bury_tube,
    record_gone,
)
from tuque.tubes.log.leader import (
    lag_of,
    needs_copies,
    needs_home,
    needs_writable,
    nodes_with_copies,
    others_of,
    refusal_of,
    voters_linked,
)
from tuque.tubes.log.receive import tell_served
from tuque.tubes.log.send import record_leader
from tuque.tubes.log.vote_state import record_family
from tuque.tubes.model import options
from tuque.tubes.model.driver_guard import DriverFailed, Guarded, GuardedType, why_stopped
from tuque.tubes.model.errors import TubeError, shown
from tuque.tubes.model.grants import GRANT_BYTES, PREFIX
from tuque.tubes.model.options import MAJORITY, NO, NOT_SAID, PRI_DEFAULT, PutDone, TubeOptions
from tuque.tubes.model.tube import RUNNING, Tube
from tuque.tubes.model.tubes import Dropped, Tubes
from tuque.tubes.model.voter_state import VOTERS_LEAST, VoterState
from tuque.tubes.policies.next_task import Tasks
from tuque.tubes.tasks.operations import settle
from tuque.tubes.tasks.sessions import record_session
from tuque.tubes.types.driver import Absent, Driver
from tuque.tubes.work.transitions import (
    arm,
    clamp,
    end,
    give_back,
    record_tube,
    reserve_tokens,
    wake_waits,
)

TASKS: Final = b"tasks"  # the type whose tasks have keys
NAME_MAX: Final = 512
WORD_MAX: Final = 255
GRANTS_MAX: Final = 5_000
IDLE_STEP_MIN_MS: Final = 1_000
IDLE_STEP_MAX_MS: Final = 60_000
IDLE_DROPS: Final = 100  # in one turn

TYPE_MAX: Final = 255
NO_FAILOVER: Final = (
    "tube '%s' does not fail over, now and later: there were no voters when it was made. See "
    "CLUSTER VOTERS: three nodes need appendonly yes and tube-failover yes; then make it anew"
)


def create_tube(n: Node, t: Tubes, name: bytes, type: bytes, o: TubeOptions, user: bytes) -> Tube:
    """[T2] ON create_tube. Raises TubeError; with `if_not_exists` returns an existing tube."""
    tube = t.by_name.get(name)
    if tube is not None and o.if_not_exists:
        if tube.type != type:
            raise TubeError(why.OTHER_TYPE, (name, tube.type))
        if not tube.is_mine:
            raise refusal_of(n, t, tube)  # T17.5
        tube.idle_ms = n.now_ms
        if tube.is_implicit and not o.implicit:
            keep_tube(n, t, tube)
        return tube
    factory = may_create(n, t, name, type, o)
    tube = Tube(name, 0, n.now_ms, t.next_tube, type, factory())
    tube.is_temporary = o.temporary
    tube.is_implicit = o.implicit
    tube.ttl_ms = clamp(o.ttl_ms, tube.ttl_ms)
    tube.ttr_ms = clamp(o.ttr_ms, tube.ttl_ms)
    tube.pri = 0 if o.pri == PRI_DEFAULT else o.pri
    tube.capacity = o.capacity
    tube.storage_mode = o.storage_mode
    tube.engine = o.engine
    tube.on_task_change = o.on_task_change
    tube.home = n.node_id
    tube.maker = n.node_id
    tube.made_ns = n.now_ms * 1_000_000 + tube.number
    set_copies(n, t, tube, o)
    b = t.voter_state
    if b.leads(tube):
        tube.lease_ms = 0  # T27.8
        b.meet(tube)
    enter_tube(n, t, tube)
    if n.records is not None:
        record_tube(n.records, tube)  # T14.1
        record_leader(n.records, tube)
        record_family(n.records, tube)
        if t.token >= t.token_reserved:
            reserve_tokens(n, t)  # T5.1: no take must wait for it
    if n.others != 0:
        announce(n, t, [tube], -1)
    return tube


def may_create(n: Node, t: Tubes, name: bytes, type: bytes, o: TubeOptions) -> Callable[[], Driver]:
    """Raise TubeError if such a tube cannot be created here; returns the driver's factory."""
    if t.is_read_only:
        needs_writable(t)
    if t.in_replicaset and o.temporary:
        raise TubeError(why.TEMPORARY)
    factory = t.drivers.get(type)
    if factory is None:
        raise TubeError(why.UNKNOWN_TYPE, (type,))
    check_options(name, type, o)
    check_copies(n, t, o)
    if name in t.by_name or (is_in_use(n, name) and not is_shared(type)):
        raise TubeError(why.EXISTS, (name,))
    if len(t.by_name) >= n.limits.tubes_max:
        raise TubeError(why.TUBES_MAX, (len(t.by_name), n.limits.tubes_max))  # T2.7
    check_failover(n, t.voter_state, name, o)
    return factory


def check_copies(n: Node, t: Tubes, o: TubeOptions) -> None:
    """[T18] Raise TubeError for SYNC and FAILOVER that cannot be (T18.9, T23.6)."""
    if o.failover == NO:
        raise TubeError(why.MUST_VOTE)
    voters = t.voter_state.in_force()
    nodes = nodes_with_copies(n, None if o.temporary else voters)
    is_number = o.sync not in (NOT_SAID, MAJORITY)
    if is_number and (o.sync < 1 or o.sync > nodes):
        raise TubeError(why.BAD_SYNC, (nodes,))
    if o.temporary and (o.sync > 1 or o.sync == MAJORITY):
        raise TubeError(why.TEMPORARY_SYNC)


def check_failover(n: Node, b: VoterState, name: bytes, o: TubeOptions) -> None:
    """[T23] Raise TubeError if no vote could choose its leader (T27.8), or another one later.

    The latter is no error with ALONE (T23.8).
    """
    others = others_of(n)
    voters = b.in_force()
    if o.temporary:
        return
    if voters is not None and not voters.is_solo:
        here = count_of(voters_linked(n, voters)) + (1 if n.node_id in voters.rights else 0)
        if here < voters.majority():
            raise TubeError(why.FEW_VOTERS, (name, int(here), len(voters.rights)))
        return
    if others == 0:
        return
    if voters is not None and b.unmet & others != 0:
        raise TubeError(why.LIST_COMES, (name,))  # T27.8: they may have the name
    voting = count_of(others & b.willing) + (1 if b.is_on else 0)
    if voting < VOTERS_LEAST and not o.is_alone:
        raise TubeError(why.NO_FAILOVER, (name, int(voting), int(1 + count_of(others))))
    if voting >= VOTERS_LEAST and (others & ~b.able == 0 or not o.is_alone):
        raise TubeError(why.LIST_COMES, (name,))
    if voters is not None and n.node_id not in voters.rights:
        if voters_linked(n, voters) == 0:
            raise TubeError(why.FEW_VOTERS, (name, 0, 1))


def set_copies(n: Node, t: Tubes, tube: Tube, o: TubeOptions) -> None:
    """[T23] Which nodes must have a change, and whether votes choose the leader (T23.5)."""
    voters = t.voter_state.in_force()
    tube.led_by_votes = voters is not None and not o.temporary
    if voters is not None and not o.temporary:
        tube.family = voters.family  # T23.7
    is_alone = voters is None or voters.is_solo
    if is_alone and not o.temporary and count_of(others_of(n)) >= 2:
        t.notes.append(NO_FAILOVER % shown(tube.name))
    is_said = o.sync > 0
    tube.sync = o.sync if is_said else 1
    is_enough = voters is not None and (not is_said or o.sync >= voters.majority())
    tube.by_majority = o.sync == MAJORITY or (tube.led_by_votes and is_enough)


def check_options(name: bytes, type: bytes, o: TubeOptions) -> None:
    """Raise TubeError for an invalid name or option."""
    if len(name) == 0:
        raise TubeError(why.EMPTY_NAME)
    if len(name) > NAME_MAX:
        raise TubeError(why.LONG_NAME, (name[:32] + b"...",))
    if len(o.storage_mode) > WORD_MAX or len(o.on_task_change) > WORD_MAX:
        raise TubeError(why.LONG_OPTION)
    if type == TASKS and o.capacity > 0:
        raise TubeError(why.NO_CAPACITY, (name,))
    if o.engine not in (b"", b"memtx", b"vinyl"):
        raise TubeError(why.NO_ENGINE, (o.engine,))
    if o.engine == b"vinyl":
        if type == b"limfifottl":
            raise TubeError(why.NO_VINYL)
        if type.startswith(b"utube") and o.storage_mode == b"ready_buffer":
            raise TubeError(why.NO_VINYL_BUFFER)


def is_in_use(n: Node, name: bytes) -> bool:
    """Whether a plain queue of that name is in use (T2.3)."""
    tally = n.book.tallies.get(name)
    return tally is not None and tally.jobs > 0


def is_shared(type: bytes) -> bool:
    """[T2] Whether a tube of that type may have the name of a queue with jobs (T2.3)."""
    return type == TASKS


def enter_tube(n: Node, t: Tubes, tube: Tube) -> None:
    """Put the tube into the table of queues; clients waiting for the name wait for the tube."""
    if tube.number >= t.next_tube:
        t.next_tube = tube.number + 1
    q = n.queues.get(tube.name)
    if q is None:
        n.queue_serial += 1
        tube.serial = n.queue_serial
    else:
        leave_queue(n, q)
        tube.serial = q.serial
        tube.waiters = q.waiters
        tube.pause = q.pause
        tube.demand = q.demand
        tube.take_over(q)  # T1.8
    tube.policy = t
    enter_queue(n, tube)
    t.by_name[tube.name] = tube
    if tube.is_implicit:
        watch_idle(n, t)
    n.ids.add_tube(tube.name)
    n.keys.of_tubes[tube.name] = {}
    t.charge(tube, tube.bytes_used())


def truncate(n: Node, t: Tubes, tube: Tube) -> i64:
    """[T5] ON truncate: remove every task, whoever holds it. Returns how many."""
    needs_copies(n, t, tube)
    return clear(n, t, tube)


def clear(n: Node, t: Tubes, tube: Tube) -> i64:
    """Remove every task that is here."""
    count: i64 = 0
    for task in list(tube.tasks.values()):
        tube.calls.truncated += 1
        if n.events is not None:
            n.events.deleted(n.now_ms, task, stats.ADMIN_DELETED, n.returned(task.id))
        end(n, t, tube, task, stats.ADMIN_DELETED, options.TRUNCATE)
        count += 1
    return count


def release_all(n: Node, t: Tubes, tube: Tube) -> i64:
    """[T5] ON release_all: make every TAKEN task READY, whoever holds it."""
    needs_copies(n, t, tube)
    settle(n, t)
    count: i64 = 0
    for task in list(tube.tasks.values()):
        if task.status == TAKEN:
            give_back(n, t, tube, task)
            count += 1
    return count


def drop(n: Node, t: Tubes, tube: Tube) -> None:
    """[T2] ON drop: remove the tube and its tasks. Refused while a client waits or holds a task."""
    may_drop(n, t, tube)
    remove_tube(n, t, tube)


def may_drop(n: Node, t: Tubes, tube: Tube) -> None:
    """Raise TubeError if the tube cannot be dropped now."""
    if t.by_name.get(tube.name) is not tube:
        raise TubeError(why.NO_TUBE)
    needs_home(n, t, tube)
    if len(tube.waiters) > 0:
        raise TubeError(why.CONSUMERS)
    if tube.taken > 0:
        raise TubeError(why.TAKEN_TASKS)


def remove_tube(n: Node, t: Tubes, tube: Tube) -> None:
    """Remove the tube and its tasks; clients that wait for it now wait for a plain queue."""
    while len(tube.putters) > 0:
        putter = tube.putters.popleft()
        if not putter.is_over:
            t.end_put(tube, putter)
            t.put_done.append(PutDone(putter.client, putter.serial, None))
    clear(n, t, tube)
    gone = Dropped(tube.maker, tube.made_ns, tube.epoch)
    leave_tube(n, t, tube)
    bury_tube(t, tube.name, gone)
    if n.others != 0:
        announce_gone(n, t, tube.name, gone, -1)  # T17.6
    if n.records is not None:
        n.records.put(TubeDrop(tube.name))
        record_gone(n.records, tube.name, gone)


def leave_tube(n: Node, t: Tubes, tube: Tube) -> None:
    """Remove the tube from the tables; its tasks are gone already."""
    forget_rights(t, tube.name)
    del t.by_name[tube.name]
    wake_waits(n, tube, b"")  # T72.2
    n.ids.drop_tube(tube.name)
    n.keys.of_tubes.pop(tube.name, None)
    t.charge(tube, -tube.bytes_used())
    leave_queue(n, tube)
    tube.policy = None
    if len(tube.waiters) > 0 or tube.plain > 0 or tube.pause != 0:
        q = get_queue(n, tube.name)
        q.waiters = tube.waiters
        q.pause = tube.pause
        for job in tube.strays():
            q.push(job)


# ---- Tubes that an enqueue made (SPEC T2.9)


def keep_tube(n: Node, t: Tubes, tube: Tube) -> None:
    """[T2] Somebody wants the tube: it is as one that was made by hand (T2.9)."""
    tube.is_implicit = False
    if n.records is not None:
        record_tube(n.records, tube)
    if n.others != 0:
        announce(n, t, [tube], -1)


def watch_idle(n: Node, t: Tubes) -> None:
    """There is such a tube: look at it after a while."""
    if t.idle_at_ms == 0:
        step_ms = max(IDLE_STEP_MIN_MS, min(IDLE_STEP_MAX_MS, n.limits.tube_idle_ms // 16))
        t.idle_at_ms = n.now_ms + step_ms


def idle_tick(n: Node, t: Tubes) -> None:
    """[T2] TIMER: what an enqueue made goes when it was idle for `tube-idle-time` (T2.9)."""
    if t.idle_at_ms == 0 or n.now_ms < t.idle_at_ms or n.is_loading:
        return
    t.idle_at_ms = 0
    gone: i64 = 0
    for tube in list(t.by_name.values()):
        if not tube.is_implicit:
            continue
        watch_idle(n, t)
        if tube.idle_seq != tube.change_seq or is_needed(n, t, tube):
            tube.idle_ms, tube.idle_seq = n.now_ms, tube.change_seq
        elif 0 < n.limits.tube_idle_ms <= n.now_ms - tube.idle_ms and gone < IDLE_DROPS:
            gone += 1
            drop_idle(n, t, tube)


def is_needed(n: Node, t: Tubes, tube: Tube) -> bool:
    """Whether anything is left of the tube here, or anybody waits for it or has set it up."""
    if not tube.is_mine or tube.state != RUNNING or tube.move is not None:
        return True
    if len(tube.tasks) + len(tube.waiters) + tube.waiting_puts + tube.plain + tube.drops > 0:
        return True
    if tube.subscribers + tube.pause + len(tube.on_task_change) > 0:
        return True
    if len(n.keys.of_tubes[tube.name]) > 0 or tube.name in n.life.ended_in:
        return True
    if tube.name in n.topics.by_queue or len(t.rights.listing(tube.name)) > 0:
        return True
    return isinstance(tube.driver, Tasks) and tube.driver.keys() > 0


def drop_idle(n: Node, t: Tubes, tube: Tube) -> None:
    """[T2] Drop it as a command would, if this node may (T2.9)."""
    try:
        drop(n, t, tube)
    except TubeError:
        return
    idle_s = (n.now_ms - tube.idle_ms) // 1000
    t.news.append(f"tube {shown(tube.name)}: dropped, an enqueue made it, idle for {idle_s} s")


def has_status(tube: Tube, status: i64) -> bool:
    """Whether any task of the tube has that status."""
    if status == READY:
        return tube.ready_count() > 0
    if status == TAKEN:
        return tube.taken > 0
    return tube.delayed > 0 if status == DELAYED else tube.buried > 0


def statistics(t: Tubes, tube: Tube) -> dict[str, dict[str, int]]:
    """[T11] Number of tasks by status, and counters since the start."""
    calls = tube.calls
    counts = {
        "ack": int(calls.ack),
        "bury": int(calls.bury),
        "delete": int(calls.delete),
        "kick": int(calls.kick),
        "put": int(calls.put),
        "release": int(calls.release),
        "take": int(calls.take),
        "touch": int(calls.touch),
        "ttl": int(calls.ttl),
        "ttr": int(calls.ttr),
        "delay": int(calls.delay),
    }
    if tube.type == b"utubettl":
        counts["delayed"] = int(calls.delay)
    tasks = {
        "taken": int(tube.taken),
        "ready": int(tube.ready_count()),
        "buried": int(tube.buried),
        "delayed": int(tube.delayed_count()),
        "done": int(calls.done),
        "total": len(tube.tasks),
    }
    return {"tasks": tasks, "calls": counts}


def cfg(n: Node, t: Tubes, ttr_ms: i64 | None, in_replicaset: bool | None) -> None:
    """[T10] ON cfg; None keeps a setting. Raises TubeError."""
    if ttr_ms is not None and ttr_ms < 0:
        raise TubeError(why.BAD_TTR, (ttr_ms // 1000,))
    if ttr_ms is not None:
        t.ttr_ms = clamp(ttr_ms, 0)
    if in_replicaset is not None:
        for tube in t.by_name.values():
            if tube.is_temporary and in_replicaset:
                in_replicaset = False
                break
        t.in_replicaset = in_replicaset
    if n.records is not None:
        n.records.put(TubeCfg(t.ttr_ms, t.in_replicaset, t.token_reserved))
        if in_replicaset:
            for session in t.sessions.values():
                record_session(n, t, session, False)


def grant(n: Node, t: Tubes, holder: bytes, tube: Tube, bits: i64, prefix: bytes = PREFIX) -> None:
    """[T10] Let the holder call functions of the tube (T10.3). Raises TubeError."""
    if b"." in tube.name or b":" in tube.name:
        raise TubeError(why.DOTTED, (tube.name,))
    if len(prefix) > WORD_MAX:
        raise TubeError(why.LONG_OPTION)
    before = t.rights.bits(holder, tube.name, prefix)
    if before == 0 and t.rights.count >= GRANTS_MAX:
        raise TubeError(why.MANY_GRANTS, (GRANTS_MAX,))  # T10.5
    set_rights(n, t, holder, tube.name, prefix, bits | before)


def revoke(n: Node, t: Tubes, holder: bytes, tube: Tube, bits: i64, prefix: bytes | None) -> i64:
    """[T10] Revoke these rights, under that prefix or any (T10.4). Returns the grants changed."""
    count: i64 = 0
    for one in t.rights.listing(tube.name):
        if one.holder != holder or (prefix is not None and one.prefix != prefix):
            continue
        if one.bits & bits != 0:
            set_rights(n, t, holder, tube.name, one.prefix, one.bits & ~bits)
            count += 1
    return count


def set_rights(n: Node, t: Tubes, holder: bytes, tube: bytes, prefix: bytes, bits: i64) -> None:
    """Set exactly these rights of the holder on the tube under the prefix, and record them."""
    if bits == t.rights.bits(holder, tube, prefix):
        return
    keep_rights(t, holder, tube, prefix, bits)
    if n.records is not None:
        n.records.put(GrantRow(bits, tube, prefix, holder))


def keep_rights(t: Tubes, holder: bytes, tube: bytes, prefix: bytes, bits: i64) -> None:
    """Update the table of rights and count its bytes."""
    before = t.rights.count
    t.rights.set(holder, tube, prefix, bits)
    t.bytes_used += GRANT_BYTES * (t.rights.count - before)


def forget_rights(t: Tubes, tube: bytes) -> None:
    """Remove the grants of a dropped tube (T10.4); the record of the drop covers them."""
    for one in t.rights.listing(tube):
        keep_rights(t, one.holder, tube, one.prefix, 0)


def status_of(word: bytes) -> i64:
    """The status of that name, 0 if there is none."""
    if word == b"READY":
        return READY
    if word == b"TAKEN":
        return TAKEN
    if word == b"DELAYED":
        return DELAYED
    return BURIED if word == b"BURIED" else 0


@final
class KeyTotals:
    """Keys of the tasks of tubes that this node leads (T40)."""

    def __init__(self) -> None:
        self.known: i64 = 0
        self.waited: i64 = 0  # limits and rates that tasks wait for
        self.wait_ms: i64 = 0  # the longest such wait, without a break
        self.unique: i64 = 0

    def add(self, driver: Tasks, now_ms: i64) -> None:
        """Those of one tube."""
        self.known += driver.keys() - int(b"" in driver.groups)
        self.waited += len(driver.full_limits) + len(driver.full_rates)
        self.unique += len(driver.uniques.claims)
        wait_ms = driver.longest_ms(now_ms)
        if wait_ms > self.wait_ms:
            self.wait_ms = wait_ms


@final
class Totals:
    """Sums over all tubes."""

    def __init__(self) -> None:
        self.tasks: i64 = 0
        self.ready: i64 = 0
        self.taken: i64 = 0
        self.delayed: i64 = 0
        self.buried: i64 = 0
        self.schedules: i64 = 0
        self.groups: i64 = 0
        self.values: i64 = 0  # with sets of parts, and parts
        self.values_bytes: i64 = 0
        self.keys = KeyTotals()
        self.waiting_takes: i64 = 0
        self.waiting_puts: i64 = 0
        self.subscribers: i64 = 0
        self.running: i64 = 0
        self.stopped: i64 = 0
        self.copies: i64 = 0
        self.lag: i64 = 0  # the maximum of all followers
        self.incomplete: i64 = 0  # led here; a follower has not all of it yet


def totals_of(n: Node, t: Tubes) -> Totals:
    """[T11] Visit every tube once (T11.5)."""
    found = Totals()
    for tube in t.by_name.values():
        found.tasks += len(tube.tasks)
        found.ready += tube.ready_count()
        found.taken += tube.taken
        found.delayed += tube.delayed_count()
        found.buried += tube.buried
        found.waiting_takes += len(tube.waiters)
        found.waiting_puts += tube.waiting_puts
        found.subscribers += tube.subscribers
        found.copies += len(tube.copies)
        if not tube.is_mine:
            continue
        if tube.state == RUNNING:
            found.running += 1
        if isinstance(tube.driver, Tasks):
            found.schedules += len(tube.driver.plans.by_name)
            found.groups += len(tube.driver.plans.members.open)
            found.values += tube.driver.apart
            found.values_bytes += tube.driver.plans.values.bytes
            found.keys.add(tube.driver, n.now_ms)
        if len(why_stopped(tube.type, tube.driver)) > 0:
            found.stopped += 1
        if n.others != 0 and not tube.is_temporary:
            is_complete = True
            for _, lag, has_all in lag_of(n, t, tube):
                if lag > found.lag:
                    found.lag = lag
                is_complete = is_complete and has_all
            if not is_complete:
                found.incomplete += 1
    return found


# ---- The types of tubes known to this node, and new ones at run time (SPEC T3.5, T3.6)
#
# What a driver decides is in types/driver.py; where it comes from, the shell's.


def register_driver(n: Node, t: Tubes, name: bytes, factory: Callable[[], Driver]) -> None:
    """[T3] Register a type of tube; `factory()` makes its drivers (T3.6).

    Tubes waiting for the type are served. Raises TubeError, or DriverFailed with the driver's
    error; then nothing has changed.
    """
    if name in t.drivers:
        raise TubeError(OVERRIDING, (name,))
    if len(name) == 0 or len(name) > TYPE_MAX:
        raise TubeError(LONG_OPTION)
    waiting: list[Tube] = []
    for tube in t.by_name.values():
        if tube.type == name and isinstance(tube.driver, Absent):
            waiting.append(tube)
    noted = len(t.notes)
    error = Guarded(t, name, factory).error  # a trial: can it be made at all?
    if error is None:
        error = serve_waiting(t, name, factory, waiting)
    if error is not None:
        del t.notes[noted:]  # the caller gets the error
        raise error if isinstance(error, TubeError) else DriverFailed(error)
    t.drivers[name] = GuardedType(t, name, factory)  # T3.8
    for tube in waiting:
        begin(n, t, tube)


def serve_waiting(
    t: Tubes, name: bytes, factory: Callable[[], Driver], waiting: list[Tube]
) -> BaseException | None:
    """Give each of the tubes its driver, or after an error none of them."""
    for tube in waiting:
        driver = Guarded(t, name, factory)
        replace_driver(t, tube, driver)
        if driver.error is not None:
            for late in waiting:
                replace_driver(t, late, Absent())
            return driver.error
    return None


def replace_driver(t: Tubes, tube: Tube, driver: Driver) -> None:
    """Install the driver and enter the tube's tasks, as after a start."""
    is_out = tube.shift is not None and not tube.shift.is_in  # T19.6
    for task in tube.tasks.values():
        if is_out:
            continue
        if task.status == READY:
            driver.enter(task)
        elif task.status == TAKEN:
            driver.held(task)
    t.charge(tube, driver.bytes_used - tube.driver.bytes_used)
    tube.driver = driver


def begin(n: Node, t: Tubes, tube: Tube) -> None:
    """Deliver tasks from now on, first to waiting clients."""
    if not tube.driver.is_timed:
        for task in tube.tasks.values():
            task.dead_ms = FAR
            arm(n, t, task, task.qtime_ms)
    if tube.length > 0 and len(tube.waiters) > 0:
        mark_ready(n, tube)
    tell_served(n, tube)
