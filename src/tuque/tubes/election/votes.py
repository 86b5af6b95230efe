"""The entry points of votes: messages, links and time (SPEC T23 to T27)."""

from mypy_extensions import i64

from tuque.core.model.errors import EXISTS, LATE, NO_VOTES_YET, NOT_MADE, OTHER_TYPE
from tuque.core.model.task import FAR
from tuque.core.msgs.bus import (
    AnyMessage,
    TubePulse,
    TubeStands,
    TubeVote,
    VoteMessage,
    VotersNext,
    VotersTold,
)
from tuque.core.node.node import Node
from tuque.core.node.peers import say, slots_of
from tuque.tubes.election.candidate import (
    look_at_stands,
    on_own_vote,
    on_vote,
    on_voted,
)
from tuque.tubes.election.disk_epoch import disk_epochs_tick, forget_copies
from tuque.tubes.election.force import count_copies, decide_force, send_forced
from tuque.tubes.election.lease import (
    bind,
    look_at_journal,
    next_beat_ms,
    on_pulse,
    on_stands,
    pulse,
    renew_leases,
    tell_all_stands,
    tell_stands,
)
from tuque.tubes.election.membership import changes_tick, on_next
from tuque.tubes.election.voters import (
    OWN,
    begin_solo,
    is_settled,
    leave_forgotten,
    new_disk,
    on_voters,
    settle,
    voters_message,
)
from tuque.tubes.leadership.catalog_in import NEVER_CONFIRMED, end_tube, worth_of
from tuque.tubes.log.catalog import at_of
from tuque.tubes.log.leader import others_of, refusal_of
from tuque.tubes.log.receive import sort_copies
from tuque.tubes.log.vote_state import shortest_ms
from tuque.tubes.model.errors import TubeError
from tuque.tubes.model.tube import RUNNING, Tube
from tuque.tubes.model.tubes import Dropped, HomeDone, Tubes
from tuque.tubes.model.voter_state import (
    IN_FORCE,
    NO_DISK,
)

# ---- Messages, links and time: called by `policy`


def on_vote_message(n: Node, t: Tubes, slot: i64, m: VoteMessage) -> None:
    """[B3] ON RECV any message about votes."""
    b = t.voter_state
    if n.is_loading or b.able >> slot & 1 == 0:
        return  # T23.3
    if isinstance(m, VotersNext):
        on_next(n, t, slot, m)
    elif isinstance(m, VotersTold):
        on_voters(n, t, slot, m)
    elif isinstance(m, TubePulse):
        on_pulse(n, t, slot, m)
    elif isinstance(m, TubeStands):
        on_stands(n, t, slot, m)
    elif isinstance(m, TubeVote):
        on_vote(n, t, slot, m)
    else:
        count_copies(n, t, slot, m)
        on_voted(n, t, slot, m)


def votes_loaded(n: Node, t: Tubes) -> None:
    """[T25] The node may have promised before it stopped (T25.5)."""
    b = t.voter_state
    bind(n, b)
    b.since_ms = n.now_ms
    if b.disk == NO_DISK:
        b.disk = new_disk(n)  # T28.5
    if b.has_gap:
        b.has_gap = False
        forget_copies(n, t)
    begin_solo(n, t)


def votes_link_down(n: Node, t: Tubes, slot: i64) -> None:
    """The link is gone: what came over it must be told again."""
    b = t.voter_state
    bit: i64 = 1 << slot
    b.able &= ~bit
    b.outside &= ~bit
    b.lame &= ~bit
    b.asking &= ~bit
    b.willing &= ~bit
    b.no_journal &= ~bit
    b.open &= ~bit
    b.heard.pop(slot, None)
    if b.forcing is not None:
        b.forcing.waiting.pop(slot, None)
    b.vouching.pop(slot, None)  # its disk may be another one when it is back
    b.disks.pop(slot, None)
    if b.voters is None:
        return
    for tube in t.by_name.values():
        vote = tube.seat
        if vote is not None:
            vote.standing &= ~bit
    b.is_renewed = True


