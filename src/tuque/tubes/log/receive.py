"""Replicated tasks on nodes that do not lead their tube (SPEC T18, the follower's side).

A copy is a Task in no other tables than its tube's `copies` and `copies_by_id`: no command delivers
it, no timer acts on it. Its instants are on this node's clock; its holder is a session number of
the leader (`tube.held` has the session).
"""

from typing import Final, final

from mypy_extensions import i64

from tuque.core.model import stats
from tuque.core.model.job import BODYLESS, job_bytes, moved_ns
from tuque.core.model.job_id import ID_BYTES
from tuque.core.model.task import TASK_BYTES, Task
from tuque.core.model.work import Outcome
from tuque.core.msgs.bus import TubeCopy, TubeGot
from tuque.core.msgs.packed import COUNT_MAX
from tuque.core.msgs.records import TubeHolder
from tuque.core.node.node import Node
from tuque.core.node.peers import say
from tuque.core.queues.procedures import unregister
from tuque.core.records.jobs import (
    KEY,
    LIFE,
    OUTCOME,
    TASK_ADD,
    TASK_STATE,
)
from tuque.core.records.read import BadRecord, Record, decode
from tuque.core.records.staged import record_key
from tuque.core.records.tubes import (
    TaskRecord,
    renew_task,
    task_of,
    tell_task,
    tell_task_life,
    tell_task_state,
)
from tuque.core.records.work import may_grow
from tuque.core.tables.dedupe_keys import queue_of
from tuque.tubes.entries.keys import entry_in, put_work
from tuque.tubes.entries.work import may_carry
from tuque.tubes.log.leader import may_vote_about
from tuque.tubes.log.results import drop_end, keep_end
from tuque.tubes.log.send import (
    BEGINS,
    ENDS,
    LEFT,
    ON_DISK,
    START,
    STOPPED,
    SURE,
    WALK,
    WHOLE,
    record_leader,
)
from tuque.tubes.log.vote_state import best_copy, record_vote
from tuque.tubes.model.driver_guard import why_stopped
from tuque.tubes.model.tube import Held, Tube
from tuque.tubes.model.tubes import Tubes

COPY_BYTES: Final = 200  # per copy in these tables (M1)
HELD_BYTES: Final = 300


def keep_copy(t: Tubes, tube: Tube, task: Task) -> None:
    """Add the task to the copies."""
    task.queue = tube.name
    tube.copies[task.number] = task
    t.copies_by_id[task.id] = task
    t.bytes_used += copy_bytes(task)


def drop_copy(t: Tubes, tube: Tube, task: Task) -> None:
    """Remove the task from the copies."""
    del tube.copies[task.number]
    t.copies_by_id.pop(task.id, None)
    t.bytes_used -= copy_bytes(task)


def copy_bytes(task: Task) -> i64:
    """Memory of a copy."""
    return job_bytes(task) + TASK_BYTES + COPY_BYTES


def hold(t: Tubes, tube: Tube, number: i64, uuid: bytes, user: bytes) -> bool:
    """Remember a session on the leader; False if known before."""
    held = tube.held.get(number)
    if held is not None and held.uuid == uuid and held.user == user:
        return False
    if held is None:
        t.bytes_used += HELD_BYTES
    tube.held[number] = Held(uuid, user)
    return True


def forget_held(t: Tubes, tube: Tube) -> None:
    """Forget all sessions on the leader."""
    t.bytes_used -= HELD_BYTES * len(tube.held)
    tube.held = {}


# ---- Which nodes have copies


def takes_copies(n: Node, t: Tubes, tube: Tube) -> bool:
    """[T18] Whether this node has a copy of the tube, or gets one (T18.1)."""
    if n.now_ms < t.voter_state.keeps_until_ms:
        return True
    voters = t.voter_state.list_of(tube)
    if voters is not None and len(voters.rights) == 1:
        return True
    return may_vote_about(n, t, tube, n.node_id)


def sort_copies(n: Node, t: Tubes) -> None:
    """[T18] Get copies, or drop them: this node has a vote now, or none (T18.1)."""
    b = t.voter_state
    b.must_sort = False
    t.must_look = True
    if b.keeps_until_ms <= n.now_ms:
        b.keeps_until_ms = 0
    for tube in t.by_name.values():
        if not tube.is_mine and tube.is_replica != takes_copies(n, t, tube):
            ask_copies(n, t, tube)


