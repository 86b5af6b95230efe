"""Tubes, tasks, sessions and leaders come back from the journal, and go into it (SPEC T14, T22).

A tube led by this node runs at once if there is no other node; else it waits for the catalogs of
the others (T19.4), with its tasks as copies until then.
"""

from heapq import heappush
from typing import Final, final

from mypy_extensions import i32, i64, u8

from tuque.core.model import stats
from tuque.core.model.job import DELIVERED, Job
from tuque.core.model.task import BURIED, DELAYED, READY, TAKEN, Task, retry_of, state_of
from tuque.core.model.timers import NEVER_MS
from tuque.core.msgs.records import (
    KINDS,
    GrantRow,
    Row,
    SessionRow,
    TubeCfg,
    TubeDrop,
    TubeHolder,
    TubeImplicit,
    TubeRow,
)
from tuque.core.node.node import Node
from tuque.core.records.jobs import (
    LIFE,
    TASK_ADD,
    TASK_STATE,
    Records,
)
from tuque.core.records.read import Record
from tuque.core.records.tubes import (
    BY_VOTE,
    COMPLETE,
    FOREIGN,
    GONE,
    MAJORITY,
    MINE,
    OTHERS,
    OWED,
    HomeRecord,
    TaskRecord,
    renew_task,
    task_of,
    tell_task,
)
from tuque.tubes.entries.keys import enter_record, is_sound, open_entry, with_work
from tuque.tubes.entries.schedule import is_apart
from tuque.tubes.entries.work import packed
from tuque.tubes.log.catalog import bury_tube, record_gone
from tuque.tubes.log.leader import is_alone
from tuque.tubes.log.receive import hold, keep_copy
from tuque.tubes.log.send import record_leader
from tuque.tubes.log.vote_state import VoteLog, tell_votes, vote_of
from tuque.tubes.model.errors import shown
from tuque.tubes.model.grants import Rights
from tuque.tubes.model.tube import INIT, RUNNING, Held, Tube
from tuque.tubes.model.tubes import Dropped, Session, Tubes
from tuque.tubes.policies.next_task import Tasks
from tuque.tubes.schedules import take_up
from tuque.tubes.tasks.admin import enter_tube, keep_rights
from tuque.tubes.tasks.sessions import enter_session
from tuque.tubes.types.driver import NO_TYPE, Absent, Driver
from tuque.tubes.work.dead_letters import lie_down
from tuque.tubes.work.transitions import arm, enter, record_tube

TOKEN_GAP: Final = 1 << 20  # takes that a torn end of the journal may have lost


