"""What other nodes report of tubes and their leaders is accepted or rejected (SPEC T17).

If two nodes claim leadership, the higher epoch wins. Of two tubes created apart under one name, a
tube that votes confirmed wins; of equal ones, that whose creator has the lower node id.
"""

from typing import Final

from mypy_extensions import i64

from tuque.core.msgs.bus import TubeAt, TubesTold
from tuque.core.msgs.records import TubeDrop
from tuque.core.node.node import Node
from tuque.core.node.peers import say
from tuque.core.node.queue import PAUSE_IN, PAUSE_OUT
from tuque.core.queues.deliver import set_pause
from tuque.tubes.leadership.activate import lose_home, send_away
from tuque.tubes.leadership.load import put_all_away
from tuque.tubes.leadership.switchover import on_leader_told
from tuque.tubes.log.catalog import (
    BY_MAJORITY,
    CAN_VOTE,
    FAILS_OVER,
    IS_ASIDE,
    IS_CONFIRMED,
    IS_DROPPED,
    IS_IMPLICIT,
    IS_RUNNING,
    IS_TEMPORARY,
    JOURNAL_OFF,
    KNOWS_VOTES,
    PAUSE_SHIFT,
    READ_ONLY,
    announce,
    announce_gone,
    at_of,
    bury_tube,
    drop_of,
    forget_drop,
    gone_at,
    has_room_for_drop,
    record_gone,
    told,
)
from tuque.tubes.log.leader import knows_all, synced
from tuque.tubes.log.receive import ask_copies, remove_copies
from tuque.tubes.log.send import record_leader
from tuque.tubes.log.vote_state import record_family
from tuque.tubes.model.errors import shown
from tuque.tubes.model.tube import INIT, Overtaken, Tube
from tuque.tubes.model.tubes import Dropped, Tubes
from tuque.tubes.tasks.admin import enter_tube, keep_tube, leave_tube
from tuque.tubes.types.driver import Absent
from tuque.tubes.work.transitions import record_tube

ASIDE_MAX: Final = 10_000  # losers of name conflicts that are remembered

# which of two tubes of one name other nodes follow: the higher one (T17.5)
NEVER_CONFIRMED: Final = 0  # led by votes, and no majority stood with its leader: it is empty
NOT_BY_VOTES: Final = 1
CONFIRMED: Final = 2  # by a majority of the voters


def on_told(n: Node, t: Tubes, slot: i64, m: TubesTold) -> None:
    """[T17] ON RECV TUBES (T17.2)."""
    bit: i64 = 1 << slot
    if m.flags & KNOWS_VOTES:
        t.voter_state.able |= bit  # T23.3
    if m.flags & CAN_VOTE:
        t.voter_state.willing |= bit
    else:
        t.voter_state.willing &= ~bit
    note_journal(t, bit, m.flags)
    if m.flags & READ_ONLY:
        t.read_only |= bit
    else:
        t.read_only &= ~bit
    t.ports[slot] = m.port
    others: dict[bytes, None] = {}  # names that another tube has here
    for at in m.tubes:
        if at.flags & IS_DROPPED == 0:
            on_told_tube(n, t, slot, at)
        elif not on_told_gone(n, t, slot, at):
            others[at.name] = None
    tubes = [at_of(n, t.by_name[name]) for name in others if name in t.by_name]
    if len(tubes) > 0:
        say(n, slot, told(t, False, tubes))  # T17.6: these have the names now
    if m.is_all:
        t.heard |= bit
        t.has_met = True
        t.voter_state.unmet &= ~bit
    t.must_look = True


def note_journal(t: Tubes, bit: i64, flags: i64) -> None:
    """[T23] Note whether the journal of the sender is off (T23.3)."""
    if flags & JOURNAL_OFF:
        t.voter_state.no_journal |= bit
    else:
        t.voter_state.no_journal &= ~bit


def is_same(tube: Tube, at: TubeAt) -> bool:
    """Whether both are one tube, not just of one name."""
    return tube.maker == at.maker and tube.made_ns == at.made_ns