def leave_copies(n: Node, t: Tubes, tube: Tube) -> None:
    """[T18] Drop the copy here, unless its leader may still need it to run (T18.1).

    The node counts like one with a new disk: what it confirmed was under another list (T28.5).
    """
    slot = n.slot_of.get(tube.home)
    if not tube.is_replica or tube.led_epoch != tube.epoch or slot is None:
        return
    tube.is_replica = False
    tube.is_asking = False
    tube.is_complete = False
    tube.copy_epoch = 0
    tube.whole_epoch = 0
    tube.whole_seq = 0
    tube.unseen = {}
    forget_held(t, tube)
    drop_keys(n, tube)
    if n.records is not None:
        record_leader(n.records, tube)
        record_vote(n.records, tube)
    say(n, slot, got_of(tube, LEFT))
    t.left.append(tube)


def drop_left(n: Node, t: Tubes) -> None:
    """[T18] Drop copies of tubes that this node has left, as many as a turn may (T19.6)."""
    while len(t.left) > 0 and t.shift_room > 0:
        tube = t.left[0]
        is_left = t.by_name.get(tube.name) is tube and not tube.is_replica
        if not is_left or len(tube.copies) == 0:
            t.left.pop(0)
            continue
        numbers = [number for number, _ in zip(tube.copies, range(t.shift_room), strict=False)]
        t.shift_room -= len(numbers)
        for number in numbers:
            remove_copy(n, t, tube, number)


# ---- Requests to the leader


def ask_copies(n: Node, t: Tubes, tube: Tube) -> None:
    """[T18] Ask the leader for changes after those of this node (T18.3)."""
    slot = n.slot_of.get(tube.home)
    if tube.is_mine or slot is None or slot == 0 or tube.shift is not None:
        return  # T19.6: asks when all are copies
    if not takes_copies(n, t, tube):
        leave_copies(n, t, tube)
        return
    if n.peers[slot].is_linked:
        tube.is_replica = True
        tube.is_asking = True
        say(n, slot, got_of(tube, START))


def tell_served(n: Node, tube: Tube) -> None:
    """[T19] Tell the leader that tasks can now be delivered here (T19.5)."""
    slot = n.slot_of.get(tube.home)
    if tube.is_mine or slot is None or slot == 0 or tube.shift is not None:
        return
    if (tube.is_asking or not tube.is_replica) and not tube.is_temporary:
        return  # the next confirmation says it
    if n.peers[slot].is_linked:
        say(n, slot, got_of(tube, 0))


def got_of(tube: Tube, flags: i64) -> TubeGot:
    """A report on what this node has of the tube."""
    if tube.is_complete:
        flags |= WHOLE
    if len(why_stopped(tube.type, tube.driver)) > 0:
        flags |= STOPPED
    return TubeGot(
        tube.name, tube.maker, tube.made_ns, tube.epoch, tube.copy_epoch, tube.seq, flags
    )


# ---- Changes from the leader (SPEC T18.2)


def on_copy(n: Node, t: Tubes, slot: i64, m: TubeCopy) -> None:
    """[T18] ON RECV TUBE-COPY: apply all of it, or nothing (T18.2)."""
    tube = t.by_name.get(m.name)
    if tube is None or tube.maker != m.maker or tube.made_ns != m.made_ns:
        return
    if tube.is_mine or m.epoch != tube.epoch or n.peers[slot].node_id != tube.home:
        return  # from a former leader
    if tube.shift is not None or not tube.is_replica:
        return  # T19.6, T18.1: nothing was asked for
    if tube.seat is not None and tube.seat.voted_epoch > m.epoch and t.voter_state.leads(tube):
        return  # T26.2
    tube.heard_ms = n.now_ms
    tube.told_seq = max(tube.told_seq, m.to_seq)
    if not keeps(n, t, tube):
        tube.is_asking = False  # T27.9: it asks with the first change after that
        return
    if not fits(tube, m):
        if not tube.is_asking:
            ask_copies(n, t, tube)
        return
    changes = changes_in(m.records)
    if changes is None or not is_of_tube(t, tube, changes):
        lose_whole(n, t, tube)
        ask_copies(n, t, tube)
        return
    if m.flags & BEGINS:
        lose_whole(n, t, tube)
        drop_keys(n, tube)
        tube.unseen = dict.fromkeys(tube.copies)
    tube.is_asking = False
    if tube.copy_epoch != m.epoch:
        tube.copy_epoch = m.epoch
        forget_held(t, tube)  # T20.5: a new leader numbers its sessions anew, and sends them
        if n.records is not None:
            record_leader(n.records, tube)
    tube.seq = m.to_seq
    tube.exact_seq = -1
    if tube.next_number < m.next_number:
        tube.next_number = m.next_number
    apply(n, t, tube, m, changes)
    if m.flags & ENDS:
        unseen = tube.unseen
        tube.unseen = {}
        for number in unseen:
            remove_copy(n, t, tube, number)
        tube.is_complete = True
        tube.told_seq = m.to_seq
    confirm(n, slot, tube, m.flags & SURE != 0)


