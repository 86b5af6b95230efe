"""Sends changes of a tube to the nodes with replicas (SPEC T18, the leader's side).

Each change on the leader has a number; the trail keeps the tasks of the last 65,536 changes. At the
end of a turn each follower gets the present state of changed tasks. A follower that is further
behind gets all tasks, in pieces, in order of their numbers.
"""

from typing import Final

from mypy_extensions import i64

from tuque.core.msgs.bus import LARGE_BODY, TubeCopy, TubeGot
from tuque.core.node.node import Node
from tuque.core.node.peers import say
from tuque.core.records.jobs import Records
from tuque.core.records.staged import record_key
from tuque.core.records.tubes import (
    BY_VOTE,
    COMPLETE,
    FOREIGN,
    MAJORITY,
    MINE,
    OWED,
    HomeRecord,
    tell_task,
    tell_task_life,
    tell_task_state,
    tell_tube_home,
)
from tuque.tubes.entries.keys import work_in
from tuque.tubes.log.results import ended_numbers, record_outcome, settle_ends
from tuque.tubes.model.tube import TRAIL_BYTES, Follower, Tube, Walk
from tuque.tubes.model.tubes import Tubes

TRAIL_MAX: Final = 65_536
SEQ_RESERVE: Final = 65_536  # change numbers that a restart may skip
COPY_BYTES: Final = 262_144  # of one TUBE-COPY, roughly
COPY_CHANGES: Final = 16_384
WALK_TASKS: Final = 4_096

# what of a task changed: in the trail
STATE: Final = 0
ALL: Final = 1
WORK: Final = 2  # its life, and its state

# flags of TubeCopy
WALK: Final = 1  # part of a scan, or sent during one
BEGINS: Final = 2  # start of a scan: tasks not sent by its end have ended
ENDS: Final = 4
SURE: Final = 8  # confirm when on disk (T20.3)

# flags of TubeGot
WHOLE: Final = 1  # the replica is complete
START: Final = 2  # send from there on
ON_DISK: Final = 4  # the reply to SURE
STOPPED: Final = 8  # the sender cannot deliver tasks (T19.5)
LEFT: Final = 16  # the sender has no copy any more (T18.1)


def trace(n: Node, tube: Tube, number: i64, what: i64) -> None:
    """[T18] A task changed, and there are other nodes: put it into the trail (T18.2)."""
    t = n.policy
    assert isinstance(t, Tubes)
    trail = tube.trail
    if tube.trail_end != tube.seq - 1:  # no follower needs earlier changes
        t.charge(tube, -TRAIL_BYTES * len(trail))
        trail = []
        tube.trail = trail
        tube.trail_base = tube.seq - 1
    tube.trail_end = tube.seq
    entry = number * 4 + what
    if len(trail) < TRAIL_MAX:
        trail.append(entry)
        t.charge(tube, TRAIL_BYTES)
    else:
        trail[(tube.seq - 1 - tube.trail_base) % TRAIL_MAX] = entry
    if tube.seq >= tube.seq_reserved:
        reserve_changes(n, tube)
    mark_changed(t, tube)


def trace_key(tube: Tube, full: bytes) -> None:
    """[T18] A key came with the last change: it goes to followers with that (T18.8)."""
    from_seq = trail_from(tube)
    keys = tube.key_trail
    while len(keys) > 0 and i64(keys[0][0]) <= from_seq:
        keys.popleft()
    keys.append((int(tube.seq), full))


def send_new_keys(n: Node, tube: Tube, from_seq: i64, to_seq: i64, records: Records) -> None:
    """The keys that came with these changes, as far as they are kept."""
    for seq, full in tube.key_trail:
        if from_seq < i64(seq) <= to_seq:
            for key, id, until_ms in n.keys.row(full):
                record_key(records, key, id, until_ms)


def reserve_changes(n: Node, tube: Tube) -> None:
    """Reserve the next change numbers on disk, before one is sent (T18.7).

    As a custody, it holds back this turn's frames until then, also under `everysec`.
    """
    if n.records is not None:
        tube.seq_reserved = tube.seq + SEQ_RESERVE
        record_leader(n.records, tube)
        n.records.has_custody = True


def mark_changed(t: Tubes, tube: Tube) -> None:
    """Queue the tube for its followers."""
    if not tube.is_changed:
        tube.is_changed = True
        t.changed.append(tube)


def trail_from(tube: Tube) -> i64:
    """The oldest change that the trail can continue from."""
    if tube.trail_end != tube.seq:
        return tube.seq
    return tube.seq - len(tube.trail)