def on_told_gone(n: Node, t: Tubes, slot: i64, at: TubeAt) -> bool:
    """A tube was dropped: remove it here, and remember that. False: another one has the name."""
    t.aside.pop((at.maker, at.made_ns), None)
    gone = Dropped(at.maker, at.made_ns, at.epoch)
    tube = t.by_name.get(at.name)
    if tube is not None and is_same(tube, at):
        if tube.epoch <= at.epoch:
            end_tube(n, t, tube, gone, slot)
        return True
    if drop_of(t, at.name, at.maker, at.made_ns) is None and has_room_for_drop(t, at.name):
        bury_tube(t, at.name, gone)  # T17.6: who was away then may bring it
        if n.records is not None:
            record_gone(n.records, at.name, gone)
    if tube is None:
        return True
    tube.apart &= ~(1 << slot)  # T20.1
    if tube.conflict == at.home or tube.conflict == n.peers[slot].node_id:
        tube.conflict = b""
    return False


def end_tube(n: Node, t: Tubes, tube: Tube, gone: Dropped, but: i64) -> None:
    """The tube is dropped: forget it, and tell all nodes except the slot `but` (T17.6)."""
    forget_tube(n, t, tube)
    bury_tube(t, tube.name, gone)
    if n.records is not None:
        record_gone(n.records, tube.name, gone)
    announce_gone(n, t, tube.name, gone, but)


def is_nowhere(n: Node, t: Tubes, tube: Tube) -> bool:
    """[T17] Whether this node is to lead the tube, lost it, and nobody put a task into it (T17.6).

    No voter then can lead it, or one does soon. All nodes must be linked: one may know more.
    """
    if tube.home != n.node_id or tube.is_mine or tube.is_complete:
        return False
    if not knows_all(n, t):
        return False
    return worth_of(at_of(n, tube)) == NEVER_CONFIRMED


def drop_nowhere(n: Node, t: Tubes, tube: Tube) -> bool:
    """[T17] Drop a tube that no node has (T17.6); False: it is another one."""
    if not is_nowhere(n, t, tube):
        return False
    end_tube(n, t, tube, Dropped(tube.maker, tube.made_ns, tube.epoch), -1)
    return True


def forget_tube(n: Node, t: Tubes, tube: Tube) -> None:
    """Remove the tube and all its tasks; a plain queue takes the name."""
    if tube.is_mine:
        lose_home(n, t, tube, tube.home, tube.epoch)
    send_away(n, t, tube)
    put_all_away(n, t, tube)
    remove_copies(n, t, tube)
    leave_tube(n, t, tube)
    if n.records is not None:
        n.records.put(TubeDrop(tube.name))


def on_told_tube(n: Node, t: Tubes, slot: i64, at: TubeAt) -> None:
    """Handle a peer's entry about a tube."""
    gone = drop_of(t, at.name, at.maker, at.made_ns)
    if gone is not None and at.epoch > gone.epoch:
        forget_drop(t, at.name, at.maker, at.made_ns)  # T17.6
    elif gone is not None:
        say(n, slot, told(t, False, [gone_at(at.name, gone)]))
        return
    tube = t.by_name.get(at.name)
    if tube is not None and not is_same(tube, at):
        tube.apart |= 1 << slot  # T20.1
        if not is_behind(n, t, slot, at):
            on_conflict(n, t, slot, tube, at)
        return
    by_leader = n.peers[slot].node_id == at.home
    if tube is not None and at.flags & IS_ASIDE == 0:
        tube.apart &= ~(1 << slot)
    if tube is not None and at.flags & IS_CONFIRMED and not tube.is_confirmed:
        tube.is_confirmed = True
        if tube.apart != 0:
            announce(n, t, [tube], slot)  # T17.5: who follows another one may not see the leader
    if tube is not None and tube.is_implicit and at.flags & IS_IMPLICIT == 0:
        keep_tube(n, t, tube)  # T2.9: whatever node learned it first
    if tube is None:
        tube = learn_tube(n, t, at)
        announce(n, t, [tube], slot)
    elif at.epoch > tube.epoch or (at.epoch == tube.epoch and at.home > tube.home):  # T19.4
        on_new_home(n, t, slot, tube, at)
    elif at.epoch < tube.epoch:
        announce_to(n, t, slot, tube)
        return
    if tube.home != at.home:
        return
    if by_leader and tube.is_owed and at.epoch == tube.epoch:
        if at.flags & IS_RUNNING:
            on_leader_told(t, tube)
        else:
            announce_to(n, t, slot, tube)
    if by_leader:
        on_leader_news(n, t, tube, at)
    if by_leader or not tube.is_asking:
        ask_copies(n, t, tube)