def votes_tick(n: Node, t: Tubes) -> None:
    """[T27] Do what is due about votes."""
    b = t.voter_state
    if n.is_loading:
        return
    leave_forgotten(n, t)
    if b.voters is None:
        begin_solo(n, t)
    vote_for_makers(n, t)
    greet(n, t)
    send_due(n, t)
    decide_force(n, t)
    voters = b.in_force()
    moved = b.moved
    b.moved = []
    if voters is None:
        return
    if len(moved) > 0:
        tell_stands(n, t, moved)
    if b.must_sort or 0 < b.keeps_until_ms <= n.now_ms:
        sort_copies(n, t)
    note_late(n, t)
    if next_beat_ms(n, t) <= n.now_ms:
        look_at_journal(n, t, voters)
        disk_epochs_tick(n, t, voters)
        pulse(n, t, voters)
        changes_tick(n, t, voters)
        b.is_renewed = True
    if b.look_ms <= n.now_ms:
        look_at_stands(n, t)
    if b.is_renewed or 0 < b.lease_ms < n.now_ms:
        renew_leases(n, t)
    if len(t.creating) > 0:
        answer_creates(n, t)


def note_late(n: Node, t: Tubes) -> None:
    """[T27] Note that this node did nothing for long: what others sent may not be read (T27.2)."""
    b = t.voter_state
    timeout_ms: i64 = shortest_ms(n, t)
    is_late = 0 < b.ticked_ms < n.now_ms - timeout_ms // 4
    if is_late and b.late_ms < n.now_ms - timeout_ms:  # not for ever if each turn is long
        b.late_ms = n.now_ms + timeout_ms // 4
    b.ticked_ms = n.now_ms


def votes_next_ms(n: Node, t: Tubes) -> i64:
    """When `votes_tick` has work next."""
    b = t.voter_state
    if n.is_loading:
        return FAR
    if b.able & n.linked & others_of(n) & ~b.open != 0:
        return n.now_ms
    records = n.records
    if len(b.due) > 0 and (records is None or b.due[0].wish <= records.granted):
        return n.now_ms
    for tube in (b.fresh[:1] + b.fresh[-1:]) if len(b.fresh) > 0 else b.fresh:
        if tube.vote_wish < 0 or may_vote_now(n, tube):
            return n.now_ms
    if b.in_force() is None:
        return FAR
    if len(b.moved) > 0 or b.is_renewed or b.must_sort:
        return n.now_ms
    at_ms = min(b.look_ms, next_beat_ms(n, t))
    if b.forcing is not None:
        at_ms = n.now_ms if len(b.forcing.waiting) == 0 else min(at_ms, b.forcing.until_ms)
    if 0 < b.keeps_until_ms < at_ms:
        at_ms = b.keeps_until_ms
    for done in t.creating:
        at_ms = min(at_ms, done.until_ms)
    if 0 < b.lease_ms < at_ms:
        at_ms = b.lease_ms + 1
    return at_ms


def greet(n: Node, t: Tubes) -> None:
    """[T24] Send the list, then all stands, to nodes that take part (T23.3, T24.2)."""
    b = t.voter_state
    new = b.able & n.linked & others_of(n) & ~b.open
    if new == 0:
        return
    b.open |= new
    voters = b.voters
    if voters is None:
        return
    b.beat_ms = 0  # a pulse follows at once: one of the two may ask (T29.3)
    for slot in slots_of(new):
        say(n, slot, voters_message(voters, IN_FORCE))
        tell_all_stands(n, t, slot)


def may_vote_now(n: Node, tube: Tube) -> bool:
    """[T27] Whether the disk has the new tube (T27.8), or there is no disk."""
    return n.records is None or 0 < tube.vote_wish <= n.records.granted