@final
class HomeLog:
    """The leaders in the journal read so far."""

    def __init__(self) -> None:
        self.homes: dict[bytes, HomeRecord] = {}
        self.held: dict[bytes, dict[int, Held]] = {}
        self.gone: dict[tuple[bytes, bytes, int], HomeRecord] = {}  # name, creator, instant
        self.votes = VoteLog()

    def on_holder(self, r: TubeHolder) -> None:
        """A session holds tasks of a replica."""
        held = self.held.get(r.name)
        if held is None:
            held = {}
            self.held[r.name] = held
        held[r.number] = Held(r.uuid, r.user)

    def apply(self, r: HomeRecord) -> None:
        """Apply one record of a leader."""
        if r.flags & GONE:
            which = (r.name, r.maker, r.made_ns)
            self.gone.pop(which, None)
            self.gone[which] = copied(r)
        else:
            self.gone.pop((r.name, r.maker, r.made_ns), None)  # T17.6: it came too late
            before = self.homes.get(r.name)
            if before is not None and before.copy_epoch != r.copy_epoch:
                self.held.pop(r.name, None)  # their numbers were another leader's
            self.homes[r.name] = copied(r)

    def on_drop(self, name: bytes) -> None:
        """The tube is gone from here: dropped, or set aside for another one (T17.5)."""
        self.homes.pop(name, None)
        self.held.pop(name, None)
        self.votes.stands.pop(name, None)
        self.votes.families.pop(name, None)

    def restore(self, n: Node, t: Tubes, tube: Tube) -> None:
        """[T22] Set the leader of a tube about to be entered."""
        r = self.homes.get(tube.name)
        if r is None:  # from before the tube had a leader
            tube.home = n.node_id
            tube.maker = n.node_id
        else:
            tube.home = r.home
            tube.maker = r.maker
            tube.made_ns = r.made_ns
            tube.epoch = r.epoch
            tube.seq = r.seq
            tube.seq_reserved = r.seq
            tube.loaded_seq = r.seq
            tube.copy_epoch = r.copy_epoch
            tube.told_seq = r.told_seq
            tube.sync = r.sync
            tube.led_by_votes = r.flags & BY_VOTE != 0
            tube.by_majority = r.flags & MAJORITY != 0
            tube.is_mine = r.flags & MINE != 0 and r.home == n.node_id
            tube.is_complete = r.flags & COMPLETE != 0
            tube.is_owed = r.flags & OWED != 0
            if tube.is_mine:
                tube.exact_seq = r.told_seq
        is_foreign = r is not None and r.flags & FOREIGN != 0
        tube.is_local = tube.is_mine and not is_foreign  # T20.5
        tube.state = RUNNING if tube.is_local and is_alone(n) else INIT
        tube.is_won = False  # T27.5
        tube.may_send = False  # T27.5
        self.votes.restore_family(tube, r is not None and r.flags & OTHERS != 0)
        self.votes.restore_stand(tube)
        resume_alone(n, t, tube)
        for number, held in self.held.get(tube.name, {}).items():
            hold(t, tube, number, held.uuid, held.user)

    def restore_gone(self, t: Tubes) -> None:
        """Remember dropped tubes."""
        for r in self.gone.values():
            bury_tube(t, r.name, Dropped(r.maker, r.made_ns, r.epoch))


def resume_alone(n: Node, t: Tubes, tube: Tube) -> None:
    """[T27] The only voter leads on under its epoch: nobody else could be elected (T27.10).

    A tube that it has given away (T23.7) it still sends, as far as it was changed before (T25.6).
    """
    epoch, node_id = vote_of(tube)
    if not tube.led_by_votes or not tube.is_mine or (epoch, node_id) != (tube.epoch, n.node_id):
        return
    if tube.from_number > 0:
        tube.may_send = True
    elif t.voter_state.decides(tube, n.node_id) and tube.is_complete and not t.voter_state.has_gap:
        tube.is_won = True
        tube.may_send = True
        tube.lease_ms = NEVER_MS
        tube.exact_seq = -1
        tube.state = RUNNING if tube.is_local else INIT


def copied(r: HomeRecord) -> HomeRecord:
    """A copy of the record, which outlives the decoder's."""
    kept = HomeRecord()
    kept.name = r.name
    kept.epoch = r.epoch
    kept.seq = r.seq
    kept.copy_epoch = r.copy_epoch
    kept.told_seq = r.told_seq
    kept.made_ns = r.made_ns
    kept.sync = r.sync
    kept.flags = r.flags
    kept.maker = r.maker
    kept.home = r.home
    return kept


def restore_copy(t: Tubes, tube: Tube, task: Task) -> bool:
    """[T22] Restore a task of a tube that does not run here; False: it is here already."""
    if task.number in tube.copies or task.id in t.copies_by_id:
        return False
    if tube.next_number <= task.number:
        tube.next_number = task.number + 1
    if tube.is_local and task.owner != 0:
        tube.owners[task.owner] = None
    keep_copy(t, tube, task)
    return True


def reply_leaders(n: Node, t: Tubes, records: Records) -> None:
    """[T22] Record leaders at the start of a snapshot, after their tubes; and dropped tubes."""
    for tube in t.by_name.values():
        record_leader(records, tube)
        for number, held in tube.held.items():
            records.put(TubeHolder(number, held.uuid, held.user, tube.name))
    for name, drops in t.dropped.items():
        for gone in drops.values():
            record_gone(records, name, gone)
    tell_votes(t, records)