def on_leader_news(n: Node, t: Tubes, tube: Tube, at: TubeAt) -> None:
    """The leader itself sent the entry."""
    was = tube.overtaken
    tube.overtaken = None
    if was is not None:
        note_lost(t, tube, at, was)  # T21.4
    tube.heard_ms = n.now_ms
    if tube.take_family(at.family, at.moves, at.from_number) and n.records is not None:
        record_family(n.records, tube)  # T23.7
    if at.flags & IS_RUNNING:
        tube.led_epoch = at.epoch  # T18.1
    tube.told_seq = max(tube.told_seq, at.seq)
    if not tube.is_mine:
        renew_tube(n, tube, at)


def renew_pause(n: Node, at: TubeAt) -> None:
    """Apply the pause of a tube led elsewhere (T17.7).

    Only the leader sends it, or a node with a higher epoch. That is safe: each leader sends the
    pause before the next epoch on the same link.
    """
    set_pause(n, at.name, at.flags >> PAUSE_SHIFT & (PAUSE_IN | PAUSE_OUT))


def renew_tube(n: Node, tube: Tube, at: TubeAt) -> None:
    """Update what may change under the same leader (T17.2)."""
    renew_pause(n, at)
    is_changed = tube.on_task_change != at.words[3]
    tube.on_task_change = at.words[3]
    if tube.next_number < at.next_number:
        tube.next_number = at.next_number
        is_changed = is_changed or tube.is_temporary
    if is_changed and n.records is not None:
        tube.reserved = tube.next_number
        record_tube(n.records, tube)


def announce_to(n: Node, t: Tubes, slot: i64, tube: Tube) -> None:
    """The peer is behind: send it the tube; if it was handed the tube, TUBE-YOURS again."""
    if tube.is_owed and n.peers[slot].node_id == tube.home:
        t.owing.append((tube, slot))
        t.must_look = True


def on_new_home(n: Node, t: Tubes, slot: i64, tube: Tube, at: TubeAt) -> None:
    """[T17] Adopt the leader with the higher epoch (T17.1)."""
    if tube.is_mine and at.home != n.node_id:
        answered = min(tube.seq, synced(n, t, tube))
        tube.overtaken = Overtaken(tube.seq, answered, tube.loaded_seq)
    move = tube.move
    if move is not None and move.is_given and move.node_id == at.home:
        on_leader_told(t, tube)  # T27.6
    lose_home(n, t, tube, at.home, at.epoch)
    renew_pause(n, at)
    tube.told_seq = at.seq
    if n.records is not None:
        record_leader(n.records, tube)
    announce(n, t, [tube], slot)


def note_lost(t: Tubes, tube: Tube, at: TubeAt, was: Overtaken) -> None:
    """[T21] Log the changes that the new leader lacks, and count those that were answered.

    Only that leader knows with which change it began; of changes before the last start this node
    knows nothing (T21.4).
    """
    since = max(at.begin_seq, was.loaded_seq)
    dropped = max(0, was.seq - since)
    lost = max(0, was.answered_seq - since)
    t.changes_lost += lost
    more = ""
    if at.begin_seq < was.loaded_seq and not (tube.by_majority and t.voter_state.leads(tube)):
        more = ", perhaps also some of before the last start"
    if dropped == 0 and len(more) == 0:
        return
    line = (
        f"tube {shown(tube.name)}: {at.home[:8].decode()} is its leader now (epoch {at.epoch}), "
        f"without the last {dropped} changes here{more}: {lost} of them were answered"
    )
    if lost == 0 and len(more) == 0:
        t.news.append(line)
    else:
        t.notes.append(line)


def on_conflict(n: Node, t: Tubes, slot: i64, tube: Tube, at: TubeAt) -> None:
    """[T17] Two tubes of one name, created apart (T17.5), or created again (T17.6)."""
    known = at_of(n, tube)
    ours = worth_of(known)
    theirs = worth_of(at)
    is_theirs = at.made_ns > tube.made_ns if at.maker == tube.maker else at.maker < tube.maker
    if ours != theirs:
        is_theirs = theirs > ours
    if tube.is_mine and is_theirs and gives_way(n, tube, ours, theirs):
        t.notes.append(
            f"tube {shown(tube.name)}: the one that this node created is dropped: no majority "
            f"ever confirmed it, and the one of node {at.maker[:8].decode()} has the name"
        )
        end_tube(n, t, tube, Dropped(tube.maker, tube.made_ns, tube.epoch), -1)
        follow(n, t, slot, at, b"")
        return
    has_voted = ours == theirs == NEVER_CONFIRMED and at.maker != tube.maker  # T27.8
    if tube.is_mine or not is_theirs or has_voted or len(tube.copies) > 0:  # K3.5
        if theirs != NEVER_CONFIRMED or ours == NEVER_CONFIRMED:
            tube.conflict = at.home  # its tasks are nowhere else, even if its creator made another
        return
    is_over = at.maker == tube.maker or (ours == NEVER_CONFIRMED and theirs != NEVER_CONFIRMED)
    conflict = b"" if is_over else tube.home
    set_aside(t, known)
    forget_tube(n, t, tube)
    follow(n, t, slot, at, conflict)