def vote_for_makers(n: Node, t: Tubes) -> None:
    """[T27] Vote for the makers of new tubes: one vote about each name (T24.3, T27.8)."""
    b = t.voter_state
    if len(b.fresh) == 0:
        return
    left: list[Tube] = []
    asked: i64 = 0
    for tube in b.fresh:
        records = n.records
        if records is None or may_vote_now(n, tube):
            tube.vote_wish = 0
            b.moved.append(tube)
            b.is_renewed = True
            continue
        if tube.vote_wish < 0 or tube.vote_wish > records.wish:  # the journal was restarted
            if asked == 0:
                records.has_custody = True
                records.wish += 1
                asked = records.wish
            tube.vote_wish = asked
        left.append(tube)
    b.fresh = left


def send_due(n: Node, t: Tubes) -> None:
    """Send what waited for the disk (T26.2)."""
    b = t.voter_state
    records = n.records
    if len(b.due) == 0 or records is None:
        return
    left = 0
    own: list[AnyMessage] = []
    for one in b.due:
        if one.wish > records.granted:
            break
        left += 1
        if one.slot != OWN:
            say(n, one.slot, one.message)
        else:
            own.append(one.message)
    b.due = b.due[left:]
    if len(b.due) > 0 and b.due[0].wish > records.wish:
        b.due = []  # the journal was restarted meanwhile: nothing of it counts
    for m in own:
        if isinstance(m, VotersNext):
            on_next(n, t, OWN, m)
        elif isinstance(m, TubeVote):
            on_own_vote(n, t, m)


def answer_creates(n: Node, t: Tubes) -> None:
    """[T27] Reply to CREATE once a majority stands with this node, or it took too long (T27.8)."""
    waiting = t.creating
    t.creating = []
    for done in waiting:
        tube = done.tube
        if tube is not None and not is_made(n, t, done, tube):
            if done.until_ms > n.now_ms and t.by_name.get(tube.name) is tube:
                t.creating.append(done)
                continue
            other = t.by_name.get(tube.name)
            if len(done.values) > 0:
                done.error = TubeError(NO_VOTES_YET, (tube.name,))
            elif other is not None and other is not tube:
                done.error = taken_by(n, t, tube, other, done)  # T17.5
            elif not drop_unmade(n, t, tube):
                voters = t.voter_state.list_of(tube)
                needed = 1 if voters is None else int(voters.majority())
                done.error = TubeError(LATE, (needed,))
            else:
                done.error = TubeError(NOT_MADE, (tube.name,))
        elif tube is not None and len(done.values) > 0:
            send_forced(n, tube, done)
        t.home_done.append(done)


def is_made(n: Node, t: Tubes, done: HomeDone, tube: Tube) -> bool:
    """[T27] Whether this node leads the tube, and a majority has all of a new one (T27.8)."""
    voters = t.voter_state.list_of(tube)
    if not tube.is_mine or not tube.is_won or tube.lease_ms < n.now_ms or voters is None:
        return False
    if len(done.values) > 0:
        return True
    if tube.state == RUNNING:
        settle(n, t, voters, tube)
    return is_settled(voters, tube)


def drop_unmade(n: Node, t: Tubes, tube: Tube) -> bool:
    """[T27] Drop a tube of this node that no majority ever confirmed (T27.8); False: one did."""
    if not tube.is_mine or worth_of(at_of(n, tube)) != NEVER_CONFIRMED:
        return False
    end_tube(n, t, tube, Dropped(tube.maker, tube.made_ns, tube.epoch), -1)
    return True


def taken_by(n: Node, t: Tubes, tube: Tube, other: Tube, done: HomeDone) -> TubeError:
    """[T27] The error of a CREATE whose tube gave way to the other one: it is known (T27.8)."""
    if not done.if_not_exists:
        return TubeError(EXISTS, (tube.name,))
    if other.type != tube.type:
        return TubeError(OTHER_TYPE, (tube.name, other.type))
    return refusal_of(n, t, other)


def check_votes(t: Tubes) -> None:
    """Assert that no tube runs here without a lease that votes gave (T25.2)."""
    for tube in t.by_name.values():
        if t.voter_state.leads(tube) and tube.is_mine and tube.state == RUNNING:
            assert tube.is_won, "a leader that no vote made"