def copies_of(t: Tubes) -> list[Task]:
    """All copies on this node."""
    return list(t.copies_by_id.values())


# ---- Tubes, tasks and sessions from the journal (SPEC T14)
#
# Records are applied in order as they are read. Tubes enter the node before its jobs, and each
# task then joins its tube. Applying a record twice changes nothing.


@final
class Draft:
    """A tube in the journal read so far."""

    def __init__(self, r: TubeRow) -> None:
        self.names = [r.name, r.kind, r.storage, r.engine, r.callback]
        self.number: i64 = r.number
        self.next_number: i64 = r.next_number
        self.ttl_ms: i64 = r.ttl_ms
        self.ttr_ms: i64 = r.ttr_ms
        self.pri: i64 = r.pri
        self.capacity: i64 = r.capacity
        self.is_temporary = r.is_temporary
        self.is_implicit = False


@final
class TubeLog:
    """The tubes in the journal read so far; tasks are among the jobs."""

    def __init__(self) -> None:
        self.drafts: dict[bytes, Draft] = {}
        self.sessions: dict[int, Session] = {}
        self.waiting: list[Session] = []  # until all is loaded
        self.rights = Rights()
        self.homes = HomeLog()
        self.session_serial: i64 = 0
        self.token: i64 = 0
        self.token_reserved: i64 = 0
        self.ttr_ms: i64 = 0
        self.in_replicaset = False
        self.has_cfg = False

    def take(self, kind: i64, r: Record, jobs: dict[bytes, Job]) -> None:
        """Apply one record of tubes, tasks, sessions or leaders."""
        row = r.row
        if kind in (TASK_ADD, TASK_STATE):
            self.apply(kind, r.task, jobs)
        elif kind in KINDS and row is not None:
            self.on_row(row)
        else:
            self.homes.apply(r.home)

    def takes_life(self, r: Record, jobs: dict[bytes, Job]) -> bool:
        """Apply a LIFE of a task: the run that a worker has begun (T48.2). False: it is none."""
        task = jobs.get(r.id)
        if r.kind != LIFE or not isinstance(task, Task):
            return False
        life = r.life.life
        if life is not None and is_sound(task.subqueue) and not is_apart(task.subqueue):
            task.subqueue = with_work(task.subqueue, packed(life))
        return True

    def apply(self, kind: i64, r: TaskRecord, jobs: dict[bytes, Job]) -> None:
        """Apply one record to tasks."""
        if kind == TASK_STATE:
            job = jobs.get(r.id)
            if isinstance(job, Task):
                renew_task(job, r)
                self.seen(job)
            return
        job = jobs.get(r.id)
        if isinstance(job, Task):
            renew_task(job, r)
            job.pri = r.pri  # it is in no order yet
            job.subqueue = r.subqueue  # of a schedule: it changes (T45.3)
            job.body = r.body  # T44.7, T48.11
            job.form = u8(r.form)
            job.delay_s = i32(r.delay_s)
        else:
            job = task_of(r)
            jobs[r.id] = job
        self.seen(job)

    def on_row(self, row: Row) -> None:
        """Apply one record to tubes, sessions and rights."""
        leaders = self.homes
        if isinstance(row, TubeRow):
            self.on_tube(row)
        elif isinstance(row, TubeImplicit):
            draft = self.drafts.get(row.name)
            if draft is not None:
                draft.is_implicit = True  # T2.9
        elif isinstance(row, TubeDrop):
            self.drafts.pop(row.name, None)
            leaders.on_drop(row.name)
            for one in self.rights.listing(row.name):
                self.rights.set(one.holder, one.tube, one.prefix, 0)
        elif isinstance(row, GrantRow):
            self.rights.set(row.holder, row.tube, row.prefix, row.bits)
        elif isinstance(row, SessionRow):
            self.on_session(row)
        elif isinstance(row, TubeHolder):
            leaders.on_holder(row)
        elif isinstance(row, TubeCfg):
            self.ttr_ms = row.ttr_ms
            self.in_replicaset = row.in_replicaset
            self.token_reserved = max(self.token_reserved, i64(row.token_reserved))
            self.has_cfg = True

    def on_tube(self, row: TubeRow) -> None:
        """A tube exists, with its options and the next number."""
        before = self.drafts.get(row.name)
        draft = Draft(row)
        if before is not None and before.number == draft.number:
            draft.next_number = max(draft.next_number, before.next_number)
        self.drafts[row.name] = draft

    def seen(self, task: Task) -> None:
        """Keep used numbers from being given again."""
        draft = self.drafts.get(task.queue)
        if draft is not None and draft.next_number <= task.number:
            draft.next_number = task.number + 1
        if task.token > self.token:
            self.token = task.token
        if task.owner > self.session_serial:
            self.session_serial = task.owner

    def on_session(self, r: SessionRow) -> None:
        """A session exists, or has ended."""
        if r.number > self.session_serial:
            self.session_serial = r.number
        if r.is_over:
            self.sessions.pop(r.number, None)
        else:
            self.sessions[r.number] = Session(r.number, r.uuid, r.user)

    def is_empty(self) -> bool:
        """Whether the journal had no tubes."""
        has_any = len(self.drafts) + len(self.homes.gone) > 0 or self.homes.votes.voters is not None
        return not has_any and not self.has_cfg

    def restore(self, n: Node, t: Tubes) -> list[str]:
        """[T14] Enter tubes and sessions, before their tasks; returns lines for the log."""
        notes: list[str] = []
        t.ttr_ms = self.ttr_ms
        t.in_replicaset = self.in_replicaset
        token = self.token + TOKEN_GAP
        if token < self.token_reserved:
            token = self.token_reserved
        if token < n.now_ms * 1000:
            token = n.now_ms * 1000
        if t.token < token:
            t.token = token  # T5.1
        if t.session_serial < self.session_serial:
            t.session_serial = self.session_serial
        self.homes.votes.restore_voters(n, t)
        for name, draft in self.drafts.items():
            if name in t.by_name:
                continue
            factory = t.drivers.get(draft.names[1])
            if factory is None:
                notes.append(NO_TYPE % (shown(name), shown(draft.names[1])))
                factory = Absent  # T14.5
            driver = factory()
            if isinstance(driver, Tasks):
                driver.begin_empty(n.now_ms)
            tube = made(n, draft, driver)
            self.homes.restore(n, t, tube)
            enter_tube(n, t, tube)
        self.homes.restore_gone(t)
        for one in self.rights.listing(b""):
            if one.tube in t.by_name:
                keep_rights(t, one.holder, one.tube, one.prefix, one.bits)
        if self.in_replicaset and self.ttr_ms > 0:
            for session in self.sessions.values():
                if session.number in t.sessions:
                    continue  # it exists: only the data are loaded again
                enter_session(t, session)
                self.waiting.append(session)
        return notes

    def begin_sessions(self, n: Node, t: Tubes) -> None:
        """[T14] All is loaded: sessions can be joined again (T14.3)."""
        for session in self.waiting:
            session.until_ms = n.now_ms + self.ttr_ms
            heappush(t.session_ends, (session.until_ms, session.number))
        self.waiting = []