def worth_of(at: TubeAt) -> i64:
    """[T17] What a tube is worth beside another one of its name (T17.5).

    Only a leader with a lease makes changes, and only votes give a higher epoch. So nothing was
    ever put into a tube that was never confirmed.
    """
    if at.flags & FAILS_OVER == 0:
        return NOT_BY_VOTES
    if at.flags & IS_CONFIRMED or at.epoch > 1 or at.seq > 0:
        return CONFIRMED
    return NEVER_CONFIRMED


def gives_way(n: Node, tube: Tube, ours: i64, theirs: i64) -> bool:
    """[T17] Whether this node created the tube led here, and drops it for the other one (T17.5).

    After a start it does not know whether a majority had confirmed an empty one.
    """
    if ours != NEVER_CONFIRMED or tube.maker != n.node_id:
        return False
    return theirs == CONFIRMED or tube.exact_seq < 0


def follow(n: Node, t: Tubes, slot: i64, at: TubeAt, conflict: bytes) -> None:
    """This node follows that tube from now on, which the peer told of."""
    learned = learn_tube(n, t, at)
    learned.conflict = conflict
    announce(n, t, [learned], slot)
    ask_copies(n, t, learned)


def set_aside(t: Tubes, at: TubeAt) -> None:
    """This node now follows another tube of that name: remember the leader of this one (T17.5)."""
    known = (at.maker, at.made_ns)
    at.flags |= IS_ASIDE
    t.aside.pop(known, None)
    t.aside[known] = at
    if len(t.aside) > ASIDE_MAX:
        for oldest in t.aside:
            del t.aside[oldest]
            break


def is_behind(n: Node, t: Tubes, slot: i64, at: TubeAt) -> bool:
    """Whether the peer knows less of a tube set aside here: then it is sent the news (T17.1)."""
    known = t.aside.get((at.maker, at.made_ns))
    if known is None:
        return False
    if at.epoch < known.epoch:
        say(n, slot, told(t, False, [known]))
        return True
    if at.epoch > known.epoch or worth_of(at) > worth_of(known):
        set_aside(t, at)
    return False


def learn_tube(n: Node, t: Tubes, at: TubeAt) -> Tube:
    """Add a tube unknown here; this node does not lead it, whatever others say (T22.2)."""
    t.aside.pop((at.maker, at.made_ns), None)
    factory = t.drivers.get(at.words[0])
    driver = Absent() if factory is None else factory()
    tube = Tube(at.name, 0, n.now_ms, t.next_tube, at.words[0], driver)
    tube.storage_mode = at.words[1]
    tube.engine = at.words[2]
    tube.on_task_change = at.words[3]
    tube.is_temporary = at.flags & IS_TEMPORARY != 0
    tube.ttl_ms = at.ttl_ms
    tube.ttr_ms = at.ttr_ms
    tube.pri = at.pri
    tube.capacity = at.capacity
    tube.next_number = at.next_number
    tube.reserved = at.next_number
    tube.sync = at.sync
    tube.led_by_votes = at.flags & FAILS_OVER != 0
    tube.by_majority = at.flags & BY_MAJORITY != 0
    tube.take_family(at.family, at.moves, at.from_number)
    tube.is_confirmed = at.flags & IS_CONFIRMED != 0
    tube.is_implicit = at.flags & IS_IMPLICIT != 0
    tube.maker = at.maker
    tube.made_ns = at.made_ns
    tube.home = at.home
    tube.epoch = at.epoch
    tube.state = INIT
    tube.is_mine = False
    tube.is_local = False
    tube.is_complete = tube.is_temporary
    tube.copy_epoch = 0
    tube.told_seq = at.seq
    enter_tube(n, t, tube)
    t.voter_state.meet(tube)
    send_away(n, t, tube)
    if n.records is not None:
        record_tube(n.records, tube)
        record_leader(n.records, tube)
        record_family(n.records, tube)
    renew_pause(n, at)
    return tube