def record_leader(records: Records, tube: Tube) -> None:
    """Record the leader, and the last change here (T22.1)."""
    r = HomeRecord()
    r.name = tube.name
    r.epoch = tube.epoch
    r.seq = tube.seq
    if tube.is_mine and tube.seq_reserved > tube.seq:
        r.seq = tube.seq_reserved
    r.copy_epoch = tube.copy_epoch
    r.told_seq = tube.told_seq
    if tube.is_mine:
        r.told_seq = tube.exact_seq if tube.exact_seq >= 0 else tube.seq
    r.made_ns = tube.made_ns
    r.sync = tube.sync
    r.maker = tube.maker
    r.home = tube.home
    r.flags = MINE if tube.is_mine else 0
    if tube.is_mine and not tube.is_local:
        r.flags |= FOREIGN
    if tube.is_complete:
        r.flags |= COMPLETE
    if tube.is_owed:
        r.flags |= OWED
    if tube.led_by_votes:
        r.flags |= BY_VOTE
    if tube.by_majority:
        r.flags |= MAJORITY
    tell_tube_home(records, r)


# ---- Messages of followers (SPEC T18.2, T18.3)


def on_got(n: Node, t: Tubes, slot: i64, m: TubeGot) -> None:
    """[T18] ON RECV TUBE-GOT: a confirmation (T18.2), or a request (T18.3)."""
    tube = t.by_name.get(m.name)
    if tube is None or tube.maker != m.maker or tube.made_ns != m.made_ns:
        return
    follower = tube.followers.get(slot)
    if follower is None:
        follower = Follower(slot)
        tube.followers[slot] = follower
    if m.known > follower.known:
        follower.known = m.known
        t.must_look = True
    if not tube.is_mine or m.known > tube.epoch:
        return
    follower.is_stopped = m.flags & STOPPED != 0
    is_whole = m.flags & WHOLE != 0
    if m.flags & LEFT:
        follower.is_open = False
        follower.walk = None
        follower.got = 0
        follower.is_complete = False
    elif m.flags & START:
        if tube.seq > tube.seq_reserved:  # for the last changes there was no follower
            reserve_changes(n, tube)
        begin_telling(tube, follower, m.epoch, m.seq, is_whole)
        mark_changed(t, tube)
    elif m.epoch == tube.epoch and m.seq <= tube.seq:
        follower.got = m.seq
        follower.is_complete = is_whole
        if m.flags & ON_DISK and tube.move is not None and tube.move.slot == slot:
            tube.move.on_disk_seq = m.seq
    t.synced_changed = True
    settle_ends(n, t, tube)
    if tube.move is not None or tube.from_number != 0:
        t.must_look = True


def begin_telling(tube: Tube, follower: Follower, epoch: i64, seq: i64, is_whole: bool) -> None:
    """Start sending: changes since then, or everything (T18.3)."""
    follower.is_open = True
    follower.is_new = True
    is_known = epoch == tube.epoch or (epoch == tube.before_epoch and seq == tube.begin_seq)
    if is_whole and is_known and trail_from(tube) <= seq <= tube.seq:
        follower.walk = None
        follower.cursor = seq
        follower.got = seq
        follower.is_complete = True
        return
    follower.walk = Walk()
    follower.got = 0
    follower.is_complete = False


# ---- The end of a turn: followers get their changes (SPEC T18)


def tell_copies(n: Node, t: Tubes) -> None:
    """[T18] Send followers their changes, as far as their links have room (T18.2, T18.4)."""
    changed = t.changed
    t.changed = []
    t.is_held = False
    for tube in changed:
        tube.is_changed = False
        if not tube.is_mine or tube.is_temporary:
            continue
        if not t.voter_state.leads(tube):
            tell_followers(n, t, tube)
        elif tube.may_send:  # T25.6, T27.5
            if n.records is not None:
                record_leader(n.records, tube)  # T22.5
            tell_followers(n, t, tube)


def tell_followers(n: Node, t: Tubes, tube: Tube) -> None:
    """Send one message to each follower; equal positions share its bytes."""
    last: TubeCopy | None = None
    last_from: i64 = -1
    for slot, follower in tube.followers.items():
        peer = n.peers[slot]
        if not follower.is_open or not peer.is_linked:
            continue
        if not peer.has_room:
            t.is_held = True
            mark_changed(t, tube)
            continue
        walk = follower.walk
        if walk is not None:
            tell_walk(n, t, tube, follower, walk)
            if follower.walk is not None:
                mark_changed(t, tube)
        elif follower.cursor < trail_from(tube):
            begin_telling(tube, follower, 0, 0, False)
            mark_changed(t, tube)
        elif follower.cursor < tube.seq or follower.is_new:
            follower.is_new = False
            if last is None or last_from != follower.cursor:
                last_from = follower.cursor
                last = changes_of(n, t, tube, follower.cursor, None)
            say(n, slot, last)
            follower.cursor = last.to_seq
        if follower.cursor < tube.seq:
            mark_changed(t, tube)