def made(n: Node, draft: Draft, driver: Driver) -> Tube:
    """The tube of the draft."""
    tube = Tube(draft.names[0], 0, n.now_ms, draft.number, draft.names[1], driver)
    tube.storage_mode = draft.names[2]
    tube.engine = draft.names[3]
    tube.on_task_change = draft.names[4]
    tube.next_number = draft.next_number
    tube.reserved = draft.next_number
    tube.ttl_ms = draft.ttl_ms
    tube.ttr_ms = draft.ttr_ms
    tube.pri = draft.pri
    tube.capacity = draft.capacity
    tube.is_temporary = draft.is_temporary
    tube.is_implicit = draft.is_implicit
    return tube


def restore_task(n: Node, t: Tubes, task: Task) -> bool:
    """[T14] Restore a task in its status; False: its tube is gone, or it is here (T14.2)."""
    tube = t.by_name.get(task.queue)
    if tube is None or task.number in tube.tasks or task.id in n.jobs:
        return False
    if tube.driver.has_keys:
        enter_record(task)
    if tube.state != RUNNING:
        return restore_copy(t, tube, task)
    if task.ctime_ns > n.last_ctime_ns and task.ctime_ns // 1_000_000 <= n.now_ms:
        n.last_ctime_ns = task.ctime_ns
    task.queue = tube.name
    if task.status == TAKEN and task.owner != 0 and task.owner not in t.sessions:
        if 0 < task.qtime_ms <= n.now_ms:
            tube.calls.ttr += 1
        else:
            tube.calls.release += 1
        task.deliveries += 1
        task.owner = 0
        task.status = u8(READY)
        task.qtime_ms = 0
    take_in(n, t, tube, task)
    return True