def confirm(n: Node, slot: i64, tube: Tube, is_sure: bool) -> None:
    """[T18] Report the changes that are here now; `is_sure`: from the disk (T18.2)."""
    if n.records is not None:
        record_leader(n.records, tube)
        if is_sure:
            n.records.has_custody = True
    say(n, slot, got_of(tube, ON_DISK if is_sure else 0))


def keeps(n: Node, t: Tubes, tube: Tube) -> bool:
    """[T27] Whether the journal of a voter with a copy can be written (T27.9)."""
    voters = t.voter_state.list_of(tube)
    if voters is None or (voters.is_solo and n.node_id not in voters.rights):
        return True
    return n.records is not None and not n.records.is_failing


def lose_whole(n: Node, t: Tubes, tube: Tube) -> None:
    """[T26] The replica is incomplete from now on; votes go by what it was (T26.3)."""
    if not tube.is_complete:
        return
    tube.whole_epoch, tube.whole_seq = best_copy(tube)
    tube.is_complete = False
    if t.voter_state.voters is not None and n.records is not None:
        record_vote(n.records, tube)


def fits(tube: Tube, m: TubeCopy) -> bool:
    """Whether the message continues from the changes here."""
    if m.flags & BEGINS:
        return True
    if m.from_seq != tube.seq or (m.flags & WALK != 0) == tube.is_complete:
        return False
    return m.epoch == tube.copy_epoch or tube.is_asking


@final
class DedupeKey:
    """A key of DEDUPE with its queue, the id of its job, and its end."""

    def __init__(self, full: bytes, id: bytes, until_ms: i64) -> None:
        self.full = full
        self.id = id
        self.until_ms = until_ms


@final
class Changes:
    """What one message says: tasks as they are now, and how others ended (T48.6)."""

    def __init__(self) -> None:
        self.tasks: list[TaskRecord] = []
        self.ends: list[Outcome] = []
        self.keys: list[DedupeKey] = []  # T18.8
        self.lives: list[tuple[bytes, bytes]] = []  # id of a task, and its life (T48.2)

    def take(self, r: Record, rest: bytes) -> bool:
        """Take a record that was read; `rest`: what follows its id. False: no leader sends it."""
        kind = r.kind
        if kind in (TASK_ADD, TASK_STATE):
            self.tasks.append(r.task)
            return may_count(r.task)
        if kind == KEY:
            self.keys.append(DedupeKey(r.stage.key, r.stage.id, r.stage.until_ms))
            return True
        if kind == LIFE:
            self.lives.append((r.id, rest))
            work = r.life.life
            return work is not None and may_carry(work) and may_grow(work)
        outcome = r.life.outcome
        if kind != OUTCOME or outcome is None:
            return False
        self.ends.append(outcome)
        return outcome.is_of_task() and outcome.ended_ms > 0


def changes_in(records: bytes) -> Changes | None:
    """The records in the message; None if any byte is wrong."""
    found = Changes()
    r = Record()
    at: i64 = 0
    while at < len(records):
        start = at
        r.task = TaskRecord()
        try:
            at = decode(records, start, r)
        except BadRecord:
            return None
        if not found.take(r, records[start + 5 + ID_BYTES : at] if r.kind == LIFE else b""):
            return None
    return found


def may_count(r: TaskRecord) -> bool:
    """Whether the counters of the task may still grow here (B2.1). `|`: of all, one bit less."""
    return r.nacks | r.deliveries | r.delivered_count < COUNT_MAX


def is_of_tube(t: Tubes, tube: Tube, changes: Changes) -> bool:
    """Whether all of it can be of this tube."""
    for outcome in changes.ends:
        if outcome.queue != tube.name:
            return False
    for key in changes.keys:
        if queue_of(key.full) != tube.name:
            return False
    if len(changes.lives) > 0:
        told = {r.id for r in changes.tasks}
        for id, _ in changes.lives:
            if not tube.driver.has_keys or id not in told:
                return False
    return are_known(t, tube, changes.tasks)


def are_known(t: Tubes, tube: Tube, changes: list[TaskRecord]) -> bool:
    """Whether each change is a whole task, or of a task that is here or earlier in the message.

    A job id belongs to one number of one tube; anything else is damaged.
    """
    new: dict[bytes, int] = {}
    for r in changes:
        task = t.copies_by_id.get(r.id)
        is_other = task is not None and task.queue != tube.name
        if r.is_whole:
            number: int = r.number
            if task is not None and task.number != r.number:
                is_other = True
            packed = r.subqueue if tube.driver.has_keys else b""
            r.entry = entry_in(packed) if len(packed) > 0 else None
            if len(packed) > 0 and r.entry is None:
                return False
            if is_other or r.queue != tube.name or new.get(r.id, number) != number:
                return False
            new[r.id] = number
        elif is_other or (task is None and r.id not in new):
            return False
    return True