def changes_of(n: Node, t: Tubes, tube: Tube, from_seq: i64, walk: Walk | None) -> TubeCopy:
    """The present state of tasks changed after `from_seq`, as many as fit one message."""
    records = t.scratch
    writer = records.writer
    seen: dict[int, int] = {}  # by number: what of the task is sent
    gone: list[int] = []
    owners: dict[int, None] = {}
    trail = tube.trail
    base = tube.trail_base
    seq = from_seq
    most = from_seq + COPY_CHANGES
    while seq < tube.seq and seq < most and len(writer) < COPY_BYTES:
        entry: i64 = trail[(seq - base) % TRAIL_MAX]
        seq += 1
        number = entry >> 2
        what = entry & 3
        is_again = number in seen
        sent: i64 = seen[number] if is_again else 0
        if is_again and (sent & ALL or what & ~sent == 0):
            continue
        seen[number] = int(sent | what)
        if walk is not None and walk.next_number <= number < walk.end_number:
            continue  # the scan will send it
        task = tube.find(number)
        if task is None:
            if not is_again:
                gone.append(number)
                record_outcome(n, tube, number, records)  # T48.6
            continue
        if what & ALL:
            tell_task(records, task)
        else:
            tell_task_state(records, task, True)
            work = work_in(task) if what & WORK else b""
            if len(work) > 0:  # the run may be over, and have left nothing
                tell_task_life(records, task.id, work)
        if task.entry is not None:
            task.entry.drop_image()
        if task.owner != 0:
            owners[task.owner] = None
    send_new_keys(n, tube, from_seq, seq, records)
    return copy_of(n, t, tube, from_seq, seq, 0, gone, owners)


def copy_of(
    n: Node,
    t: Tubes,
    tube: Tube,
    from_seq: i64,
    to_seq: i64,
    flags: i64,
    gone: list[int],
    owners: dict[int, None],
) -> TubeCopy:
    """A message with the gathered records."""
    sessions: list[tuple[int, bytes, bytes]] = []
    if t.in_replicaset:
        for number in owners:
            session = t.sessions.get(number)
            if session is not None:
                sessions.append((number, session.uuid, session.user))
    records = t.scratch.take()
    if len(records) >= LARGE_BODY:
        n.has_large = True
    return TubeCopy(
        tube.name,
        tube.maker,
        tube.made_ns,
        tube.epoch,
        from_seq,
        to_seq,
        n.now_ms,
        tube.next_number,
        flags,
        records,
        gone,
        sessions,
    )


def tell_walk(n: Node, t: Tubes, tube: Tube, follower: Follower, walk: Walk) -> None:
    """Send part of a scan, after changes of tasks that it has sent."""
    flags: i64 = WALK
    follower.is_new = False
    if walk.is_fresh:
        walk.is_fresh = False
        walk.numbers = list(tube.tasks) + list(tube.copies) + ended_numbers(n, tube)
        walk.numbers.sort()
        walk.end_number = tube.next_number
        walk.keys = n.keys.in_tube(tube.name)
        follower.cursor = tube.seq
        flags |= BEGINS
    elif follower.cursor < tube.seq:
        if follower.cursor < trail_from(tube):  # the trail is too short
            begin_telling(tube, follower, 0, 0, False)
            return
        changes = changes_of(n, t, tube, follower.cursor, walk)
        changes.flags = WALK
        say(n, follower.slot, changes)
        follower.cursor = changes.to_seq
    records = t.scratch
    owners: dict[int, None] = {}
    count: i64 = 0
    end: i64 = len(walk.numbers)
    while walk.pos < end and count < WALK_TASKS and records.size() < COPY_BYTES:
        number: i64 = walk.numbers[walk.pos]
        walk.pos += 1
        walk.next_number = number + 1
        count += 1
        task = tube.find(number)
        if task is None:
            record_outcome(n, tube, number, records)  # T48.6
        else:
            tell_task(records, task)
            if task.owner != 0:
                owners[task.owner] = None
    if walk.pos == end:
        walk.next_number = walk.end_number
        has_sent = send_keys_of_walk(n, walk, records)
        if has_sent and follower.cursor == tube.seq:
            flags |= ENDS
            follower.walk = None
    seq = follower.cursor
    say(n, follower.slot, copy_of(n, t, tube, seq, seq, flags, [], owners))


def send_keys_of_walk(n: Node, walk: Walk, records: Records) -> bool:
    """The next keys of DEDUPE, as many as fit one message; whether there are no more."""
    end: i64 = len(walk.keys)
    while walk.key_pos < end and records.size() < COPY_BYTES:
        full, _, _ = walk.keys[walk.key_pos]
        walk.key_pos += 1
        for key, id, until_ms in n.keys.row(full):  # what it is now
            record_key(records, key, id, until_ms)
    return walk.key_pos == end


def ask_surely(n: Node, t: Tubes, tube: Tube, slot: i64) -> None:
    """Ask the follower to confirm when everything is on its disk (T20.3)."""
    say(n, slot, copy_of(n, t, tube, tube.seq, tube.seq, SURE, [], {}))