def take_in(n: Node, t: Tubes, tube: Tube, task: Task) -> None:
    """Enter a task of the journal or of a replica into the leader's tables, in its status."""
    if tube.driver.has_keys:
        open_entry(task)
        take_up(n, tube, task)
    if tube.driver.is_timed:
        task.dead_ms = task.created_ms + task.ttl_ms
    task.retry_s = retry_of(task.ttr_ms, n.limits.default_retry_max_s)
    if task.delivered_count > 0:
        task.flags |= DELIVERED
    tube.calls.loaded += 1
    enter(n, t, tube, task, stats.LOADED)
    if tube.next_number <= task.number:
        tube.next_number = task.number + 1
    settle_in(t, tube, task)
    arm(n, t, task, task.qtime_ms)
    if task.status == BURIED and tube.driver.has_keys:
        lie_down(n, t, tube, task)


def settle_in(t: Tubes, tube: Tube, task: Task) -> None:
    """Enter the task into the tube's tables by its status."""
    used = tube.driver.bytes_used
    task.state = u8(state_of(i64(task.status)))
    if task.status == READY:
        tube.length += 1
        tube.driver.enter(task)
    elif task.status == TAKEN:
        tube.taken += 1
        tube.driver.held(task)
        session = t.sessions.get(task.owner)
        if session is not None:
            session.taken[task.id] = task
    elif task.status == DELAYED:
        tube.delayed += 1
    else:
        assert task.status == BURIED
        tube.buried += 1
        tube.graves.add(task)
    t.charge(tube, tube.driver.bytes_used - used)
    t.watch(tube)


# ---- Tubes, tasks and sessions into a snapshot (SPEC T14)


def tell_all_tubes(n: Node, t: Tubes, records: Records) -> None:
    """[T14] Record tubes, sessions and configuration at the start of a snapshot."""
    if t.token_reserved < t.token:  # taken while there was no journal
        t.token_reserved = t.token
    records.put(TubeCfg(t.ttr_ms, t.in_replicaset, t.token_reserved))
    for tube in t.by_name.values():
        record_tube(records, tube)
    reply_leaders(n, t, records)
    for one in t.rights.listing(b""):
        records.put(GrantRow(one.bits, one.tube, one.prefix, one.holder))
    if t.in_replicaset:
        for session in t.sessions.values():
            records.put(
                SessionRow(session.number, session.until_ms, False, session.uuid, session.user)
            )


def tell_task_of(t: Tubes, task: Task, records: Records) -> bool:
    """Record a task, or a copy, as it is; False if it is gone, or its tube is temporary."""
    tube = t.by_name.get(task.queue)
    if tube is None or tube.is_temporary or tube.find(task.number) is not task:
        return False
    tell_task(records, task)
    return True