def apply(n: Node, t: Tubes, tube: Tube, m: TubeCopy, changes: Changes) -> None:
    """Apply the changes to the replica, and record them."""
    jump_ms: i64 = n.now_ms - m.now_ms
    records = n.records
    for number, uuid, user in m.sessions:
        if hold(t, tube, number, uuid, user) and records is not None:
            records.put(TubeHolder(number, uuid, user, tube.name))
    is_walk = m.flags & WALK != 0
    tube.is_local = False
    for outcome in changes.ends:
        keep_end(n, outcome, jump_ms)
    for r in changes.tasks:
        shift_record(r, jump_ms)
        if r.id in n.life.kept:
            drop_end(n, r.id)
        if r.is_whole:
            old = tube.copies.get(r.number)
            if old is not None:
                drop_copy(t, tube, old)
                if old.id != r.id and records is not None:
                    records.remove(old.id, stats.MOVED)  # T18.6: else it comes back
            end_stray_ack(n, r.id)
            task = task_of(r)
            if tube.driver.has_keys:
                task.entry, task.subqueue = r.entry, b""
            keep_copy(t, tube, task)
            if tube.next_number <= task.number:
                tube.next_number = task.number + 1
            if records is not None:
                tell_task(records, task)
        else:
            known = t.copies_by_id[r.id]
            renew_task(known, r)
            task = known
            if records is not None:
                tell_task_state(records, task, True)
        if is_walk:
            tube.unseen.pop(task.number, None)
        if task.token > t.token:
            t.token = task.token  # T20.5
    for id, work in changes.lives:
        task = t.copies_by_id[id]
        if put_work(task, work) and records is not None:
            tell_task_life(records, id, work)
    for key in changes.keys:
        keep_key(n, key, jump_ms)
    for gone in m.gone:
        remove_copy(n, t, tube, gone)


def keep_key(n: Node, key: DedupeKey, jump_ms: i64) -> None:
    """[T18] Keep a key of DEDUPE as the leader does (T18.8)."""
    until_ms = key.until_ms + jump_ms
    if until_ms <= n.now_ms or n.keys.is_of(key.full, key.id):
        return
    n.keys.put(key.full, key.id, until_ms)
    if n.records is not None:
        record_key(n.records, key.full, key.id, until_ms)


def drop_keys(n: Node, tube: Tube) -> None:
    """[T18] The leader sends all its keys of DEDUPE anew (T18.8)."""
    for full, id, _ in n.keys.in_tube(tube.name):
        n.keys.drop(full)
        if n.records is not None:
            record_key(n.records, full, id, 0)


def end_stray_ack(n: Node, id: bytes) -> None:
    """Discard an ack that came before the copy and was stored as a job's; no effect (T1.4)."""
    job = n.jobs.get(id)
    if job is not None and job.flags & BODYLESS:
        unregister(n, job, stats.GC_ACKED)
        if n.records is not None:
            n.records.remove(id, stats.GC_ACKED)


def remove_copy(n: Node, t: Tubes, tube: Tube, number: i64) -> None:
    """The task has ended on the leader: remove it."""
    task = tube.copies.get(number)
    tube.unseen.pop(number, None)
    if task is not None:
        drop_copy(t, tube, task)
        if n.records is not None:
            n.records.remove(task.id, stats.MOVED)


def remove_copies(n: Node, t: Tubes, tube: Tube) -> None:
    """Remove all copies."""
    for number in list(tube.copies):
        remove_copy(n, t, tube, number)
    tube.unseen = {}
    forget_held(t, tube)


def shift_record(r: TaskRecord, jump_ms: i64) -> None:
    """Move instants to this node's clock; none becomes negative, unset ones stay 0."""
    if r.is_whole:
        r.created_ms = max(0, r.created_ms + jump_ms)
        r.ctime_ns = moved_ns(r.ctime_ns, jump_ms)
    if r.qtime_ms != 0:
        r.qtime_ms = max(1, r.qtime_ms + jump_ms)
    if r.taken_ms != 0:
        r.taken_ms = max(1, r.taken_ms + jump_ms)
    if r.first_ms != 0:
        r.first_ms = max(1, r.first_ms + jump_ms)
        r.last_ms = max(1, r.last_ms + jump_ms)
